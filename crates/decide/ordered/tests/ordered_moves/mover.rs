//! A move, driven step by step; the decisions are `Moving`'s.

use std::collections::VecDeque;

use evenkeel_core::Instant;
use evenkeel_ordered::{Moving, Phase, Sequence};

use super::front::shard_of;
use super::world::{Command, List, World};

pub struct Mover {
    pub moving: Moving,
    number: u64,
    /// Whom keys are copied from, and what it must have answered before it is enumerated.
    source: Option<(usize, Sequence)>,
    /// Who is asked for its keys once it has answered so much.
    listing: Option<(usize, Sequence)>,
    /// Keys that the enumeration has still to tell of.
    scan: Option<VecDeque<u8>>,
}

impl World {
    pub fn begin_move(&mut self, shard: usize, to: usize) {
        let to = to % self.front.map.partitions();
        let from = self.front.map.partition(shard);
        if self.mover.is_none() && from != to {
            self.moves_begun += 1;
            let moving = Moving::begin(shard, from, to);
            self.mover = Some(Mover {
                moving,
                number: self.moves_begun,
                source: None,
                listing: None,
                scan: None,
            });
        }
    }

    /// Not while the map may have been stored, and not once the target is the owner.
    pub fn abandon(&mut self) {
        let is_possible = self.storing.is_none()
            && self.outcome.is_none()
            && self.mover.as_ref().is_some_and(|it| it.moving.phase() != Phase::Forgetting);
        if is_possible {
            self.mover = None;
            self.moves_abandoned += 1;
        }
    }

    pub fn lost_source(&mut self, server: usize) {
        let source = self.mover.as_ref().and_then(|mover| mover.source);
        let phase = self.mover.as_ref().map(|mover| mover.moving.phase());
        if source.is_some_and(|(source, _)| source == server) && phase == Some(Phase::Copying) {
            self.abandon();
        }
    }

    pub fn step_move(&mut self) {
        let Some(mover) = &self.mover else { return };
        match mover.moving.phase() {
            Phase::Clearing => self.clear(),
            Phase::Copying => self.enumerate(),
            Phase::Mirroring => {}
            Phase::Both => self.begin_storing(),
            Phase::Forgetting => self.forget(),
        }
        let last = self.front.history.last().sequence;
        if let Some(mover) = &mut self.mover {
            mover.moving.advance(&self.front.members, last);
        }
    }

    /// The keys of a shard at a live server of a partition, when it has answered all that it was
    /// sent before it was chosen.
    fn listed(&mut self, partition: usize, shard: usize) -> Option<Vec<u8>> {
        let members = &self.front.members;
        let listing = &mut self.mover.as_mut().unwrap().listing;
        let is_live = |&(server, _): &(usize, Sequence)| members.live(partition).contains(server);
        let Some((server, until)) = listing.filter(is_live) else {
            let least = members.live(partition).iter().min_by_key(|&it| members.owed(it));
            *listing = least.map(|it| (it, members.sent_to(it)));
            return None;
        };
        if members.applied(server) < until || !members.is_settled(server) {
            return None;
        }
        *listing = None;
        let keys = self.servers[server].holds.keys().copied();
        Some(keys.filter(|&key| shard_of(key) == shard).collect())
    }

    fn remove_all(&mut self, partition: usize, shard: usize) -> bool {
        let Some(keys) = self.listed(partition, shard) else { return false };
        for key in keys {
            let Ok((to, _)) = self.front.members.takers(partition) else { return false };
            self.stream(partition, to, &Command::Put(key, None));
        }
        true
    }

    fn clear(&mut self) {
        let moving = &self.mover.as_ref().unwrap().moving;
        let (shard, from, to) = (moving.shard(), moving.from(), moving.to());
        let members = &self.front.members;
        let least = members.live(from).iter().min_by_key(|&it| members.owed(it));
        let Some(source) = least else { return };
        if self.remove_all(to, shard) {
            let until = self.front.members.sent_to(source);
            let mover = self.mover.as_mut().unwrap();
            mover.moving.cleared();
            mover.source = Some((source, until));
        }
    }

    fn enumerate(&mut self) {
        let mover = self.mover.as_mut().unwrap();
        let Some((source, until)) = mover.source else { return };
        let members = &self.front.members;
        if mover.scan.is_none() {
            if members.applied(source) < until || !members.is_settled(source) {
                return;
            }
            let shard = mover.moving.shard();
            let keys = self.servers[source].holds.keys().copied();
            mover.scan = Some(keys.filter(|&key| shard_of(key) == shard).collect());
        }
        match mover.scan.as_mut().and_then(VecDeque::pop_front) {
            Some(key) if mover.moving.seen(u128::from(key)) => self.ask(key),
            Some(_) => {}
            None => mover.moving.enumerated(),
        }
    }

    pub fn ask(&mut self, key: u8) {
        let mover = self.mover.as_ref().unwrap();
        let (source, _) = mover.source.unwrap();
        self.servers[source].connection.push_back((None, Command::Dump(key, mover.number)));
        self.front.members.sent(Instant::ZERO, source, None);
    }

    /// The source has answered with a key.
    pub fn arrived(&mut self, key: u8, number: u64, list: Option<List>) {
        let Some(mover) = self.mover.as_mut().filter(|mover| mover.number == number) else {
            return;
        };
        let (shard_to, arrived) = (mover.moving.to(), mover.moving.arrived(u128::from(key)));
        let Some(held) = arrived else { return };
        let held = held.iter().map(|bytes| u64::from_le_bytes(bytes[..].try_into().unwrap()));
        let held = held.map(|write| Command::Append(key, write));
        for command in std::iter::once(Command::Put(key, list)).chain(held) {
            let Ok((to, _)) = self.front.members.takers(shard_to) else { return self.abandon() };
            self.stream(shard_to, to, &command);
        }
        let last = self.front.history.last().sequence;
        if let Some(mover) = &mut self.mover {
            mover.moving.advance(&self.front.members, last);
        }
    }

    fn begin_storing(&mut self) {
        let moving = &self.mover.as_ref().unwrap().moving;
        let is_free = self.storing.is_none() && self.outcome.is_none();
        if is_free && moving.may_hand_over(&self.front.members) {
            self.storing = self.front.map.moved(moving.shard(), moving.to());
        }
    }

    pub fn store(&mut self, arrives: bool) {
        if let Some(map) = self.storing.take() {
            if arrives {
                self.stored = map;
            }
            self.outcome = Some(arrives);
        }
    }

    pub fn learn(&mut self) {
        match self.outcome.take() {
            Some(true) => {
                let mover = self.mover.as_mut().unwrap();
                mover.moving.handed_over(&mut self.front.members);
                self.front.map = self.stored.clone();
            }
            Some(false) => self.abandon(),
            None => {}
        }
    }

    fn forget(&mut self) {
        let moving = &self.mover.as_ref().unwrap().moving;
        let (shard, from) = (moving.shard(), moving.from());
        // A read that overtakes may have been sent before and be answered yet.
        let is_asked = |&server: &usize| {
            let mut free = self.servers[server].free.iter();
            free.any(|&(_, key)| shard_of(key) == shard)
        };
        if self.front.members.configured(from).iter().any(|server| is_asked(&server)) {
            return;
        }
        if self.remove_all(from, shard) {
            self.mover = None;
            self.moves_done += 1;
        }
    }
}
