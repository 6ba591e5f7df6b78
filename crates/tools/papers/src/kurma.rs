//! Fast and Accurate Load Balancing for Geo-Distributed Storage Systems: Kurma (Bogdanov, Reda,
//! Maguire, Kostić, Canini; SoCC 2018).
//!
//! The claims, how each is checked and why some cannot be are in `papers/kurma/`; the scenarios are
//! the shipped ones.

use crate::Paper;

/// The paper.
pub const PAPER: Paper = Paper {
    name: "kurma",
    claims: include_str!("../../../../papers/kurma/claims.toml"),
    scenarios: &[
        ("redirect-trace1", include_str!("../../../../scenarios/redirect-trace1.toml")),
        ("redirect-trace2", include_str!("../../../../scenarios/redirect-trace2.toml")),
        ("capacity-example", include_str!("../../../../plans/capacity.toml")),
    ],
    reference: None,
};

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::Options;
    use crate::plan::Plan;

    fn plan(quick: bool) -> Plan {
        let options = Options { seeds: (1..=10).collect(), quick, ..Options::default() };
        PAPER.plan(&options).unwrap()
    }

    /// Table 2 on the right.
    #[test]
    fn round_trips_are_those_of_table_2() {
        let plan = plan(false);
        let geography = plan.scenario(0, 0, 0).unwrap().geography.as_ref().unwrap();
        let names: Vec<_> = geography.sites.iter().map(|site| site.name.as_str()).collect();
        assert_eq!(names, ["London", "Ireland", "Frankfurt"]);
        let between = |from, to| geography.round_trip(from, to).unwrap().map(|rtt| rtt.as_millis());
        assert_eq!([between(0, 1), between(0, 2), between(1, 2)], [[9, 10], [11, 14], [22, 27]]);
        assert_eq!(plan.scenario(0, 0, 0).unwrap().workload.objective, Duration::from_millis(30));
    }

    #[test]
    fn a_quick_check_is_a_small_part() {
        let work = |plan: &Plan| -> u64 { plan.jobs().iter().map(|job| plan.requests(job)).sum() };
        let (quick, full) = (work(&plan(true)), work(&plan(false)));
        // Three seeds in place of ten, at most a million requests per CPU second.
        assert!(quick * 3 / 10 < 30_000_000, "{quick}");
        assert!(full < 500_000_000, "{full}");
    }
}
