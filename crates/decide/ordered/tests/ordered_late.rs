//! A sequencer that was stopped and wakes while another has taken over: it does not know it, and
//! some duplicates still answer it. What it tells strong readers must have been true nonetheless,
//! at some moment between their question and the answer.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::VecDeque;

use evenkeel_core::Instant;
use evenkeel_ordered::{
    Acknowledge, Consistency, Copies, Members, MembersConfig, Sequence, ServerSet, Session,
};
use proptest::prelude::*;

const SERVERS: usize = 3;
const LEVEL: Acknowledge = Acknowledge::Majority;

/// Which sequencer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Who {
    Early,
    Late,
}

#[derive(Clone, Debug)]
enum Event {
    Write(Who),
    /// With so many copies at most.
    Read(Who, usize),
    /// A server does the next thing on a sequencer's connection and is heard.
    Apply(Who, usize),
    /// The late sequencer claims a server: it raises the epoch and ends the early one's connection.
    Claim(usize),
    /// The early sequencer notices that its connection is broken.
    Notice(usize),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let who = || prop_oneof![Just(Who::Early), Just(Who::Late)];
    let server = || 0..SERVERS;
    let event = prop_oneof![
        4 => who().prop_map(Event::Write),
        4 => (who(), 1..=SERVERS).prop_map(|(who, copies)| Event::Read(who, copies)),
        16 => (who(), server()).prop_map(|(who, server)| Event::Apply(who, server)),
        2 => server().prop_map(Event::Claim),
        1 => server().prop_map(Event::Notice),
    ];
    prop::collection::vec(event, 1..150)
}

type Write = u64;

#[derive(Clone, Copy, Debug)]
enum Job {
    Write(usize),
    Read(usize),
}

/// One access of a sequencer.
#[derive(Clone, Debug)]
struct Call {
    copies: Copies,
    needs: Acknowledge,
    write: Option<Write>,
    /// What was acknowledged, to anybody, before it began.
    known: Vec<Write>,
    /// What the first answer saw.
    saw: Option<Vec<Write>>,
    is_told: bool,
}

struct Sequencer {
    members: Members,
    connections: Vec<VecDeque<Job>>,
    calls: Vec<Call>,
    sequence: u64,
}

#[derive(Clone, Debug, Default)]
struct Server {
    holds: Vec<Write>,
    is_claimed: bool,
}

struct World {
    servers: Vec<Server>,
    early: Sequencer,
    late: Sequencer,
    /// Or seen by a strong reader.
    acknowledged: Vec<Write>,
    written: u64,
}

impl Sequencer {
    fn new() -> Self {
        let config = MembersConfig { acknowledge: LEVEL, ..MembersConfig::default() };
        let members = Members::new(config, &[0; SERVERS]);
        let connections = vec![VecDeque::new(); SERVERS];
        Self { members, connections, calls: Vec::new(), sequence: 0 }
    }

    fn is_live(&self, server: usize) -> bool {
        self.members.live(0).contains(server)
    }

    fn make_live(&mut self, server: usize) {
        self.members.reached(server, Sequence(self.sequence));
        self.members.caught_up(server, Sequence(self.sequence));
    }

    fn send(&mut self, to: ServerSet, job: impl Fn(usize) -> Job, mut call: Call) {
        let write = call.write.map(|_| {
            self.sequence += 1;
            Sequence(self.sequence)
        });
        call.copies = Copies::sent(to);
        for server in to.iter() {
            self.connections[server].push_back(job(self.calls.len()));
            self.members.sent(Instant::ZERO, server, write);
        }
        self.calls.push(call);
    }

    fn drop_server(&mut self, server: usize) {
        self.connections[server].clear();
        if self.is_live(server) {
            self.members.drop_server(server);
            let owed = self.calls.iter_mut().filter(|call| call.copies.owed().contains(server));
            owed.for_each(|call| call.copies.lose(server));
        }
    }
}

impl World {
    fn new() -> Self {
        let mut early = Sequencer::new();
        (0..SERVERS).for_each(|server| early.make_live(server));
        Self {
            servers: vec![Server::default(); SERVERS],
            early,
            late: Sequencer::new(),
            acknowledged: Vec::new(),
            written: 0,
        }
    }

    fn sequencer(&mut self, who: Who) -> &mut Sequencer {
        match who {
            Who::Early => &mut self.early,
            Who::Late => &mut self.late,
        }
    }

    fn step(&mut self, event: &Event) -> Result<(), TestCaseError> {
        match *event {
            Event::Write(who) => self.write(who),
            Event::Read(who, copies) => self.ask(who, copies),
            Event::Apply(who, server) => self.apply(who, server)?,
            Event::Claim(server) => self.claim(server),
            Event::Notice(server) => {
                if self.servers[server].is_claimed {
                    self.early.drop_server(server);
                }
            }
        }
        Ok(())
    }

    fn call(&self, needs: Acknowledge, write: Option<Write>) -> Call {
        let (copies, known) = (Copies::default(), self.acknowledged.clone());
        Call { copies, needs, write, known, saw: None, is_told: false }
    }

    fn write(&mut self, who: Who) {
        let Ok((to, _)) = self.sequencer(who).members.takers(0) else { return };
        self.written += 1;
        let call = self.call(LEVEL, Some(self.written));
        self.sequencer(who).send(to, Job::Write, call);
    }

    fn ask(&mut self, who: Who, copies: usize) {
        let members = &self.sequencer(who).members;
        let eligible = members.eligible(0, Consistency::Strong, Session::default());
        let Ok(eligible) = eligible else { return };
        let to = members.quorum(0, &eligible, copies);
        let call = self.call(eligible.needs, None);
        self.sequencer(who).send(to, Job::Read, call);
    }

    fn apply(&mut self, who: Who, server: usize) -> Result<(), TestCaseError> {
        if who == Who::Early && self.servers[server].is_claimed {
            return Ok(()); // its connection ended there, whether it has noticed or not
        }
        let Some(job) = self.sequencer(who).connections[server].pop_front() else { return Ok(()) };
        let (Job::Write(place) | Job::Read(place)) = job;
        let holds = &mut self.servers[server].holds;
        let of = match who {
            Who::Early => &mut self.early,
            Who::Late => &mut self.late,
        };
        let call = &mut of.calls[place];
        holds.extend(call.write);
        call.copies.answer(server);
        call.saw.get_or_insert_with(|| holds.clone());
        of.members.answered(Instant::ZERO, server, None);
        if call.is_told || !call.copies.is_acknowledged(call.needs, of.members.voters(0)) {
            return Ok(());
        }
        call.is_told = true;
        match call.write {
            Some(write) if self.acknowledged.contains(&write) => {}
            Some(write) => self.acknowledged.push(write),
            None => {
                let saw = call.saw.clone().unwrap();
                let lacks = call.known.iter().find(|it| !saw.contains(it));
                prop_assert!(lacks.is_none(), "{:?} reads {:?} without {:?}", who, saw, lacks);
                // What somebody has read must be there for whoever begins to read from now on.
                let is_news = |it: &Write| !self.acknowledged.contains(it);
                let news: Vec<Write> = saw.into_iter().filter(is_news).collect();
                self.acknowledged.extend(news);
            }
        }
        Ok(())
    }

    /// The first two are made equal to the one that has more; whoever comes later is filled.
    fn claim(&mut self, server: usize) {
        if self.servers[server].is_claimed {
            return;
        }
        self.servers[server].is_claimed = true;
        let claimed: Vec<usize> = (0..SERVERS).filter(|&it| self.servers[it].is_claimed).collect();
        if claimed.len() <= SERVERS / 2 {
            return;
        }
        let source = claimed.iter().copied().find(|&it| self.late.is_live(it));
        let base = source.unwrap_or_else(|| {
            claimed.iter().copied().max_by_key(|&it| self.servers[it].holds.len()).unwrap()
        });
        for &joiner in claimed.iter().filter(|&&it| !self.late.is_live(it)) {
            let mut holds = self.servers[base].holds.clone();
            let connection = self.late.connections[base].iter();
            let on_their_way = connection.filter_map(|job| match job {
                Job::Write(place) => self.late.calls[*place].write,
                Job::Read(_) => None,
            });
            // What the source holds after all it was sent.
            holds.extend(on_their_way.filter(|_| joiner != base));
            self.servers[joiner].holds = holds;
        }
        for joiner in claimed {
            if !self.late.is_live(joiner) {
                self.late.make_live(joiner);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    /// Every strong read sees what was acknowledged, or read, before it began, whoever was asked.
    #[test]
    fn a_sequencer_that_wakes_late_tells_no_reader_what_is_over(events in events()) {
        let mut world = World::new();
        for event in &events {
            world.step(event)?;
        }
    }
}
