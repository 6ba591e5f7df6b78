//! Configuration of Cassandra clusters: what is read, and what is refused.

use std::net::SocketAddr;
use std::time::Duration;

use evenkeel_server::config::Config;
use evenkeel_settings::{Node, Problems};

const LISTEN: &str = "[[listen]]\naddress = '127.0.0.1:9042'\nupstream = 'store'\n";
const STORE: &str = "[upstream.store]\nprotocol = 'cql'\nreplicas = ['127.0.0.2:9042']\n";

fn read(text: &str) -> Result<Config, Problems> {
    Node::parse(text, "run.toml").and_then(|node| Config::read(&node))
}

fn good(text: &str) -> Config {
    read(text).unwrap_or_else(|problems| panic!("{problems}\nin\n{text}"))
}

/// Asserts that exactly one problem is found, at this line, and that it says this.
fn one_problem(text: &str, line: usize, says: &str) {
    let problems = read(text).expect_err(text);
    let found: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), 1, "{found:#?}\nin\n{text}");
    assert!(found[0].starts_with(&format!("run.toml:{line}:")), "{}\nin\n{text}", found[0]);
    assert!(found[0].contains(says), "{}\nlacks {says:?}", found[0]);
}

#[test]
fn one_contact_point_is_enough() {
    let config = good(&format!("{LISTEN}{STORE}hedge = {{}}\n"));
    let store = &config.upstreams[0];
    let cql = store.cql.as_ref().unwrap();
    assert!(store.common.hedge.is_some(), "the cluster has other nodes than its contact point");
    assert_eq!((cql.datacenter.as_deref(), cql.poll, cql.connections_max), (None, None, 2));
    assert_eq!(cql.frame_bytes_max, 16 << 20);
}

/// Drivers' heartbeats are 30 s apart, and not all drivers have any.
#[test]
fn clients_may_be_idle_for_an_hour_and_as_long_as_is_said() {
    assert_eq!(good(&format!("{LISTEN}{STORE}")).listens[0].limits.idle.as_secs(), 3_600);
    let text = format!("{LISTEN}limits = {{ idle = '5s' }}\n{STORE}");
    assert_eq!(good(&text).listens[0].limits.idle.as_secs(), 5);
    let http = "[[listen]]\naddress = '127.0.0.1:8080'\nupstream = 'web'\n\
                [upstream.web]\nreplicas = ['127.0.0.2:80']\n";
    assert_eq!(good(http).listens[0].limits.idle.as_secs(), 60);
}

#[test]
fn a_message_fits_into_what_is_buffered_for_all_clients() {
    let process = "[process]\nbuffers_max = '32MiB'\n";
    assert_eq!(good(&format!("{process}{LISTEN}{STORE}")).process.buffers_max, 32 << 20);
    let cql = "cql = { frame_bytes_max = '64MiB', waiting_bytes_max = '64MiB' }\n";
    one_problem(&format!("{process}{LISTEN}{STORE}{cql}"), 6, "process.buffers_max");
    one_problem(&format!("[process]\nbuffers_max = '1MiB'\n{LISTEN}{STORE}"), 2, "16777216");
}

#[test]
fn everything_may_be_said() {
    let text = format!(
        "{LISTEN}[listen.tls]\ncertificate = 'a.pem'\nkey = 'a.key'\n{STORE}\
         [upstream.store.cql]\ndatacenter = 'east'\nproxies = ['127.0.0.1:9042']\n\
         user = 'evenkeel'\npassword_file = 'secret'\ncompression = 'lz4'\npoll = '250ms'\n\
         reached_at = {{ '127.0.0.2:9042' = '127.0.0.2:9142' }}\n\
         [upstream.store.tls]\nca = 'nodes.pem'\nname = 'nodes.example'\n\
         [[agent]]\nprotocol = 'cql'\nlisten = '127.0.0.1:9043'\napp = '127.0.0.3:9042'\n\
         tls = {{ certificate = 'b.pem', key = 'b.key' }}\n\
         app_tls = {{ ca = 'node.pem', certificate = 'c.pem', key = 'c.key' }}\n"
    );
    let config = good(&text);
    let cql = config.upstreams[0].cql.as_ref().unwrap();
    assert_eq!(cql.datacenter.as_deref(), Some("east"));
    assert_eq!(cql.user.as_ref().unwrap().name, "evenkeel");
    assert_eq!(cql.poll, Some(Duration::from_millis(250)));
    let agent: Option<&SocketAddr> =
        cql.reached_at.get(&config.upstreams[0].common.replicas[0].inet().unwrap());
    assert_eq!(agent.map(SocketAddr::port), Some(9142));
    assert_eq!(
        config.upstreams[0].common.tls.as_ref().unwrap().name.as_deref(),
        Some("nodes.example")
    );
    assert!(cql.is_compressed && config.listens[0].tls.is_some());
    let agent = &config.agents[0].common;
    assert_eq!(agent.tls.as_ref().unwrap().identities[0].key.to_str(), Some("b.key"));
    let tls = agent.app_tls.as_ref().unwrap();
    assert_eq!((&tls.ca, tls.identity.is_some()), (&Some("node.pem".into()), true));
}

#[test]
fn what_says_nothing_here_is_refused() {
    let http = "[upstream.store]\nreplicas = ['127.0.0.2:80']\n";
    one_problem(&format!("{LISTEN}{http}cql = {{}}\n"), 6, "protocol = \"cql\" too");
    one_problem(&format!("{LISTEN}brownout = 'trust'\n{STORE}"), 4, "it is for HTTP");
    one_problem(&format!("{LISTEN}{STORE}pool = {{}}\n"), 7, "it is for HTTP");
    one_problem(&format!("{LISTEN}{STORE}protocol_ = 1\n"), 7, "unknown key");
    let cql = |line: &str| format!("{LISTEN}{STORE}[upstream.store.cql]\n{line}\n");
    one_problem(&cql("user = 'me'"), 8, "password_file too");
    one_problem(&cql("password_file = 'me'"), 8, "user too");
    one_problem(&cql("poll = '1ms'"), 8, "10ms");
    one_problem(&cql("reached_at = { here = '127.0.0.1:1' }"), 8, "an address that a node reports");
    one_problem(&cql("waiting_bytes_max = '1MiB'"), 8, "at least one message");
    let tls = |line: &str| format!("{LISTEN}{STORE}tls = {{ {line} }}\n");
    one_problem(&tls("ca = 'a', key = 'b'"), 7, "its certificate too");
    one_problem(&tls("ca = 'a', name = ' '"), 7, "a name as in a certificate");
    let agent = "[[agent]]\nprotocol = 'cql'\nlisten = '127.0.0.1:1'\napp = '127.0.0.1:2'\n";
    one_problem(&format!("{agent}dimmer = {{}}\n"), 5, "it is for HTTP");
    one_problem(&format!("{agent}tls = {{ certificate = 'a' }}\n"), 5, "key");
    let two = "certificate = ['a', 'b'], key = 'c'";
    one_problem(&format!("{agent}tls = {{ {two} }}\n"), 5, "2, one for each certificate");
}
