//! An Evenkeel before the cluster of these tests.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU8, Ordering};

use evenkeel_cql::Version;
use evenkeel_server::config::Config;
use evenkeel_server::process::Process;
use evenkeel_settings::Node;
use evenkeel_testkit::wait::block_until;

use evenkeel_testkit::cassandra::client::Client;
use evenkeel_testkit::cassandra::{Cluster, PORT};

/// A process with one listener, for one data centre of a cluster. Stops when dropped.
pub(crate) struct Proxy {
    process: Option<Process>,
}

impl Proxy {
    /// Starts one for `east`, with these lines more about the upstream; waits until it serves.
    pub(crate) fn start(cluster: &Cluster, more: &str) -> Self {
        Self::start_at(own_address(cluster), cluster, more, "datacenter = 'east'")
    }

    /// Starts one for each of these addresses, which tell clients of each other.
    pub(crate) fn start_all(addresses: &[SocketAddr], cluster: &Cluster, more: &str) -> Vec<Self> {
        let all: Vec<String> = addresses.iter().map(|address| format!("'{address}'")).collect();
        let cql = format!("proxies = [{}]", all.join(", "));
        addresses.iter().map(|address| Self::start_at(*address, cluster, more, &cql)).collect()
    }

    fn start_at(address: SocketAddr, cluster: &Cluster, more: &str, cql: &str) -> Self {
        let nodes: Vec<String> =
            (0..cluster.nodes()).map(|node| format!("'{}'", cluster.address(node))).collect();
        let text = format!(
            "[[listen]]\naddress = '{address}'\nupstream = 'store'\n\
             [upstream.store]\nprotocol = 'cql'\nreplicas = [{}]\n{more}\n\
             [upstream.store.cql]\n{cql}\n",
            nodes.join(", ")
        );
        let node = Node::parse(&text, "run.toml").unwrap_or_else(|found| panic!("{found}"));
        let config = Config::read(&node).unwrap_or_else(|found| panic!("{found}"));
        let this = Self { process: Some(Process::start(config).unwrap()) };
        // By each of its threads, among which the kernel chooses, and which learn one after the
        // other what the cluster is.
        block_until("clients are let in", || {
            (0..20).all(|_| Client::connect(this.address(), Version::V4, None).is_ok())
        });
        this
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.process.as_ref().expect("it runs").listens()[0]
    }
}

/// Beside the nodes, and with their port: drivers believe that all of a cluster have the same.
fn own_address(cluster: &Cluster) -> SocketAddr {
    static COUNT: AtomicU8 = AtomicU8::new(100);
    let IpAddr::V4(node) = cluster.address(0).ip() else { panic!("nodes have IPv4 addresses") };
    let [a, b, c, _] = node.octets();
    let own = Ipv4Addr::new(a, b, c, COUNT.fetch_add(1, Ordering::Relaxed));
    SocketAddr::from((own, PORT))
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            let _ = process.stop();
        }
    }
}
