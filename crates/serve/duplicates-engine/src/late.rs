//! Writes near a deadline, and duplicates that come to them too late.
//!
//! A write that leaves its key there, with its deadline (`INCR`, `HSET`), may reach a duplicate
//! that stood still after that deadline: there it makes a new key. So the deadline is said again
//! behind such a write, for a key that has none ([`evenkeel_ordered::Deadlines::restated`]), and
//! the new key goes at once.
//!
//! Where a majority was too late, the key had expired when they came to the write, and nothing of
//! it stays: it is **done again**, behind a removal of the key if nobody has written it since.
//! Unless its client has sent something since, which must not come before it, or the key has to be
//! asked for: then it is told so.

use std::borrow::Cow;

use evenkeel_ordered::Judgement;
use evenkeel_store_link::expiry::key_of;
use evenkeel_stores::resp::commands::{Command, Repeat};
use evenkeel_stores::resp::replication::Group;
use evenkeel_stores::resp::{databases, deadlines};
use xxhash_rust::xxh3::xxh3_128;

use super::Inner;
use super::types::{ClientId, Form, Late, ParsedCommand, Write};

/// The key had no deadline any more: it was a new one, and is gone by now.
pub(super) const TOO_LATE: &[u8] = b"-UNAVAILABLE the key expired before the duplicates came to \
    this write: nothing of it stays, ask again\r\n";

/// A majority was too late for it.
#[derive(Debug)]
pub(super) struct WasLate {
    /// Who waits, and where its answer goes.
    client: (ClientId, u64),
    form: Form,
    late: Box<Late>,
}

impl Inner {
    /// The deadline that is to be said again behind a command, and the place of its key.
    pub(super) fn deadline_behind<'a>(
        &self,
        database: u8,
        command: &Command,
        parsed: ParsedCommand<'a>,
    ) -> Option<(Cow<'a, [u8]>, i64)> {
        let cannot = self.expiry.deadlines.is_empty() || !self.is_redis();
        if cannot || !deadlines::keeps(command) {
            return None;
        }
        let place = databases::place(database, parsed.arguments().get(1)?);
        let at = self.deadline_again(&place)?;
        Some((place, at))
    }

    fn deadline_again(&self, place: &[u8]) -> Option<i64> {
        let partition = self.partition_of(place);
        let is_away = self.members.configured(partition) != self.members.live(partition);
        let now = (self.expiry.unix_ms)();
        self.expiry.deadlines.restated(key_of(place), now, is_away)
    }

    /// The same behind what one duplicate has done for all, where all it did with a key keeps its
    /// deadline.
    pub(super) fn restate_effects(&self, group: &mut Group) {
        if self.expiry.deadlines.is_empty() || !self.is_redis() {
            return;
        }
        let [mut kept, mut others] = [const { Vec::<Box<[u8]>>::new() }; 2];
        databases::for_each(&group.commands, |known| {
            let Some((database, command, arguments)) = known else { return };
            for place in databases::places(database, command, arguments) {
                let list = if deadlines::keeps(command) { &mut kept } else { &mut others };
                if !list.iter().any(|it| **it == *place) {
                    list.push(Box::from(&*place));
                }
            }
        });
        kept.retain(|place| !others.contains(place));
        for place in &kept {
            let at = self.deadline_again(place);
            let (database, key) = databases::at(place);
            if let Some(at) = at {
                databases::write_within(&mut group.commands, database, |out| {
                    deadlines::write_again(out, key, at);
                });
                group.count += databases::count_within(database);
            }
        }
    }

    /// A majority was too late for a client's write.
    pub(super) fn was_late(&mut self, (id, slot): (ClientId, u64), form: Form, late: Box<Late>) {
        self.late.push(WasLate { client: (id, slot), form, late });
        self.schedule();
    }

    /// Does again what was too late.
    pub(super) fn redo_late(&mut self) {
        for was_late in std::mem::take(&mut self.late) {
            let WasLate { client: (id, slot), form, late } = was_late;
            if self.effects.is_ahead(self.map.partition(late.shard)) {
                self.late.push(WasLate { client: (id, slot), form, late }); // until that is done
                continue;
            }
            // What others wrote since stays: it is looked at the key again.
            let now = (self.expiry.unix_ms)();
            let judgement = self.expiry.deadlines.before_write(key_of(&late.place), now);
            let cannot = judgement == Judgement::Ask || self.pause.is_kept(self.now);
            let Some(client) = self.client(id) else { continue };
            let is_last = client.slots().1 == slot && client.is_waiting(slot);
            if !is_last || client.is_held() || cannot {
                self.reply(id, slot, TOO_LATE, &form);
                continue;
            }
            self.take_back_slot(id);
            if judgement == Judgement::Remove {
                self.remove_expired(id, &late.place);
            }
            self.redo(id, form, &late);
        }
    }

    fn redo(&mut self, id: ClientId, form: Form, late: &Late) {
        let database = databases::at(&late.place).0;
        let mut commands = Vec::new();
        databases::write_within(&mut commands, database, |out| {
            out.extend_from_slice(&late.commands);
        });
        let write = Write {
            commands: &commands,
            count: databases::count_within(database),
            shard: late.shard,
            repeat: if database > 0 { Repeat::Once } else { late.repeat },
            keys: &[xxh3_128(&late.place)],
            key_names: &[&late.place],
            form,
            is_single: true,
        };
        self.write(id, &write);
        self.forget_last_id(xxh3_128(&late.place));
    }
}
