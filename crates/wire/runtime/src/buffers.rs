//! What may be buffered for the clients of a whole process.
//!
//! Every protocol limits what one client may have waiting. A process has thousands of clients, and
//! those that read slowly fill its memory together. So all of them share one budget:
//!
//! - While a client has something under way, it may ask for more only if it holds no more than is
//!   left of half the budget ([`BufferShare::has_room`]). So those that hold most wait first, and
//!   one alone leaves half of that half to others. The other half is for answers under way.
//! - When the whole budget is used, the client that holds most is cut off, and so on until it fits.
//!
//! **Why nobody waits for ever**: what is under way ends by itself (nodes answer or time out, the
//! client reads or is cut off), whoever else waits. A client of which nothing is under way is
//! always read from: at worst it asks one thing at a time.
//!
//! A client holds a few buffers in any case; their number is limited by that of the clients. So
//! bytes count in whole units of [`UNIT_BYTES`]: most requests touch nothing that is shared.
//!
//! **Source**: dynamic thresholds for shared buffers (Choudhury and Hahne, 1998); Redis'
//! `maxmemory-clients` evicts the largest.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Instant;

use crate::accept::Told;

/// Bytes count in whole units: with less than one a client holds nothing.
pub const UNIT_BYTES: u64 = 32 << 10;

/// What a process has without a configuration.
pub const BYTES_MAX: u64 = 256 << 20;

static OF_PROCESS: BufferBudget = BufferBudget::new(BYTES_MAX);

/// The budget of this process.
pub fn of_process() -> &'static BufferBudget {
    &OF_PROCESS
}

/// Bytes that are buffered for clients, of all threads.
#[derive(Debug)]
pub struct BufferBudget {
    bytes_max: AtomicU64,
    used: AtomicU64,
    held_back: AtomicU64,
    cut_off: AtomicU64,
    /// Clients that hold something, or did, by a number of their own.
    holders: Mutex<BTreeMap<u64, Arc<Holder>>>,
    next: AtomicU64,
    told: Told,
}

/// One client as others see it.
#[derive(Debug)]
struct Holder {
    bytes: AtomicU64,
    is_cut_off: AtomicBool,
    waker: Waker,
}

/// What was counted of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferCounts {
    /// Bytes that are buffered.
    pub bytes: u64,
    /// How many there may be.
    pub bytes_max: u64,
    /// Times that a client was not read from because it held too much.
    pub held_back: u64,
    /// Clients that were cut off because they held most.
    pub cut_off: u64,
}

impl BufferBudget {
    /// So many bytes, and nobody who holds any.
    #[must_use]
    pub const fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max: AtomicU64::new(bytes_max),
            used: AtomicU64::new(0),
            held_back: AtomicU64::new(0),
            cut_off: AtomicU64::new(0),
            holders: Mutex::new(BTreeMap::new()),
            next: AtomicU64::new(0),
            told: Told::new(),
        }
    }

    /// Allows so many bytes from now on.
    pub fn limit(&self, bytes_max: u64) {
        self.bytes_max.store(bytes_max, Relaxed);
    }

    /// What was counted.
    pub fn counts(&self) -> BufferCounts {
        BufferCounts {
            bytes: self.used.load(Relaxed),
            bytes_max: self.bytes_max.load(Relaxed),
            held_back: self.held_back.load(Relaxed),
            cut_off: self.cut_off.load(Relaxed),
        }
    }

    fn holders(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Holder>>> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has those who hold most cut off until the rest fits; of equals, who came last.
    #[cold]
    fn relieve(&self) {
        let holders = self.holders();
        let is_leaving = |holder: &&Arc<Holder>| holder.is_cut_off.load(Relaxed);
        let bytes_of = |holder: &Arc<Holder>| holder.bytes.load(Relaxed);
        let leaving: u64 = holders.values().filter(is_leaving).map(bytes_of).sum();
        let mut staying = self.used.load(Relaxed).saturating_sub(leaving);
        while staying > self.bytes_max.load(Relaxed) {
            let others = holders.values().filter(|holder| !is_leaving(holder));
            let Some(largest) = others.max_by_key(|holder| bytes_of(holder)) else { return };
            let bytes = bytes_of(largest);
            staying = staying.saturating_sub(bytes);
            largest.is_cut_off.store(true, Relaxed);
            largest.waker.wake_by_ref();
            self.cut_off.fetch_add(1, Relaxed);
            if let Some(clients) = self.told.is_news(Instant::now()) {
                tracing::warn!(
                    bytes,
                    clients,
                    "process.buffers_max is used: who held most was cut off"
                );
            }
        }
    }
}

/// What one client holds. Given back when it is dropped.
#[derive(Debug)]
pub struct BufferShare {
    budget: &'static BufferBudget,
    /// Once it has held something.
    holder: Option<(u64, Arc<Holder>)>,
    bytes: u64,
    is_held_back: Cell<bool>,
}

impl BufferShare {
    /// Of a client that holds nothing yet.
    pub fn of(budget: &'static BufferBudget) -> Self {
        Self { budget, holder: None, bytes: 0, is_held_back: Cell::new(false) }
    }

    /// Says how many bytes are buffered for the client now. False when it is to be cut off; its
    /// task is woken for that.
    #[must_use]
    pub fn hold(&mut self, bytes: usize, waker: &Waker) -> bool {
        let bytes = bytes as u64 / UNIT_BYTES * UNIT_BYTES;
        if bytes != self.bytes {
            self.change(bytes, waker);
        }
        !self.holder.as_ref().is_some_and(|(_, holder)| holder.is_cut_off.load(Relaxed))
    }

    fn change(&mut self, bytes: u64, waker: &Waker) {
        let budget = self.budget;
        let (_, holder) = self.holder.get_or_insert_with(|| {
            let (bytes, is_cut_off) = (AtomicU64::new(0), AtomicBool::new(false));
            let holder = Arc::new(Holder { bytes, is_cut_off, waker: waker.clone() });
            let number = budget.next.fetch_add(1, Relaxed);
            budget.holders().insert(number, Arc::clone(&holder));
            (number, holder)
        });
        holder.bytes.store(bytes, Relaxed);
        let before = std::mem::replace(&mut self.bytes, bytes);
        if bytes < before {
            budget.used.fetch_sub(before - bytes, Relaxed);
        } else if budget.used.fetch_add(bytes - before, Relaxed) + (bytes - before)
            > budget.bytes_max.load(Relaxed)
        {
            budget.relieve();
        }
    }

    /// Whether the client may ask for more while something of it is under way.
    pub fn has_room(&self) -> bool {
        let has_room = self.bytes == 0 || {
            let for_requests = self.budget.bytes_max.load(Relaxed) / 2;
            self.bytes <= for_requests.saturating_sub(self.budget.used.load(Relaxed))
        };
        if !has_room && !self.is_held_back.get() {
            self.budget.held_back.fetch_add(1, Relaxed);
        }
        self.is_held_back.set(!has_room);
        has_room
    }
}

impl Drop for BufferShare {
    fn drop(&mut self) {
        let Some((number, _)) = self.holder.take() else { return };
        self.budget.holders().remove(&number);
        self.budget.used.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UNIT: usize = UNIT_BYTES as usize;

    fn budget(units: u64) -> &'static BufferBudget {
        Box::leak(Box::new(BufferBudget::new(units * UNIT_BYTES)))
    }

    #[test]
    fn who_holds_most_waits_first_and_who_holds_nothing_never() {
        let budget = budget(16);
        let [mut large, mut small, none] = [(); 3].map(|()| BufferShare::of(budget));
        assert!(large.hold(4 * UNIT, Waker::noop()) && large.has_room(), "half of the half");
        assert!(small.hold(2 * UNIT, Waker::noop()) && small.has_room());
        assert!(!large.has_room(), "4 units of 2 that are left");
        assert!(!large.has_room(), "and that is one time");
        assert!(small.hold(3 * UNIT, Waker::noop()) && !small.has_room() && none.has_room());
        assert_eq!(budget.counts().held_back, 2);
        assert!(
            large.hold(UNIT - 1, Waker::noop()) && large.has_room(),
            "what is less than a unit"
        );
        assert!(small.has_room());
        assert_eq!(budget.counts().bytes, 3 * UNIT_BYTES);
    }

    #[test]
    fn one_client_has_no_more_than_a_quarter_when_it_asks_for_more() {
        let budget = budget(64);
        let mut greedy = BufferShare::of(budget);
        let mut units = 0;
        while greedy.has_room() {
            units += 1;
            assert!(greedy.hold(units * UNIT, Waker::noop()));
        }
        assert_eq!(units, 17);
        let mut other = BufferShare::of(budget);
        assert!(other.hold(UNIT, Waker::noop()) && other.has_room());
    }

    /// What a client does next: it holds so many units, or leaves.
    fn moves() -> impl Strategy<Value = Vec<(usize, Option<usize>)>> {
        prop::collection::vec((0..6_usize, prop::option::weighted(0.9, 0..9_usize)), 1..80)
    }

    proptest! {
        /// After each step those that stay fit, whoever was cut off held most, and nothing is
        /// counted of those that left.
        #[test]
        fn what_stays_fits_and_the_largest_leave(moves in moves()) {
            let budget = budget(12);
            let mut shares: Vec<(BufferShare, u64, bool)> =
                (0..6).map(|_| (BufferShare::of(budget), 0, true)).collect();
            for (who, what) in moves {
                let (share, units, _) = &mut shares[who];
                match what {
                    Some(now) => {
                        *units = now as u64;
                        let _ = share.hold(now * UNIT, Waker::noop());
                    }
                    None => shares[who] = (BufferShare::of(budget), 0, true),
                }
                let mut smallest_cut = u64::MAX;
                for (share, units, stays) in &mut shares {
                    let still = share.hold(*units as usize * UNIT, Waker::noop());
                    let stayed = std::mem::replace(stays, still);
                    if stayed && !*stays {
                        smallest_cut = smallest_cut.min(*units);
                    }
                }
                let staying = shares.iter().filter(|it| it.2);
                let sum: u64 = staying.clone().map(|it| it.1).sum();
                prop_assert!(sum <= 12, "{sum} units stay");
                prop_assert!(staying.clone().all(|it| it.1 <= smallest_cut));
                let all: u64 = shares.iter().map(|it| it.1).sum();
                prop_assert_eq!(budget.counts().bytes, all * UNIT_BYTES);
                let room: Vec<_> = shares.iter().map(|it| (it.1, it.0.has_room())).collect();
                for (units, has_room) in &room {
                    prop_assert!(*has_room || *units > 0, "who holds nothing has room");
                    let larger = room.iter().filter(|other| other.0 >= *units && *units > 0);
                    prop_assert!(*has_room || larger.clone().all(|other| !other.1));
                }
            }
            drop(shares);
            prop_assert_eq!(budget.counts().bytes, 0);
        }
    }
}
