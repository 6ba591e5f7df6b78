//! Agents beside nodes: what a process of a configuration learns from them.

use evenkeel_cql::Version;
use evenkeel_cql::client::FeedbackSource;
use evenkeel_server::config::Config;
use evenkeel_server::process::Process;
use evenkeel_settings::Node;
use evenkeel_testkit::cassandra::client::Client;
use evenkeel_testkit::cassandra::{self, Spec};
use evenkeel_testkit::story::skipped;
use evenkeel_testkit::wait::{block_for, block_until};

/// What `evenkeel run` makes of a configuration.
fn run_as_configured(text: &str) -> Process {
    let node = Node::parse(text, "run.toml").unwrap();
    let config = Config::read(&node).unwrap_or_else(|found| panic!("{found}\nin\n{text}"));
    Process::start(config).unwrap()
}

#[test]
fn agents_of_a_configuration_are_what_a_proxy_learns_from() {
    let Some(cluster) = cassandra::shared(crate::spec) else { return };
    let _calm = cluster.calm();
    let nodes = [cluster.address(0), cluster.address(1)];
    let agents = nodes.map(|node| {
        let agent = "[[agent]]\nprotocol = 'cql'\nlisten = '127.0.0.1:0'\n";
        run_as_configured(&format!("{agent}app = '{node}'\n"))
    });
    let reached = nodes
        .iter()
        .zip(&agents)
        .map(|(node, agent)| format!("'{node}' = '{}'", agent.agents()[0]));
    let reached = reached.collect::<Vec<_>>().join(", ");
    let proxy = run_as_configured(&format!(
        "[[listen]]\naddress = '127.0.0.1:0'\nupstream = 'store'\n\
         [upstream.store]\nprotocol = 'cql'\nreplicas = ['{}']\npolicy = 'c3'\n\
         [upstream.store.cql]\ndatacenter = 'east'\nreached_at = {{ {reached} }}\n",
        nodes[0]
    ));
    block_until("reports of both agents came", || {
        let Ok(mut client) = Client::connect(proxy.listens()[0], Version::V5, None) else {
            return false;
        };
        for _ in 0..20 {
            client.rows("select cluster_name from system.local");
            client.rows("select * from system_schema.tables where keyspace_name = 'system'");
        }
        let known = proxy.cluster(0).unwrap().total().nodes;
        let agents = known.iter().filter(|node| node.source == FeedbackSource::Agent);
        agents.count() == nodes.len()
    });
    proxy.stop().unwrap();
    agents.into_iter().for_each(|agent| agent.stop().unwrap());
}

/// As beside Cassandra on an early Java 8, and with a driver of that time: an agent and a proxy on
/// the node's own machine, by its own certificate.
#[test]
fn where_all_know_tls_1_2_only_agents_and_proxies_of_a_configuration_speak_it() {
    if let Err(missing) = cassandra::possible() {
        return skipped(&missing);
    }
    let tls_version = Some("TLSv1.2");
    let own =
        cassandra::Cluster::start(&Spec { tls: true, tls_version, ..Spec::of(&[("east", 1)]) });
    let (node, identity) = (own.address(0), own.identity(0).display().to_string());
    let authority = own.identity(0).with_file_name("authority.pem").display().to_string();
    let agent = run_as_configured(&format!(
        "[[agent]]\nprotocol = 'cql'\nlisten = '{}:0'\napp = '{node}'\n\n\
         tls = {{ certificate = '{identity}', key = '{identity}' }}\n\
         app_tls = {{ ca = '{authority}' }}\n",
        node.ip()
    ));
    let proxy = run_as_configured(&format!(
        "[[listen]]\naddress = '{}:0'\nupstream = 'store'\n\
         [listen.tls]\ncertificate = '{identity}'\nkey = '{identity}'\n\
         [upstream.store]\nprotocol = 'cql'\nreplicas = ['{node}']\n\
         tls = {{ ca = '{authority}' }}\n[upstream.store.cql]\ndatacenter = 'east'\n\
         reached_at = {{ '{node}' = '{}' }}\n",
        node.ip(),
        agent.agents()[0]
    ));
    let (old, new) = (&[&rustls::version::TLS12], &[&rustls::version::TLS13]);
    let authority = own.authority().unwrap();
    Client::connect_tls_of(new, node, authority, Version::V5).map(drop).unwrap_err();
    let mut client = block_for("a client is let in", || {
        Client::connect_tls_of(old, proxy.listens()[0], authority, Version::V5).ok()
    });
    let rows = client.rows("SELECT peer FROM system.peers_v2");
    assert_eq!(rows.len(), 0);
    block_until("a report came through the agent", || {
        let columns = client.rows("SELECT * FROM system_schema.columns");
        assert!(columns.len() > 100, "{}", columns.len());
        let nodes = proxy.cluster(0).unwrap().total().nodes;
        nodes.iter().map(|node| node.source).eq([FeedbackSource::Agent])
    });
    drop(client);
    proxy.stop().unwrap();
    agent.stop().unwrap();
}
