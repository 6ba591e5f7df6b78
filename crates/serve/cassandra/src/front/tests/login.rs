//! Logins of several messages, with nodes behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use evenkeel_core::request::ring::Token;
use evenkeel_cql::request::AuthResponse;
use tokio::net::TcpStream;
use tokio::sync::watch;

use std::net::SocketAddr;

use super::*;
use crate::Route;
use crate::cluster::{Cluster, Member, channel};
use crate::front::serve;
use crate::members::Members;
use crate::testing::configured;
use evenkeel_cql::client::testing::fake::{Peer, Seen, fake, limits};
use evenkeel_proxy::calls::DispatcherSeed;
use evenkeel_runtime::clock::Clock;

/// What a node asks after the first message.
type Question = fn() -> String;

/// A node that asks for a password after a name, then answers everything with its own body.
async fn ask_twice(mut peer: Peer, question: Question) {
    let mut startup = peer.next().await.unwrap();
    while startup.opcode == Opcode::Options {
        peer.answer(&startup, Opcode::Supported, &[0, 0]).await;
        let Some(next) = peer.next().await else { return };
        startup = next;
    }
    peer.started(&startup, Opcode::Authenticate, b"\0\x04Some").await;
    let Some(name) = peer.next().await else { return };
    let question = question();
    let body = [&[0, 0, 0, question.len() as u8], question.as_bytes()].concat();
    peer.answer(&name, Opcode::AuthChallenge, &body).await;
    let Some(said) = peer.next().await else { return };
    if AuthResponse::read(&said.body).unwrap().token != Some(b"s3cret") {
        return peer.error(&said, ErrorCode::BadCredentials, &[]).await;
    }
    peer.answer(&said, Opcode::AuthSuccess, &[255; 4]).await;
    peer.echo().await;
}

fn member(number: u8, address: SocketAddr) -> Member {
    Member {
        address,
        reported: address,
        host_id: [number; 16],
        datacenter: "east".to_owned(),
        rack: "r1".to_owned(),
        release_version: "5.0.9".to_owned(),
        tokens: vec![Token(i64::from(number))],
        is_up: true,
    }
}

/// A listener before two such nodes.
async fn before_two(question: Question) -> (SocketAddr, [Seen; 2]) {
    let (first, first_seen) = fake(move |peer| ask_twice(peer, question)).await;
    let (second, second_seen) = fake(move |peer| ask_twice(peer, question)).await;
    let text = format!("replicas = ['{first}']\npolicy = 'round-robin'\n");
    let config = configured(&text);
    let nodes = vec![member(1, first), member(2, second)];
    let members = Members::of(&config, Arc::new(Cluster { nodes, ..Cluster::default() }));
    let (_, view) = channel();
    let seed = DispatcherSeed { clients: 1, seed: 1, can_ask: false };
    let route =
        Route::new((&config.0, &config.1), (limits(), None), view, Clock::start(), seed).unwrap();
    let (sender, members) = watch::channel(Arc::new(members));
    let follow = Rc::clone(&route).follow(members);
    tokio::task::spawn_local(async move {
        follow.await;
        drop(sender);
    });
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.address().unwrap();
    let settings = Rc::new(FrontSettings::new("east"));
    let never = StopSignal::never();
    tokio::task::spawn_local(serve(listener, settings, route, Rc::default(), never));
    (address, [first_seen, second_seen])
}

async fn say<S: AsyncRead + AsyncWrite + Unpin>(client: &mut Client<S>, token: &str) -> Envelope {
    let mut body = BytesMut::new();
    AuthResponse { token: Some(token.as_bytes()) }.write(&mut body);
    client.ask(Envelope::new(Version::V5, 1, Opcode::AuthResponse, body.freeze())).await
}

async fn begin(address: SocketAddr) -> Client<TcpStream> {
    let mut client = Client::new(TcpStream::connect(address).await.unwrap(), Version::V5, 1);
    assert_eq!(client.startup(None).await.opcode, Opcode::Authenticate);
    client
}

fn asked(seen: &Seen) -> usize {
    seen.borrow().iter().filter(|request| request.opcode == Opcode::Query).count()
}

#[test]
fn a_login_of_two_messages_is_passed_to_one_node_and_replayed_at_all() {
    run(async {
        let (address, seen) = before_two(|| "password?".to_owned()).await;
        let mut client = begin(address).await;
        for (password, outcome) in [("guess", Opcode::Error), ("s3cret", Opcode::AuthSuccess)] {
            let reply = say(&mut client, "ann").await;
            assert_eq!(
                (reply.opcode, &reply.body[4..]),
                (Opcode::AuthChallenge, &b"password?"[..])
            );
            assert_eq!(say(&mut client, password).await.opcode, outcome);
            if outcome == Opcode::Error {
                client = begin(address).await; // this node takes one password only
            }
        }
        for stream in 1..20 {
            let text = "SELECT * FROM k.t WHERE k = 1";
            let reply = client.ask(query(Version::V5, stream, text)).await;
            assert_eq!(reply.opcode, Opcode::Result, "{:?}", reply.body);
        }
        let counts = seen.each_ref().map(asked);
        assert!(counts[0] > 0 && counts[1] > 0, "both were asked: {counts:?}");
        let reported = seen[0].borrow();
        let reported = reported.iter().filter(|request| request.opcode == Opcode::AuthResponse);
        assert!(reported.count() >= 2, "logged in by replay");
    });
}

#[test]
fn a_login_that_is_another_on_each_connection_is_refused_at_once_with_the_reason() {
    run(async {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let nonce = || COUNT.fetch_add(1, Ordering::Relaxed).to_string();
        let (address, seen) = before_two(nonce).await;
        let mut client = begin(address).await;
        assert_eq!(say(&mut client, "ann").await.opcode, Opcode::AuthChallenge);
        let reply = say(&mut client, "s3cret").await;
        let (code, words) = error_in(&reply);
        assert_eq!(code, ErrorCode::BadCredentials);
        assert!(words.contains("good for one connection") && words.contains("Some"), "{words}");
        assert_eq!(client.next().await, None, "that was all");
        assert_eq!(seen.each_ref().map(asked), [0, 0]);
    });
}
