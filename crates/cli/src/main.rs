//! The words of Evenkeel: what people type and read.

mod jobs;
mod sim;
mod sim_report;
mod terminal;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Keeps the tail latency of replicated services and stores inside its objective.
#[derive(Debug, Parser)]
#[command(name = "evenkeel", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Sim(sim::SimArguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.command {
        Command::Sim(arguments) => sim::run(&arguments),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("evenkeel: {error:#}");
            ExitCode::from(2)
        }
    }
}
