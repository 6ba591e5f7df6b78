//! The agent's side of probes in datagrams ([`datagram`](crate::datagram)): keys that it told,
//! questions that come by UDP, and notices of requests that wait.
//!
//! Who may ask is who got a key over HTTP; all others get no answer. A question that came before
//! gets none either: the nonces of a key grow, and of those close below the largest it is known
//! which have come. Keys are in memory only. After a restart, or when a key is too old, a proxy's
//! questions stay unanswered until it asks over HTTP again.
//!
//! **Notices** are for proxies that ask for one with a request, and show with it that they have a
//! key: one for a request, to where the last question with that key came from. So nobody makes an
//! agent send to somebody else what that one has not asked for. They are a hint, and no request
//! waits for one: those beyond [`NOTICES_PER_S_MAX`] are left out, as where all requests wait there
//! is nothing to be gained.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use evenkeel_core::{Feedback, Instant};
use http::HeaderValue;

use crate::agent_state::AgentProbes;
use crate::datagram::{BYTES, Envelope, Kind, ProbeKey, Rejected, Wish};
use evenkeel_runtime::bucket::Bucket;
use evenkeel_runtime::clock::Clock;
use evenkeel_runtime::datagrams::Datagrams;

/// Datagrams that an agent reads in a second, at most: less than a fifth of a core.
const PER_S_MAX: f64 = 50_000.0;
/// Of these, at once.
const BURST: f64 = 5_000.0;
/// Notices that an agent sends in a second, at most.
const NOTICES_PER_S_MAX: f64 = 10_000.0;
/// Of these, at once.
const NOTICES_BURST: f64 = 1_000.0;
/// Requests of a key of which it is known for each by itself that a notice was sent.
const NUMBERS_KEPT: usize = 64;
/// How long a key holds. Proxies fetch another one well before ([`crate::prober`]).
const KEY_LIFE: Duration = Duration::from_secs(20 * 60);
/// Keys at once: two for each worker of a few hundred proxies.
const KEYS_MAX: usize = 2_048;

/// Answers questions in datagrams, and gives notices.
#[derive(Debug)]
pub(super) struct Questions {
    /// While it does, and tells keys.
    socket: RefCell<Option<Rc<Datagrams>>>,
    keys: RefCell<Keys>,
    notices: RefCell<Bucket>,
    counts: Cell<AgentProbes>,
}

impl Questions {
    /// Nobody has a key yet.
    pub(super) fn new() -> Self {
        let notices = RefCell::new(Bucket::new(NOTICES_PER_S_MAX, NOTICES_BURST));
        let (socket, keys) = (RefCell::default(), RefCell::default());
        Self { socket, keys, notices, counts: Cell::default() }
    }

    /// Answers for as long as it is polled.
    pub(super) async fn serve(
        &self,
        socket: Datagrams,
        clock: &Clock,
        report: impl Fn() -> Feedback,
    ) {
        let socket = Rc::new(socket);
        self.socket.replace(Some(Rc::clone(&socket)));
        let _closing = Closing(&self.socket);
        let paused = || self.count(|counts| &mut counts.pauses);
        let bucket = Bucket::new(PER_S_MAX, BURST);
        let took = |bytes: &[u8], from| self.take(&socket, clock.now(), (bytes, from), &report);
        socket.read::<{ BYTES + 1 }>(clock, bucket, paused, took).await;
    }

    /// A key for a proxy that asks for one, as it is told.
    pub(super) fn new_key(&self, now: Instant) -> Option<HeaderValue> {
        if self.socket.borrow().is_some() { self.keys.borrow_mut().add(now) } else { None }
    }

    /// Tells a proxy that wishes so that its request waits.
    pub(super) fn notify(&self, now: Instant, wish: &Wish, report: impl FnOnce() -> Feedback) {
        let Some(socket) = self.socket.borrow().clone() else { return };
        let mut keys = self.keys.borrow_mut();
        let Some((told, to)) = keys.owner(now, wish) else { return };
        if self.notices.borrow_mut().take(now).is_err() {
            return self.count(|counts| &mut counts.notices_left_out);
        }
        if told.notified.is_new(wish.number) {
            let notice = told.key.notice(wish.number, &report());
            match socket.send(&notice, to) {
                Ok(()) => self.count(|counts| &mut counts.notices),
                Err(_) => self.count(|counts| &mut counts.notices_left_out),
            }
        }
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
        let answer = self.keys.borrow_mut().answer(now, (bytes, from), report);
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
struct Closing<'a>(&'a RefCell<Option<Rc<Datagrams>>>);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.take();
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
    /// Where the last question came from.
    from: Option<SocketAddr>,
    notified: Notified,
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
        let (seen, notified) = Default::default();
        self.told.push_back(Told { key, until: now + KEY_LIFE, seen, from: None, notified });
        Some(words)
    }

    fn holding(&mut self, now: Instant, key: u32) -> Option<&mut Told> {
        let place = key.wrapping_sub(self.first) as usize;
        self.told.get_mut(place).filter(|told| told.until > now)
    }

    /// Whose wish it is, and where a notice reaches them.
    fn owner(&mut self, now: Instant, wish: &Wish) -> Option<(&mut Told, SocketAddr)> {
        let told = self.holding(now, wish.key).filter(|told| told.key.is_owners(wish))?;
        told.from.map(|from| (told, from))
    }

    fn answer(
        &mut self,
        now: Instant,
        (bytes, from): (&[u8], SocketAddr),
        report: impl Fn() -> Feedback,
    ) -> Result<[u8; BYTES], Dropped> {
        let Envelope { key, nonce } = Envelope::read(bytes, Kind::Question)?;
        let question: &[u8; BYTES] = bytes.try_into().map_err(|_| Rejected::Malformed)?;
        let told = self.holding(now, key).filter(|told| told.key.is_authentic(question));
        let told = told.ok_or(Dropped::Foreign)?;
        if !told.seen.is_new(nonce) {
            return Err(Dropped::Replayed);
        }
        told.from = Some(from);
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

/// Of which requests a notice was given: of the largest numbers of each by itself, of those below
/// all.
#[derive(Debug, Default)]
struct Notified {
    below: u64,
    numbers: BTreeSet<u64>,
}

impl Notified {
    fn is_new(&mut self, number: u64) -> bool {
        if number < self.below || !self.numbers.insert(number) {
            return false;
        }
        if self.numbers.len() > NUMBERS_KEPT
            && let Some(smallest) = self.numbers.pop_first()
        {
            self.below = smallest.saturating_add(1);
        }
        true
    }
}

#[cfg(test)]
mod tests;
