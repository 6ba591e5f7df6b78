//! `evenkeel explain`: why something is done as it is.

mod requests;
mod statement;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;

/// Explain why a request was slow, or another decision.
///
/// With --admin: asks a running process why its slow, failed, hedged and refused requests went as
/// they did: who was chosen and why, when a hedge left, what came. With the id of a request
/// (x-request-id) only that one. docs/explain.md describes every word.
/// Examples: evenkeel explain --admin http://127.0.0.1:9900 --slow
///   evenkeel explain --admin http://127.0.0.1:9900 4bf92f3577b34da6
///   evenkeel explain statement "UPDATE shop.carts SET items = ? WHERE id = ?"
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ExplainArguments {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    requests: Option<RequestsArguments>,
}

#[derive(Debug, Subcommand)]
enum What {
    Statement(statement::StatementArguments),
}

#[derive(Debug, clap::Args)]
struct RequestsArguments {
    /// The address of administration: `http://HOST:PORT` or `https://HOST:PORT`.
    #[arg(long, value_name = "URL")]
    admin: String,
    /// The id of a request, as it is in `x-request-id` and in the access log.
    #[arg(value_name = "REQUEST_ID")]
    id: Option<String>,
    /// Only slow requests: over the objective, or slower than 99 % of the requests before. The
    /// slowest come first.
    #[arg(long, conflicts_with = "id")]
    slow: bool,
    /// Only requests that failed or were refused.
    #[arg(long, conflicts_with = "id")]
    failed: bool,
    /// At most this many: 1 to 1000.
    #[arg(long, value_name = "N", default_value_t = 20,
        value_parser = clap::value_parser!(u16).range(1..=1_000))]
    limit: u16,
    /// The file of `[admin] token_file`, where the address asks for a token.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The authorities of the certificate, for https; default those of the operating system.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The answer of the API, all of its fields, in place of sentences.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &ExplainArguments) -> anyhow::Result<ExitCode> {
    match (&arguments.what, &arguments.requests) {
        (Some(What::Statement(arguments)), _) => statement::run(arguments),
        (None, Some(arguments)) => requests::run(arguments),
        (None, None) => {
            anyhow::bail!("expected --admin URL, or: evenkeel explain statement CQL")
        }
    }
}
