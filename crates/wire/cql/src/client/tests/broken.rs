//! Nodes that break off, are silent or talk nonsense.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use crate::{Envelope, Opcode, Version};
use evenkeel_core::Rng;
use evenkeel_testkit::wait::until;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::super::testing::fake::{Peer, dialect, fake, limits, node, spawn, tag, tagged};
use super::super::testing::run;
use super::super::{NodeLimits, SendErrorKind};

/// What a node does with the first request on each connection, and what that is to whoever asked.
fn after_the_first<F: Future<Output = ()> + 'static>(
    version: Version,
    expected: SendErrorKind,
    words: &str,
    first: impl Fn(Peer, Envelope) -> F + Clone + 'static,
) {
    run(async move {
        let (address, _) = fake(move |mut peer| {
            let first = first.clone();
            async move {
                let Some(request) = peer.work().await else { return };
                first(peer, request).await;
            }
        })
        .await;
        let limits = NodeLimits { frame_bytes_max: 1 << 16, ..limits() };
        let node = node(address, limits);
        let error = node.ask(&dialect(version), tagged(1, 0)).await.unwrap_err();
        assert_eq!((error.kind(), error.was_sent()), (expected, true), "{error}");
        assert!(error.to_string().contains(words), "{error}, expected {words:?} in it");
        assert!(error.to_string().contains(&address.to_string()), "{error}");
        let left = || (node.connections(), node.in_flight(), node.orphans());
        until("nothing is left", || left() == (0, 0, 0)).await;
    });
}

#[test]
fn an_answer_that_breaks_off_is_none() {
    for version in [Version::V4, Version::V5] {
        for part in [1, 9, 12, 40] {
            let half = move |mut peer: Peer, request: Envelope| async move {
                let bytes = peer.encoded(&request, Opcode::Result, &[7; 100]);
                peer.stream.write_all(&bytes[..part]).await.unwrap();
            };
            after_the_first(version, SendErrorKind::Reset, "closed", half);
        }
    }
}

#[test]
fn changed_bytes_of_v5_are_nonsense() {
    for place in [0, 7, 20, 60] {
        after_the_first(
            Version::V5,
            SendErrorKind::Protocol,
            "checksum",
            move |mut peer, request| async move {
                let mut bytes = peer.encoded(&request, Opcode::Result, &[7; 100]).to_vec();
                bytes[place] ^= 0x10;
                peer.stream.write_all(&bytes).await.unwrap();
                peer.next().await;
            },
        );
    }
}

#[test]
fn a_frame_beyond_all_bounds_is_not_waited_for() {
    after_the_first(
        Version::V4,
        SendErrorKind::Protocol,
        "65536",
        |mut peer, request| async move {
            let [s0, s1] = request.stream.to_be_bytes();
            let head = [0x84, 0, s0, s1, Opcode::Result.number(), 0x0F, 0xFF, 0xFF, 0xFF];
            peer.stream.write_all(&head).await.unwrap();
            peer.next().await;
        },
    );
}

#[test]
fn an_answer_to_nothing_ends_the_connection() {
    for stream in [1, 500, -7] {
        after_the_first(Version::V4, SendErrorKind::Protocol, "nothing was asked", {
            move |mut peer, request| async move {
                let other = Envelope { stream, ..request };
                peer.answer(&other, Opcode::Result, &[]).await;
                peer.next().await;
            }
        });
    }
}

#[test]
fn a_node_that_says_nothing_any_more_is_told_from_a_slow_request() {
    run(async {
        let (address, _) = fake(|mut peer| async move {
            let slow = peer.work().await.unwrap();
            let fast = peer.work().await.unwrap();
            peer.answer(&fast, Opcode::Result, b"fast").await;
            // Heartbeats are answered while the slow one takes its time.
            let _ = tokio::time::timeout(Duration::from_millis(600), peer.work()).await;
            peer.answer(&slow, Opcode::Result, b"slow").await;
            // From here on nothing is.
            while peer.next().await.is_some() {}
        })
        .await;
        let (heartbeat, silence_max) = (Duration::from_millis(40), Duration::from_millis(200));
        let limits = NodeLimits { heartbeat, silence_max, ..limits() };
        let node = node(address, limits);
        let slow = spawn(&node, &dialect(Version::V5), tagged(1, 0));
        until("it is under way", || node.in_flight() == 1).await;
        let fast = node.ask(&dialect(Version::V5), tagged(2, 0)).await.unwrap();
        assert_eq!(&fast.body[..], b"fast");
        assert_eq!(&slow.await.unwrap().unwrap().body[..], b"slow");
        assert!(node.counts().heartbeats >= 2, "{:?}", node.counts());
        let began = std::time::Instant::now();
        let error = node.ask(&dialect(Version::V5), tagged(3, 0)).await.unwrap_err();
        assert_eq!((error.kind(), error.was_sent()), (SendErrorKind::Silent, true), "{error}");
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    });
}

#[test]
fn a_connection_that_cannot_be_used_fails_all_who_wait_unsent() {
    run(async {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let refusing = node(free, limits());
        let error = refusing.ask(&dialect(Version::V4), tagged(1, 0)).await.unwrap_err();
        assert_eq!((error.kind(), error.was_sent()), (SendErrorKind::Connect, false), "{error}");
        let (address, _) =
            fake(|mut peer| async move { while peer.next().await.is_some() {} }).await;
        let mute = node(address, NodeLimits { connect: Duration::from_millis(50), ..limits() });
        let asks: Vec<_> =
            (0..9).map(|n| spawn(&mute, &dialect(Version::V4), tagged(n, 0))).collect();
        for ask in asks {
            let error = ask.await.unwrap().unwrap_err();
            assert_eq!(error.kind(), SendErrorKind::ConnectTimedOut, "{error}");
            assert!(!error.was_sent());
        }
        assert_eq!((mute.connections(), mute.counts().failed), (0, 1));
    });
}

/// The tags of which all eight bytes are among these; bodies have no other small numbers in them.
fn tags_in(bytes: &[u8], count: usize) -> BTreeSet<u64> {
    let numbers = bytes.windows(8).filter(|window| window[..4] == [0; 4]).map(tag);
    numbers.filter(|&number| number >= 1_000 && number < 1_000 + count as u64).collect()
}

#[test]
fn what_was_not_sent_was_seen_by_nobody_wherever_the_connection_is_cut() {
    let (mut unsent_in_all, mut sent_in_all) = (0, 0);
    for seed in 0..16_u64 {
        let version = if seed % 2 == 0 { Version::V4 } else { Version::V5 };
        let counts = Rc::new(RefCell::new((0, 0)));
        let result = Rc::clone(&counts);
        run(async move {
            let mut rng = Rng::seeded(seed);
            // More than the sockets' own buffers hold, so that some bytes cannot leave.
            let sizes: Vec<usize> = (0..60).map(|_| 8 + rng.below(300_000)).collect();
            let total: usize = sizes.iter().sum();
            let cut = rng.below(total);
            let seen = Rc::new(RefCell::new(Vec::new()));
            let record = Rc::clone(&seen);
            let (address, _) = fake(move |mut peer| {
                let record = Rc::clone(&record);
                async move {
                    let startup = peer.next().await.unwrap();
                    peer.ready(&startup).await;
                    let mut bytes = vec![0; 1 << 16];
                    while record.borrow().len() < cut {
                        let left = (cut - record.borrow().len()).min(bytes.len());
                        match peer.stream.read(&mut bytes[..left]).await {
                            Ok(0) | Err(_) => break,
                            Ok(count) => record.borrow_mut().extend_from_slice(&bytes[..count]),
                        }
                    }
                }
            })
            .await;
            let limits = NodeLimits { streams_max: 100, connections_max: 1, ..limits() };
            let node = node(address, limits);
            let asks: Vec<_> = sizes
                .iter()
                .enumerate()
                .map(|(n, &size)| spawn(&node, &dialect(version), tagged(1_000 + n as u64, size)))
                .collect();
            let mut unsent = BTreeSet::new();
            for (n, ask) in asks.into_iter().enumerate() {
                let error = ask.await.unwrap().unwrap_err();
                if error.was_sent() {
                    result.borrow_mut().1 += 1;
                } else {
                    unsent.insert(1_000 + n as u64);
                    result.borrow_mut().0 += 1;
                }
            }
            let seen = tags_in(&seen.borrow(), sizes.len());
            assert!(
                seen.is_disjoint(&unsent),
                "seed {seed}: {seen:?} were seen, {unsent:?} unsent"
            );
            assert_eq!((node.connections(), node.in_flight(), node.orphans()), (0, 0, 0));
        });
        let (unsent, sent) = *counts.borrow();
        unsent_in_all += unsent;
        sent_in_all += sent;
    }
    assert!(unsent_in_all > 0 && sent_in_all > 0, "{unsent_in_all} unsent, {sent_in_all} sent");
}

/// Answers what it likes, when it likes, and breaks off somewhere.
async fn moody(mut peer: Peer, seed: u64, seen: Rc<RefCell<BTreeSet<u64>>>) {
    let mut rng = Rng::stream(seed, &peer.number.to_string());
    let mut held = Vec::new();
    let patience = 5 + rng.below(60);
    for _ in 0..patience {
        let next = tokio::time::timeout(Duration::from_millis(2), peer.work()).await;
        match next {
            Ok(None) => return,
            Ok(Some(request)) => {
                seen.borrow_mut().insert(tag(&request.body));
                held.push(request);
            }
            Err(_) => {}
        }
        while !held.is_empty() && rng.below(3) > 0 {
            let request = held.swap_remove(rng.below(held.len()));
            peer.answer(&request, Opcode::Result, &request.body).await;
        }
    }
    if let Some(request) = held.pop() {
        let bytes = peer.encoded(&request, Opcode::Result, &request.body);
        let part = rng.below(bytes.len());
        let _ = peer.stream.write_all(&bytes[..part]).await;
    }
}

#[test]
fn nobody_gets_anothers_answer_and_nothing_is_left_over_whatever_happens() {
    let (mut answered, mut failed) = (0, 0);
    for seed in 0..30_u64 {
        let counts = Rc::new(RefCell::new((0, 0)));
        let result = Rc::clone(&counts);
        run(async move {
            let seen = Rc::new(RefCell::new(BTreeSet::new()));
            let record = Rc::clone(&seen);
            let (address, _) = fake(move |peer| moody(peer, seed, Rc::clone(&record))).await;
            let limits = NodeLimits { streams_max: 4, orphans_max: 3, ..limits() };
            let node = node(address, limits);
            let mut rng = Rng::stream(seed, "asks");
            let version = if seed % 2 == 0 { Version::V4 } else { Version::V5 };
            let mut asks = Vec::new();
            for n in 0..40 {
                let ask = spawn(&node, &dialect(version), tagged(n, 8 + rng.below(2_000)));
                if rng.below(4) == 0 {
                    let patience = Duration::from_micros(rng.below(3_000) as u64);
                    tokio::time::sleep(patience).await;
                    ask.abort();
                }
                asks.push((n, ask));
            }
            for (n, ask) in asks {
                match ask.await {
                    Ok(Ok(answer)) => {
                        assert_eq!(tag(&answer.body), n, "seed {seed}: another's answer");
                        result.borrow_mut().0 += 1;
                    }
                    Ok(Err(error)) => {
                        let is_seen = seen.borrow().contains(&n);
                        assert!(error.was_sent() || !is_seen, "seed {seed}: {n} was seen: {error}");
                        result.borrow_mut().1 += 1;
                    }
                    Err(aborted) => assert!(aborted.is_cancelled(), "{aborted}"),
                }
            }
            assert_eq!(node.in_flight(), 0, "seed {seed}");
            assert!(node.connections() <= 2, "seed {seed}: {node:?}");
            until(&format!("nothing is left over after {seed}"), || node.orphans() == 0).await;
        });
        answered += counts.borrow().0;
        failed += counts.borrow().1;
    }
    assert!(answered > 100 && failed > 10, "{answered} answered, {failed} failed");
}
