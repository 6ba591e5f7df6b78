//! The parts of a long day that one world plays.
//!
//! A short day is played by each world from its beginning to its end. Of a long one, each world
//! plays windows that are dealt in turns, so that all worlds together play the day once. Before a
//! window come some requests that do not count: queues fill, and dispatchers learn.

use evenkeel_twin::twin::Request;

/// Requests of a window at most; it is shorter where a world would have fewer than six.
const WINDOW: usize = 50_000;
const WINDOW_MIN: usize = 500;
const WINDOWS_MIN: usize = 6;
/// Requests that are played before a window and do not count.
const WARM_UP: usize = 2_000;
/// What happens to replicas so long after a window still matters to those it has left behind, ns.
const AFTER_NS: u64 = 2_000_000_000;

/// A window of requests, by the time of their arrival, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    /// From here on requests are played.
    plays_ns: u64,
    /// From here on they count.
    counts_ns: u64,
    /// Those that arrive from here on belong to the next one.
    ends_ns: u64,
}

/// What one world plays: windows in the order of time, that do not overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    windows: Vec<Window>,
}

impl Share {
    /// The whole day.
    pub fn whole() -> Self {
        let window = Window { plays_ns: 0, counts_ns: 0, ends_ns: u64::MAX };
        Self { windows: vec![window] }
    }

    /// The share of world `number` of so many.
    pub fn of(requests: &[Request], number: u64, worlds: u64) -> Self {
        let few = requests.len() / (worlds as usize * WINDOWS_MIN);
        let length = few.clamp(WINDOW_MIN, WINDOW);
        let at_ns = |place: usize| requests.get(place).map_or(u64::MAX, |request| request.at_ns);
        let window = |first: usize| Window {
            plays_ns: at_ns(first.saturating_sub(WARM_UP)),
            counts_ns: if first == 0 { 0 } else { at_ns(first) },
            ends_ns: at_ns(first + length),
        };
        let firsts = (0..requests.len()).step_by(length).skip(number as usize);
        Self { windows: firsts.step_by(worlds as usize).map(window).collect() }
    }

    /// Whether a request that arrived then counts.
    pub fn counts(&self, at_ns: u64) -> bool {
        let place = self.windows.partition_point(|window| window.ends_ns <= at_ns);
        self.windows.get(place).is_some_and(|window| window.counts_ns <= at_ns)
    }

    /// Whether what happens to a replica in this time matters to anybody.
    pub fn meets(&self, from_ns: u64, to_ns: u64) -> bool {
        let is_over = |window: &Window| window.ends_ns.saturating_add(AFTER_NS) <= from_ns;
        let place = self.windows.partition_point(is_over);
        self.windows.get(place).is_some_and(|window| window.plays_ns < to_ns)
    }

    /// The requests that are played, window by window.
    pub fn played<'a>(&'a self, all: &'a [Request]) -> impl Iterator<Item = &'a [Request]> {
        let place = |at_ns: u64| all.partition_point(|request| request.at_ns < at_ns);
        self.windows.iter().map(move |window| &all[place(window.plays_ns)..place(window.ends_ns)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(count: u64) -> Vec<Request> {
        let request = |number: u64| Request {
            // Every third arrives together with the one before.
            at_ns: (number - u64::from(number % 3 == 2)) * 1_000_000,
            client: 0,
            group: 0,
            policy: 0,
            score: 0.0,
            latency_ns: 1,
        };
        (0..count).map(request).collect()
    }

    #[test]
    fn all_shares_together_count_every_request_once() {
        for count in [1, 499, 500, 24_000, 503_017, 1_503_000] {
            let requests = requests(count);
            let shares: Vec<Share> = (0..8).map(|one| Share::of(&requests, one, 8)).collect();
            for request in &requests {
                let counted = shares.iter().filter(|share| share.counts(request.at_ns)).count();
                assert_eq!(counted, 1, "{request:?}");
            }
            let played: usize =
                shares.iter().flat_map(|share| share.played(&requests)).map(<[_]>::len).sum();
            // Each window plays some requests before it, and no world plays one twice.
            assert!(played >= count as usize, "{played} of {count}");
            for share in &shares {
                let windows = share.windows.windows(2);
                assert!(windows.into_iter().all(|pair| pair[0].ends_ns <= pair[1].plays_ns));
            }
        }
    }

    #[test]
    fn what_strikes_between_windows_is_left_out() {
        let requests = requests(960_000);
        let share = Share::of(&requests, 1, 8);
        let s = |seconds: u64| seconds * 1_000_000_000;
        // It plays from 18 s, counts from 20 s, and ends at 40 s.
        assert!(!share.meets(s(16), s(18)) && share.meets(s(16), s(19)));
        assert!(share.meets(s(41), s(42)) && !share.meets(s(43), s(50)));
        assert!(!share.counts(s(19)) && share.counts(s(20)) && !share.counts(s(40)));
        assert!(Share::whole().counts(0) && Share::whole().meets(s(1_000), s(1_001)));
    }
}
