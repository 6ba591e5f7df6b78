//! `evenkeel completions` and `evenkeel man`: what shells and `man` know of the commands, made
//! from the same description as `--help`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap_complete::Shell;

use crate::output;

/// Print the completions of a shell.
///
/// Bash reads them from /usr/share/bash-completion/completions/evenkeel, zsh from a file _evenkeel
/// in its $fpath, fish from ~/.config/fish/completions/evenkeel.fish; the package installs them.
/// Example: source <(evenkeel completions bash)
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArguments {
    /// The shell.
    shell: Shell,
}

/// Write the man pages, one for each command.
///
/// Example: evenkeel man ~/.local/share/man/man1
#[derive(Debug, clap::Args)]
pub(crate) struct ManArguments {
    /// The directory for the pages; it must exist.
    directory: PathBuf,
}

pub(crate) fn complete(
    arguments: &CompletionsArguments,
    mut command: clap::Command,
) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "evenkeel", &mut script);
    let script = String::from_utf8(script).context("a completion script is text")?;
    output::text!("{script}")?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn write_pages(
    arguments: &ManArguments,
    command: clap::Command,
) -> anyhow::Result<ExitCode> {
    let directory = &arguments.directory;
    clap_mangen::generate_to(command, directory)
        .with_context(|| format!("cannot write man pages to {}", directory.display()))?;
    Ok(ExitCode::SUCCESS)
}
