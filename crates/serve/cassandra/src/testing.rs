//! What tests of several rooms share.

use evenkeel_settings::Node;

use crate::config::CqlConfig;
use evenkeel_proxy::config::UpstreamConfig;

/// An upstream called `store` with these keys, and its cluster.
pub(crate) fn configured(text: &str) -> (UpstreamConfig, CqlConfig) {
    let node = Node::parse(text, "run.toml").unwrap();
    let read = node.read(|table| {
        let (common, _) = UpstreamConfig::read("store", table, true);
        (common, table.key("cql").section(CqlConfig::read))
    });
    read.unwrap()
}
