//! What things cost, and what befalls requests of one data centre only: for plans by price.

use std::time::Duration;

use evenkeel_geo::joint;
use evenkeel_settings::{Mismatch, Table};
use serde::Serialize;

use crate::millis;
use crate::scenario::HOUR;
use crate::trace::RateSeries;

/// What things cost, in requests that miss the objective: a run's `cost` goes by them, and the
/// plans of `joint` and `hindsight`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Prices {
    /// Optional content that a request is served without.
    pub optional: f64,
    /// A request that is served by another data centre.
    pub wan: f64,
    /// A second of a node's time that copies take.
    pub node: f64,
}

impl Prices {
    pub(super) fn read(table: &mut Table<'_>) -> Self {
        let most = f64::from(joint::JOINT_PRICE_MAX) * 1e-6;
        let default = joint::Prices::default();
        let mut price = |key: &str, default: u32| {
            table.key(key).number().between(0.0..=most).or(f64::from(default) * 1e-6)
        };
        Self {
            optional: price("optional", default.optional),
            wan: price("wan", default.wan),
            node: price("node", default.node_second),
        }
    }

    /// The same as plans take them.
    pub fn of_plans(&self) -> joint::Prices {
        let ppm = |price: f64| (1e6 * price).round() as u32;
        joint::Prices {
            optional: ppm(self.optional),
            wan: ppm(self.wan),
            node_second: ppm(self.node),
        }
    }
}

/// More requests than the series says, at one data centre for some time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Surge {
    /// The data centre's name.
    pub site: String,
    /// When it begins.
    #[serde(with = "millis", rename = "at_ms")]
    pub at: Duration,
    /// How long it lasts.
    #[serde(with = "millis", rename = "for_ms")]
    pub length: Duration,
    /// How many times as many come.
    pub factor: f64,
}

impl Surge {
    pub(super) fn read(table: &mut Table<'_>) -> Self {
        let time = Duration::ZERO..=24 * HOUR;
        Self {
            site: table.key("site").text().required(),
            at: table.key("at").duration().between(time.clone()).required(),
            length: table.key("for").duration().between(time).required(),
            factor: table.key("factor").number().between(0.0..=1e3).required(),
        }
    }

    /// Multiplies the rates of this site in the steps that begin within it; how many those are.
    pub(super) fn apply(&self, site: usize, rates: &mut RateSeries) -> usize {
        let (step, mut steps) = (rates.step, 0);
        for (number, rate) in rates.rates[site].iter_mut().enumerate() {
            let at = step * u32::try_from(number).unwrap_or(u32::MAX);
            if (self.at..self.at + self.length).contains(&at) {
                *rate *= self.factor;
                steps += 1;
            }
        }
        steps
    }

    /// A mismatch where no step begins within it.
    pub(super) fn without_steps(&self, step: Duration) -> Mismatch {
        let came = format!("a surge of {:?} at {:?}", self.length, self.at);
        Mismatch::new(came, format!("one within which a step of {step:?} of the day begins"))
    }
}

/// Something outside a replica that makes some of its answers late: a lost packet, a slow disk.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Hiccup {
    /// Share of the copies of requests that it strikes, each by itself.
    pub share: f64,
    /// Mean of what they take longer (exponential).
    #[serde(with = "millis", rename = "mean_ms")]
    pub mean: Duration,
}

impl Hiccup {
    pub(super) fn read(table: &mut Table<'_>) -> Self {
        let mean = table.key("mean").duration().between(Duration::ZERO..=HOUR);
        Self { share: table.key("share").probability().required(), mean: mean.required() }
    }
}

/// A mismatch where a surge is of no site that there is.
pub(super) fn unknown_site(surge: &Surge) -> Mismatch {
    Mismatch::new(format!("{:?}", surge.site), "the name of one of the sites")
}
