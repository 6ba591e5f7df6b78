//! Who is measured, and with which configuration: one worker each, keep-alive on both sides, an
//! access log only where it is said. As proxies: three replicas of one backend, the client's
//! address added. As agents: one replica, and nothing that an agent does not do. Clients may speak
//! HTTP/2 or TLS, or connect for each request.
//!
//! Limits on requests per connection are lifted everywhere: nginx's defaults (1000 on either side)
//! would charge it for connections that the others never open.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::bench::process::{self, Server, Workbench};
use crate::{needs, workspace};

/// Proxies that are compared with each other.
pub(super) struct Suite {
    /// The word after `cargo xtask bench`.
    pub(super) name: &'static str,
    /// All ratios are to this proxy.
    pub(super) reference: &'static str,
    pub(super) proxies: &'static [Proxy],
    /// What is measured, as words.
    pub(super) what: &'static str,
    pub(super) clients: Clients,
    /// Whether an agent is before each replica.
    pub(super) has_agents: bool,
    /// Whether replicas are spoken to in HTTP/2.
    has_http2_replicas: bool,
    /// Whether every one should add the client's address; looked at in HTTP/1.1 only.
    forwards_addresses: bool,
}

/// What clients speak, and how often they connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clients {
    /// HTTP/1.1
    Messages,
    /// The same with a connection for each request
    MessagesOnce,
    /// HTTP/2, known beforehand
    Streams,
    /// HTTP/1.1 in TLS
    Tls,
    /// The same with a connection and a whole handshake for each request.
    TlsOnce,
}

/// Evenkeel beside other proxies.
pub(super) const HTTP: Suite = Suite {
    name: "http",
    reference: "haproxy",
    proxies: &PROXIES,
    what: "per proxied request",
    clients: Clients::Messages,
    has_agents: false,
    has_http2_replicas: false,
    forwards_addresses: true,
};

/// The same where every request has a connection of its own.
pub(super) const HTTP_NEW: Suite = Suite {
    name: "http-new",
    what: "per proxied request on a new connection",
    clients: Clients::MessagesOnce,
    ..HTTP
};

/// Replicas behind agents, which report their load, and answer probes.
pub(super) const HTTP_AGENTS: Suite = Suite {
    name: "http-agents",
    proxies: &BEFORE_AGENTS,
    what: "per request proxied to agents",
    has_agents: true,
    ..HTTP
};

/// Many clients that stay and ask nothing.
pub(super) const HTTP_IDLE: Suite = Suite { name: "http-idle", proxies: &HOLDING, ..HTTP };

/// An agent in front of one application, and what its dimmer adds, beside plain proxying.
pub(super) const AGENT: Suite = Suite {
    name: "agent",
    reference: "plain",
    proxies: &AGENTS,
    forwards_addresses: false,
    ..HTTP
};

/// What recording a day adds; the reference twice, to see what is noise.
pub(super) const RECORD: Suite = Suite {
    name: "record",
    reference: "plain",
    proxies: &RECORDING,
    what: "per proxied request, with c3 and hedging",
    ..HTTP
};

/// Where the one that records has its days, in the folder of the benchmark.
const DAYS: &str = "days";
/// Its admin address, a socket there.
pub(super) const ADMIN: &str = "admin.sock";

/// Clients of HTTP/2, with replicas of each kind.
pub(super) const HTTP2: [Suite; 2] = [
    Suite {
        name: "http2",
        proxies: &STREAMS,
        what: "per request from HTTP/2 to HTTP/1.1",
        clients: Clients::Streams,
        forwards_addresses: false,
        ..HTTP
    },
    Suite {
        name: "http2-http2",
        proxies: &STREAMS_THROUGH,
        what: "per request from HTTP/2 to HTTP/2",
        clients: Clients::Streams,
        has_http2_replicas: true,
        forwards_addresses: false,
        ..HTTP
    },
];

/// Clients in TLS, on kept connections and on new ones.
pub(super) const TLS: [Suite; 2] = [
    Suite {
        name: "tls",
        proxies: &ENCRYPTED,
        what: "per request on kept connections in TLS 1.3",
        clients: Clients::Tls,
        forwards_addresses: false,
        ..HTTP
    },
    Suite {
        name: "tls-new",
        proxies: &ENCRYPTED,
        what: "per connection in TLS 1.3: handshake (ECDSA P-256, not resumed) and one request",
        clients: Clients::TlsOnce,
        forwards_addresses: false,
        ..HTTP
    },
];

/// Addresses of the backend, which one nginx worker serves.
pub(super) const BACKEND_PORTS: usize = 3;

/// A path that answers with the forwarded address, to see that every proxy adds it.
const FORWARDED_PATH: &str = "/forwarded";

/// A path that answers with a megabyte.
pub(super) const LARGE_PATH: &str = "/large";
const LARGE_BYTES: usize = 1_000_000;

/// Of bodies where nobody says another length.
pub(super) const BODY_BYTES: usize = 150;
/// Longer ones are in a file: nginx has limits on words in its configuration.
const BODY_WORD_MAX: usize = 2_000;
const BODY_FILE: &str = "body";

/// A proxy under test.
pub(crate) struct Proxy {
    pub(crate) name: &'static str,
    pub(crate) program: fn() -> Result<PathBuf>,
    pub(crate) version_flag: &'static str,
    pub(crate) config_name: &'static str,
    pub(crate) config: fn(folder: &Path, port: u16, backend_ports: &[u16]) -> String,
    /// Arguments, of which `CONFIG` stands for the path of the configuration.
    pub(crate) arguments: &'static [&'static str],
    /// What a reader of its figures must know.
    pub(crate) note: Option<&'static str>,
}

const PROXIES: [Proxy; 10] = [
    HAPROXY,
    NGINX,
    Proxy { config: |_, port, backends| envoy_config(port, backends, "AUTO", ""), ..ENVOY },
    EVENKEEL,
    HEDGE,
    // The same with an access log of every hundredth request.
    Proxy {
        name: "logged",
        config_name: "logged.toml",
        config: |folder, port, backends| {
            let log = folder.join("access.log");
            let log = format!("\n[log]\naccess = {{ path = {log:?}, sample = 0.01 }}\n");
            proxy_config(port, backends, "", HEDGED) + &log
        },
        ..EVENKEEL
    },
    // Nobody answers its probes: it goes by what it sees itself.
    ADAPTIVE,
    LEAST,
    // As the first of ours, with another worker.
    Proxy {
        name: "two",
        config_name: "two.toml",
        config: |folder, port, backends| {
            let text = evenkeel_config(folder, port, backends);
            text.replacen("workers = 1", "workers = 2", 1)
        },
        note: Some("two workers"),
        ..EVENKEEL
    },
    // The same by the library hyper.
    Proxy {
        name: "hyper",
        config_name: "hyper.toml",
        config: |folder, port, backends| {
            let text = evenkeel_config(folder, port, backends);
            text.replacen("[process]\n", "[process]\nengine = \"hyper\"\n", 1)
        },
        ..EVENKEEL
    },
];

/// Those that do with reports of agents what they do without.
const BEFORE_AGENTS: [Proxy; 4] = [HAPROXY, EVENKEEL, LEAST, ADAPTIVE];

const ADAPTIVE: Proxy = Proxy {
    name: "adaptive",
    config_name: "adaptive.toml",
    config: |_, port, backends| proxy_config(port, backends, "", "policy = \"adaptive\"\n"),
    ..EVENKEEL
};

/// What others have for their best.
const LEAST: Proxy = Proxy {
    name: "least",
    config_name: "least.toml",
    config: |_, port, backends| {
        proxy_config(port, backends, "", "policy = \"least-outstanding\"\n")
    },
    ..EVENKEEL
};

/// Those that may have as many clients as there may be files.
const HOLDING: [Proxy; 2] = [
    Proxy {
        config: |_, port, backends| {
            let text = haproxy_config(port, backends, "", "");
            text.replacen("    maxconn 4096\n", "    maxconn 100000\n    no strict-limits\n", 1)
        },
        ..HAPROXY
    },
    HEDGE,
];

const HEDGE: Proxy = Proxy {
    name: "hedge",
    config_name: "hedge.toml",
    config: |_, port, backends| proxy_config(port, backends, "", HEDGED),
    ..EVENKEEL
};

const HEDGED: &str = "policy = \"c3\"\n\n[upstream.bench.hedge]\n";

pub(crate) const HAPROXY: Proxy = Proxy {
    name: "haproxy",
    program: || needs::require("haproxy"),
    version_flag: "-v",
    config_name: "haproxy.cfg",
    config: |_, port, backends| haproxy_config(port, backends, "", ""),
    arguments: &["-db", "-f", "CONFIG"],
    note: None,
};

pub(crate) const NGINX: Proxy = Proxy {
    name: "nginx",
    program: || needs::require("nginx"),
    version_flag: "-v",
    config_name: "nginx.conf",
    config: nginx_config,
    arguments: &["-e", "stderr", "-c", "CONFIG"],
    note: None,
};

const STREAMS: [Proxy; 3] = [
    Proxy { config: |_, port, backends| haproxy_config(port, backends, "proto h2", ""), ..HAPROXY },
    ENVOY,
    EVENKEEL,
];

const STREAMS_THROUGH: [Proxy; 3] = [
    Proxy {
        config: |_, port, backends| haproxy_config(port, backends, "proto h2", "proto h2"),
        ..HAPROXY
    },
    Proxy {
        config: |_, port, backends| envoy_config(port, backends, "HTTP2", ENVOY_HTTP2_REPLICAS),
        ..ENVOY
    },
    Proxy {
        config: |_, port, backends| {
            proxy_config(port, backends, "", "policy = \"c3\"\nhttp2 = true\n")
        },
        ..EVENKEEL
    },
];

const ENCRYPTED: [Proxy; 2] = [
    Proxy {
        config: |folder, port, backends| {
            let both = folder.join(BOTH_FILE);
            let words = format!("ssl crt {} ssl-min-ver TLSv1.3 alpn http/1.1", both.display());
            haproxy_config(port, backends, &words, "")
        },
        ..HAPROXY
    },
    Proxy {
        config: |folder, port, backends| {
            let [certificate, key] = [CERTIFICATE_FILE, KEY_FILE].map(|name| folder.join(name));
            let tls = format!("tls = {{ certificate = {certificate:?}, key = {key:?} }}\n");
            proxy_config(port, backends, &tls, "policy = \"c3\"\n")
        },
        ..EVENKEEL
    },
];

/// What a listener shows: its certificate, its key, and the two in one file.
const CERTIFICATE_FILE: &str = "bench.pem";
const KEY_FILE: &str = "bench.key";
const BOTH_FILE: &str = "both.pem";

const ENVOY: Proxy = Proxy {
    name: "envoy",
    program: || needs::require("envoy"),
    version_flag: "--version",
    config_name: "envoy.json",
    config: |_, port, backends| envoy_config(port, backends, "HTTP2", ""),
    arguments: &["-c", "CONFIG", "--concurrency", "1", "--disable-hot-restart", "-l", "error"],
    note: None,
};

const AGENTS: [Proxy; 4] = [
    Proxy { name: "plain", config_name: "plain.toml", config: plain_config, ..EVENKEEL },
    Proxy {
        name: "agent",
        config_name: "agent.toml",
        config: |_, port, backends| agent_config(port, backends, ""),
        ..EVENKEEL
    },
    Proxy {
        name: "dimmer",
        config_name: "dimmer.toml",
        config: |_, port, backends| agent_config(port, backends, "[agent.dimmer]\n"),
        ..EVENKEEL
    },
    // Every request reduced: headers of caches are looked at, too.
    Proxy {
        name: "lean",
        config_name: "lean.toml",
        config: |_, port, backends| {
            agent_config(port, backends, "[agent.dimmer]\nswitch = \"lean\"\n")
        },
        ..EVENKEEL
    },
];

const RECORDING: [Proxy; 3] = [
    Proxy { name: "plain", config_name: "plain.toml", ..HEDGE },
    Proxy { name: "again", config_name: "again.toml", ..HEDGE },
    Proxy { name: "record", config_name: "record.toml", config: recording, ..EVENKEEL },
];

/// With c3, hedging and a record of the day.
pub(super) fn recording(folder: &Path, port: u16, backends: &[u16]) -> String {
    // Files that are closed soon, to be counted.
    let (days, admin) = (folder.join(DAYS), folder.join(ADMIN));
    let record = format!(
        "\n[record]\ndirectory = {days:?}\nrotate = \"10s\"\n\
         [admin]\naddress = \"unix:{}\"\n",
        admin.display()
    );
    proxy_config(port, backends, "", HEDGED) + &record
}

/// What all configurations of our own have in common.
pub(crate) const EVENKEEL: Proxy = Proxy {
    name: "evenkeel",
    program: || Ok(workspace::dist_binary()),
    version_flag: "--version",
    config_name: "evenkeel.toml",
    config: evenkeel_config,
    arguments: &["run", "CONFIG"],
    note: None,
};

impl Proxy {
    /// Writes the configuration and starts the proxy on `port`.
    pub(super) fn start(
        &self,
        bench: &Workbench,
        port: u16,
        backend_ports: &[u16],
        ours: Option<&Path>,
    ) -> Result<Server> {
        let command = process::child(&self.program(ours)?);
        self.start_by(command, bench, port, backend_ports)
    }

    /// The same by a command, which has the program and no arguments yet.
    pub(crate) fn start_by(
        &self,
        command: Command,
        bench: &Workbench,
        port: u16,
        backend_ports: &[u16],
    ) -> Result<Server> {
        let text = (self.config)(bench.folder(), port, backend_ports);
        let config = bench.write(self.config_name, &text)?;
        start(bench, self.name, port, command, self.arguments, &config)
    }

    /// Its path; `ours` takes the place of what is built from this workspace.
    fn program(&self, ours: Option<&Path>) -> Result<PathBuf> {
        match ours.filter(|_| self.is_ours()) {
            Some(ours) => Ok(ours.to_owned()),
            None => (self.program)(),
        }
    }

    /// Whether it is built from this workspace.
    pub(crate) fn is_ours(&self) -> bool {
        self.arguments == EVENKEEL.arguments
    }

    /// Whether it is here, or there is a reason to fail for it.
    pub(super) fn is_at_hand(&self) -> bool {
        self.name != ENVOY.name || (self.program)().is_ok()
    }

    /// The first line of what the program says about its version.
    pub(super) fn version(&self, ours: Option<&Path>) -> Result<String> {
        self.version_of(&self.program(ours)?)
    }

    /// The same of a program in place of its own.
    pub(crate) fn version_of(&self, program: &Path) -> Result<String> {
        let text = process::version_of(self.name, program, self.version_flag)?;
        let line = text.lines().map(str::trim).find(|line| !line.is_empty());
        Ok(line.unwrap_or("unknown").to_owned())
    }
}

/// Makes the certificate that listeners of a suite show.
pub(super) fn certify(bench: &Workbench, suite: &Suite) -> Result<()> {
    if !matches!(suite.clients, Clients::Tls | Clients::TlsOnce) {
        return Ok(());
    }
    let mut openssl = process::child(&needs::require("openssl")?);
    openssl.current_dir(bench.folder()).args(["req", "-x509", "-nodes", "-subj", "/CN=bench"]);
    openssl.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    openssl.args(["-addext", "subjectAltName=DNS:localhost"]);
    let output = openssl.args(["-keyout", KEY_FILE, "-out", CERTIFICATE_FILE]).output()?;
    if !output.status.success() {
        bail!("openssl made no certificate: {}", String::from_utf8_lossy(&output.stderr));
    }
    let read = |name| std::fs::read_to_string(bench.folder().join(name));
    bench.write(BOTH_FILE, &(read(CERTIFICATE_FILE)? + &read(KEY_FILE)?))?;
    Ok(())
}

/// Starts the backend of a suite on all of `ports`.
pub(super) fn start_backend(
    bench: &Workbench,
    suite: &Suite,
    ports: &[u16],
    body_bytes: usize,
) -> Result<Server> {
    let protocol = if suite.has_http2_replicas { " http2" } else { "" };
    let listen = |port| format!("listen 127.0.0.1:{port}{protocol};\n");
    let listen: String = ports.iter().map(listen).collect();
    let folder = bench.folder().display();
    let body = "x".repeat(body_bytes);
    let answer = match body_bytes <= BODY_WORD_MAX {
        true => format!("return 200 \"{body}\";"),
        false => format!("root \"{folder}\"; try_files /{BODY_FILE} =404;"),
    };
    let server = format!(
        "server {{\n{listen}
         location = {LARGE_PATH} {{ root \"{folder}\"; }}
         location = {FORWARDED_PATH} {{ return 200 \"$http_x_forwarded_for\"; }}
         location / {{ default_type text/plain; {answer} }}\n}}"
    );
    bench.write(BODY_FILE, &body)?;
    bench.write(&LARGE_PATH[1..], &"x".repeat(LARGE_BYTES))?;
    let text = nginx_frame(bench.folder(), "backend", &server);
    let config = bench.write("backend.conf", &text)?;
    let arguments = ["-e", "stderr", "-c", "CONFIG"];
    let command = process::child(&needs::require("nginx")?);
    start(bench, "backend", ports[0], command, &arguments, &config)
}

/// Starts agents on `ports`, one before each port of the backend.
pub(super) fn start_agents(
    bench: &Workbench,
    (ports, backend_ports): (&[u16], &[u16]),
    ours: Option<&Path>,
) -> Result<Server> {
    let agent = |(port, backend): (&u16, &u16)| agent_table(*port, *backend, "");
    let agents: String = ports.iter().zip(backend_ports).map(agent).collect();
    let config = bench.write("agents.toml", &format!("[process]\nworkers = 1\n{agents}"))?;
    let command = process::child(&EVENKEEL.program(ours)?);
    start(bench, "agents", ports[0], command, EVENKEEL.arguments, &config)
}

fn start(
    bench: &Workbench,
    name: &str,
    port: u16,
    mut command: Command,
    arguments: &[&str],
    config: &Path,
) -> Result<Server> {
    let file = config.to_str().context("the path of the target folder is not UTF-8")?;
    command.args(arguments.iter().map(|word| if *word == "CONFIG" { file } else { *word }));
    Server::of(bench, name, port, &mut command)
}

/// Checks that a proxy passes the backend's answer on; the result is a note for the reader when it
/// does less work than it should.
pub(super) fn check(suite: &Suite, server: &Server, body_bytes: usize) -> Result<Option<String>> {
    if !matches!(suite.clients, Clients::Messages | Clients::MessagesOnce) {
        return Ok(None); // what generates load looks at answers
    }
    let name = server.name();
    let answer =
        process::get(server.port(), "/").with_context(|| format!("first request to {name}"))?;
    if !answer.starts_with("HTTP/1.1 200") || !answer.ends_with(&"x".repeat(body_bytes)) {
        bail!("{name} does not pass on the backend's answer; it said: {answer}");
    }
    if !suite.forwards_addresses {
        return Ok(None);
    }
    let answer = process::get(server.port(), FORWARDED_PATH)?;
    let is_forwarded = answer.ends_with("127.0.0.1");
    let note = || format!("{name} adds no X-Forwarded-For: it does less work than the others");
    Ok((!is_forwarded).then(note))
}

/// With further words for what clients and what replicas speak.
fn haproxy_config(port: u16, backend_ports: &[u16], of_bind: &str, of_server: &str) -> String {
    let replicas = backend_ports.iter().enumerate();
    let replicas: String = replicas
        .map(|(index, port)| format!("    server replica{index} 127.0.0.1:{port} {of_server}\n"))
        .collect();
    format!(
        "global
    nbthread 1
    maxconn 4096
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    option http-keep-alive
    option forwardfor
    http-reuse always
frontend bench
    bind 127.0.0.1:{port} {of_bind}
    default_backend replicas
backend replicas
    balance roundrobin
{replicas}"
    )
}

fn nginx_config(folder: &Path, port: u16, backend_ports: &[u16]) -> String {
    let replicas: String =
        backend_ports.iter().map(|port| format!("server 127.0.0.1:{port};\n")).collect();
    let server = format!(
        "upstream replicas {{
{replicas}keepalive 256;
keepalive_requests 1000000000;
keepalive_time 1d;
}}
server {{
listen 127.0.0.1:{port};
location / {{
    proxy_pass http://replicas;
    proxy_http_version 1.1;
    proxy_set_header Connection \"\";
    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
}}
}}"
    );
    nginx_frame(folder, "nginx", &server)
}

/// The parts that nginx needs as a backend and as a proxy.
pub(crate) fn nginx_frame(folder: &Path, name: &str, server: &str) -> String {
    let folder = folder.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("{kind}_temp_path \"{folder}/{name}-{kind}\";\n"))
        .collect();
    format!(
        "daemon off;
worker_processes 1;
pid \"{folder}/{name}.pid\";
events {{ worker_connections 4096; }}
http {{
access_log off;
keepalive_requests 1000000000;
keepalive_time 1d;
{temporary}{server}
}}
"
    )
}

/// What makes Envoy speak HTTP/2 with replicas.
const ENVOY_HTTP2_REPLICAS: &str = r#""typed_extension_protocol_options": {
    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}}}},"#;

/// What clients speak, and further members of the cluster.
fn envoy_config(port: u16, backend_ports: &[u16], codec: &str, of_cluster: &str) -> String {
    let address = |port: &u16| {
        format!("{{\"socket_address\":{{\"address\":\"127.0.0.1\",\"port_value\":{port}}}}}")
    };
    let replica = |port| format!("{{\"endpoint\":{{\"address\":{}}}}}", address(port));
    let replicas: Vec<String> = backend_ports.iter().map(replica).collect();
    let (replicas, listen) = (replicas.join(","), address(&port));
    let of = "type.googleapis.com/envoy.extensions.filters";
    format!(
        r#"{{"static_resources": {{
  "listeners": [{{"address": {listen}, "filter_chains": [{{"filters": [{{
    "name": "hcm", "typed_config": {{
      "@type": "{of}.network.http_connection_manager.v3.HttpConnectionManager",
      "stat_prefix": "bench", "codec_type": "{codec}", "use_remote_address": true,
      "generate_request_id": false,
      "route_config": {{"virtual_hosts": [{{"name": "all", "domains": ["*"],
        "routes": [{{"match": {{"prefix": "/"}}, "route": {{"cluster": "replicas"}}}}]}}]}},
      "http_filters": [{{"name": "envoy.filters.http.router",
        "typed_config": {{"@type": "{of}.http.router.v3.Router"}}}}]}}}}]}}]}}],
  "clusters": [{{"name": "replicas", "type": "STATIC", {of_cluster}
    "circuit_breakers": {{"thresholds": [{{"max_connections": 4096,
      "max_pending_requests": 4096, "max_requests": 4096}}]}},
    "load_assignment": {{"cluster_name": "replicas",
      "endpoints": [{{"lb_endpoints": [{replicas}]}}]}}}}]}}}}"#
    )
}

fn evenkeel_config(_folder: &Path, port: u16, backend_ports: &[u16]) -> String {
    proxy_config(port, backend_ports, "", "policy = \"c3\"\n")
}

fn plain_config(_folder: &Path, port: u16, backend_ports: &[u16]) -> String {
    let of_upstream = "policy = \"round-robin\"\nretries_max = 0\n";
    proxy_config(port, &backend_ports[..1], "forwarded_for = false\n", of_upstream)
}

/// A proxy with further lines in its listener and its upstream.
pub(crate) fn proxy_config(
    port: u16,
    backend_ports: &[u16],
    of_listener: &str,
    of_upstream: &str,
) -> String {
    let replicas: Vec<String> =
        backend_ports.iter().map(|port| format!("\"127.0.0.1:{port}\"")).collect();
    let replicas = replicas.join(", ");
    format!(
        "[process]
workers = 1

[[listen]]
address = \"127.0.0.1:{port}\"
upstream = \"bench\"
{of_listener}
[upstream.bench]
replicas = [{replicas}]
{of_upstream}"
    )
}

fn agent_config(port: u16, backend_ports: &[u16], more: &str) -> String {
    format!("[process]\nworkers = 1\n{}", agent_table(port, backend_ports[0], more))
}

fn agent_table(port: u16, app: u16, more: &str) -> String {
    format!(
        "
[[agent]]
listen = \"127.0.0.1:{port}\"
app = \"127.0.0.1:{app}\"
concurrency = 64
{more}"
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_configuration_names_its_port_and_its_replicas() {
        let further = HTTP2.iter().chain(&TLS).map(|suite| (suite, 4001..=4003));
        let suites = [(&HTTP, 4001..=4003), (&HTTP_NEW, 4001..=4003), (&AGENT, 4001..=4001)];
        for (suite, replicas) in suites.into_iter().chain(further) {
            for proxy in suite.proxies {
                let text = (proxy.config)(Path::new("folder"), 4000, &[4001, 4002, 4003]);
                for port in replicas.clone().chain([4000]) {
                    assert!(text.contains(&port.to_string()), "{}: {text}", proxy.name);
                }
            }
        }
    }

    #[test]
    fn names_and_files_are_told_apart_and_the_reference_is_among_them() {
        for suite in [&HTTP, &HTTP_AGENTS, &HTTP_IDLE, &AGENT].into_iter().chain(&HTTP2).chain(&TLS)
        {
            let count = suite.proxies.len();
            for part in [|proxy: &Proxy| proxy.name, |proxy: &Proxy| proxy.config_name] {
                let parts: BTreeSet<&str> = suite.proxies.iter().map(part).collect();
                assert_eq!(parts.len(), count, "{parts:?}");
            }
            assert!(suite.proxies.iter().any(|proxy| proxy.name == suite.reference));
        }
    }
}
