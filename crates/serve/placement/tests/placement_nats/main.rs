//! Three real servers of NATS JetStream: the leader of a stream moves while clients publish.
//!
//! Needs `nats-server`; says so and passes by where it is missing.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "../common/mod.rs"]
mod common;
mod world;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use evenkeel_placement::act::Cluster as _;
use evenkeel_placement::act::audit::Audit;
use evenkeel_placement::act::mover::{Mode, Mover, Order, Outcome};
use evenkeel_planner::model::Layout;
use evenkeel_planner::steps::Step;
use evenkeel_stores::clients::nats::session::Session;
use evenkeel_testkit::story::possible_story;
use evenkeel_testkit::wait::until;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::common::{Placing, RULES, When, are_well, cut_and_finished, order, seen};
use crate::world::{SITES, STREAM, World, connect};

fn story(told: impl AsyncFnOnce()) {
    possible_story(world::possible(), Duration::from_secs(100), told);
}

fn led_by(leader: usize) -> Layout {
    Layout::new(leader, vec![0, 1, 2], vec![0, 1, 2]).unwrap()
}

/// What clients published.
#[derive(Default)]
struct Log {
    /// Subjects that are no two messages', and the places in the stream.
    acknowledged: RefCell<Vec<(String, u64)>>,
    failed: Cell<usize>,
}

/// A client of one server that publishes one message after another.
async fn publish(server: String, number: usize, log: Rc<Log>) {
    let mut session = None;
    for count in 0_usize.. {
        tokio::time::sleep(Duration::from_millis(10)).await;
        if session.is_none() {
            session = connect(&server).await;
        }
        let Some(open) = &mut session else { continue };
        let subject = format!("{STREAM}.{number}.{count}");
        let answer = open.ask(&subject, b"x").await.ok();
        let answer = answer.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
        match answer.and_then(|answer| answer["seq"].as_u64()) {
            Some(place) => log.acknowledged.borrow_mut().push((subject, place)),
            // Whether it is there is not known; the next has another subject.
            None => {
                log.failed.set(log.failed.get() + 1);
                session = None;
            }
        }
    }
}

/// How many of the acknowledged messages are not where they were said to be.
async fn lost(session: &mut Session, log: &Log) -> usize {
    let mut lost = 0;
    let acknowledged = log.acknowledged.borrow().clone();
    for (subject, place) in acknowledged {
        let wanted = json!({"seq": place}).to_string();
        let api = format!("$JS.API.STREAM.MSG.GET.{STREAM}");
        let answer = session.ask(&api, wanted.as_bytes()).await.unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        lost += usize::from(answer["message"]["subject"] != json!(subject));
    }
    lost
}

/// All publishers are at the next site.
async fn the_service_moves_the_leader(world: &World, leader: usize) {
    let folder = world.folder.path();
    let round_trips = "x,s0,s1,s2\ns0,0.5,60,80\ns1,60,0.5,70\ns2,80,70,0.5\n";
    std::fs::write(folder.join("rtt.csv"), round_trips).unwrap();
    let next = (leader + 1) % SITES;
    let counts = format!("interval,client,single-group\n1,s{next},1e6\n");
    std::fs::write(folder.join("counts.csv"), counts).unwrap();
    let mut text = format!(
        "[placement]\nround_trips = 'rtt.csv'\ninterval = '1s'\nintervals = 1\n\
         audit = 'service.jsonl'\n\
         [[placement.databases]]\nname = 'stream'\noperations = {{ csv = 'counts.csv' }}\n\
         [placement.databases.system]\nkind = 'nats'\nstream = '{STREAM}'\n"
    );
    for site in 0..SITES {
        let client = world.client(site);
        text.push_str(&format!("members.s{site} = {{ name = 'n{site}', client = '{client}' }}\n"));
    }
    let nats = world.stream();
    let dry = Placing::start(folder, &text);
    let state = dry.until(|state| !state.databases[0].would_do.is_empty()).await;
    let told = &state.databases[0];
    println!("{}\n{:#?}", told.why, told.would_do);
    assert_eq!((told.system, told.tier), ("nats", 1));
    assert_eq!(told.goal.as_ref().unwrap().leader, format!("s{next}"));
    assert!(told.would_do[0].contains(&format!("\"preferred\":\"n{next}\"")), "{told:#?}");
    drop(dry);
    assert_eq!(nats.observe().await.unwrap().layout.leader(), leader, "dry is dry");

    let acting = text.replace("interval = '1s'\n", "interval = '1s'\ndry_run = false\n");
    let acting = Placing::start(folder, &acting);
    let state = acting.until(|state| state.databases[0].counts.moves == 1).await;
    drop(acting);
    assert_eq!(nats.observe().await.unwrap().layout.leader(), next, "{state:#?}");
    assert_eq!(state.databases[0].moves[0].event, "reached");
}

#[test]
fn a_streams_leader_moves_to_the_wanted_server_and_no_acknowledged_message_is_lost() {
    story(async || {
        let mut world = World::start();
        world.up().await;
        let nats = world.stream();
        let audit = Audit::open(&world.folder.file("audit.jsonl")).unwrap();
        let mover = Mover { cluster: &nats, rules: RULES, audit: &audit };
        let mut leader = nats.observe().await.unwrap().layout.leader();
        let dry = led_by((leader + 1) % SITES);
        let planned =
            mover.run(&Order { mode: Mode::DryRun, ..order(&dry, "a test") }).await.unwrap();
        let Outcome::WouldDo(planned) = planned else { panic!("{planned:?}") };
        let wish = format!("{{\"placement\":{{\"preferred\":\"n{}\"}}}}", (leader + 1) % SITES);
        assert!(planned[0].how.contains(&wish), "{}", planned[0].how);
        assert_eq!(nats.observe().await.unwrap().layout.leader(), leader, "dry is dry");

        let log = Rc::new(Log::default());
        let mut publishers = JoinSet::new();
        for site in 0..SITES {
            publishers.spawn_local(publish(world.client(site), site, Rc::clone(&log)));
        }
        for by in [1, 2, 1, 1] {
            let to = (leader + by) % SITES;
            let (goal, began) = (led_by(to), Instant::now());
            let mut outcome = mover.run(&order(&goal, "a test")).await.unwrap();
            // Before 2.11 who is elected is chance, and may be the others sixteen times.
            while let Outcome::Stopped(stop) = &outcome
                && stop.why.contains("take a wish")
            {
                println!("{stop}");
                leader = nats.observe().await.unwrap().layout.leader();
                outcome = mover.run(&order(&goal, "a test")).await.unwrap();
            }
            println!("{outcome:?} in {:?}", began.elapsed());
            assert_eq!(outcome, Outcome::Reached(vec![Step::MoveLeader { from: leader, to }]));
            assert_eq!(nats.observe().await.unwrap().layout, goal);
            leader = to;
        }
        let before = log.acknowledged.borrow().len();
        until("publishers go on", || log.acknowledged.borrow().len() > before.max(100)).await;
        drop(publishers);
        let mut session = connect(&world.client(leader)).await.unwrap();
        let lost = lost(&mut session, &log).await;
        let acknowledged = log.acknowledged.borrow().len();
        println!("{acknowledged} acknowledged, {lost} lost, {} failed", log.failed.get());
        assert!(acknowledged > 100);
        assert_eq!(lost, 0);

        the_service_moves_the_leader(&world, leader).await;

        for when in [When::Before, When::During, When::After] {
            let from = nats.observe().await.unwrap().layout.leader();
            let (goal, cut) = (led_by((from + 1) % SITES), (0, when));
            let seen = cut_and_finished([&nats; 2], &goal, cut, true, (RULES, &audit)).await;
            let seen = seen.expect("it takes a request");
            assert!(when != When::After || seen == goal, "{seen:?}");
            // What is left of it, if anything, is a decision like any other.
            mover.run(&order(&goal, "a test")).await.unwrap();
        }
        let leader = nats.observe().await.unwrap().layout.leader();

        let fewer = Layout::new(leader, vec![leader], vec![leader]).unwrap();
        let refused = mover.run(&order(&fewer, "a test")).await.unwrap_err();
        assert!(refused.message.contains("cannot do"), "{refused}");

        // NATS itself chooses whose replica goes.
        nats.set_replicas(1).await.unwrap();
        let one = seen(&nats, "one replica", |seen| seen.layout.voters().len() == 1).await;
        nats.set_replicas(3).await.unwrap();
        let again = seen(&nats, "three replicas", |seen| are_well(seen, SITES)).await;
        println!("{:?}, then {:?}", one.layout, again.layout);
        let untagged = nats.set_tags(&["nowhere".to_owned()]).await.unwrap_err();
        println!("{untagged}");
        assert!(untagged.message.contains("STREAM.UPDATE"), "{untagged}");

        let leader = again.layout.leader();
        world.kill((leader + 1) % SITES);
        let dead = (leader + 1) % SITES;
        seen(&nats, "a dead server", |seen| seen.is_well(dead, 10).is_err()).await;
        let goal = led_by((leader + 2) % SITES);
        let refused = mover.run(&order(&goal, "a test")).await.unwrap_err();
        assert!(refused.message.contains("while a voter is not well"), "{refused}");
        world.kill((leader + 2) % SITES);
        let refused = mover.run(&order(&goal, "a test")).await.unwrap_err();
        println!("{refused}");
        assert!(refused.may_pass);
    });
}
