//! The words of Evenkeel: what people type and read.

mod demo;
mod jobs;
mod live;
mod load;
mod paper;
mod run;
mod sim;
mod sim_report;
mod terminal;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Worker threads allocate two kilobyte-sized buffers per proxied request inside the HTTP library;
/// the system's allocator takes 0.7 us for them outside the main thread, this one a tenth of it
/// (version 2: 2 % less CPU per request than version 3).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Keeps the tail latency of replicated services and stores inside its objective.
#[derive(Debug, Parser)]
#[command(name = "evenkeel", version, arg_required_else_help = true, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::RunArguments),
    Demo(demo::DemoArguments),
    Sim(sim::SimArguments),
    Paper(paper::PaperArguments),
    Load(load::LoadArguments),
    Check(run::CheckArguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.command {
        Command::Paper(arguments) => paper::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Sim(arguments) => sim::run(&arguments),
        Command::Load(arguments) => load::run(&arguments),
        Command::Check(arguments) => run::check(&arguments),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("evenkeel: {error:#}");
            ExitCode::from(2)
        }
    }
}
