//! Any text as a scenario, and each of its lines as a `--set` on top of a shipped one.
//!
//! Promise: a scenario or problems, never a panic; a scenario that is accepted asks for a finite
//! load on a bounded number of dispatchers, and all of its policies can be made.

#![no_main]

use evenkeel_core::request::select::Policy;
use evenkeel_settings::{DOCUMENT_BYTES_MAX, Node};
use evenkeel_sim::Scenario;
use evenkeel_sim::oracle::Oracle;
use evenkeel_sim::scenario::split_hedge;
use libfuzzer_sys::fuzz_target;

const SHIPPED: &str = include_str!("../../scenarios/demo.toml");

fuzz_target!(|data: &[u8]| {
    let text = &*String::from_utf8_lossy(data);
    if let Ok(node) = Node::parse(text, "fuzz.toml") {
        check(&node);
    }
    let mut node = Node::parse(SHIPPED, "demo.toml").expect("it is shipped");
    for line in text.lines().take(32) {
        if node.set(line).is_ok() {
            check(&node);
        }
    }
});

fn check(node: &Node) {
    match Scenario::read(node) {
        Ok(scenario) => check_accepted(&scenario),
        Err(problems) => assert!(!problems.to_string().is_empty()),
    }
}

fn check_accepted(scenario: &Scenario) {
    let rate = scenario.rate();
    assert!(rate.is_finite() && rate > 0.0, "{rate} requests per second");
    assert!(scenario.cluster.replication_factor <= scenario.cluster.servers);
    let pairs = scenario.clients_max().checked_mul(scenario.cluster.servers);
    assert!(pairs.is_some_and(|pairs| pairs <= 50_000_000), "{pairs:?} pairs");
    for text in &scenario.run.policies {
        let (policy, _) = split_hedge(text);
        let is_made = Oracle::NAMES.contains(&policy) || policy.parse::<Policy>().is_ok();
        assert!(is_made, "{text:?}");
        assert!(text.len() <= DOCUMENT_BYTES_MAX);
    }
}
