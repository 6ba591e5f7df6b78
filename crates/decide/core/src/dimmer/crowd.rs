//! The requests that are at a replica now: how many, how old, how much content.

use std::collections::VecDeque;

use crate::time::{Duration, Instant};

/// Places that are kept; beyond it the oldest request is forgotten as if it had left.
const PLACES_MAX: usize = 1 << 20;

/// Requests in the order of their arrival.
#[derive(Clone, Debug, Default)]
pub(super) struct Crowd {
    /// When each arrived; `None` once it has left. The first is always present.
    line: VecDeque<Option<Instant>>,
    /// The number of the first in line.
    first: u64,
    present: u32,
    /// Sum over those present of the share of optional content they get.
    shares: f64,
    /// All with a lower number were found overdue while they were here.
    overdue_before: u64,
}

impl Crowd {
    /// A request arrives; returns its number.
    #[inline]
    pub(super) fn enter(&mut self, now: Instant, share: f64) -> u64 {
        if self.line.len() == PLACES_MAX {
            self.leave(self.first, self.mean_share());
        }
        self.line.push_back(Some(now));
        self.present += 1;
        self.shares += share;
        self.first + (self.line.len() - 1) as u64
    }

    /// The request with this number leaves.
    #[inline]
    pub(super) fn leave(&mut self, number: u64, share: f64) {
        let Some(place) = number.checked_sub(self.first) else { return };
        let Some(slot) = self.line.get_mut(place as usize) else { return };
        if slot.take().is_none() {
            return;
        }
        self.present -= 1;
        self.shares = if self.present == 0 { 0.0 } else { self.shares - share };
        while let Some(None) = self.line.front() {
            self.line.pop_front();
            self.first += 1;
        }
    }

    /// How many are present.
    pub(super) const fn present(&self) -> u32 {
        self.present
    }

    /// Mean share of optional content of those present; 0 when nobody is.
    pub(super) fn mean_share(&self) -> f64 {
        if self.present == 0 {
            0.0
        } else {
            (self.shares / f64::from(self.present)).clamp(0.0, 1.0)
        }
    }

    /// Whether this request was found overdue while it was here.
    pub(super) const fn was_overdue(&self, number: u64) -> bool {
        number < self.overdue_before
    }

    /// The age of one who has become older than `limit` since this was last asked, each once.
    pub(super) fn next_overdue(&mut self, now: Instant, limit: Duration) -> Option<Duration> {
        loop {
            let place = self.overdue_before.max(self.first) - self.first;
            let arrived = *self.line.get(place as usize)?;
            if let Some(at) = arrived
                && now.since(at) <= limit
            {
                return None;
            }
            self.overdue_before = self.first + place + 1;
            if let Some(at) = arrived {
                return Some(now.since(at));
            }
        }
    }

    /// The ages of those who have been here for longer than `limit`.
    pub(super) fn older_than(
        &self,
        now: Instant,
        limit: Duration,
    ) -> impl Iterator<Item = Duration> {
        let ages = self.line.iter().map(move |arrived| arrived.map(|at| now.since(at)));
        ages.take_while(move |age| age.is_none_or(|age| age > limit)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The obvious model is a list of those present with the times of their arrival.
        #[test]
        fn the_crowd_is_those_who_came_and_have_not_left(
            acts in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..300),
        ) {
            let mut crowd = Crowd::default();
            let mut model: Vec<(u64, Instant)> = Vec::new();
            for (n, (comes, whom)) in acts.iter().enumerate() {
                let now = Instant::from_millis(n as u64);
                if *comes || model.is_empty() {
                    model.push((crowd.enter(now, 0.5), now));
                } else {
                    let (number, _) = model.remove(whom.index(model.len()));
                    crowd.leave(number, 0.5);
                    crowd.leave(number, 0.5); // a second time changes nothing
                }
                prop_assert_eq!(crowd.present() as usize, model.len());
                let limit = Duration::from_millis(20);
                let ages: Vec<_> = crowd.older_than(now, limit).collect();
                let every = model.iter().map(|(_, at)| now.since(*at));
                let expected = every.filter(|age| *age > limit);
                prop_assert_eq!(ages, expected.collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn each_is_overdue_once() {
        let mut crowd = Crowd::default();
        let at = Instant::from_millis;
        let numbers: Vec<_> = (0..4).map(|n| crowd.enter(at(n * 10), 1.0)).collect();
        crowd.leave(numbers[1], 1.0);
        let limit = Duration::from_millis(100);
        assert_eq!(crowd.next_overdue(at(100), limit), None);
        assert_eq!(crowd.next_overdue(at(125), limit), Some(Duration::from_millis(125)));
        assert_eq!(crowd.next_overdue(at(125), limit), Some(Duration::from_millis(105)));
        assert_eq!(crowd.next_overdue(at(125), limit), None);
        assert!(crowd.was_overdue(numbers[0]) && !crowd.was_overdue(numbers[3]));
        crowd.leave(numbers[0], 1.0);
        assert_eq!(crowd.next_overdue(at(131), limit), Some(Duration::from_millis(101)));
        assert_eq!(crowd.next_overdue(at(200), limit), None);
    }

    #[test]
    fn a_request_that_never_ends_does_not_fill_the_memory() {
        let mut crowd = Crowd::default();
        let hung = crowd.enter(Instant::ZERO, 1.0);
        for n in 0..2 * PLACES_MAX as u64 {
            let number = crowd.enter(Instant::from_millis(n), 0.0);
            crowd.leave(number, 0.0);
        }
        assert!(crowd.line.len() <= PLACES_MAX);
        crowd.leave(hung, 1.0);
        assert_eq!(crowd.present(), 0);
    }
}
