//! Strong reads while a lease is held: one duplicate answers, as `read_order.rs` says.
//!
//! Who may answer, and what an answer may show, says core
//! ([`Leased`](evenkeel_ordered::Leased)). An answer that shows what a majority does not have yet
//! waits here, as the first answer of a write or of a majority's read waits in its call: for the
//! next answers, until too few duplicates are live, or until the lease is over. The lease is looked
//! at when an answer comes and again when it is told. A process that is stopped behind that look
//! tells late, and nothing wrong: what it tells was so when the duplicate answered, and that is
//! between question and answer.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_core::Instant;
use evenkeel_ordered::{
    Acknowledge, ConnectionKind, Consistency, Eligible, Leased, Refused, Sequence, Session,
};
use xxhash_rust::xxh3::xxh3_64;

use super::Inner;
use super::types::{ClientId, Form, ParsedCommand};
use evenkeel_stores::resp::commands::{self, Command, Keys};
use evenkeel_stores::resp::encode;
use evenkeel_stores::resp::locate::Location;
use evenkeel_stores::resp::reply::Shape;

/// What is known where a lease is held.
#[derive(Debug)]
pub(super) struct Strong {
    pub(super) leased: Leased,
    /// Answers that wait, by partition and by the last write that they may show.
    shown: BTreeMap<(usize, Sequence, u64), (Told, Vec<u8>)>,
    number: u64,
    /// Instead of a lease in etcd.
    #[cfg(test)]
    pub(super) lease_until: Option<Instant>,
    #[cfg(test)]
    pub(super) lease_patience: Option<Duration>,
}

/// Whose a read is.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) client: ClientId,
    pub(super) slot: u64,
    pub(super) shape: Shape,
    pub(super) opened: Instant,
    pub(super) partition: usize,
}

impl Strong {
    pub(super) fn new(last: Sequence) -> Self {
        Self {
            leased: Leased::new(last),
            shown: BTreeMap::new(),
            number: 0,
            #[cfg(test)]
            lease_until: None,
            #[cfg(test)]
            lease_patience: None,
        }
    }
}

/// The hash of a strong read's key, if it is of one: one of the whole keyspace is not, nor one that
/// may read keys which it does not name.
pub(super) fn only_key(
    consistency: Consistency,
    location: &Location,
    command: &Command,
    parsed: ParsedCommand<'_>,
) -> Option<u64> {
    let is_free = command.keys == Keys::Script || location.version.is_some();
    if location.is_whole || is_free || consistency != Consistency::Strong {
        return None;
    }
    let mut keys = commands::keys(command, parsed.arguments()).into_iter().flatten();
    match (keys.next(), keys.next()) {
        (Some(index), None) => Some(xxh3_64(parsed.argument(index))),
        _ => None,
    }
}

impl Inner {
    /// Whether this process may tell of writes and strong reads *now*: the clock is read anew,
    /// since it may have been stopped in the middle of a turn.
    #[inline]
    pub fn leads(&self) -> bool {
        #[cfg(test)]
        if let Some(until) = self.strong.lease_until {
            return self.now < until;
        }
        self.leadership.as_ref().is_none_or(|leadership| leadership.is_valid())
    }

    /// How long clients wait for this process to lead again; `None`: not at all.
    pub(super) fn lease_patience(&self) -> Option<Duration> {
        #[cfg(test)]
        if self.strong.lease_until.is_some() {
            return self.strong.lease_patience;
        }
        self.leadership.as_ref().and_then(|leadership| leadership.patience())
    }

    /// For clients.
    pub fn why_deposed(&self) -> String {
        self.leadership.as_ref().map_or_else(String::new, |leadership| leadership.why_invalid())
    }

    /// Whether strong reads may rely on a lease instead of a majority's answers.
    #[inline]
    pub(super) fn has_lease(&self) -> bool {
        #[cfg(test)]
        if self.strong.lease_until.is_some() {
            return true;
        }
        self.leadership.is_some() && self.members.acknowledge() == Acknowledge::Majority
    }

    /// Who may answer a client's read.
    pub(super) fn eligible(
        &self,
        partition: usize,
        consistency: Consistency,
        session: Session,
    ) -> Result<Eligible, Refused> {
        let mut eligible = match consistency {
            Consistency::Strong if self.has_lease() => {
                self.strong.leased.eligible(&self.members, partition, session)?
            }
            _ => self.members.eligible(partition, consistency, session)?,
        };
        // Its answers are held until it is known what it did.
        if let Some(ahead) = self.effects.ahead_in(partition)
            && eligible.connection == ConnectionKind::Free
            && eligible.from.len() > 1
        {
            eligible.from.remove(ahead);
        }
        Ok(eligible)
    }

    /// Notes which keys a write is of.
    #[inline]
    pub(super) fn note_keys_written(&mut self, text: &[u8], sequence: Sequence) {
        if !self.has_lease() {
            return;
        }
        let leased = &mut self.strong.leased;
        commands::for_each(text, |known| {
            // Keys of one name in several databases count as one: a read waits rather once more.
            if known.is_some_and(|(command, _)| command.name == "select") {
                return;
            }
            let keys = known.and_then(|(command, arguments)| {
                Some((commands::keys(command, arguments).ok()?, arguments))
            });
            let mut is_named = false;
            for hash in keys
                .into_iter()
                .flat_map(|(keys, arguments)| keys.map(move |index| xxh3_64(arguments.at(index))))
            {
                is_named = true;
                leased.wrote(Some(hash), sequence);
            }
            if !is_named {
                leased.wrote(None, sequence);
            }
        });
    }

    /// The client of a call is told: of its write, or of what a majority has behind all writes.
    pub(super) fn note_told(&mut self, key: usize) {
        if !self.has_lease() {
            return;
        }
        let call = &self.calls[key];
        let voters = self.members.voters(call.partition).iter();
        let last = || voters.map(|server| self.members.sent_to(server)).max();
        let told = call.write.or_else(last).unwrap_or_default();
        self.strong.leased.told(call.partition, told);
    }

    /// A duplicate has answered a strong read alone; `shows` is the last write that it may show.
    pub(super) fn show(&mut self, partition: usize, shows: Sequence, told: &Told, reply: &[u8]) {
        if self.members.has_applied(partition, shows) {
            self.strong.leased.told(partition, shows);
            return self.tell_read(told, reply);
        }
        self.strong.number += 1;
        let at = (partition, shows, self.strong.number);
        let told = Told { ..*told };
        if let Some(client) = self.client(told.client) {
            client.keep_bytes(reply.len());
        }
        self.strong.shown.insert(at, (told, reply.to_vec()));
    }

    /// Tells answers that wait for a majority, or refuses them, as things are now.
    #[inline]
    pub(super) fn tell_shown(&mut self) {
        if !self.strong.shown.is_empty() {
            self.tell_shown_now();
        }
    }

    fn tell_shown_now(&mut self) {
        let mut from = (0, Sequence(0), 0);
        while let Some((&at, _)) = self.strong.shown.range(from..).next() {
            let (partition, shows, _) = at;
            let enough = self.members.eligible(partition, Consistency::Strong, Session::default());
            let refusal = match enough {
                _ if !self.leads() => Some(self.why_deposed()),
                Err(refused @ (Refused::NobodyLive { .. } | Refused::TooFew { .. })) => {
                    Some(refused.to_string())
                }
                _ => None,
            };
            if refusal.is_none() && !self.members.has_applied(partition, shows) {
                from = (partition + 1, Sequence(0), 0); // who shows more waits for more
                continue;
            }
            let Some((told, reply)) = self.strong.shown.remove(&at) else { return };
            if let Some(client) = self.client(told.client) {
                client.give_bytes(reply.len());
            }
            let Some(why) = refusal else {
                self.strong.leased.told(partition, shows);
                self.tell_read(&told, &reply);
                continue;
            };
            let mut answer = Vec::new();
            encode::error(&mut answer, &format!("UNAVAILABLE {why}"));
            self.counts.given_up(false);
            self.reply(told.client, told.slot, &answer, &Form::One(Shape::Plain));
        }
    }

    /// Gives a read's client its answer.
    pub(super) fn tell_read(&mut self, told: &Told, reply: &[u8]) {
        self.counts.done(told.partition, false, self.now.since(told.opened));
        self.reply(told.client, told.slot, reply, &Form::One(told.shape));
    }
}

#[cfg(test)]
mod tests;
