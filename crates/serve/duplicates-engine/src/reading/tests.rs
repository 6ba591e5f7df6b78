//! Reads of the engine without sockets, at times of our own.

use std::collections::VecDeque;
use std::time::Duration;

use evenkeel_core::request::redundancy::HedgeConfig;
use evenkeel_core::request::select::Policy;
use proptest::prelude::*;

use super::super::world::World;
use super::*;

const MS: Duration = Duration::from_millis(1);
const CONNECTIONS: [ConnectionKind; 2] = [ConnectionKind::Ordered, ConnectionKind::Free];

impl World {
    fn in_flight(&self) -> u64 {
        let inner = self.engine.borrow();
        let in_flight = inner.reads.dispatcher.fleet().in_flight();
        let owed = |read: &Read| read.owed as u64;
        assert_eq!(inner.reads.open.iter().map(|(_, read)| owed(read)).sum::<u64>(), in_flight);
        in_flight
    }

    fn assert_idle(&self) {
        assert_eq!(self.in_flight(), 0);
        assert!(self.engine.borrow().reads.open.is_empty(), "reads are left");
    }
}

fn hedged(config: &mut DuplicatesConfig) {
    config.hedge = Some(HedgeConfig { budget_share: 0.5, ..HedgeConfig::default() });
}

#[test]
fn a_duplicate_that_stands_still_is_avoided() {
    let mut world = World::start(3, |_| {});
    let mut stuck = 0;
    for n in 0..300 {
        world.at(n);
        let client = world.client();
        assert!(world.tell(client, &["GET", "k"]));
        if world.waiting(1)[1] > stuck {
            stuck += 1;
            continue; // it waits for ever
        }
        assert!(world.serve(0, ConnectionKind::Free) || world.serve(2, ConnectionKind::Free));
        assert_eq!(world.heard(client), "$-1\r\n");
    }
    assert_eq!(stuck, 1, "the first read that it did not answer was the last");
}

#[test]
fn a_hedge_leaves_for_a_slow_one_and_the_losers_reply_is_nobodys() {
    let mut world = World::start(2, hedged);
    let client = world.client();
    for n in 1..=200 {
        world.at(10 * n);
        assert!(world.tell(client, &["GET", "k"]));
        world.at(10 * n + 2);
        world.serve_all();
    }
    let taught = "$-1\r\n".repeat(200);
    assert_eq!(world.heard(client), taught);
    world.at(3_000);
    assert!(world.tell(client, &["GET", "k"]));
    let slow = usize::from(world.waiting(1)[1] == 1);
    let due = world.engine.borrow().reads.deadline().expect("a hedge is foreseen");
    let delay = due.since(Instant::from_millis(3_000));
    assert!((2 * MS..=3 * MS).contains(&delay), "{delay:?}");
    assert_eq!(world.waiting(1 - slow)[1], 0);
    world.pass(delay);
    assert_eq!((world.waiting(0)[1], world.waiting(1)[1]), (1, 1));
    world.holds[1 - slow].insert(b"k".to_vec(), 7);
    assert!(world.serve(1 - slow, ConnectionKind::Free));
    assert_eq!(world.heard(client), "$1\r\n7\r\n");
    assert_eq!(world.in_flight(), 1, "the loser is left behind");
    assert!(world.serve(slow, ConnectionKind::Free));
    assert_eq!(world.heard(client), "");
    world.assert_idle();
    let window = world.engine.borrow().reads.dispatcher.window();
    assert_eq!((window.hedges, window.hedges_won, window.answered), (1, 1, 201));
}

#[test]
fn all_copies_leave_at_once_where_that_is_asked_for() {
    let mut world = World::start(3, |config| config.read_copies = 8);
    let client = world.client();
    assert!(world.tell(client, &["GET", "k"]));
    assert_eq!([0, 1, 2].map(|server| world.waiting(server)), [[0, 1]; 3]);
    assert!(world.serve(2, ConnectionKind::Free));
    assert_eq!(world.heard(client), "$-1\r\n");
    world.serve_all();
    assert_eq!(world.heard(client), "");
    world.assert_idle();
}

#[test]
fn replies_are_compared_whole_or_by_their_digest_and_the_command_stays() {
    let text = |length: usize, last: u8| {
        let mut reply = format!("${length}\r\n{}\r\n", "v".repeat(length)).into_bytes();
        let at = reply.len() - 3;
        reply[at] = last;
        reply
    };
    for length in [1, 200, REPLY_BYTES_MAX, 2_000] {
        let mut world = World::start(3, |config| config.read_copies = 8);
        let client = world.client();
        assert!(world.tell(client, &["GET", "k"]));
        let mut inner = world.engine.borrow();
        let (_, read) = inner.reads.open.iter_mut().next().unwrap();
        let command = read.command().to_vec();
        assert_eq!(command, b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
        for (last, differs) in [(b'v', false), (b'v', false), (b'w', true), (b'v', false)] {
            assert_eq!(read.differs(&text(length, last)), differs, "{length} bytes");
        }
        assert!(read.differs(&text(length + 1, b'v')), "{length} bytes and one");
        assert_eq!(read.command(), command);
    }
}

#[test]
fn a_read_waits_for_silence_only_where_somebody_is_left_to_ask() {
    for (copies, is_left) in [(8, false), (2, true), (1, true)] {
        let mut world = World::start(3, |config| config.read_copies = copies);
        let client = world.client();
        assert!(world.tell(client, &["GET", "k"]));
        assert_eq!(world.engine.borrow().reads.deadline().is_some(), is_left, "{copies} copies");
        world.serve_all();
        world.assert_idle();
    }
}

#[test]
fn a_session_is_answered_by_who_has_its_writes_whatever_the_policy_thinks_of_it() {
    let mut world = World::start(3, |_| {});
    let (client, others) = (world.client(), [world.client(), world.client()]);
    assert!(world.tell(client, &["SET", "k", "1"]));
    assert!(world.serve(2, ConnectionKind::Ordered));
    assert_eq!(world.heard(client), "+OK\r\n");
    // Only the third has the write, and it fails and is busy besides.
    for other in others {
        (0..5).for_each(|_| assert!(world.tell(other, &["GET", "k"])));
    }
    for _ in 0..5 {
        assert!(world.tell(client, &["GET", "k"]));
    }
    let waiting = world.waiting(2)[1];
    assert!(waiting >= 5, "{waiting}");
    while world.serve(2, ConnectionKind::Free) {}
    let expected = "$1\r\n1\r\n".repeat(5);
    assert_eq!(world.heard(client), expected);
    // Nobody is left who has it: behind the writes of somebody else.
    world.lose(2, Dropped::Lost);
    assert!(world.tell(client, &["GET", "k"]));
    assert_eq!(world.waiting(0)[0] + world.waiting(1)[0], 3, "behind the write of each");
    world.serve_all();
    assert_eq!(world.heard(client), "$1\r\n1\r\n");
    world.assert_idle();
}

#[test]
fn a_majority_read_asks_a_majority_and_not_the_dispatcher() {
    let level = |config: &mut DuplicatesConfig| {
        config.members.acknowledge = Acknowledge::Majority;
        config.consistency = Consistency::Strong;
    };
    let mut world = World::start(3, level);
    let client = world.client();
    assert!(world.tell(client, &["GET", "k"]));
    let waiting = [0, 1, 2].map(|server| world.waiting(server));
    assert_eq!(waiting, [[1, 0], [1, 0], [0, 0]]);
    assert!(world.serve(1, ConnectionKind::Ordered));
    assert_eq!(world.heard(client), "", "one is no majority");
    assert!(world.serve(0, ConnectionKind::Ordered));
    assert_eq!(world.heard(client), "$-1\r\n");
    assert_eq!(world.engine.borrow().reads.dispatcher.window().opened, 0);
}

#[test]
fn an_ejected_duplicate_gets_every_write_and_no_read() {
    let mut world = World::start(2, |_| {});
    let client = world.client();
    for n in 0..40 {
        world.at(1_000 * n); // suspicion fades, failures in a row do not
        assert!(world.tell(client, &["GET", "k"]));
        if world.waiting(0)[1] > 0 {
            assert!(world.answer(0, ConnectionKind::Free, Some("LOADING a test")));
        }
        assert!(world.serve(1, ConnectionKind::Free), "the other one is asked then");
        assert_eq!(world.heard(client), "$-1\r\n");
        let inner = world.engine.borrow();
        if inner.reads.dispatcher.fleet().replica(ReplicaId::new(0)).ejected_until() > inner.now {
            break;
        }
    }
    for n in 0..100 {
        let value = n.to_string();
        assert!(world.tell(client, &["SET", &value, &value]));
        assert!(world.tell(client, &["GET", "other"]));
    }
    assert_eq!(world.waiting(0), [100, 0]);
    let [writes, free] = world.waiting(1);
    assert_eq!(writes + free, 200);
    let mut inner = world.engine.borrow();
    assert_eq!(inner.members.state(0), ReplicaState::InSync);
    let balance = inner.read_balance();
    assert!(balance.stats.replica(0).is_ejected && !balance.stats.replica(1).is_ejected);
    assert_eq!(balance.stats.total.replicas[0].ejections, 1);
}

#[test]
fn an_excuse_is_the_answer_when_nobody_has_a_better_one() {
    let mut world = World::start(2, |_| {});
    let client = world.client();
    assert!(world.tell(client, &["GET", "k"]));
    for _ in 0..2 {
        let server = usize::from(world.waiting(1)[1] == 1);
        assert!(world.answer(server, ConnectionKind::Free, Some("BUSY a script")));
    }
    assert_eq!(world.heard(client), "-BUSY a script\r\n");
    world.assert_idle();
}

#[test]
fn what_the_command_is_to_blame_for_is_an_answer() {
    let mut world = World::start(2, |_| {});
    let client = world.client();
    for error in ["WRONGTYPE no list", "ERR unknown command 'LCS'"] {
        assert!(world.tell(client, &["GET", "k"]));
        let server = usize::from(world.waiting(1)[1] == 1);
        assert!(world.answer(server, ConnectionKind::Free, Some(error)));
        assert_eq!(world.heard(client), format!("-{error}\r\n"));
    }
    let balance = world.engine.borrow().read_balance();
    assert!(balance.stats.total.replicas.iter().all(|counts| counts.failed == 0));
    world.assert_idle();
}

#[test]
fn a_read_goes_to_another_when_its_duplicate_dies() {
    let mut world = World::start(3, |_| {});
    let client = world.client();
    (0..30).for_each(|_| assert!(world.tell(client, &["GET", "k"])));
    assert_eq!(world.in_flight(), 30);
    world.lose(0, Dropped::Silent);
    assert_eq!(world.in_flight(), 30);
    assert_eq!((world.waiting(1)[1], world.waiting(2)[1]), (15, 15));
    world.lose(1, Dropped::Lost);
    assert_eq!(world.waiting(2)[1], 30);
    (0..20).for_each(|_| assert!(world.serve(2, ConnectionKind::Free)));
    world.lose(2, Dropped::Lost);
    world.assert_idle();
    let heard = world.heard(client);
    let gone = "-UNAVAILABLE the duplicates that were asked are gone; ask again\r\n";
    assert_eq!((heard.matches("$-1\r\n").count(), heard.matches(gone).count()), (20, 10));
    assert!(world.tell(client, &["GET", "k"]));
    let refused = world.heard(client);
    assert_eq!(refused, "-UNAVAILABLE none of 3 duplicates is live\r\n");
}

#[test]
fn nothing_is_left_of_a_client_that_leaves() {
    let mut world = World::start(2, hedged);
    let client = world.client();
    (0..10).for_each(|_| assert!(world.tell(client, &["GET", "k"])));
    world.engine.borrow().dismiss(client);
    world.lose(1, Dropped::Lost); // its reads are nobody's: they are not sent again
    assert_eq!(world.in_flight(), 5);
    world.serve_all();
    world.assert_idle();
}

/// On the ordered connection a copy would see what was sent before it, also what the client sent
/// after it.
#[test]
fn an_ordered_read_is_not_sent_again_behind_its_clients_write() {
    for writes in [false, true] {
        let mut world = World::start(2, |config| config.consistency = Consistency::Strong);
        let client = world.client();
        assert!(world.tell(client, &["GET", "k"]));
        let asked = usize::from(world.waiting(1)[0] == 1);
        if writes {
            assert!(world.tell(client, &["SET", "k", "1"]), "it does not wait");
        }
        world.lose(asked, Dropped::Lost);
        world.serve_all();
        let heard = world.heard(client);
        let expected = if writes { "-UNAVAILABLE" } else { "$-1\r\n" };
        assert!(heard.starts_with(expected), "{heard}");
        world.assert_idle();
    }
}

/// One that may overtake is sent again at any time: its client's writes wait for it.
#[test]
fn a_write_waits_for_a_read_that_may_be_sent_again() {
    let policy: Policy =
        "c3:rate_control=on,rate_initial=1,tokens_max=1,rate_min=1".parse().unwrap();
    for policy in [policy, "least-outstanding".parse().unwrap()] {
        let mut world = World::start(2, |config| config.policy = policy);
        world.at(1_000);
        let client = world.client();
        // The policy with its few tokens holds most of them.
        (0..20).for_each(|_| assert!(world.tell(client, &["GET", "k"])));
        assert!(!world.tell(client, &["SET", "k", "1"]));
        world.engine.borrow().release(client);
        assert!(world.tell(client, &["SET", "other", "1"]));
        for _ in 0..10_000 {
            world.serve_all();
            let due = world.engine.borrow().reads.deadline();
            let Some(due) = due else { break };
            world.engine.borrow().now = due;
            world.pass(Duration::ZERO);
        }
        let expected = "$-1\r\n".repeat(20) + "+OK\r\n";
        assert_eq!(world.heard(client), expected);
        world.assert_idle();
    }
}

#[test]
fn deadlines_of_reads_that_are_answered_cost_no_memory() {
    let slow = |config: &mut DuplicatesConfig| {
        let delay_min = Duration::from_secs(30);
        config.hedge = Some(HedgeConfig { delay_min, ..HedgeConfig::default() });
    };
    let mut world = World::start(2, slow);
    let client = world.client();
    for n in 0..5_000 {
        world.at(n);
        assert!(world.tell(client, &["GET", "k"]));
        world.serve_all();
        let dues = world.engine.borrow().reads.dues.len();
        assert!(dues <= DUES_MIN + 4, "{dues}");
    }
    let expected = "$-1\r\n".repeat(5_000);
    assert_eq!(world.heard(client), expected);
    assert_eq!(world.engine.borrow().reads.deadline(), None);
    assert!(world.engine.borrow().reads.texts.len() <= 2);
}

/// What happens next; numbers choose among what there is.
#[derive(Clone, Debug)]
enum Event {
    Write(usize),
    Read(usize, usize),
    Serve(usize, bool),
    CannotServe(usize),
    Lose(usize, bool),
    Reach(usize),
    Pass(u64),
    Leave(usize),
}

const CLIENTS: usize = 3;

fn events() -> impl Strategy<Value = Vec<Event>> {
    let (client, server) = (|| 0..CLIENTS, || 0..3_usize);
    let event = prop_oneof![
        20 => client().prop_map(Event::Write),
        40 => (client(), client()).prop_map(|(client, key)| Event::Read(client, key)),
        80 => (server(), any::<bool>()).prop_map(|(server, free)| Event::Serve(server, free)),
        3 => server().prop_map(Event::CannotServe),
        2 => (server(), any::<bool>()).prop_map(|(server, silent)| Event::Lose(server, silent)),
        8 => server().prop_map(Event::Reach),
        20 => (0..20_u64).prop_map(Event::Pass),
        1 => client().prop_map(Event::Leave),
    ];
    prop::collection::vec(event, 1..300)
}

/// One client and what it waits for.
struct Reader {
    id: ClientId,
    /// Commands that were sent and not answered: a write, or the key that is read, what must be
    /// seen of it at least, and what must not.
    waits: VecDeque<Option<(usize, u64, u64)>>,
    /// By key, what it has written or seen.
    seen: [u64; CLIENTS],
}

impl Reader {
    fn new(id: ClientId) -> Self {
        Self { id, waits: VecDeque::new(), seen: [0; CLIENTS] }
    }

    /// Takes what it was answered and judges it.
    fn hear(&mut self, heard: &str, is_session: bool) {
        let mut lines = heard.split_terminator("\r\n");
        while let Some(line) = lines.next() {
            let awaited = self.waits.pop_front().expect("an answer to nothing");
            let value = match (line, awaited) {
                ("+OK", None) => continue,
                (line, _) if line.starts_with("-UN") || line.starts_with("-LOADING") => continue,
                ("$-1", Some(_)) => 0,
                (_, Some(_)) => lines.next().unwrap().parse().unwrap(),
                (line, None) => panic!("a write was answered {line}"),
            };
            let (key, least, below) = awaited.unwrap();
            assert!(value < below, "it sees what its client wrote behind it");
            if is_session {
                assert!(value >= least, "its session had seen more when it asked");
                self.seen[key] = self.seen[key].max(value);
            }
        }
    }
}

/// Sends a client's next command. Only it writes the key of its number, and numbers rise.
fn send(world: &mut World, reader: &mut Reader, number: usize, key: Option<usize>, next: &mut u64) {
    match key {
        Some(key) => {
            if world.tell(reader.id, &["GET", &key.to_string()]) {
                reader.waits.push_back(Some((key, reader.seen[key], u64::MAX)));
            }
        }
        None => {
            if world.tell(reader.id, &["SET", &number.to_string(), &next.to_string()]) {
                for wait in reader.waits.iter_mut().flatten().filter(|wait| wait.0 == number) {
                    wait.2 = wait.2.min(*next);
                }
                reader.waits.push_back(None);
                if world.all.get(number.to_string().as_bytes()) == Some(next) {
                    reader.seen[number] = *next; // it was not refused
                }
                *next += 1;
            }
        }
    }
}

fn live_through(level: Consistency, copies: u8, has_hedge: bool, events: &[Event]) {
    let mut world = World::start(3, |config| {
        (config.consistency, config.read_copies) = (level, copies);
        if has_hedge {
            hedged(config);
        }
    });
    let mut readers: Vec<Reader> = (0..CLIENTS).map(|_| Reader::new(world.client())).collect();
    let is_session = level != Consistency::Eventual;
    let mut next = 1;
    for event in events {
        match *event {
            Event::Write(client) => {
                send(&mut world, &mut readers[client], client, None, &mut next);
            }
            Event::Read(client, key) => {
                send(&mut world, &mut readers[client], client, Some(key), &mut next);
            }
            Event::Serve(server, free) => {
                world.serve(server, CONNECTIONS[usize::from(free)]);
            }
            Event::CannotServe(server) => {
                world.answer(server, ConnectionKind::Free, Some("LOADING a test"));
            }
            Event::Lose(server, silent) => {
                world.lose(server, if silent { Dropped::Silent } else { Dropped::Lost });
            }
            Event::Reach(server) => {
                let state = world.engine.borrow().members.state(server);
                if state == ReplicaState::Disconnected {
                    world.reach(server);
                }
            }
            Event::Pass(ms) => world.pass(Duration::from_millis(ms)),
            Event::Leave(client) => {
                world.engine.borrow().dismiss(readers[client].id);
                readers[client] = Reader::new(world.client());
            }
        }
        for reader in &mut readers {
            reader.hear(&world.heard(reader.id), is_session);
        }
        world.in_flight(); // agrees with what is owed
    }
    world.serve_all();
    world.pass(Duration::from_secs(60));
    world.serve_all();
    for reader in &mut readers {
        reader.hear(&world.heard(reader.id), is_session);
        assert!(reader.waits.is_empty(), "not answered: {:?}", reader.waits);
    }
    world.assert_idle();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Whatever happens, every command is answered once and in its turn, sessions never go
    /// backwards, no read sees what its client wrote behind it, and nothing is left in the end.
    #[test]
    fn every_read_is_answered_as_its_session_may_expect(
        level in prop::sample::select(vec![
            Consistency::Eventual, Consistency::ReadMyOwnWrites, Consistency::Strong,
        ]),
        copies in prop::sample::select(vec![1_u8, 2, 8]),
        has_hedge: bool,
        events in events(),
    ) {
        live_through(level, copies, has_hedge, &events);
    }
}
