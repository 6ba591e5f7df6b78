//! Tables that configurations and scenarios have in common, so that the same keys mean the same.

use std::ops::RangeInclusive;
use std::time::Duration;

use evenkeel_core::dimmer::{BrownoutConfig, Law};
use evenkeel_core::request::redundancy::{HedgeConfig, ObjectiveConfig};
use evenkeel_core::request::safeguards::Safeguards;
use evenkeel_core::units::Probability;

use crate::{Mismatch, Table, format_duration};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// Reads a `[hedge]` table: `quantile`, or `objective` with `benefit_min`; `utilisation_max`,
/// `budget`, `burst_max`, `late_ratio_max`, `delay_min`.
pub fn hedge(table: &mut Table<'_>) -> HedgeConfig {
    let default = HedgeConfig::default();
    let quantile = table.key("quantile").probability().between(0.5..=0.9999);
    let minute = Duration::from_secs(60);
    let utilisation_max = table.key("utilisation_max").probability();
    let utilisation_max = utilisation_max.or(default.utilisation_max);
    HedgeConfig {
        quantile: Probability::clamped(quantile.or(default.quantile.value())),
        objective: hedge_objective(table, utilisation_max),
        utilisation_max,
        budget_share: table.key("budget").probability().or(default.budget_share),
        burst_max: table.key("burst_max").number().between(1.0..=1e6).or(default.burst_max),
        late_share_max: table.key("late_ratio_max").probability().or(default.late_share_max),
        delay_min: duration(table, "delay_min", Duration::ZERO..=minute, default.delay_min),
        ..default
    }
}

/// What to hedge for, in place of a quantile.
fn hedge_objective(table: &mut Table<'_>, utilisation_max: f64) -> Option<ObjectiveConfig> {
    let objective = table.key("objective").duration().between(MS / 10..=HOUR).optional();
    let default = ObjectiveConfig::new(objective.unwrap_or(MS));
    let config = ObjectiveConfig {
        worth_min: table.key("benefit_min").probability().or(default.worth_min),
        utilisation_max,
        ..default
    };
    let has_objective = table.key("objective").value().is_some();
    let (lost, came, expected) = if has_objective {
        let expected = "one of the two: each says when a copy leaves";
        ("quantile", "quantile beside objective", expected)
    } else {
        let expected = "objective too, such as objective = \"30ms\"";
        ("benefit_min", "benefit_min without objective", expected)
    };
    if table.key(lost).value().is_some() {
        table.problem(lost, Mismatch::new(came, expected));
    }
    objective.map(|_| config)
}

/// Reads a `[safeguards]` table: `slow_start`, `failure_ratio_max`, `ejection_failures`,
/// `ejection_base`, `ejection_max`, `silence_min`, `hold_max`.
pub fn safeguards(table: &mut Table<'_>) -> Safeguards {
    let default = Safeguards::default();
    let failures = table.key("ejection_failures").integer().between(0..=1_000_000);
    let share = table.key("failure_ratio_max").probability();
    let longest = duration(table, "ejection_max", MS..=HOUR, default.ejection_max);
    let first = default.ejection_base.min(longest);
    let safeguards = Safeguards {
        slow_start: duration(table, "slow_start", Duration::ZERO..=HOUR, default.slow_start),
        failure_share_max: share.or(default.failure_share_max),
        ejection_failures: failures.or(default.ejection_failures),
        ejection_base: duration(table, "ejection_base", MS..=HOUR, first),
        ejection_max: longest,
        silence_min: duration(table, "silence_min", Duration::ZERO..=HOUR, default.silence_min),
        hold_max: duration(table, "hold_max", Duration::ZERO..=HOUR, default.hold_max),
    };
    if table.is_sound() && safeguards.ejection_base > longest {
        let expected = format!("at most ejection_max, which is {}", format_duration(longest));
        let wrong = Mismatch::new(format_duration(safeguards.ejection_base), expected);
        table.problem("ejection_base", wrong);
    }
    safeguards
}

/// What a `[dimmer]` table says, apart from the cores, which a scenario knows and a file must tell.
#[derive(Clone, Debug, PartialEq)]
pub struct Dimming {
    /// The law; `None` is `off`: every request is served in full.
    pub law: Option<Law>,
    /// The response time that the percentile is kept at.
    pub setpoint: Duration,
    /// The percentile.
    pub percentile: Probability,
    /// Time between control steps, where the file says it.
    pub period: Option<Duration>,
}

impl Dimming {
    /// The laws by the names users write.
    pub const LAWS: [(&str, Option<Law>); 4] = [
        ("feed-forward", Some(Law::FeedForward)),
        ("published", Some(Law::Published)),
        ("published-exact", Some(Law::PublishedExact)),
        ("off", None),
    ];

    /// Reads `law`, `setpoint`, `percentile` and `period`; `law` is what holds without the first.
    pub fn read(table: &mut Table<'_>, law: Option<Law>) -> Self {
        let default = BrownoutConfig::default();
        let percentile = table.key("percentile").probability().between(0.5..=0.9999);
        let period = table.key("period").duration().between(10 * MS..=HOUR / 60);
        Self {
            law: table.key("law").variant(&Self::LAWS).or(law),
            setpoint: duration(table, "setpoint", MS..=HOUR, default.setpoint),
            percentile: Probability::clamped(percentile.or(default.percentile.value())),
            period: period.optional(),
        }
    }

    /// The name of its law.
    pub fn law_name(&self) -> &'static str {
        let named = Self::LAWS.iter().find(|(_, law)| *law == self.law);
        named.map_or("off", |(name, _)| name)
    }

    /// The brownout that dims by this law, for a replica whose cores are unknown.
    pub fn with_law(&self, law: Law) -> BrownoutConfig {
        BrownoutConfig {
            law,
            setpoint: self.setpoint,
            percentile: self.percentile,
            period: self.period.unwrap_or_else(|| self.usual_period(law)),
            ..BrownoutConfig::default()
        }
    }

    /// The period of a law where nobody says another: the published ones were designed for half a
    /// second; the feed-forward law gains from every halving, and a period longer than the setpoint
    /// would let in more than can be served in time before it looks again.
    pub fn usual_period(&self, law: Law) -> Duration {
        match law {
            Law::FeedForward => (250 * MS).min(self.setpoint).max(10 * MS),
            Law::Published | Law::PublishedExact => 500 * MS,
        }
    }
}

/// Reads a `[dimmer]` table: `law` (feed-forward unless it says another), `setpoint`, `percentile`,
/// `period`. `None` when the law is `off`. The cores are left to the caller.
pub fn dimmer(table: &mut Table<'_>) -> Option<BrownoutConfig> {
    let dimming = Dimming::read(table, Some(Law::FeedForward));
    dimming.law.map(|law| dimming.with_law(law))
}

/// Reads a duration within a range, or takes the default where the file does not say.
pub fn duration(
    table: &mut Table<'_>,
    key: &str,
    range: RangeInclusive<Duration>,
    default: Duration,
) -> Duration {
    table.key(key).duration().between(range).or(default)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Node, Problems};

    fn read<T>(text: &str, shape: fn(&mut Table<'_>) -> T) -> Result<T, Problems> {
        Node::parse(text, "x.toml")?.read(shape)
    }

    #[test]
    fn a_law_brings_its_period_and_a_written_one_wins() {
        let period = |text: &str| read(text, dimmer).unwrap().unwrap().period;
        assert_eq!(period(""), 250 * MS);
        assert_eq!(period("law = 'published'"), 500 * MS);
        assert_eq!(period("law = 'published-exact'\nperiod = '2s'"), 2_000 * MS);
        assert_eq!(read("law = 'off'", dimmer).unwrap(), None);
        let config = read("setpoint = '50ms'\npercentile = '99%'", dimmer).unwrap().unwrap();
        assert_eq!((config.law, config.setpoint), (Law::FeedForward, 50 * MS));
        assert_eq!((config.percentile.value(), config.cores), (0.99, None));
    }

    #[test]
    fn a_hedge_follows_a_quantile_or_an_objective() {
        assert_eq!(read("", hedge).unwrap(), HedgeConfig::default());
        let text = "objective = '30ms'\nbudget = '2%'\nbenefit_min = 0.1\nutilisation_max = '60%'";
        let config = read(text, hedge).unwrap();
        let objective = config.objective.unwrap();
        assert_eq!((objective.objective, config.budget_share), (30 * MS, 0.02));
        assert_eq!((objective.worth_min, objective.utilisation_max), (0.1, 0.6));
        assert_eq!(read("utilisation_max = 0.5", hedge).unwrap().utilisation_max, 0.5);
        let defaults = read("objective = '1s'", hedge).unwrap().objective;
        assert_eq!(defaults, Some(ObjectiveConfig::new(1_000 * MS)));
        for (text, reported) in [
            ("objective = '30ms'\nquantile = 0.9", "one of the two"),
            ("benefit_min = 0.1", "benefit_min without objective"),
            ("objective = '0s'", "from 100us to"),
            ("objective = '30ms'\nbenefit_min = 2", "benefit_min"),
        ] {
            let error = read(text, hedge).unwrap_err().to_string();
            assert!(error.contains(reported), "{text}: {error}");
        }
    }

    #[test]
    fn every_problem_is_told() {
        let error = read("law = 'on'\nsetpoint = '0s'\nperiod = '1ms'", dimmer).unwrap_err();
        let reported = error.to_string();
        for what in ["feed-forward, published, published-exact", "from 1ms to", "from 10ms to"] {
            assert!(reported.contains(what), "{reported}");
        }
        let error = read("ejection_base = '9s'\nejection_max = '5s'", safeguards).unwrap_err();
        assert!(error.to_string().contains("ejection_max, which is 5s"), "{error}");
    }

    #[test]
    fn one_failure_and_a_flat_ejection_can_be_written() {
        let text = "ejection_failures = 1\nejection_base = '5s'\nejection_max = '5s'\n\
                    failure_ratio_max = 1.0\nslow_start = '0s'";
        let safeguards = read(text, safeguards).unwrap();
        assert_eq!((safeguards.ejection_failures, safeguards.slow_start), (1, Duration::ZERO));
        assert_eq!((safeguards.ejection_base, safeguards.ejection_max), (5_000 * MS, 5_000 * MS));
    }
}
