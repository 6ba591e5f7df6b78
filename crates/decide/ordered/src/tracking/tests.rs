//! Messages one by one, and a model of duplicates that lag and clients that keep what they read.

use std::collections::VecDeque;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const KEYS: [&str; 3] = ["a1", "a2", "b"];
const SERVERS: usize = 2;
const HIGHEST: Sequence = Sequence(u64::MAX);

fn hash(key: &str) -> u64 {
    KEYS.iter().position(|it| *it == key).map_or(0, |at| at as u64)
}

fn read(key: &str, applied: Sequence) -> TrackedRead<'_> {
    let (hash, key) = (hash(key), key.as_bytes());
    TrackedRead { key, hash, partition: 0, applied, look: None }
}

fn names(keys: &[&str]) -> BTreeSet<Name> {
    keys.iter().map(|key| Name::from(key.as_bytes())).collect()
}

fn tracking(options: TrackingOptions<u8>) -> Tracking<u8> {
    let mut tracking = Tracking::default();
    tracking.begin(1, options, [(0, Sequence(0))].into_iter());
    tracking
}

fn wrote(tracking: &mut Tracking<u8>, key: &str, at: u64, writer: Option<(u8, u64)>) {
    tracking.wrote((key.as_bytes(), hash(key)), Sequence(at), writer);
}

#[test]
fn who_read_a_key_is_told_once_of_what_others_write() {
    let mut all = tracking(TrackingOptions::default());
    all.read(1, 0, &read("b", HIGHEST));
    assert!(all.answered(1, 0).is_empty());
    wrote(&mut all, "a1", 1, None);
    assert!(!all.has_messages());
    wrote(&mut all, "b", 2, Some((2, 7)));
    wrote(&mut all, "b", 3, Some((2, 8)));
    assert_eq!(all.take_messages(), [(1, Invalid::Keys(names(&["b"])))]);
    assert_eq!(all.sizes(), [1, 0, 0, 0]);
}

#[test]
fn its_own_write_is_told_behind_the_answer_unless_it_wants_none() {
    for is_noloop in [false, true] {
        let mut all = tracking(TrackingOptions { is_noloop, ..TrackingOptions::default() });
        all.read(1, 0, &read("b", HIGHEST));
        wrote(&mut all, "b", 1, Some((1, 1)));
        assert!(!all.has_messages());
        assert!(all.answered(1, 0).is_empty());
        let told = all.answered(1, 1);
        assert_eq!(told.is_empty(), is_noloop, "{told:?}");
    }
}

#[test]
fn a_write_while_the_answer_is_on_its_way_is_told_twice() {
    let mut all = tracking(TrackingOptions::default());
    all.read(1, 0, &read("b", HIGHEST));
    wrote(&mut all, "b", 1, None);
    let told = Invalid::Keys(names(&["b"]));
    assert_eq!(all.take_messages(), [(1, told.clone())]);
    assert_eq!(all.answered(1, 0), [told]);
    assert!(all.answered(1, 0).is_empty());
}

#[test]
fn what_whoever_answers_may_lack_is_told_behind_the_answer() {
    let mut all = tracking(TrackingOptions::default());
    wrote(&mut all, "b", 5, None);
    for (slot, applied) in [(0, 4), (1, 5)] {
        all.read(1, slot, &read("b", Sequence(applied)));
        assert_eq!(all.answered(1, slot).len(), usize::from(applied < 5));
    }
    all.read(1, 2, &read("b", Sequence(5)));
    all.resent(1, 2, &read("b", Sequence(4)));
    assert_eq!(all.answered(1, 2).len(), 1, "another may have answered");
    let mut late = Tracking::default();
    late.begin(1_u8, TrackingOptions::default(), [(0, Sequence(5))].into_iter());
    late.read(1, 0, &read("b", Sequence(4)));
    assert_eq!(late.answered(1, 0).len(), 1, "it was written before anybody tracked");
}

#[test]
fn prefixes_are_told_together_and_nobody_of_its_own_twice() {
    let prefixes = names(&["a"]);
    let options =
        TrackingOptions { is_bcast: true, prefixes: prefixes.clone(), ..Default::default() };
    let mut all = tracking(options.clone());
    all.begin(2, TrackingOptions { is_noloop: true, ..options }, std::iter::empty());
    wrote(&mut all, "a2", 1, Some((1, 0)));
    wrote(&mut all, "a1", 2, Some((2, 0)));
    wrote(&mut all, "b", 3, None);
    assert_eq!(
        all.take_messages(),
        [(1, Invalid::Keys(names(&["a1"]))), (2, Invalid::Keys(names(&["a2"])))]
    );
    assert_eq!(all.answered(1, 0), [Invalid::Keys(names(&["a2"]))]);
    assert!(all.answered(2, 0).is_empty() && !all.has_messages());
    all.end(1);
    all.end(2);
    assert_eq!((all.is_on(), all.sizes()), (false, [0; 4]));
}

#[test]
fn emptying_is_told_once_however_many_partitions_there_are() {
    let mut all = tracking(TrackingOptions::default());
    all.begin(2, TrackingOptions::default(), std::iter::empty());
    for partition in [0, 1] {
        all.emptied(partition, Sequence(1), Some((1, 4)));
    }
    assert_eq!(all.take_messages(), [(2, Invalid::All)]);
    assert_eq!(all.answered(1, 4), [Invalid::All]);
    all.emptied(0, Sequence(2), Some((1, 5)));
    assert_eq!(all.take_messages(), [(2, Invalid::All)], "another time");
}

#[test]
fn of_too_many_keys_one_after_the_other_is_given_up() {
    let mut all = tracking(TrackingOptions::default());
    all.set_keys_max(2);
    let mut given_up = Vec::new();
    for key in ["a1", "a2", "b", "a1", "a2"] {
        all.read(1, 0, &read(key, HIGHEST));
        assert!(all.answered(1, 0).is_empty());
        given_up.extend(all.take_messages().into_iter().map(|(_, told)| told));
        assert!(all.sizes()[1] <= 2);
    }
    let expected = ["a1", "a2", "b"].map(|key| Invalid::Keys(names(&[key])));
    assert_eq!(given_up, expected);
    all.set_keys_max(1);
    assert_eq!(all.take_messages().len(), 1);
}

#[test]
fn a_key_is_looked_at_when_its_deadline_has_passed() {
    let look = |unix_ms| Some(Look { unix_ms, is_deadline: true });
    let mut all = tracking(TrackingOptions::default());
    all.read(1, 0, &TrackedRead { look: look(50), ..read("b", HIGHEST) });
    all.answered(1, 0);
    assert_eq!(all.overdue(49), None);
    assert_eq!(all.overdue(50), Some((Name::from(&b"b"[..]), true)));
    all.look_at(b"b", look(70));
    all.look_at(b"b", look(60));
    wrote(&mut all, "b", 1, None);
    assert!(!all.has_looks(), "it is another one");
    all.take_messages();
    all.read(1, 1, &read("b", HIGHEST));
    all.expired(b"b");
    assert_eq!(all.take_messages().len(), 1);
}

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Event {
    Read {
        client: usize,
        key: usize,
        server: usize,
    },
    /// Read and then write one key in one transaction.
    Exec {
        client: usize,
        key: usize,
    },
    Write {
        client: usize,
        key: usize,
    },
    Empty {
        client: usize,
    },
    /// A duplicate does the next write.
    Apply {
        server: usize,
    },
    /// A duplicate answers the first read of this client that was not answered by it.
    Answer {
        client: usize,
    },
    /// Another one is asked as well: its answer counts.
    Resend {
        client: usize,
        server: usize,
    },
    /// The first answers of a client are written to it.
    Tell {
        client: usize,
    },
    /// Messages go out.
    Flush,
    /// Tracking begins anew.
    Restart {
        client: usize,
    },
}

fn event() -> impl Strategy<Value = Event> {
    let (client, key, server) = (0..CLIENTS, 0..KEYS.len(), 0..SERVERS);
    prop_oneof![
        4 => (client.clone(), key.clone(), server.clone())
            .prop_map(|(client, key, server)| Event::Read { client, key, server }),
        1 => (client.clone(), key.clone()).prop_map(|(client, key)| Event::Exec { client, key }),
        3 => (client.clone(), key).prop_map(|(client, key)| Event::Write { client, key }),
        1 => client.clone().prop_map(|client| Event::Empty { client }),
        4 => server.clone().prop_map(|server| Event::Apply { server }),
        4 => client.clone().prop_map(|client| Event::Answer { client }),
        1 => (client.clone(), server)
            .prop_map(|(client, server)| Event::Resend { client, server }),
        4 => client.clone().prop_map(|client| Event::Tell { client }),
        2 => Just(Event::Flush),
        1 => client.prop_map(|client| Event::Restart { client }),
    ]
}

/// By client: keeps what it reads; the same, without its own; by prefix; the same, without its own.
const CLIENTS: usize = 4;

fn options_of(client: usize) -> TrackingOptions<usize> {
    let is_bcast = client >= 2;
    let prefixes = if is_bcast { names(&["a", "b"]) } else { BTreeSet::new() };
    TrackingOptions { is_bcast, prefixes, is_noloop: client % 2 == 1, ..Default::default() }
}

/// What a client is owed, in the order of its commands.
struct Waits {
    key: Option<usize>,
    /// Who is asked, and what is told once that has answered.
    server: usize,
    value: Option<u64>,
    is_read: bool,
    is_write: bool,
}

/// Duplicates that lag, and clients that keep what they read.
struct World {
    tracking: Tracking<usize>,
    /// By number: the key, or all; the value of a write is its number.
    writes: Vec<Option<usize>>,
    applied: [usize; SERVERS],
    waits: [VecDeque<Waits>; CLIENTS],
    first: [u64; CLIENTS],
    keeps: [BTreeMap<usize, u64>; CLIENTS],
}

impl World {
    fn new() -> Self {
        let mut tracking = Tracking::default();
        for client in 0..CLIENTS {
            tracking.begin(client, options_of(client), [(0, Sequence(0))].into_iter());
        }
        let waits = std::array::from_fn(|_| VecDeque::new());
        let (first, keeps) = ([0; CLIENTS], std::array::from_fn(|_| BTreeMap::new()));
        Self { tracking, writes: Vec::new(), applied: [0; SERVERS], waits, first, keeps }
    }

    /// The value of a key behind so many writes; 0: there is none.
    fn value(&self, key: usize, applied: usize) -> u64 {
        let last = self.writes[..applied].iter().rposition(|it| it.is_none_or(|it| it == key));
        last.filter(|at| self.writes[*at].is_some()).map_or(0, |at| at as u64 + 1)
    }

    fn slot(&self, client: usize) -> u64 {
        self.first[client] + self.waits[client].len() as u64
    }

    fn write(&mut self, client: usize, key: Option<usize>) {
        let writer = Some((client, self.slot(client)));
        self.writes.push(key);
        let sequence = Sequence(self.writes.len() as u64);
        match key {
            Some(key) => {
                let name = KEYS[key];
                self.tracking.wrote((name.as_bytes(), hash(name)), sequence, writer);
            }
            None => self.tracking.emptied(0, sequence, writer),
        }
    }

    fn hear(&mut self, client: usize, told: Invalid) {
        match told {
            Invalid::All => self.keeps[client].clear(),
            Invalid::Keys(keys) => {
                self.keeps[client].retain(|key, _| !keys.contains(KEYS[*key].as_bytes()));
            }
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Read { client, key, server } => {
                let applied = Sequence(self.applied[server] as u64);
                self.tracking.read(client, self.slot(client), &read(KEYS[key], applied));
                let key = Some(key);
                let waits = Waits { key, server, value: None, is_read: true, is_write: false };
                self.waits[client].push_back(waits);
            }
            Event::Resend { client, server } => {
                let applied = Sequence(self.applied[server] as u64);
                let unanswered = self.waits[client].iter().position(|it| it.value.is_none());
                let Some(at) = unanswered else { return };
                let (slot, waits) = (self.first[client] + at as u64, &mut self.waits[client][at]);
                waits.server = server;
                let Some(key) = waits.key else { return };
                self.tracking.resent(client, slot, &read(KEYS[key], applied));
            }
            Event::Exec { client, key } => {
                let value = self.value(key, self.writes.len());
                self.tracking.read(client, self.slot(client), &read(KEYS[key], HIGHEST));
                self.write(client, Some(key));
                let (key, value) = (Some(key), Some(value));
                let waits = Waits { key, server: 0, value, is_read: true, is_write: true };
                self.waits[client].push_back(waits);
            }
            Event::Write { client, key } => {
                self.write(client, Some(key));
                let (key, value) = (Some(key), Some(0));
                let waits = Waits { key, server: 0, value, is_read: false, is_write: true };
                self.waits[client].push_back(waits);
            }
            Event::Empty { client } => {
                self.write(client, None);
                let (value, is_read, is_write) = (Some(0), false, true);
                let waits = Waits { key: None, server: 0, value, is_read, is_write };
                self.waits[client].push_back(waits);
            }
            Event::Apply { server } => {
                self.applied[server] = self.writes.len().min(self.applied[server] + 1);
            }
            Event::Answer { client } => {
                let unanswered = self.waits[client].iter().position(|it| it.value.is_none());
                let Some(at) = unanswered else { return };
                let (key, server) = (self.waits[client][at].key, self.waits[client][at].server);
                let value = key.map(|key| self.value(key, self.applied[server]));
                self.waits[client][at].value = value;
            }
            Event::Tell { client } => {
                while let Some(waits) = self.waits[client].pop_front_if(|it| it.value.is_some()) {
                    if let (Some(key), Some(value), true) = (waits.key, waits.value, waits.is_read)
                    {
                        self.keeps[client].insert(key, value);
                    }
                    // Who is not told of its own writes looks after them itself.
                    if let (Some(key), true, 1) = (waits.key, waits.is_write, client % 2) {
                        self.keeps[client].remove(&key);
                    }
                    let slot = self.first[client];
                    self.first[client] += 1;
                    for told in self.tracking.answered(client, slot) {
                        self.hear(client, told);
                    }
                }
            }
            Event::Flush => {
                for (client, told) in self.tracking.take_messages() {
                    self.hear(client, told);
                }
            }
            Event::Restart { client } => {
                if self.waits[client].is_empty() {
                    self.tracking.end(client);
                    let sent = Sequence(self.writes.len() as u64);
                    self.tracking.begin(client, options_of(client), [(0, sent)].into_iter());
                    self.keeps[client].clear();
                }
            }
        }
    }

    fn come_to_rest(&mut self) {
        for server in 0..SERVERS {
            self.applied[server] = self.writes.len();
        }
        for client in 0..CLIENTS {
            while self.waits[client].iter().any(|it| it.value.is_none()) {
                self.happen(Event::Answer { client });
            }
            self.happen(Event::Tell { client });
        }
        self.happen(Event::Flush);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Reads come from duplicates that lag, answers wait for those before them, keys are given up:
    /// whatever happens, at rest nobody keeps what is not so.
    #[test]
    fn nobody_keeps_what_was_written_since(
        events in vec(event(), 1..60),
        keys_max in 0..3_usize,
    ) {
        let mut world = World::new();
        world.tracking.set_keys_max(keys_max);
        for event in events {
            world.happen(event);
            let [_, keys, ..] = world.tracking.sizes();
            prop_assert!(keys_max == 0 || keys <= keys_max);
        }
        world.come_to_rest();
        for (client, keeps) in world.keeps.iter().enumerate() {
            for (&key, &value) in keeps {
                let is = world.value(key, world.writes.len());
                prop_assert_eq!(value, is, "client {} keeps {}", client, KEYS[key]);
            }
        }
    }

    /// The same without lag and with one command at a time: nobody is told in vain, as with Redis.
    #[test]
    fn where_nobody_lags_each_message_is_of_what_is_kept(events in vec(event(), 1..60)) {
        let mut world = World::new();
        for event in events {
            let told = match event {
                Event::Read { client, .. } | Event::Write { client, .. } => Some(client),
                _ => None,
            };
            let Some(client) = told else { continue };
            world.happen(event);
            (0..SERVERS).for_each(|server| world.applied[server] = world.writes.len());
            world.happen(Event::Answer { client });
            world.happen(Event::Tell { client });
            for (client, told) in world.tracking.take_messages() {
                let Invalid::Keys(keys) = &told else { continue };
                let is_kept = |key: &Name| {
                    world.keeps[client].keys().any(|kept| KEYS[*kept].as_bytes() == &**key)
                };
                prop_assert!(client >= 2 || keys.iter().all(is_kept), "{} {:?}", client, told);
                world.hear(client, told);
            }
        }
    }
}
