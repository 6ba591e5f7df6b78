//! What a day says of the proxy or the agent that recorded it, as TOML of a scenario.

use std::fmt::Write as _;
use std::time::Duration;

use evenkeel_core::dimmer::BrownoutConfig;
use evenkeel_core::request::redundancy::HedgeConfig;
use evenkeel_settings::format_duration;
use evenkeel_settings::shared::Dimming;

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

/// How an agent dims, each key on a line of its own, which a replay sets beside what the proxy
/// tells. A scenario's cores are its replicas' slots, so whether they are known is all it takes;
/// and a period is told where it is not the one that another setpoint would bring.
pub fn dims(brownout: &BrownoutConfig) -> String {
    let BrownoutConfig { law, setpoint, percentile, period, cores, .. } = *brownout;
    let dimming = Dimming { law: Some(law), setpoint, percentile, period: None };
    let mut text = format!(
        "dimmer.law = \"{}\"\ndimmer.setpoint = \"{}\"\ndimmer.percentile = {:?}\n\
         dimmer.cores = \"{}\"\n",
        dimming.law_name(),
        format_duration(setpoint),
        percentile.value(),
        if cores.is_some() { "known" } else { "unknown" },
    );
    if period != dimming.usual_period(law) {
        // Writing to a text does not fail.
        let _ = writeln!(text, "dimmer.period = \"{}\"", format_duration(period));
    }
    text
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
    use evenkeel_core::dimmer::Law;
    use evenkeel_core::request::redundancy::ObjectiveConfig;
    use evenkeel_core::units::Probability;
    use evenkeel_settings::{Node, Table, shared};

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

    /// A table as scenarios and files have it, without what only one of them knows.
    fn dimmer(table: &mut Table<'_>) -> Option<BrownoutConfig> {
        let _ = table.key("cores").text().optional();
        shared::dimmer(table)
    }

    #[test]
    fn dimmers_are_read_back_as_they_were_and_usual_periods_follow_their_setpoint() {
        let ms = Duration::from_millis;
        let usual =
            BrownoutConfig { setpoint: ms(80), period: ms(80), ..BrownoutConfig::default() };
        let own = BrownoutConfig {
            law: Law::Published,
            percentile: Probability::clamped(0.99),
            period: ms(200),
            ..usual.clone()
        };
        for brownout in [usual.clone(), own] {
            let text = dims(&brownout);
            let node = Node::parse(&text.replace("dimmer.", ""), "like").unwrap();
            assert_eq!(node.read(dimmer).unwrap(), Some(brownout), "{text}");
        }
        // Another setpoint brings another period, as it would in the agent's own file.
        let text = dims(&usual).replace("dimmer.", "").replace("80ms", "40ms");
        let other = Node::parse(&text, "like").unwrap().read(dimmer).unwrap().unwrap();
        assert_eq!((other.setpoint, other.period), (ms(40), ms(40)));
        let known = BrownoutConfig { cores: Some(4.0), ..usual.clone() };
        assert!(dims(&known).contains("cores = \"known\""), "{}", dims(&known));
        assert!(dims(&usual).contains("cores = \"unknown\""), "{}", dims(&usual));
    }
}
