//! Runs that are bills: what a strategy of `evenkeel plan capacity` costs.

use std::path::Path;

use evenkeel_settings::{Mismatch, Node, Place, Problem, Problems};

use evenkeel_sim::capacity::{Capacity, Strategy};
use evenkeel_sim::report::RunReport;

/// Whether the input can be billed with these strategies.
pub(super) fn check(node: &Node, strategies: &[String]) -> Result<(), Problems> {
    Capacity::read(node, Path::new("."))?;
    for name in strategies {
        if Strategy::named(name).is_none() {
            let known = Strategy::ALL.map(Strategy::name).join(" or ");
            let what = Mismatch::new(format!("the strategy {name:?}"), known);
            let at = Place::whole("claims.toml");
            return Err(Problem { at, path: "experiments".to_owned(), what }.into());
        }
    }
    Ok(())
}

/// The bill of a strategy for the trace of a seed, by the first billing unit.
pub(super) fn run(node: &Node, name: &str, seed: u64) -> RunReport {
    let mut node = node.clone();
    node.set(&format!("trace.seed={seed}")).expect("a number can be set");
    let read = Capacity::read(&node, Path::new("."));
    let capacity = read.unwrap_or_else(|problems| panic!("checked when planned: {problems}"));
    let strategy = Strategy::named(name).expect("checked when planned");
    let outcome = capacity.simulate(strategy, capacity.billing[0]).expect("checked when read");
    RunReport::of_bill(name, seed, outcome)
}
