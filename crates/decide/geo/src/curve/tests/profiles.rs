//! Curves of measured load steps.

use super::*;
use crate::curve::{LoadStep, Profile, Saturation};
use proptest::prelude::*;

/// `late` of 1000 requests take 40 ms, the others 1 ms.
fn step(load: f64, write_share: f64, late: u64) -> LoadStep {
    LoadStep {
        load: rate(load),
        write_share: share(write_share),
        latencies: buckets(&[(1.0, 1_000 - late), (40.0, late)]),
        unanswered: 0,
    }
}

fn saturation(write_share: f64, load: f64) -> Saturation {
    Saturation { write_share: share(write_share), load: rate(load) }
}

fn profile(steps: Vec<LoadStep>, saturations: Vec<Saturation>) -> Profile {
    Profile { servers: servers(1), steps, saturations }
}

fn curves(profile: &Profile) -> ResponseCurves {
    ResponseCurves::measured(millis(30.0), profile).unwrap()
}

fn close(reported: f64, expected: f64) -> bool {
    (reported - expected).abs() < 1e-9
}

#[test]
fn follows_the_steps_and_ends_at_saturation() {
    let steps = vec![step(300.0, 0.0, 90), step(100.0, 0.0, 10), step(500.0, 0.0, 700)];
    let curves = curves(&profile(steps, vec![saturation(0.0, 400.0)]));
    let at = |load| miss(&curves, load, &as_profiled(1));
    assert!(close(at(0.0), 0.01), "below the first step as at it");
    assert!(close(at(100.0), 0.01) && close(at(200.0), 0.05) && close(at(300.0), 0.09));
    assert!(close(at(350.0), 0.545), "half way to all at saturation");
    assert_eq!([at(400.0), at(500.0)], [1.0, 1.0]);
}

#[test]
fn what_nobody_measured_is_not_promised() {
    let curves = curves(&profile(vec![step(100.0, 0.0, 0), step(200.0, 0.0, 100)], Vec::new()));
    let at = |load| miss(&curves, load, &as_profiled(1));
    assert!(close(at(199.999), 0.099_999));
    assert_eq!([at(200.0), at(300.0)], [1.0, 1.0]);
}

#[test]
fn a_lucky_step_is_pooled_with_the_one_before() {
    let steps =
        vec![step(1.0, 0.0, 10), step(2.0, 0.0, 60), step(3.0, 0.0, 20), step(4.0, 0.0, 100)];
    let curves = curves(&profile(steps, vec![saturation(0.0, 5.0)]));
    let at = |load| miss(&curves, load, &as_profiled(1));
    assert!(close(at(2.0), 0.04) && close(at(3.0), 0.04) && close(at(4.0), 0.1));
}

#[test]
fn the_unanswered_miss_every_objective() {
    let lost = LoadStep { unanswered: 1_000, ..step(1.0, 0.0, 500) };
    let dead = LoadStep { latencies: Vec::new(), unanswered: 7, ..step(2.0, 0.0, 0) };
    let curves = curves(&profile(vec![lost, dead], vec![saturation(0.0, 3.0)]));
    assert!(close(miss(&curves, 1.0, &as_profiled(1)), 0.75));
    assert!(close(miss(&curves, 2.0, &as_profiled(1)), 1.0));
}

#[test]
fn repeated_steps_are_taken_together() {
    let steps = vec![step(1.0, 0.0, 0), step(1.0, 0.0, 100), step(2.0, 0.0, 100)];
    let curves = curves(&profile(steps, vec![saturation(0.0, 3.0)]));
    assert!(close(miss(&curves, 1.0, &as_profiled(1)), 0.05));
}

#[test]
fn write_shares_are_interpolated_and_work_adds_up() {
    let steps = vec![
        step(0.0, 0.0, 0),
        step(1_000.0, 0.0, 100),
        step(0.0, 0.5, 100),
        step(500.0, 0.5, 400),
    ];
    let saturations = vec![saturation(0.0, 1_200.0), saturation(0.5, 600.0)];
    let curves = curves(&profile(steps, saturations));
    let at = |load, write_share| {
        let conditions = Conditions { write_share: share(write_share), ..as_profiled(1) };
        miss(&curves, load, &conditions)
    };
    // Bilinear: at 250 requests/s 2.5 % of reads and 25 % of the half-half mix miss.
    assert!(close(at(250.0, 0.0), 0.025) && close(at(250.0, 0.5), 0.25));
    assert!(close(at(250.0, 0.1), 0.025 + 0.2 * 0.225));
    assert!(close(at(250.0, 0.9), at(250.0, 0.5)), "nobody measured more writes");
    // A read is 1/1200 s of work, the mix 1/600 s, half of each 1/800 s.
    assert_eq!(at(800.0, 0.25), 1.0);
    assert!(at(799.0, 0.25) < 1.0 && at(1_199.0, 0.0) < 1.0);
}

proptest! {
    #[test]
    fn is_monotone_in_load_and_in_write_share_where_the_profile_is(
        late in prop::collection::vec((0..500_u64, 0..300_u64), 2..10),
        loads in prop::collection::vec(0.0..2_000.0_f64, 2..10),
        shares in prop::collection::vec(0.0..1.0_f64, 2..5),
    ) {
        let mut lates: Vec<u64> = late.iter().map(|late| late.0).collect();
        lates.sort_unstable();
        let steps = lates.iter().zip(&late).enumerate().flat_map(|(k, (&reads, &(_, more)))| {
            let load = 100.0 * (k + 1) as f64;
            [step(load, 0.0, reads), step(load, 1.0, reads + more)]
        });
        let end = 100.0 * (late.len() + 1) as f64;
        let saturations = vec![saturation(0.0, end), saturation(1.0, end)];
        let curves = curves(&profile(steps.collect(), saturations));
        let at = |load, write_share| {
            let conditions = Conditions { write_share: share(write_share), ..as_profiled(1) };
            miss(&curves, load, &conditions)
        };
        let (mut loads, mut shares) = (loads, shares);
        loads.sort_unstable_by(f64::total_cmp);
        shares.sort_unstable_by(f64::total_cmp);
        for &write_share in &shares {
            prop_assert!(loads.windows(2)
                .all(|pair| at(pair[0], write_share) <= at(pair[1], write_share) + 1e-12));
        }
        for &load in &loads {
            prop_assert!(shares.windows(2)
                .all(|pair| at(load, pair[0]) <= at(load, pair[1]) + 1e-12));
        }
    }
}

#[test]
fn nonsense_is_refused_with_its_place() {
    let refused = |profile: &Profile| {
        ResponseCurves::measured(millis(30.0), profile).unwrap_err().to_string()
    };
    let good = || vec![step(100.0, 0.0, 0)];
    assert!(refused(&profile(Vec::new(), Vec::new())).contains("1 to 4096 load steps"));
    let empty = LoadStep { latencies: Vec::new(), ..step(1.0, 0.0, 0) };
    let error = refused(&profile(vec![step(1.0, 0.0, 0), empty], Vec::new()));
    assert!(error.contains("step 1") && error.contains("at least one request"), "{error}");
    let error = refused(&profile(good(), vec![saturation(0.5, 9.0)]));
    assert!(error.contains("saturation 0") && error.contains("0.5"), "{error}");
    let twice = vec![saturation(0.0, 200.0), saturation(0.0, 300.0)];
    assert!(refused(&profile(good(), twice)).contains("each write share once"));
    let error = refused(&profile(good(), vec![saturation(0.0, 50.0)]));
    assert!(error.contains("write share 0") && error.contains("50"), "{error}");
    assert!(refused(&profile(good(), vec![saturation(0.0, 0.0)])).contains("above zero"));
    let objective = |of| ResponseCurves::measured(of, &profile(good(), Vec::new()));
    assert!(objective(Duration::ZERO).is_err() && objective(Duration::MAX).is_err());
}
