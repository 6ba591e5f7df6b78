//! What a day says of the proxy that recorded it, as TOML of a scenario.

use std::fmt::Write as _;
use std::time::Duration;

use evenkeel_core::request::redundancy::HedgeConfig;
use evenkeel_settings::format_duration;

/// Retries that a scenario may have.
const RETRIES_MAX: u8 = 6;
/// The longest time limit that a scenario may have.
const TIMEOUT_MAX: Duration = Duration::from_secs(3_600);

/// How a proxy treats requests, as far as a replay needs it.
#[derive(Clone, Copy, Debug)]
pub struct Proxy<'a> {
    /// Whether replicas stop working on what is given up, as in HTTP.
    pub cancels: bool,
    /// How it hedges.
    pub hedge: Option<&'a HedgeConfig>,
    /// Retries a request may make.
    pub retries_max: u8,
    /// How long a request may take, to the head of its answer; zero = any time.
    pub timeout: Duration,
}

impl Proxy<'_> {
    /// The same as TOML of a scenario.
    pub fn like(&self) -> String {
        let Self { cancels, hedge, retries_max, timeout } = *self;
        let timeout = format_duration(timeout.min(TIMEOUT_MAX));
        let retries = retries_max.min(RETRIES_MAX);
        let mut text = format!(
            "[workload]\ncancel = {cancels}\ntimeout = \"{timeout}\"\n\
             [run]\nretries_max = {retries}\n"
        );
        hedge.into_iter().for_each(|hedge| hedges(hedge, &mut text));
        text
    }
}

fn hedges(hedge: &HedgeConfig, text: &mut String) {
    let mut line = |key: &str, value: &dyn std::fmt::Display| {
        // Writing to a text does not fail.
        let _ = writeln!(text, "hedge.{key} = {value}");
    };
    match &hedge.objective {
        Some(objective) => {
            line("objective", &format!("\"{}\"", format_duration(objective.objective)));
            line("benefit_min", &format!("{:?}", objective.worth_min));
        }
        None => line("quantile", &format!("{:?}", hedge.quantile.value())),
    }
    line("utilisation_max", &format!("{:?}", hedge.utilisation_max));
    line("budget", &format!("{:?}", hedge.budget_share));
    line("burst_max", &format!("{:?}", hedge.burst_max));
    line("late_ratio_max", &format!("{:?}", hedge.late_share_max));
    line("delay_min", &format!("\"{}\"", format_duration(hedge.delay_min)));
}

#[cfg(test)]
mod tests {
    use evenkeel_core::request::redundancy::ObjectiveConfig;
    use evenkeel_core::units::Probability;
    use evenkeel_settings::{Node, shared};

    use super::*;

    fn read(hedge: &HedgeConfig) -> HedgeConfig {
        let timeout = Duration::from_secs(30);
        let proxy = Proxy { cancels: true, hedge: Some(hedge), retries_max: 9, timeout };
        let text = proxy.like();
        assert!(text.starts_with("[workload]\ncancel = true\ntimeout = \"30s\"\n"), "{text}");
        assert!(text.contains("[run]\nretries_max = 6\n"), "{text}");
        let lines = text.lines().filter_map(|line| line.strip_prefix("hedge."));
        let node = Node::parse(&lines.collect::<Vec<_>>().join("\n"), "like").unwrap();
        node.read(shared::hedge).unwrap()
    }

    #[test]
    fn hedges_are_read_back_as_they_were_by_what_reads_scenarios() {
        let by_quantile = HedgeConfig {
            quantile: Probability::clamped(0.9),
            budget_share: 0.02,
            burst_max: 7.0,
            late_share_max: 0.25,
            utilisation_max: 0.5,
            delay_min: Duration::from_micros(1_500),
            ..HedgeConfig::default()
        };
        assert_eq!(read(&by_quantile), by_quantile);
        let objective = ObjectiveConfig {
            worth_min: 0.03,
            utilisation_max: 0.5,
            ..ObjectiveConfig::new(Duration::from_millis(30))
        };
        let by_objective = HedgeConfig {
            objective: Some(objective),
            utilisation_max: 0.5,
            ..HedgeConfig::default()
        };
        assert_eq!(read(&by_objective), by_objective);
    }
}
