//! Servers, their connections, and what outlives a sequencer: the log and the map.

use std::collections::{BTreeMap, VecDeque};

use evenkeel_core::request::partition::ShardMap;
use evenkeel_ordered::{Acknowledge, Epoch, History, Position, Sequence};

use super::Event;
use super::front::Front;
use super::mover::Mover;
use super::reckoning::{Read, Written};

pub const SHARDS: usize = 3;
pub const KEYS: u8 = 6;
pub const CLIENTS: usize = 4;
pub const SERVERS_AT_MOST: usize = 8;

/// One write of a client: nobody has another of this number.
pub type Write = u64;
/// What a key holds.
pub type List = Vec<Write>;

#[derive(Clone, Debug)]
pub enum Command {
    Append(u8, Write),
    /// A key as it was elsewhere, or none.
    Put(u8, Option<List>),
    /// For the move of this number.
    Dump(u8, u64),
    Read(usize, u8),
}

/// What a server has said.
#[derive(Clone, Debug)]
pub enum Answer {
    Write(Sequence),
    Dump(u8, u64, Option<List>),
    Read(usize, List),
}

#[derive(Clone, Debug, Default)]
pub struct Server {
    pub partition: usize,
    pub is_there: bool,
    pub holds: BTreeMap<u8, List>,
    pub watermark: Option<Position>,
    pub connection: VecDeque<(Option<Position>, Command)>,
    pub answers: VecDeque<Answer>,
    /// Reads that overtake: which, and of which key.
    pub free: VecDeque<(usize, u8)>,
    /// Its machine was lost (or it is new), and it has not had everything since.
    pub is_burnt: bool,
    /// The layout that is stored does not have it.
    pub is_joining: bool,
}

impl Server {
    pub fn empty(partition: usize) -> Self {
        Self { partition, is_there: true, is_burnt: true, ..Self::default() }
    }

    fn apply(&mut self) {
        let Some((position, command)) = self.connection.pop_front() else { return };
        if position.is_some() {
            self.watermark = position; // with the write, in one
        }
        let answer = match command {
            Command::Append(key, write) => {
                self.holds.entry(key).or_default().push(write);
                Answer::Write(position.unwrap().sequence)
            }
            Command::Put(key, list) => {
                match list {
                    Some(list) => drop(self.holds.insert(key, list)),
                    None => drop(self.holds.remove(&key)),
                }
                Answer::Write(position.unwrap().sequence)
            }
            Command::Dump(key, number) => Answer::Dump(key, number, self.holds.get(&key).cloned()),
            Command::Read(read, key) => {
                Answer::Read(read, self.holds.get(&key).cloned().unwrap_or_default())
            }
        };
        self.answers.push_back(answer);
    }

    pub fn cut(&mut self) {
        self.connection.clear();
        self.answers.clear();
        self.free.clear();
    }
}

/// A record of the log: a write of one partition's stream.
#[derive(Clone, Debug)]
pub struct Record {
    pub position: Position,
    pub partition: usize,
    pub command: Command,
}

pub struct World {
    pub level: Acknowledge,
    pub servers: Vec<Server>,
    pub log: Vec<Record>,
    /// As it is in its store.
    pub stored: ShardMap,
    /// The last write of each partition.
    pub last_of: Vec<Option<Position>>,
    /// The write after which each partition was opened.
    pub opened: Vec<Sequence>,
    /// On its way to the store.
    pub storing: Option<ShardMap>,
    /// `Some(whether it arrived)`, which the sequencer has not heard yet.
    pub outcome: Option<bool>,
    pub front: Front,
    pub mover: Option<Mover>,
    pub moves_begun: u64,
    pub moves_done: usize,
    pub moves_abandoned: usize,
    pub logs_lost: usize,
    pub now: u64,
    /// Those that apply nothing on their ordered connections, by bit.
    lagging: u8,
    pub written: Vec<Written>,
    pub reads: Vec<Read>,
}

impl World {
    pub fn new(level: Acknowledge) -> Self {
        let mut history = History::of_log(Vec::new(), Sequence(1), Sequence(0)).unwrap();
        history.begin_epoch(Epoch(1));
        let map = ShardMap::even(SHARDS, 2).unwrap();
        let partitions = [0, 0, 1, 1, 1];
        let server = |&partition: &usize| Server { is_burnt: false, ..Server::empty(partition) };
        let mut world = Self {
            level,
            servers: partitions.iter().map(server).collect(),
            log: Vec::new(),
            stored: map.clone(),
            opened: vec![Sequence(0); 2],
            last_of: vec![None; 2],
            storing: None,
            outcome: None,
            front: Front::new(level, history, map, &partitions),
            mover: None,
            moves_begun: 0,
            moves_done: 0,
            moves_abandoned: 0,
            logs_lost: 0,
            now: 0,
            lagging: 0,
            written: Vec::new(),
            reads: Vec::new(),
        };
        (0..world.servers.len()).for_each(|server| world.reach(server));
        world
    }

    pub fn step(&mut self, event: &Event) {
        self.now += 1;
        match *event {
            Event::Write { client, key } => self.write(client, key),
            Event::Read { client, key, first } => self.read(client, key, first),
            Event::Apply(server) => (0..4).for_each(|_| self.apply(self.one(server))),
            Event::Hear(server) => (0..4).for_each(|_| self.hear(self.one(server))),
            Event::Overtake(server) => self.overtake(self.one(server)),
            Event::Cut(server) => self.cut(server),
            Event::Burn(server) => self.burn(server),
            Event::Reach(server) => self.reach(self.one(server)),
            Event::Replace { with_log } => self.replace(with_log),
            Event::Move { shard, to } => self.begin_move(shard, to),
            Event::Step => (0..3).for_each(|_| self.step_move()),
            Event::Store { arrives } => self.store(arrives),
            Event::Learn => self.learn(),
            Event::Abandon => self.abandon(),
            Event::AddDuplicate(partition) => drop(self.add_duplicate(partition)),
            Event::Admit(server) => self.admit(self.one(server)),
            Event::RemoveDuplicate(server) => self.remove_duplicate(server),
            Event::AddPartition => self.add_partition(),
            Event::Calm => self.round(),
            Event::Work { servers } => (0..self.servers.len())
                .filter(|server| servers >> server & 1 == 1)
                .for_each(|server| self.work(server)),
            Event::Lag { servers } => self.lagging = servers,
        }
    }

    const fn one(&self, number: usize) -> usize {
        number % self.servers.len()
    }

    pub fn is_there(&self, server: usize) -> bool {
        self.servers.get(server).is_some_and(|server| server.is_there)
    }

    pub fn apply(&mut self, server: usize) {
        if self.is_there(server) && !self.lags(server) {
            self.servers[server].apply();
            let of = self.servers[server].partition;
            let has_all = self.servers[server].watermark >= self.last_of[of];
            self.servers[server].is_burnt &= !has_all;
        }
    }

    const fn lags(&self, server: usize) -> bool {
        self.lagging >> server & 1 == 1
    }

    fn burn(&mut self, server: usize) {
        if self.is_there(server) {
            self.cut(server);
            self.servers[server] = Server::empty(self.servers[server].partition);
        }
    }

    /// Everybody is reached, everything applied, every move brought to its end.
    pub fn calm(&mut self) {
        self.lagging = 0;
        for _ in 0..60 {
            self.now += 1;
            self.round();
        }
    }

    fn round(&mut self) {
        (0..self.servers.len()).for_each(|server| self.work(server));
        (0..self.servers.len()).for_each(|server| self.admit(server));
        self.step_move();
        self.store(true);
        self.learn();
    }

    fn work(&mut self, server: usize) {
        self.reach(server);
        while !self.servers[server].connection.is_empty() && !self.lags(server) {
            self.apply(server);
        }
        while !self.servers[server].answers.is_empty() {
            self.hear(server);
        }
        while !self.servers[server].free.is_empty() {
            self.overtake(server);
        }
    }

    fn add_duplicate(&mut self, partition: usize) -> Option<usize> {
        let partition = partition % self.opened.len();
        if self.servers.iter().filter(|it| it.is_there).count() >= SERVERS_AT_MOST {
            return None;
        }
        let server = self.front.members.add_joining(partition)?;
        let new = Server { is_joining: true, ..Server::empty(partition) };
        match self.servers.get_mut(server) {
            Some(place) => *place = new,
            None => self.servers.push(new),
        }
        Some(server)
    }

    /// The layout with it is stored, and it counts.
    fn admit(&mut self, server: usize) {
        let is_joining = self.is_there(server) && self.servers[server].is_joining;
        if is_joining && self.front.members.may_admit(server) {
            self.servers[server].is_joining = false;
            self.front.members.admit(server);
        }
    }

    fn add_partition(&mut self) {
        if self.opened.len() < 4 && self.storing.is_none() && self.outcome.is_none() {
            self.front.map = self.front.map.extended();
            self.stored = self.front.map.clone();
            self.front.members.add_partition();
            self.opened.push(self.front.history.last().sequence);
            self.last_of.push(None);
            for _ in 0..2 {
                // It was opened with them.
                let Some(server) = self.add_duplicate(self.opened.len() - 1) else { continue };
                self.servers[server].is_joining = false;
                self.front.members.admit(server);
            }
        }
    }
}
