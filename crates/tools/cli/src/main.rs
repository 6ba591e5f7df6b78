//! The words of Evenkeel: what people type and read.

#![warn(clippy::print_stdout)] // it panics when a reader goes away: output.rs

mod certificates;
mod demo;
mod explain;
mod flag;
mod html;
mod import;
mod jobs;
mod live;
mod load;
mod manual;
mod output;
mod paper;
mod plan;
mod profile;
mod replay;
mod run;
mod sim;
mod sim_report;
mod terminal;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

/// Worker threads allocate two kilobyte-sized buffers per proxied request inside the HTTP library,
/// which the system's allocator is slow at outside the main thread; version 2 was the faster one.
/// `cargo xtask bench http` shows what another allocator costs.
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
    Replay(replay::ReplayArguments),
    Import(import::ImportArguments),
    Paper(paper::PaperArguments),
    Load(Box<load::LoadArguments>),
    Profile(profile::ProfileArguments),
    Plan(plan::PlanArguments),
    Check(run::CheckArguments),
    Explain(explain::ExplainArguments),
    Certificates(certificates::CertificatesArguments),
    Completions(manual::CompletionsArguments),
    Man(manual::ManArguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.command {
        Command::Paper(arguments) => paper::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Sim(arguments) => sim::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Import(arguments) => import::run(&arguments),
        Command::Load(arguments) => load::run(&arguments),
        Command::Profile(arguments) => profile::run(&arguments),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Check(arguments) => run::check(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Certificates(arguments) => certificates::run(&arguments),
        Command::Completions(arguments) => manual::complete(&arguments, Arguments::command()),
        Command::Man(arguments) => manual::write_pages(&arguments, Arguments::command()),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("evenkeel: {error:#}");
            ExitCode::from(2)
        }
    }
}
