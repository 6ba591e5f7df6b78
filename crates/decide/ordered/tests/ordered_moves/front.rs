//! The sequencer: what it knows, and what it does with clients and servers.

use evenkeel_core::Instant;
use evenkeel_core::request::partition::ShardMap;
use evenkeel_ordered::{
    Acknowledge, ConnectionKind, Consistency, Copies, Epoch, History, Members, MembersConfig,
    Position, Rejoin, ReplicaState, Sequence, ServerSet, Session, Treatment,
};

use super::reckoning::{Read, Written};
use super::world::{Answer, CLIENTS, Command, Record, SHARDS, Server, World};

pub fn shard_of(key: u8) -> usize {
    usize::from(key) % SHARDS
}

/// A write on its way: of its owner's stream and, while its shard moves, of the target's.
#[derive(Clone, Debug)]
pub struct Call {
    write: u64,
    of: Sequence,
    partition: usize,
    copies: Copies,
    mirror: Option<Mirror>,
}

#[derive(Clone, Copy, Debug)]
pub struct Mirror {
    of: Sequence,
    partition: usize,
    copies: Copies,
    is_needed: bool,
}

pub struct Front {
    pub members: Members,
    pub history: History,
    pub map: ShardMap,
    pub calls: Vec<Call>,
    pub sessions: Vec<Session>,
    /// How often clients had to connect anew.
    pub term: u64,
}

impl Front {
    pub fn new(level: Acknowledge, history: History, map: ShardMap, partitions: &[usize]) -> Self {
        let config =
            MembersConfig { acknowledge: level, owed_max: 1_000, ..MembersConfig::default() };
        let members = Members::new(config, partitions);
        let term = history.last().epoch.0;
        let sessions = vec![Session::default(); CLIENTS];
        Self { members, history, map, calls: Vec::new(), sessions, term }
    }
}

/// What a client wants its reads to see.
pub fn consistency(client: usize) -> Consistency {
    [Consistency::Strong, Consistency::ReadMyOwnWrites][client % 2]
}

impl World {
    /// Gives a command its place in a partition's stream and sends it.
    pub fn stream(&mut self, partition: usize, to: ServerSet, command: &Command) -> Sequence {
        let position = self.front.history.advance();
        self.last_of[partition] = Some(position);
        self.log.push(Record { position, partition, command: command.clone() });
        for server in to.iter() {
            self.servers[server].connection.push_back((Some(position), command.clone()));
            self.front.members.sent(Instant::ZERO, server, Some(position.sequence));
        }
        position.sequence
    }

    pub fn write(&mut self, client: usize, key: u8) {
        let shard = shard_of(key);
        let partition = self.front.map.partition(shard);
        let Ok((to, _)) = self.front.members.takers(partition) else { return };
        let needs_both = self.moves(shard) && self.mover.as_ref().unwrap().moving.needs_both();
        if needs_both {
            let target = self.mover.as_ref().unwrap().moving.to();
            if self.front.members.takers(target).is_err() {
                return; // refused: nobody knows who will be the owner
            }
        }
        let write = self.written.len() as u64 + 1;
        let command = Command::Append(key, write);
        let of = self.stream(partition, to, &command);
        let copies = Copies::sent(to);
        let term = self.front.term;
        self.written.push(Written { key, client, term, asked: self.now, reported: None });
        let mut call = Call { write, of, partition, copies, mirror: None };
        let mut seen = of;
        if self.moves(shard)
            && let Some(mirror) = self.mirror(key, &command, needs_both)
        {
            seen = mirror.of;
            call.mirror = Some(mirror);
        }
        self.front.sessions[client].saw(seen);
        self.front.calls.push(call);
        self.settle();
    }

    fn moves(&self, shard: usize) -> bool {
        self.mover.as_ref().is_some_and(|mover| mover.moving.shard() == shard)
    }

    /// The target's part of a write.
    fn mirror(&mut self, key: u8, command: &Command, is_needed: bool) -> Option<Mirror> {
        let Command::Append(_, write) = *command else { unreachable!("of a client") };
        let mover = self.mover.as_mut().unwrap();
        let (partition, bytes) = (mover.moving.to(), write.to_le_bytes());
        match mover.moving.write(&[u128::from(key)], &bytes)? {
            Treatment::Send => {}
            Treatment::Hold => return None,
            Treatment::Ask => {
                self.ask(key);
                return None;
            }
        }
        let Ok((to, _)) = self.front.members.takers(partition) else {
            self.abandon();
            return None;
        };
        let of = self.stream(partition, to, command);
        Some(Mirror { of, partition, copies: Copies::sent(to), is_needed })
    }

    /// Asks one of those who may answer, whichever that is.
    pub fn read(&mut self, client: usize, key: u8, first: usize) {
        let (level, session) = (consistency(client), self.front.sessions[client]);
        let partition = self.front.map.partition(shard_of(key));
        let Ok(eligible) = self.front.members.eligible(partition, level, session) else { return };
        let read = self.reads.len();
        let server = eligible.from.iter().nth(first % eligible.from.len()).unwrap();
        let (term, life) = (self.front.term, self.logs_lost);
        self.reads.push(Read { key, client, term, life, asked: self.now, answer: None });
        match eligible.connection {
            ConnectionKind::Ordered => {
                self.servers[server].connection.push_back((None, Command::Read(read, key)));
            }
            ConnectionKind::Free => self.servers[server].free.push_back((read, key)),
        }
        self.front.members.sent(Instant::ZERO, server, None);
    }

    pub fn overtake(&mut self, server: usize) {
        if !self.is_there(server) {
            return;
        }
        let Some((read, key)) = self.servers[server].free.pop_front() else { return };
        let list = self.servers[server].holds.get(&key).cloned().unwrap_or_default();
        self.front.members.answered(Instant::ZERO, server, None);
        self.was_read(server, read, list);
    }

    fn was_read(&mut self, server: usize, read: usize, list: Vec<u64>) {
        let client = self.reads[read].client;
        let seen = self.front.members.sent_to(server);
        self.front.sessions[client].saw(seen);
        self.reads[read].answer = Some((self.now, list));
    }

    pub fn hear(&mut self, server: usize) {
        if !self.is_there(server) {
            return;
        }
        let Some(answer) = self.servers[server].answers.pop_front() else { return };
        match answer {
            Answer::Write(of) => {
                self.front.members.answered(Instant::ZERO, server, Some(of));
                for call in &mut self.front.calls {
                    let mirror = call.mirror.as_mut().filter(|it| it.of == of);
                    let copies = match mirror {
                        Some(mirror) => Some(&mut mirror.copies),
                        None => (call.of == of).then_some(&mut call.copies),
                    };
                    if let Some(copies) = copies
                        && copies.owed().contains(server)
                    {
                        copies.answer(server);
                    }
                }
                self.settle();
            }
            Answer::Dump(key, number, list) => {
                self.front.members.answered(Instant::ZERO, server, None);
                self.arrived(key, number, list);
            }
            Answer::Read(read, list) => {
                self.front.members.answered(Instant::ZERO, server, None);
                self.was_read(server, read, list);
            }
        }
    }

    fn settle(&mut self) {
        let (level, members, now) = (self.level, &self.front.members, self.now);
        let written = &mut self.written;
        self.front.calls.retain(|call| {
            let voters = members.voters(call.partition);
            let mirror = call.mirror.filter(|mirror| mirror.is_needed);
            let there = mirror.is_none_or(|mirror| {
                mirror.copies.is_acknowledged(level, members.voters(mirror.partition))
            });
            let is_done = there && call.copies.is_acknowledged(level, voters);
            if is_done {
                written[call.write as usize - 1].reported = Some(now);
            }
            !is_done && !call.copies.is_hopeless(level, voters)
        });
    }

    pub fn cut(&mut self, server: usize) {
        if !self.is_there(server) {
            return;
        }
        self.servers[server].cut();
        if self.front.members.state(server) == ReplicaState::Disconnected {
            return;
        }
        self.front.members.drop_server(server);
        for call in &mut self.front.calls {
            call.copies.lose(server);
            if let Some(mirror) = &mut call.mirror {
                mirror.copies.lose(server);
            }
        }
        self.settle();
        self.lost_source(server);
    }

    pub fn reach(&mut self, server: usize) {
        if !self.is_there(server) || self.front.members.state(server) != ReplicaState::Disconnected
        {
            return;
        }
        let partition = self.servers[server].partition;
        let has_source = !self.front.members.live(partition).is_empty();
        let (watermark, holds_data) = {
            let server = &self.servers[server];
            (server.watermark, !server.holds.is_empty())
        };
        let opened = self.opened[partition];
        if watermark.is_none() && opened.next() >= self.front.history.held_from() {
            return self.replay(server, opened); // its stream begins there
        }
        match self.front.history.rejoin(watermark, holds_data, has_source) {
            Rejoin::Replay { after } => self.replay(server, after),
            Rejoin::Copy => self.copy(server),
            Rejoin::Restore => {
                let is_burnt = self.servers[server].is_burnt;
                self.servers[server] = Server { is_burnt, ..Server::empty(partition) };
                self.replay(server, Sequence(0));
            }
            Rejoin::Wait => {}
            other => panic!("{other:?} of a server that was ours all along"),
        }
    }

    fn replay(&mut self, server: usize, after: Sequence) {
        let partition = self.servers[server].partition;
        self.front.members.reached(server, after);
        for Record { position, partition: of, command } in &self.log {
            if *of == partition && position.sequence > after {
                self.servers[server].connection.push_back((Some(*position), command.clone()));
                self.front.members.sent(Instant::ZERO, server, Some(position.sequence));
            }
        }
        self.front.members.caught_up(server, self.front.history.last().sequence);
        if self.servers[server].watermark.is_none() {
            let position = self.front.history.position(after);
            self.servers[server].watermark = Some(position);
        }
    }

    /// As of the source's whole connection: what `Copying` does key by key.
    fn copy(&mut self, server: usize) {
        let partition = self.servers[server].partition;
        let source = self.front.members.live(partition).first().unwrap();
        let mut as_of = Server { holds: self.servers[source].holds.clone(), ..Server::default() };
        as_of.connection = self.servers[source].connection.clone();
        while !as_of.connection.is_empty() {
            as_of.apply_next();
        }
        self.front.members.reached(server, Sequence(0));
        self.servers[server].holds = as_of.holds;
        let last = self.front.history.last().sequence;
        self.servers[server].watermark = Some(self.front.history.position(last));
        self.servers[server].is_burnt = false;
        self.front.members.caught_up(server, last);
    }

    /// The old sequencer is fenced off: its connections are cut. Without the log the furthest
    /// server of each partition is its history, as long as enough answer to be sure that one has
    /// all that was acknowledged.
    pub fn replace(&mut self, with_log: bool) {
        let with_log = with_log || !(0..self.opened.len()).all(|it| self.is_promised(it));
        (0..self.servers.len()).for_each(|server| self.cut(server));
        // Nobody knows of joining duplicates but the one that is gone.
        self.servers.iter_mut().for_each(|server| server.is_there &= !server.is_joining);
        // What was on its way to the map's store is refused there from now on.
        (self.mover, self.storing, self.outcome) = (None, None, None);
        let epoch = Epoch(self.front.history.last().epoch.0 + 1);
        let mut history = self.front.history.clone();
        if !with_log {
            history = self.founded(epoch);
            self.log.clear();
            self.logs_lost += 1;
        } else {
            history.begin_epoch(epoch);
        }
        let partitions: Vec<usize> = self.servers.iter().map(|it| it.partition).collect();
        let map = self.stored.clone();
        let mut front = Front::new(self.level, history, map, &partitions);
        while front.members.partitions() < self.opened.len() {
            front.members.add_partition();
        }
        let gone = (0..self.servers.len()).filter(|&server| !self.servers[server].is_there);
        gone.for_each(|server| front.members.retire(server));
        front.term = epoch.0;
        self.front = front;
    }

    fn is_promised(&self, partition: usize) -> bool {
        let counts = |it: &&Server| it.is_there && !it.is_joining && it.partition == partition;
        let servers = self.servers.iter().filter(counts);
        let burnt = servers.clone().filter(|server| server.is_burnt).count();
        let count = servers.clone().count();
        let is_known = servers.clone().any(|server| server.watermark.is_some());
        match self.level {
            Acknowledge::One => false,
            Acknowledge::Majority => is_known && burnt <= count / 2 && burnt < count,
            Acknowledge::All => is_known && burnt == 0,
        }
    }

    fn founded(&mut self, epoch: Epoch) -> History {
        let furthest = self.servers.iter().filter_map(|it| it.watermark).max().unwrap();
        let history = Position { epoch, sequence: furthest.sequence };
        for partition in 0..self.opened.len() {
            let servers = (0..self.servers.len())
                .filter(|&it| self.is_there(it) && self.servers[it].partition == partition);
            let base = servers.max_by_key(|&it| self.servers[it].watermark).unwrap();
            self.servers[base].watermark = Some(history);
            self.last_of[partition] = Some(history);
        }
        History::from_watermark(history)
    }

    /// It no longer counts; what it has the others must have before that is written down.
    pub fn remove_duplicate(&mut self, server: usize) {
        if !self.is_there(server) {
            return;
        }
        let partition = self.servers[server].partition;
        let last = self.front.history.last().sequence;
        let mut rest = self.front.members.clone();
        rest.drop_server(server);
        rest.retire(server);
        if rest.has_applied(partition, last) {
            self.front.members.dismiss(server);
            self.cut(server);
            self.front.members.retire(server);
            self.servers[server].is_there = false;
        }
    }
}

impl Server {
    /// One command of a copy of a connection; nobody is answered.
    fn apply_next(&mut self) {
        match self.connection.pop_front() {
            Some((_, Command::Append(key, write))) => {
                self.holds.entry(key).or_default().push(write);
            }
            Some((_, Command::Put(key, Some(list)))) => drop(self.holds.insert(key, list)),
            Some((_, Command::Put(key, None))) => drop(self.holds.remove(&key)),
            _ => {}
        }
    }
}
