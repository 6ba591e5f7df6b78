//! Shards that move, duplicates and partitions that come and go, while servers crash, lose their
//! machines and come back, and sequencers are replaced with and without their log. Clients write
//! and read all the while. Whatever happens, nothing acknowledged is lost, nothing is applied
//! twice, strong reads are linearizable, sessions see what they wrote and never go back, and in the
//! end all duplicates of a partition are equal.
//!
//! A key holds the list of writes appended to it, so one read tells all that it has seen.

#![expect(clippy::unwrap_used, reason = "a test may fail")]
#![allow(unreachable_pub, reason = "rooms of a test")]

#[path = "ordered_moves/front.rs"]
mod front;
#[path = "ordered_moves/mover.rs"]
mod mover;
#[path = "ordered_moves/reckoning.rs"]
mod reckoning;
#[path = "ordered_moves/world.rs"]
mod world;

use evenkeel_ordered::Acknowledge;
use proptest::prelude::*;
use world::World;

/// What happens next; numbers choose among what is possible.
#[derive(Clone, Debug)]
enum Event {
    Write {
        client: usize,
        key: u8,
    },
    /// Of those who may answer, this one does.
    Read {
        client: usize,
        key: u8,
        first: usize,
    },
    /// A server applies the next things on its ordered connection.
    Apply(usize),
    /// The sequencer hears the next answers of a server.
    Hear(usize),
    /// A server answers the next read that overtakes.
    Overtake(usize),
    /// A connection breaks: what was not applied is lost, and so are answers on their way.
    Cut(usize),
    /// A server loses its machine: it comes back with nothing.
    Burn(usize),
    /// A server is reached and brought up to date.
    Reach(usize),
    /// Another sequencer takes over; with the log, or from the watermarks alone.
    Replace {
        with_log: bool,
    },
    /// Somebody asks for a move.
    Move {
        shard: usize,
        to: usize,
    },
    /// The move goes on.
    Step,
    /// The map that is on its way to its store is there; or it got lost.
    Store {
        arrives: bool,
    },
    /// The sequencer learns what became of it.
    Learn,
    /// The operator gives up on a move.
    Abandon,
    AddDuplicate(usize),
    /// One that was added and has everything counts from now on.
    Admit(usize),
    RemoveDuplicate(usize),
    AddPartition,
    /// For a moment all goes well, but with those that lag.
    Calm,
    /// These do all that they were sent, and are heard.
    Work {
        servers: u8,
    },
    /// These apply nothing on their ordered connections until others do; reads that overtake they
    /// answer.
    Lag {
        servers: u8,
    },
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let server = || 0..world::SERVERS_AT_MOST;
    let (client, key) = (|| 0..world::CLIENTS, || 0..world::KEYS);
    let event = prop_oneof![
        60 => (client(), key()).prop_map(|(client, key)| Event::Write { client, key }),
        40 => read(),
        120 => server().prop_map(Event::Apply),
        120 => server().prop_map(Event::Hear),
        40 => server().prop_map(Event::Overtake),
        1 => server().prop_map(Event::Cut),
        2 => server().prop_map(Event::Burn),
        60 => server().prop_map(Event::Reach),
        2 => any::<bool>().prop_map(|with_log| Event::Replace { with_log }),
        16 => (0..world::SHARDS, 0..4_usize).prop_map(|(shard, to)| Event::Move { shard, to }),
        120 => Just(Event::Step),
        40 => prop::bool::weighted(0.8).prop_map(|arrives| Event::Store { arrives }),
        40 => Just(Event::Learn),
        1 => Just(Event::Abandon),
        1 => (0..4_usize).prop_map(Event::AddDuplicate),
        20 => server().prop_map(Event::Admit),
        1 => server().prop_map(Event::RemoveDuplicate),
        1 => Just(Event::AddPartition),
        50 => Just(Event::Calm),
    ];
    prop::collection::vec(event, 1..400)
}

fn read() -> impl Strategy<Value = Event> {
    let which = (0..world::CLIENTS, 0..world::KEYS, 0..4_usize);
    which.prop_map(|(client, key, first)| Event::Read { client, key, first })
}

/// One shard that goes to and fro, with no other trouble than duplicates that lag and a sequencer
/// that is replaced in the end, without its log: what nobody but the log has is missing then.
fn hand_overs() -> impl Strategy<Value = Vec<Event>> {
    // Two keys of the shard that moves most, and one of another.
    let key = || prop_oneof![Just(0_u8), Just(world::SHARDS as u8), Just(1)];
    let access = move || {
        let write = (0..world::CLIENTS, key());
        let write = write.prop_map(|(client, key)| Event::Write { client, key });
        let read = (0..world::CLIENTS, key(), 0..4_usize);
        let read = read.prop_map(|(client, key, first)| Event::Read { client, key, first });
        prop_oneof![write, read]
    };
    let few = any::<[u8; 2]>().prop_map(|[one, other]| Event::Lag { servers: one & other });
    let begin = (0..2_usize).prop_map(|to| Event::Move { shard: 0, to });
    let turn = (
        prop::collection::vec(access(), 0..4),
        prop::option::weighted(0.2, few),
        prop::option::weighted(0.5, begin),
        any::<[u8; 2]>().prop_map(|[one, other]| Event::Work { servers: one | other }),
        prop::collection::vec(Just(Event::Step), 0..3),
        prop::option::of(Just(Event::Store { arrives: true })),
        prop::option::of(Just(Event::Learn)),
    );
    let turn = turn.prop_map(|(accesses, lag, begin, work, steps, store, learn)| {
        let mut turn: Vec<Event> = begin.into_iter().chain(lag).chain(accesses).collect();
        turn.push(work);
        turn.extend(steps.into_iter().chain(store).chain(learn));
        turn
    });
    let replace = prop::option::of(Just(Event::Replace { with_log: false }));
    (prop::collection::vec(turn, 1..20), replace)
        .prop_map(|(turns, replace)| turns.concat().into_iter().chain(replace).collect())
}

fn check(level: Acknowledge, events: &[Event]) -> Result<(), TestCaseError> {
    let mut world = World::new(level);
    for event in events {
        world.step(event);
        reckoning::nothing_twice(&world)?;
    }
    world.calm();
    reckoning::final_state(&world)?;
    reckoning::reads(&world)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn nothing_acknowledged_is_lost_while_shards_move(
        level in prop_oneof![
            Just(Acknowledge::One), Just(Acknowledge::Majority), Just(Acknowledge::All)
        ],
        events in events(),
    ) {
        check(level, &events)?;
    }
}

#[test]
fn nobody_who_lags_is_believed_too_early_when_a_shard_is_handed_over() {
    use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
    // The same histories every time: it is known that they find what they are for.
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(ProptestConfig::with_cases(10_000), rng);
    let levels =
        prop_oneof![Just(Acknowledge::One), Just(Acknowledge::Majority), Just(Acknowledge::All)];
    let reported = runner.run(&(levels, hand_overs()), |(level, events)| check(level, &events));
    reported.unwrap();
}

/// The histories are worth something only if moves come to their end in them, under trouble too.
#[test]
fn moves_come_to_their_end_in_such_histories() {
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut done, mut abandoned, mut reads) = (0, 0, 0);
    for _ in 0..300 {
        let events = events().new_tree(&mut runner).unwrap().current();
        let mut world = World::new(Acknowledge::Majority);
        events.iter().for_each(|event| world.step(event));
        done += world.moves_done;
        abandoned += world.moves_abandoned;
        reads += world.reads.len();
    }
    assert!(done > 150 && abandoned > 50 && reads > 3_000, "{done} {abandoned} {reads}");
}
