//! Where names lead, for whoever opens connections to them: what was heard last is remembered.
//!
//! An answer is good for its time to live. Then whoever connects next asks again, and waits only
//! for a moment: where DNS is slow, fails or has no address the last ones stay in use. That is said
//! once, until the name is known again. Nobody asks while nobody connects.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};

use super::{Found, LookupError, Resolver};

/// Bounds of the time for which an answer is good.
const TTL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// An answer that lacks something is good for so long at most.
const COMPLETED_WITHIN: Duration = Duration::from_secs(5);

/// After so many failures in a row the pause before the next question grows no more: 32 s.
const DOUBLINGS_MAX: u32 = 5;

/// How long one lookup may take, all servers and rounds included.
const LOOKUP: Duration = Duration::from_secs(15);

/// How long somebody waits for a new answer who could use the last one.
const MOMENT: Duration = Duration::from_millis(200);

/// Addresses of a name that are used.
const ADDRESSES_MAX: usize = 64;

thread_local! {
    static OF_THREAD: RefCell<Option<Arc<Names>>> = const { RefCell::new(None) };
}

/// The names that a process connects to.
#[derive(Debug)]
pub struct Names {
    resolver: Resolver,
    known: Mutex<BTreeMap<String, Known>>,
    /// Lookups that ended: whole, partial, failed.
    ended: [AtomicU64; 3],
}

/// What looking up names brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lookups {
    /// Addresses of both kinds, as far as there are any.
    pub whole: u64,
    /// Those of one kind; nobody could tell those of the other.
    pub partial: u64,
    /// None.
    pub failed: u64,
    /// Names whose last lookup brought none.
    pub failing: usize,
}

/// What is known of one name.
#[derive(Debug)]
struct Known {
    addresses: Vec<IpAddr>,
    /// Which of them is tried first.
    first: usize,
    /// When it was asked for last, and when it is asked for again.
    asked_at: Instant,
    ask_at: Instant,
    is_asked: bool,
    /// Failures in a row, and why the last one was one.
    failures: u32,
    why: String,
    answered: Arc<Notify>,
}

impl Names {
    /// Knows nothing yet, and asks this resolver.
    pub fn new(resolver: Resolver) -> Arc<Self> {
        Arc::new(Self { resolver, known: Mutex::default(), ended: Default::default() })
    }

    /// Those of the thread: whoever connects on it looks them up here.
    pub fn of_thread() -> Arc<Self> {
        let of_system = || Self::new(Resolver::new(Vec::new()));
        OF_THREAD.with_borrow_mut(|names| Arc::clone(names.get_or_insert_with(of_system)))
    }

    /// Makes them those of the thread from now on.
    pub fn enter(self: &Arc<Self>) {
        OF_THREAD.set(Some(Arc::clone(self)));
    }

    /// The addresses of a name, the one to try first in front. Call it in a runtime. The caller
    /// limits the time, which matters only as long as nothing is known of the name.
    ///
    /// # Errors
    /// When nothing was ever known, with the reason.
    pub async fn addresses(self: &Arc<Self>, host: &str) -> io::Result<Vec<IpAddr>> {
        let mut is_new = false; // whether it was waited for an answer already
        loop {
            let answered = {
                let mut all = self.lock();
                let now = Instant::now();
                let known = all.entry(host.to_owned()).or_insert_with(|| Known::unheard(now));
                let is_due = known.is_asked || now >= known.ask_at;
                if !is_due || is_new {
                    return known.addresses(host);
                }
                if !known.is_asked {
                    known.is_asked = true;
                    known.asked_at = now;
                    tokio::spawn(Asking::of(self, host).ask());
                }
                // Made under the lock: an answer from here on wakes it.
                let until = (!known.addresses.is_empty()).then_some(known.asked_at + MOMENT);
                (Arc::clone(&known.answered).notified_owned(), until)
            };
            match answered {
                (answered, Some(until)) => drop(timeout_at(until, answered).await),
                (answered, None) => answered.await,
            }
            is_new = true;
        }
    }

    /// Begins with this address the next time, as far as the name has it.
    pub fn prefer(&self, host: &str, address: IpAddr) {
        if let Some(known) = self.lock().get_mut(host)
            && let Some(at) = known.addresses.iter().position(|known| *known == address)
        {
            known.first = at;
        }
    }

    /// Nobody could be reached at any of its addresses: the name may lead elsewhere by now.
    pub fn doubt(&self, host: &str) {
        if let Some(known) = self.lock().get_mut(host) {
            known.ask_at = known.ask_at.min(known.asked_at + TTL.0);
        }
    }

    /// The addresses a name led to last, without asking.
    pub fn last(&self, host: &str) -> Vec<IpAddr> {
        self.lock().get(host).map(|known| known.addresses.clone()).unwrap_or_default()
    }

    /// What was counted since the start of the process.
    pub fn lookups(&self) -> Lookups {
        let failing = self.lock().values().filter(|known| known.failures > 0).count();
        let [whole, partial, failed] = self.ended.each_ref().map(|it| it.load(Ordering::Relaxed));
        Lookups { whole, partial, failed, failing }
    }

    fn count(&self, heard: &Result<Found<IpAddr>, Unanswered>) {
        let outcome = match heard {
            Ok(Found { records, .. }) if records.is_empty() => 2,
            Ok(Found { missing, .. }) => usize::from(missing.is_some()),
            Err(_) => 2,
        };
        self.ended[outcome].fetch_add(1, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn unheard(now: Instant) -> Self {
        Self {
            addresses: Vec::new(),
            first: 0,
            asked_at: now,
            ask_at: now,
            is_asked: false,
            failures: 0,
            why: String::new(),
            answered: Arc::default(),
        }
    }

    fn addresses(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        if self.addresses.is_empty() {
            let words = format!("{host}: {}", self.why);
            return Err(io::Error::new(io::ErrorKind::HostUnreachable, words));
        }
        let mut addresses = self.addresses.clone();
        addresses.rotate_left(self.first);
        Ok(addresses)
    }

    fn learn(&mut self, now: Instant, host: &str, heard: Result<Found<IpAddr>, Unanswered>) {
        let (mut found, ttl, missing) = match heard {
            Ok(Found { records, ttl, missing }) if !records.is_empty() => (records, ttl, missing),
            Ok(_) => return self.fail(now, host, &Unanswered::Nobody),
            Err(why) => return self.fail(now, host, &why),
        };
        let mut ttl = ttl.clamp(TTL.0, TTL.1);
        if missing.is_some() {
            // Those of the kind that nobody could tell may still be there.
            let told = found.first().map(IpAddr::is_ipv4);
            found.extend(self.addresses.iter().filter(|it| Some(it.is_ipv4()) != told));
            ttl = ttl.min(COMPLETED_WITHIN);
        }
        self.ask_at = now + ttl;
        let before: BTreeSet<IpAddr> = self.addresses.iter().copied().collect();
        if std::mem::take(&mut self.failures) > 0 {
            tracing::info!(host, "its addresses are known again");
        }
        if before == found {
            return;
        }
        let preferred = self.addresses.get(self.first).copied();
        self.addresses = found.into_iter().take(ADDRESSES_MAX).collect();
        let is_it = |address: &IpAddr| Some(*address) == preferred;
        self.first = self.addresses.iter().position(is_it).unwrap_or(0);
        if !before.is_empty() {
            tracing::info!(host, addresses = ?self.addresses, "it has other addresses");
        }
    }

    fn fail(&mut self, now: Instant, host: &str, why: &Unanswered) {
        self.ask_at = now + TTL.0 * 2_u32.pow(self.failures.min(DOUBLINGS_MAX));
        self.failures = self.failures.saturating_add(1);
        if self.failures == 1 {
            let stays = match self.addresses.is_empty() {
                true => "nobody can connect to it",
                false => "its last addresses stay in use",
            };
            tracing::warn!(host, error = %why, "its addresses cannot be looked up: {stays}");
        }
        self.why = why.to_string();
    }
}

/// Why a question has brought no address.
#[derive(Debug, thiserror::Error)]
enum Unanswered {
    #[error(transparent)]
    Failed(LookupError),
    #[error("no answer within {} s", LOOKUP.as_secs())]
    Late,
    #[error("it has no address")]
    Nobody,
    /// Whose thread has ended.
    #[error("whoever looked it up has ended")]
    Ended,
}

/// A question on its way. A thread that ends while it asks leaves the name to others.
struct Asking {
    names: Arc<Names>,
    host: String,
    heard: Option<Result<Found<IpAddr>, Unanswered>>,
}

impl Asking {
    fn of(names: &Arc<Names>, host: &str) -> Self {
        Self { names: Arc::clone(names), host: host.to_owned(), heard: None }
    }

    async fn ask(mut self) {
        let resolver = self.names.resolver.clone();
        let asked = timeout(LOOKUP, resolver.addresses(&self.host)).await;
        self.heard = Some(match asked {
            Ok(heard) => heard.map_err(Unanswered::Failed),
            Err(_) => Err(Unanswered::Late),
        });
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let mut all = self.names.lock();
        let Some(known) = all.get_mut(&self.host) else { return };
        known.is_asked = false;
        match self.heard.take() {
            Some(heard) => {
                self.names.count(&heard);
                known.learn(Instant::now(), &self.host, heard);
            }
            None => known.why = Unanswered::Ended.to_string(),
        }
        known.answered.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(ips: &[&str], missing: Option<LookupError>) -> Result<Found<IpAddr>, Unanswered> {
        let records = ips.iter().map(|ip| ip.parse().unwrap()).collect();
        Ok(Found { records, ttl: Duration::from_secs(60), missing })
    }

    #[test]
    fn who_can_tell_of_one_kind_only_takes_none_of_the_other_away() {
        let (now, mut known) = (Instant::now(), Known::unheard(Instant::now()));
        known.learn(now, "a.test", found(&["10.0.0.1", "2001:db8::1"], None));
        assert_eq!(known.ask_at, now + Duration::from_secs(60));
        let refused =
            LookupError::Refused { server: ([127, 0, 0, 1], 53).into(), code: "SERVFAIL" };
        known.learn(now, "a.test", found(&["10.0.0.2"], Some(refused)));
        let both: [IpAddr; 2] = ["10.0.0.2", "2001:db8::1"].map(|ip| ip.parse().unwrap());
        assert_eq!(known.addresses, both);
        assert_eq!(known.ask_at, now + COMPLETED_WITHIN);
        known.learn(now, "a.test", found(&[], None));
        assert_eq!(known.addresses, both, "nothing takes nothing away");
        known.learn(now, "a.test", found(&["10.0.0.2"], None));
        assert_eq!(known.addresses, both[..1]);
    }

    #[test]
    fn pauses_grow_while_it_fails_and_the_reason_is_told() {
        let (now, mut known) = (Instant::now(), Known::unheard(Instant::now()));
        for seconds in [1, 2, 4, 8, 16, 32, 32] {
            known.learn(now, "a.test", Err(Unanswered::Late));
            assert_eq!(known.ask_at, now + Duration::from_secs(seconds));
        }
        let error = known.addresses("a.test").unwrap_err().to_string();
        assert_eq!(error, "a.test: no answer within 15 s");
        known.learn(now, "a.test", found(&["10.0.0.1"], None));
        known.learn(now, "a.test", Err(Unanswered::Late));
        assert_eq!(known.ask_at, now + TTL.0, "they begin anew");
        assert_eq!(known.addresses("a.test").unwrap().len(), 1);
    }
}
