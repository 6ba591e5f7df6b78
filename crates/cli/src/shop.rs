//! `evenkeel shop`: the example shop inside this program, so that a demo needs no other.

use std::process::ExitCode;

use anyhow::Context as _;
use evenkeel_shop::ShopArguments;

/// Run the example shop: pages that can do without recommendations when there is no time.
///
/// Prints one line on stdout when it is ready, `listening on http://ADDRESS:PORT`; stops on SIGTERM
/// or Ctrl-C.
/// Example: evenkeel shop --database shop.db --listen 127.0.0.1:8000
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    shop: ShopArguments,
    /// Stop at once when standard input ends: whoever started the shop is gone, however it died.
    #[arg(long)]
    until_stdin_ends: bool,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    if arguments.until_stdin_ends {
        let watch = std::thread::Builder::new().name("stdin".to_owned());
        watch.spawn(exit_with_stdin).context("cannot start a thread")?;
    }
    evenkeel_shop::run(arguments.shop)?;
    Ok(ExitCode::SUCCESS)
}

fn exit_with_stdin() {
    // An input that cannot be read has ended, too.
    let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
    std::process::exit(0);
}
