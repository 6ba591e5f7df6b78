//! How far the clocks of duplicates are from the front's.
//!
//! **Signal**: who asks for a time knows that it was read between question and answer. The
//! narrowest of the last readings counts, unless a newer one contradicts it: then the clock was
//! set. **Why signed?** A front that is ahead of all duplicates would take keys for expired that
//! nobody has removed. The front's time is one that is never set ([`super::Deadlines`]).
//!
//! **Who is far from the others** ([`APART_MAX_MS`]), of three or more, is not gone by: one clock
//! that is an hour ahead would end the keys of all. Its duplicate differs from the others and is
//! found as such.

use std::collections::BTreeMap;

use super::ServerSet;

/// What a write may take to a duplicate beside the difference of the clocks.
pub(crate) const MARGIN_MS: i64 = 5;
/// A clock that was not read yet is taken to be so far from ours.
pub(crate) const UNREAD_MS: i64 = 100;
/// A reading that is older says nothing against a new one.
const READING_MS: i64 = 10_000;
/// How far a clock may be from the median of three or more.
pub const APART_MAX_MS: i64 = 2_000;

/// What was read of a clock, in µs ahead of ours.
#[derive(Clone, Copy, Debug)]
struct Reading {
    at_least: i64,
    at_most: i64,
    read_unix_ms: i64,
}

impl Reading {
    const fn middle_ms(&self) -> i64 {
        (self.at_least / 2 + self.at_most / 2) / 1_000
    }
}

/// The clocks of duplicates.
#[derive(Clone, Debug, Default)]
pub struct Clocks(BTreeMap<usize, Reading>);

impl Clocks {
    /// A duplicate said its time, which it was asked for at `sent` and which came at `came`, all in
    /// µs since 1970.
    pub fn told(&mut self, server: usize, (sent, came): (i64, i64), told: i64) {
        let (at_least, at_most) = (told.saturating_sub(came), told.saturating_sub(sent));
        let new = Reading { at_least, at_most, read_unix_ms: came / 1_000 };
        let old = self.0.get(&server).filter(|old| {
            let is_fresh = new.read_unix_ms.abs_diff(old.read_unix_ms) <= READING_MS as u64;
            let is_possible = old.at_least <= at_most && at_least <= old.at_most;
            let is_narrower = old.at_most - old.at_least <= at_most.saturating_sub(at_least);
            is_fresh && is_possible && is_narrower
        });
        if old.is_none() {
            self.0.insert(server, new);
        }
    }

    /// Those of these whose clocks are far from the others', where most agree.
    pub fn apart(&self, live: ServerSet) -> ServerSet {
        let middle = |server| self.0.get(&server).map(|reading| (reading.middle_ms(), server));
        let mut all: Vec<(i64, usize)> = live.iter().filter_map(middle).collect();
        all.sort_unstable();
        let Some(&(median, _)) = all.get(all.len() / 2).filter(|_| all.len() >= 3) else {
            return ServerSet::EMPTY;
        };
        let is_far = |&(ms, _): &(i64, usize)| ms.abs_diff(median) > APART_MAX_MS as u64;
        all.iter().filter(|it| is_far(it)).map(|&(_, server)| server).collect()
    }

    fn gone_by(&self, live: ServerSet) -> ServerSet {
        live.without(self.apart(live))
    }

    /// By how many ms any of these may be ahead of ours, and behind it, with the margin. What is
    /// negative is the other way.
    pub(crate) fn bounds(&self, live: ServerSet) -> (i64, i64) {
        let ms = |us: i64| us.saturating_add(999).div_euclid(1_000);
        let each = self.gone_by(live).iter().map(|server| {
            self.0.get(&server).map_or((UNREAD_MS, UNREAD_MS), |reading| {
                (ms(reading.at_most), ms(reading.at_least.saturating_neg()))
            })
        });
        let farthest = each.reduce(|one, other| (one.0.max(other.0), one.1.max(other.1)));
        let (lead, lag) = farthest.unwrap_or((UNREAD_MS, UNREAD_MS));
        (lead.saturating_add(MARGIN_MS), lag.saturating_add(MARGIN_MS))
    }

    /// By how many ms one that comes back may be ahead of ours, however far from the others it is,
    /// with the margin.
    pub fn lead_ms(&self, server: usize) -> i64 {
        self.bounds(ServerSet::only(server)).0
    }

    /// By how many ms the fastest of these is ahead of ours at least: so much too early a time to
    /// live ends there that is counted from our time. Negative where all are behind.
    pub fn ahead_ms(&self, live: ServerSet) -> i64 {
        let readings = self.gone_by(live);
        let readings = readings.iter().filter_map(|server| self.0.get(&server));
        readings.map(|reading| reading.at_least.div_euclid(1_000)).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_within_question_and_answer_and_the_narrowest_reading_counts() {
        let one = ServerSet::only(1);
        let mut clocks = Clocks::default();
        let unread = UNREAD_MS + MARGIN_MS;
        assert_eq!(clocks.bounds(one), (unread, unread));
        clocks.told(1, (1_000_000, 1_010_000), 1_055_000); // 45 to 55 ms ahead
        assert_eq!(clocks.bounds(one), (55 + MARGIN_MS, -45 + MARGIN_MS));
        assert_eq!(clocks.ahead_ms(one), 45);
        clocks.told(1, (2_000_000, 2_001_000), 2_051_000); // 50 to 51
        clocks.told(1, (3_000_000, 3_900_000), 3_055_000);
        assert_eq!((clocks.bounds(one).0, clocks.ahead_ms(one)), (51 + MARGIN_MS, 50));
        clocks.told(1, (4_000_000, 4_100_000), 4_000_000); // it was set
        assert_eq!(clocks.bounds(one), (MARGIN_MS, 100 + MARGIN_MS));
        assert_eq!(clocks.bounds(ServerSet::EMPTY), (unread, unread));
    }

    #[test]
    fn clocks_that_are_all_behind_ours_end_nothing_early() {
        let all: ServerSet = (0..3).collect();
        let mut clocks = Clocks::default();
        for server in 0..3 {
            clocks.told(server, (3_600_000_000, 3_600_001_000), 500);
        }
        assert_eq!(clocks.bounds(all), (-3_600_000 + 1 + MARGIN_MS, 3_600_001 + MARGIN_MS));
        assert_eq!(clocks.ahead_ms(all), -3_600_001);
    }

    #[test]
    fn who_is_far_from_two_others_is_not_gone_by_and_of_two_both_are() {
        let all: ServerSet = (0..3).collect();
        let mut clocks = Clocks::default();
        for (server, ahead) in [(0, 0), (1, 3_600_000_000), (2, 10_000)] {
            clocks.told(server, (0, 0), ahead);
        }
        assert_eq!(clocks.apart(all), ServerSet::only(1));
        assert_eq!((clocks.bounds(all).0, clocks.ahead_ms(all)), (10 + MARGIN_MS, 10));
        assert_eq!(clocks.lead_ms(1), 3_600_000 + MARGIN_MS, "what it does itself goes by it");
        let two: ServerSet = (0..2).collect();
        assert_eq!(clocks.apart(two), ServerSet::EMPTY);
        assert_eq!(clocks.ahead_ms(two), 3_600_000);
    }
}
