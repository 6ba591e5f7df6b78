//! Duplicated writes in a small world: servers that crash, lose connections and come back, a
//! sequencer that is replaced with and without its log. Whatever happens, what was acknowledged is
//! at every server in the end, once and in one order.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::VecDeque;

use evenkeel_core::Instant;
use evenkeel_ordered::{
    Acknowledge, Copies, Epoch, History, Members, MembersConfig, Position, Rejoin, ReplicaState,
    Sequence, ServerSet,
};
use proptest::prelude::*;

const SERVERS: usize = 3;

/// What happens next; numbers choose among what is possible.
#[derive(Clone, Debug)]
enum Event {
    Write,
    /// A server applies the next thing on its connection.
    Apply(usize),
    /// The sequencer hears the next answer of a server.
    Hear(usize),
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
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let server = || 0..SERVERS;
    let event = prop_oneof![
        8 => Just(Event::Write),
        12 => server().prop_map(Event::Apply),
        12 => server().prop_map(Event::Hear),
        1 => server().prop_map(Event::Cut),
        1 => server().prop_map(Event::Burn),
        3 => server().prop_map(Event::Reach),
        1 => any::<bool>().prop_map(|with_log| Event::Replace { with_log }),
    ];
    prop::collection::vec(event, 1..250)
}

/// One write: nobody has another of this number.
type Write = u64;

#[derive(Clone, Debug, Default)]
struct Server {
    /// What it holds, in the order of applying: a write that is applied twice is seen.
    holds: Vec<Write>,
    watermark: Option<Position>,
    connection: VecDeque<(Position, Write)>,
    answers: VecDeque<Sequence>,
    /// Its machine was lost, and it has not had everything since.
    is_burnt: bool,
}

struct World {
    level: Acknowledge,
    servers: Vec<Server>,
    members: Members,
    history: History,
    log: Vec<(Position, Write)>,
    /// Writes on their way: their copies, and whether their client was told.
    calls: Vec<(Sequence, Write, Copies)>,
    acknowledged: Vec<Write>,
    written: u64,
}

impl World {
    fn new(level: Acknowledge) -> Self {
        let mut history = History::of_log(Vec::new(), Sequence(1), Sequence(0)).unwrap();
        history.begin_epoch(Epoch(1));
        let mut world = Self {
            level,
            servers: vec![Server::default(); SERVERS],
            members: members(level),
            history,
            log: Vec::new(),
            calls: Vec::new(),
            acknowledged: Vec::new(),
            written: 0,
        };
        (0..SERVERS).for_each(|server| world.reach(server));
        world
    }

    fn step(&mut self, event: &Event) {
        match *event {
            Event::Write => self.write(),
            Event::Apply(server) => self.apply(server),
            Event::Hear(server) => self.hear(server),
            Event::Cut(server) => self.cut(server),
            Event::Burn(server) => self.burn(server),
            Event::Reach(server) => self.reach(server),
            Event::Replace { with_log } => self.replace(with_log),
        }
    }

    fn write(&mut self) {
        let Ok((to, full)) = self.members.takers(0) else { return };
        full.iter().for_each(|server| self.cut(server));
        self.written += 1;
        let position = self.history.advance();
        self.log.push((position, self.written));
        for server in to.iter() {
            self.servers[server].connection.push_back((position, self.written));
            self.members.sent(Instant::ZERO, server, Some(position.sequence));
        }
        self.calls.push((position.sequence, self.written, Copies::sent(to)));
    }

    /// A write and its watermark in one.
    fn apply(&mut self, server: usize) {
        let server = &mut self.servers[server];
        let Some((position, write)) = server.connection.pop_front() else { return };
        server.holds.push(write);
        server.watermark = Some(position);
        server.answers.push_back(position.sequence);
        server.is_burnt &= position != self.history.last();
    }

    fn hear(&mut self, server: usize) {
        let Some(sequence) = self.servers[server].answers.pop_front() else { return };
        self.members.answered(Instant::ZERO, server, Some(sequence));
        let call = self.calls.iter_mut().find(|(of, ..)| *of == sequence);
        if let Some((_, _, copies)) = call
            && copies.owed().contains(server)
        {
            copies.answer(server);
        }
        self.settle();
    }

    fn cut(&mut self, server: usize) {
        self.servers[server].connection.clear();
        self.servers[server].answers.clear();
        if self.members.state(server) == ReplicaState::Disconnected {
            return;
        }
        self.members.drop_server(server);
        self.calls.iter_mut().for_each(|(_, _, copies)| copies.lose(server));
        self.settle();
    }

    fn burn(&mut self, server: usize) {
        self.cut(server);
        self.servers[server] = Server { is_burnt: true, ..Server::default() };
    }

    fn settle(&mut self) {
        let (level, acknowledged) = (self.level, &mut self.acknowledged);
        let voters = self.members.voters(0);
        self.calls.retain(|&(_, write, copies)| {
            let is_done = copies.is_acknowledged(level, voters);
            if is_done {
                acknowledged.push(write);
            }
            !is_done && !copies.is_hopeless(level, voters)
        });
    }

    fn reach(&mut self, server: usize) {
        if self.members.state(server) != ReplicaState::Disconnected {
            return;
        }
        let has_source = !self.members.live(0).is_empty();
        let (watermark, holds_data) = {
            let server = &self.servers[server];
            (server.watermark, !server.holds.is_empty())
        };
        match self.history.rejoin(watermark, holds_data, has_source) {
            Rejoin::Replay { after } => self.replay(server, after),
            Rejoin::Copy => self.copy(server),
            Rejoin::Restore => {
                let is_burnt = self.servers[server].is_burnt;
                self.servers[server] = Server { is_burnt, ..Server::default() };
                self.replay(server, Sequence(0));
            }
            Rejoin::Wait => {}
            other => panic!("{other:?} of a server that was ours all along"),
        }
    }

    fn replay(&mut self, server: usize, after: Sequence) {
        self.members.reached(server, after);
        for &(position, write) in self.log.iter().filter(|(at, _)| at.sequence > after) {
            assert_eq!(self.history.position(position.sequence), position);
            self.servers[server].connection.push_back((position, write));
            self.members.sent(Instant::ZERO, server, Some(position.sequence));
        }
        self.members.caught_up(server, self.history.last().sequence);
    }

    /// As of the source's whole connection: what `Copying` does key by key.
    fn copy(&mut self, server: usize) {
        let source = self.members.live(0).first().unwrap();
        let mut holds = self.servers[source].holds.clone();
        holds.extend(self.servers[source].connection.iter().map(|(_, write)| write));
        self.members.reached(server, Sequence(0));
        self.servers[server].holds = holds;
        self.servers[server].watermark = Some(self.history.position(self.history.last().sequence));
        self.servers[server].is_burnt = false;
        self.members.caught_up(server, self.history.last().sequence);
    }

    /// The old sequencer is fenced off: its connections are cut. Without the log the furthest
    /// server is the history, as long as enough answer to be sure that one has all that was
    /// acknowledged.
    fn replace(&mut self, with_log: bool) {
        let burnt = self.servers.iter().filter(|server| server.is_burnt).count();
        let is_promised = match self.level {
            Acknowledge::One => false,
            Acknowledge::Majority => burnt <= SERVERS / 2,
            Acknowledge::All => burnt == 0,
        };
        let with_log = with_log || !is_promised;
        let has_all =
            |server: &Server| self.acknowledged.iter().all(|it| server.holds.contains(it));
        assert!(with_log || self.servers.iter().any(has_all), "what the level promises");
        (0..SERVERS).for_each(|server| self.cut(server));
        self.calls.clear();
        let epoch = Epoch(self.history.last().epoch.0 + 1);
        if !with_log {
            let watermarks = self.servers.iter().filter_map(|server| server.watermark);
            let Some(furthest) = watermarks.max() else { return };
            self.history = History::from_watermark(furthest);
            self.log.clear();
        }
        self.history.begin_epoch(epoch);
        self.members = members(self.level);
    }

    /// Everybody is reached, everything applied.
    fn calm(&mut self) {
        for _ in 0..3 {
            for server in 0..SERVERS {
                self.reach(server);
                while !self.servers[server].connection.is_empty() {
                    self.apply(server);
                }
                while !self.servers[server].answers.is_empty() {
                    self.hear(server);
                }
            }
        }
    }
}

fn members(level: Acknowledge) -> Members {
    let config = MembersConfig { acknowledge: level, owed_max: 20, ..MembersConfig::default() };
    Members::new(config, &[0; SERVERS])
}

fn check(level: Acknowledge, events: &[Event]) -> Result<(), TestCaseError> {
    let mut world = World::new(level);
    for event in events {
        world.step(event);
        for server in &world.servers {
            let mut once = server.holds.clone();
            once.sort_unstable();
            once.dedup();
            prop_assert_eq!(once.len(), server.holds.len(), "applied twice: {:?}", server);
        }
    }
    world.calm();
    let live: ServerSet = world.members.live(0);
    if live.is_empty() {
        return Ok(()); // all burnt, and the log had forgotten: nobody says otherwise
    }
    prop_assert_eq!(live.len(), SERVERS, "everybody comes back");
    for server in &world.servers {
        prop_assert_eq!(&server.holds, &world.servers[0].holds, "they are equal");
    }
    let lost: Vec<_> =
        world.acknowledged.iter().filter(|it| !world.servers[0].holds.contains(it)).collect();
    prop_assert!(lost.is_empty(), "acknowledged and lost: {:?}", lost);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn what_was_acknowledged_is_everywhere_in_the_end_once(
        level in prop_oneof![
            Just(Acknowledge::One), Just(Acknowledge::Majority), Just(Acknowledge::All)
        ],
        events in events(),
    ) {
        check(level, &events)?;
    }
}
