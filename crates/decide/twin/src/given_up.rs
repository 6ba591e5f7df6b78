//! Whether replicas work on what is given up, where no agent tells.
//!
//! A proxy gives a request up by closing its connection, and many servers find out when they want
//! to answer. Who waited for the slot of one that was given up tells: if it is free at once, they
//! take as long as everybody; if it is not, they seem to take longer by what was left of the work.
//! And if what was left is drawn for each, they take as long as everybody only where it was done.
//! **Statistic**: the share of all services that theirs exceed (Mann and Whitney, 1947), which long
//! ones and pauses do not move, under both beliefs; the one that is nearer to a half is right.
//! **Cold start**: a few say nothing, and then what the proxy believes stands.

use evenkeel_core::Rng;

use crate::slots::{self, Starts};
use crate::visits::Visit;

/// So few that were waited for say nothing.
const FEW: usize = 20;

/// What followers tell, under the beliefs that work is left off, and that it is done.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Followers {
    /// How many there are.
    count: [usize; 2],
    /// For how many others each takes longer than, in sum over all, as shares.
    above: [f64; 2],
}

impl Followers {
    /// Those of these replicas with so many slots. The seed draws what was left of works.
    pub fn of(replicas: &[Vec<Visit>], slots: u32, rng: &mut Rng) -> Self {
        let is_cut = |visit: &Visit| visit.is_cut;
        if !replicas.iter().flatten().any(is_cut) {
            return Self::default();
        }
        let law = Law::of(replicas, slots);
        let mut found = Self::default();
        for visits in replicas {
            found.note(0, &slots::starts(visits, slots), &law);
            let held = |visit: &Visit, start_ns| Some(law.until_ns(visit, start_ns, rng));
            found.note(1, &slots::starts_where(visits, slots, held), &law);
        }
        found
    }

    fn note(&mut self, belief: usize, starts: &Starts, law: &Law) {
        for took_ns in &starts.behind_ns {
            // Of those that took as long, a half.
            let below = law.services_ns.partition_point(|other_ns| other_ns < took_ns);
            let up_to = law.services_ns.partition_point(|other_ns| other_ns <= took_ns);
            let half = 2.0 * law.services_ns.len().max(1) as f64;
            self.above[belief] += (below + up_to) as f64 / half;
            self.count[belief] += 1;
        }
    }

    /// Both together.
    pub fn with(self, other: Self) -> Self {
        let of = |belief: usize| {
            let count = self.count[belief] + other.count[belief];
            (count, self.above[belief] + other.above[belief])
        };
        let [(one, of_one), (two, of_two)] = [of(0), of(1)];
        Self { count: [one, two], above: [of_one, of_two] }
    }

    /// Whether replicas work on what is given up; `None` where nobody can tell.
    pub fn are_behind_work(self) -> Option<bool> {
        if self.count.iter().any(|count| *count < FEW) {
            return None;
        }
        let off = |belief: usize| (self.above[belief] / self.count[belief] as f64 - 0.5).abs();
        Some(off(1) < off(0))
    }
}

/// How long services take that were not given up.
#[derive(Debug)]
pub(crate) struct Law {
    /// In ascending order, ns.
    services_ns: Vec<u64>,
}

impl Law {
    pub(crate) fn of(replicas: &[Vec<Visit>], slots: u32) -> Self {
        let mut services_ns = Vec::new();
        for visits in replicas {
            let starts = slots::starts(visits, slots).at_ns;
            let answered = visits.iter().zip(starts).filter(|(visit, _)| !visit.is_cut);
            services_ns.extend(answered.filter_map(|(visit, start)| Some(visit.left_ns - start?)));
        }
        services_ns.sort_unstable();
        Self { services_ns }
    }

    /// Until when a visit that is worked on although it was given up holds its slot.
    pub(crate) fn until_ns(&self, visit: &Visit, start_ns: u64, rng: &mut Rng) -> u64 {
        let took_ns = visit.left_ns.saturating_sub(start_ns);
        let beyond = self.services_ns.partition_point(|other_ns| *other_ns <= took_ns);
        let longer = &self.services_ns[beyond..];
        let drawn_ns = if longer.is_empty() { took_ns } else { longer[rng.below(longer.len())] };
        start_ns.saturating_add(drawn_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One replica of one slot; one request in thirty is given up at a random moment. Works are
    /// drawn by this.
    fn made(works_on: bool, draw: fn(&mut Rng) -> f64, count: usize, rng: &mut Rng) -> Vec<Visit> {
        let (mut at_us, mut free_us) = (0.0_f64, 0.0_f64);
        let mut visit = |row: usize| {
            at_us += 2_000.0 / 0.7 * rng.exponential();
            let start_us = free_us.max(at_us);
            let ends_us = start_us + 2_000.0 * draw(rng);
            let gives_up_us = at_us + 6_000.0 * rng.unit();
            let is_cut = row.is_multiple_of(30) && gives_up_us < ends_us;
            let left_us = if is_cut { gives_up_us } else { ends_us };
            free_us = match is_cut && !works_on {
                true if gives_up_us <= start_us => free_us,
                true => gives_up_us,
                false => ends_us,
            };
            let [at_ns, left_ns] = [at_us, left_us].map(|us| (1e3 * us) as u64);
            Visit { row, at_ns, left_ns, is_cut, is_lean: false, is_first: true }
        };
        (0..count).map(&mut visit).collect()
    }

    #[test]
    fn who_waits_behind_what_was_given_up_tells_whether_it_was_worked_on() {
        let laws: [fn(&mut Rng) -> f64; 3] =
            [Rng::exponential, |_| 1.0, |rng| (0.8 * rng.normal()).exp()];
        for seed in 0..20 {
            let mut rng = Rng::seeded(seed);
            for law in laws {
                for works_on in [false, true] {
                    let visits = made(works_on, law, 8_000, &mut rng);
                    let found = Followers::of(&[visits], 1, &mut rng);
                    assert_eq!(found.are_behind_work(), Some(works_on), "{seed} {found:?}");
                }
            }
        }
    }

    #[test]
    fn a_few_that_were_given_up_tell_nothing_and_parts_of_a_day_tell_it_together() {
        let mut rng = Rng::seeded(1);
        let few = || Followers::of(&[made(true, Rng::exponential, 700, &mut rng)], 1, &mut rng);
        let few: Vec<Followers> = core::iter::repeat_with(few).take(10).collect();
        assert_eq!(few[0].are_behind_work(), None, "{:?}", few[0]);
        let all = few.into_iter().fold(Followers::default(), Followers::with);
        assert_eq!(all.are_behind_work(), Some(true), "{all:?}");
        assert_eq!(Followers::of(&[], 1, &mut rng).are_behind_work(), None);
    }
}
