//! Duplicates that differ from the others are found and filled again.
//!
//! A *round* asks all live duplicates of a partition for the same keys, on their ordered
//! connections in one turn, so at one position; core says who is odd
//! ([`compare`](evenkeel_ordered::compare)). A round has keys whose answers differed
//! to clients (*suspects*), or a page of all keys, listed by one duplicate after the other, at the
//! pace of [`Pace`]. Each round also asks for the epoch: who has none was emptied, and our next
//! write gives it a watermark all the same.
//!
//! Who is odd is quarantined: it is dropped, so nobody reads from it, and what comes back is
//! emptied and filled. Nothing is remembered of values but digests.
//!
//! Only Redis is asked: the other stores have one owner, or an order of their own.

use std::rc::Rc;
use std::time::Duration;

use evenkeel_ordered::{
    ConnectionKind, Dropped, KEYS_AT_ONCE, Pace, Sequence, ServerSet, Statement, Verdict, compare,
    refillable,
};

use super::types::Owed;
use super::{Engine, Inner};
use evenkeel_duplicates_config::Connector;
use evenkeel_store_link::compared::{Kind, Question, Said};
use evenkeel_stores::resp::reply::{elements, payload};
use evenkeel_stores::resp::{databases, encode, functions};
use evenkeel_stores::store::keys::{EPOCH, FUNCTIONS, RESERVED};

/// What a client is told where no majority says the same.
pub(super) const DIFFERENT: &str = "UNAVAILABLE the duplicates that answered differ; ask again";
/// Values of more bytes are compared by their length, strings by their end.
const VALUE_BYTES_MAX: i64 = 64 << 10;
/// Keys whose answers differed that wait to be compared; of more one does as well as another.
const SUSPECTS_MAX: usize = 16;
/// Keys that differ, and nobody can tell who is right: they are compared again and again.
const UNDECIDED_MAX: usize = 8;
/// How often it is looked whether keys are due, at most.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A partition and a key.
type Suspect = (usize, Box<[u8]>);

/// What is compared, and what came of it.
#[derive(Debug)]
pub(super) struct Checks {
    pace: Pace,
    round: Option<Round>,
    /// Rises with every round and page: what was asked for in an earlier one is forgotten.
    number: u64,
    /// Who was asked for a page of keys.
    listing: Option<usize>,
    partition: usize,
    /// Of which keys are listed.
    database: u8,
    /// Whose turn it is to list keys: each knows of those that only it has.
    turn: usize,
    cursor: Vec<u8>,
    suspects: Vec<Suspect>,
    undecided: Vec<Suspect>,
    is_emptied_told: bool,
    /// A round that is begun when no duplicate is ahead of the log any more: its partition, its
    /// keys, and whether they are suspects.
    postponed: Option<(usize, Vec<Suspect>, bool)>,
    /// One that is judged then.
    unjudged: Option<Round>,
}

#[derive(Debug)]
struct Round {
    number: u64,
    partition: usize,
    asked: ServerSet,
    emptied: ServerSet,
    keys: Vec<Compared>,
    /// Values, after their kinds.
    is_of_values: bool,
    is_suspicion: bool,
    owed: usize,
}

#[derive(Debug)]
struct Compared {
    key: Box<[u8]>,
    said: Vec<Said>,
    /// Nothing more is to be asked.
    is_done: bool,
}

impl Checks {
    pub(super) fn new(keys_per_second: u32) -> Self {
        Self {
            pace: Pace::new(keys_per_second),
            round: None,
            number: 0,
            listing: None,
            partition: 0,
            database: 0,
            turn: 0,
            cursor: b"0".to_vec(),
            suspects: Vec::new(),
            undecided: Vec::new(),
            is_emptied_told: false,
            postponed: None,
            unjudged: None,
        }
    }

    const fn is_busy(&self) -> bool {
        let waits = self.postponed.is_some() || self.unjudged.is_some();
        waits || self.round.is_some() || self.listing.is_some()
    }
}

impl Engine {
    /// Compares keys for the life of the service.
    pub(super) async fn keep_comparing(self: Rc<Self>) {
        let mut seen = 0;
        while self.look().may_compare() {
            tokio::time::sleep(LOOK_EVERY).await;
            let within = {
                let mut inner = self.look();
                inner.read_clock();
                inner.compare_due();
                inner.compare_within()
            };
            match within {
                Some(within) if within < Duration::from_secs(2) => {
                    tokio::time::sleep(within).await;
                }
                within => self.stirred(&mut seen, within).await,
            }
        }
    }
}

impl Inner {
    /// Keys that differ, and nobody can tell who is right.
    pub fn undecided_keys(&self) -> usize {
        self.checks.undecided.len()
    }

    /// Those of a partition.
    pub(super) fn undecided_of(&self, partition: usize) -> usize {
        self.checks.undecided.iter().filter(|one| one.0 == partition).count()
    }

    fn may_compare(&self) -> bool {
        matches!(self.connectors.first(), Some(Connector::Tcp { .. }))
    }

    fn compare_within(&self) -> Option<Duration> {
        let checks = &self.checks;
        let quiet = (!checks.suspects.is_empty()).then(|| checks.pace.quiet(self.now));
        let within = checks.pace.within(self.now, self.counts.accesses());
        quiet.into_iter().chain(within).min()
    }

    /// Begins a round, if one is due.
    fn compare_due(&mut self) {
        if self.checks.is_busy() || !self.may_compare() {
            return;
        }
        if !self.checks.suspects.is_empty() && self.checks.pace.quiet(self.now).is_zero() {
            self.compare_suspects();
        } else if self.checks.pace.within(self.now, self.counts.accesses()) == Some(Duration::ZERO)
        {
            self.list_keys();
        }
    }

    /// Whether answers that differ are followed now: not where they differed for nothing a moment
    /// ago. What really differs will be answered so again.
    pub(super) fn follows(&self) -> bool {
        self.may_compare() && self.checks.pace.quiet(self.now).is_zero()
    }

    /// Answers to clients differed in this key.
    fn suspect(&mut self, partition: usize, key: &[u8]) {
        let suspects = &mut self.checks.suspects;
        let is_known = suspects.iter().any(|it| it.0 == partition && &*it.1 == key);
        if !is_known && suspects.len() < SUSPECTS_MAX {
            suspects.push((partition, key.into()));
        }
        if !self.checks.is_busy() {
            self.compare_suspects();
        }
    }

    /// The same of all keys of these commands.
    pub(super) fn suspect_keys_of(&mut self, partition: usize, text: &[u8]) {
        if !self.follows() {
            return;
        }
        databases::for_each(text, |known| {
            let Some((database, command, arguments)) = known else { return };
            let places = databases::places(database, command, arguments);
            places.iter().take(SUSPECTS_MAX).for_each(|place| self.suspect(partition, place));
            if matches!(command.name, "function" | "fcall" | "fcall_ro") {
                self.suspect(partition, FUNCTIONS);
            }
        });
    }

    /// Duplicates answered a write differently. What it was the log knows.
    pub(super) fn suspect_write(&mut self, partition: usize, write: Sequence) {
        if !self.follows() || !self.checks.suspects.is_empty() {
            return;
        }
        let part = self.part(partition);
        let text =
            self.log.read_after(write.0.saturating_sub(1), Some(&part)).and_then(|mut log| {
                let record = log.next()?.filter(|record| record.sequence == write.0);
                Ok(record.map(|record| record.command.to_vec()))
            });
        match text {
            Ok(Some(text)) => self.suspect_keys_of(partition, &text),
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "a write is not found that was answered twice"),
        }
    }

    fn compare_suspects(&mut self) {
        let Some(&(partition, _)) = self.checks.suspects.first() else { return };
        let suspects = std::mem::take(&mut self.checks.suspects);
        let (these, others) = suspects.into_iter().partition(|it| it.0 == partition);
        self.checks.suspects = others;
        self.begin_round(partition, these, true);
    }

    /// Asks the next one of a partition for its next keys.
    fn list_keys(&mut self) {
        let checks = &mut self.checks;
        checks.partition %= self.members.partitions().max(1);
        let live = self.members.live(checks.partition);
        let lister = live.iter().nth(checks.turn % live.len().max(1));
        let Some(lister) = lister.filter(|&it| self.servers[it].free.is_open) else {
            return self.end_pass();
        };
        if live.len() < 2 {
            let partition = checks.partition;
            self.end_pass();
            return self.begin_round(partition, Vec::new(), false);
        }
        checks.number += 1;
        checks.listing = Some(lister);
        let (number, database, cursor) = (checks.number, checks.database, checks.cursor.clone());
        let count = KEYS_AT_ONCE.to_string();
        let place = (lister, ConnectionKind::Free, database);
        self.ask_in(place, Owed::Page { number }, |out| {
            encode::command(out, &[b"SCAN", &cursor, b"COUNT", count.as_bytes()]);
        });
        self.schedule();
    }

    fn end_pass(&mut self) {
        let checks = &mut self.checks;
        checks.cursor = b"0".to_vec();
        checks.database = 0;
        checks.partition += 1;
        if checks.partition >= self.members.partitions() {
            (checks.partition, checks.turn) = (0, checks.turn.wrapping_add(1));
            checks.undecided.retain(|it| !self.members.configured(it.0).is_empty());
        }
        let accesses = self.counts.accesses();
        self.checks.pace.compared(self.now, accesses, 0, true);
    }

    /// A page of keys has come.
    pub(super) fn page_answered(&mut self, server: usize, number: u64, reply: &[u8]) {
        self.members.answered(self.now, server, None);
        if self.checks.listing.is_none() || self.checks.number != number {
            return;
        }
        self.checks.listing = None;
        let partition = self.checks.partition;
        let mut parts = elements(reply);
        let (Some(next), Some(page)) = (parts.next().and_then(payload), parts.next()) else {
            return self.end_pass(); // it does not list keys
        };
        let keys = elements(page).filter_map(payload).filter(|key| !key.starts_with(RESERVED));
        let database = self.checks.database;
        let places = keys.map(|key| databases::place(database, key));
        let mut keys: Vec<Suspect> = places.map(|it| (partition, Box::from(&*it))).collect();
        match next {
            b"0" if database < self.database_last => {
                (self.checks.database, self.checks.cursor) = (database + 1, b"0".to_vec());
            }
            b"0" => self.end_pass(),
            next => self.checks.cursor = next.to_vec(),
        }
        let (accesses, count) = (self.counts.accesses(), keys.len() as u32);
        let is_pass = next == b"0" && self.checks.database == 0;
        self.checks.pace.compared(self.now, accesses, count, is_pass);
        let undecided = self.checks.undecided.iter().filter(|it| it.0 == partition);
        keys.extend(undecided.cloned());
        if is_pass {
            keys.insert(0, (partition, FUNCTIONS.into()));
        }
        self.begin_round(partition, keys, false);
    }

    /// Asks all live duplicates of a partition for these keys.
    fn begin_round(&mut self, partition: usize, keys: Vec<Suspect>, is_suspicion: bool) {
        if self.effects.is_ahead(partition) {
            self.checks.postponed = Some((partition, keys, is_suspicion));
            return;
        }
        let is_able = |&server: &usize| {
            self.members.is_settled(server)
                && self.members.owed(server) < self.members.owed_max() / 2
        };
        let asked: ServerSet = self.members.live(partition).iter().filter(is_able).collect();
        // A batch is a small part of what a duplicate may owe.
        let most = (self.members.owed_max() / 16).clamp(1, 10 * KEYS_AT_ONCE as usize);
        let most = if asked.len() < 2 { 0 } else { most };
        let compared = |(_, key): Suspect| {
            let said = asked.iter().map(Said::nothing).collect();
            Compared { key, said, is_done: false }
        };
        self.checks.number += 1;
        let mut round = Round {
            number: self.checks.number,
            partition,
            asked,
            emptied: ServerSet::EMPTY,
            keys: keys.into_iter().take(most).map(compared).collect(),
            is_of_values: false,
            is_suspicion,
            owed: 0,
        };
        for server in asked.iter() {
            round.owed += self.ask_of(server, &round, (0, Question::Mark), (0, &[b"GET", EPOCH]));
            for (index, it) in round.keys.iter().enumerate() {
                if functions::is_name(&it.key) {
                    let list: [&[u8]; 3] = [b"FUNCTION", b"LIST", b"WITHCODE"];
                    let about = (index, Question::Libraries);
                    round.owed += self.ask_of(server, &round, about, (0, &list));
                    continue;
                }
                let (database, key) = databases::at(&it.key);
                for (question, command) in [
                    (Question::Kind, &[b"TYPE", key][..]),
                    (Question::Deadline, &[b"PEXPIRETIME", key]),
                    (Question::Bytes, &[b"MEMORY", b"USAGE", key]),
                ] {
                    let about = (index, question);
                    round.owed += self.ask_of(server, &round, about, (database, command));
                }
            }
        }
        if round.owed > 0 {
            self.checks.round = Some(round);
            self.schedule();
        }
    }

    fn ask_of(
        &mut self,
        server: usize,
        round: &Round,
        (key, question): (usize, Question),
        (database, command): (u8, &[&[u8]]),
    ) -> usize {
        let owed = Owed::Check { round: round.number, key: key as u32, question };
        let place = (server, ConnectionKind::Ordered, database);
        self.ask_in(place, owed, |out| encode::command(out, command));
        1
    }

    /// A duplicate has said something of a key.
    pub(super) fn check_answered(
        &mut self,
        server: usize,
        (number, key, question): (u64, u32, Question),
        reply: &[u8],
    ) {
        self.members.answered(self.now, server, None);
        let Some(round) = self.checks.round.as_mut().filter(|it| it.number == number) else {
            return;
        };
        round.owed -= 1;
        if question == Question::Mark {
            if matches!(reply.first(), Some(b'_')) || reply == b"$-1\r\n" {
                round.emptied.insert(server);
            }
        } else if let Some(it) = round.keys.get_mut(key as usize)
            && let Some(said) = it.said.iter_mut().find(|it| it.server == server)
        {
            said.hear(question, reply);
        }
        if round.owed == 0
            && let Some(round) = self.checks.round.take()
        {
            self.judge_round(round);
        }
    }

    /// Whoever was asked is gone: what the others say is not enough to tell who is odd.
    pub(super) fn end_round_with(&mut self, server: usize) {
        if self.checks.listing == Some(server) {
            self.checks.listing = None;
        }
        self.checks.unjudged.take_if(|round| round.asked.contains(server));
        if self.checks.round.as_ref().is_some_and(|round| round.asked.contains(server))
            && let Some(round) = self.checks.round.take()
            && round.is_suspicion
        {
            let again = round.keys.into_iter().map(|it| (round.partition, it.key));
            self.checks.suspects.extend(again);
            self.checks.suspects.truncate(SUSPECTS_MAX);
        }
    }

    /// No duplicate of a partition is ahead of the log any more: what waited for that goes on.
    pub(super) fn resume_checks(&mut self, partition: usize) {
        if let Some(round) = self.checks.unjudged.take_if(|round| round.partition == partition) {
            self.judge_round(round);
        }
        if let Some((_, keys, is_suspicion)) =
            self.checks.postponed.take_if(|(of, ..)| *of == partition)
        {
            self.begin_round(partition, keys, is_suspicion);
        }
    }

    /// All have answered.
    fn judge_round(&mut self, mut round: Round) {
        if self.effects.is_ahead(round.partition) {
            self.checks.unjudged = Some(round);
            return;
        }
        if !round.emptied.is_empty() {
            return self.judge_emptied(&round);
        }
        let (mut odd, mut first) = (ServerSet::EMPTY, None);
        let (voters, now_unix_ms) =
            (self.members.voters(round.partition), self.due_unix_ms() as i64);
        for it in round.keys.iter_mut().filter(|it| !it.is_done) {
            let said = it.said.iter().filter(|said| voters.contains(said.server) && !said.is_void);
            let said: Vec<Statement> = said.map(|it| it.statement(round.is_of_values)).collect();
            let verdict = compare(&said, now_unix_ms);
            it.is_done = verdict != Verdict::Equal || round.is_of_values;
            match verdict {
                Verdict::Odd(servers) => {
                    odd = odd.or(servers);
                    first.get_or_insert_with(|| it.key.clone());
                    self.counts.found(round.partition);
                }
                Verdict::Undecided => self.note_undecided(round.partition, &it.key, &said),
                Verdict::Equal | Verdict::Expiring if it.is_done => {
                    self.checks.undecided.retain(|one| *one != (round.partition, it.key.clone()));
                }
                Verdict::Equal | Verdict::Expiring => {}
            }
        }
        let live = self.members.live(round.partition).and(voters);
        if let Some(key) = first
            && !live.without(odd).is_empty()
        {
            let why = format!("its key {} differs", databases::shown(&key));
            self.checks.pace.suspected(self.now, true);
            return odd.iter().for_each(|server| self.quarantine(server, &why));
        }
        if !round.is_of_values && self.ask_values(&mut round) {
            self.checks.round = Some(round);
            return self.schedule();
        }
        self.counts.compared += round.keys.len() as u64;
        if round.is_suspicion {
            self.checks.pace.suspected(self.now, false);
        }
    }

    fn judge_emptied(&mut self, round: &Round) {
        let live = self.members.live(round.partition);
        let refilled = refillable(live, round.emptied, self.history.is_whole());
        if refilled.is_empty() && !std::mem::replace(&mut self.checks.is_emptied_told, true) {
            tracing::error!(
                service = self.config.name,
                partition = round.partition,
                "all live duplicates were emptied by somebody else, and the log does not have \
                 everything: their data is lost"
            );
        }
        for server in refilled.iter() {
            self.counts.found(round.partition);
            self.quarantine(server, "it was emptied by somebody else");
        }
    }

    /// Nobody can tell who is right: it is said once.
    fn note_undecided(&mut self, partition: usize, key: &[u8], said: &[Statement]) {
        let undecided = &mut self.checks.undecided;
        if undecided.iter().any(|it| it.0 == partition && &*it.1 == key) {
            return;
        }
        self.counts.found(partition);
        if undecided.is_empty() {
            let who: Vec<String> =
                said.iter().map(|it| self.connectors[it.server].to_string()).collect();
            tracing::error!(
                service = self.config.name,
                key = %databases::shown(key),
                duplicates = who.join(", "),
                "duplicates differ, and there is no majority that tells who is right"
            );
        }
        if undecided.len() < UNDECIDED_MAX {
            undecided.push((partition, key.into()));
        }
    }

    /// Asks for the values of keys whose kinds are equal; whether there are any.
    fn ask_values(&mut self, round: &mut Round) -> bool {
        round.is_of_values = true;
        for index in 0..round.keys.len() {
            let it = &round.keys[index];
            let known = it.said.iter().filter(|said| !said.is_void);
            let bytes = known.clone().map(|said| said.bytes).max().unwrap_or(-1);
            let kind = known.map(|said| said.kind).next().unwrap_or(Kind::None);
            let (key, is_small) = (it.key.clone(), (0..=VALUE_BYTES_MAX).contains(&bytes));
            let (database, own) = databases::at(&key);
            let command = if it.is_done { Vec::new() } else { kind.question(own, is_small) };
            if command.is_empty() {
                if !std::mem::replace(&mut round.keys[index].is_done, true) {
                    self.checks.undecided.retain(|one| *one != (round.partition, key.clone()));
                }
                continue;
            }
            for server in round.asked.iter() {
                let about = (index, Question::Value);
                round.owed += self.ask_of(server, round, about, (database, &command));
            }
        }
        round.owed > 0
    }

    /// A duplicate is no duplicate: nobody reads from it until it is filled again.
    pub(super) fn quarantine(&mut self, server: usize, why: &str) {
        tracing::error!(
            service = self.config.name,
            duplicate = %self.connectors[server],
            why,
            "a duplicate is quarantined: it is not read from until it is filled again"
        );
        self.drop_server(server, Dropped::Diverged);
        self.servers[server].quarantine = Some(why.to_owned());
        self.distrust_tracked(self.members.partition(server));
    }
}
