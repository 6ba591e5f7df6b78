//! What no number may be.

use super::*;

#[test]
fn numbers_that_are_not_possible_are_refused_on_both_sides() {
    type Spoil = fn(&mut Report);
    let spoil: [(&str, Spoil); 9] = [
        ("demand", |report| report.demand_per_1000_s = RATE_MAX + 1),
        ("capacity", |report| report.capacity_per_1000_s = u64::MAX),
        ("writes", |report| report.writes_ppm = 1_000_001),
        ("violations", |report| report.violations = report.ended_requests + 1),
        ("scale", |report| report.learnt.scale_ppm = 0),
        ("odds", |report| report.learnt.odds_ppm = LEARNT_PPM.end() + 1),
        ("floor", |report| report.learnt.floor_ppm = FLOOR_PPM_MAX + 1),
        ("base", |report| report.paths[1].as_mut().unwrap().base_rtt_us = DELAY_US_MAX + 1),
        ("residual", |report| report.paths[1].as_mut().unwrap().residual_bins[5] = RESIDUAL_BINS),
    ];
    for (what, spoil) in spoil {
        let mut row = busy_row(3, &mut Rng::seeded(5));
        spoil(&mut row.report);
        let error = wire::encode(&row).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
    // A negative number in two's complement, as it comes: 2⁶⁴ − 1.
    let bytes = wire::encode(&busy_row(3, &mut Rng::seeded(5))).unwrap();
    let demand = wire::encode(&Row {
        report: Report { demand_per_1000_s: 0, ..busy_row(3, &mut Rng::seeded(5)).report },
        ..busy_row(3, &mut Rng::seeded(5))
    });
    let at = bytes.iter().zip(&demand.unwrap()).position(|(a, b)| a != b).unwrap();
    let minus_one = [&[0xFF; 9][..], &[0x01]].concat();
    let spoilt = [&bytes[..at], &minus_one, &bytes[at + 4..]].concat();
    let error = wire::decode(&spoilt).unwrap_err();
    assert!(matches!(error, Unreadable::Range(range) if range.came == u64::MAX), "{error}");
}

#[test]
fn rates_that_are_measured_are_no_nan_and_not_negative() {
    use evenkeel_core::units::Rate;
    assert!(Rate::new(f64::NAN).is_err() && Rate::new(-1.0).is_err());
    assert_eq!(per_1000_s(Rate::new(3.25).unwrap()), 3_250);
    assert_eq!(per_1000_s(Rate::new(1e300).unwrap()), RATE_MAX);
}
