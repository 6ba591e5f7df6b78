//! Commands about keys that they do not name: `KEYS`, `DBSIZE`, `RANDOMKEY`, and `SORT` with
//! patterns.
//!
//! One duplicate of each partition is asked, one that has what the session must see. What is not a
//! client's is left out: our own keys, and keys of a shard that the partition does not hold (any
//! more, or yet). `DBSIZE` counts such keys of a moving shard until they are removed: to tell them
//! apart all keys would have to be listed.

use std::hash::{BuildHasher as _, RandomState};

use super::gather::Join;
use super::types::{ClientId, Form, ParsedCommand};
use super::{Inner, reading};
use evenkeel_stores::resp::commands::refusals::SORT_PATTERNS;
use evenkeel_stores::resp::commands::{self, Command, Repeat, Whole};
use evenkeel_stores::resp::locate::{Location, partitions_in_use};
use evenkeel_stores::resp::reply::Shape;

const BEING_COPIED: &str = "TRYAGAIN keys are being copied: SORT with patterns may not store \
                            meanwhile, ask again later";

impl Inner {
    /// A command about more than the keys that it names.
    pub(super) fn whole(
        &mut self,
        id: ClientId,
        whole: Whole,
        command: &Command,
        parsed: ParsedCommand<'_>,
    ) {
        if let Some(lacks) = self.lacks(parsed.argument(0)) {
            return self.refuse(id, &lacks);
        }
        match whole {
            Whole::Libraries { changes } => self.libraries(id, changes, command, parsed),
            Whole::Flush => self.empty_all(id, command, parsed.arguments().get(1)),
            Whole::Keys => {
                let join = Join::Keys(Box::new(self.map.clone()));
                self.ask_each(id, join, &[b"KEYS", parsed.argument(1)]);
            }
            Whole::Count => self.ask_each(id, Join::Count, &[b"DBSIZE"]),
            Whole::Random => self.ask_each(id, Join::Weigh, &[b"DBSIZE"]),
            Whole::Scan => self.scan(id, None, parsed),
            Whole::ScanPart => match self.locate(command, parsed) {
                Ok(place) => self.scan(id, Some(place.shard), parsed),
                Err(reply) => self.refuse(id, &reply.to_string()),
            },
            Whole::Sort { stores } => self.sort_by_patterns(id, stores, command, parsed),
        }
    }

    fn ask_each(&mut self, id: ClientId, join: Join, words: &[&[u8]]) {
        let key = self.begin_gather(id, Form::One(Shape::Plain), join);
        for partition in partitions_in_use(&self.map) {
            let place = Location::whole(&self.map, partition);
            let client = self.add_part(key, partition, Vec::new());
            self.send_part(client, place, words);
        }
        self.end_gather(key, true);
    }

    /// Draws a key for `RANDOMKEY` from one partition, by its share of all keys.
    pub(super) fn draw_key(&mut self, key: usize, counts: Vec<(usize, u64)>, draws: u32) {
        let all = counts.iter().fold(0_u64, |all, (_, count)| all.saturating_add(*count));
        // Each `RandomState` is keyed anew.
        let mut at = RandomState::new().hash_one(draws) % all.max(1);
        let chosen = counts.iter().find(|(_, count)| {
            let is_here = at < *count;
            at = at.saturating_sub(*count);
            is_here
        });
        let partition = chosen.map_or(0, |&(partition, _)| partition);
        let client = self.add_part(key, partition, Vec::new());
        self.gathers[key].join = Join::Draw(counts, draws + 1);
        match Location::whole(&self.map, partition) {
            Some(place) => self.send_part(client, Some(place), &[b"RANDOMKEY"]),
            None => self.refuse(client, reading::GONE), // its shards have moved away
        }
    }

    /// `SORT` that reads keys it does not name, where all are in one place. What it stores follows
    /// from those keys: no copy may be under way that has an older one of them.
    fn sort_by_patterns(
        &mut self,
        id: ClientId,
        stores: bool,
        command: &Command,
        parsed: ParsedCommand<'_>,
    ) {
        let [partition] = partitions_in_use(&self.map)[..] else {
            return self.refuse(id, SORT_PATTERNS);
        };
        if stores {
            if self.moving.is_some() || self.is_being_copied(partition) {
                return self.refuse(id, BEING_COPIED);
            }
            let mut text = Vec::new();
            parsed.write(&mut text);
            return self.write_one(id, command, Repeat::Once, parsed, &text);
        }
        let mut place = match self.locate(command, parsed) {
            Ok(place) => place,
            Err(reply) => return self.refuse(id, &reply.to_string()),
        };
        place.version = Some(self.map.version());
        let form = Form::One(commands::shape(command, parsed.arguments()));
        let key = self.begin_gather(id, form, Join::First);
        let client = self.add_part(key, partition, Vec::new());
        self.read_at(client, place, command, parsed);
        self.end_gather(key, true);
    }
}
