//! Clients that keep what they read, before duplicates that lag, fail and come back.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use evenkeel_ordered::{ConnectionKind, Consistency, Dropped};
use evenkeel_stores::resp::hash::slot;
use evenkeel_stores::resp::reply::{ReplyScanner, elements, payload};
use proptest::collection::vec;
use proptest::prelude::*;

use super::super::world::World;
use super::*;

const FREE: ConnectionKind = ConnectionKind::Free;
const ORDERED: ConnectionKind = ConnectionKind::Ordered;

/// Runs what is done at the end of a turn.
fn turn(world: &World) {
    world.engine.borrow().flush();
}

fn tracking(world: &mut World, how: &[&str]) -> ClientId {
    let client = world.client();
    assert!(world.tell(client, &["HELLO", "3"]));
    assert!(world.tell(client, &[&["CLIENT", "TRACKING", "ON"], how].concat()));
    assert!(world.heard(client).ends_with("+OK\r\n"));
    client
}

fn invalid(key: &str) -> String {
    format!(">2\r\n$10\r\ninvalidate\r\n*1\r\n${}\r\n{key}\r\n", key.len())
}

#[test]
fn what_is_kept_is_read_where_no_write_of_it_is_missing() {
    let mut world = World::start(2, |config| config.consistency = Consistency::Eventual);
    let (writer, reader) = (world.client(), tracking(&mut world, &[]));
    assert!(world.tell(writer, &["SET", "k", "1"]));
    turn(&world);
    assert!(world.serve(1, ORDERED));
    assert!(world.tell(reader, &["GET", "k"]));
    turn(&world);
    assert!(!world.serve(0, FREE) && world.serve(1, FREE), "the first lacks it");
    assert!(world.tell(writer, &["SET", "k", "2"]));
    turn(&world);
    assert_eq!(world.heard(reader), "$1\r\n1\r\n".to_owned() + &invalid("k"));
    assert!(world.tell(reader, &["GET", "k"]));
    world.serve_all();
    turn(&world);
    assert_eq!(world.heard(reader), "$1\r\n2\r\n", "nobody had it: behind it");
}

#[test]
fn who_reads_for_another_that_is_told_by_prefix_misses_no_write() {
    for is_told in [false, true] {
        let mut world = World::start(2, |_| {});
        let (writer, reader) = (world.client(), world.client());
        let told = tracking(&mut world, &["BCAST", "PREFIX", if is_told { "k" } else { "l" }]);
        assert!(world.tell(writer, &["SET", "k", "1"]));
        turn(&world);
        assert_eq!(!world.heard(told).is_empty(), is_told);
        assert!(world.tell(reader, &["GET", "k"]));
        turn(&world);
        let is_free = (0..2).any(|server| world.waiting(server)[1] > 0);
        assert_eq!(is_free, !is_told, "behind the write that its friend was told of");
    }
}

#[test]
fn a_write_while_the_answer_is_on_its_way_is_told_behind_that_too() {
    let mut world = World::start(1, |_| {});
    let (writer, reader) = (world.client(), tracking(&mut world, &[]));
    assert!(world.tell(reader, &["GET", "k"]) && world.tell(writer, &["SET", "k", "1"]));
    turn(&world);
    assert_eq!(world.heard(reader), invalid("k"));
    assert!(world.serve(0, FREE));
    assert_eq!(world.heard(reader), "_\r\n".to_owned() + &invalid("k"));
}

#[test]
fn a_message_lifts_its_session_to_the_write() {
    let mut world = World::start(2, |_| {});
    let (writer, reader) = (world.client(), tracking(&mut world, &[]));
    assert!(world.tell(reader, &["GET", "k"]));
    world.serve_all();
    assert_eq!(world.heard(reader), "_\r\n");
    assert!(world.tell(writer, &["SET", "k", "1"]));
    turn(&world);
    assert_eq!(world.heard(reader), invalid("k"), "when it has its place");
    assert!(world.tell(reader, &["GET", "k"]));
    world.serve_all();
    assert_eq!(world.heard(reader), "$1\r\n1\r\n", "behind the write, so nothing is missing");
    turn(&world);
    assert_eq!(world.heard(reader), "");
}

#[test]
fn who_was_quarantined_may_have_answered_anything() {
    let mut world = World::start(2, |_| {});
    let reader = tracking(&mut world, &[]);
    world.engine.borrow().quarantine(1, "it holds something else");
    turn(&world);
    assert_eq!(world.heard(reader), ">2\r\n$10\r\ninvalidate\r\n_\r\n");
}

/// What moved there before it was taken in is behind other writes, which whoever answers may lack.
#[test]
fn a_key_that_moved_is_read_where_nothing_is_missing_that_was_sent_before() {
    let mut world = World::start(2, |config| {
        let targets = config.partitions.remove(0);
        config.partitions = targets.chunks(1).map(<[_]>::to_vec).collect();
    });
    let of = |key: &str| world.engine.borrow().partition_of(key.as_bytes());
    let keys = ["a", "b", "c", "d"];
    let [key, other] = [0, 1].map(|it| *keys.iter().find(|key| of(key) == it).unwrap());
    let (writer, reader) = (world.client(), tracking(&mut world, &[]));
    assert!(world.tell(writer, &["SET", key, "1"]));
    turn(&world);
    assert!(world.tell(writer, &["SET", other, "1"]));
    turn(&world);
    world.serve_all();
    assert!(world.tell(writer, &["SET", other, "2"]));
    turn(&world);
    let shard = world.engine.borrow().map.shard(slot(key.as_bytes()));
    let next = world.engine.borrow().layout.moved(shard, 1).unwrap();
    world.engine.borrow().adopt_layout(next).unwrap();
    assert!(world.tell(reader, &["GET", key]));
    turn(&world);
    assert_eq!(world.waiting(1), [2, 0], "behind the write that it has not done");
}

#[test]
fn where_nobody_tracks_nothing_is_noted() {
    let mut world = World::start(1, |_| {});
    let client = tracking(&mut world, &["BCAST"]);
    assert!(world.tell(client, &["GET", "k"]));
    assert_eq!(world.engine.borrow().tracking.sizes(), [1, 1, 1, 1]);
    world.engine.borrow().dismiss(client);
    let other = world.client();
    assert!(world.tell(other, &["GET", "k"]) && world.tell(other, &["SET", "l", "1"]));
    assert_eq!(world.engine.borrow().tracking.sizes(), [0; 4]);
    turn(&world);
    world.serve_all();
    assert_eq!(world.heard(other), "$-1\r\n+OK\r\n");
}

/// What a client has heard, and keeps.
#[derive(Default)]
struct Cache {
    asked: VecDeque<(bool, String)>,
    keeps: BTreeMap<String, Option<u64>>,
    is_noloop: bool,
}

impl Cache {
    fn hear(&mut self, said: &str) {
        let mut rest = said.as_bytes();
        while !rest.is_empty() {
            let length = ReplyScanner::default().scan(rest).unwrap().expect("it is whole");
            let (frame, behind) = rest.split_at(length);
            rest = behind;
            if frame[0] == b'>' {
                let what = elements(frame).nth(1).unwrap();
                let keys: Vec<_> = elements(what).filter_map(payload).collect();
                let is_all = what[0] == b'_';
                self.keeps.retain(|key, _| !is_all && !keys.contains(&key.as_bytes()));
                continue;
            }
            let (is_read, key) = self.asked.pop_front().expect("it was asked");
            let value = || payload(frame).map(|it| String::from_utf8_lossy(it).parse().unwrap());
            if is_read && frame[0] != b'-' {
                self.keeps.insert(key, value());
            } else if self.is_noloop {
                self.keeps.remove(&key); // it looks after its own
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Get(usize, usize),
    Set(usize, usize),
    Serve(usize, ConnectionKind),
    Turn,
    Hear(usize),
    Pass,
    Lose(usize),
    Reach(usize),
}

const SERVERS: usize = 3;
const CLIENTS: usize = 4;
const KEYS: [&str; 3] = ["a", "b", "c"];

fn event() -> impl Strategy<Value = Event> {
    let (client, key, server) = (0..CLIENTS, 0..KEYS.len(), 0..SERVERS);
    let kind = prop_oneof![Just(FREE), Just(ORDERED)];
    prop_oneof![
        5 => (client.clone(), key.clone()).prop_map(|(client, key)| Event::Get(client, key)),
        3 => (client.clone(), key).prop_map(|(client, key)| Event::Set(client, key)),
        12 => (server.clone(), kind).prop_map(|(server, kind)| Event::Serve(server, kind)),
        4 => Just(Event::Turn),
        3 => client.prop_map(Event::Hear),
        1 => Just(Event::Pass),
        1 => server.clone().prop_map(Event::Lose),
        2 => server.prop_map(Event::Reach),
    ]
}

fn happen(world: &mut World, clients: &mut [(ClientId, Cache)], event: Event, value: &mut u64) {
    match event {
        Event::Get(at, key) => {
            let (client, cache) = &mut clients[at];
            if world.would_take(*client) && world.tell(*client, &["GET", KEYS[key]]) {
                cache.asked.push_back((true, KEYS[key].to_owned()));
            }
        }
        Event::Set(at, key) => {
            let (client, cache) = &mut clients[at];
            *value += 1;
            let words = ["SET", KEYS[key], &value.to_string()];
            if world.would_take(*client) && world.tell(*client, &words) {
                cache.asked.push_back((false, KEYS[key].to_owned()));
            }
        }
        Event::Serve(server, kind) => _ = world.serve(server, kind),
        Event::Turn => turn(world),
        Event::Hear(at) => {
            let said = world.heard(clients[at].0);
            clients[at].1.hear(&said);
        }
        Event::Pass => world.pass(Duration::from_millis(5)),
        Event::Lose(server) => {
            let live = world.engine.borrow().members.live(0);
            if live.contains(server) && live.len() > 1 {
                world.lose(server, Dropped::Lost);
            }
        }
        Event::Reach(server) => {
            let live = world.engine.borrow().members.live(0);
            if !live.contains(server) {
                world.reach(server);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Duplicates lag, fail and come back, reads are sent again and answers wait for each other:
    /// at rest nobody keeps what is not so.
    #[test]
    fn nobody_keeps_what_the_store_does_not_hold(
        events in vec(event(), 1..150),
        copies in 1..4_u8,
        level in prop_oneof![
            Just(Consistency::Eventual),
            Just(Consistency::ReadMyOwnWrites),
            Just(Consistency::Strong),
        ],
    ) {
        let mut world = World::start(SERVERS, |config| {
            (config.read_copies, config.consistency) = (copies, level);
            config.hedge = None;
        });
        let ways: [&[&str]; CLIENTS] =
            [&[], &["NOLOOP"], &["BCAST"], &["BCAST", "NOLOOP", "PREFIX", "a"]];
        let mut clients: Vec<(ClientId, Cache)> = Vec::new();
        for way in ways {
            let is_noloop = way.contains(&"NOLOOP");
            let cache = Cache { is_noloop, ..Cache::default() };
            clients.push((tracking(&mut world, way), cache));
        }
        let mut value = 0;
        for event in events {
            happen(&mut world, &mut clients, event, &mut value);
        }
        (0..3).for_each(|_| {
            turn(&world);
            world.serve_all();
        });
        for (at, (client, cache)) in clients.iter_mut().enumerate() {
            cache.hear(&world.heard(*client));
            prop_assert!(cache.asked.is_empty(), "client {} waits for {:?}", at, cache.asked);
            // Of `BCAST` with a prefix other keys are kept at one's own risk.
            for (key, value) in cache.keeps.iter().filter(|(key, _)| at < 3 || *key == "a") {
                let is = world.all.get(key.as_bytes()).copied();
                prop_assert_eq!(*value, is, "client {} keeps {}", at, key);
            }
        }
    }
}
