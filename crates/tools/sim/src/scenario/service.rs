//! Replicas whose requests share their cores, what the requests cost there, and how they dim.

use std::time::Duration;

use evenkeel_core::dimmer::{BrownoutConfig, Law};
use evenkeel_settings::shared::Dimming;
use evenkeel_settings::{Mismatch, Setting, Table, Value};
use serde::Serialize;

use crate::guard::Kind;
use crate::millis;
use crate::scenario::{HOUR, Hiccup};

/// A replica with cores of its own that all its requests share.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Replica {
    /// Its cores.
    pub cores: u32,
    /// Work that each of them does, as a share of an ideal core's.
    pub speed: f64,
    /// Requests served at once, the others standing in line; `None`: all share the cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<u32>,
}

/// Core time of requests, on an ideal core.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Work {
    /// Mean of a request that is served with its optional content.
    #[serde(with = "millis", rename = "optional_ms")]
    pub optional: Duration,
    /// Mean of a request that is served without.
    #[serde(with = "millis", rename = "mandatory_ms")]
    pub mandatory: Duration,
    /// Coefficient of variation of the former (lognormal; 0 = constant).
    pub cv: f64,
    /// Coefficient of variation of the latter.
    pub cv_mandatory: f64,
    /// What makes some answers late outside the replica.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hiccup: Option<Hiccup>,
}

/// How the replicas dim.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Dimmer {
    #[serde(skip)]
    dimming: Dimming,
    /// The law's name; policies with a suffix have another.
    pub law: &'static str,
    /// The response time that the percentile is kept at.
    #[serde(with = "millis", rename = "setpoint_ms")]
    pub setpoint: Duration,
    /// The percentile.
    pub percentile: f64,
    /// Whether a brownout is told the cores of its replica.
    pub cores_known: bool,
}

impl Replica {
    /// Reads `{cores = 8, speed = 0.8, workers = 8}`, or just the cores.
    pub(super) fn read(item: Setting<'_>) -> Self {
        if matches!(item.value(), Some(Value::Table(_))) {
            return item.table(Self::read_table).required();
        }
        Self { cores: cores(item), speed: 1.0, workers: None }
    }

    fn read_table(table: &mut Table<'_>) -> Self {
        let cores = cores(table.key("cores"));
        let workers = table.key("workers").integer().between(1..=1_000_000).optional();
        Self { cores, speed: table.key("speed").number().between(0.01..=100.0).or(1.0), workers }
    }

    /// Core-seconds of an ideal core that it does per second.
    pub fn capacity(&self) -> f64 {
        f64::from(self.cores) * self.speed
    }
}

fn cores(setting: Setting<'_>) -> u32 {
    setting.integer().between(1..=100_000).required()
}

impl Work {
    /// The same for every request.
    pub fn constant(mean: Duration) -> Self {
        Self { optional: mean, mandatory: mean, cv: 0.0, cv_mandatory: 0.0, hiccup: None }
    }

    pub(super) fn read(table: &mut Table<'_>) -> Self {
        let range = Duration::from_micros(1)..=HOUR;
        let optional = table.key("optional").duration().between(range.clone()).required();
        let mandatory = table.key("mandatory").duration().between(range).required();
        let cv = table.key("cv").number().between(0.0..=10.0).or(1.0);
        let cv_mandatory = table.key("cv_mandatory").number().between(0.0..=10.0).or(cv);
        if table.is_sound() && mandatory > optional {
            let came = format!("{} ms", evenkeel_core::time::millis(mandatory));
            let expected = "at most work.optional, which is the whole of a full request";
            table.problem("mandatory", Mismatch::new(came, expected));
        }
        let hiccup = table.key("hiccup");
        let hiccup = hiccup.value().is_some().then(|| hiccup.table(Hiccup::read).required());
        Self { optional, mandatory, cv, cv_mandatory, hiccup }
    }
}

impl Dimmer {
    pub(super) fn read(table: &mut Table<'_>, law: Option<Law>) -> Self {
        let dimming = Dimming::read(table, law);
        let cores = table.key("cores").variant(&[("known", true), ("unknown", false)]);
        Self {
            law: dimming.law_name(),
            setpoint: dimming.setpoint,
            percentile: dimming.percentile.value(),
            cores_known: cores.or(true),
            dimming,
        }
    }

    /// What stands before the replicas when the policy does not say.
    pub fn guard(&self) -> Kind {
        self.dimming.law.map_or(Kind::Full, Kind::Brownout)
    }

    /// The brownout of a replica with these cores under this law.
    pub fn brownout(&self, law: Law, cores: u32) -> BrownoutConfig {
        let cores = self.cores_known.then_some(f64::from(cores));
        BrownoutConfig { cores, ..self.dimming.with_law(law) }
    }
}
