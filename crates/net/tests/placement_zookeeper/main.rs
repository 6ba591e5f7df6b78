//! Real ZooKeeper servers become voters and observers while clients write.
//!
//! Needs Debian's `zookeeper`; says so and passes by where it is missing.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "../common/mod.rs"]
mod common;
mod world;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use evenkeel_core::placement::model::Layout;
use evenkeel_core::placement::steps::Step;
use evenkeel_net::placement::act::Cluster as _;
use evenkeel_net::placement::act::audit::Audit;
use evenkeel_net::placement::act::mover::{Mode, Mover, Order, Outcome, Rules};
use evenkeel_net::placement::act::zookeeper::wire::{Credentials, Request};
use evenkeel_net::placement::act::zookeeper::{Refusal, Session};
use tokio::task::JoinSet;

use crate::common::real::{self, order};
use crate::world::{PASSWORD, SITES, World};

const RULES: Rules = Rules {
    step: Duration::from_secs(20),
    poll: Duration::from_millis(100),
    lag_max: 1_000,
    window: None,
};

fn story(told: impl AsyncFnOnce()) {
    real::story(world::possible(), Duration::from_secs(120), told);
}

fn layout(leader: usize, voters: &[usize], replicas: &[usize]) -> Layout {
    Layout::new(leader, voters.to_vec(), replicas.to_vec()).unwrap()
}

async fn connect(server: &str) -> Option<Session> {
    let deadline = Duration::from_secs(2);
    Session::open(server, deadline, deadline * 2, &Credentials::default()).await.ok()
}

/// What clients wrote.
#[derive(Default)]
struct Log {
    acknowledged: RefCell<Vec<String>>,
    failed: Cell<usize>,
}

/// A client of one server that makes one node after another.
async fn write(server: String, number: usize, log: Rc<Log>) {
    let mut session = None;
    for count in 0_usize.. {
        tokio::time::sleep(Duration::from_millis(20)).await;
        if session.is_none() {
            session = connect(&server).await;
        }
        let Some(open) = &mut session else { continue };
        let path = format!("/written-{number}-{count}");
        let create = Request::Create { path: &path, data: b"", is_ephemeral: false };
        match open.ask(create).await {
            Ok(_) => log.acknowledged.borrow_mut().push(path),
            // Whether it was made is not known; the next has another name.
            Err(_) => {
                log.failed.set(log.failed.get() + 1);
                session = None;
            }
        }
    }
}

/// How many of the acknowledged nodes a server does not have.
async fn lost(server: &str, log: &Log) -> usize {
    let mut session = connect(server).await.unwrap();
    let mut lost = 0;
    let acknowledged = log.acknowledged.borrow().clone();
    for path in acknowledged {
        match session.ask(Request::Data(&path)).await {
            Ok(_) => {}
            Err(Refusal::Code(-101)) => lost += 1,
            Err(Refusal::Code(code)) => panic!("{path}: error {code}"),
            Err(Refusal::Lost(trouble)) => panic!("{trouble}"),
        }
    }
    lost
}

/// One story, since four Java machines take their time to start.
#[test]
fn voters_and_observers_change_places_while_clients_write_and_what_must_not_be_is_refused() {
    story(async || {
        let began = Instant::now();
        let mut world = World::start();
        world.up().await;
        println!("up in {:?}", began.elapsed());
        moves_lose_no_write(&world).await;
        refusals(&mut world).await;
    });
}

async fn moves_lose_no_write(world: &World) {
    let zookeeper = world.cluster(PASSWORD);
    let audit = Audit::open(&world.audit_path()).unwrap();
    let mover = Mover { cluster: &zookeeper, rules: RULES, audit: &audit };
    let first = zookeeper.observe().await.unwrap().layout;
    assert_eq!((first.voters(), first.replicas()), (&[0, 1, 2][..], &[0, 1, 2, 3][..]));
    let leader = first.leader();
    let [stays, goes] = [(leader + 1) % 3, (leader + 2) % 3];

    let log = Rc::new(Log::default());
    let mut writers = JoinSet::new();
    for site in 0..SITES {
        writers.spawn_local(write(world.client(site), site, Rc::clone(&log)));
    }
    tokio::time::sleep(Duration::from_millis(500)).await;

    let other = layout(leader, &[leader, stays, 3], &[0, 1, 2, 3]);
    let dry = Order { mode: Mode::DryRun, ..order(&other, "to be told") };
    let Outcome::WouldDo(planned) = mover.run(&dry).await.unwrap() else { panic!("acts") };
    let (how, client) = (&planned[0].how, world.client(3));
    println!("{how}");
    let host = client.split(':').next().unwrap();
    let joins = format!(" -add server.4={host}:2888:3888:participant;{client}");
    assert!(how.starts_with("reconfig -v ") && how.ends_with(&joins), "{how}");
    assert_eq!(zookeeper.observe().await.unwrap().layout, first, "dry is dry");

    let without = layout(leader, &[leader, stays, 3], &[leader, stays, 3]);
    let ways = [
        (&other, vec![Step::Promote(3), Step::Demote(goes)]),
        (&without, vec![Step::RemoveReplica(goes)]),
        (&other, vec![Step::AddReplica(goes)]),
        (&first, vec![Step::Promote(goes), Step::Demote(3)]),
    ];
    for (goal, expected) in ways {
        let began = Instant::now();
        let outcome = mover.run(&order(goal, "a test")).await.unwrap();
        println!("{outcome:?} in {:?}", began.elapsed());
        assert_eq!(outcome, Outcome::Reached(expected));
        assert_eq!(&zookeeper.observe().await.unwrap().layout, goal);
    }
    drop(writers);
    let acknowledged = log.acknowledged.borrow().len();
    let lost = lost(&world.client(leader), &log).await;
    println!("{acknowledged} writes acknowledged, {lost} lost, {} failed", log.failed.get());
    assert!(acknowledged > 100);
    assert_eq!(lost, 0);
}

async fn refusals(world: &mut World) {
    let zookeeper = world.cluster(PASSWORD);
    let audit = Audit::open(&world.audit_path()).unwrap();
    let mover = Mover { cluster: &zookeeper, rules: RULES, audit: &audit };
    let first = zookeeper.observe().await.unwrap().layout;
    let leader = first.leader();
    let follower = (leader + 1) % 3;

    let led = layout(follower, &[0, 1, 2], &[0, 1, 2, 3]);
    let refused = mover.run(&order(&led, "another leader")).await.unwrap_err();
    assert!(refused.words.contains("move the leader"), "{refused}");

    let all_vote = layout(leader, &[0, 1, 2, 3], &[0, 1, 2, 3]);
    let held = zookeeper.hold("somebody").await.unwrap();
    let refused = mover.run(&order(&all_vote, "at the same time")).await.unwrap_err();
    assert!(refused.words.contains("is being moved by somebody"), "{refused}");
    zookeeper.keep(&held).await.unwrap();
    zookeeper.release(held).await;

    let stranger = world.cluster("a guess");
    let stranger = Mover { cluster: &stranger, rules: RULES, audit: &audit };
    let outcome = stranger.run(&order(&all_vote, "without the right")).await.unwrap();
    let Outcome::Stopped(stop) = outcome else { panic!("{outcome:?}") };
    assert!(stop.why.contains("not allowed"), "{stop}");
    assert_eq!((stop.stuck.as_deref(), stop.layout.as_ref()), (None, Some(&first)));

    // A change that was made for an older configuration.
    let mut session = connect(&world.client(leader)).await.unwrap();
    session.ask(Request::Authenticate("super", PASSWORD)).await.unwrap();
    let stale = Request::Reconfigure { joining: None, leaving: Some(4), version: 1 };
    assert_eq!(session.ask(stale).await, Err(Refusal::Code(-103)));
    session.close().await;

    world.kill(follower);
    let refused = mover.run(&order(&all_vote, "too early")).await.unwrap_err();
    assert!(refused.words.contains("while a voter is not well"), "{refused}");
    world.kill((leader + 2) % 3);
    let ends = Instant::now() + Duration::from_secs(20);
    let refused = loop {
        let refused = mover.run(&order(&all_vote, "without a quorum")).await.unwrap_err();
        if refused.words.contains("no server of") || Instant::now() > ends {
            break refused;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    println!("{refused}");
    assert!(refused.words.contains("no server of four servers leads"), "{refused}");
    assert!(refused.may_pass);
}
