//! `evenkeel explain statement`: may it be sent twice?

use std::process::ExitCode;

use anyhow::bail;
use evenkeel_cql::statement::{self, Bound, Shape};
use serde_json::json;

use crate::output;

/// Say whether a CQL statement may be sent to Cassandra twice, by a retry or a hedge, and why.
///
/// The answer is that of the proxy for a request that carries a timestamp of the client, as drivers
/// send by default. docs/cassandra-idempotence.md has the table of reasons.
/// Example: evenkeel explain statement "UPDATE shop.carts SET items = ? WHERE id = ?"
///   --bind list,uuid
#[derive(Debug, clap::Args)]
pub(super) struct StatementArguments {
    /// The statement.
    #[arg(value_name = "CQL")]
    text: String,
    /// The types of its bind markers, as Cassandra tells them to who prepares it: list, set, map,
    /// counter, int or any other name. Without: unknown, as in an unprepared statement.
    #[arg(long, value_name = "TYPE", value_delimiter = ',')]
    bind: Option<Vec<String>>,
    /// The request carries no timestamp of the client.
    #[arg(long)]
    server_timestamps: bool,
    /// One JSON document in place of a sentence.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &StatementArguments) -> anyhow::Result<ExitCode> {
    let markers = markers(&arguments.text);
    let shapes: Option<Vec<Shape>> =
        arguments.bind.as_ref().map(|bind| bind.iter().map(|name| shape(name)).collect());
    if let Some(shapes) = shapes.as_ref().filter(|shapes| shapes.len() != markers) {
        bail!("--bind: got {} types, expected one for each of {markers} markers", shapes.len());
    }
    let bound = match &shapes {
        Some(shapes) => Bound { shapes: Some(shapes), has_unset: false },
        None => Bound::UNKNOWN,
    };
    let verdict = statement::read(&arguments.text).idempotence(bound, !arguments.server_timestamps);
    let words = verdict.to_string();
    if arguments.json {
        let why =
            words.strip_prefix("not idempotent: ").unwrap_or("two copies leave what one does");
        output::json(&json!({"idempotent": verdict.is_proven(), "why": why}))?;
    } else {
        output::line!("{words}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Bind markers (`?` and `:name`) outside what is quoted.
fn markers(text: &str) -> usize {
    let mut quote = None;
    let mut count = 0;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), _) if open == letter => quote = None,
            (None, '\'' | '"') => quote = Some(letter),
            (None, '?') => count += 1,
            (None, ':') if letters.peek().is_some_and(|next| next.is_alphabetic()) => count += 1,
            _ => {}
        }
    }
    count
}

fn shape(name: &str) -> Shape {
    match name.trim().to_ascii_lowercase().split('<').next().unwrap_or_default() {
        "list" => Shape::List,
        "set" => Shape::Set,
        "map" => Shape::Map,
        "counter" => Shape::Counter,
        "int" => Shape::Int,
        _ => Shape::Other,
    }
}
