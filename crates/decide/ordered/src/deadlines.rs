//! When keys expire: at one place in the order of writes, at all duplicates.
//!
//! Each duplicate removes a key by its own clock. A write that comes near that moment would find
//! the key at one and not at another, and they would differ from then on. So the front knows the
//! deadlines, and **its decision comes first**: a key counts as expired as soon as *any* duplicate
//! may have removed it, and is then removed by a write of its own (`DEL`), which has a place in the
//! order as every write has. Otherwise no duplicate has removed it yet.
//!
//! **Signal**: the time of the front, plus by how much the fastest clock of a duplicate may be
//! ahead of it ([`Clocks`]); so the front's own clock makes no difference, as long as its time goes
//! on evenly: the caller's must be one that nobody sets. **Why not the front's time alone?** A
//! duplicate that is ahead has lost the value already, and nothing brings it back. **Why not wait
//! until all have removed it?** A counter with a short deadline would stand still for the
//! difference of the clocks each time.
//!
//! **What is known** is more than what is so: `EXPIRE` may have found no key, `SET NX` one that was
//! there. What is not sure is asked of one duplicate behind all writes, once it matters: shortly
//! before the deadline (`NEAR_MS`). So a key without a deadline costs nothing, and one with a
//! deadline that is far away the time of noting it. Who says that there is no such key is not
//! believed alone: the key may have expired there only, or that duplicate has lost it. So the
//! others are asked too, and the key is removed only where one of them has it, past its deadline.
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
//! forgotten, and all keys are listed again before the first of these; where that is not done in
//! time, it asks again before the first write of each key.
//!
//! **Source**: a replica of Redis never expires a key; it waits for its primary's `DEL`
//! (redis.io, `EXPIRE`, "How expires are handled in the replication link"). Here the duplicates
//! are no replicas, so the `DEL` has to come before the first of them expires the key.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::ServerSet;
use super::clocks::{Clocks, MARGIN_MS, UNREAD_MS};

/// Within so many ms before a deadline it is asked for where it is not sure, and said again behind
/// writes: as long as a duplicate may stand still and stay live.
pub(crate) const NEAR_MS: i64 = 1_000;
/// What is so far away is not near a second later, by any clock that agrees within another second.
const FAR_MS: i64 = NEAR_MS + 2_000;
/// Keys whose deadlines are known: some 100 MB.
pub(crate) const KEYS_MAX: usize = 1 << 20;
/// So long before the first forgotten deadline all keys are listed again.
const RELIST_MS: i64 = 60_000;
/// Keys of which it is remembered that they have no deadline, while not all were listed.
const CLEAR_MAX: usize = 1 << 16;
/// Entries that are forgotten at once because their deadlines are past.
const FORGOTTEN_TOGETHER: usize = 256;
/// No deadline.
const NEVER: i64 = i64::MAX;

/// What follows from an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answered {
    /// Nothing: the key is alive, or the answer is old.
    Settled,
    /// The key has expired: remove it.
    Expired,
    /// It is not there: ask the others as well ([`Deadlines::gone`]).
    GoneThere,
}

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
    /// Keys of which nobody has to ask until then, though their deadlines are not kept: there is
    /// none (`NEVER`), or it is farther away than those that are; the oldest first.
    clear: BTreeMap<u64, i64>,
    clear_order: VecDeque<u64>,
    /// All were listed: every key with a deadline before `forgotten_from` is here.
    is_complete: bool,
    forgotten_from: i64,
    /// The same of the listing that is under way.
    is_listing: bool,
    forgotten_since: i64,
    keys_max: usize,
    questions: u64,
    /// Up to which time keys may be gone that nobody removed ([`Self::take_passed`]).
    passed: Option<i64>,
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
            clear: BTreeMap::new(),
            clear_order: VecDeque::new(),
            is_complete: false,
            forgotten_from: NEVER,
            is_listing: true,
            forgotten_since: NEVER,
            keys_max,
            questions: 0,
            passed: None,
            lead: UNREAD_MS + MARGIN_MS,
            lag: UNREAD_MS + MARGIN_MS,
        }
    }

    /// Those of one server, which has no key yet, at times that are told.
    pub fn of_one() -> Self {
        Self { is_complete: true, is_listing: false, lead: 0, lag: 0, ..Self::new(KEYS_MAX) }
    }

    /// How many are known.
    pub fn len(&self) -> usize {
        self.by_time.len()
    }

    /// Whether nothing is known, nor asked for: a write makes no difference to it then.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Whether all keys were listed once.
    pub const fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Whether every key is known whose deadline is near, by this time.
    const fn knows(&self, now_unix_ms: i64) -> bool {
        self.is_complete && self.forgotten_from > self.near(now_unix_ms)
    }

    /// Until when a key has expired for somebody.
    const fn due(&self, now_unix_ms: i64) -> i64 {
        now_unix_ms.saturating_add(self.lead)
    }

    const fn near(&self, now_unix_ms: i64) -> i64 {
        self.due(now_unix_ms).saturating_add(NEAR_MS)
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
        self.knows(now_unix_ms) && first.is_none_or(|(at, _)| *at > self.near(now_unix_ms))
    }

    /// The same by a time that may be up to a second old, for less than a reading of the clock.
    #[inline]
    pub fn is_far(&self, about_unix_ms: i64) -> bool {
        let first = self.by_time.first();
        let far = self.due(about_unix_ms).saturating_add(FAR_MS);
        self.is_complete && self.forgotten_from > far && first.is_none_or(|(at, _)| *at > far)
    }

    /// Those that have passed by every clock: the keys are gone everywhere.
    fn forget_past(&mut self, now_unix_ms: i64) {
        for _ in 0..FORGOTTEN_TOGETHER {
            let Some(&(at, key)) = self.by_time.first() else { return };
            if at.saturating_add(self.lag) >= now_unix_ms {
                return;
            }
            self.have_passed(now_unix_ms);
            let last = self.by_key.get(&key).map_or(at, |entry| entry.last);
            match last.saturating_add(self.lag) < now_unix_ms {
                true => self.remove(key),
                false => self.put(key, Entry { at: last, last, known: Known::Perhaps }),
            }
        }
    }

    /// Keys may have gone by now that nobody removed: by the slowest clock, and what its reading
    /// may be wrong by. Whichever duplicates leave, others are removed by then.
    fn have_passed(&mut self, now_unix_ms: i64) {
        let slowest = now_unix_ms.saturating_sub(self.lag).saturating_add(MARGIN_MS);
        self.passed = self.passed.max(Some(slowest.saturating_add(MARGIN_MS)));
    }

    /// Up to which time deadlines have passed for the next write, if that has to be told to who
    /// does it again: a key is gone for it that no write has removed. Told once.
    pub const fn take_passed(&mut self) -> Option<i64> {
        self.passed.take()
    }

    /// What a command does that writes this key.
    pub fn before_write(&self, key: u64, now_unix_ms: i64) -> Judgement {
        let Some(entry) = self.by_key.get(&key) else {
            let near = self.near(now_unix_ms);
            let is_clear = || self.clear.get(&key).is_some_and(|until| *until > near);
            let is_known = self.knows(now_unix_ms) || is_clear();
            return if is_known { Judgement::Leave } else { Judgement::Ask };
        };
        let is_sure = entry.known == Known::Sure;
        match (is_sure, entry.at <= self.due(now_unix_ms)) {
            (true, true) => Judgement::Remove,
            (true, false) => Judgement::Leave,
            (false, _) if entry.at <= self.near(now_unix_ms) => Judgement::Ask,
            (false, _) => match entry.known {
                Known::Asked(_) if entry.at == NEVER => Judgement::Ask,
                _ => Judgement::Leave,
            },
        }
    }

    /// The same of one that reads it: only what is over counts.
    pub fn before_read(&self, key: u64, now_unix_ms: i64) -> Judgement {
        match self.by_key.get(&key) {
            Some(entry) if entry.at <= self.due(now_unix_ms) => self.before_write(key, now_unix_ms),
            _ => Judgement::Leave,
        }
    }

    /// The same where no later read may find a key that this one has not found: what is not known
    /// may be over.
    pub fn before_strong_read(&self, key: u64, now_unix_ms: i64) -> Judgement {
        match self.by_key.get(&key) {
            Some(entry) if entry.at != NEVER => self.before_read(key, now_unix_ms),
            _ => self.before_write(key, now_unix_ms),
        }
    }

    /// The first deadline that a key may have; `None`: it has none, or it is not known.
    pub fn first_of(&self, key: u64) -> Option<i64> {
        self.by_key.get(&key).map(|entry| entry.at).filter(|at| *at != NEVER)
    }

    /// Behind which time a write of this key may not be done again, that leaves it as it is or
    /// makes another one of it: it would find none. `None` where it has no deadline.
    pub fn due_write(&self, key: u64) -> Option<i64> {
        let known = self.by_key.get(&key).map(|entry| entry.at).filter(|at| *at != NEVER);
        let clear = self.clear.get(&key).copied();
        // Before all were listed each key is asked for that a client names.
        let unknown = if self.is_complete { self.forgotten_from } else { NEVER };
        Some(known.or(clear).unwrap_or(unknown)).filter(|due| *due != NEVER)
    }

    /// Until when keys are as good as expired for somebody who comes back now.
    pub const fn until(&self, now_unix_ms: i64) -> i64 {
        self.near(now_unix_ms)
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

    /// A duplicate has answered this question: -2 for no key, -1 for no deadline.
    pub fn answered(&mut self, key: u64, number: u64, said: i64, now_unix_ms: i64) -> Answered {
        if !self.is_asked(key, number) {
            return Answered::Settled;
        }
        match said {
            0.. => {
                self.put(key, Entry { at: said, last: said, known: Known::Sure });
                if !self.by_key.contains_key(&key) {
                    self.note_clear(key, said); // who asked may go on
                }
                match said <= self.due(now_unix_ms) {
                    true => Answered::Expired,
                    false => Answered::Settled,
                }
            }
            -2 => Answered::GoneThere,
            _ => {
                self.cleared(key);
                Answered::Settled
            }
        }
    }

    /// Everybody said to this question that there is no such key.
    pub fn gone(&mut self, key: u64, number: u64, now_unix_ms: i64) {
        if self.is_asked(key, number) {
            self.cleared(key);
            self.have_passed(now_unix_ms);
        }
    }

    fn is_asked(&self, key: u64, number: u64) -> bool {
        self.by_key.get(&key).is_some_and(|entry| entry.known == Known::Asked(number))
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
        let at = at.min(NEVER - 1);
        self.put(key, Entry { at, last: at, known: Known::Sure });
    }

    /// A write has given the key this deadline, if it was there.
    pub fn moved(&mut self, key: u64, at: i64, now_unix_ms: i64) {
        let near = self.near(now_unix_ms);
        // One whose old deadline is near may be gone before the write comes.
        let is_there =
            |entry: &Entry| entry.known == Known::Sure && entry.at != NEVER && entry.at > near;
        let is_sure = self.by_key.get(&key).is_some_and(is_there);
        let known = if is_sure && at > 0 { Known::Sure } else { Known::Perhaps };
        let at = at.min(NEVER - 1);
        self.put(key, Entry { at, last: at, known });
    }

    /// The key may have this deadline now, or what it had.
    pub fn perhaps(&mut self, key: u64, at: i64) {
        let at = at.min(NEVER - 1);
        let entry = self.by_key.get(&key).copied();
        let entry = entry.filter(|entry| entry.at != NEVER);
        if entry.is_some_and(|entry| entry.known == Known::Sure && entry.at == at) {
            return; // either way it is this one
        }
        let (first, last) = entry.map_or((at, at), |entry| (entry.at.min(at), entry.last.max(at)));
        self.put(key, Entry { at: first, last, known: Known::Perhaps });
    }

    /// A write has set the key if it was not there, with this deadline or without one.
    pub fn if_absent(&mut self, key: u64, at: Option<i64>, now_unix_ms: i64) {
        let near = self.near(now_unix_ms);
        let is_there = |entry: &Entry| entry.known == Known::Sure && entry.at > near;
        if self.by_key.get(&key).is_some_and(is_there) {
            return;
        }
        match at {
            Some(at) => self.perhaps(key, at),
            None => self.changed(key),
        }
    }

    /// The key has no deadline, or is not there.
    pub fn cleared(&mut self, key: u64) {
        self.remove(key);
        self.note_clear(key, NEVER);
    }

    fn note_clear(&mut self, key: u64, until: i64) {
        if self.is_complete && self.forgotten_from == NEVER {
            return;
        }
        if self.clear.insert(key, until).is_none() {
            self.clear_order.push_back(key);
        }
        if self.clear_order.len() > CLEAR_MAX
            && let Some(oldest) = self.clear_order.pop_front()
        {
            self.clear.remove(&oldest);
        }
    }

    /// A write has left the key with its deadline, or has made a new one without.
    pub fn kept(&mut self, key: u64, now_unix_ms: i64) {
        let due = self.due(now_unix_ms);
        match self.by_key.get_mut(&key) {
            Some(Entry { at: NEVER, .. }) => self.remove(key), // what was asked is old
            Some(entry) if entry.known != Known::Sure || entry.at <= due => {
                entry.known = Known::Perhaps;
            }
            _ => {}
        }
    }

    /// A write may have removed the key, or made another one of it.
    pub fn changed(&mut self, key: u64) {
        match self.by_key.get_mut(&key) {
            Some(Entry { at: NEVER, .. }) => self.remove(key), // what was asked is old
            Some(entry) => entry.known = Known::Perhaps,
            None => {}
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

    /// Nothing is known any more, as at the beginning.
    pub fn forget(&mut self) {
        let (lead, lag, questions) = (self.lead, self.lag, self.questions);
        *self = Self { lead, lag, questions, ..Self::new(self.keys_max) };
    }

    /// All keys are gone: so all are known.
    pub fn clear(&mut self) {
        self.by_key.clear();
        self.by_time.clear();
        self.forgotten_since = NEVER;
        self.know_all();
    }

    /// All keys of this database are gone.
    pub fn clear_database(&mut self, database: u8) {
        let (first, last) = (deadline_key(database, 0), deadline_key(database, u64::MAX));
        let gone: Vec<u64> = self.by_key.range(first..=last).map(|(&key, _)| key).collect();
        gone.into_iter().for_each(|key| self.remove(key));
    }

    /// The deadline to say again behind a write that leaves it as it is: shortly before it, or
    /// always where somebody `is_away` and will do the write whenever it returns.
    pub fn restated(&self, key: u64, now_unix_ms: i64, is_away: bool) -> Option<i64> {
        let is_sure = |entry: &&Entry| entry.known == Known::Sure && entry.at != NEVER;
        let entry = self.by_key.get(&key).filter(is_sure)?;
        (is_away || entry.at <= self.near(now_unix_ms)).then_some(entry.at)
    }

    /// A duplicate lists a key with this deadline. What a write since says is newer.
    pub fn listed(&mut self, key: u64, at: i64) {
        if at >= 0 && !self.by_key.contains_key(&key) && !self.clear.contains_key(&key) {
            self.perhaps(key, at);
        }
    }

    /// All keys were listed: others have gone before.
    pub fn complete(&mut self, now_unix_ms: i64) {
        self.have_passed(now_unix_ms);
        self.know_all();
    }

    fn know_all(&mut self) {
        (self.is_complete, self.is_listing) = (true, false);
        self.forgotten_from = self.forgotten_since;
        (self.clear, self.clear_order) = Default::default();
    }

    /// Whether all keys are to be listed, until [`Self::complete`]: at the beginning, and before
    /// what was forgotten is due, once there is room for it.
    pub fn wants_list(&mut self, now_unix_ms: i64) -> bool {
        let is_due = self.forgotten_from <= now_unix_ms.saturating_add(RELIST_MS);
        if is_due && !self.is_listing && self.by_time.len() <= self.keys_max / 2 {
            (self.is_listing, self.forgotten_since) = (true, NEVER);
        }
        self.is_listing
    }

    fn remove(&mut self, key: u64) {
        if let Some(entry) = self.by_key.remove(&key) {
            self.by_time.remove(&(entry.at, key));
        }
    }

    fn put(&mut self, key: u64, entry: Entry) {
        self.clear.remove(&key);
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
            self.forgotten_since = self.forgotten_since.min(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete() -> Deadlines {
        let mut deadlines = Deadlines::default();
        deadlines.complete(0);
        deadlines
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
        let far = deadlines.by_key[&1];
        deadlines.if_absent(1, Some(20_000), 8_000);
        assert_eq!((deadlines.by_key[&1].at, far.at), (10_000, 10_000), "it is there");
        deadlines.kept(1, 9_500);
        assert_eq!(deadlines.before_write(1, 9_500), Judgement::Leave);
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
        assert_eq!(deadlines.answered(1, number, -2, 10_000), Answered::Settled);
        assert_eq!(deadlines.before_write(1, 9_990), Judgement::Ask);
        let number = deadlines.ask(1);
        deadlines.kept(1, 9_990);
        assert_eq!(deadlines.answered(1, number, -2, 9_990), Answered::Settled, "made anew since");
        let number = deadlines.ask(1);
        assert_eq!(deadlines.answered(1, number, 12_000, 9_990), Answered::Settled);
        assert_eq!(deadlines.before_write(1, 9_990), Judgement::Leave);
        assert_eq!(deadlines.restated(1, 10_000, false), None);
        assert_eq!(deadlines.restated(1, 10_000, true), Some(12_000), "who is away is late");
        assert_eq!(deadlines.restated(1, 11_500, false), Some(12_000));
        deadlines.kept(1, 12_000);
        assert_eq!(deadlines.before_write(1, 12_000), Judgement::Ask, "that made a new one");
        let number = deadlines.ask(1);
        assert_eq!(deadlines.answered(1, number, -2, 12_000), Answered::GoneThere);
        assert_eq!(deadlines.answered(1, number, 12_000, 12_000), Answered::Expired, "elsewhere");
        let number = deadlines.ask(1);
        assert_eq!(deadlines.answered(1, number, -2, 12_000), Answered::GoneThere);
        deadlines.gone(1, number, 0);
        assert_eq!(deadlines.before_write(1, 12_000), Judgement::Leave);
    }

    #[test]
    fn a_deadline_that_is_given_to_what_may_have_expired_is_not_sure() {
        let mut deadlines = complete();
        deadlines.set(1, 10_000);
        deadlines.moved(1, 100_000, 9_990);
        assert_eq!(deadlines.before_write(1, 100_000), Judgement::Ask);
        deadlines.set(2, 10_000);
        deadlines.moved(2, 100_000, 5_000);
        assert_eq!(deadlines.before_write(2, 100_000), Judgement::Remove);
    }

    #[test]
    fn deadlines_that_are_never_are_bounded_too() {
        let mut deadlines = Deadlines::new(2);
        deadlines.complete(0);
        for key in 0..9 {
            deadlines.moved(key, i64::MAX, 0);
            deadlines.perhaps(key + 9, i64::MAX);
        }
        assert_eq!((deadlines.by_key.len(), deadlines.len()), (2, 2));
    }

    #[test]
    fn who_has_asked_goes_on_also_when_more_are_known_than_are_remembered() {
        let mut deadlines = Deadlines::new(2);
        for key in 10..13 {
            deadlines.set(key, 1_000_000);
        }
        for key in 100..100 + 2 * CLEAR_MAX as u64 {
            let number = deadlines.ask(key);
            assert_eq!(deadlines.answered(key, number, -1, 0), Answered::Settled);
            assert_eq!(deadlines.before_write(key, 0), Judgement::Leave, "{key}");
        }
        assert!(deadlines.clear.len() <= CLEAR_MAX && deadlines.by_key.len() == 2);
    }

    /// It was asked again for ever: the deadline that was told was the first to be forgotten.
    #[test]
    fn who_was_told_a_deadline_too_far_to_be_kept_goes_on_until_it_is_near() {
        let mut deadlines = Deadlines::new(2);
        deadlines.set(1, 1_000);
        deadlines.set(2, 2_000);
        let number = deadlines.ask(9);
        assert_eq!(deadlines.answered(9, number, 9_000_000, 0), Answered::Settled);
        assert_eq!(deadlines.len(), 2);
        assert_eq!(deadlines.before_write(9, 0), Judgement::Leave);
        assert_eq!(deadlines.before_write(8, 0), Judgement::Ask, "nobody has asked");
        assert_eq!(deadlines.due_write(9), Some(9_000_000));
        assert_eq!(deadlines.before_write(9, 8_999_900), Judgement::Ask, "it is near");
        let number = deadlines.ask(9);
        deadlines.gone(9, number, 0);
        assert_eq!(deadlines.before_write(9, 8_999_900), Judgement::Leave);
    }

    #[test]
    fn a_strong_read_asks_for_what_may_be_over() {
        let mut deadlines = Deadlines::default();
        assert_eq!(deadlines.before_read(1, 0), Judgement::Leave);
        assert_eq!(deadlines.before_strong_read(1, 0), Judgement::Ask);
        let number = deadlines.ask(1);
        assert_eq!(deadlines.before_strong_read(1, 0), Judgement::Ask, "it waits as well");
        deadlines.answered(1, number, 50_000, 0);
        assert_eq!(deadlines.before_strong_read(1, 0), Judgement::Leave);
        assert_eq!(deadlines.before_strong_read(1, 50_000), Judgement::Remove);
        deadlines.complete(0);
        assert_eq!(deadlines.before_strong_read(2, 0), Judgement::Leave);
    }

    #[test]
    fn a_write_is_due_at_the_deadline_of_its_key_if_it_has_one() {
        let mut deadlines = Deadlines::new(2);
        assert_eq!(deadlines.due_write(1), None, "it is asked for before");
        deadlines.cleared(1);
        assert_eq!(deadlines.due_write(1), None);
        deadlines.perhaps(1, 10_000);
        assert_eq!(deadlines.due_write(1), Some(10_000));
        deadlines.complete(0);
        assert_eq!(deadlines.due_write(2), None);
        deadlines.set(2, 20_000);
        deadlines.set(3, 30_000);
        assert_eq!(deadlines.due_write(4), Some(30_000), "those from there on are not kept");
    }

    #[test]
    fn many_that_are_past_are_forgotten_little_by_little() {
        let mut deadlines = complete();
        for key in 0..1_000 {
            deadlines.set(key, 10_000);
        }
        deadlines.is_quiet(20_000);
        assert_eq!(deadlines.len(), 1_000 - FORGOTTEN_TOGETHER);
    }

    #[test]
    fn a_question_from_before_all_keys_were_listed_is_made_old_too() {
        let mut deadlines = Deadlines::default();
        let number = deadlines.ask(1);
        deadlines.listed(1, 10_000);
        deadlines.complete(0);
        assert!(!deadlines.is_empty(), "its answer is still to come");
        deadlines.cleared(1); // SET k v
        let answered = deadlines.answered(1, number, 10_000, 10_000);
        assert_eq!(answered, Answered::Settled, "that was before");
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
        assert_eq!(deadlines.answered(1, number, -1, 0), Answered::Settled);
        assert_eq!(deadlines.before_write(1, 0), Judgement::Leave);
        deadlines.listed(1, 5_000);
        deadlines.listed(2, 5_000);
        deadlines.complete(0);
        assert_eq!(deadlines.before_write(1, 4_900), Judgement::Leave, "what was said is newer");
        assert_eq!(deadlines.before_write(2, 4_900), Judgement::Ask);
    }

    /// Else whoever empties all keys again and again makes every answer old.
    #[test]
    fn where_all_keys_are_gone_nobody_has_to_ask() {
        let mut deadlines = Deadlines::default();
        deadlines.set(1, 10_000);
        deadlines.clear();
        assert_eq!([1, 2].map(|key| deadlines.before_write(key, 10_000)), [Judgement::Leave; 2]);
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
        let mut deadlines = Deadlines::new(4);
        deadlines.complete(0);
        let all = [(1, 500_000), (2, 100_000), (3, 200_000), (4, 300_000), (5, 400_000)];
        for (key, at) in all {
            deadlines.set(key, at);
        }
        assert_eq!(deadlines.len(), 4);
        assert_eq!(deadlines.before_write(3, 199_999), Judgement::Remove);
        assert!(!deadlines.wants_list(500_000 - RELIST_MS - 1));
        assert!(!deadlines.wants_list(500_000 - RELIST_MS), "no room");
        deadlines.is_quiet(350_000);
        assert!(deadlines.wants_list(500_000 - RELIST_MS));
        assert_eq!(deadlines.before_write(1, 440_000), Judgement::Leave, "it is far");
        assert_eq!(deadlines.before_write(1, 499_500), Judgement::Ask, "it is near");
        deadlines.listed(1, 500_000);
        deadlines.complete(0);
        assert!(!deadlines.wants_list(499_500), "all are known");
        assert_eq!(deadlines.before_write(9, 499_500), Judgement::Leave);
    }

    #[test]
    fn what_is_forgotten_while_all_are_listed_is_forgotten_after_it_too() {
        let mut deadlines = Deadlines::new(2);
        for key in [1, 2, 3] {
            deadlines.listed(key, 100_000 * key as i64);
        }
        deadlines.complete(0);
        assert_eq!(deadlines.before_write(3, 250_000), Judgement::Leave);
        assert_eq!(deadlines.before_write(3, 299_500), Judgement::Ask);
    }
}
