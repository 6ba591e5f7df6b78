//! A request that asks several partitions, and servers that call on to those of the next tier: the
//! slowest answer counts.

use evenkeel_core::request::{Failure, Outcome};
use evenkeel_core::{Duration, Instant, Rng};

use crate::ends::End;
use crate::events::Lane;
use crate::server::JobId;
use crate::workload::Arrival;
use crate::world::{Event, OpenCall, World};

/// What waits for the answers of several parts.
#[derive(Debug)]
pub(super) struct Whole {
    tier: usize,
    began_at: Instant,
    /// Parts that have not ended.
    left: usize,
    /// The worst end of those that have.
    end: End,
    asked_by: AskedBy,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum AskedBy {
    /// The user of a client.
    User,
    /// A server that has to answer this job.
    Server(JobId),
}

/// `count` different numbers below `all` (Floyd's algorithm), the same for the same seed.
fn sample(seed: u64, count: usize, all: usize) -> Vec<usize> {
    let mut rng = Rng::seeded(seed);
    let mut chosen = Vec::with_capacity(count);
    for last in all - count..all {
        let drawn = rng.below(last + 1);
        chosen.push(if chosen.contains(&drawn) { last } else { drawn });
    }
    chosen
}

impl World<'_> {
    /// A client asks partitions of a tier.
    pub(super) fn ask_parts(&mut self, tier: usize, of: Arrival, number: u64, asked_by: AskedBy) {
        let (first, end) = self.scenario.tier_servers(tier);
        let parts = self.scenario.tiers[tier].parts;
        let end_so_far = End::Served { is_full: true };
        let whole = Whole { tier, began_at: self.now, left: parts, end: end_so_far, asked_by };
        let whole = self.wholes.insert(whole);
        let mut seeds = Rng::seeded(of.work_seed.rotate_left(13));
        for group in sample(of.work_seed, parts, end - first) {
            let part = Arrival { group: (first + group) as u32, work_seed: seeds.bits(), ..of };
            self.open(part, number, Some(whole));
        }
    }

    /// Whether the time limit of users is one of this call: that of a part which a server asks for
    /// is not.
    pub(super) fn is_of_user(&self, whole: Option<usize>) -> bool {
        whole.is_none_or(|whole| matches!(self.wholes[whole].asked_by, AskedBy::User))
    }

    /// A part ended, and with the last one the whole.
    pub(super) fn part_ended(&mut self, id: usize, part: &OpenCall, end: End) {
        let warm = self.is_warm(part.number);
        let whole = &mut self.wholes[id];
        self.tally.note_part(whole.tier, warm, self.now.since(part.arrived_at), end);
        whole.end = whole.end.worse(end);
        whole.left -= 1;
        if whole.left > 0 {
            return;
        }
        let Whole { began_at, end, asked_by, .. } = self.wholes.remove(id);
        match asked_by {
            AskedBy::User => {
                self.tally.note_end(warm, self.now.since(began_at), end);
            }
            AskedBy::Server(job) => self.reply(job, end),
        }
    }

    /// A server has done its own work for a job and calls on, where there is another tier.
    pub(super) fn call_on(&mut self, id: JobId, service: Duration) -> bool {
        if self.scenario.tiers.len() < 2 {
            return false;
        }
        let job = &mut self.jobs[id as usize];
        let server = job.server as usize;
        let tier = self.scenario.tier_of(server);
        if tier + 1 == self.scenario.tiers.len() {
            return false;
        }
        job.called_on = Some(service);
        let client = (self.scenario.clients_max() + server) as u32;
        let work_seed = job.seed ^ u64::from(job.copy + 1) << 40;
        let of = Arrival { client, work_seed, ..Arrival::default() };
        let number = job.number;
        self.ask_parts(tier + 1, of, number, AskedBy::Server(id));
        true
    }

    /// The next tier has answered all that a server asked for a job.
    fn reply(&mut self, id: JobId, end: End) {
        let job = &mut self.jobs[id as usize];
        let (number, service) = (job.server as usize, job.called_on.take());
        self.jobs[id as usize].outcome = match end {
            End::Served { .. } => Outcome::Replied(self.report(number, service)),
            End::TimedOut | End::Failed => Outcome::Failed(Failure::Unavailable),
        };
        let at = self.now + self.delay_of(id);
        self.events.push(Lane::ToClients, at, Event::Back(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_of_a_request_differ_and_each_is_as_likely() {
        let mut counts = [0_u32; 7];
        for seed in 0..7_000 {
            let mut chosen = sample(seed, 3, 7);
            chosen.iter().for_each(|&one| counts[one] += 1);
            chosen.sort_unstable();
            chosen.dedup();
            assert_eq!(chosen.len(), 3);
        }
        // Binomial: 3 000 with a standard deviation of 41.
        assert!(counts.iter().all(|count| (2_795..3_205).contains(count)), "{counts:?}");
        assert_eq!(sample(1, 4, 4).iter().sum::<usize>(), 6, "all of them");
    }
}
