//! Any text as a configuration, and each of its lines as a `--set` on top of the documented one.
//!
//! Promise: a configuration or problems, never a panic; in one that is accepted every listener
//! leads to an upstream that is there and has replicas, and C3 has a number of clients.

#![no_main]

use std::sync::LazyLock;

use evenkeel_server::config::Config;
use evenkeel_settings::Node;
use libfuzzer_sys::fuzz_target;

const DOCUMENT: &str = include_str!("../../docs/configuration.md");

/// The example that names every key.
static DOCUMENTED: LazyLock<Node> = LazyLock::new(|| {
    let example = DOCUMENT.split("```toml\n").nth(2).and_then(|rest| rest.split("```").next());
    Node::parse(example.expect("the second example"), "configuration.md").expect("it is tested")
});

fuzz_target!(|data: &[u8]| {
    let text = &*String::from_utf8_lossy(data);
    if let Ok(node) = Node::parse(text, "fuzz.toml") {
        let _ = check(&node);
    }
    let mut node = DOCUMENTED.clone();
    for line in text.lines().take(32) {
        let mut changed = node.clone();
        if changed.set(line).is_ok() && check(&changed) {
            node = changed;
        }
    }
});

fn check(node: &Node) -> bool {
    let config = Config::read(node);
    match &config {
        Ok(config) => check_accepted(config),
        Err(problems) => assert!(!problems.to_string().is_empty()),
    }
    config.is_ok()
}

fn check_accepted(config: &Config) {
    assert!(config.process.workers >= 1);
    for listen in &config.listens {
        assert!(listen.upstream < config.upstreams.len(), "{listen:?}");
    }
    for upstream in &config.upstreams {
        assert!(!upstream.common.replicas.is_empty(), "{upstream:?}");
        assert!(upstream.common.proxies >= 1);
        let _ = upstream.common.policy.make(upstream.common.proxies);
    }
}
