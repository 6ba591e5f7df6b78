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

use evenkeel_placement::act::audit::Audit;
use evenkeel_placement::act::mover::{Mode, Mover, Order, Outcome};
use evenkeel_placement::act::zookeeper::{Hold, ZooKeeper};
use evenkeel_placement::act::{Cluster, Observed};
use evenkeel_planner::model::Layout;
use evenkeel_planner::steps::{Abilities, Step};
use evenkeel_stores::clients::error::RemoteError;
use evenkeel_stores::clients::zookeeper::session::{Refusal, Session};
use evenkeel_stores::clients::zookeeper::wire::{Credentials, Request};
use evenkeel_testkit::story::possible_story;
use evenkeel_testkit::wait::{found, until};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::common::{Placing, RULES, When, cut_and_finished, order};
use crate::world::{PASSWORD, SITES, World};

fn story(told: impl AsyncFnOnce()) {
    possible_story(world::possible(), Duration::from_secs(120), told);
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
        the_service_moves_votes(&world).await;
        a_mover_that_is_cut_off_is_finished(&world).await;
        one_bad_server_blinds_nobody(&world).await;
        refusals(&mut world).await;
    });
}

/// The leader dies when a vote is to be taken: after an election all is as it was but for that.
#[test]
fn an_election_in_the_middle_of_a_move_does_not_keep_it_from_going_back() {
    story(async || {
        let world = World::start();
        world.up().await;
        let zookeeper = world.cluster(PASSWORD);
        let audit = Audit::open(&world.folder.file("audit.jsonl")).unwrap();
        let mover = Mover { cluster: &zookeeper, rules: RULES, audit: &audit };
        let leader = zookeeper.observe().await.unwrap().layout.leader();
        let [stays, goes] = [(leader + 1) % 3, (leader + 2) % 3];
        // Of servers that are in step the one with the highest number is elected: site 3, which
        // votes at the beginning and would at the end not.
        let start = layout(leader, &[leader, stays, 3], &[0, 1, 2, 3]);
        mover.run(&order(&start, "a test")).await.unwrap();
        let world = RefCell::new(world);
        let dying = Dying { zookeeper: &zookeeper, world: &world, leader };
        let mover = Mover { cluster: &dying, rules: RULES, audit: &audit };
        let goal = layout(leader, &[0, 1, 2], &[0, 1, 2, 3]);
        let began = Instant::now();
        let outcome = mover.run(&order(&goal, "a test")).await.unwrap();
        let Outcome::Stopped(stop) = outcome else { panic!("{outcome:?}") };
        println!("{stop}, in {:?}", began.elapsed());
        assert_eq!((&stop.done[..], stop.at), (&[Step::Promote(goes)][..], Some(Step::Demote(3))));
        assert_eq!((&stop.stuck, &stop.back[..]), (&None, &[Step::Demote(goes)][..]), "{stop}");
        let seen = zookeeper.observe().await.unwrap().layout;
        assert_eq!(Some(seen.leader()), stop.elected, "{stop}");
        assert!(seen.leader() != leader);
        assert_eq!(seen, start.led_by(seen.leader()).unwrap());
    });
}

/// The ensemble, whose leader is killed when a vote is to be taken for the first time.
struct Dying<'a> {
    zookeeper: &'a ZooKeeper,
    world: &'a RefCell<World>,
    leader: usize,
}

impl Cluster for Dying<'_> {
    type Hold = Hold;

    fn name(&self) -> &str {
        self.zookeeper.name()
    }

    fn site_name(&self, site: usize) -> String {
        self.zookeeper.site_name(site)
    }

    fn abilities(&self) -> Abilities {
        self.zookeeper.abilities()
    }

    fn is_reached(&self, seen: &Layout, wanted: &Layout) -> bool {
        self.zookeeper.is_reached(seen, wanted)
    }

    async fn observe(&self) -> Result<Observed, RemoteError> {
        self.zookeeper.observe().await
    }

    async fn say(&self, step: Step) -> String {
        self.zookeeper.say(step).await
    }

    async fn apply(&self, step: Step) -> Result<(), RemoteError> {
        if step == Step::Demote(3) {
            self.world.borrow_mut().kill(self.leader);
            return Err(RemoteError::lasting("the leader died"));
        }
        self.zookeeper.apply(step).await
    }

    async fn hold(&self, who: &str) -> Result<Hold, RemoteError> {
        self.zookeeper.hold(who).await
    }

    async fn keep(&self, hold: &Hold) -> Result<(), RemoteError> {
        self.zookeeper.keep(hold).await
    }

    async fn release(&self, hold: Hold) {
        self.zookeeper.release(hold).await;
    }
}

async fn moves_lose_no_write(world: &World) {
    let zookeeper = world.cluster(PASSWORD);
    let audit = Audit::open(&world.folder.file("audit.jsonl")).unwrap();
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
    until("clients write", || log.acknowledged.borrow().len() >= 10).await;

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

/// Site 3 is near everybody, who are far from each other: its vote makes every commit fast. The
/// leader, which nobody moves, stays where it is, though all clients are elsewhere.
async fn the_service_moves_votes(world: &World) {
    let zookeeper = world.cluster(PASSWORD);
    let first = zookeeper.observe().await.unwrap().layout;
    let leader = first.leader();
    let folder = world.folder.path();
    let ms: [[f64; 4]; 4] =
        [[0.5, 60.0, 80.0, 2.0], [60.0, 0.5, 70.0, 2.0], [80.0, 70.0, 0.5, 2.0], [2.0; 4]];
    let mut round_trips = "x,s0,s1,s2,s3\n".to_owned();
    for (from, row) in ms.iter().enumerate() {
        let row = row.map(|ms| ms.to_string()).join(",");
        round_trips.push_str(&format!("s{from},{row}\n"));
    }
    std::fs::write(folder.join("rtt.csv"), round_trips).unwrap();
    let [client, other] = [(leader + 1) % 3, (leader + 2) % 3];
    std::fs::write(folder.join("password"), PASSWORD).unwrap();
    let counts = format!("interval,client,single-group\n1,s{client},1e6\n");
    std::fs::write(folder.join("counts.csv"), counts).unwrap();
    let mut text = "[placement]\nround_trips = 'rtt.csv'\ninterval = '1s'\nintervals = 1\n\
                    audit = 'service.jsonl'\n\
                    [[placement.databases]]\nname = 'votes'\n\
                    operations = { csv = 'counts.csv' }\n\
                    [placement.databases.system]\nkind = 'zookeeper'\nuser = 'super'\n\
                    password_file = 'password'\nhold = '8s'\n"
        .to_owned();
    for site in 0..SITES {
        let (id, client, peer) = (site + 1, world.client(site), world.peer(site));
        text.push_str(&format!(
            "members.s{site} = {{ id = {id}, client = '{client}', peer = '{peer}' }}\n"
        ));
    }
    let dry = Placing::start(folder, &text);
    let state = dry.until(|state| !state.databases[0].would_do.is_empty()).await;
    let votes = &state.databases[0];
    println!("{}\n{:#?}", votes.why, votes.would_do);
    assert_eq!((votes.system, votes.tier), ("zookeeper", 2));
    // The way to the leader, and from there to the nearest other voter and back.
    let (way, nearest) = (ms[client][leader], ms[leader][client].min(ms[leader][other]));
    assert_eq!((votes.now_ms, votes.goal_ms), (Some(way + nearest), Some(way + 2.0)), "{votes:#?}");
    assert!(votes.would_do[0].starts_with("reconfig -v ") && votes.would_do.len() == 2);
    drop(dry);
    assert_eq!(zookeeper.observe().await.unwrap().layout, first, "dry is dry");

    let acting = text.replace("interval = '1s'\n", "interval = '1s'\ndry_run = false\n");
    let acting = Placing::start(folder, &acting);
    let state = acting.until(|state| state.databases[0].counts.moves == 1).await;
    drop(acting);
    let seen = zookeeper.observe().await.unwrap().layout;
    assert_eq!(seen.leader(), leader, "nobody moves it");
    assert!(seen.has_voter(3) && seen.voters().len() == 3, "{seen:?} {state:#?}");
    assert_eq!(state.databases[0].moves[0].event, "reached");

    // As it was, for what follows.
    let audit = Audit::open(&world.folder.file("audit.jsonl")).unwrap();
    let mover = Mover { cluster: &zookeeper, rules: RULES, audit: &audit };
    mover.run(&order(&first, "back")).await.unwrap();
}

async fn a_mover_that_is_cut_off_is_finished(world: &World) {
    let zookeeper = world.cluster(PASSWORD);
    // Its hold ends soon after it: no sooner than a busy machine is late.
    let short_lived = world.cluster_held(PASSWORD, Duration::from_secs(4));
    let audit = Audit::open(&world.folder.file("audit.jsonl")).unwrap();
    let mover = Mover { cluster: &zookeeper, rules: RULES, audit: &audit };
    let first = zookeeper.observe().await.unwrap().layout;
    let leader = first.leader();
    let other = layout(leader, &[leader, (leader + 1) % 3, 3], &[0, 1, 2, 3]);
    // Two requests: a vote is given and one is taken. The first time the hold ends by itself.
    for (goal, cut) in [
        (&other, (0, When::After)),
        (&first, (1, When::During)),
        (&other, (1, When::Before)),
        (&first, (1, When::After)),
    ] {
        let (is_held, rules) = (cut == (0, When::After), (RULES, &audit));
        let dying = if is_held { &short_lived } else { &zookeeper };
        let seen = cut_and_finished([dying, &zookeeper], goal, cut, is_held, rules).await;
        assert_eq!(seen.unwrap().voters(), goal.voters());
    }
    mover.run(&order(&first, "as it was")).await.unwrap();
}

/// A follower's address leads to what is no ZooKeeper.
async fn one_bad_server_blinds_nobody(world: &World) {
    let first = world.cluster(PASSWORD).observe().await.unwrap().layout;
    let garbage = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = garbage.local_addr().unwrap().to_string();
    let serving = tokio::task::spawn_local(async move {
        loop {
            let (mut stream, _) = garbage.accept().await.unwrap();
            let _ = stream.write_all(b"\xff\xff\xff\xffgarbage").await;
        }
    });
    for bad in (0..3).filter(|site| *site != first.leader()) {
        let client = |site| if site == bad { address.clone() } else { world.client(site) };
        let zookeeper = world.cluster_at(PASSWORD, Duration::from_secs(8), client);
        let seen = zookeeper.observe().await.unwrap();
        assert_eq!((&seen.layout, seen.is_well(bad, u64::MAX).is_err()), (&first, true));
        let held = zookeeper.hold("a test").await.unwrap();
        zookeeper.keep(&held).await.unwrap();
        zookeeper.release(held).await;
    }
    serving.abort();
}

async fn refusals(world: &mut World) {
    let zookeeper = world.cluster(PASSWORD);
    let audit = Audit::open(&world.folder.file("audit.jsonl")).unwrap();
    let mover = Mover { cluster: &zookeeper, rules: RULES, audit: &audit };
    let first = zookeeper.observe().await.unwrap().layout;
    let leader = first.leader();
    let follower = (leader + 1) % 3;

    let led = layout(follower, &[0, 1, 2], &[0, 1, 2, 3]);
    let refused = mover.run(&order(&led, "another leader")).await.unwrap_err();
    assert!(refused.message.contains("move the leader"), "{refused}");

    let all_vote = layout(leader, &[0, 1, 2, 3], &[0, 1, 2, 3]);
    let held = zookeeper.hold("somebody").await.unwrap();
    let refused = mover.run(&order(&all_vote, "at the same time")).await.unwrap_err();
    assert!(refused.message.contains("is being moved by somebody"), "{refused}");
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
    assert!(refused.message.contains("while a voter is not well"), "{refused}");
    world.kill((leader + 2) % 3);
    let refused = found("nobody leads without a quorum", async || {
        let refused = mover.run(&order(&all_vote, "without a quorum")).await.unwrap_err();
        refused.message.contains("no server of").then_some(refused)
    })
    .await;
    println!("{refused}");
    assert!(refused.message.contains("no server of four servers leads"), "{refused}");
    assert!(refused.may_pass);
}
