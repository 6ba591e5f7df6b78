//! Curves that learn: from profiles that are wrong either way, from none, after changes; and what
//! must not mislead them.

use proptest::prelude::*;

use super::super::{Learner, Prior, Seen};
use super::*;
use crate::learnt::Learnt;
use evenkeel_core::rng::Rng;

const PERIOD: Duration = Duration::from_millis(2_500);
const SERVERS: u32 = 4;

/// What is believed before anything is seen: saturated at 400 requests/s.
fn profile() -> Family {
    let service = Duration::from_millis(10);
    Family::local(&ResponseCurves::markov(millis(80.0), servers(SERVERS), service).unwrap())
}

/// A site whose curve differs from the profile by this, and who learns it.
struct Site {
    truth: Learnt,
    /// Optional content is left out beyond this share of its true capacity.
    dims_at: f64,
    family: Family,
    learner: Learner,
    rng: Rng,
}

impl Site {
    fn new(kind: Prior, scale: f64, odds: f64, seed: u64) -> Self {
        Self {
            truth: Learnt::of(scale, odds),
            dims_at: f64::INFINITY,
            family: profile(),
            learner: Learner::new(kind),
            rng: Rng::seeded(seed),
        }
    }

    fn capacity(&self) -> f64 {
        400.0 * self.truth.scale()
    }

    fn miss(&self, learnt: Learnt, load: f64) -> f64 {
        let conditions = Conditions { learnt, ..as_profiled(SERVERS) };
        self.family.miss(Duration::ZERO, rate(load), &conditions).value()
    }

    /// Some periods at this share of what it can really serve.
    fn serve(&mut self, periods: usize, utilisation: f64) {
        for _ in 0..periods {
            let load = utilisation * self.capacity();
            let work = (self.dims_at / utilisation).min(1.0);
            let requests = (load * PERIOD.as_secs_f64()) as u64;
            // A dimmer keeps waits short whatever a steady state would be.
            let miss = if work < 1.0 { 1e-3 } else { self.miss(self.truth, load) };
            let missed = (0..requests).filter(|_| self.rng.unit() < miss).count() as u64;
            let dimmed = share(f64::from(u8::from(work < 1.0)));
            let (load, work) = (rate(load), share(work));
            let seen = Seen { load, work, dimmed, requests, missed };
            self.learner.observe(PERIOD, &self.family, &as_profiled(SERVERS), &seen);
        }
    }

    /// A minute in which the load comes to the knee and goes.
    fn hills(&mut self) {
        for utilisation in [0.6, 0.75, 0.85, 0.93, 0.96, 0.9, 0.8, 0.7] {
            self.serve(3, utilisation);
        }
    }

    /// The load at which one in twenty is late.
    fn knee(&self, learnt: Learnt) -> f64 {
        let (mut below, mut above) = (0.0, 1e6);
        for _ in 0..60 {
            let middle = f64::midpoint(below, above);
            let is_late = self.miss(learnt, middle) > 0.05;
            *if is_late { &mut above } else { &mut below } = middle;
        }
        below
    }

    /// The knee of what is believed is at most this much before the true one, and hardly behind.
    fn assert_learnt(&self, tolerance: f64, what: &str) {
        let believed = self.learner.believed();
        let ratio = self.knee(believed) / self.knee(self.truth);
        assert!((1.0 - tolerance..=1.02).contains(&ratio), "{what}: {ratio} {believed:?}");
    }
}

#[test]
fn a_profile_that_is_off_by_two_is_mended_within_a_minute_from_lateness_alone() {
    for (seed, scale) in (0..6).flat_map(|seed| [(seed, 0.5), (seed, 2.0), (seed, 0.7)]) {
        let mut site = Site::new(Prior::Profile, scale, 1.0, seed);
        site.hills();
        site.assert_learnt(0.12, &format!("{seed} {scale}"));
        assert!(site.learner.is_contradicted(), "{seed} {scale}");
    }
}

#[test]
fn a_site_that_dims_tells_its_capacity_though_nobody_is_late() {
    for (seed, scale) in (0..6).flat_map(|seed| [(seed, 0.5), (seed, 2.0)]) {
        let mut site = Site::new(Prior::Profile, scale, 1.0, seed);
        site.dims_at = 1.0;
        site.serve(10, 1.2);
        site.serve(14, 1.1);
        site.assert_learnt(0.1, &format!("{seed} {scale}"));
    }
}

#[test]
fn without_a_profile_no_more_is_believed_than_was_seen_and_then_the_truth() {
    for (seed, scale) in (0..4).flat_map(|seed| [(seed, 0.3), (seed, 1.0), (seed, 20.0)]) {
        let mut site = Site::new(Prior::Guess, scale, 1.0, seed);
        assert!(site.learner.believed().scale() < 0.3, "{:?}", site.learner.believed());
        site.serve(12, 0.3);
        let believed = site.learner.believed().scale();
        assert!(believed < 2.5 * 0.3 * scale, "{seed} {scale}: {believed}");
        site.hills();
        site.assert_learnt(0.15, &format!("{seed} {scale}"));
    }
}

#[test]
fn a_capacity_that_changes_is_followed_and_a_right_profile_is_kept() {
    for seed in 0..6 {
        let mut site = Site::new(Prior::Profile, 1.0, 1.0, seed);
        for _ in 0..10 {
            site.hills();
            assert_eq!(site.learner.believed(), Learnt::AS_PROFILED, "{seed}");
        }
        for scale in [0.6, 1.0, 1.7, 0.5] {
            site.truth = Learnt::of(scale, 1.0);
            site.hills();
            site.assert_learnt(0.12, &format!("{seed} {scale}"));
        }
    }
}

#[test]
fn one_period_replaces_no_curve() {
    for missed in [0, 1_000] {
        let mut site = Site::new(Prior::Profile, 1.0, 1.0, 1);
        site.hills();
        let (load, full) = (rate(200.0), share(1.0));
        let odd = Seen { load, work: full, dimmed: share(0.0), requests: 1_000, missed };
        site.learner.observe(PERIOD, &site.family, &as_profiled(SERVERS), &odd);
        assert_eq!(site.learner.believed(), Learnt::AS_PROFILED);
    }
}

/// Who returns is given its share only after its trial: until then the others dim at a load that
/// all could serve.
#[test]
fn what_a_site_shows_while_a_server_returns_is_not_learnt() {
    let mut site = Site::new(Prior::Profile, 1.0, 1.0, 1);
    site.hills();
    let dims =
        Seen { load: rate(240.0), work: share(0.9), dimmed: share(1.0), requests: 600, missed: 0 };
    let mut show = |servers: u32, periods: usize| {
        for _ in 0..periods {
            site.learner.observe(PERIOD, &site.family, &as_profiled(servers), &dims);
        }
        site.learner.believed()
    };
    let before = show(SERVERS / 2, 1);
    assert_eq!(show(SERVERS, 4), before, "ten seconds");
    // Then it is no accident any more.
    assert!(show(SERVERS, 8).scale() < 0.7);
}

/// A site of one queue, as a fluid: whoever comes waits for what is there.
struct Queue {
    site: Site,
    /// Requests that wait.
    waiting: f64,
}

impl Queue {
    fn serve(&mut self, periods: usize, utilisation: f64) {
        for _ in 0..periods {
            let capacity = self.site.capacity();
            let (load, seconds) = (utilisation * capacity, PERIOD.as_secs_f64());
            let before = self.waiting;
            self.waiting = (before + (load - capacity) * seconds).max(0.0);
            // An objective of 80 ms: late is who finds more than that, in the middle of the period.
            let is_late = f64::midpoint(before, self.waiting) / capacity > 0.08;
            let miss =
                if is_late { 1.0 } else { self.site.miss(self.site.truth, load.min(capacity)) };
            let requests = (load * seconds) as u64;
            let missed = (0..requests).filter(|_| self.site.rng.unit() < miss).count() as u64;
            let (load, work, dimmed) = (rate(load), share(1.0), share(0.0));
            let seen = Seen { load, work, dimmed, requests, missed };
            let Site { learner, family, .. } = &mut self.site;
            learner.observe(PERIOD, family, &as_profiled(SERVERS), &seen);
        }
    }
}

#[test]
fn a_queue_that_an_overload_left_is_no_loss_of_speed() {
    for (seed, over, after) in [(0, 1.3, 0.6), (1, 1.5, 0.4), (2, 1.2, 0.75), (3, 2.0, 0.1)] {
        let mut queue = Queue { site: Site::new(Prior::Profile, 1.0, 1.0, seed), waiting: 0.0 };
        for _ in 0..3 {
            queue.serve(6, 0.5);
            queue.serve(8, over);
            assert!(queue.waiting > 0.0);
            queue.serve(16, after);
            assert_eq!(queue.waiting, 0.0, "{seed}");
            let believed = queue.site.learner.believed();
            assert_eq!(believed, Learnt::AS_PROFILED, "{seed}");
        }
    }
}

#[test]
fn who_is_slower_after_an_overload_is_found_once_a_queue_would_be_gone() {
    for seed in 0..4 {
        let mut site = Site::new(Prior::Profile, 1.0, 1.0, seed);
        site.serve(6, 0.5);
        site.serve(6, 1.3);
        site.truth = Learnt::of(0.4, 1.0);
        // Less load than before, and still more than it can serve by now; twelve are not learnt.
        site.serve(24, 1.5);
        let believed = site.learner.believed().scale();
        assert!(believed < 0.75, "{seed}: {believed}");
    }
}

#[test]
fn misses_at_every_load_are_odds_and_not_less_capacity() {
    for seed in 0..4 {
        let mut site = Site::new(Prior::Profile, 1.0, 8.0, seed);
        (0..4).for_each(|_| site.hills());
        let believed = site.learner.believed();
        assert!((4.0..16.0).contains(&believed.odds()), "{seed}: {believed:?}");
        assert!((0.9..1.03).contains(&believed.scale()), "{seed}: {believed:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    /// Whatever shape the truth has: what is believed at the loads that were seen is not far less
    /// than what was measured there.
    #[test]
    fn no_less_is_believed_than_the_data_say(
        seed: u64,
        misses in prop::collection::vec(0.0..1.0_f64, 3),
        guess: bool,
    ) {
        let kind = if guess { Prior::Guess } else { Prior::Profile };
        let mut site = Site::new(kind, 1.0, 1.0, seed);
        let mut misses: Vec<f64> = misses.iter().map(|miss| miss * miss * miss).collect();
        misses.sort_unstable_by(f64::total_cmp);
        let loads = [150.0, 250.0, 350.0];
        for _ in 0..40 {
            for (load, miss) in loads.into_iter().zip(&misses) {
                let requests = 500;
                let missed = (0..requests).filter(|_| site.rng.unit() < *miss).count() as u64;
                let (load, full) = (rate(load), share(1.0));
                let seen = Seen { load, work: full, dimmed: share(0.0), requests, missed };
                site.learner.observe(PERIOD, &site.family, &as_profiled(SERVERS), &seen);
            }
        }
        let believed = site.learner.believed();
        let of = |all: &mut dyn Iterator<Item = f64>| all.sum::<f64>() / 3.0;
        let seen = of(&mut misses.iter().copied());
        let foretold = of(&mut loads.into_iter().map(|load| site.miss(believed, load)));
        prop_assert!(foretold > 0.6 * seen - 0.01, "{} {} {:?}", foretold, seen, believed);
    }

    #[test]
    fn junk_is_harmless(
        seed: u64,
        junk in prop::collection::vec((0.0..1e12_f64, 0.0..=1.0_f64, 0.0..=1.0_f64, any::<u64>(),
            any::<u64>(), 0..3_u32, any::<u32>()), 0..40),
        guess: bool,
    ) {
        let kind = if guess { Prior::Guess } else { Prior::Profile };
        let mut site = Site::new(kind, 1.0, 1.0, seed);
        for (load, work, dimmed, requests, missed, servers, millis) in junk {
            let seen = Seen {
                load: rate(load),
                work: share(work),
                dimmed: share(dimmed),
                requests,
                missed,
            };
            let over = Duration::from_millis(millis.into());
            site.learner.observe(over, &site.family, &as_profiled(servers), &seen);
            let believed = site.learner.believed();
            prop_assert!(believed.scale() > 0.0 && believed.odds() > 0.0);
            prop_assert!((0.0..=1.0).contains(&site.learner.profile_holds().value()));
        }
        // And what comes then is learnt all the same.
        site.truth = Learnt::of(0.6, 1.0);
        (0..3).for_each(|_| site.hills());
        site.assert_learnt(0.15, "after junk");
    }
}
