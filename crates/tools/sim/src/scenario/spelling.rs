//! A policy as scenarios write it: `NAME[:parameter=value,…]`, then suffixes such as `+hedge`.

use evenkeel_core::request::redundancy::HedgeConfig;
use evenkeel_core::request::select::Policy;
use evenkeel_settings::Mismatch;

use crate::guard::Kind;
use crate::oracle::Oracle;
use crate::peers::LatencyAware;
use crate::redirect::Mode;

/// A policy's text, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spelling<'a> {
    /// The policy: one of the registry or of the oracles.
    pub policy: &'a str,
    /// Whether it hedges (`+hedge`, or `+quantile-hedge`).
    pub is_hedged: bool,
    /// Whether it hedges by the quantile and a bucket alone, as published, although the scenario
    /// sets an objective for hedges (`+quantile-hedge`): to compare the two.
    pub is_by_quantile: bool,
    /// What stands before the replicas, when a suffix says it.
    pub guard: Option<Kind>,
    /// How load is shared between data centres, when a suffix says it.
    pub sharing: Option<Mode>,
}

/// Whole runs that have names of their own: one mechanism, three in loops of their own, all by one
/// price, and that with demand foreknown.
const RUNS: [(&str, &str); 6] = [
    ("joint", "least-outstanding+joint+feed-forward+hedge"),
    ("loops", "least-outstanding+planned+published+quantile-hedge"),
    ("redirect", "least-outstanding+kurma+full"),
    ("brownout", "least-outstanding+failover+published"),
    ("hedge", "least-outstanding+failover+full+quantile-hedge"),
    ("hindsight", "least-outstanding+hindsight+feed-forward+hedge"),
];

impl<'a> Spelling<'a> {
    /// Takes a policy's text apart; what is no suffix stays with the policy.
    pub fn of(text: &'a str) -> Self {
        let run = RUNS.iter().find(|(name, _)| *name == text);
        let text = run.map_or(text, |(_, whole)| whole);
        let mut spelling = Self {
            policy: text,
            is_hedged: false,
            is_by_quantile: false,
            guard: None,
            sharing: None,
        };
        while let Some((rest, suffix)) = spelling.policy.rsplit_once('+') {
            match (Kind::named(suffix), Mode::named(suffix)) {
                _ if suffix == "hedge" && !spelling.is_hedged => spelling.is_hedged = true,
                _ if suffix == "quantile-hedge" && !spelling.is_hedged => {
                    (spelling.is_hedged, spelling.is_by_quantile) = (true, true);
                }
                (Some(kind), _) if spelling.guard.is_none() => spelling.guard = Some(kind),
                (_, Some(mode)) if spelling.sharing.is_none() => spelling.sharing = Some(mode),
                _ => break,
            }
            spelling.policy = rest;
        }
        spelling
    }

    /// How it hedges, given how the scenario says to; `None` when it does not.
    pub fn hedge(&self, of_scenario: &HedgeConfig) -> Option<HedgeConfig> {
        let as_published =
            HedgeConfig { objective: None, utilisation_max: 1.0, ..of_scenario.clone() };
        let hedge = if self.is_by_quantile { as_published } else { of_scenario.clone() };
        self.is_hedged.then_some(hedge)
    }
}

/// A policy of the registry or one of the oracles, perhaps with suffixes.
pub(super) fn checked(text: &str) -> Result<String, Mismatch> {
    let Spelling { policy, .. } = Spelling::of(text);
    if Oracle::NAMES.contains(&policy) || policy == LatencyAware::NAME {
        return Ok(text.to_owned());
    }
    let Err(error) = policy.parse::<Policy>() else { return Ok(text.to_owned()) };
    let oracles = Oracle::NAMES.join(", ");
    let wrong = Mismatch::new(format!("{text:?}"), format!("a policy or {oracles}: {error}"));
    if !policy.contains('+') {
        return Err(wrong);
    }
    let names = Kind::NAMES.map(|(name, _)| format!("+{name}")).join(", ");
    let modes = Mode::ALL.map(|mode| format!("+{}", mode.name())).join(", ");
    let hedges = "+hedge, +quantile-hedge";
    let hint =
        format!("the suffixes are {hedges}, one of {names}, and between sites one of {modes}");
    Err(wrong.with_hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_core::dimmer::Law;
    use evenkeel_core::request::redundancy::ObjectiveConfig;

    #[test]
    fn suffixes_come_in_any_order_and_once() {
        let published = Some(Kind::Brownout(Law::Published));
        for text in ["c3:weight=1e+3+hedge+published", "c3:weight=1e+3+published+hedge"] {
            let spelling = Spelling {
                policy: "c3:weight=1e+3",
                is_hedged: true,
                is_by_quantile: false,
                guard: published,
                sharing: None,
            };
            assert_eq!(Spelling::of(text), spelling);
            assert!(checked(text).is_ok());
        }
        assert_eq!(Spelling::of("random").guard, None);
        let spelling = Spelling::of("latency-aware+hedge+kurma");
        assert_eq!((spelling.policy, spelling.sharing), ("latency-aware", Some(Mode::Kurma)));
        assert!(checked("latency-aware+everywhere").is_ok());
        let spelling = Spelling::of("c3+quantile-hedge");
        assert_eq!((spelling.policy, spelling.is_by_quantile), ("c3", true));
        let objective = ObjectiveConfig::new(evenkeel_core::Duration::from_millis(30));
        let config = HedgeConfig { objective: Some(objective), ..HedgeConfig::default() };
        let published = HedgeConfig { utilisation_max: 1.0, ..HedgeConfig::default() };
        assert_eq!(spelling.hedge(&config), Some(published), "it has no gate on load");
        assert_eq!(Spelling::of("c3+hedge").hedge(&config), Some(config.clone()));
        assert_eq!(Spelling::of("c3").hedge(&config), None);
        for text in ["random+full+shed", "random+hedge+quantile-hedge", "random+brownout"] {
            let reported = format!("{:?}", checked(text).unwrap_err());
            assert!(reported.contains("+feed-forward") && reported.contains(text), "{reported}");
        }
    }
}
