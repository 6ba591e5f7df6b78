//! A lease of an etcd that wants TLS, a certificate of its clients, and a user with a password who
//! may do no more than he needs.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use evenkeel_runtime::accept::worker_runtime;
use evenkeel_stores::clients::rest::{Call, Client as Rest, Endpoint, TlsFiles};
use evenkeel_testkit::certificates::Authority;
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::redis::Reply;
use evenkeel_testkit::wait::block_until as until;
use rcgen::{CertificateParams, DistinguishedName};
use serde_json::{Value, json};

use super::leadership::{Etcd, serves_after};
use super::world::World;

/// An authority, and one certificate for etcd and its clients.
fn certificates(folder: &Folder) {
    let write = |name: &str, text: String| fs::write(folder.file(name), text).unwrap();
    let authority = Authority::new();
    write("authority.pem", authority.pem());
    // With authentication on, the gateway refuses certificates that have a common name.
    let nameless =
        |params: &mut CertificateParams| params.distinguished_name = DistinguishedName::new();
    let (certificate, key) = authority.issue_with(&["127.0.0.1"], nameless);
    write("one.pem", certificate);
    write("one.key", key);
    write("password", "keep out\n".to_owned());
    write("guess", "let me in\n".to_owned());
}

/// What an administrator asks of it.
struct Administrator {
    client: Rest,
    server: Endpoint,
    token: Option<String>,
}

impl Administrator {
    fn of(folder: &Folder, url: &str) -> Self {
        let [authority, one, key] =
            ["authority.pem", "one.pem", "one.key"].map(|it| folder.file(it));
        let identity: Option<(&Path, &Path)> = Some((&one, &key));
        let files = TlsFiles { authority: &authority, identity };
        let client = Rest::with_tls(Duration::from_secs(5), files).unwrap();
        Self { client, server: Endpoint::parse(url).unwrap(), token: None }
    }

    fn ask(&self, path: &str, body: &Value) -> Option<Value> {
        let call = Call { authorization: self.token.as_deref(), ..Call::post(path, body) };
        let answer = worker_runtime().unwrap().block_on(self.client.call(&self.server, call));
        answer.ok().filter(|answer| answer.status == 200).map(|answer| answer.body)
    }

    fn done(&self, path: &str, body: &Value) {
        assert!(self.ask(path, body).is_some(), "{path} {body}");
    }

    /// Users, of whom one may read and write below the prefix and nothing else; then nobody may do
    /// anything without saying who he is.
    fn lock(&mut self) {
        let root = json!({"name": "root", "password": "secret"});
        until("etcd answers", || self.ask("/v3/auth/user/add", &root).is_some());
        self.done("/v3/auth/role/add", &json!({"name": "root"}));
        self.done("/v3/auth/user/grant", &json!({"user": "root", "role": "root"}));
        self.done("/v3/auth/role/add", &json!({"name": "chaos"}));
        // From "evenkeel/duplicates/chaos/" to before "evenkeel/duplicates/chaos0".
        let below = json!({
            "permType": "READWRITE",
            "key": "ZXZlbmtlZWwvZHVwbGljYXRlcy9jaGFvcy8=",
            "range_end": "ZXZlbmtlZWwvZHVwbGljYXRlcy9jaGFvczA=",
        });
        self.done("/v3/auth/role/grant", &json!({"name": "chaos", "perm": below}));
        for name in ["keeper", "stranger"] {
            self.done("/v3/auth/user/add", &json!({"name": name, "password": "keep out"}));
        }
        self.done("/v3/auth/user/grant", &json!({"user": "keeper", "role": "chaos"}));
        self.done("/v3/auth/enable", &json!({}));
        let token = self.ask("/v3/auth/authenticate", &root).unwrap();
        self.token = Some(token["token"].as_str().unwrap().to_owned());
    }
}

fn secured() -> Option<(Etcd, Administrator)> {
    let arguments = |folder: &Folder| {
        certificates(folder);
        let file = |name: &str| folder.file(name).display().to_string();
        let files = [
            ("--trusted-ca-file", file("authority.pem")),
            ("--cert-file", file("one.pem")),
            ("--key-file", file("one.key")),
        ];
        let mut all = vec!["--client-cert-auth".to_owned()];
        files.into_iter().for_each(|(name, file)| all.extend([name.to_owned(), file]));
        all
    };
    let mut administrator = None;
    let settings = |folder: &Folder, url: &str| {
        administrator = Some(Administrator::of(folder, url));
        let file = |name: &str| folder.file(name).display().to_string();
        format!(
            ", user = \"keeper\", password_file = \"{}\", ca_file = \"{}\", \
             certificate = \"{}\", key = \"{}\"",
            file("password"),
            file("authority.pem"),
            file("one.pem"),
            file("one.key")
        )
    };
    let etcd = Etcd::with("secured", "https", arguments, settings)?;
    let mut administrator = administrator.unwrap();
    administrator.lock();
    Some((etcd, administrator))
}

/// From the configuration to the lease, the epoch and the layout, through a change of who leads.
pub(crate) fn takes_turns() {
    let Some((etcd, administrator)) = secured() else { return };
    let settings = format!("shards = 4\nlog_sync = \"never\"\n{}", etcd.settings);
    let Some(mut world) = World::of("secured", &settings, &[1, 1], 0) else { return };
    world.front.start();
    world.front.wait_live(2);
    until("the first leads", || world.front.has_role("leads"));
    let other = &mut world.other_front("two");
    other.start();
    until("the second stands by", || other.has_role("stands by"));
    for (instead, by, words) in [
        ("secured/password", "secured/guess", "authentication failed"),
        ("\"keeper\"", "\"stranger\"", "permission denied"),
    ] {
        let mut third = world.other_front("three");
        let instead = instead.replace("secured", &etcd.folder.path().display().to_string());
        third.replace_words(
            &instead,
            &by.replace("secured", &etcd.folder.path().display().to_string()),
        );
        let said = third.started_in_vain();
        assert!(said.contains(words), "{said}");
    }
    let mut client = world.front.client();
    for n in 0..100 {
        let set = client.ask(&["SET", &format!("k{n}"), &n.to_string()]);
        assert_eq!(set, Reply::Simple("OK".to_owned()));
    }
    let moved = |front: &super::world::Front, shard: usize, to: u64| {
        let order = format!("{{\"shard\": {shard}, \"to\": {to}}}");
        let (status, said) = front.admin.order(&order).unwrap();
        assert_eq!(status, 202, "{said}");
        until("it has moved", || front.admin.moves().unwrap()["owners"][shard] == to);
        front.admin.wait_moved();
    };
    moved(&world.front, 0, 1);
    // Whatever an administrator does to others meanwhile: tokens of before may be refused then.
    administrator.done("/v3/auth/user/add", &json!({"name": "more", "password": "or less"}));
    moved(&world.front, 3, 0);
    let begun = Instant::now();
    world.front.process.kill();
    println!("behind TLS the other one served after {:?}", serves_after(other, begun));
    other.wait_live(2);
    until("it is told who holds what", || {
        other.admin.moves().unwrap()["owners"] == json!([1, 0, 1, 0])
    });
    let mut client = other.client();
    for n in 0..100 {
        let value = client.ask(&["GET", &format!("k{n}")]);
        assert_eq!(value, Reply::bulk(&n.to_string()));
    }
    moved(other, 0, 0);
}
