//! Scripted paths: what the estimator makes of them, and when.

use super::history::History;
use super::*;
use crate::curve::Residual;
use evenkeel_core::rng::Rng;
use evenkeel_core::time::nanos;
use proptest::prelude::*;

fn millis(millis: f64) -> Duration {
    Duration::from_nanos((millis * 1e6).round() as u64)
}

fn secs(seconds: f64) -> Instant {
    Instant::from_secs_f64(seconds)
}

/// A change of route as it was told.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Told {
    at: Instant,
    connection: usize,
    from: Duration,
    to: Duration,
}

/// Probes of three connections, each every 200 ms, one after the other.
struct Script {
    wan: Wan,
    rng: Rng,
    probes: u64,
    told: Vec<Told>,
}

impl Script {
    fn new(seed: u64) -> Self {
        let wan = Wan::new(3, WanConfig::default()).unwrap();
        Self { wan, rng: Rng::seeded(seed), probes: 0, told: Vec::new() }
    }

    /// Sends probes until `end`; `round_trip_ms` says what one takes.
    fn until(
        &mut self,
        end: Instant,
        mut round_trip_ms: impl FnMut(&mut Rng, Instant, usize) -> f64,
    ) -> Estimate {
        while self.now() < end {
            let (sent_at, connection) = (self.now(), (self.probes % 3) as usize);
            let sequence = self.probes / 3;
            let took = millis(round_trip_ms(&mut self.rng, sent_at, connection));
            let received_at = sent_at + took;
            let probe = Probe { connection, sequence, sent_at, received_at };
            if let Learnt::Rerouted { from, to } = self.wan.observe(&probe) {
                self.told.push(Told { at: received_at, connection, from, to });
            }
            self.probes += 1;
        }
        self.wan.estimate(end).expect("the way was probed just before")
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.probes * 200_000_000 / 3)
    }

    fn bases_ms(&self) -> Vec<f64> {
        let estimate = self.wan.estimate(self.now()).unwrap();
        estimate.paths.iter().map(|path| nanos(path.base) as f64 / 1e6).collect()
    }
}

/// A little exponential jitter, as everywhere.
fn jitter(rng: &mut Rng) -> f64 {
    0.1 * rng.exponential()
}

/// Three in ten meet a queue of 5 ms on average, and 1.5 at least.
fn spiky(rng: &mut Rng) -> f64 {
    jitter(rng) + if rng.unit() < 0.3 { 1.5 + 3.5 * rng.exponential() } else { 0.0 }
}

fn near(told: &[f64], expected: &[f64]) -> bool {
    told.len() == expected.len()
        && told.iter().zip(expected).all(|(told, truth)| (0.0..0.1).contains(&(told - truth)))
}

/// The share of residuals above this many milliseconds.
fn above(residual: &Residual, ms: f64) -> f64 {
    let bins = residual.bins_ppm().iter().enumerate();
    let sum: u32 = bins.filter(|(bin, _)| 0.1 * *bin as f64 > ms).map(|(_, ppm)| ppm).sum();
    f64::from(sum + residual.beyond_ppm()) / 1e6
}

#[test]
fn a_longer_route_is_recognised_within_a_second_and_a_shorter_one_at_once() {
    for seed in 0..20 {
        let mut script = Script::new(seed);
        script.until(secs(60.0), |rng, _, _| 22.0 + jitter(rng));
        assert!(near(&script.bases_ms(), &[22.0; 3]) && script.told.is_empty());
        let changed = script.now();
        script.until(secs(62.0), |rng, _, _| 27.0 + jitter(rng));
        assert!(near(&script.bases_ms(), &[27.0; 3]), "{:?}", script.bases_ms());
        let told = script.told[0];
        // A second, and what a probe and its way take.
        assert!(told.at.since(changed) <= millis(1_000.0 + 67.0 + 28.0), "{told:?}");
        assert_eq!(script.told.len(), 1, "all connections rise with the first");
        assert_eq!(script.wan.reroutes(), 3);

        script.told.clear();
        let changed = script.now();
        script.until(secs(68.0), |rng, _, _| 23.0 + jitter(rng));
        assert!(near(&script.bases_ms(), &[23.0; 3]));
        assert_eq!(script.told.len(), 3, "each falls with its next sample");
        assert!(script.told[0].at.since(changed) <= millis(67.0 + 24.0));
        assert!(script.told[2].at.since(changed) <= millis(200.0 + 24.0));
    }
}

#[test]
fn queues_for_three_in_ten_never_raise_the_base() {
    let mut script = Script::new(1);
    let estimate = script.until(secs(3_600.0), |rng, _, _| 22.0 + spiky(rng));
    assert_eq!(script.told, []);
    assert!(near(&script.bases_ms(), &[22.0; 3]));
    assert_eq!(estimate.standing, None);
    for path in &estimate.paths {
        // 1500 samples of the last five minutes weigh: a standard deviation of 1.2 points.
        assert!((above(&path.residual, 1.4) - 0.3).abs() < 0.05, "{}", above(&path.residual, 1.4));
        let long = 0.3 * (-3.5_f64 / 3.5).exp();
        assert!((above(&path.residual, 5.0) - long).abs() < 0.04);
    }
}

#[test]
fn bursts_shorter_than_the_window_never_raise_the_base() {
    let mut script = Script::new(2);
    // Every two seconds all connections queue together for 0.75 s.
    script.until(secs(1_200.0), |rng, at, _| {
        let burst = at.as_secs_f64() % 2.0 < 0.75;
        22.0 + jitter(rng) + if burst { 4.0 + rng.exponential() } else { 0.0 }
    });
    assert_eq!(script.told, []);
    assert!(near(&script.bases_ms(), &[22.0; 3]));
    let estimate = script.wan.estimate(script.now()).unwrap();
    assert!((above(&estimate.paths[0].residual, 3.0) - 0.4).abs() < 0.03);
}

#[test]
fn routes_change_under_queues_as_well() {
    let mut above_5_ms = 0.0;
    for seed in 0..20 {
        let mut script = Script::new(seed);
        script.until(secs(120.0), |rng, _, _| 22.0 + spiky(rng));
        let changed = script.now();
        let estimate = script.until(secs(140.0), |rng, _, _| 27.0 + spiky(rng));
        assert!(script.told[0].at.since(changed) < millis(1_150.0), "{:?}", script.told);
        assert!(script.told[0].from < millis(22.1));
        // A queue of the path before may have been the least of the run: the base is then too
        // short by less than a rise, and the residuals make up for it.
        assert!(script.bases_ms().iter().all(|base| (26.0..27.1).contains(base)));
        let paths = estimate.paths.iter();
        above_5_ms += paths.map(|path| above(&path.residual, 5.0)).sum::<f64>() / 60.0;
    }
    // The window of the change is in no histogram: its samples would lie at 5 ms and more.
    let long = 0.3 * (-3.5_f64 / 3.5).exp();
    assert!((above_5_ms - long).abs() < 0.02, "{above_5_ms}");
}

#[test]
fn samples_of_the_window_in_which_the_base_changed_belong_to_neither_path() {
    let mut script = Script::new(14);
    let floor = 100e-6;
    let is_pure = |estimate: &Estimate| {
        estimate.paths.iter().all(|path| (above(&path.residual, 0.0) - floor).abs() < 1e-9)
    };
    script.until(secs(60.0), |_, _, _| 27.0);
    let shorter = script.until(secs(61.5), |_, _, _| 22.0);
    assert!(is_pure(&shorter), "samples of 27 ms would lie 5 ms above the base");
    // One connection's rise is told after three seconds, and is the route after ten minutes.
    let bases = [22.0, 29.0, 22.0];
    let longer = script.until(secs(800.0), |_, _, connection| bases[connection]);
    assert_eq!(longer.standing, None);
    assert!(is_pure(&longer), "samples of 29 ms would lie 7 ms above the base before");
    // The falls discard 5 samples each, the lone rise its run of 12, and 15 wait for their window.
    let missing = script.probes - longer.samples;
    assert!(missing.abs_diff(3 * 5 + 12 + 15) <= 3, "{missing}");
}

#[test]
fn jitter_of_one_direction_is_residual_not_base() {
    let mut script = Script::new(3);
    // 8 ms there, 14 ms back, and only the way there is unsteady.
    let estimate = script.until(secs(600.0), |rng, _, _| 8.0 + 2.0 * rng.exponential() + 14.0);
    assert_eq!(script.told, []);
    assert!(near(&script.bases_ms(), &[22.0; 3]), "{:?}", script.bases_ms());
    assert!((above(&estimate.paths[1].residual, 2.0) - (-1.0_f64).exp()).abs() < 0.05);
}

#[test]
fn equal_cost_paths_keep_bases_of_their_own() {
    let mut script = Script::new(4);
    let bases = [22.0, 25.0, 27.0];
    script.until(secs(60.0), |rng, _, connection| bases[connection] + spiky(rng));
    assert!(near(&script.bases_ms(), &bases), "{:?}", script.bases_ms());
    assert_eq!(script.told, []);
    // One alone takes another path: fewer witnesses, so three seconds.
    let changed = script.now();
    let bases = [22.0, 29.0, 27.0];
    script.until(secs(70.0), |rng, _, connection| bases[connection] + spiky(rng));
    assert!(near(&script.bases_ms(), &bases), "{:?}", script.bases_ms());
    assert_eq!(script.told.len(), 1);
    assert_eq!(script.told[0].connection, 1);
    assert!(script.told[0].at.since(changed) <= millis(3_200.0 + 60.0), "{:?}", script.told);
}

#[test]
fn a_standing_queue_is_told_and_not_counted_twice() {
    let mut script = Script::new(5);
    script.until(secs(300.0), |rng, _, _| 22.0 + spiky(rng));
    let during = script.until(secs(330.0), |rng, _, _| 30.0 + jitter(rng));
    assert!(near(&script.bases_ms(), &[30.0; 3]));
    let standing = during.standing.unwrap();
    assert!((millis(7.9)..millis(8.1)).contains(&standing), "{standing:?}");
    // The queue is in the base; the residual of the queueing way has no spikes.
    assert!(
        above(&during.paths[0].residual, 1.4) < 0.01,
        "{}",
        above(&during.paths[0].residual, 1.4)
    );

    let after = script.until(secs(331.0), |rng, _, _| 22.0 + spiky(rng));
    assert!(near(&script.bases_ms(), &[22.0; 3]));
    assert_eq!(after.standing, None);
    // 29 s of queue at 8 ms are now residuals, of 330 s fading with 300 s: the weight of the last
    // 29 s is (1 - e^-0.097) / (1 - e^-1.1), and the spikes of the rest.
    let queued = 0.0924 / 0.667;
    let expected = queued + (1.0 - queued) * 0.3 * (-6.0_f64 / 3.5).exp();
    assert!((above(&after.paths[0].residual, 7.5) - expected).abs() < 0.03);
}

#[test]
fn what_stands_for_ten_minutes_is_the_route() {
    let mut script = Script::new(6);
    script.until(secs(100.0), |rng, _, _| 22.0 + jitter(rng));
    let young = script.until(secs(500.0), |rng, _, _| 27.0 + jitter(rng));
    assert!(young.standing.is_some());
    let old = script.until(secs(800.0), |rng, _, _| 27.0 + jitter(rng));
    assert_eq!(old.standing, None);
    assert!(near(&script.bases_ms(), &[27.0; 3]));
}

#[test]
fn silence_is_no_estimate() {
    let mut script = Script::new(7);
    assert!(script.wan.estimate(Instant::ZERO).is_none(), "nothing known yet");
    assert!(script.wan.is_silent(Instant::ZERO));
    script.until(secs(10.0), |rng, _, _| 22.0 + jitter(rng));
    assert!(script.wan.estimate(secs(10.8)).is_some());
    assert!(script.wan.estimate(secs(11.1)).is_none());
    assert!(script.wan.is_silent(secs(11.1)));
    // One sample after the gap, high by chance, does not make a rise.
    let probe = |sequence, at, took| Probe {
        connection: 0,
        sequence,
        sent_at: secs(at),
        received_at: secs(at) + millis(took),
    };
    for (k, took) in [40.0, 41.0, 42.0].into_iter().enumerate() {
        let learnt = script.wan.observe(&probe(1_000 + k as u64, 100.0 + 0.2 * k as f64, took));
        assert_eq!(learnt, Learnt::Sample);
    }
    let estimate = script.wan.estimate(secs(101.0)).unwrap();
    assert_eq!(estimate.paths.len(), 1, "only the connection that is heard");
    assert!(estimate.paths[0].base < millis(22.1));
}

#[test]
fn a_new_connection_has_a_base_of_its_own_and_keeps_the_residuals() {
    let mut script = Script::new(8);
    script.until(secs(60.0), |rng, _, _| 22.0 + spiky(rng));
    (0..3).for_each(|connection| script.wan.reconnect(connection));
    assert!(script.wan.is_silent(script.now()));
    script.probes = 0;
    let mut restarted = Script { wan: script.wan, ..Script::new(9) };
    restarted.until(secs(0.5), |rng, _, _| 35.0 + jitter(rng));
    assert!(near(&restarted.bases_ms(), &[35.0; 3]), "numbers start over");
    assert_eq!(restarted.told, [], "a base that nobody knew has not changed");
}

#[test]
fn nonsense_is_counted_and_changes_nothing() {
    let mut script = Script::new(10);
    script.until(secs(10.0), |rng, _, _| 22.0 + jitter(rng));
    let before = script.wan.estimate(script.now());
    let (now, next) = (script.now(), script.probes / 3);
    let probe = |connection, sequence, sent_at, received_at| Probe {
        connection,
        sequence,
        sent_at,
        received_at,
    };
    let early = Instant::from_nanos(now.as_nanos() - 1);
    let cases = [
        (probe(0, next, now, early), Reject::Negative),
        (probe(0, next, now, now), Reject::Absurd),
        (probe(0, next, now, now + Duration::from_secs(11)), Reject::Absurd),
        (probe(0, next, Instant::ZERO, Instant::FAR), Reject::Absurd),
        (probe(0, next - 1, now, now + millis(22.0)), Reject::Duplicate),
        (probe(0, 3, now, now + millis(22.0)), Reject::Reordered),
        (probe(0, next, secs(5.0), secs(5.02)), Reject::Reordered),
        (probe(3, next, now, now + millis(22.0)), Reject::Connection),
        (probe(usize::MAX, next, now, now + millis(22.0)), Reject::Connection),
    ];
    for (probe, reject) in cases {
        assert_eq!(script.wan.observe(&probe), Learnt::Rejected(reject), "{probe:?}");
    }
    let rejected = script.wan.rejected();
    let expected = Rejected { negative: 1, absurd: 3, duplicate: 1, reordered: 2, connection: 2 };
    assert_eq!(rejected, expected);
    assert_eq!(script.wan.estimate(script.now()), before);
}

#[test]
fn configurations_out_of_range_are_refused() {
    let default = WanConfig::default();
    assert!(Wan::new(0, default).is_err() && Wan::new(17, default).is_err());
    assert!(Wan::new(3, WanConfig { window: Duration::ZERO, ..default }).is_err());
    assert!(Wan::new(3, WanConfig { beyond_floor_ppm: 1_000_001, ..default }).is_err());
}

#[test]
fn equal_probes_teach_equally() {
    let run = || {
        let mut script = Script::new(11);
        script.until(secs(100.0), |rng, _, _| 22.0 + spiky(rng));
        script.until(secs(130.0), |rng, _, _| 25.0 + spiky(rng))
    };
    assert_eq!(run(), run());
}

#[test]
fn losses_too_rare_for_probes_are_assumed() {
    let mut script = Script::new(12);
    let estimate = script.until(secs(30.0), |rng, _, _| 22.0 + jitter(rng));
    assert!(estimate.paths.iter().all(|path| path.residual.beyond_ppm() == 100));
}

#[test]
fn memory_is_bounded_under_a_flood() {
    let mut wan = Wan::new(1, WanConfig::default()).unwrap();
    let mut rng = Rng::seeded(13);
    for sequence in 0..200_000 {
        let sent_at = Instant::from_nanos(sequence * 50_000);
        let took = millis(1.0 + 400.0 * rng.unit() * rng.unit());
        let received_at = Instant::from_nanos(sequence * 50_000 + 1_000_000_000) + took;
        // Echoes that overtake each other are rejected; most of a flood is.
        wan.observe(&Probe { connection: 0, sequence, sent_at, received_at });
    }
    let (pending, bytes) = wan.paths[0].memory();
    assert!(pending <= path::PENDING_MAX && bytes <= 70 << 10, "{pending} {bytes}");
}

proptest! {
    #[test]
    fn any_probes_leave_whole_distributions(
        probes in prop::collection::vec(
            (0..4_usize, 0..50_u64, 0..5_000_000_000_u64, 0..12_000_000_000_u64),
            0..200,
        ),
    ) {
        let mut wan = Wan::new(3, WanConfig::default()).unwrap();
        let count = probes.len() as u64;
        let mut learnt = 0;
        for (connection, sequence, sent, took) in probes {
            let sent_at = Instant::from_nanos(sent);
            let received_at = Instant::from_nanos((sent + took).saturating_sub(1_000_000));
            let probe = Probe { connection, sequence, sent_at, received_at };
            learnt += u64::from(!matches!(wan.observe(&probe), Learnt::Rejected(_)));
        }
        let Rejected { negative, absurd, duplicate, reordered, connection } = wan.rejected();
        prop_assert_eq!(learnt + negative + absurd + duplicate + reordered + connection, count);
        for at in [0, 3, 8, 20] {
            for path in wan.estimate(secs(f64::from(at))).iter().flat_map(|told| &told.paths) {
                let sum: u32 = path.residual.bins_ppm().iter().sum();
                prop_assert_eq!(sum + path.residual.beyond_ppm(), 1_000_000);
                prop_assert!(path.base > Duration::ZERO && path.base <= Duration::from_secs(10));
            }
        }
    }

    #[test]
    fn history_forgets_exponentially(
        samples in prop::collection::vec((0.0..40_000.0_f64, 0..50_u32), 1..40),
    ) {
        let mut samples = samples;
        samples.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut history = History::new(Duration::from_secs(300));
        for &(at, bin) in &samples {
            history.record(secs(at), millis(0.1 * f64::from(bin)));
        }
        let end = samples.last().unwrap().0;
        let weight = |at: f64| ((at - end) / 300.0).exp();
        let total: f64 = samples.iter().map(|&(at, _)| weight(at)).sum();
        let residual = history.residual().unwrap();
        for bin in 0..50_u32 {
            let of_bin = samples.iter().filter(|sample| sample.1 == bin);
            let expected = of_bin.map(|&(at, _)| weight(at)).sum::<f64>() / total;
            let told = residual.bins_ppm().get(bin as usize).copied().unwrap_or(0);
            prop_assert!((f64::from(told) / 1e6 - expected).abs() < 2e-6, "{bin}: {told}");
        }
    }

    #[test]
    fn absorbing_is_recording_both_with_one_shifted(
        first in prop::collection::vec((0.0..2_000.0_f64, 0..50_u32), 1..20),
        second in prop::collection::vec((0.0..2_000.0_f64, 0..50_u32), 1..20),
        longer in 0..60_u32,
    ) {
        let recorded = |samples: &[(f64, u32)], shift: u32| {
            let mut samples = samples.to_vec();
            samples.sort_by(|a, b| a.0.total_cmp(&b.0));
            let mut history = History::new(Duration::from_secs(300));
            for (at, bin) in samples {
                history.record(secs(at), millis(0.1 * f64::from(bin + shift)));
            }
            history
        };
        let mut absorbed = recorded(&first, 0);
        absorbed.absorb(recorded(&second, 0), longer as usize);
        let shifted: Vec<(f64, u32)> =
            second.iter().map(|&(at, bin)| (at, bin + longer)).chain(first).collect();
        let both = recorded(&shifted, 0).residual().unwrap();
        let absorbed = absorbed.residual().unwrap();
        prop_assert_eq!(absorbed.bins_ppm().len(), both.bins_ppm().len());
        for (a, b) in absorbed.bins_ppm().iter().zip(both.bins_ppm()) {
            prop_assert!(a.abs_diff(*b) <= 1);
        }
    }
}
