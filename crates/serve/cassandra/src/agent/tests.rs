//! An agent between a client and a fake node.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use evenkeel_cql::codec::{Compression, Encoder};
use evenkeel_cql::request::Startup;
use evenkeel_cql::{Envelope, Opcode, Version};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use super::{NodeAgent, NodeAgentSettings};
use evenkeel_cql::client::testing::fake::{Peer, dialect, fake, limits, node, spawn, tag, tagged};
use evenkeel_cql::client::testing::run;
use evenkeel_cql::client::testing::tls::{Certificate, ENDS};
use evenkeel_cql::client::{FeedbackSource, NodeLimits};
use evenkeel_runtime::accept::{Stop, StopSignal};
use evenkeel_runtime::clock::Clock;
use evenkeel_testkit::wait::until;

/// An agent before this node, and where it listens.
fn agent(of: SocketAddr, concurrency: Option<u32>) -> (SocketAddr, Rc<NodeAgent>, AbortHandle) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let settings = NodeAgentSettings { concurrency, ..NodeAgentSettings::new(of) };
    let agent = NodeAgent::new(settings, Clock::start());
    let serving = Rc::clone(&agent).serve(listener.into(), StopSignal::never());
    let task = tokio::task::spawn_local(async move { serving.await.unwrap() });
    (address, agent, task.abort_handle())
}

#[test]
fn reports_come_with_answers_to_those_who_asked_and_no_others() {
    for (version, compression) in [
        (Version::V4, None),
        (Version::V4, Some(Compression::Lz4)),
        (Version::V5, None),
        (Version::V5, Some(Compression::Lz4)),
    ] {
        run(async move {
            let (behind, seen) = fake(|mut peer| async move {
                while let Some(request) = peer.work().await {
                    tokio::time::sleep(Duration::from_millis(3)).await;
                    peer.answer(&request, Opcode::Result, &request.body).await;
                }
            })
            .await;
            let (address, agent, _) = agent(behind, Some(4));
            for asks_for_feedback in [true, false] {
                let limits = NodeLimits { compression, asks_for_feedback, ..limits() };
                let node = node(address, limits);
                for n in 0..20 {
                    let ask = tagged(n, [8, 3_000, 200_000][n as usize % 3]);
                    let body = ask.body.clone();
                    let answer = node.ask(&dialect(version), ask).await.unwrap();
                    assert_eq!(answer.body, body);
                    assert_eq!(answer.feedback.is_some(), asks_for_feedback);
                    if let Some(report) = answer.feedback {
                        assert_eq!((report.queue_length, report.in_service), (0, 0));
                        assert_eq!(report.concurrency, Some(4));
                        assert!(
                            report.service_time >= Some(Duration::from_millis(3)),
                            "{report:?}"
                        );
                    }
                }
                let source =
                    if asks_for_feedback { FeedbackSource::Agent } else { FeedbackSource::None };
                assert_eq!(node.feedback().0, source);
            }
            assert_eq!(agent.state().in_service, 0);
            let seen = seen.borrow();
            let startups = seen.iter().filter(|request| request.opcode == Opcode::Startup);
            for startup in startups {
                let startup = Startup::read(&startup.body).unwrap();
                assert_eq!(startup.option("EVENKEEL_FEEDBACK"), None, "the node sees it never");
                assert_eq!(startup.option("DRIVER_NAME"), Some("Evenkeel"));
            }
        });
    }
}

#[test]
fn all_clients_are_counted_and_those_who_leave_take_their_requests_along() {
    run(async {
        let held = Rc::new(RefCell::new(0));
        let count = Rc::clone(&held);
        let (behind, _) = fake(move |mut peer| {
            let count = Rc::clone(&count);
            async move {
                while let Some(request) = peer.work().await {
                    *count.borrow_mut() += 1;
                    // All but this one stay without an answer.
                    if tag(&request.body) == 99 {
                        peer.answer(&request, Opcode::Result, &request.body).await;
                    }
                }
            }
        })
        .await;
        let (address, agent, _) = agent(behind, Some(5));
        let plain = node(address, limits());
        let asking = node(address, NodeLimits { asks_for_feedback: true, ..limits() });
        let mut leaving = Vec::new();
        for n in 0..4 {
            leaving.push(spawn(&plain, &dialect(Version::V5), tagged(n, 0)));
            spawn(&asking, &dialect(Version::V4), tagged(n, 0));
        }
        let load = || (agent.state().waiting, agent.state().in_service);
        until("all are there", || (*held.borrow(), load()) == (8, (3, 5))).await;
        let answer = asking.ask(&dialect(Version::V4), tagged(99, 0)).await.unwrap();
        let report = answer.feedback.unwrap();
        assert_eq!((report.queue_length, report.in_service), (3, 5), "after this one has left");
        leaving.iter().for_each(tokio::task::JoinHandle::abort);
        drop(plain);
        let raw = TcpStream::connect(address).await.unwrap();
        drop(raw);
        until("the requests of those who left are gone", || load() == (0, 4)).await;
    });
}

/// Passes bytes through a fake that records what came and says what it likes.
async fn raw(reply: &'static [u8]) -> (SocketAddr, Rc<RefCell<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let came = Rc::new(RefCell::new(Vec::new()));
    let record = Rc::clone(&came);
    tokio::task::spawn_local(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut bytes = [0; 4_096];
        loop {
            let count = stream.read(&mut bytes).await.unwrap_or(0);
            if count == 0 {
                return;
            }
            record.borrow_mut().extend_from_slice(&bytes[..count]);
            stream.write_all(reply).await.unwrap();
            if bytes[..count].ends_with(b"bye") {
                return;
            }
        }
    });
    (address, came)
}

#[test]
fn what_is_not_understood_passes_byte_for_byte() {
    let v3 = b"\x03\0\0\0\x05\0\0\0\0";
    let garbage = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n";
    let long = b"\x04\0\0\0\x01\x7F\xFF\xFF\xFF and so on";
    for sent in [&v3[..], garbage, long] {
        run(async move {
            let (behind, came) = raw(b"\x83 whatever it says \x84\x85").await;
            let (address, ..) = agent(behind, None);
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_all(sent).await.unwrap();
            let mut bytes = [0; 21];
            client.read_exact(&mut bytes).await.unwrap();
            assert_eq!(&bytes, b"\x83 whatever it says \x84\x85");
            assert_eq!(&came.borrow()[..], sent);
        });
    }
}

#[test]
fn frames_damaged_on_the_way_pass_too_and_are_for_the_client_to_find() {
    run(async {
        let (behind, _) = fake(|mut peer| async move {
            while let Some(request) = peer.work().await {
                let mut bytes = peer.encoded(&request, Opcode::Result, &[5; 50]).to_vec();
                bytes[20] ^= 1;
                peer.stream.write_all(&bytes).await.unwrap();
            }
        })
        .await;
        let (address, agent, _) = agent(behind, None);
        let node = node(address, limits());
        let error = node.ask(&dialect(Version::V5), tagged(1, 0)).await.unwrap_err();
        assert!(error.to_string().contains("checksum"), "{error}");
        until("it is given up", || agent.state().in_service == 0).await;
    });
}

#[test]
fn bytes_cut_anywhere_arrive_whole() {
    run(async {
        let (behind, _) = fake(Peer::echo).await;
        let (address, ..) = agent(behind, None);
        let mut sent = BytesMut::new();
        let mut encoder = Encoder::new();
        let mut body = Vec::new();
        Startup { options: vec![Startup::CQL_VERSION] }.write(&mut body);
        encoder
            .encode(&Envelope::new(Version::V4, 0, Opcode::Options, Default::default()), &mut sent);
        encoder.encode(&Envelope::new(Version::V4, 0, Opcode::Startup, body.into()), &mut sent);
        let mut client = TcpStream::connect(address).await.unwrap();
        for byte in sent.iter() {
            client.write_all(&[*byte]).await.unwrap();
            tokio::task::yield_now().await;
        }
        // SUPPORTED without options, then READY.
        let mut came = [0; 9 + 2 + 9];
        client.read_exact(&mut came).await.unwrap();
        assert_eq!(&came[..11], b"\x84\0\0\0\x06\0\0\0\x02\0\0");
        assert_eq!(&came[11..], b"\x84\0\0\0\x02\0\0\0\0");
    });
}

/// An agent before this node, with TLS on either side.
fn agent_in_tls(of: SocketAddr, certificate: &Certificate) -> SocketAddr {
    let settings = NodeAgentSettings {
        client_tls: Some(certificate.of_server()),
        node_tls: Some(certificate.of_nodes()),
        ..NodeAgentSettings::new(of)
    };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let agent = NodeAgent::new(settings, Clock::start());
    tokio::task::spawn_local(agent.serve(listener.into(), StopSignal::never()));
    address
}

#[test]
fn tls_of_either_version_is_spoken_on_either_side_and_ended_with_its_last_word() {
    for (versions, expected) in ENDS {
        run(async move {
            let certificate = Certificate::new();
            let reply = b"\x84\0\0\0\x06\0\0\0\x02\0\0";
            let (behind, came) = raw(reply).await;
            let (behind, mut agreed) = certificate.before(behind, versions).await;
            let address = agent_in_tls(behind, &certificate);
            let mut client = certificate.connect(address, versions).await.unwrap();
            assert_eq!(client.get_ref().1.protocol_version(), Some(expected));
            client.write_all(b"\x04\0\0\0\x05\0\0\0\0").await.unwrap();
            let mut bytes = [0; 11];
            client.read_exact(&mut bytes).await.unwrap();
            assert_eq!(&bytes, reply);
            assert_eq!(&came.borrow()[..], b"\x04\0\0\0\x05\0\0\0\0");
            assert_eq!(agreed.recv().await, Some(expected));
            // Bytes that no version begins with, after which this node leaves.
            client.write_all(b"bye").await.unwrap();
            client.read_exact(&mut bytes).await.unwrap();
            assert_eq!(client.read(&mut bytes).await.unwrap(), 0, "an end, and no break");
        });
    }
}

#[test]
fn a_client_that_is_told_to_leave_gets_its_answer_first() {
    run(async {
        let (behind, seen) = fake(|mut peer| async move {
            while let Some(request) = peer.work().await {
                tokio::time::sleep(Duration::from_millis(50)).await;
                peer.answer(&request, Opcode::Result, &request.body).await;
            }
        })
        .await;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let agent = NodeAgent::new(NodeAgentSettings::new(behind), Clock::start());
        let stop = Stop::new();
        let serving = tokio::task::spawn_local(agent.serve(listener.into(), stop.signal()));
        let (idle, busy) = (node(address, limits()), node(address, limits()));
        let dialect = dialect(Version::V5);
        idle.ask(&dialect, tagged(1, 8)).await.unwrap();
        let before = seen.borrow().len();
        let asking = spawn(&busy, &dialect, tagged(2, 200_000));
        until("it is under way", || seen.borrow().len() > before).await;
        stop.stop(Duration::from_secs(20)).await;
        assert_eq!(asking.await.unwrap().unwrap().body.len(), 200_000);
        serving.await.unwrap().unwrap();
    });
}
