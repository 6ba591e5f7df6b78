//! One real member that wants TLS, a certificate of its clients, a user and a password.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use evenkeel_core::placement::model::Layout;
use evenkeel_net::http::engine::worker_runtime;
use evenkeel_net::placement::act::Cluster as _;
use evenkeel_net::placement::act::etcd::{Etcd, Settings, Site};
use evenkeel_net::placement::act::rest::{Call, Client, Endpoint, TlsFiles};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};
use serde_json::{Value, json};

use crate::MS;

struct Member {
    child: Child,
    folder: PathBuf,
}

impl Drop for Member {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// An authority, and one certificate for the member and its client.
fn certificates(folder: &Path, address: Ipv4Addr) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    fs::write(folder.join("authority.pem"), authority.pem()).unwrap();
    let mut params = CertificateParams::new([address.to_string()]).unwrap();
    // With authentication on, the gateway refuses certificates that have a common name.
    params.distinguished_name = DistinguishedName::new();
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    fs::write(folder.join("one.pem"), certificate.pem()).unwrap();
    fs::write(folder.join("one.key"), key.serialize_pem()).unwrap();
}

fn start(address: Ipv4Addr) -> Member {
    let folder = std::env::temp_dir().join(format!("evenkeel-etcd-tls-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    certificates(&folder, address);
    let (client, peer) = (format!("https://{address}:2379"), format!("http://{address}:2380"));
    let child = Command::new("etcd")
        .args(["--name", "one", "--unsafe-no-fsync", "--log-level", "error", "--data-dir"])
        .arg(folder.join("data"))
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("one={peer}"), "--client-cert-auth"])
        .arg("--trusted-ca-file")
        .arg(folder.join("authority.pem"))
        .arg("--cert-file")
        .arg(folder.join("one.pem"))
        .arg("--key-file")
        .arg(folder.join("one.key"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    Member { child: child.unwrap(), folder }
}

/// Switches authentication on, as an administrator does.
async fn lock(client: &Client, server: &Endpoint) {
    let ends = Instant::now() + Duration::from_secs(15);
    let ask = async |path: &str, body: Value| {
        let answer = client.call(server, Call::post(path, &body)).await;
        answer.is_ok_and(|answer| answer.status == 200)
    };
    while !ask("/v3/auth/user/add", json!({"name": "root", "password": "secret"})).await {
        assert!(Instant::now() < ends, "the member does not start");
        tokio::time::sleep(50 * MS).await;
    }
    assert!(ask("/v3/auth/role/add", json!({"name": "root"})).await);
    assert!(ask("/v3/auth/user/grant", json!({"user": "root", "role": "root"})).await);
    assert!(ask("/v3/auth/enable", json!({})).await);
}

#[test]
fn behind_tls_and_a_password_it_is_the_same() {
    if !Command::new("etcd").arg("--version").output().is_ok_and(|done| done.status.success()) {
        eprintln!("SKIPPED: no `etcd` (Debian package etcd-server)");
        return;
    }
    let address = Ipv4Addr::new(127, 64 + (std::process::id() % 128) as u8, 250, 1);
    let member = start(address);
    let file = |name: &str| member.folder.join(name);
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
    worker_runtime().unwrap().block_on(async {
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
        assert!(refused.words.contains("is being moved by a test"), "{refused}");
        etcd.release(held).await;
        etcd.hold("another").await.unwrap();

        let wrong = Etcd::new(settings("guess")).unwrap();
        let refused = wrong.hold("a stranger").await.unwrap_err();
        assert!(refused.words.contains("authentication failed"), "{refused}");
        let stranger = Settings { authority: None, identity: None, ..settings("secret") };
        let refused = Etcd::new(stranger).unwrap().observe().await.unwrap_err();
        assert!(refused.words.contains("https needs an authority"), "{refused}");
    });
}
