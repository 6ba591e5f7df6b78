//! Any text as a configuration, and each of its lines as a `--set` on top of the documented one.
//!
//! Promise: a configuration or problems, never a panic; in one that is accepted every listener
//! leads to an upstream that is there and has replicas, and C3 has a number of clients.

#![no_main]

use evenkeel_net::config::Config;
use evenkeel_settings::Node;
use libfuzzer_sys::fuzz_target;

const DOCUMENT: &str = include_str!("../../docs/configuration.md");

fuzz_target!(|data: &[u8]| {
    let text = &*String::from_utf8_lossy(data);
    if let Ok(node) = Node::parse(text, "fuzz.toml") {
        check(&node);
    }
    let mut node = documented();
    for line in text.lines().take(32) {
        if node.set(line).is_ok() {
            check(&node);
        }
    }
});

/// The example that names every key.
fn documented() -> Node {
    let example = DOCUMENT.split("```toml\n").nth(2).and_then(|rest| rest.split("```").next());
    Node::parse(example.expect("the second example"), "configuration.md").expect("it is tested")
}

fn check(node: &Node) {
    match Config::read(node) {
        Ok(config) => check_accepted(&config),
        Err(problems) => assert!(!problems.to_string().is_empty()),
    }
}

fn check_accepted(config: &Config) {
    assert!(config.process.workers >= 1);
    for listen in &config.listens {
        assert!(listen.upstream < config.upstreams.len(), "{listen:?}");
    }
    for upstream in &config.upstreams {
        assert!(!upstream.replicas.is_empty(), "{upstream:?}");
        let clients = config.clients(upstream);
        assert!(clients >= 1);
        let _ = upstream.policy.make(clients);
    }
}
