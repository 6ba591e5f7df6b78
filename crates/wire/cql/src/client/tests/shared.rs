//! Requests that share a connection.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::codec::Compression;
use crate::request::{AuthResponse, Query, Startup};
use crate::{ErrorCode, Flags, Opcode, Version};
use bytes::Bytes;
use evenkeel_core::Rng;
use evenkeel_testkit::wait::until;

use super::super::testing::fake::{Peer, dialect, fake, limits, node, spawn, tag, tagged};
use super::super::testing::run;
use super::super::{Challenge, Dialect, Login, NodeLimits, SendErrorKind};

#[test]
fn answers_in_any_order_find_those_who_asked() {
    for (version, compression) in [
        (Version::V4, None),
        (Version::V4, Some(Compression::Snappy)),
        (Version::V5, None),
        (Version::V5, Some(Compression::Lz4)),
    ] {
        run(async move {
            let (address, seen) = fake(|mut peer| async move {
                let (mut rng, mut held) = (Rng::seeded(7), Vec::new());
                while let Some(request) = peer.work().await {
                    held.push(request);
                    if held.len() == 16 {
                        rng.shuffle(&mut held);
                        for request in held.drain(..) {
                            peer.answer(&request, Opcode::Result, &request.body).await;
                        }
                    }
                }
            })
            .await;
            let limits = NodeLimits { streams_max: 64, compression, ..limits() };
            let node = node(address, limits);
            // Some bodies are longer than a segment of v5.
            let sizes = [0, 100, 5_000, 300_000];
            let asks =
                (0..64).map(|n| spawn(&node, &dialect(version), tagged(n, sizes[n as usize % 4])));
            for (n, ask) in asks.collect::<Vec<_>>().into_iter().enumerate() {
                let answer = ask.await.unwrap().unwrap();
                assert_eq!(answer.body, tagged(n as u64, sizes[n % 4]).body);
                assert_eq!((answer.opcode, answer.flags), (Opcode::Result, Flags::NONE));
            }
            assert_eq!((node.connections(), node.in_flight(), node.orphans()), (1, 0, 0));
            let seen = seen.borrow();
            let startup = Startup::read(&seen[0].body).unwrap();
            assert_eq!(startup.option("DRIVER_NAME"), Some("Evenkeel"));
            assert_eq!(startup.option("THROW_ON_OVERLOAD"), Some("1"));
            assert_eq!(startup.compression(version), Ok(compression));
            assert_eq!(startup.option("EVENKEEL_FEEDBACK"), None, "nobody asked for reports");
        });
    }
}

#[test]
fn a_keyspace_is_used_letter_by_letter_and_connections_are_not_shared_across_it() {
    run(async {
        let (address, seen) = fake(Peer::echo).await;
        let node = node(address, limits());
        let in_keyspace = |name: &str| dialect(Version::V4).in_keyspace(Some(Arc::from(name)));
        node.ask(&in_keyspace("Say \"k\""), tagged(1, 0)).await.unwrap();
        node.ask(&in_keyspace("other"), tagged(2, 0)).await.unwrap();
        node.ask(&in_keyspace("other"), tagged(3, 0)).await.unwrap();
        assert_eq!(node.connections(), 2);
        let seen = seen.borrow();
        let is_query = |request: &&crate::Envelope| request.opcode == Opcode::Query;
        let texts: Vec<&str> = seen
            .iter()
            .filter(is_query)
            .filter_map(|request| Query::read(&request.body, Version::V4).ok())
            .map(|query| query.text)
            .filter(|text| !text.is_empty())
            .collect();
        assert_eq!(texts, ["USE \"Say \"\"k\"\"\"", "USE \"other\""]);
    });
}

#[test]
fn a_login_is_replayed_and_a_refused_one_is_said_in_the_nodes_words() {
    run(async {
        let (address, seen) = fake(|mut peer| async move {
            let startup = peer.next().await.unwrap();
            peer.started(&startup, Opcode::Authenticate, b"\0\x04Pass").await;
            let login = peer.next().await.unwrap();
            let token = AuthResponse::read(&login.body).unwrap().token.unwrap().to_vec();
            if token != b"\0ann\0right" {
                return peer.error(&login, ErrorCode::BadCredentials, &[]).await;
            }
            peer.answer(&login, Opcode::AuthSuccess, &[255; 4]).await;
            peer.echo().await;
        })
        .await;
        let node = node(address, limits());
        let as_ann = |password| Dialect {
            login: Some(Arc::new(Login::plain("ann", password))),
            ..dialect(Version::V5)
        };
        node.ask(&as_ann("right"), tagged(1, 0)).await.unwrap();
        let error = node.ask(&as_ann("wrong"), tagged(2, 0)).await.unwrap_err();
        assert_eq!((error.kind(), error.was_sent()), (SendErrorKind::Authentication, false));
        let answer = error.answer().unwrap();
        assert_eq!((answer.opcode, &answer.body[..4]), (Opcode::Error, &[0, 0, 1, 0][..]));
        let error = node.ask(&dialect(Version::V5), tagged(3, 0)).await.unwrap_err();
        assert_eq!((error.kind(), error.was_sent()), (SendErrorKind::Authentication, false));
        assert!(error.to_string().contains("Pass"), "{error}");
        let asked: Vec<u64> = seen
            .borrow()
            .iter()
            .filter(|request| request.opcode == Opcode::Query)
            .map(|request| tag(&request.body))
            .collect();
        assert_eq!(asked, [1]);
        assert_eq!((node.connections(), node.counts().opened, node.counts().failed), (1, 1, 2));
    });
}

#[test]
fn a_login_of_several_messages_is_replayed_as_far_as_the_same_is_asked() {
    run(async {
        // Asks as often as there are questions, the last of which a connection may have its own of.
        for (questions, is_same) in [
            (vec!["start"], true),
            (vec!["start", "more"], true),
            (vec!["start", "other"], false),
            (vec!["start", "more", "again"], false),
            (vec![], true),
        ] {
            let (address, seen) = fake(move |mut peer| {
                let questions = questions.clone();
                async move {
                    let startup = peer.next().await.unwrap();
                    peer.started(&startup, Opcode::Authenticate, b"\0\x04Some").await;
                    for question in questions {
                        let Some(said) = peer.next().await else { return };
                        let body = [&[0, 0, 0, question.len() as u8], question.as_bytes()];
                        peer.answer(&said, Opcode::AuthChallenge, &body.concat()).await;
                    }
                    let Some(said) = peer.next().await else { return };
                    peer.answer(&said, Opcode::AuthSuccess, &[255; 4]).await;
                    peer.echo().await;
                }
            })
            .await;
            let challenge = |(question, answer): (&str, &str)| Challenge {
                question: question.to_owned().into(),
                answer: answer.to_owned().into(),
            };
            let further = [("start", "first"), ("more", "second")].map(challenge).to_vec();
            let login = Arc::new(Login { further, ..Login::plain("ann", "right") });
            let as_ann = Dialect { login: Some(login), ..dialect(Version::V5) };
            let answered = node(address, limits()).ask(&as_ann, tagged(1, 0)).await;
            assert_eq!(answered.is_ok(), is_same, "{answered:?}");
            if let Err(error) = answered {
                assert_eq!(error.kind(), SendErrorKind::Authentication, "{error}");
                assert!(!error.was_sent() && error.to_string().contains("Some"), "{error}");
            }
            let said = seen.borrow();
            let said = said.iter().filter(|said| said.opcode == Opcode::AuthResponse);
            let said = said.map(|said| AuthResponse::read(&said.body).unwrap().token.unwrap());
            let script: [&[u8]; 3] = [b"\0ann\0right", b"first", b"second"];
            assert!(said.zip(script).all(|(said, script)| said == script));
        }
    });
}

#[test]
fn a_conversation_passes_on_what_a_client_says_but_for_its_compression() {
    run(async {
        let (address, seen) = fake(|mut peer| async move {
            let options = peer.next().await.unwrap();
            peer.answer(&options, Opcode::Supported, b"\0\0").await;
            let startup = peer.next().await.unwrap();
            peer.started(&startup, Opcode::Authenticate, b"\0\x04Pass").await;
            let login = peer.next().await.unwrap();
            peer.answer(&login, Opcode::AuthSuccess, b"welcome").await;
        })
        .await;
        let node = node(address, limits());
        let mut talk = node.converse(Version::V5).await.unwrap();
        assert_eq!((node.conversations(), node.connections()), (1, 0));
        let mut body = Vec::new();
        let options = vec![("CQL_VERSION", "3.4.5"), ("COMPRESSION", "lz4"), ("DRIVER_NAME", "x")];
        Startup { options }.write(&mut body);
        let mut answers = Vec::new();
        for (opcode, body) in [
            (Opcode::Options, Bytes::new()),
            (Opcode::Startup, Bytes::from(body)),
            (Opcode::AuthResponse, Bytes::from_static(b"\0\0\0\x02me")),
        ] {
            let answer = talk.ask(opcode, Flags::NONE, body).await.unwrap();
            answers.push((answer.opcode, answer.body));
        }
        let expected: [(Opcode, &[u8]); 3] = [
            (Opcode::Supported, b"\0\0"),
            (Opcode::Authenticate, b"\0\x04Pass"),
            (Opcode::AuthSuccess, b"welcome"),
        ];
        assert_eq!(answers, expected.map(|(opcode, body)| (opcode, Bytes::from_static(body))));
        let startup = seen.borrow()[1].clone();
        let options = Startup::read(&startup.body).unwrap().options;
        assert_eq!(options, [("CQL_VERSION", "3.4.5"), ("DRIVER_NAME", "x")]);
        let limits = NodeLimits { conversations_max: 1, ..limits() };
        let full = super::super::testing::fake::node(address, limits);
        let first = full.converse(Version::V4).await.unwrap();
        let error = full.converse(Version::V4).await.unwrap_err();
        assert_eq!(error.kind(), SendErrorKind::Busy, "{error}");
        drop((talk, first));
        assert_eq!((node.conversations(), full.conversations()), (0, 0));
    });
}

#[test]
fn connections_end_when_the_node_is_dropped_and_when_nobody_uses_them() {
    run(async {
        let ended = Rc::new(std::cell::Cell::new(0));
        let count = Rc::clone(&ended);
        let (address, _) = fake(move |peer| {
            let count = Rc::clone(&count);
            async move {
                peer.echo().await;
                count.set(count.get() + 1);
            }
        })
        .await;
        let dropped = node(address, limits());
        dropped.ask(&dialect(Version::V4), tagged(1, 0)).await.unwrap();
        drop(dropped);
        until("it ends", || ended.get() == 1).await;
        let idle = NodeLimits { idle: Duration::from_millis(40), ..limits() };
        let unused = node(address, idle);
        unused.ask(&dialect(Version::V4), tagged(1, 0)).await.unwrap();
        assert_eq!(unused.connections(), 1);
        until("it ends unused", || (ended.get(), unused.connections()) == (2, 0)).await;
        unused.ask(&dialect(Version::V4), tagged(2, 0)).await.unwrap();
    });
}
