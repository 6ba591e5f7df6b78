//! Improving Cloud Service Resilience using Brownout-Aware Load-Balancing (Klein, Papadopoulos,
//! Dellkrantz, Dürango, Maggio, Årzén, Hernández-Rodríguez, Elmroth; SRDS 2014).
//!
//! The claims, how each is checked and why some cannot be are in `papers/brownout/`; the scenarios
//! are the shipped ones.

use crate::Paper;
use crate::reference::fast_model;

/// The paper.
pub const PAPER: Paper = Paper {
    name: "brownout",
    claims: include_str!("../../../../papers/brownout/claims.toml"),
    scenarios: &[
        ("brownout-crash", include_str!("../../../../scenarios/brownout-crash.toml")),
        (
            "brownout-heterogeneous",
            include_str!("../../../../scenarios/brownout-heterogeneous.toml"),
        ),
        ("brownout-step", include_str!("../../../../scenarios/brownout-step.toml")),
    ],
    reference: Some(fast_model::SOURCE),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::claims::Check;
    use crate::plan::Plan;

    fn plan(quick: bool) -> Plan {
        let options = Options { seeds: (1..=10).collect(), quick, ..Options::default() };
        PAPER.plan(&options).unwrap()
    }

    /// Figures of others, each within a range of the claim that it stands for.
    #[test]
    fn what_is_expected_lies_in_the_ranges_of_its_claim() {
        let expected = include_str!("../../../../papers/brownout/expected.csv");
        let claims = PAPER.read().unwrap();
        let mut rows = csv::Reader::from_reader(expected.as_bytes());
        assert_eq!(rows.headers().unwrap().len(), 6);
        for row in rows.records() {
            let row = row.unwrap();
            let claim = claims.claims.iter().find(|claim| claim.id == row[0]);
            let claim = claim.unwrap_or_else(|| panic!("no claim {}", &row[0]));
            let Check::Measured { comparisons, .. } = &claim.check else {
                panic!("{} is measured", claim.id)
            };
            let value: f64 = row[3].parse().unwrap();
            let reported = match &row[4] {
                "%" if row[1].starts_with("gain") => 1.0 + value / 100.0,
                "%" => value / 100.0,
                _ => value,
            };
            let holds = comparisons.iter().any(|one| {
                let range = one.range;
                (range.at_least * 0.999..=range.at_most * 1.001).contains(&reported)
            });
            assert!(holds, "{row:?}");
        }
    }

    /// Table I scales the rate with the cores: ten requests per second and core.
    #[test]
    fn the_rate_per_core_is_the_same_in_all_rows() {
        let plan = plan(false);
        let claims = PAPER.read().unwrap();
        let place = claims.experiments.iter().position(|one| one.id == "table-1").unwrap();
        for point in 0..claims.experiments[place].axis.values.len() {
            let scenario = plan.scenario(place, 0, point).unwrap();
            let cores: f64 =
                scenario.replicas.iter().map(evenkeel_sim::scenario::Replica::capacity).sum();
            assert!((scenario.rate() / cores - 10.0).abs() < 1e-9, "row {point}");
            assert_eq!(scenario.faults.len(), 8, "four die and return");
        }
    }

    #[test]
    fn a_quick_check_is_a_small_part() {
        let work = |plan: &Plan| -> u64 { plan.jobs().iter().map(|job| plan.requests(job)).sum() };
        let (quick, full) = (work(&plan(true)), work(&plan(false)));
        // Three seeds in place of ten, at two million requests per CPU second.
        assert!(quick * 3 / 10 < 60_000_000, "{quick}");
        assert!(full < 400_000_000, "{full}");
    }
}
