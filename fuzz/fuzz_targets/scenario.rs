//! Any text as a scenario, and each of its lines as a `--set` on top of a shipped one.
//!
//! Promise: a scenario or problems, never a panic; a scenario that is accepted asks for a finite
//! load on a bounded number of dispatchers, and all of its policies can be made.

#![no_main]

use std::sync::LazyLock;

use evenkeel_core::request::select::Policy;
use evenkeel_settings::Node;
use evenkeel_sim::Scenario;
use evenkeel_sim::oracle::Oracle;
use libfuzzer_sys::fuzz_target;

const DEMO: &str = include_str!("../../scenarios/demo.toml");
static SHIPPED: LazyLock<Node> =
    LazyLock::new(|| Node::parse(DEMO, "demo.toml").expect("it is shipped"));

fuzz_target!(|data: &[u8]| {
    let text = &*String::from_utf8_lossy(data);
    if let Ok(node) = Node::parse(text, "fuzz.toml") {
        let _ = check(&node);
    }
    let mut node = SHIPPED.clone();
    for line in text.lines().take(32) {
        let mut changed = node.clone();
        if changed.set(line).is_ok() && check(&changed) {
            node = changed;
        }
    }
});

fn check(node: &Node) -> bool {
    let scenario = Scenario::read(node);
    match &scenario {
        Ok(scenario) => check_accepted(scenario),
        Err(problems) => assert!(!problems.to_string().is_empty()),
    }
    scenario.is_ok()
}

fn check_accepted(scenario: &Scenario) {
    let rate = scenario.rate();
    assert!(rate.is_finite() && rate > 0.0, "{rate} requests per second");
    assert!(scenario.cluster.replication_factor <= scenario.cluster.servers);
    let pairs = scenario.clients_max().checked_mul(scenario.cluster.servers);
    assert!(pairs.is_some_and(|pairs| pairs <= 50_000_000), "{pairs:?} pairs");
    for text in &scenario.run.policies {
        let policy = text.strip_suffix("+hedge").unwrap_or(text);
        let is_made = Oracle::NAMES.contains(&policy) || policy.parse::<Policy>().is_ok();
        assert!(is_made, "{text:?}");
    }
}
