//! Bounds on connections, streams, those who wait and those who gave up.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use crate::{Envelope, Opcode, Version};
use evenkeel_testkit::wait::until;
use tokio::sync::Notify;

use super::super::testing::fake::{Peer, dialect, fake, limits, node, spawn, tag, tagged, turn};
use super::super::testing::run;
use super::super::{NodeLimits, SendErrorKind};

/// Answers nothing until it is told to, then everything.
#[derive(Default)]
struct Gate {
    open: Notify,
    held: RefCell<Vec<(usize, Envelope)>>,
}

async fn gated(mut peer: Peer, gate: Rc<Gate>) {
    let mut held = Vec::new();
    loop {
        let next = {
            let mut opened = std::pin::pin!(gate.open.notified());
            let mut work = std::pin::pin!(peer.work());
            let first = std::future::poll_fn(|context| match work.as_mut().poll(context) {
                Poll::Ready(request) => Poll::Ready(Some(request)),
                Poll::Pending => opened.as_mut().poll(context).map(|()| None),
            });
            first.await
        };
        match next {
            Some(Some(request)) => {
                gate.held.borrow_mut().push((peer.number, request.clone()));
                held.push(request);
            }
            Some(None) => return,
            None => {
                for request in held.drain(..) {
                    peer.answer(&request, Opcode::Result, &request.body).await;
                }
            }
        }
    }
}

impl Gate {
    /// Waits until so many requests have come, whether they are still held or not; then lets all
    /// others that can go on do so.
    async fn held(&self, requests: usize) {
        until("requests come", || self.held.borrow().len() >= requests).await;
        turn().await;
        assert_eq!(self.held.borrow().len(), requests);
    }

    /// Lets go those that are held.
    fn let_go(&self) {
        self.open.notify_waiters();
    }
}

async fn start() -> (std::net::SocketAddr, Rc<Gate>) {
    let gate = Rc::new(Gate::default());
    let of_fake = Rc::clone(&gate);
    let (address, _) = fake(move |peer| gated(peer, Rc::clone(&of_fake))).await;
    (address, gate)
}

#[test]
fn connections_fill_then_requests_wait_in_order_then_they_are_refused() {
    run(async {
        let (address, gate) = start().await;
        let bounds = NodeLimits { connections_max: 2, streams_max: 2, waiting_max: 3, ..limits() };
        let node = node(address, bounds);
        let v4 = dialect(Version::V4);
        let mut asks = Vec::new();
        for n in 0..7 {
            asks.push(spawn(&node, &v4, tagged(n, 0)));
            gate.held((n as usize + 1).min(4)).await;
        }
        assert_eq!((node.connections(), node.in_flight()), (2, 4));
        let error = node.ask(&v4, tagged(99, 0)).await.unwrap_err();
        assert_eq!((error.kind(), error.was_sent()), (SendErrorKind::Busy, false), "{error}");
        // One that waits gives up: there is room for another.
        asks.remove(5).abort();
        turn().await;
        asks.push(spawn(&node, &v4, tagged(7, 0)));
        gate.held(4).await;
        gate.let_go();
        gate.held(7).await;
        gate.let_go();
        for ask in asks {
            ask.await.unwrap().unwrap();
        }
        let order: Vec<u64> = gate.held.borrow().iter().map(|(_, it)| tag(&it.body)).collect();
        assert_eq!(order[..4], [0, 1, 2, 3]);
        assert_eq!(order.len(), 7, "neither the refused one nor the one that gave up was sent");
        assert!(!order.contains(&5) && !order.contains(&99));
    });
}

#[test]
fn what_is_given_up_before_it_left_never_leaves_and_afterwards_its_stream_stays_taken() {
    run(async {
        let (address, gate) = start().await;
        let bounds = NodeLimits { connections_max: 1, streams_max: 3, ..limits() };
        let node = node(address, bounds);
        let v5 = dialect(Version::V5);
        let first = spawn(&node, &v5, tagged(0, 0));
        gate.held(1).await;
        {
            let mut early = std::pin::pin!(node.ask(&v5, tagged(1, 0)));
            let waker = std::task::Waker::noop();
            let mut context = std::task::Context::from_waker(waker);
            assert!(early.as_mut().poll(&mut context).is_pending());
            assert_eq!(node.in_flight(), 2);
        }
        assert_eq!((node.in_flight(), node.orphans()), (1, 0));
        first.abort();
        until("it is given up", || (node.in_flight(), node.orphans()) == (0, 1)).await;
        let others: Vec<_> = (2..5).map(|n| spawn(&node, &v5, tagged(n, 0))).collect();
        gate.held(3).await;
        assert_eq!(node.in_flight(), 2, "of three streams one is taken by what was given up");
        let streams: Vec<i16> = gate.held.borrow().iter().map(|(_, it)| it.stream).collect();
        assert_eq!(streams.len(), 3);
        assert!(streams[1] != streams[0] && streams[2] != streams[0], "{streams:?}");
        gate.let_go();
        gate.held(4).await;
        gate.let_go();
        for (n, other) in others.into_iter().enumerate() {
            assert_eq!(tag(&other.await.unwrap().unwrap().body), n as u64 + 2);
        }
        let seen: Vec<u64> = gate.held.borrow().iter().map(|(_, it)| tag(&it.body)).collect();
        assert_eq!(seen, [0, 2, 3, 4]);
        assert_eq!((node.orphans(), node.connections()), (0, 1));
    });
}

#[test]
fn a_connection_with_too_many_orphans_is_replaced_and_finishes_what_it_has() {
    run(async {
        let (address, gate) = start().await;
        let bounds = NodeLimits { orphans_max: 3, ..limits() };
        let node = node(address, bounds);
        let v4 = dialect(Version::V4);
        let kept = spawn(&node, &v4, tagged(0, 0));
        let given_up: Vec<_> = (1..4).map(|n| spawn(&node, &v4, tagged(n, 0))).collect();
        gate.held(4).await;
        given_up.iter().for_each(tokio::task::JoinHandle::abort);
        until("they are given up", || node.orphans() == 3).await;
        assert_eq!((node.counts().retired, node.connections()), (1, 1));
        let next = spawn(&node, &v4, tagged(4, 0));
        gate.held(5).await;
        assert_eq!(node.connections(), 2);
        let connections: Vec<usize> = gate.held.borrow().iter().map(|(it, _)| *it).collect();
        assert_eq!(connections, [0, 0, 0, 0, 1]);
        gate.let_go();
        assert_eq!(tag(&kept.await.unwrap().unwrap().body), 0);
        assert_eq!(tag(&next.await.unwrap().unwrap().body), 4);
        until("the old one ends", || (node.connections(), node.orphans()) == (1, 0)).await;
    });
}

#[test]
fn clients_that_speak_otherwise_take_the_place_of_unused_connections_only() {
    run(async {
        let (address, gate) = start().await;
        let node = node(address, NodeLimits { connections_in_all_max: 1, ..limits() });
        let (v4, v5) = (dialect(Version::V4), dialect(Version::V5));
        let shop = v4.in_keyspace(Some(Arc::from("shop")));
        let busy = spawn(&node, &v4, tagged(1, 0));
        gate.held(1).await;
        let error = node.ask(&shop, tagged(2, 0)).await.unwrap_err();
        assert_eq!((error.kind(), error.was_sent()), (SendErrorKind::Busy, false), "{error}");
        gate.let_go();
        busy.await.unwrap().unwrap();
        for (n, dialect) in [(3, &v5), (4, &shop), (5, &v4)] {
            let ask = spawn(&node, dialect, tagged(n, 0));
            gate.held(n as usize - 1).await;
            gate.let_go();
            assert_eq!(tag(&ask.await.unwrap().unwrap().body), n);
            assert_eq!(node.connections(), 1);
        }
    });
}
