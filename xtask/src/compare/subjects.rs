//! Who is compared, and how each is configured: as its own documentation advises for replicas that
//! may fail, and otherwise by its defaults.
//!
//! The same for all: one worker, keep-alive on both sides, no access log; a check of `/` every
//! second that may take one, two failures in a row and a replica is out; an attempt may take one
//! second, then another replica is asked, at most twice more. HAProxy and nginx have `leastconn`,
//! since round robin loses everywhere here. nginx (the free one) has no active checks: it counts
//! failed requests.

use std::path::Path;

use serde_json::json;

use crate::bench_http::proxies::{EVENKEEL, HAPROXY, NGINX, Proxy, nginx_frame, proxy_config};
use crate::needs;

/// What the others are compared with.
pub(super) const REFERENCE: &str = "haproxy";

/// Whose replicas have agents, built into them: what the policy `adaptive` is for.
pub(super) const WITH_AGENTS: &str = "evenkeel+agents";

pub(super) const SUBJECTS: [Proxy; 7] = [
    Proxy { config: haproxy, ..HAPROXY },
    Proxy { config: nginx, ..NGINX },
    Proxy {
        name: "envoy",
        program: || needs::require("envoy"),
        version_flag: "--version",
        config_name: "envoy.json",
        config: envoy,
        arguments: &[
            "-c",
            "CONFIG",
            "--concurrency",
            "1",
            "--use-dynamic-base-id",
            "--log-level",
            "error",
        ],
        note: None,
    },
    Proxy { config: evenkeel, ..EVENKEEL },
    Proxy { name: "evenkeel+hedge", config_name: "hedge.toml", config: hedge, ..EVENKEEL },
    Proxy { name: "evenkeel+adaptive", config_name: "adaptive.toml", config: adaptive, ..EVENKEEL },
    Proxy { name: WITH_AGENTS, config_name: "agents.toml", config: adaptive, ..EVENKEEL },
];

fn haproxy(_folder: &Path, port: u16, replicas: &[u16]) -> String {
    let servers = replicas.iter().enumerate().map(|(index, port)| {
        format!("    server replica{index} 127.0.0.1:{port} check inter 1s fall 2 rise 2\n")
    });
    let servers: String = servers.collect();
    format!(
        "global
    nbthread 1
    maxconn 4096
defaults
    mode http
    timeout connect 1s
    timeout client 60s
    timeout server 1s
    timeout check 1s
    retries 2
    option redispatch 1
    retry-on conn-failure empty-response response-timeout
    http-reuse always
frontend compare
    bind 127.0.0.1:{port}
    default_backend replicas
backend replicas
    balance leastconn
    option httpchk GET /
{servers}"
    )
}

fn nginx(folder: &Path, port: u16, replicas: &[u16]) -> String {
    let servers = replicas
        .iter()
        .map(|port| format!("server 127.0.0.1:{port} max_fails=2 fail_timeout=1s;\n"));
    let servers: String = servers.collect();
    let server = format!(
        "upstream replicas {{
least_conn;
{servers}keepalive 256;
}}
server {{
listen 127.0.0.1:{port};
location / {{
    proxy_pass http://replicas;
    proxy_http_version 1.1;
    proxy_set_header Connection \"\";
    proxy_connect_timeout 1s;
    proxy_read_timeout 1s;
    proxy_next_upstream error timeout;
    proxy_next_upstream_tries 3;
}}
}}"
    );
    nginx_frame(folder, "nginx", &server)
}

fn envoy(_folder: &Path, port: u16, replicas: &[u16]) -> String {
    const MANAGER: &str = "type.googleapis.com/envoy.extensions.filters.network.\
                           http_connection_manager.v3.HttpConnectionManager";
    const ROUTER: &str = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";
    let address =
        |port: u16| json!({ "socket_address": { "address": "127.0.0.1", "port_value": port } });
    let endpoint = |port: &u16| json!({ "endpoint": { "address": address(*port) } });
    let endpoints: Vec<_> = replicas.iter().map(endpoint).collect();
    let route = json!({
        "cluster": "replicas",
        "retry_policy": {
            "retry_on": "connect-failure,reset,gateway-error",
            "num_retries": 2,
            "per_try_timeout": "1s",
            "retry_host_predicate": [{
                "name": "previous",
                "typed_config": { "@type": "type.googleapis.com/envoy.extensions.retry.host.\
                                            previous_hosts.v3.PreviousHostsPredicate" },
            }],
            "host_selection_retry_max_attempts": 5,
        },
    });
    let manager = json!({
        "@type": MANAGER,
        "stat_prefix": "compare",
        "route_config": { "virtual_hosts": [{
            "name": "all", "domains": ["*"],
            "routes": [{ "match": { "prefix": "/" }, "route": route }],
        }] },
        "http_filters": [{ "name": "router", "typed_config": { "@type": ROUTER } }],
    });
    let cluster = json!({
        "name": "replicas",
        "type": "STATIC",
        "lb_policy": "LEAST_REQUEST",
        "connect_timeout": "1s",
        "outlier_detection": {},
        "health_checks": [{
            "timeout": "1s", "interval": "1s", "unhealthy_threshold": 2, "healthy_threshold": 2,
            "http_health_check": { "path": "/" },
        }],
        "load_assignment": {
            "cluster_name": "replicas", "endpoints": [{ "lb_endpoints": endpoints }],
        },
    });
    let filter = json!({ "name": "http", "typed_config": manager });
    let listener = json!({ "address": address(port), "filter_chains": [{ "filters": [filter] }] });
    json!({ "static_resources": { "listeners": [listener], "clusters": [cluster] } }).to_string()
}

/// The policy, the safeguards and the rest are the defaults.
fn evenkeel(_folder: &Path, port: u16, replicas: &[u16]) -> String {
    proxy_config(port, replicas, "", "timeouts = { attempt = \"1s\" }\nhealth = {}\n")
}

fn hedge(folder: &Path, port: u16, replicas: &[u16]) -> String {
    evenkeel(folder, port, replicas) + "hedge = {}\n"
}

fn adaptive(folder: &Path, port: u16, replicas: &[u16]) -> String {
    evenkeel(folder, port, replicas) + "policy = \"adaptive\"\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_configuration_names_its_port_and_all_replicas() {
        for subject in &SUBJECTS {
            let text = (subject.config)(Path::new("folder"), 4000, &[4001, 4002, 4003]);
            for port in 4000..=4003 {
                assert!(text.contains(&port.to_string()), "{}: {text}", subject.name);
            }
        }
        assert_eq!(SUBJECTS[0].name, REFERENCE);
    }
}
