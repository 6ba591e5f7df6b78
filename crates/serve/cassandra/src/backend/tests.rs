//! What becomes of a request when nodes fail it, each in its own manner.

use std::cell::RefCell;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::Poll;

use evenkeel_core::request::Replay;
use evenkeel_core::request::ring::Consistency;
use evenkeel_cql::client::Ask;
use evenkeel_cql::client::testing::fake::{Peer, Seen, dialect, fake, tagged};
use evenkeel_cql::client::testing::run;
use evenkeel_cql::response::Error;
use evenkeel_cql::statement::{Idempotence, Why};
use evenkeel_cql::{Envelope, ErrorCode, Opcode, payload};
use evenkeel_proxy::requests::log::RequestLog;
use evenkeel_proxy::requests::record::{Remarks, Try};
use evenkeel_proxy::requests::recorder::Sinks;
use evenkeel_proxy::requests::traces::{Facts, Sampling, open};
use tokio::io::AsyncWriteExt as _;

use super::*;
use crate::front::{Asked, Conversation as _};
use crate::testing::{member, route_before, route_to};

/// How a node answers requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Well,
    Says(ErrorCode),
    Hangs,
    BreaksOff,
    TalksNonsense,
    /// Nobody listens there.
    IsDead,
}

const TIMEOUTS: &str = "policy = 'round-robin'\n[timeouts]\nattempt = '200ms'\ntotal = '2s'";

async fn node(manner: Manner) -> (SocketAddr, Seen) {
    if manner == Manner::IsDead {
        let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        return (closed.local_addr().unwrap(), Seen::default());
    }
    fake(move |peer| serve(peer, manner)).await
}

async fn serve(mut peer: Peer, manner: Manner) {
    while let Some(request) = peer.work().await {
        match manner {
            Manner::Well => peer.answer(&request, Opcode::Result, &[0, 0, 0, 1]).await,
            Manner::Says(code) => peer.error(&request, code, &[0; 16]).await,
            Manner::Hangs => {}
            Manner::BreaksOff | Manner::IsDead => return,
            Manner::TalksNonsense => {
                let _ = peer.stream.write_all(&[0x55; 64]).await;
            }
        }
    }
}

/// Two nodes with these manners, and what they are told.
async fn route(manners: [Manner; 2]) -> (Rc<Route>, [Seen; 2]) {
    let [first, second] = [node(manners[0]).await, node(manners[1]).await];
    let nodes = vec![member(1, first.0, "east"), member(2, second.0, "east")];
    (route_to(nodes, TIMEOUTS, &[]).0, [first.1, second.1])
}

fn request(replay: Replay) -> Request {
    let idempotence = match replay {
        Replay::IfUnsent => Idempotence::No(Why::Counter),
        Replay::AfterFailure | Replay::Always => Idempotence::Yes,
    };
    let what = Asked {
        keyspace: None,
        token: None,
        consistency: Consistency::One,
        serial: None,
        is_conditional: false,
        is_write: true,
        idempotence,
        replay,
    };
    Request { dialect: dialect(Version::V4), ask: tagged(7, 8), what }
}

/// The code and words of an error; `None` of another answer.
fn error_of(answer: &Answer) -> Option<(ErrorCode, String)> {
    let error = || Error::read(&answer.body, Version::V4).unwrap();
    (answer.opcode == Opcode::Error).then(|| (error().code, error().message.to_owned()))
}

/// How often the request reached a node.
fn asked(seen: &Seen) -> usize {
    seen.borrow().iter().filter(|it| it.opcode == Opcode::Query).count()
}

const FAILURES: [Manner; 6] = [
    Manner::Says(ErrorCode::Overloaded),
    Manner::Says(ErrorCode::Bootstrapping),
    Manner::Hangs,
    Manner::BreaksOff,
    Manner::TalksNonsense,
    Manner::IsDead,
];

#[test]
fn what_one_node_fails_another_serves_if_it_may_be_sent_again() {
    for manner in FAILURES {
        run(async move {
            let (route, [bad, _]) = route([manner, Manner::Well]).await;
            for turn in 0..2 {
                let answer = Backend::ask(&route, request(Replay::Always)).await;
                assert_eq!(error_of(&answer), None, "{manner:?}, turn {turn}");
            }
            assert!(manner == Manner::IsDead || asked(&bad) > 0, "{manner:?}: was not asked");
        });
    }
}

#[test]
fn what_nobody_did_goes_on_and_what_may_be_done_does_not() {
    for (manner, is_sure) in [
        (Manner::IsDead, true),
        (Manner::Says(ErrorCode::Bootstrapping), true),
        (Manner::BreaksOff, false),
        (Manner::TalksNonsense, false),
    ] {
        run(async move {
            let (route, seen) = route([manner, Manner::Well]).await;
            let mut failed = 0;
            for turn in 0..2 {
                let answer = Backend::ask(&route, request(Replay::IfUnsent)).await;
                let Some((code, _)) = error_of(&answer) else { continue };
                assert!(!is_sure && code == ErrorCode::WriteTimeout, "{manner:?}, {turn}: {code}");
                failed += 1;
            }
            let [bad, good] = seen.each_ref().map(asked);
            assert_eq!(good + failed, 2, "{manner:?}: {bad} and {good}");
            assert!(is_sure || (bad == failed && failed > 0), "{manner:?}: {bad} and {good}");
        });
    }
}

#[test]
fn an_error_that_every_node_answers_is_the_nodes_own() {
    for code in [
        ErrorCode::Overloaded,
        ErrorCode::Bootstrapping,
        ErrorCode::ServerError,
        ErrorCode::Unavailable,
        ErrorCode::WriteTimeout,
    ] {
        for replay in [Replay::IfUnsent, Replay::Always] {
            run(async move {
                let (route, _) = route([Manner::Says(code); 2]).await;
                let answer = Backend::ask(&route, request(replay)).await;
                let own = (code, "the fake says no".to_owned());
                assert_eq!(error_of(&answer), Some(own), "{replay:?}");
            });
        }
    }
}

#[test]
fn a_client_is_let_in_by_another_data_centre_where_home_is_dead() {
    run(async {
        let [dead, away] = [node(Manner::IsDead).await.0, node(Manner::Well).await.0];
        let nodes = vec![member(1, dead, "east"), member(2, away, "west")];
        let (alone, _) = route_to(nodes.clone(), TIMEOUTS, &[]);
        Backend::greet(&alone, Version::V4).await.map(drop).expect_err("west is not its own");
        let (route, _) = route_to(nodes, TIMEOUTS, &["west"]);
        let mut greeting = Backend::greet(&route, Version::V4).await.unwrap();
        let supported = greeting.say(Opcode::Options, Default::default()).await.unwrap();
        assert_eq!(supported.opcode, Opcode::Supported);
    });
}

#[test]
fn a_client_that_comes_before_the_cluster_is_known_waits_for_it_and_no_longer_than_a_moment() {
    run(async {
        let nodes = vec![member(1, node(Manner::Well).await.0, "east")];
        let (route, _, members) = route_before(nodes.clone(), TIMEOUTS, &[]);
        let mut early = pin!(Backend::greet(&route, Version::V4));
        let first = poll_fn(|context| Poll::Ready(early.as_mut().poll(context).is_pending()));
        assert!(first.await, "nothing is known yet");
        route.adopt(members);
        let mut greeting = early.await.expect("the cluster is known");
        let supported = greeting.say(Opcode::Options, Default::default()).await.unwrap();
        assert_eq!(supported.opcode, Opcode::Supported);
        let (route, ..) = route_before(nodes, TIMEOUTS, &[]);
        let began = std::time::Instant::now();
        let refused = Backend::greet(&route, Version::V4).await.map(drop).expect_err("nobody told");
        assert_eq!(refused, route.nobody());
        assert!(began.elapsed() >= std::time::Duration::from_secs(2), "it waited for a moment");
    });
}

#[test]
fn a_request_is_part_of_the_trace_in_its_custom_payload_and_its_attempts_are_told() {
    run(async {
        let (route, _) = route([Manner::Says(ErrorCode::Overloaded), Manner::Well]).await;
        let writer = RequestLog::new(1).writer(0);
        let (traces, _control, mut ended) = open(Some(Sampling { sample: 0.0, slow: None }));
        let sinks = Sinks { traces: Some(traces), ..Sinks::default() };
        route.calls.record(0, &route.config, (Rc::new(RefCell::new(writer)), sinks));
        let trace = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128;
        let parent = format!("00-{trace:032x}-00f067aa0ba902b7-01");
        for turn in 0..2 {
            let mut asked = request(Replay::Always);
            asked.what.keyspace = Some("shop".into());
            let Ask { opcode, body, .. } = asked.ask.clone();
            let envelope = Envelope::new(Version::V4, 0, opcode, body);
            let envelope = payload::add(&envelope, "traceparent", parent.as_bytes()).unwrap();
            asked.ask = Ask { flags: envelope.flags, body: envelope.body, ..asked.ask };
            assert_eq!(error_of(&Backend::ask(&route, asked).await), None, "turn {turn}");
        }
        let told = [ended.try_recv().unwrap(), ended.try_recv().unwrap()];
        for request in &told {
            assert_eq!(request.record.trace_id, trace);
            assert_eq!(request.context.parent, Some(0x00f0_67aa_0ba9_02b7));
            assert_ne!(request.context.span, told[0].context.parent.unwrap());
            let Facts::Store(store) = &request.facts else { panic!("{request:?}") };
            assert_eq!((store.system, store.operation), ("cassandra", "QUERY"));
            assert_eq!((store.namespace.as_deref(), store.is_write), (Some("shop"), true));
            assert!(store.further.contains(&("cassandra.consistency.level", "one".to_owned())));
            let known = |it: &Try| request.replicas.iter().any(|(place, _)| *place == it.place);
            assert!(request.record.tries().iter().all(known), "{request:?}");
        }
        let attempts = told.iter().map(|it| it.record.attempts).max();
        assert_eq!(attempts, Some(2), "the node that is overloaded was asked, too");
        // Without a trace it begins one, of which nobody keeps anything.
        Backend::ask(&route, request(Replay::Always)).await;
        let next = ended.try_recv().ok();
        assert!(next.is_none_or(|it| it.record.remarks.has(Remarks::FAILED)));
    });
}
