//! A Service is followed through everything that an API server can do to a watch.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::net::SocketAddr;
use std::time::Duration;

use evenkeel_dns::Resolver;
use evenkeel_kubernetes::{Api, Limits, Offer, Port, Service, WatchError, Watcher};
use evenkeel_runtime::tls::{Identity, ServerTls, ServerTlsFiles};
use evenkeel_settings::address::Target;
use evenkeel_testkit::certificates::Authority;
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::kubernetes::{ApiServer, Manner, NAMESPACE};
use serde_json::{Value, json};

/// A watch that is silent is dead after two to three seconds.
const LIMITS: Limits = Limits {
    answer: Duration::from_secs(2),
    watch: Duration::from_secs(1),
    late: Duration::from_secs(1),
};

fn slice(hosts: &[u8]) -> Value {
    let endpoint = |host: &u8| {
        let uid = format!("pod-{host}");
        json!({"addresses": [format!("10.0.0.{host}")], "conditions": {"ready": true},
               "targetRef": {"kind": "Pod", "uid": uid}})
    };
    let endpoints: Vec<Value> = hosts.iter().map(endpoint).collect();
    let ports = json!([{"name": "http", "port": 8080, "protocol": "TCP"}]);
    json!({"addressType": "IPv4", "ports": ports, "endpoints": endpoints})
}

fn shop() -> Service {
    let port = Some(Port::Name("http".to_owned()));
    Service { name: "shop".to_owned(), namespace: Some(NAMESPACE.to_owned()), port }
}

fn plain(at: SocketAddr) -> Api {
    Api::At { server: Target::Address(at), is_tls: false, token_file: None, ca: None }
}

/// Hosts of 10.0.0.0/24.
fn hosts(offer: &Offer) -> Vec<u8> {
    let Offer::These(who) = offer else { return Vec::new() };
    let host = |target: &Target| match target {
        Target::Address(SocketAddr::V4(at)) => at.ip().octets()[3],
        other => panic!("{other}"),
    };
    who.iter().map(host).collect()
}

/// Asks until these are offered; the errors on the way.
async fn until(watcher: &mut Watcher, wanted: &[u8]) -> Vec<WatchError> {
    let resolver = Resolver::new(Vec::new());
    let asked = async {
        let mut errors = Vec::new();
        loop {
            match watcher.next(&resolver).await {
                Ok(offer) if hosts(&offer) == wanted => return errors,
                Ok(_) => {}
                Err(error) => {
                    errors.push(error);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
    };
    let limit = Duration::from_secs(60);
    tokio::time::timeout(limit, asked).await.unwrap_or_else(|_| panic!("never {wanted:?}"))
}

async fn error(watcher: &mut Watcher) -> WatchError {
    let resolver = Resolver::new(Vec::new());
    let asked = async {
        loop {
            if let Err(error) = watcher.next(&resolver).await {
                return error;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), asked).await.unwrap()
}

#[tokio::test]
async fn changes_come_by_one_list_and_watches_that_end_and_go_on() {
    let server = ApiServer::start(None);
    server.put("shop-1", "shop", slice(&[1, 2]));
    server.put("cart-1", "cart", slice(&[9]));
    let mut watcher = Watcher::new(plain(server.address()), shop(), LIMITS);
    until(&mut watcher, &[1, 2]).await;
    for (name, added, all) in
        [("shop-2", &[3][..], &[1, 2, 3][..]), ("shop-1", &[1], &[1, 3]), ("shop-2", &[4], &[1, 4])]
    {
        server.put(name, "shop", slice(added));
        assert!(until(&mut watcher, all).await.is_empty());
    }
    server.remove("shop-1");
    assert!(until(&mut watcher, &[4]).await.is_empty());
    let resolver = Resolver::new(Vec::new());
    while server.asked().watches < 4 {
        assert_eq!(hosts(&watcher.next(&resolver).await.unwrap()), [4], "bookmarks, and an end");
    }
    server.put("shop-1", "shop", slice(&[5]));
    assert!(until(&mut watcher, &[4, 5]).await.is_empty());
    assert_eq!(server.asked().lists, 1, "the watches went on from where they were");
}

#[tokio::test]
async fn a_watch_that_breaks_goes_on_and_a_version_that_is_gone_takes_a_new_list() {
    let server = ApiServer::start(None);
    server.put("shop-1", "shop", slice(&[1]));
    let mut watcher = Watcher::new(plain(server.address()), shop(), LIMITS);
    until(&mut watcher, &[1]).await;
    let resolver = Resolver::new(Vec::new());
    while server.asked().watches == 0 {
        watcher.next(&resolver).await.unwrap();
    }
    server.set(Manner::Cut);
    server.put("shop-1", "shop", slice(&[2]));
    let error = error(&mut watcher).await.to_string();
    assert!(error.contains("without a word"), "three are too many: {error}");
    server.set(Manner::Honest);
    until(&mut watcher, &[2]).await;
    assert_eq!(server.asked().lists, 1);

    server.set(Manner::Expired);
    while server.asked().lists < 4 {
        watcher.next(&resolver).await.unwrap();
    }
    server.put("shop-1", "shop", slice(&[3]));
    server.set(Manner::Honest);
    assert!(until(&mut watcher, &[3]).await.is_empty());
}

#[tokio::test]
async fn who_hangs_or_lies_or_refuses_is_told_with_the_reason() {
    let server = ApiServer::start(None);
    server.put("shop-1", "shop", slice(&[1]));
    for (manner, words) in [
        (Manner::Hung, "sent nothing within 2 s"),
        (Manner::Mute, "sent nothing within 2"),
        (Manner::Garbage, "sent what is no event of a watch"),
        (Manner::Garbage, "sent what is no list of EndpointSlices: expected value at line 1"),
        (Manner::Forbidden, "403: endpointslices.discovery.k8s.io is forbidden"),
        (Manner::Closed, "connection closed"),
    ] {
        let mut watcher = Watcher::new(plain(server.address()), shop(), LIMITS);
        if words.contains("watch") || manner == Manner::Mute {
            until(&mut watcher, &[1]).await;
        }
        server.set(manner);
        let error = error(&mut watcher).await.to_string();
        assert!(error.contains(words), "{manner:?}: {error}");
        server.set(Manner::Honest);
        until(&mut watcher, &[1]).await;
    }
    let mut other = Watcher::new(
        plain(server.address()),
        Service { port: Some(Port::Number(1)), ..shop() },
        LIMITS,
    );
    let offer = other.next(&Resolver::new(Vec::new())).await.unwrap();
    assert!(matches!(offer, Offer::NoPort { .. }), "{offer:?}");
    let api = plain(evenkeel_testkit::story::nobody());
    let refused = error(&mut Watcher::new(api, shop(), LIMITS)).await.to_string();
    assert!(refused.contains("Connection refused"), "{refused}");
}

#[tokio::test]
async fn over_tls_the_token_is_read_again_and_another_authority_is_not_believed() {
    let folder = Folder::new("kubernetes-tls");
    let files = Authority::new().write(&folder.file("server"), &["localhost"]);
    let identity = Identity { certificate: files.certificate.clone(), key: files.key.clone() };
    let (identities, client_ca) = (vec![identity], None);
    let tls = ServerTlsFiles { identities, client_ca, is_client_optional: false };
    let server = ApiServer::start(Some(ServerTls::load(&tls, &[]).unwrap()));
    server.put("shop-1", "shop", slice(&[1]));
    server.require("first");
    let token = folder.file("token");
    std::fs::write(&token, "first\n").unwrap();
    let at = format!("https://localhost:{}", server.address().port());
    let (at, is_tls) = Api::parse(&at).unwrap();
    let api = |ca: &std::path::Path| Api::At {
        server: at.clone(),
        is_tls,
        token_file: Some(token.clone()),
        ca: Some(ca.to_owned()),
    };
    let mut watcher = Watcher::new(api(&files.authority), shop(), LIMITS);
    assert!(until(&mut watcher, &[1]).await.is_empty());
    server.require("second");
    let refused = error(&mut watcher).await.to_string();
    assert!(refused.contains("401") && refused.contains("token"), "{refused}");
    std::fs::write(&token, "second\n").unwrap();
    server.put("shop-1", "shop", slice(&[1, 2]));
    until(&mut watcher, &[1, 2]).await;
    assert!(server.asked().strangers > 0);

    let other = Authority::new().write(&folder.file("other"), &["localhost"]);
    let mut watcher = Watcher::new(api(&other.authority), shop(), LIMITS);
    let refused = error(&mut watcher).await.to_string();
    assert!(refused.contains("certificate"), "{refused}");
    std::fs::remove_file(&token).unwrap();
    let missing = error(&mut watcher).await.to_string();
    assert!(missing.contains("token: No such file"), "{missing}");
}
