//! Strong reads by one duplicate, at times of our own.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use evenkeel_ordered::{ConnectionKind, Dropped, ReplicaState};
use proptest::prelude::*;

use super::super::world::World;
use super::*;

const ORDERED: ConnectionKind = ConnectionKind::Ordered;
const FREE: ConnectionKind = ConnectionKind::Free;
const NONE: &str = "$-1\r\n";
const LEASE_ENDS_MS: u64 = 10_000;

fn leased() -> World {
    let world = World::start(3, |config| {
        config.members.acknowledge = Acknowledge::Majority;
        config.consistency = Consistency::Strong;
    });
    world.engine.borrow().strong.lease_until = Some(Instant::from_millis(LEASE_ENDS_MS));
    world
}

/// Who was asked a read past the writes, and has not answered.
fn asked(world: &mut World) -> Vec<usize> {
    (0..3).filter(|&server| world.waiting(server)[1] > 0).collect()
}

fn set(world: &mut World, key: &str, value: &str, applied_by: &[usize]) {
    let client = world.client();
    assert!(world.tell(client, &["SET", key, value]));
    applied_by.iter().for_each(|&server| assert!(world.serve(server, ORDERED)));
    let is_acknowledged = applied_by.len() > 1;
    assert_eq!(world.heard(client), if is_acknowledged { "+OK\r\n" } else { "" });
}

#[test]
fn one_duplicate_answers_a_strong_read_past_the_writes_of_other_keys() {
    let mut world = leased();
    set(&mut world, "other", "1", &[]);
    let client = world.client();
    assert!(world.tell(client, &["GET", "k"]));
    let [one] = asked(&mut world)[..] else { panic!("one is asked") };
    assert!(world.serve(one, FREE));
    assert_eq!(world.heard(client), NONE, "a write of another key holds nothing");
    assert!((0..3).all(|server| world.waiting(server) == [1, 0]), "nobody else was asked");
}

/// Without the look at the lease when the answer comes, the first client is told 1.
#[test]
fn a_lease_that_ends_between_question_and_answer_tells_nobody_anything() {
    let mut world = leased();
    set(&mut world, "k", "1", &[0, 1, 2]);
    let clients = [world.client(), world.client()];
    assert!(world.tell(clients[0], &["GET", "k"]));
    world.at(LEASE_ENDS_MS);
    assert!(world.tell(clients[1], &["GET", "k"]));
    world.serve_all();
    for client in clients {
        let heard = world.heard(client);
        assert!(heard.starts_with("-UNAVAILABLE"), "{heard}");
    }
    // Some earlier value may still be told.
    let client = world.client();
    world.engine.borrow().client(client).unwrap().consistency = Consistency::Eventual;
    assert!(world.tell(client, &["GET", "k"]));
    world.serve_all();
    assert_eq!(world.heard(client), "$1\r\n1\r\n");
}

#[test]
fn a_duplicate_that_lacks_an_acknowledged_write_is_not_asked() {
    let mut world = leased();
    set(&mut world, "k", "1", &[0, 2]);
    for n in 0..30 {
        world.at(n);
        let client = world.client();
        assert!(world.tell(client, &["GET", "k"]));
        let [one] = asked(&mut world)[..] else { panic!("one is asked") };
        assert_ne!(one, 1, "it owes the write");
        assert!(world.serve(one, FREE));
        assert_eq!(world.heard(client), "$1\r\n1\r\n");
    }
    // Those that have it are gone: behind the write.
    world.lose(0, Dropped::Lost);
    let client = world.client();
    assert!(world.tell(client, &["GET", "k"]));
    assert_eq!(asked(&mut world), [2], "two are live");
    world.reach(0);
    world.lose(2, Dropped::Lost);
    assert!(world.serve(0, FREE), "it is asked in place of the third");
    assert_eq!(world.heard(client), "", "of those that are live only it has the write");
    assert!(world.serve(1, ORDERED));
    assert_eq!(world.heard(client), "$1\r\n1\r\n");
}

/// Without the wait the reader is told 2, the one duplicate that has it dies, and whoever leads
/// next never knows of it.
#[test]
fn what_only_one_duplicate_has_is_shown_once_a_majority_has_it() {
    let mut world = leased();
    set(&mut world, "k", "1", &[0, 1, 2]);
    let [first, second] = [world.client(), world.client()];
    assert!(world.tell(first, &["GET", "k"]));
    let [one] = asked(&mut world)[..] else { panic!("one is asked") };
    set(&mut world, "k", "2", &[one]);
    assert!(world.serve(one, FREE));
    assert_eq!(world.heard(first), "", "one duplicate is no majority");
    let kept = |world: &World| world.engine.borrow().client(first).unwrap().answer_bytes();
    assert_eq!(kept(&world), "$1\r\n2\r\n".len(), "it counts in the budget of its client");
    let two = (one + 1) % 3;
    assert!(world.serve(two, ORDERED));
    assert_eq!(world.heard(first), "$1\r\n2\r\n");
    assert_eq!(kept(&world), 0);
    // What one strong read has seen the next one sees: the third has not got it.
    assert!(world.tell(second, &["GET", "k"]));
    let [asked] = asked(&mut world)[..] else { panic!("one is asked") };
    assert!(asked == one || asked == two, "{asked} lacks what was shown");
    assert!(world.serve(asked, FREE));
    assert_eq!(world.heard(second), "$1\r\n2\r\n");
}

#[test]
fn an_answer_that_waits_ends_with_the_majority_or_with_the_lease() {
    for by_lease in [false, true] {
        let mut world = leased();
        let client = world.client();
        assert!(world.tell(client, &["GET", "k"]));
        let [one] = asked(&mut world)[..] else { panic!("one is asked") };
        set(&mut world, "k", "1", &[one]);
        assert!(world.serve(one, FREE));
        let others = [(one + 1) % 3, (one + 2) % 3];
        if by_lease {
            world.at(LEASE_ENDS_MS);
            assert!(world.serve(others[0], ORDERED));
        } else {
            world.lose(others[0], Dropped::Lost);
            assert_eq!(world.heard(client), "", "the other one may have it yet");
            world.lose(others[1], Dropped::Lost);
        }
        let heard = world.heard(client);
        assert!(heard.starts_with("-UNAVAILABLE"), "{heard}");
        assert!(world.engine.borrow().strong.shown.is_empty());
    }
}

#[test]
fn a_strong_read_sees_its_own_clients_write_that_is_not_acknowledged() {
    let mut world = leased();
    let client = world.client();
    assert!(world.tell(client, &["SET", "k", "1"]));
    assert!(world.tell(client, &["GET", "k"]));
    assert!(asked(&mut world).is_empty(), "behind the write");
    let read = |world: &mut World, server| world.waiting(server)[0] == 2;
    let one = (0..3).find(|&server| read(&mut world, server)).expect("one is asked");
    assert!(world.serve(one, ORDERED) && world.serve(one, ORDERED));
    assert_eq!(world.heard(client), "", "one duplicate is no majority");
    assert!(world.serve((one + 1) % 3, ORDERED));
    assert_eq!(world.heard(client), "+OK\r\n$1\r\n1\r\n");
}

#[test]
fn of_one_clients_reads_of_a_key_the_second_waits_for_the_first() {
    let mut world = leased();
    let client = world.client();
    assert!(world.tell(client, &["GET", "k"]));
    assert!(world.tell(client, &["GET", "other"]), "nothing orders these");
    assert!(!world.tell(client, &["GET", "k"]));
    world.serve_all();
    world.engine.borrow().release(client);
    assert!(world.tell(client, &["GET", "k"]));
    world.serve_all();
    assert_eq!(world.heard(client), NONE.repeat(3));
}

#[test]
fn a_term_shows_the_writes_of_earlier_ones_once_a_majority_has_them() {
    let mut leased = Leased::new(Sequence(50));
    assert_eq!(leased.shows(Some(7), Sequence(60)), Sequence(50));
    leased.wrote(Some(7), Sequence(55));
    assert_eq!(leased.shows(Some(7), Sequence(60)), Sequence(55));
    assert_eq!(leased.shows(Some(8), Sequence(60)), Sequence(50));
    assert_eq!(leased.shows(Some(7), Sequence(52)), Sequence(52), "it was not sent more");
    assert_eq!(leased.shows(None, Sequence(60)), Sequence(60), "whose key nobody knows");
    leased.wrote(None, Sequence(58));
    assert_eq!(leased.shows(Some(8), Sequence(60)), Sequence(58), "every key was written");
}

/// What happens next.
#[derive(Clone, Debug)]
enum Event {
    Write(usize, usize),
    Read(usize, usize),
    Serve(usize, bool),
    Lose(usize),
    Reach(usize),
    Pass(u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let (client, key, server) = (|| 0..3_usize, || 0..2_usize, || 0..3_usize);
    let event = prop_oneof![
        15 => (client(), key()).prop_map(|(client, key)| Event::Write(client, key)),
        30 => (client(), key()).prop_map(|(client, key)| Event::Read(client, key)),
        80 => (server(), any::<bool>()).prop_map(|(server, free)| Event::Serve(server, free)),
        2 => server().prop_map(Event::Lose),
        6 => server().prop_map(Event::Reach),
        5 => (0..20_u64).prop_map(Event::Pass),
    ];
    prop::collection::vec(event, 1..300)
}

/// Values rise in the order of writes. What was told of each key so far is what every read that
/// begins must see; each client's commands that wait are a write of a value, or a read and the
/// least it must see.
#[derive(Default)]
struct Register {
    told: [u64; 2],
    waits: [VecDeque<(usize, Result<u64, u64>)>; 3],
}

impl Register {
    fn hear(&mut self, world: &World, client: usize, heard: &str) {
        let mut lines = heard.split_terminator("\r\n");
        while let Some(line) = lines.next() {
            let (key, awaited) = self.waits[client].pop_front().expect("an answer to nothing");
            let value = match (line, awaited) {
                (line, _) if line.starts_with("-UN") => continue,
                ("+OK", Ok(value)) => value,
                ("$-1", Err(_)) => 0,
                (_, Err(_)) => lines.next().unwrap().parse().unwrap(),
                (line, Ok(_)) => panic!("a write was answered {line}"),
            };
            if let Err(least) = awaited {
                assert!(value >= least, "it reads {value}, {least} was told when it began");
            }
            let of = |holds: &BTreeMap<Vec<u8>, u64>| {
                holds.get(key.to_string().as_bytes()).copied().unwrap_or(0)
            };
            let have = world.holds.iter().filter(|holds| of(holds) >= value).count();
            assert!(have > 1, "it is told {value}, which {have} of 3 have");
            self.told[key] = self.told[key].max(value);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Every read sees what anybody was told before it began, and shows what a majority has.
    #[test]
    fn strong_reads_by_one_duplicate_are_of_one_register(events in events()) {
        let mut world = leased();
        world.engine.borrow().strong.lease_until = Some(Instant::from_millis(u64::MAX >> 24));
        let clients = [world.client(), world.client(), world.client()];
        let (mut register, mut next) = (Register::default(), 1);
        for event in &events {
            match *event {
                Event::Write(client, key) => {
                    let (name, value) = (key.to_string(), next.to_string());
                    next += 1;
                    if world.tell(clients[client], &["SET", &name, &value]) {
                        register.waits[client].push_back((key, Ok(next - 1)));
                    } else {
                        world.engine.borrow().release(clients[client]);
                    }
                }
                Event::Read(client, key) => {
                    if world.tell(clients[client], &["GET", &key.to_string()]) {
                        let least = register.told[key];
                        register.waits[client].push_back((key, Err(least)));
                    } else {
                        world.engine.borrow().release(clients[client]);
                    }
                }
                Event::Serve(server, free) => {
                    world.serve(server, if free { FREE } else { ORDERED });
                }
                Event::Lose(server) => world.lose(server, Dropped::Lost),
                Event::Reach(server) => {
                    let state = world.engine.borrow().members.state(server);
                    if state == ReplicaState::Disconnected {
                        world.reach(server);
                    }
                }
                Event::Pass(ms) => world.pass(Duration::from_millis(ms)),
            }
            for (number, &client) in clients.iter().enumerate() {
                register.hear(&world, number, &world.heard(client));
            }
        }
        world.serve_all();
        world.engine.borrow().tell_shown();
        for (number, &client) in clients.iter().enumerate() {
            register.hear(&world, number, &world.heard(client));
        }
        assert!(world.engine.borrow().strong.shown.is_empty(), "an answer waits for ever");
        assert!(register.waits.iter().all(VecDeque::is_empty), "not all were answered");
    }
}

/// By its one key alone, a script would show of others what may be undone.
#[test]
fn what_may_read_keys_that_it_does_not_name_waits_for_every_write() {
    let mut world = leased();
    set(&mut world, "other", "1", &[0]);
    let client = world.client();
    assert!(world.tell(client, &["EVAL_RO", "return redis.call('GET', 'other')", "1", "k"]));
    let [one] = asked(&mut world)[..] else { panic!("one is asked") };
    {
        let mut inner = world.engine.borrow();
        let connection = inner.servers[one].connection;
        inner.answered(one, connection, FREE, b"$1\r\n1\r\n").unwrap();
    }
    assert_eq!(world.heard(client), "");
    assert!(world.serve(1, ORDERED) && world.serve(2, ORDERED));
    assert_eq!(world.heard(client), "$1\r\n1\r\n");
}
