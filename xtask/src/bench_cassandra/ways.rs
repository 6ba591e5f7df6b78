//! The ways to the nodes that are compared, and the proxy on two of them.

use std::path::Path;

use anyhow::{Context, Result};

use super::DATA_CENTER;
use super::generator::Driver;
use crate::bench::cassandra::Cluster;
use crate::bench::process::{self, Server, Workbench};
use crate::needs;

/// All others are compared with a way that has no proxy and decides by itself.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) name: &'static str,
    pub(super) driver: Driver,
    /// The driver's own word for it.
    pub(super) word: &'static str,
    pub(super) is_proxied: bool,
    /// The way that it is compared with.
    pub(super) reference: &'static str,
    /// One that chooses nodes alike without a proxy: what is between them is the proxy alone.
    pub(super) without_proxy: Option<&'static str>,
    pub(super) about: &'static str,
    /// Whether it is measured unless something else is asked for.
    pub(super) is_usual: bool,
}

/// What the bars are about.
pub(super) const DEFAULT: &str = "default";

/// A hop that neither reads nor decides.
pub(super) const RELAY: &str = "relay";

const USUAL: Way = Way {
    name: DEFAULT,
    driver: Driver::Scylla,
    word: "default",
    is_proxied: false,
    reference: DEFAULT,
    without_proxy: None,
    about: "scylla (Rust), its default policy: a replica at random",
    is_usual: true,
};

pub(super) const WAYS: [Way; 10] = [
    USUAL,
    Way {
        name: "adaptive",
        word: "adaptive",
        about: "scylla with sdk/scylla's policy, c3",
        ..USUAL
    },
    Way {
        name: "adaptive-hedged",
        word: "adaptive-hedged",
        about: "`adaptive` with sdk/scylla's copies too, after the 99th percentile",
        ..USUAL
    },
    Way {
        name: "proxy",
        word: "proxy",
        is_proxied: true,
        without_proxy: Some("adaptive-hedged"),
        about: "scylla, its default policy, through evenkeel: c3, copies after the 99th percentile",
        ..USUAL
    },
    Way {
        name: RELAY,
        word: RELAY,
        about: "`default` through HAProxy, which passes bytes on: what any hop costs",
        is_usual: false,
        ..USUAL
    },
    Way {
        name: "default-speculative",
        word: "default-speculative",
        about: "`default` with the driver's speculative execution, a copy after 20 ms",
        is_usual: false,
        ..USUAL
    },
    Way {
        name: "adaptive-speculative",
        word: "adaptive-speculative",
        about: "`adaptive` with the driver's speculative execution, a copy after 20 ms",
        is_usual: false,
        ..USUAL
    },
    Way {
        name: "java",
        driver: Driver::Java,
        reference: "java",
        about: "java-driver 4, its default policy: a replica at random that is not slow",
        ..USUAL
    },
    Way {
        name: "java-speculative",
        driver: Driver::Java,
        word: "default-speculative",
        reference: "java",
        about: "`java` with the driver's speculative execution, a copy after 20 ms",
        is_usual: false,
        ..USUAL
    },
    Way {
        name: "java-proxy",
        driver: Driver::Java,
        word: "proxy",
        is_proxied: true,
        reference: "java",
        about: "java-driver 4 through the same evenkeel",
        ..USUAL
    },
];

impl Way {
    pub(super) fn is_reference(&self) -> bool {
        self.name == self.reference
    }

    /// Whether the driver itself sends copies, and nothing of ours decides.
    pub(super) fn is_speculative(&self) -> bool {
        !self.is_ours() && self.word.ends_with("-speculative")
    }

    /// Whether something of ours sends copies.
    pub(super) fn has_copies(&self) -> bool {
        self.is_proxied || self.word.ends_with("-hedged")
    }

    /// Whether something of ours chooses the node.
    pub(super) fn is_ours(&self) -> bool {
        self.is_proxied || self.word.starts_with("adaptive")
    }
}

/// Starts `binary` as `docs/cassandra.md` has it.
pub(super) fn start_proxy(bench: &Workbench, cluster: &Cluster, binary: &Path) -> Result<Server> {
    let (port, admin) = (bench.ports()[0], bench.ports()[1]);
    let path = bench.write("store.toml", &proxy_config(&cluster.addresses(), port, admin))?;
    let path = path.to_str().context("the path of the target folder is not UTF-8")?;
    Server::of(bench, "evenkeel", port, process::first_child(binary).args(["run", path]))
}

/// Starts HAProxy with a port before each node.
pub(super) fn start_relay(bench: &Workbench, cluster: &Cluster) -> Result<Server> {
    let ports = relay_ports(bench);
    let path = bench.write("relay.cfg", &relay_config(&cluster.addresses(), ports))?;
    let path = path.to_str().context("the path of the target folder is not UTF-8")?;
    let mut command = process::first_child(Path::new(&needs::require("haproxy")?));
    Server::of(bench, "haproxy", ports[0], command.args(["-db", "-f", path]))
}

/// One for each node, after the proxy's two.
pub(super) fn relay_ports(bench: &Workbench) -> &[u16] {
    &bench.ports()[2..]
}

fn relay_config(nodes: &[&str], ports: &[u16]) -> String {
    let relays = nodes.iter().zip(ports).map(|(node, port)| {
        format!("listen {port}\n  bind 127.0.0.1:{port}\n  server node {node}\n")
    });
    let relays: String = relays.collect();
    format!(
        "global
  nbthread 2
defaults
  mode tcp
  timeout connect 5s
  timeout client 1h
  timeout server 1h
{relays}"
    )
}

fn proxy_config(nodes: &[&str], port: u16, admin: u16) -> String {
    let nodes: Vec<String> = nodes.iter().map(|node| format!("\"{node}\"")).collect();
    format!(
        "[[listen]]
address = \"127.0.0.1:{port}\"
upstream = \"store\"

[upstream.store]
protocol = \"cql\"
replicas = [{}]
policy = \"c3\"

[upstream.store.cql]
datacenter = \"{DATA_CENTER}\"

[upstream.store.hedge]
quantile = 0.99
budget = \"3%\"

[admin]
address = \"127.0.0.1:{admin}\"
",
        nodes.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::*;
    use crate::workspace;

    #[test]
    fn names_are_told_apart_and_every_reference_is_one_without_a_proxy() {
        let names: BTreeSet<&str> = WAYS.iter().map(|way| way.name).collect();
        assert_eq!(names.len(), WAYS.len());
        for way in &WAYS {
            let reference = WAYS.iter().find(|other| other.name == way.reference).unwrap();
            assert!(reference.is_reference() && !reference.is_ours(), "{}", way.name);
            assert_eq!(reference.driver, way.driver, "{}", way.name);
        }
    }

    /// Nothing is set to win: what is measured is what the document tells users to write.
    #[test]
    fn the_configuration_is_that_of_the_document() {
        let document = fs::read_to_string(workspace::root().join("docs/cassandra.md")).unwrap();
        let (_, rest) = document.split_once("```toml\n").unwrap();
        let (example, _) = rest.split_once("```").unwrap();
        let config = proxy_config(&["10.0.0.1:9042", "10.0.0.2:9042"], 9042, 9901);
        let lines = |text: &str| {
            let lines = text.lines().map(|line| line.split('#').next().unwrap_or(line).trim_end());
            lines.filter(|line| !line.is_empty()).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(lines(&config.replace("\"dc1\"", "\"east\"")), lines(example));
    }
}
