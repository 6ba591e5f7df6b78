//! Channels: who subscribes does so in every group, who publishes does in one.
//!
//! What a transaction or a script publishes is published in its group, so nothing less than all of
//! them would hear everything. `SSUBSCRIBE` is of the group of its channels.

use std::collections::BTreeSet;

use super::super::backend::{Backend, Kind, Owed};
use super::super::joined::Join;
use super::Client;
use super::taking::{Asked, Place};
use evenkeel_stores::resp::commands::Channels;
use evenkeel_stores::resp::locate::CROSSING;

/// Channels of a kind that are listened to from now on, or no more.
#[derive(Debug)]
pub(super) struct Listens {
    kind: Channels,
    names: BTreeSet<Vec<u8>>,
    begins: bool,
}

const fn index(kind: Channels) -> usize {
    match kind {
        Channels::Plain => 0,
        Channels::Patterns => 1,
        Channels::Sharded => 2,
    }
}

impl Client {
    /// Whether it listens to anything.
    pub(super) fn listens(&self) -> bool {
        self.listens.iter().any(|names| !names.is_empty())
    }

    /// Notes what all of its groups have said.
    pub(super) fn note_listens(&mut self, Listens { kind, names, begins }: Listens) {
        let known = &mut self.listens[index(kind)];
        match begins {
            true => known.extend(names),
            false => known.retain(|name| !names.contains(name)),
        }
    }

    /// `PUBLISH`, `SPUBLISH`: behind what its client has written.
    pub(super) fn publish(&mut self, asked: &Asked<'_>) -> bool {
        let group = self.group_of(asked.arguments.at(1));
        let mut others = self.sessions.iter().enumerate();
        if self.owes()
            && others.any(|(at, it)| at != group && it.as_ref().is_some_and(Backend::owes))
        {
            return false;
        }
        self.forward(group, Kind::Write, asked)
    }

    /// The groups of these channels; `None`: several, of what belongs to one.
    fn groups_of(&self, kind: Channels, names: &BTreeSet<Vec<u8>>) -> Option<Vec<usize>> {
        if kind != Channels::Sharded {
            return Some(self.all());
        }
        match self.place_of(names.iter().map(Vec::as_slice)) {
            Place::Nowhere => Some(vec![self.home]),
            Place::In(group) => Some(vec![group]),
            Place::Several => None,
        }
    }

    /// `SUBSCRIBE`, `PSUBSCRIBE`, `SSUBSCRIBE`
    pub(super) fn subscribe(&mut self, kind: Channels, asked: &Asked<'_>) -> bool {
        if self.owes() {
            return false; // what it has asked for before is answered as no message
        }
        let names = asked.arguments.iter().skip(1).map(<[u8]>::to_vec).collect();
        let Some(groups) = self.groups_of(kind, &names) else { return self.refuse(CROSSING.0) };
        let listens = Listens { kind, names, begins: true };
        self.listen(&groups, (listens, asked.arguments.len() - 1), asked)
    }

    /// The same with `UN`; without names, of all of a kind.
    pub(super) fn unsubscribe(&mut self, kind: Channels, asked: &Asked<'_>) -> bool {
        if self.owes() {
            return false;
        }
        let known = &self.listens[index(kind)];
        let named = asked.arguments.len() - 1;
        let names: BTreeSet<Vec<u8>> = match named {
            0 => known.clone(),
            _ => asked.arguments.iter().skip(1).map(<[u8]>::to_vec).collect(),
        };
        let replies = if named == 0 { known.len().max(1) } else { named };
        let groups = match self.listens() {
            false => vec![self.home],
            true => match self.groups_of(kind, &names) {
                Some(groups) => groups,
                None => return self.refuse(CROSSING.0),
            },
        };
        self.listen(&groups, (Listens { kind, names, begins: false }, replies), asked)
    }

    fn listen(
        &mut self,
        groups: &[usize],
        (listens, replies): (Listens, usize),
        asked: &Asked<'_>,
    ) -> bool {
        let place = self.place(Join::First, groups.len());
        if let Some(slot) = self.slot(place) {
            slot.listens = Some(listens);
        }
        for (part, group) in groups.iter().enumerate() {
            let owed = Owed::new(Some((place, part)), asked.bytes, Kind::Listens);
            self.send(*group, owed.with_replies(replies));
        }
        self.is_held = true;
        true
    }
}
