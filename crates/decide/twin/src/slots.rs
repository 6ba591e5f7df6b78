//! How many requests a replica serves at once, and when each began, from when they came and left.
//!
//! First in, first out, in c slots: a request begins when the c-th last of those before it has
//! left. So c is the smallest number with which next to nobody leaves before they could have begun.
//! Some do in any case: real servers read from connections in another order than requests were sent
//! in, above all behind a pause, when many are there. With too few slots, though, many of those
//! who find all of them taken leave too early.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::visits::Visit;

/// So many may leave before they could have begun: messages overtake each other.
const EARLY_MAX: f64 = 0.001;
/// Of those that found all slots taken, so many.
const OVERTAKING_MAX: f64 = 0.02;
/// Replicas that serve more at once serve all at once.
pub const SLOTS_MAX: u32 = 1_024;

/// What so many slots make of a replica's visits.
#[derive(Clone, Debug, Default)]
pub struct Starts {
    /// When each visit began, ns; `None` where it was given up before, and where it overtook
    /// others, so that nobody knows.
    pub at_ns: Vec<Option<u64>>,
    /// How many found all slots taken.
    pub waited: usize,
    /// How many left before they could have begun.
    pub early: usize,
    /// How long those took, ns, that waited for the slot of one that was given up, or behind one
    /// that was given up before it began.
    pub behind_ns: Vec<u64>,
}

/// When visits began in so many slots, where what is given up is left off.
pub fn starts(visits: &[Visit], slots: u32) -> Starts {
    starts_where(visits, slots, |_, _| None)
}

/// The same where a slot may be held for longer: `held_ns` says until when by a visit that was
/// given up and began, or would have begun, then; `None`: until it was given up.
pub fn starts_where(
    visits: &[Visit],
    slots: u32,
    mut held_ns: impl FnMut(&Visit, u64) -> Option<u64>,
) -> Starts {
    let slots = slots.max(1) as usize;
    let mut taken = BinaryHeap::with_capacity(slots + 1);
    let mut all = Starts::default();
    let mut is_next = false;
    let start = |visit: &Visit| {
        let is_full = taken.len() >= slots;
        let (free_ns, was_cut) = match taken.peek() {
            Some(Reverse(free)) if is_full => *free,
            _ => (0, false),
        };
        let start_ns = visit.at_ns.max(free_ns);
        all.waited += usize::from(free_ns > visit.at_ns);
        let held_ns = if visit.is_cut { held_ns(visit, start_ns) } else { None };
        let is_early = visit.left_ns < start_ns;
        if visit.is_cut && held_ns.is_none() && visit.left_ns <= start_ns {
            is_next = true;
            return None;
        }
        if (was_cut || is_next) && free_ns > visit.at_ns && !visit.is_cut {
            all.behind_ns.push(visit.left_ns.saturating_sub(start_ns));
        }
        is_next = false;
        all.early += usize::from(is_early && !visit.is_cut);
        // Whom it overtook keeps the slot.
        let left_ns = held_ns.unwrap_or(visit.left_ns).max(start_ns);
        if is_full && let Some(mut first) = taken.peek_mut() {
            *first = Reverse((left_ns, visit.is_cut));
        } else {
            taken.push(Reverse((left_ns, visit.is_cut)));
        }
        (!is_early).then_some(start_ns)
    };
    all.at_ns = visits.iter().map(start).collect();
    all
}

/// The slots of each of these replicas, at least so many, and the share of visits that leave too
/// early even so.
pub fn concurrency(replicas: &[Vec<Visit>], slots_min: u32) -> (u32, f64) {
    let all = replicas.iter().map(Vec::len).sum::<usize>().max(1) as f64;
    let tried = |slots: u32| {
        let (mut waited, mut early) = (0, 0);
        for starts in replicas.iter().map(|visits| starts(visits, slots)) {
            (waited, early) = (waited + starts.waited, early + starts.early);
        }
        let (share, early) = (early as f64 / all, early as f64);
        (share <= EARLY_MAX || early <= OVERTAKING_MAX * waited as f64, share)
    };
    let (mut low, mut high) = (slots_min.saturating_sub(1), slots_min.max(1));
    let (mut is_enough, mut of_high) = tried(high);
    while high < SLOTS_MAX && !is_enough {
        (low, high) = (high, high * 2);
        (is_enough, of_high) = tried(high);
    }
    while high - low > 1 {
        let middle = low.midpoint(high);
        let (is_enough, of_middle) = tried(middle);
        if is_enough { (high, of_high) = (middle, of_middle) } else { low = middle }
    }
    (high, of_high)
}
