//! `[upstream.NAME.discover]`: one who tells of replicas.

use evenkeel_kubernetes::{Api, Port, Service};
use evenkeel_settings::address::{Target, check_host};
use evenkeel_settings::common::file;
use evenkeel_settings::{Mismatch, Setting, Table, Value};

use crate::config::{Cluster, ReplicaSource};

const KEYS: [&str; 3] = ["dns", "file", "kubernetes"];

/// Reads the table; `None` where it does not name one.
pub(super) fn read(table: &mut Table<'_>) -> Option<ReplicaSource> {
    let [dns, path, kubernetes] = KEYS.map(|key| table.key(key));
    let written = KEYS.into_iter().zip([&dns, &path, &kubernetes]);
    let written = written.filter(|(_, setting)| setting.value().is_some());
    let written: Vec<&str> = written.map(|(key, _)| key).collect();
    match written[..] {
        ["dns"] => {
            let name = dns.clone().text().required();
            if !name.is_empty()
                && let Err(hint) = check_host(&name)
            {
                let expected = "the name of a service such as _http._tcp.shop.example";
                dns.problem(Mismatch::new(format!("{name:?}"), expected).with_hint(hint));
            }
            Some(ReplicaSource::Service(name.to_lowercase()))
        }
        ["file"] => Some(ReplicaSource::File(file(path))),
        ["kubernetes"] => kubernetes.table(cluster).optional().map(ReplicaSource::Kubernetes),
        _ => {
            let came = match written.is_empty() {
                true => "none of dns, file and kubernetes".to_owned(),
                false => written.join(" and "),
            };
            table.problem("dns", Mismatch::new(came, "one of them"));
            None
        }
    }
}

/// `discover.kubernetes`
fn cluster(table: &mut Table<'_>) -> Cluster {
    let label = "a name of Kubernetes: 1 to 63 small letters, digits and hyphens";
    let name = table.key("service").text().check(label, |it| is_label(it)).required();
    let namespace = table.key("namespace").text().check(label, |it| is_label(it)).optional();
    let service = Service { name, namespace, port: port(table.key("port")) };
    let (token, ca) = (table.key("token_file"), table.key("ca"));
    let has = |setting: &Setting<'_>| setting.value().is_some();
    let api = table.key("api");
    if !has(&api) {
        let came = "without api";
        let expected = "api too: without it this is in the service account of the pod";
        for (setting, key) in [(&token, "token_file"), (&ca, "ca")] {
            if has(setting) {
                setting.problem(Mismatch::new(format!("{key} {came}"), expected));
            }
        }
        return Cluster { service, api: Api::OfPod };
    }
    let nowhere = || (Target::Address(([0, 0, 0, 0], 0).into()), true);
    let (server, is_tls) = api.parsed(Api::EXPECTED, nowhere(), Api::parse).required();
    if !is_tls {
        let expected = "https in api: over http anybody could read or change it";
        for (setting, key) in [(&token, "token_file"), (&ca, "ca")] {
            if has(setting) {
                setting.problem(Mismatch::new(format!("{key} with http"), expected));
            }
        }
    }
    let token_file = has(&token).then(|| file(token));
    let ca = has(&ca).then(|| file(ca));
    Cluster { service, api: Api::At { server, is_tls, token_file, ca } }
}

/// By name, or by the number at the pods.
fn port(setting: Setting<'_>) -> Option<Port> {
    match setting.value()? {
        Value::Text(_) => {
            let expected = "the name of a port, or its number at the pods";
            let is_name = |name: &String| is_label(name) && name.len() <= 15;
            setting.text().check(expected, is_name).optional().map(Port::Name)
        }
        _ => setting.integer().between(1..=u16::MAX).optional().map(Port::Number),
    }
}

fn is_label(text: &str) -> bool {
    let is_plain = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(is_plain)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use evenkeel_settings::Node;

    use crate::config::UpstreamConfig;

    fn read(kubernetes: &str) -> Result<String, String> {
        let text = format!("discover = {{ kubernetes = {{ {kubernetes} }} }}\ntls = {{}}");
        let node = Node::parse(&text, "test.toml").unwrap();
        let read = node.read(|table| UpstreamConfig::read("web", table, false).0);
        let source = |config: UpstreamConfig| config.sources[0].to_string();
        read.map(source).map_err(|problems| problems.to_string())
    }

    #[test]
    fn a_service_of_kubernetes_is_read_and_slips_are_explained() {
        assert_eq!(read("service = 'shop'").unwrap(), "shop");
        let outside =
            "namespace = 'b', port = 'http', api = 'https://api.test:6443', ca = 'ca.pem'";
        assert_eq!(read(&format!("service = 'shop', {outside}")).unwrap(), "b/shop:http");
        assert_eq!(read("service = 'shop', port = 80").unwrap(), "shop:80");
        for (keys, words) in [
            ("", "discover.kubernetes.service: got nothing"),
            ("service = 'Shop'", "got \"Shop\", expected a name of Kubernetes"),
            ("service = 'a', port = 0", "discover.kubernetes.port: got 0"),
            ("service = 'a', port = 'a port'", "expected the name of a port, or its number"),
            ("service = 'a', token_file = 'b'", "got token_file without api, expected api too"),
            (
                "service = 'a', api = 'http://b:1', token_file = 'c'",
                "got token_file with http, expected https in api",
            ),
            ("service = 'a', api = '10.0.0.1:6443'", "the scheme is missing"),
            ("service = 'a', api = 'https://10.0.0.1'", "the port is missing"),
        ] {
            let problems = read(keys).unwrap_err();
            assert!(problems.contains(words), "{keys}: {problems}");
        }
    }
}
