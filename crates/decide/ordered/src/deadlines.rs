//! When keys expire: at one place in the order of writes, at all duplicates.
//!
//! Each duplicate removes a key by its own clock. A write that comes near that moment would find
//! the key at one and not at another, and they would differ from then on. So the front knows the
//! deadlines, and **its decision comes first**: a key counts as expired as soon as *any* duplicate
//! may have removed it, and is then removed by a write of its own (`DEL`), which has a place in the
//! order as every write has. Otherwise no duplicate has removed it yet.
//!
//! **Signal**: the time of the front, plus by how much the fastest clock of a duplicate may be
//! ahead of it ([`Clocks`]). **Why not the front's time alone?** A duplicate that is ahead has lost
//! the value already, and nothing brings it back. **Why not wait until all have removed it?** A
//! counter with a short deadline would stand still for the difference of the clocks each time.
//!
//! **What is known** is more than what is so: `EXPIRE` may have found no key, `SET NX` one that was
//! there. What is not sure is asked of one duplicate behind all writes, once it matters: shortly
//! before the deadline (`NEAR_MS`). So a key without a deadline costs nothing, and one with a
//! deadline that is far away the time of noting it.
//!
//! **Late duplicates**: a write whose key is still alive may reach a duplicate that stood still
//! after the deadline, which then makes a new key of it. So who writes near a deadline says that
//! deadline again behind the write ([`Deadlines::restated`]), for a key that has none: then the new
//! key expires at once, and the duplicate says that it was one. Where a majority says so, the
//! client is told that nothing was done.
//! **What this does not mend**: a write that takes the value beyond its deadline (`PERSIST`,
//! `EXPIRE`, `RENAME`) at a duplicate that is later than the `MARGIN_MS`; such a duplicate answers
//! otherwise than the others, and is found (`divergence.rs`).
//!
//! **Cold start**: a front knows no deadlines. Until all keys were listed once, it asks before the
//! first write of each key. **Limit**: beyond `KEYS_MAX` the deadlines that are farthest away are
//! forgotten, and all keys are listed again before the first of these.
//!
//! **Source**: a replica of Redis never expires a key; it waits for its primary's `DEL`
//! (redis.io, `EXPIRE`, "How expires are handled in the replication link"). Here the duplicates
//! are no replicas, so the `DEL` has to come before the first of them expires the key.

use std::collections::{BTreeMap, BTreeSet};

use super::ServerSet;

/// Within so many ms before a deadline it is asked for where it is not sure, and said again behind
/// writes: as long as a duplicate may stand still and stay live.
pub(crate) const NEAR_MS: i64 = 1_000;
/// What is so far away is not near a second later, by any clock that agrees within another second.
const FAR_MS: i64 = NEAR_MS + 2_000;
/// What a write may take to a duplicate beside the difference of the clocks.
pub(crate) const MARGIN_MS: i64 = 5;
/// A clock that was not read yet is taken to be so far from ours.
const UNREAD_MS: i64 = 100;
/// A reading that is older says nothing against a new one.
const READING_MS: i64 = 10_000;
/// Keys whose deadlines are known: some 100 MB.
pub(crate) const KEYS_MAX: usize = 1 << 20;
/// So long before the first forgotten deadline all keys are listed again.
const RELIST_MS: i64 = 60_000;
/// No deadline.
const NEVER: i64 = i64::MAX;

/// What is to be done with a key before a command is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judgement {
    /// Nothing: it is alive everywhere, or nowhere.
    Leave,
    /// It has expired: remove it.
    Remove,
    /// Ask one duplicate for its deadline.
    Ask,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known {
    /// The key may be another one, without it, or not be there.
    Perhaps,
    /// The key is there and has this deadline.
    Sure,
    /// The question of this number is on its way, and no write since makes its answer old.
    Asked(u64),
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The first that is possible, in ms since 1970.
    at: i64,
    /// The last that is possible.
    last: i64,
    known: Known,
}

/// Bits of a key's number that are its hash; its database is above them.
const HASH_BITS: u32 = u64::BITS - 8;

/// The number of a key of this database that has this hash.
#[inline]
pub const fn deadline_key(database: u8, hash: u64) -> u64 {
    ((database as u64) << HASH_BITS) | (hash >> (u64::BITS - HASH_BITS))
}

/// Deadlines of keys, each by its number ([`deadline_key`]).
///
/// **Limit**: two keys of one database have the same number once in 2⁵⁶ pairs. Then the deadline of
/// the one may be forgotten with the other's.
#[derive(Clone, Debug)]
pub struct Deadlines {
    by_key: BTreeMap<u64, Entry>,
    by_time: BTreeSet<(i64, u64)>,
    /// Every key with a deadline before `forgotten_from` is here.
    is_complete: bool,
    forgotten_from: i64,
    keys_max: usize,
    questions: u64,
    /// How far clocks of duplicates may be ahead of ours and behind it, in ms.
    lead: i64,
    lag: i64,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self::new(KEYS_MAX)
    }
}

impl Deadlines {
    /// Those of a front that knows none, for so many keys.
    pub const fn new(keys_max: usize) -> Self {
        Self {
            by_key: BTreeMap::new(),
            by_time: BTreeSet::new(),
            is_complete: false,
            forgotten_from: NEVER,
            keys_max,
            questions: 0,
            lead: UNREAD_MS + MARGIN_MS,
            lag: UNREAD_MS + MARGIN_MS,
        }
    }

    /// How many are known.
    pub fn len(&self) -> usize {
        self.by_time.len()
    }

    /// Whether nothing is known, nor asked for: a write makes no difference to it then.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Whether every key that may have a deadline is known.
    pub const fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// By how many ms a key may expire before its deadline by the front's clock.
    pub const fn lead_ms(&self) -> i64 {
        self.lead
    }

    /// The clocks were read.
    pub fn read(&mut self, clocks: &Clocks, live: ServerSet) {
        (self.lead, self.lag) = clocks.bounds(live);
    }

    /// Whether no key has to be looked at now: none has a deadline that is near.
    #[inline]
    pub fn is_quiet(&mut self, now_unix_ms: i64) -> bool {
        self.forget_past(now_unix_ms);
        let first = self.by_time.first();
        self.is_complete
            && first.is_none_or(|(at, _)| *at > now_unix_ms.saturating_add(NEAR_MS.max(self.lead)))
    }

    /// The same by a time that may be up to a second old, for less than a reading of the clock.
    #[inline]
    pub fn is_far(&self, about_unix_ms: i64) -> bool {
        let first = self.by_time.first();
        self.is_complete && first.is_none_or(|(at, _)| *at > about_unix_ms.saturating_add(FAR_MS))
    }

    /// Those that have passed by every clock: the keys are gone everywhere.
    fn forget_past(&mut self, now_unix_ms: i64) {
        while let Some(&(at, key)) = self.by_time.first()
            && at.saturating_add(self.lag) < now_unix_ms
        {
            let last = self.by_key.get(&key).map_or(at, |entry| entry.last);
            match last.saturating_add(self.lag) < now_unix_ms {
                true => self.remove(key),
                false => self.put(key, Entry { at: last, last, known: Known::Perhaps }),
            }
        }
    }

    /// What a command does that writes this key.
    pub fn before_write(&self, key: u64, now_unix_ms: i64) -> Judgement {
        let Some(entry) = self.by_key.get(&key) else {
            return if self.is_complete { Judgement::Leave } else { Judgement::Ask };
        };
        let is_sure = entry.known == Known::Sure;
        let is_due = entry.at <= now_unix_ms.saturating_add(self.lead);
        let is_near = entry.at <= now_unix_ms.saturating_add(NEAR_MS);
        match (is_sure, is_due) {
            (true, true) => Judgement::Remove,
            (true, false) => Judgement::Leave,
            (false, _) if is_due || is_near => Judgement::Ask,
            (false, _) => match entry.known {
                Known::Asked(_) if entry.at == NEVER => Judgement::Ask,
                _ => Judgement::Leave,
            },
        }
    }

    /// The same of one that reads it: only what is over counts.
    pub fn before_read(&self, key: u64, now_unix_ms: i64) -> Judgement {
        match self.by_key.get(&key) {
            Some(entry) if entry.at <= now_unix_ms.saturating_add(self.lead) => {
                self.before_write(key, now_unix_ms)
            }
            _ => Judgement::Leave,
        }
    }

    /// Number of a question for the deadline of this key.
    pub fn ask(&mut self, key: u64) -> u64 {
        let known = self.by_key.get(&key).copied();
        let entry = known.unwrap_or(Entry { at: NEVER, last: NEVER, known: Known::Perhaps });
        if let Known::Asked(number) = entry.known {
            return number;
        }
        self.questions += 1;
        self.put(key, Entry { known: Known::Asked(self.questions), ..entry });
        self.questions
    }

    /// A duplicate has answered this question: -2 for no key, -1 for no deadline. Whether the key
    /// is to be removed.
    pub fn answered(&mut self, key: u64, number: u64, said: i64, now_unix_ms: i64) -> bool {
        let entry = self.by_key.get(&key).copied();
        let Some(entry) = entry.filter(|entry| entry.known == Known::Asked(number)) else {
            return false;
        };
        let due = now_unix_ms.saturating_add(self.lead);
        if said >= 0 {
            self.put(key, Entry { at: said, last: said, known: Known::Sure });
            return said <= due;
        }
        let is_gone_here = said == -2;
        // It may be alive at another, if it had a deadline that is over at who said it.
        let is_expired = is_gone_here && (entry.at <= due || entry.at == NEVER);
        self.cleared(key);
        is_expired
    }

    /// Nobody answers this question.
    pub fn unanswered(&mut self, key: u64, number: u64) {
        let entry = self.by_key.get(&key).copied();
        if let Some(entry) = entry.filter(|entry| entry.known == Known::Asked(number)) {
            match entry.at {
                NEVER => self.remove(key),
                _ => self.put(key, Entry { known: Known::Perhaps, ..entry }),
            }
        }
    }

    /// A write has set the key, with this deadline.
    pub fn set(&mut self, key: u64, at: i64) {
        self.put(key, Entry { at, last: at, known: Known::Sure });
    }

    /// A write has given the key this deadline, if it was there.
    pub fn moved(&mut self, key: u64, at: i64) {
        let is_there = |entry: &Entry| entry.known == Known::Sure && entry.at != NEVER;
        let is_sure = self.by_key.get(&key).is_some_and(is_there);
        let known = if is_sure && at > 0 { Known::Sure } else { Known::Perhaps };
        self.put(key, Entry { at, last: at, known });
    }

    /// The key may have this deadline now, or what it had.
    pub fn perhaps(&mut self, key: u64, at: i64) {
        let entry = self.by_key.get(&key).copied();
        let entry = entry.filter(|entry| entry.at != NEVER);
        if entry.is_some_and(|entry| entry.known == Known::Sure && entry.at == at) {
            return; // either way it is this one
        }
        let (first, last) = entry.map_or((at, at), |entry| (entry.at.min(at), entry.last.max(at)));
        self.put(key, Entry { at: first, last, known: Known::Perhaps });
    }

    /// The key has no deadline, or is not there.
    pub fn cleared(&mut self, key: u64) {
        match self.is_complete || self.by_key.len() >= self.keys_max {
            true => self.remove(key),
            // Nobody has to ask for it.
            false => self.put(key, Entry { at: NEVER, last: NEVER, known: Known::Sure }),
        }
    }

    /// A write may have removed the key, or made another one of it.
    pub fn changed(&mut self, key: u64) {
        if let Some(entry) = self.by_key.get_mut(&key) {
            match entry.at {
                NEVER if matches!(entry.known, Known::Asked(_)) => self.remove(key),
                NEVER => {} // none before, none now
                _ => entry.known = Known::Perhaps,
            }
        }
    }

    /// A key may be where another was, with its deadline.
    pub fn carried(&mut self, from: u64, to: u64) {
        let at = self.by_key.get(&from).map(|entry| (entry.at, entry.last));
        self.changed(from);
        self.changed(to);
        if let Some((at, last)) = at.filter(|(at, _)| *at != NEVER) {
            self.perhaps(to, at);
            self.perhaps(to, last);
        }
    }

    /// All keys are gone.
    pub fn clear(&mut self) {
        self.by_key.clear();
        self.by_time.clear();
    }

    /// All keys of this database are gone.
    pub fn clear_database(&mut self, database: u8) {
        let (first, last) = (deadline_key(database, 0), deadline_key(database, u64::MAX));
        let gone: Vec<u64> = self.by_key.range(first..=last).map(|(&key, _)| key).collect();
        gone.into_iter().for_each(|key| self.remove(key));
    }

    /// The deadline to say again behind a write that leaves it as it is.
    pub fn restated(&self, key: u64, now_unix_ms: i64) -> Option<i64> {
        let entry = self.by_key.get(&key).filter(|entry| entry.known == Known::Sure)?;
        (entry.at <= now_unix_ms.saturating_add(NEAR_MS)).then_some(entry.at)
    }

    /// A duplicate lists a key with this deadline. What a write since says is newer.
    pub fn listed(&mut self, key: u64, at: i64) {
        if at >= 0 && !self.by_key.contains_key(&key) {
            self.perhaps(key, at);
        }
    }

    /// All keys were listed.
    pub fn complete(&mut self) {
        self.is_complete = true;
        self.by_key.retain(|_, entry| entry.at != NEVER || matches!(entry.known, Known::Asked(_)));
    }

    /// Whether all keys are to be listed: at the beginning, and before what was forgotten is due.
    /// Then they are so again until [`Self::complete`].
    pub fn wants_list(&mut self, now_unix_ms: i64) -> bool {
        if self.forgotten_from <= now_unix_ms.saturating_add(RELIST_MS) {
            (self.is_complete, self.forgotten_from) = (false, NEVER);
        }
        !self.is_complete
    }

    fn remove(&mut self, key: u64) {
        if let Some(entry) = self.by_key.remove(&key) {
            self.by_time.remove(&(entry.at, key));
        }
    }

    fn put(&mut self, key: u64, entry: Entry) {
        if let Some(before) = self.by_key.insert(key, entry)
            && before.at != entry.at
        {
            self.by_time.remove(&(before.at, key));
        }
        if entry.at != NEVER {
            self.by_time.insert((entry.at, key));
        }
        while self.by_time.len() > self.keys_max
            && let Some((at, key)) = self.by_time.pop_last()
        {
            self.by_key.remove(&key);
            self.forgotten_from = self.forgotten_from.min(at);
        }
    }
}

/// What was read of a clock, in µs ahead of ours.
#[derive(Clone, Copy, Debug)]
struct Reading {
    at_least: i64,
    at_most: i64,
    read_unix_ms: i64,
}

/// How far the clocks of duplicates are from ours.
///
/// Who asks for a time knows that it was read between question and answer. The narrowest of the
/// last readings counts, unless a newer one contradicts it: then the clock was set.
#[derive(Clone, Debug, Default)]
pub struct Clocks(BTreeMap<usize, Reading>);

impl Clocks {
    /// A duplicate said its time, which it was asked for at `sent` and which came at `came`, all in
    /// µs since 1970.
    pub fn told(&mut self, server: usize, (sent, came): (i64, i64), told: i64) {
        let (at_least, at_most) = (told.saturating_sub(came), told.saturating_sub(sent));
        let new = Reading { at_least, at_most, read_unix_ms: came / 1_000 };
        let old = self.0.get(&server).filter(|old| {
            let is_fresh = new.read_unix_ms.abs_diff(old.read_unix_ms) <= READING_MS as u64;
            let is_possible = old.at_least <= at_most && at_least <= old.at_most;
            let is_narrower = old.at_most - old.at_least <= at_most.saturating_sub(at_least);
            is_fresh && is_possible && is_narrower
        });
        if old.is_none() {
            self.0.insert(server, new);
        }
    }

    /// By how many ms any of these may be ahead of ours, and behind it, with the margin.
    fn bounds(&self, live: ServerSet) -> (i64, i64) {
        let ms = |us: i64| us.saturating_add(999).div_euclid(1_000).max(0);
        let (mut lead, mut lag) = (0, 0);
        for server in live.iter() {
            let reading = self.0.get(&server);
            let (ahead, behind) = reading.map_or((UNREAD_MS, UNREAD_MS), |reading| {
                (ms(reading.at_most), ms(reading.at_least.saturating_neg()))
            });
            (lead, lag) = (lead.max(ahead), lag.max(behind));
        }
        (lead.saturating_add(MARGIN_MS), lag.saturating_add(MARGIN_MS))
    }

    /// By how many ms the fastest of these is ahead of ours at least: so much too early a time to
    /// live ends there that is counted from our time.
    pub fn ahead_ms(&self, live: ServerSet) -> i64 {
        let readings = live.iter().filter_map(|server| self.0.get(&server));
        readings.map(|reading| reading.at_least.div_euclid(1_000)).max().unwrap_or(0).max(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete() -> Deadlines {
        let mut deadlines = Deadlines::default();
        deadlines.complete();
        deadlines
    }

    #[test]
    fn the_clock_is_within_question_and_answer_and_the_narrowest_reading_counts() {
        let one = ServerSet::only(1);
        let mut clocks = Clocks::default();
        assert_eq!(clocks.bounds(one), (UNREAD_MS + MARGIN_MS, UNREAD_MS + MARGIN_MS));
        clocks.told(1, (1_000_000, 1_010_000), 1_055_000); // 45 to 55 ms ahead
        assert_eq!(clocks.bounds(one), (55 + MARGIN_MS, MARGIN_MS));
        assert_eq!(clocks.ahead_ms(one), 45);
        clocks.told(1, (2_000_000, 2_001_000), 2_051_000); // 50 to 51
        clocks.told(1, (3_000_000, 3_900_000), 3_055_000);
        assert_eq!((clocks.bounds(one).0, clocks.ahead_ms(one)), (51 + MARGIN_MS, 50));
        clocks.told(1, (4_000_000, 4_100_000), 4_000_000); // it was set
        assert_eq!(clocks.bounds(one), (MARGIN_MS, 100 + MARGIN_MS));
        assert_eq!(clocks.bounds(ServerSet::EMPTY), (MARGIN_MS, MARGIN_MS));
    }

    #[test]
    fn what_is_sure_is_removed_and_what_is_not_is_asked_for() {
        let mut deadlines = complete();
        deadlines.set(1, 10_000);
        deadlines.perhaps(2, 10_000);
        assert!(deadlines.is_quiet(8_000));
        for key in [1, 2, 3] {
            assert_eq!(deadlines.before_write(key, 8_000), Judgement::Leave);
        }
        assert!(!deadlines.is_quiet(9_500));
        assert_eq!(deadlines.before_write(1, 9_500), Judgement::Leave);
        assert_eq!(deadlines.before_write(2, 9_500), Judgement::Ask);
        assert_eq!(deadlines.before_read(2, 9_500), Judgement::Leave, "it is alive or not there");
        let due = 10_000 - deadlines.lead_ms();
        assert_eq!(deadlines.before_write(1, due), Judgement::Remove);
        assert_eq!(deadlines.before_read(1, due), Judgement::Remove);
        assert_eq!(deadlines.before_read(2, due), Judgement::Ask);
        assert!(deadlines.is_quiet(10_000 + deadlines.lag + 1), "gone at all");
    }

    #[test]
    fn an_answer_that_a_write_made_old_is_not_believed() {
        let mut deadlines = complete();
        deadlines.perhaps(1, 10_000);
        let number = deadlines.ask(1);
        assert_eq!(deadlines.ask(1), number, "one question for all who wait");
        deadlines.changed(1);
        assert!(!deadlines.answered(1, number, -2, 10_000));
        assert_eq!(deadlines.before_write(1, 9_990), Judgement::Ask);
        let number = deadlines.ask(1);
        assert!(!deadlines.answered(1, number, 12_000, 9_990));
        assert_eq!(deadlines.before_write(1, 9_990), Judgement::Leave);
        assert_eq!(deadlines.restated(1, 11_500), Some(12_000));
        let number = deadlines.ask(1);
        assert!(deadlines.answered(1, number, -2, 12_000), "gone there, alive elsewhere perhaps");
        assert_eq!(deadlines.before_write(1, 12_000), Judgement::Leave);
    }

    #[test]
    fn a_question_from_before_all_keys_were_listed_is_made_old_too() {
        let mut deadlines = Deadlines::default();
        let number = deadlines.ask(1);
        deadlines.listed(1, 10_000);
        deadlines.complete();
        assert!(!deadlines.is_empty(), "its answer is still to come");
        deadlines.cleared(1); // SET k v
        assert!(!deadlines.answered(1, number, 10_000, 10_000), "that was before");
        assert!(deadlines.is_empty());
        assert_eq!(deadlines.before_write(1, 10_000), Judgement::Leave);
    }

    #[test]
    fn a_front_that_has_not_listed_all_keys_asks_for_each_once() {
        let mut deadlines = Deadlines::default();
        assert_eq!(deadlines.before_write(1, 0), Judgement::Ask);
        assert_eq!(deadlines.before_read(1, 0), Judgement::Leave);
        let number = deadlines.ask(1);
        assert_eq!(deadlines.before_write(1, 0), Judgement::Ask, "who comes meanwhile waits too");
        assert!(!deadlines.answered(1, number, -1, 0));
        assert_eq!(deadlines.before_write(1, 0), Judgement::Leave);
        deadlines.listed(1, 5_000);
        deadlines.listed(2, 5_000);
        deadlines.complete();
        assert_eq!(deadlines.before_write(1, 4_900), Judgement::Leave, "what was said is newer");
        assert_eq!(deadlines.before_write(2, 4_900), Judgement::Ask);
    }

    #[test]
    fn a_database_that_is_emptied_forgets_its_own_deadlines() {
        let mut deadlines = complete();
        let keys = [0, 3, 4].map(|database| deadline_key(database, u64::MAX - 7));
        keys.into_iter().for_each(|key| deadlines.set(key, 10_000));
        assert_eq!(deadlines.len(), 3, "one key in each");
        deadlines.clear_database(3);
        let judged = keys.map(|key| deadlines.before_write(key, 10_000));
        assert_eq!(judged, [Judgement::Remove, Judgement::Leave, Judgement::Remove]);
        deadlines.clear_database(0);
        deadlines.clear_database(4);
        assert!(deadlines.is_empty() && deadlines.is_quiet(10_000));
    }

    #[test]
    fn beyond_the_limit_the_farthest_are_forgotten_and_listed_in_time() {
        let mut deadlines = Deadlines::new(2);
        deadlines.complete();
        for (key, at) in [(1, 500_000), (2, 100_000), (3, 200_000)] {
            deadlines.set(key, at);
        }
        assert_eq!(deadlines.len(), 2);
        assert_eq!(deadlines.before_write(3, 199_999), Judgement::Remove);
        assert!(!deadlines.wants_list(500_000 - RELIST_MS - 1));
        assert!(deadlines.wants_list(500_000 - RELIST_MS));
        assert_eq!(deadlines.before_write(1, 440_000), Judgement::Ask);
    }
}
