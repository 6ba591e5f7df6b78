//! One real member that wants TLS, a certificate of its clients, a user and a password.

use std::fs;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::time::Duration;

use evenkeel_placement::act::Cluster as _;
use evenkeel_placement::act::etcd::{Etcd, Settings, Site};
use evenkeel_planner::model::Layout;
use evenkeel_stores::clients::rest::{Call, Client, Endpoint, TlsFiles};
use evenkeel_testkit::certificates::Authority;
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::program::Program;
use evenkeel_testkit::regions::succeeds;
use evenkeel_testkit::story::possible_story;
use evenkeel_testkit::wait::found;
use rcgen::DistinguishedName;
use serde_json::{Value, json};

/// An authority, and one certificate for the member and its client.
fn certificates(folder: &Folder, address: Ipv4Addr) {
    let authority = Authority::new();
    // With authentication on, the gateway refuses certificates that have a common name.
    let nameless = |params: &mut rcgen::CertificateParams| {
        params.distinguished_name = DistinguishedName::new();
    };
    let (certificate, key) = authority.issue_with(&[&address.to_string()], nameless);
    fs::write(folder.file("authority.pem"), authority.pem()).unwrap();
    fs::write(folder.file("one.pem"), certificate).unwrap();
    fs::write(folder.file("one.key"), key).unwrap();
}

fn start(address: Ipv4Addr, folder: &Folder) -> Program {
    certificates(folder, address);
    let (client, peer) = (format!("https://{address}:2379"), format!("http://{address}:2380"));
    let mut command = Command::new("etcd");
    command
        .args(["--name", "one", "--unsafe-no-fsync", "--log-level", "error", "--data-dir"])
        .arg(folder.file("data"))
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("one={peer}"), "--client-cert-auth"])
        .arg("--trusted-ca-file")
        .arg(folder.file("authority.pem"))
        .arg("--cert-file")
        .arg(folder.file("one.pem"))
        .arg("--key-file")
        .arg(folder.file("one.key"))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Program::start(&mut command)
}

/// Switches authentication on, as an administrator does.
async fn lock(client: &Client, server: &Endpoint) {
    let ask = async |path: &str, body: Value| {
        let answer = client.call(server, Call::post(path, &body)).await;
        answer.is_ok_and(|answer| answer.status == 200)
    };
    let root = json!({"name": "root", "password": "secret"});
    let added = async || ask("/v3/auth/user/add", root.clone()).await.then_some(());
    found("the member starts", added).await;
    assert!(ask("/v3/auth/role/add", json!({"name": "root"})).await);
    assert!(ask("/v3/auth/user/grant", json!({"user": "root", "role": "root"})).await);
    assert!(ask("/v3/auth/enable", json!({})).await);
}

#[test]
fn behind_tls_and_a_password_it_is_the_same() {
    let possible = match succeeds("etcd", &["--version"]) {
        true => Ok(()),
        false => Err("no `etcd` (Debian package etcd-server)".into()),
    };
    possible_story(possible, Duration::from_secs(60), one_member);
}

async fn one_member() {
    let address = Ipv4Addr::new(127, 64 + (std::process::id() % 128) as u8, 250, 1);
    let folder = Folder::new("etcd-tls");
    let _member = start(address, &folder);
    let file = |name: &str| folder.file(name);
    let url = format!("https://{address}:2379");
    let settings = |password: &str| Settings {
        name: "one".to_owned(),
        sites: vec![Site {
            name: "one".to_owned(),
            client: url.clone(),
            peer: format!("http://{address}:2380"),
            start: Vec::new(),
        }],
        request: Duration::from_secs(5),
        user: Some(("root".to_owned(), password.to_owned())),
        authority: Some(file("authority.pem")),
        identity: Some((file("one.pem"), file("one.key"))),
        hold: Duration::from_secs(5),
    };
    let (authority, one, key) = (file("authority.pem"), file("one.pem"), file("one.key"));
    let files = TlsFiles { authority: &authority, identity: Some((&one, &key)) };
    let client = Client::with_tls(Duration::from_secs(5), files).unwrap();
    lock(&client, &Endpoint::parse(&url).unwrap()).await;

    let etcd = Etcd::new(settings("secret")).unwrap();
    let alone = Layout::new(0, vec![0], vec![0]).unwrap();
    assert_eq!(etcd.observe().await.unwrap().layout, alone);
    let held = etcd.hold("a test").await.unwrap();
    etcd.keep(&held).await.unwrap();
    let refused = etcd.hold("another").await.unwrap_err();
    assert!(refused.message.contains("is being moved by a test"), "{refused}");
    etcd.release(held).await;
    etcd.hold("another").await.unwrap();

    let wrong = Etcd::new(settings("guess")).unwrap();
    let refused = wrong.hold("a stranger").await.unwrap_err();
    assert!(refused.message.contains("authentication failed"), "{refused}");
    let stranger = Settings { authority: None, identity: None, ..settings("secret") };
    let refused = Etcd::new(stranger).unwrap().observe().await.unwrap_err();
    assert!(refused.message.contains("https needs a CA"), "{refused}");
}
