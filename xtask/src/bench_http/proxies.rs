//! Who is measured, and with which configuration: one worker each, keep-alive on both sides, no
//! access log. As proxies: three replicas of one backend, the client's address added. As agents:
//! one replica, and nothing that an agent does not do.
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
    /// Whether every one should add the client's address.
    forwards_addresses: bool,
}

/// Evenkeel beside other proxies.
pub(super) const HTTP: Suite =
    Suite { name: "http", reference: "haproxy", proxies: &PROXIES, forwards_addresses: true };

/// An agent in front of one application, and what its dimmer adds, beside plain proxying.
pub(super) const AGENT: Suite =
    Suite { name: "agent", reference: "plain", proxies: &AGENTS, forwards_addresses: false };

/// Addresses of the backend, which one nginx worker serves.
pub(super) const BACKEND_PORTS: usize = 3;

const BODY_BYTES: usize = 150;

/// A path that answers with the forwarded address, to see that every proxy adds it.
const FORWARDED_PATH: &str = "/forwarded";

/// A proxy under test.
pub(crate) struct Proxy {
    pub(crate) name: &'static str,
    pub(crate) program: fn() -> Result<PathBuf>,
    pub(crate) version_flag: &'static str,
    pub(crate) config_name: &'static str,
    pub(crate) config: fn(folder: &Path, port: u16, backend_ports: &[u16]) -> String,
    /// Arguments, of which `CONFIG` stands for the path of the configuration.
    pub(crate) arguments: &'static [&'static str],
}

const PROXIES: [Proxy; 3] = [HAPROXY, NGINX, EVENKEEL];

pub(crate) const HAPROXY: Proxy = Proxy {
    name: "haproxy",
    program: || needs::require("haproxy"),
    version_flag: "-v",
    config_name: "haproxy.cfg",
    config: haproxy_config,
    arguments: &["-db", "-f", "CONFIG"],
};

pub(crate) const NGINX: Proxy = Proxy {
    name: "nginx",
    program: || needs::require("nginx"),
    version_flag: "-v",
    config_name: "nginx.conf",
    config: nginx_config,
    arguments: &["-e", "stderr", "-c", "CONFIG"],
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

/// What all configurations of our own have in common.
pub(crate) const EVENKEEL: Proxy = Proxy {
    name: "evenkeel",
    program: || Ok(workspace::dist_binary()),
    version_flag: "--version",
    config_name: "evenkeel.toml",
    config: evenkeel_config,
    arguments: &["run", "CONFIG"],
};

impl Proxy {
    /// Writes the configuration and starts the proxy on `port`.
    pub(super) fn start(
        &self,
        bench: &Workbench,
        port: u16,
        backend_ports: &[u16],
    ) -> Result<Server> {
        let command = process::child(&(self.program)()?);
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

    /// Whether it is built from this workspace.
    pub(crate) fn is_ours(&self) -> bool {
        self.arguments == EVENKEEL.arguments
    }

    /// The first line of what the program says about its version.
    pub(super) fn version(&self) -> Result<String> {
        self.version_of(&(self.program)()?)
    }

    /// The same of a program in place of its own.
    pub(crate) fn version_of(&self, program: &Path) -> Result<String> {
        let text = process::version_of(self.name, program, self.version_flag)?;
        Ok(text.trim().lines().next().unwrap_or("unknown").trim().to_owned())
    }
}

/// Starts the backend on all of `ports`.
pub(super) fn start_backend(bench: &Workbench, ports: &[u16]) -> Result<Server> {
    let listen: String = ports.iter().map(|port| format!("listen 127.0.0.1:{port};\n")).collect();
    let body = "x".repeat(BODY_BYTES);
    let server = format!(
        "server {{\n{listen}
         location = {FORWARDED_PATH} {{ return 200 \"$http_x_forwarded_for\"; }}
         location / {{ default_type text/plain; return 200 \"{body}\"; }}\n}}"
    );
    let text = nginx_frame(bench.folder(), "backend", &server);
    let config = bench.write("backend.conf", &text)?;
    let arguments = ["-e", "stderr", "-c", "CONFIG"];
    let command = process::child(&needs::require("nginx")?);
    start(bench, "backend", ports[0], command, &arguments, &config)
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
pub(super) fn check(suite: &Suite, server: &Server) -> Result<Option<String>> {
    let name = server.name();
    let answer =
        process::get(server.port(), "/").with_context(|| format!("first request to {name}"))?;
    if !answer.starts_with("HTTP/1.1 200") || !answer.ends_with(&"x".repeat(BODY_BYTES)) {
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

fn haproxy_config(_folder: &Path, port: u16, backend_ports: &[u16]) -> String {
    let replicas = backend_ports.iter().enumerate();
    let replicas: String = replicas
        .map(|(index, port)| format!("    server replica{index} 127.0.0.1:{port}\n"))
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
    bind 127.0.0.1:{port}
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

fn evenkeel_config(_folder: &Path, port: u16, backend_ports: &[u16]) -> String {
    proxy_config(port, backend_ports, "", "policy = \"c3\"\n")
}

fn plain_config(_folder: &Path, port: u16, backend_ports: &[u16]) -> String {
    let of_upstream = "policy = \"round-robin\"\nretries_max = 0\n";
    proxy_config(port, &backend_ports[..1], "forwarded_for = false\n", of_upstream)
}

/// A proxy with further lines in its listener and its upstream.
fn proxy_config(port: u16, backend_ports: &[u16], of_listener: &str, of_upstream: &str) -> String {
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
    format!(
        "[process]
workers = 1

[[agent]]
listen = \"127.0.0.1:{port}\"
app = \"127.0.0.1:{}\"
concurrency = 64
{more}",
        backend_ports[0]
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_configuration_names_its_port_and_its_replicas() {
        for (suite, replicas) in [(&HTTP, 4001..=4003), (&AGENT, 4001..=4001)] {
            for proxy in suite.proxies {
                let text = (proxy.config)(Path::new("folder"), 4000, &[4001, 4002, 4003]);
                for port in replicas.clone().chain([4000]) {
                    assert!(text.contains(&format!("127.0.0.1:{port}")), "{}: {text}", proxy.name);
                }
            }
        }
    }

    #[test]
    fn names_and_files_are_told_apart_and_the_reference_is_among_them() {
        for suite in [&HTTP, &AGENT] {
            let count = suite.proxies.len();
            for part in [|proxy: &Proxy| proxy.name, |proxy: &Proxy| proxy.config_name] {
                let parts: BTreeSet<&str> = suite.proxies.iter().map(part).collect();
                assert_eq!(parts.len(), count, "{parts:?}");
            }
            assert!(suite.proxies.iter().any(|proxy| proxy.name == suite.reference));
        }
    }
}
