//! What of an answer's time no slot was held for, where no agent tells: ways, wake-ups, the proxy.
//!
//! Who finds a free slot takes this time and a service. Who waits begins when another one leaves,
//! and between two departures, both seen by the proxy, lies a service alone: the way back is in
//! both, and the way there went by in the queue. So by how much the first take longer is this time.
//! **Statistic**: the mean difference of quantiles up to the eightieth, as pauses are above, among
//! neighbours in time, as speeds change. **When it misleads**: who waits more in slow times that
//! are shorter than a block makes it too small; where all share cores it is less than nothing, and
//! then none is told. Replicas of which nobody waited tell nothing either.

use crate::slots;
use crate::visits::Visit;

/// Visits of a replica that are compared with each other.
const BLOCK: usize = 256;
/// Fewer of either kind in a block say nothing.
const FEW: usize = 12;
/// The quantiles that are compared, in percent.
const PERCENTS: [usize; 8] = [10, 20, 30, 40, 50, 60, 70, 80];
/// Who waited is known better once the time is.
const ROUNDS: usize = 3;
/// Less than so many standard errors is nothing.
const ERRORS: f64 = 3.0;

/// The time, ns, of replicas with so many slots, whose visits have all of it; 0 where it is not
/// known to be more.
pub fn time_ns(replicas: &[Vec<Visit>], slots: u32) -> u64 {
    let starts: Vec<_> = replicas.iter().map(|visits| slots::starts(visits, slots).at_ns).collect();
    let mut away_ns = 0;
    for _ in 0..ROUNDS {
        let next_ns = told(replicas, &starts, away_ns);
        if next_ns == away_ns {
            break;
        }
        away_ns = next_ns;
    }
    away_ns
}

/// The same if it is about so long.
fn told(replicas: &[Vec<Visit>], starts: &[Vec<Option<u64>>], away_ns: u64) -> u64 {
    let (mut sum, mut weights, mut blocks) = (0.0, 0.0, Vec::new());
    for (visits, starts) in replicas.iter().zip(starts) {
        let began = visits.iter().zip(starts).filter_map(|(visit, start)| Some((visit, (*start)?)));
        let all: Vec<(bool, u64)> = began
            .filter(|(visit, _)| !visit.is_cut)
            .filter_map(|(visit, start)| {
                let waited = start > visit.at_ns.saturating_add(away_ns);
                // Who came as another left has some of the time, and nobody knows how much.
                let is_known = waited || start == visit.at_ns;
                is_known.then_some((waited, visit.left_ns.saturating_sub(start)))
            })
            .collect();
        for block in all.chunks(BLOCK) {
            let of = |kind: bool| {
                let same = block.iter().filter(|(waited, _)| *waited == kind);
                let mut times: Vec<u64> = same.map(|(_, took_ns)| *took_ns).collect();
                times.sort_unstable();
                times
            };
            let (free, waited) = (of(false), of(true));
            if free.len() < FEW || waited.len() < FEW {
                continue;
            }
            let apart = |percent: &usize| quantile(&free, *percent) - quantile(&waited, *percent);
            let value = PERCENTS.iter().map(apart).sum::<f64>() / PERCENTS.len() as f64;
            let (one, other) = (free.len() as f64, waited.len() as f64);
            let weight = one * other / (one + other);
            (sum, weights) = (sum + weight * value, weights + weight);
            blocks.push((weight, value));
        }
    }
    if blocks.len() < 2 {
        return 0;
    }
    let value = sum / weights;
    let squares = blocks.iter().map(|(weight, one)| (weight * (one - value)).powi(2)).sum::<f64>();
    let error = squares.sqrt() / weights;
    if value > ERRORS * error { value as u64 } else { 0 }
}

/// Of ascending times, between neighbours.
fn quantile(ascending: &[u64], percent: usize) -> f64 {
    let place = (percent as f64 / 100.0 * ascending.len() as f64 - 0.5).max(0.0);
    let (below, part) = (place.floor() as usize, place.fract());
    let low = ascending[below.min(ascending.len() - 1)] as f64;
    let high = ascending[(below + 1).min(ascending.len() - 1)] as f64;
    low + part * (high - low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_core::Rng;

    /// Answers of one replica of so many slots, seen from afar, in microseconds.
    fn seen(slots: usize, mean_us: f64, away_us: f64, rng: &mut Rng) -> Vec<Visit> {
        let mut free_us = vec![0.0_f64; slots];
        let (mut at_us, mut pause_us) = (0.0_f64, 0.0_f64);
        let mut visit = |row: usize| {
            at_us += mean_us / slots as f64 / 0.5 * rng.exponential();
            if row.is_multiple_of(400) {
                pause_us = at_us + 30.0 * mean_us;
            }
            let slot = (0..slots).min_by(|a, b| free_us[*a].total_cmp(&free_us[*b])).unwrap();
            let way_us = away_us * (0.4 + 0.2 * rng.unit());
            let begins_us: f64 = free_us[slot].max(at_us + way_us);
            let begins_us = if begins_us < pause_us { begins_us.max(pause_us) } else { begins_us };
            // Some works take next to nothing.
            free_us[slot] = begins_us + mean_us * rng.exponential();
            let left_us = free_us[slot] + away_us * (0.4 + 0.2 * rng.unit());
            Visit {
                row,
                at_ns: (1e3 * at_us) as u64,
                left_ns: (1e3 * left_us) as u64,
                is_cut: false,
                is_lean: false,
                is_first: true,
            }
        };
        (0..8_000).map(&mut visit).collect()
    }

    #[test]
    fn ways_and_wakeups_are_told_from_services_also_with_pauses_and_several_slots() {
        let mut rng = Rng::seeded(3);
        for (slots, away_us) in [(1, 200.0), (1, 600.0), (2, 400.0)] {
            let replicas: Vec<_> =
                (0..3).map(|_| seen(slots, 2_000.0, away_us, &mut rng)).collect();
            let told_us = time_ns(&replicas, slots as u32) as f64 * 1e-3;
            // Services have a deviation of 2,000: some 4,000 of each kind make an error of 45.
            assert!((told_us - away_us).abs() < 135.0, "{told_us} where {away_us} is true");
        }
    }

    #[test]
    fn where_there_is_none_none_is_told_nor_where_crowds_take_longer() {
        let mut rng = Rng::seeded(4);
        let none = vec![seen(1, 2_000.0, 0.0, &mut rng)];
        assert_eq!(time_ns(&none, 1), 0);
        let mut crowded = none;
        let starts = slots::starts(&crowded[0], 1).at_ns;
        let mut later_ns = 0;
        for (visit, start) in crowded[0].iter_mut().zip(starts) {
            // A third more for who waited, and all behind are later by as much.
            visit.left_ns += later_ns;
            visit.at_ns += later_ns;
            if let Some(start) = start.filter(|start| start + later_ns > visit.at_ns) {
                let more_ns = (visit.left_ns - later_ns - start) / 3;
                (visit.left_ns, later_ns) = (visit.left_ns + more_ns, later_ns + more_ns);
            }
        }
        assert_eq!(time_ns(&crowded, 1), 0);
        assert_eq!((time_ns(&[], 1), time_ns(&[Vec::new()], 1)), (0, 0));
    }
}
