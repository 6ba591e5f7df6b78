//! Zoolander: Efficiently Meeting Very Strict, Low-Latency SLOs (Stewart, Chakrabarti, Griffith;
//! ICAC 2013).
//!
//! The claims, how each is checked and why some cannot be are in `papers/zoolander/`; the stores
//! are those of [`duplicates`](evenkeel_sim::duplicates).

pub mod measure;

use crate::Paper;

/// The paper.
pub const PAPER: Paper = Paper {
    name: "zoolander",
    claims: include_str!("../../../../papers/zoolander/claims.toml"),
    scenarios: &[
        ("zookeeper", include_str!("../../../../papers/zoolander/zookeeper.toml")),
        ("night", include_str!("../../../../papers/zoolander/night.toml")),
    ],
    reference: None,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::plan::Plan;
    use evenkeel_sim::report::RunReport;

    fn plan(quick: bool) -> Plan {
        let options = Options { seeds: (1..=10).collect(), quick, ..Options::default() };
        PAPER.plan(&options).unwrap()
    }

    fn runs(plan: &Plan, experiment: &str, policy: &str) -> Vec<RunReport> {
        let place = plan.claims.experiments.iter().position(|known| known.id == experiment);
        let place = place.unwrap();
        let policies = &plan.claims.experiments[place].policies;
        let policy = policies.iter().position(|known| known == policy).unwrap();
        let grid = &plan.grids[place];
        let job = |(panel, point)| grid.jobs(panel, point, policy).start;
        grid.settings().map(|setting| plan.run(&plan.jobs()[job(setting)])).collect()
    }

    /// Partitions of two duplicates have as many accesses each with 2p/2d at 1M an hour as with
    /// 3p/2d at 1.5M. So if three meet the target there, two do here, and table 4's six nodes for
    /// 1M are two too many, whatever the service times.
    #[test]
    fn table_4_contradicts_itself() {
        let of = |policy: &str, rate: f64| {
            let scenario = PAPER.scenario("zookeeper").unwrap();
            let mut node = evenkeel_settings::Node::parse(scenario, "zookeeper.toml").unwrap();
            let rate = format!("workload.rate={rate}");
            for set in ["workload.arrivals=poisson", "workload.accesses=1000", &rate] {
                node.set(set).unwrap();
            }
            let scenario = evenkeel_sim::duplicates::DuplicatesScenario::read(&node).unwrap();
            let run = RunReport::of_duplicates(&scenario.deployment, policy, 1);
            run.duplicates.unwrap().predicted.paper
        };
        let (two, three) = (of("2p2d", 1e6 / 3_600.0), of("3p2d", 1.5e6 / 3_600.0));
        assert!((two / three - 1.0).abs() < 1e-9, "{two} and {three}");
    }

    /// Table 3's own arithmetic: 16 duplicates that each meet the bound with 60 %.
    #[test]
    fn table_3_starts_from_sixty_percent() {
        let plan = plan(true);
        let runs = runs(&plan, "table-3", "1p16d");
        let predicted = runs[0].duplicates.as_ref().unwrap().predicted;
        assert!((predicted.single - 0.4).abs() < 1e-4, "{predicted:?}");
        assert!((predicted.series / 0.4_f64.powi(16) - 1.0).abs() < 0.01, "{predicted:?}");
        // 99.9654 and 99.927 % are what the errors of table 3 leave for window and full model.
        assert!((predicted.window - 3.46e-4).abs() < 1e-5, "{predicted:?}");
        assert!((predicted.paper - 7.3e-4).abs() < 2e-5, "{predicted:?}");
    }

    #[test]
    fn a_quick_check_is_a_small_part() {
        let work = |plan: &Plan| -> u64 { plan.jobs().iter().map(|job| plan.requests(job)).sum() };
        let (quick, full) = (work(&plan(true)), work(&plan(false)));
        // Three seeds in place of ten; some 250 ns for an access with all its copies.
        assert!(quick * 3 / 10 < 30_000_000, "{quick}");
        assert!(full < 1_000_000_000, "{full}");
    }
}
