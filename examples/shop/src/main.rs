//! The shop as a program of its own: serve, generate the catalogue, measure what pages cost.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use evenkeel_shop::{CatalogueArguments, ShopArguments};

/// An auction shop that leaves out recommendations when a request says it is busy.
///
/// Example: evenkeel-shop --database shop.db --listen 127.0.0.1:8000
#[derive(Debug, Parser)]
#[command(name = "evenkeel-shop", version, args_conflicts_with_subcommands = true)]
#[command(max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    shop: ShopArguments,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write the catalogue into a new database and leave.
    ///
    /// Example: evenkeel-shop generate --database shop.db --items 30000
    Generate(CatalogueArguments),
    /// Show the CPU time of lean and full item pages, over items taken at even distances.
    ///
    /// Example: evenkeel-shop measure --database shop.db
    Measure {
        #[command(flatten)]
        catalogue: CatalogueArguments,
        /// How many items are rendered, each with every combination of optional parts.
        #[arg(long, default_value_t = 2_000, value_name = "PAGES")]
        pages: u32,
        /// Print one JSON document instead of a table.
        #[arg(long)]
        json: bool,
    },
}

fn main() -> ExitCode {
    match obey(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("evenkeel-shop: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn obey(arguments: Arguments) -> anyhow::Result<()> {
    match arguments.command {
        None => evenkeel_shop::run(arguments.shop),
        Some(Command::Generate(catalogue)) => evenkeel_shop::generate(&catalogue),
        Some(Command::Measure { catalogue, pages, json }) => {
            let costs = evenkeel_shop::measure(&catalogue, pages)?;
            println!("{}", if json { costs.json() } else { costs.to_string() });
            Ok(())
        }
    }
}
