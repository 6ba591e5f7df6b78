//! `prequal`: probe a few replicas beside every request, send to the one with the lowest latency
//! among those that are not crowded (hot-cold lexicographic rule).
//!
//! **Signal**: requests in flight *at the replica* (RIF, from all clients) and the replica's own
//! latency estimate, from probes at most a second old. **Why this order**: RIF foretells latency
//! before it has happened; latency tells replicas of equal RIF apart; blends of both lost in the
//! paper's tests. **When it misleads**: with stale probes many clients run to the same replica, so
//! each probe is used a limited number of times and counts its own uses. **Cold start**: with fewer
//! than two reports, the fewest own requests in flight decide (the paper: a random replica).
//! **Source**: Wydrowski et al., "Load is not what you should balance: Introducing Prequal", NSDI
//! 2024, sections 4 and 5 (the asynchronous mode), and the synchronous mode of section 4, which
//! here waits for all answers that come in the usual time; `q_rif` 0.84 in the paper, 0.6 found
//! better at high load (adaptive selection study).

use arrayvec::ArrayVec;

use crate::fleet::{Feedback, Fleet, ReplicaId};
use crate::request::select::{
    ASKED_MAX, Asked, Candidates, Choice, Selector, cheapest, same_kind, two_of,
};
use crate::rng::Rng;
use crate::time::{Duration, Instant, millis};

/// Reports about candidates below which they decide nothing: one alone would attract everything.
const KNOWN_MIN: usize = 2;
/// Reports whose RIF makes up the distribution that "crowded" refers to.
const RIF_HISTORY: usize = 128;

/// The constants.
#[derive(Clone, Debug, PartialEq)]
pub struct PrequalConfig {
    /// Quantile of RIF above which a replica is hot: 0.6.
    pub q_rif: f64,
    /// Probes sent beside each request: 3.
    pub probes: f64,
    /// Probes kept: 16.
    pub pool: f64,
    /// Milliseconds after which a probe is forgotten: 1 000.
    pub age_ms: f64,
    /// Probes removed after each request, oldest and worst in turn: 1.
    pub removes: f64,
    /// Net growth of the pool that the reuse budget leaves room for (the paper's δ): 1.
    pub delta: f64,
    /// Uses of one probe at the most: 16.
    pub reuse_max: f64,
    /// The synchronous mode: each request waits for the answers to its own probes, and only they
    /// count.
    pub sync: bool,
}

impl Default for PrequalConfig {
    fn default() -> Self {
        Self {
            q_rif: 0.6,
            probes: 3.0,
            pool: 16.0,
            age_ms: 1_000.0,
            removes: 1.0,
            delta: 1.0,
            reuse_max: 16.0,
            sync: false,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Report {
    replica: ReplicaId,
    rif: u32,
    latency_ms: f64,
    at: Instant,
    uses_left: u32,
}

/// The RIF of recent reports, in order of arrival and in order of size: every request asks for a
/// quantile.
#[derive(Clone, Debug, Default)]
struct RecentRif {
    arrived: ArrayVec<u32, RIF_HISTORY>,
    /// The place of the oldest once `arrived` is full.
    oldest: usize,
    sorted: ArrayVec<u32, RIF_HISTORY>,
}

impl RecentRif {
    fn add(&mut self, rif: u32) {
        if self.arrived.is_full() {
            let gone = core::mem::replace(&mut self.arrived[self.oldest], rif);
            self.oldest = (self.oldest + 1) % RIF_HISTORY;
            self.sorted.remove(self.sorted.partition_point(|&other| other < gone));
        } else {
            self.arrived.push(rif);
        }
        self.sorted.insert(self.sorted.partition_point(|&other| other < rif), rif);
    }

    /// The smallest RIF that at least the share `q` of the reports do not exceed.
    fn quantile(&self, q: f64) -> Option<u32> {
        let rank = (q * self.sorted.len() as f64).ceil() as usize;
        self.sorted.get(rank.max(1) - 1).copied()
    }
}

/// The policy.
#[derive(Clone, Debug)]
pub struct Prequal {
    config: PrequalConfig,
    pool: Vec<Report>,
    recent_rif: RecentRif,
    wanted: Asked,
    remove_oldest: bool,
    removes_due: f64,
    replicas: usize,
    rng: Rng,
}

/// Section 4: how often a probe may be used, so that the pool neither drains nor goes stale.
fn reuse_budget(config: &PrequalConfig, replicas: usize) -> f64 {
    let missing = 1.0 - config.pool / replicas.max(1) as f64;
    let net = missing * config.probes - config.removes;
    if net <= 0.0 {
        return config.reuse_max; // the pool can hold every replica: only age removes
    }
    ((1.0 + config.delta) / net).clamp(1.0, config.reuse_max)
}

impl Prequal {
    /// With these constants.
    pub fn new(config: PrequalConfig) -> Self {
        Self {
            config,
            pool: Vec::new(),
            recent_rif: RecentRif::default(),
            wanted: Asked::new(),
            remove_oldest: true,
            removes_due: 0.0,
            replicas: 0,
            rng: Rng::stream(0, "prequal reuse"),
        }
    }

    /// The RIF above which a replica is hot: the q-quantile of recent reports.
    fn hot_above(&self) -> u32 {
        self.recent_rif.quantile(self.config.q_rif).unwrap_or(u32::MAX)
    }

    /// The place in the pool of the best report about a candidate (section 4, HCL).
    fn best(&self, ids: &[ReplicaId]) -> Option<usize> {
        let hot_above = self.hot_above();
        let known = || {
            let pool = self.pool.iter().enumerate();
            pool.filter(|(_, report)| ids.contains(&report.replica))
        };
        if known().count() < KNOWN_MIN.min(ids.len()) {
            return None;
        }
        let cold = known().filter(|(_, report)| report.rif <= hot_above);
        let fastest = cold.min_by(|(_, a), (_, b)| a.latency_ms.total_cmp(&b.latency_ms));
        let place = fastest.or_else(|| known().min_by_key(|(_, report)| report.rif));
        place.map(|(place, _)| place)
    }

    fn use_report(&mut self, place: usize) -> ReplicaId {
        let report = &mut self.pool[place];
        let replica = report.replica;
        report.rif = report.rif.saturating_add(1); // the request about to be sent
        report.uses_left -= u32::from(!self.config.sync);
        if report.uses_left == 0 {
            self.pool.swap_remove(place);
        }
        replica
    }

    fn forget_old(&mut self, now: Instant, fleet: &Fleet) {
        let age_ms = self.config.age_ms;
        let is_sync = self.config.sync;
        self.pool.retain(|report| {
            let its_own = || fleet.patience(report.replica).map_or(0.0, millis);
            now.millis_since(report.at) <= if is_sync { its_own() } else { age_ms }
        });
    }

    /// Keeps the pool from filling with what nobody chose: the oldest and the worst in turn.
    fn remove_some(&mut self) {
        self.removes_due += self.config.removes;
        while self.removes_due >= 1.0 {
            self.removes_due -= 1.0;
            // A pool that can hold every replica lives by age alone; see reuse_budget.
            if self.pool.len() <= 1 || self.replicas <= self.config.pool as usize {
                continue;
            }
            let place = if self.remove_oldest { self.oldest() } else { self.worst() };
            self.remove_oldest = !self.remove_oldest;
            if let Some(place) = place {
                self.pool.swap_remove(place);
            }
        }
    }

    fn oldest(&self) -> Option<usize> {
        let pool = self.pool.iter().enumerate();
        pool.min_by_key(|(_, report)| report.at).map(|(place, _)| place)
    }

    fn worst(&self) -> Option<usize> {
        let hot_above = self.hot_above();
        let pool = || self.pool.iter().enumerate();
        let hot = pool().filter(|(_, r)| r.rif > hot_above).max_by_key(|(_, r)| r.rif);
        let slowest = || pool().max_by(|(_, a), (_, b)| a.latency_ms.total_cmp(&b.latency_ms));
        hot.or_else(slowest).map(|(place, _)| place)
    }

    /// Draws the replicas to probe.
    fn draw(&self, ids: &[ReplicaId], rng: &mut Rng) -> Asked {
        let mut drawn = Asked::new();
        let count = (self.config.probes as usize).min(ASKED_MAX).min(ids.len());
        while drawn.len() < count {
            let id = ids[rng.below(ids.len())];
            if !drawn.contains(&id) {
                drawn.push(id);
            }
        }
        drawn
    }
}

/// How long a synchronous probe is waited for whose replica never answered one.
const PATIENCE_AT_FIRST: Duration = Duration::from_millis(10);

impl Selector for Prequal {
    fn name(&self) -> &'static str {
        "prequal"
    }

    fn select(&mut self, now: Instant, candidates: Candidates<'_>, rng: &mut Rng) -> Choice {
        self.forget_old(now, candidates.fleet);
        let replica = match self.best(candidates.ids) {
            Some(place) => self.use_report(place),
            None => {
                let (one, other) = two_of(candidates.ids, rng);
                let in_flight = |id| f64::from(candidates.fleet.replica(id).in_flight());
                cheapest(&[one, other], rng, in_flight)
            }
        };
        if !self.config.sync {
            self.remove_some();
            self.wanted = self.draw(candidates.ids, rng);
        }
        Choice::Send(replica)
    }

    fn asks(&self) -> bool {
        self.config.sync
    }

    fn ask(
        &mut self,
        now: Instant,
        candidates: Candidates<'_>,
        rng: &mut Rng,
        whom: &mut Asked,
    ) -> Option<Instant> {
        *whom = self.draw(candidates.ids, rng);
        let patience = |id: &ReplicaId| candidates.fleet.patience(*id);
        let longest = whom.iter().map(|id| patience(id).unwrap_or(PATIENCE_AT_FIRST)).max()?;
        Some(now + longest)
    }

    fn next_probe(&mut self) -> Option<ReplicaId> {
        self.wanted.pop()
    }

    fn on_probe(&mut self, now: Instant, replica: ReplicaId, answer: Option<&Feedback>) {
        self.pool.retain(|report| report.replica != replica);
        let Some(feedback) = answer else { return };
        let rif = feedback.queue_length.saturating_add(feedback.in_service);
        self.recent_rif.add(rif);
        let budget = reuse_budget(&self.config, self.replicas);
        let rounded_up = self.rng.unit() < budget.fract();
        let uses_left = budget.trunc() as u32 + u32::from(rounded_up);
        // Who has served nothing yet is idle: it is the best to send to.
        let latency = feedback.latency.or(feedback.service_time).unwrap_or_default();
        let latency_ms = millis(latency);
        if self.pool.len() >= (self.config.pool as usize).max(1)
            && let Some(oldest) = self.oldest()
        {
            self.pool.swap_remove(oldest);
        }
        self.pool.push(Report { replica, rif, latency_ms, at: now, uses_left });
    }

    fn on_reassigned(&mut self, _now: Instant, replica: ReplicaId, _fleet: &Fleet) {
        self.pool.retain(|report| report.replica != replica);
        self.wanted.retain(|wanted| *wanted != replica);
    }

    fn inherit(&mut self, _now: Instant, before: &mut dyn Selector) {
        let Some(before) = same_kind::<Self>(before) else { return };
        core::mem::swap(&mut self.config, &mut before.config);
        core::mem::swap(self, before);
        self.pool.truncate((self.config.pool as usize).max(1));
        let reuse_max = (self.config.reuse_max as u32).max(1);
        for report in &mut self.pool {
            report.uses_left = report.uses_left.min(reuse_max);
        }
    }

    fn on_membership(&mut self, _now: Instant, fleet: &Fleet) {
        self.replicas = fleet.len();
        self.pool.retain(|report| report.replica.index() < fleet.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;

    fn report(rif: u32, latency_ms: u64) -> Feedback {
        Feedback {
            latency: Some(Duration::from_millis(latency_ms)),
            ..Feedback::measured(0, rif, Duration::from_millis(1))
        }
    }

    fn probed(reports: &[(u32, u64)]) -> (Prequal, Fleet) {
        let fleet = Fleet::single_group(reports.len());
        let mut prequal = Prequal::new(PrequalConfig::default());
        prequal.on_membership(Instant::ZERO, &fleet);
        for (slot, &(rif, latency_ms)) in reports.iter().enumerate() {
            let report = report(rif, latency_ms);
            prequal.on_probe(Instant::ZERO, ReplicaId::new(slot), Some(&report));
        }
        (prequal, fleet)
    }

    fn choose(prequal: &mut Prequal, fleet: &Fleet, at_ms: u64) -> usize {
        let ids: Vec<_> = (0..fleet.len()).map(ReplicaId::new).collect();
        let group = crate::fleet::GroupId::new(0);
        let candidates = Candidates { fleet, group, ids: &ids };
        match prequal.select(Instant::from_millis(at_ms), candidates, &mut Rng::seeded(1)) {
            Choice::Send(id) => id.index(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn among_cold_replicas_the_fastest_wins_and_hot_ones_are_left_alone() {
        // q_rif 0.6 of (1, 2, 9): the second smallest, 2, is still cold; 9 is hot.
        let (mut prequal, fleet) = probed(&[(1, 30), (2, 10), (9, 1)]);
        assert_eq!(choose(&mut prequal, &fleet, 1), 1);
    }

    #[test]
    fn a_used_report_counts_the_requests_it_attracted() {
        let (mut prequal, fleet) = probed(&[(1, 10), (1, 11), (1, 12)]);
        let first: Vec<_> = (0..3).map(|_| choose(&mut prequal, &fleet, 1)).collect();
        assert_eq!(first, [0, 1, 2], "each use makes the next less attractive");
    }

    #[test]
    fn old_reports_are_forgotten() {
        let (mut prequal, fleet) = probed(&[(9, 90), (1, 1), (9, 90)]);
        choose(&mut prequal, &fleet, 1_001);
        assert!(prequal.pool.is_empty());
    }

    #[test]
    fn quantiles_are_of_the_latest_reports() {
        let mut rng = Rng::seeded(3);
        let (mut recent, mut all) = (RecentRif::default(), Vec::new());
        for _ in 0..400 {
            let rif = rng.below(20) as u32;
            recent.add(rif);
            all.push(rif);
            let mut latest = all[all.len().saturating_sub(RIF_HISTORY)..].to_vec();
            latest.sort_unstable();
            for (q, rank) in
                [(0.0, 0), (0.5, latest.len().div_ceil(2) - 1), (1.0, latest.len() - 1)]
            {
                assert_eq!(recent.quantile(q), Some(latest[rank]));
            }
        }
    }

    #[test]
    fn one_report_alone_attracts_nothing() {
        let (mut prequal, fleet) = probed(&[(1, 1), (1, 1), (1, 1)]);
        prequal.pool.truncate(1);
        let uses_left = prequal.pool[0].uses_left;
        choose(&mut prequal, &fleet, 1);
        assert_eq!(prequal.pool[0].uses_left, uses_left, "the report was not used");
    }

    #[test]
    fn a_replica_that_reports_absurd_numbers_is_hot_for_ever() {
        let (mut prequal, fleet) = probed(&[(u32::MAX, 1), (1, 10), (1, 10)]);
        assert_ne!(choose(&mut prequal, &fleet, 1), 0);
        prequal.use_report(0);
        assert_eq!(prequal.pool[0].rif, u32::MAX, "one more does not wrap around to idle");
    }

    #[test]
    fn the_reuse_budget_follows_the_paper() {
        let config = PrequalConfig::default();
        // m = 16 of n = 100: 2 / (0.84 × 3 − 1) = 1.32.
        assert!((reuse_budget(&config, 100) - 2.0 / 1.52).abs() < 1e-12);
        assert_eq!(reuse_budget(&config, 16), config.reuse_max);
    }
}
