//! The agent's side of probes in datagrams ([`datagram`](crate::datagram)): keys that it told, and
//! questions that come by UDP.
//!
//! Who may ask is who got a key over HTTP; all others get no answer. A question that came before
//! gets none either: the nonces of a key grow, and of those close below the largest it is known
//! which have come. Keys are in memory only. After a restart, or when a key is too old, a proxy's
//! questions stay unanswered until it asks over HTTP again.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use evenkeel_core::{Feedback, Instant};
use http::HeaderValue;

use crate::agent_state::AgentProbes;
use crate::datagram::{BYTES, Envelope, Kind, ProbeKey, Rejected};
use evenkeel_runtime::bucket::Bucket;
use evenkeel_runtime::clock::Clock;
use evenkeel_runtime::datagrams::Datagrams;

/// Datagrams that an agent reads in a second, at most: less than a fifth of a core.
const PER_S_MAX: f64 = 50_000.0;
/// Of these, at once.
const BURST: f64 = 5_000.0;
/// How long a key holds. Proxies fetch another one well before ([`crate::prober`]).
const KEY_LIFE: Duration = Duration::from_secs(20 * 60);
/// Keys at once: two for each worker of a few hundred proxies.
const KEYS_MAX: usize = 2_048;

/// Answers questions in datagrams.
#[derive(Debug, Default)]
pub(super) struct Questions {
    /// Whether it does, hence tells keys.
    is_open: Cell<bool>,
    keys: RefCell<Keys>,
    counts: Cell<AgentProbes>,
}

impl Questions {
    /// Answers for as long as it is polled.
    pub(super) async fn serve(
        &self,
        socket: Datagrams,
        clock: &Clock,
        report: impl Fn() -> Feedback,
    ) {
        self.is_open.set(true);
        let _closing = Closing(&self.is_open);
        let paused = || self.count(|counts| &mut counts.pauses);
        let bucket = Bucket::new(PER_S_MAX, BURST);
        let took = |bytes: &[u8], from| self.take(&socket, clock.now(), (bytes, from), &report);
        socket.read::<{ BYTES + 1 }>(clock, bucket, paused, took).await;
    }

    /// A key for a proxy that asks for one, as it is told.
    pub(super) fn new_key(&self, now: Instant) -> Option<HeaderValue> {
        if self.is_open.get() { self.keys.borrow_mut().add(now) } else { None }
    }

    /// What was counted.
    pub(super) fn counts(&self) -> AgentProbes {
        self.counts.get()
    }

    fn take(
        &self,
        socket: &Datagrams,
        now: Instant,
        (bytes, from): (&[u8], SocketAddr),
        report: impl Fn() -> Feedback,
    ) {
        let answer = self.keys.borrow_mut().answer(now, bytes, report);
        match answer {
            // What does not fit into the socket's buffer is lost, as datagrams are.
            Ok(answer) => match socket.send(&answer, from) {
                Ok(()) => self.count(|counts| &mut counts.answered),
                Err(_) => self.count(|counts| &mut counts.unsent),
            },
            Err(Dropped::Malformed) => self.count(|counts| &mut counts.malformed),
            Err(Dropped::Foreign) => self.count(|counts| &mut counts.foreign),
            Err(Dropped::Replayed) => self.count(|counts| &mut counts.replayed),
        }
    }

    fn count(&self, which: impl Fn(&mut AgentProbes) -> &mut u64) {
        let mut counts = self.counts.get();
        *which(&mut counts) += 1;
        self.counts.set(counts);
    }
}

/// No more keys are told once nobody answers.
struct Closing<'a>(&'a Cell<bool>);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// Why a question gets no answer.
#[derive(Debug, PartialEq, Eq)]
enum Dropped {
    Malformed,
    Foreign,
    Replayed,
}

impl From<Rejected> for Dropped {
    fn from(rejected: Rejected) -> Self {
        match rejected {
            Rejected::Malformed => Self::Malformed,
            Rejected::Foreign | Rejected::Absurd => Self::Foreign,
        }
    }
}

/// The keys that were told and hold, oldest first.
#[derive(Debug, Default)]
struct Keys {
    /// The number of the first; later ones follow.
    first: u32,
    told: VecDeque<Told>,
}

#[derive(Debug)]
struct Told {
    key: ProbeKey,
    until: Instant,
    seen: Seen,
}

impl Keys {
    fn add(&mut self, now: Instant) -> Option<HeaderValue> {
        let is_over = |told: &Told| told.until <= now;
        while self.told.front().is_some_and(is_over) || self.told.len() == KEYS_MAX {
            self.told.pop_front();
            self.first = self.first.wrapping_add(1);
        }
        let id = self.first.wrapping_add(self.told.len() as u32);
        let (key, words) = ProbeKey::generate(id)?;
        self.told.push_back(Told { key, until: now + KEY_LIFE, seen: Seen::default() });
        Some(words)
    }

    fn answer(
        &mut self,
        now: Instant,
        bytes: &[u8],
        report: impl Fn() -> Feedback,
    ) -> Result<[u8; BYTES], Dropped> {
        let Envelope { key, nonce } = Envelope::read(bytes, Kind::Question)?;
        let question: &[u8; BYTES] = bytes.try_into().map_err(|_| Rejected::Malformed)?;
        let place = key.wrapping_sub(self.first) as usize;
        let told = self.told.get_mut(place).filter(|told| told.until > now);
        let told = told.filter(|told| told.key.is_authentic(question)).ok_or(Dropped::Foreign)?;
        if !told.seen.is_new(nonce) {
            return Err(Dropped::Replayed);
        }
        Ok(told.key.answer(nonce, &report()))
    }
}

/// Which nonces have come: of the largest and the 63 below it each by itself, of those below all.
#[derive(Debug, Default)]
struct Seen {
    largest: u64,
    /// The lowest bit is of the largest.
    came: u64,
}

impl Seen {
    fn is_new(&mut self, nonce: u64) -> bool {
        if nonce > self.largest {
            let step = u32::try_from(nonce - self.largest).unwrap_or(u32::MAX);
            self.came = self.came.checked_shl(step).unwrap_or(0) | 1;
            self.largest = nonce;
            return true;
        }
        let bit = u32::try_from(self.largest - nonce).ok().and_then(|age| 1_u64.checked_shl(age));
        let is_new = bit.is_some_and(|bit| self.came & bit == 0);
        self.came |= bit.unwrap_or(0);
        is_new
    }
}

#[cfg(test)]
mod tests;
