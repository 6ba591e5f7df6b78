//! How many requests a replica serves at once, and when each began, from when they came and left.
//!
//! First in, first out, in c slots: a request begins when the c-th last of those before it has
//! left. So c is the smallest number with which next to nobody leaves before they could have begun.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::visits::Visit;

/// So many may leave before they could have begun: messages overtake each other.
const EARLY_MAX: f64 = 0.001;
/// Replicas that serve more at once serve all at once.
pub const SLOTS_MAX: u32 = 1_024;

/// When each visit began, ns; `None` where it was given up before. And how many left before they
/// could have begun.
pub fn starts(visits: &[Visit], slots: u32) -> (Vec<Option<u64>>, usize) {
    let slots = slots.max(1) as usize;
    let mut taken = BinaryHeap::with_capacity(slots + 1);
    let mut early = 0;
    let start = |visit: &Visit| {
        let is_full = taken.len() >= slots;
        let free_ns = match taken.peek() {
            Some(Reverse(left_ns)) if is_full => *left_ns,
            _ => 0,
        };
        let mut start_ns = visit.at_ns.max(free_ns);
        if visit.left_ns <= start_ns {
            if visit.is_cut {
                return None;
            }
            early += usize::from(visit.left_ns < start_ns);
            start_ns = visit.left_ns;
        }
        if is_full && let Some(mut first) = taken.peek_mut() {
            *first = Reverse(visit.left_ns);
        } else {
            taken.push(Reverse(visit.left_ns));
        }
        Some(start_ns)
    };
    (visits.iter().map(start).collect(), early)
}

/// The slots of each of these replicas, at least so many, and the share of visits that leave too
/// early even so.
pub fn concurrency(replicas: &[Vec<Visit>], slots_min: u32) -> (u32, f64) {
    let all = replicas.iter().map(Vec::len).sum::<usize>().max(1) as f64;
    let early = |slots: u32| {
        replicas.iter().map(|visits| starts(visits, slots).1).sum::<usize>() as f64 / all
    };
    let (mut low, mut high) = (slots_min.saturating_sub(1), slots_min.max(1));
    let mut of_high = early(high);
    while high < SLOTS_MAX && of_high > EARLY_MAX {
        (low, high) = (high, high * 2);
        of_high = early(high);
    }
    while high - low > 1 {
        let middle = low.midpoint(high);
        let of_middle = early(middle);
        if of_middle > EARLY_MAX { low = middle } else { (high, of_high) = (middle, of_middle) }
    }
    (high, of_high)
}
