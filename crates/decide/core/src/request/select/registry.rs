//! The table of policies: names, parameters, and how each is made.
//!
//! A policy is written `NAME` or `NAME:parameter=value,parameter=value`, as in
//! `c3:rate_control=on,weight=1`. A new policy is one file and one entry in `POLICIES`.

use crate::request::select::Selector;
use crate::request::select::adaptive::{Adaptive, AdaptiveConfig};
use crate::request::select::c3::{C3, C3Config, Unheard};
use crate::request::select::driver_default::DriverDefault;
use crate::request::select::dynamic_snitch::{DynamicSnitch, DynamicSnitchConfig};
use crate::request::select::least_outstanding::LeastOutstanding;
use crate::request::select::peak_ewma::{PeakEwma, PeakEwmaConfig};
use crate::request::select::prequal::{Prequal, PrequalConfig};
use crate::request::select::queue_offset::{QueueOffset, QueueOffsetConfig};
use crate::request::select::queue_offset_2014::{QueueOffset2014, QueueOffset2014Config};
use crate::request::select::random::Random;
use crate::request::select::round_robin::RoundRobin;
use crate::request::select::two_choices::TwoChoices;
use crate::request::select::weighted_dimmer::{WeightedDimmer, WeightedDimmerConfig};

/// The names of all policies, in the order in which they are listed to users.
pub const NAMES: [&str; POLICIES.len()] = {
    let mut names = [""; POLICIES.len()];
    let mut place = 0;
    while place < names.len() {
        names[place] = POLICIES[place].0;
        place += 1;
    }
    names
};

/// A policy's parameters as they are unless they are set.
type Usual = fn() -> Settings;

const POLICIES: [(&str, Usual); 20] = [
    ("adaptive", || Settings::Adaptive(AdaptiveConfig::default())),
    ("random", || Settings::Random),
    ("round-robin", || Settings::RoundRobin),
    ("least-outstanding", || Settings::LeastOutstanding),
    ("two-choices", || Settings::TwoChoices),
    ("peak-ewma", || Settings::PeakEwma(PeakEwmaConfig::default())),
    ("dynamic-snitch", || Settings::DynamicSnitch(DynamicSnitchConfig::default())),
    ("driver-default", || Settings::DriverDefault),
    ("prequal", || Settings::Prequal(PrequalConfig::default())),
    ("c3", || Settings::C3(C3Config::recommended, Vec::new())),
    ("c3-paper", || Settings::C3(C3Config::paper, Vec::new())),
    ("c3-absim", || Settings::C3(C3Config::absim, Vec::new())),
    ("c3-cassandra", || Settings::C3(C3Config::cassandra, Vec::new())),
    ("pibh", || Settings::QueueOffset(QueueOffsetConfig::pibh())),
    ("epbh", || Settings::QueueOffset(QueueOffsetConfig::epbh())),
    ("pibh-2014-03", || Settings::QueueOffset2014(QueueOffset2014Config::pibh_2014_03())),
    ("pibh-2014-07", || Settings::QueueOffset2014(QueueOffset2014Config::pibh_2014_07())),
    ("pibh-printed", || Settings::QueueOffset2014(QueueOffset2014Config::pibh_printed())),
    ("epbh-2014", || Settings::QueueOffset2014(QueueOffset2014Config::epbh_2014())),
    ("weighted-dimmer", || Settings::WeightedDimmer(WeightedDimmerConfig::default())),
];

/// A policy with its parameters, ready to be made once per worker.
#[derive(Clone, Debug)]
pub struct Policy {
    text: String,
    settings: Settings,
}

/// As long as they are written alike.
impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

#[derive(Clone, Debug)]
enum Settings {
    Adaptive(AdaptiveConfig),
    Random,
    RoundRobin,
    LeastOutstanding,
    TwoChoices,
    PeakEwma(PeakEwmaConfig),
    DynamicSnitch(DynamicSnitchConfig),
    DriverDefault,
    Prequal(PrequalConfig),
    /// The preset, and the parameters that change it. The client count is known only when the
    /// policy is made, so the preset is made then and the parameters are applied again.
    C3(fn(u32) -> C3Config, Vec<(String, String)>),
    QueueOffset(QueueOffsetConfig),
    QueueOffset2014(QueueOffset2014Config),
    WeightedDimmer(WeightedDimmerConfig),
}

/// Why a text is not a policy.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PolicyError {
    /// There is no policy of this name.
    #[error("policy {0:?} is unknown, expected one of {known}", known = NAMES.join(", "))]
    UnknownName(String),
    /// The policy has no such parameter.
    #[error("policy {policy} has no {}", no_such(came, known))]
    UnknownParameter {
        /// The policy.
        policy: String,
        /// The parameter that came.
        came: String,
        /// The parameters it has.
        known: Vec<&'static str>,
    },
    /// The parameter cannot have this value.
    #[error("parameter {parameter} came as {came:?}, expected {expected}")]
    BadValue {
        /// The parameter.
        parameter: String,
        /// The value that came.
        came: String,
        /// What was expected, in words.
        expected: String,
    },
}

fn no_such(came: &str, known: &[&str]) -> String {
    match known {
        [] => format!("parameters, got {came:?}"),
        known => format!("parameter {came:?}, expected one of {}", known.join(", ")),
    }
}

/// One parameter of a policy.
enum Knob<'a> {
    Number {
        value: &'a mut f64,
        min: f64,
        max: f64,
    },
    Switch(&'a mut bool),
    /// One of two words: false and true.
    Mode {
        value: &'a mut bool,
        words: [&'static str; 2],
    },
}

type Knobs<'a> = Vec<(&'static str, Knob<'a>)>;

fn number(value: &mut f64, min: f64, max: f64) -> Knob<'_> {
    Knob::Number { value, min, max }
}

fn adaptive_knobs(config: &mut AdaptiveConfig) -> Knobs<'_> {
    vec![
        ("wait", number(&mut config.wait, 0.0, 100.0)),
        ("stale", number(&mut config.stale, 0.0, 1e6)),
        ("spread", number(&mut config.spread, 0.0, 10.0)),
        ("exponent", number(&mut config.exponent, 0.0, 10.0)),
        ("own", number(&mut config.own, 0.0, 100.0)),
        ("fade_ms", number(&mut config.fade_ms, 1.0, f64::INFINITY)),
        ("probes", number(&mut config.probes, 0.0, 3.0)),
        ("free_ms", number(&mut config.free_ms, 0.0, 1e6)),
        ("failing", number(&mut config.failing, 0.0, 1e6)),
        ("ask", Knob::Switch(&mut config.ask)),
        ("unseen", Knob::Switch(&mut config.unseen)),
        ("far", Knob::Switch(&mut config.far)),
        ("late", Knob::Switch(&mut config.late)),
        ("moves", Knob::Switch(&mut config.moves)),
    ]
}

fn peak_ewma_knobs(config: &mut PeakEwmaConfig) -> Knobs<'_> {
    vec![
        ("tau_ms", number(&mut config.tau_ms, 1.0, 1e7)),
        ("default_rtt_ms", number(&mut config.default_rtt_ms, 0.001, 1e6)),
        ("failure_penalty_ms", number(&mut config.failure_penalty_ms, 0.0, 1e6)),
    ]
}

fn snitch_knobs(config: &mut DynamicSnitchConfig) -> Knobs<'_> {
    vec![
        ("badness", number(&mut config.badness, 0.0, 100.0)),
        ("update_ms", number(&mut config.update_ms, 1.0, 1e6)),
        ("reset_min", number(&mut config.reset_min, 0.01, 1e6)),
        ("silence", Knob::Switch(&mut config.silence)),
    ]
}

fn prequal_knobs(config: &mut PrequalConfig) -> Knobs<'_> {
    let mode = Knob::Mode { value: &mut config.sync, words: ["async", "sync"] };
    vec![
        ("mode", mode),
        ("q_rif", number(&mut config.q_rif, 0.0, 1.0)),
        ("probes", number(&mut config.probes, 0.0, 8.0)),
        ("pool", number(&mut config.pool, 1.0, 1_024.0)),
        ("age_ms", number(&mut config.age_ms, 1.0, 1e6)),
        ("removes", number(&mut config.removes, 0.0, 8.0)),
        ("delta", number(&mut config.delta, 0.0, 100.0)),
        ("reuse_max", number(&mut config.reuse_max, 1.0, 1e6)),
    ]
}

fn c3_knobs(config: &mut C3Config) -> Knobs<'_> {
    let cubic = &mut config.cubic;
    vec![
        ("weight", number(&mut config.weight, 0.0, 1e6)),
        ("exponent", number(&mut config.exponent, 0.0, 10.0)),
        ("alpha", number(&mut config.alpha, 0.001, 1.0)),
        ("fade_ms", number(&mut config.fade_ms, 1.0, f64::INFINITY)),
        ("ranking", Knob::Switch(&mut config.ranking)),
        ("rate_control", Knob::Switch(&mut config.rate_control)),
        ("random_ties", Knob::Switch(&mut config.random_ties)),
        ("interval_ms", number(&mut cubic.interval_ms, 0.1, 1e5)),
        ("rate_initial", number(&mut cubic.rate_initial, 1e-6, 1e6)),
        ("tokens_initial", number(&mut cubic.tokens_initial, 0.0, 1e6)),
        ("tokens_max", number(&mut cubic.tokens_max, 1.0, 1e6)),
        ("gamma", number(&mut cubic.gamma, 1e-12, 1.0)),
        ("step_max", number(&mut cubic.step_max, 1e-6, 1e6)),
        ("beta", number(&mut cubic.beta, 0.001, 1.0)),
        ("hysteresis", number(&mut cubic.hysteresis, 0.0, 1e3)),
        ("rate_min", number(&mut cubic.rate_min, 1e-6, 1e6)),
        ("saddle_initial", number(&mut cubic.saddle_initial, 0.0, 1e6)),
        ("received_initial", number(&mut cubic.received_initial, 0.0, 1e6)),
        ("received_alpha", number(&mut cubic.received_alpha, 0.001, 1.0)),
        ("idle_intervals", number(&mut cubic.idle_intervals, 1.0, 1e6)),
        ("divide_by_intervals", Knob::Switch(&mut cubic.divide_by_intervals)),
        ("mint_on_wake", Knob::Switch(&mut cubic.mint_on_wake)),
    ]
}

fn offset_knobs(config: &mut QueueOffsetConfig) -> Knobs<'_> {
    let mut knobs = match config.name {
        "epbh" => vec![("gain", number(&mut config.ki, 0.0, 100.0))],
        _ => vec![
            ("kp", number(&mut config.kp, 0.0, 100.0)),
            ("ki", number(&mut config.ki, 0.0, 100.0)),
        ],
    };
    knobs.extend([
        ("leak", number(&mut config.leak, 0.0, 1.0)),
        ("track", Knob::Switch(&mut config.track)),
        ("step_max_s", number(&mut config.step_max_s, 0.001, 1.0)),
        ("bound", number(&mut config.bound, 0.0, 1e6)),
        ("stale_s", number(&mut config.stale_s, 0.001, f64::INFINITY)),
        ("reset", Knob::Switch(&mut config.reset)),
        ("empty_first", Knob::Switch(&mut config.empty_first)),
    ]);
    knobs
}

fn offset_2014_knobs(config: &mut QueueOffset2014Config) -> Knobs<'_> {
    let step_max_s = ("step_max_s", number(&mut config.step_max_s, 0.001, 1.0));
    if config.equality {
        return vec![("gain", number(&mut config.ki, 0.0, 100.0)), step_max_s];
    }
    vec![
        ("kp", number(&mut config.kp, 0.0, 100.0)),
        ("ki", number(&mut config.ki, 0.0, 100.0)),
        ("leak", number(&mut config.leak, 0.0, 1.0)),
        step_max_s,
    ]
}

fn weighted_knobs(config: &mut WeightedDimmerConfig) -> Knobs<'_> {
    vec![
        ("gain", number(&mut config.gain, 0.0, 100.0)),
        ("period_s", number(&mut config.period_s, 0.001, 1e6)),
        ("weight_min", number(&mut config.weight_min, 1e-6, 1.0)),
    ]
}

/// Sets one parameter.
fn turn(policy: &str, knobs: Knobs<'_>, key: &str, text: &str) -> Result<(), PolicyError> {
    let known = knobs.iter().map(|(name, _)| *name).collect();
    let Some((_, knob)) = knobs.into_iter().find(|(name, _)| *name == key) else {
        let (policy, came) = (policy.to_owned(), key.to_owned());
        return Err(PolicyError::UnknownParameter { policy, came, known });
    };
    let bad = |expected: String| PolicyError::BadValue {
        parameter: key.to_owned(),
        came: text.to_owned(),
        expected,
    };
    match knob {
        Knob::Switch(value) => match text {
            "on" | "true" => *value = true,
            "off" | "false" => *value = false,
            _ => return Err(bad("on or off".to_owned())),
        },
        Knob::Mode { value, words } => match words.iter().position(|word| *word == text) {
            Some(place) => *value = place == 1,
            None => return Err(bad(words.join(" or "))),
        },
        Knob::Number { value, min, max } => match text.parse::<f64>() {
            Ok(number) if (min..=max).contains(&number) => *value = number,
            _ => return Err(bad(format!("a number from {min} to {max}"))),
        },
    }
    Ok(())
}

impl Settings {
    fn set(&mut self, policy: &str, key: &str, value: &str) -> Result<(), PolicyError> {
        let knobs = match self {
            Self::Adaptive(config) => adaptive_knobs(config),
            Self::PeakEwma(config) => peak_ewma_knobs(config),
            Self::DynamicSnitch(config) => snitch_knobs(config),
            Self::Prequal(config) => prequal_knobs(config),
            Self::C3(preset, parameters) => {
                // Tried out here for its errors; applied to the real preset in `make`.
                turn(policy, c3_knobs(&mut preset(1)), key, value)?;
                parameters.push((key.to_owned(), value.to_owned()));
                return Ok(());
            }
            Self::QueueOffset(config) => offset_knobs(config),
            Self::QueueOffset2014(config) => offset_2014_knobs(config),
            Self::WeightedDimmer(config) => weighted_knobs(config),
            Self::Random
            | Self::RoundRobin
            | Self::LeastOutstanding
            | Self::TwoChoices
            | Self::DriverDefault => Vec::new(),
        };
        turn(policy, knobs, key, value)
    }
}

impl core::str::FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
        let unknown = || PolicyError::UnknownName(name.to_owned());
        let policy = POLICIES.iter().find(|(known, _)| *known == name).ok_or_else(unknown)?;
        let mut settings = policy.1();
        for parameter in parameters.split(',').filter(|parameter| !parameter.is_empty()) {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            settings.set(name, key.trim(), value.trim())?;
        }
        Ok(Self { text: text.to_owned(), settings })
    }
}

impl Policy {
    /// The policy as the user wrote it: the label of its results.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Makes the policy, for one of `clients` dispatchers that share the replicas (proxies ×
    /// workers: C3 weights its own requests in flight by it).
    pub fn make(&self, clients: u32) -> Box<dyn Selector> {
        match &self.settings {
            Settings::Adaptive(config) => Box::new(Adaptive::new(config.clone())),
            Settings::Random => Box::new(Random),
            Settings::RoundRobin => Box::new(RoundRobin::default()),
            Settings::LeastOutstanding => Box::new(LeastOutstanding),
            Settings::TwoChoices => Box::new(TwoChoices),
            Settings::PeakEwma(config) => Box::new(PeakEwma::new(config.clone())),
            Settings::DynamicSnitch(config) => Box::new(DynamicSnitch::new(config.clone())),
            Settings::DriverDefault => Box::new(DriverDefault::default()),
            Settings::Prequal(config) => Box::new(Prequal::new(config.clone())),
            Settings::QueueOffset(config) => Box::new(QueueOffset::new(config.clone())),
            Settings::QueueOffset2014(config) => Box::new(QueueOffset2014::new(config.clone())),
            Settings::WeightedDimmer(config) => Box::new(WeightedDimmer::new(config.clone())),
            Settings::C3(preset, parameters) => {
                let mut config = preset(clients);
                for (key, value) in parameters {
                    let set = turn(&self.text, c3_knobs(&mut config), key, value);
                    debug_assert!(set.is_ok(), "checked when the policy was parsed");
                }
                if config.fade_ms.is_finite() {
                    config.unheard = Unheard::Typical; // fading needs a typical estimate
                }
                Box::new(C3::new(config))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        text.parse::<Policy>().unwrap_err().to_string()
    }

    #[test]
    fn every_listed_name_makes_a_policy_of_that_name() {
        for name in NAMES {
            let policy: Policy = name.parse().unwrap();
            assert_eq!(policy.make(3).name(), name);
        }
    }

    #[test]
    fn errors_say_what_came_and_what_was_expected() {
        assert!(error("c33").starts_with("policy \"c33\" is unknown, expected one of adaptive, "));
        assert_eq!(error("random:x=1"), "policy random has no parameters, got \"x\"");
        assert!(error("c3:wait=1").contains("no parameter \"wait\", expected one of weight, "));
        let bad = "parameter alpha came as \"2\", expected a number from 0.001 to 1";
        assert_eq!(error("c3:alpha=2"), bad);
        assert_eq!(error("c3:alpha=NaN").replace("NaN", "2"), bad);
        assert!(error("c3:rate_control=maybe").ends_with("expected on or off"));
        assert!(error("epbh:ki=1").contains("no parameter \"ki\", expected one of gain, "));
        assert!(error("pibh:ki=-1").ends_with("came as \"-1\", expected a number from 0 to 100"));
    }

    #[test]
    fn parameters_reach_the_policy() {
        let policy: Policy = "c3:rate_control=on,weight=7".parse().unwrap();
        let made = format!("{:?}", policy.make(150));
        assert!(made.contains("weight: 7.0") && made.contains("rate_control: true"), "{made}");
        let policy: Policy = "pibh:ki=0.2,stale_s=inf,empty_first=on".parse().unwrap();
        let made = format!("{:?}", policy.make(1));
        assert!(made.contains("ki: 0.2") && made.contains("empty_first: true"), "{made}");
        let policy: Policy = "epbh-2014:gain=2".parse().unwrap();
        assert!(format!("{:?}", policy.make(1)).contains("ki: 2.0"));
        let preset: Policy = "c3-absim".parse().unwrap();
        assert!(format!("{:?}", preset.make(150)).contains("weight: 150.0"));
    }
}
