//! What must be set alike at all sites, one by one: a fingerprint says that two sites differ, these
//! say in what.

use super::super::epoch::{SiteId, StableHash};
use super::super::{Effort, Overload};
use super::priced::ByPrice;
use super::{Aim, Planner, VERSION};
use evenkeel_core::time::nanos;

/// One of the things that must be set alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Setting {
    /// The latency that curves are for.
    Objective,
    /// Where writes are served.
    Writes,
    /// Time between plans.
    Period,
    /// What is to be small, a target for it, and prices.
    Aim,
    /// Whether sites that serve others' may send away.
    Relay,
    /// What a load beyond saturation means, and its price.
    Overload,
    /// The quantum of plans.
    Quantum,
    /// How many times a load weighs.
    LoadBias,
    /// Prices and limits of pairs of sites.
    Pairs,
    /// How this release computes, and what is not written in configurations.
    Release,
    /// The profiles of a site, and what its requests take.
    Curves(SiteId),
}

impl Setting {
    /// It in words; a site whose name is missing is numbered.
    pub fn words(self, names: &[String]) -> String {
        match self {
            Self::Objective => "objective".to_owned(),
            Self::Writes => "writes_stay".to_owned(),
            Self::Period => "period".to_owned(),
            Self::Aim => "aim, target or prices".to_owned(),
            Self::Relay => "relay".to_owned(),
            Self::Overload => "overload or overload_price".to_owned(),
            Self::Quantum => "quantum".to_owned(),
            Self::LoadBias => "load_bias".to_owned(),
            Self::Pairs => "[[redirect.pairs]]".to_owned(),
            Self::Release => "the release of Evenkeel".to_owned(),
            Self::Curves(site) => match names.get(site.index()) {
                Some(name) => format!("the curves of {name}"),
                None => format!("the curves of site {}", site.index()),
            },
        }
    }
}

impl Planner {
    /// Every setting with a hash of how it is set, in one order everywhere: the objective first,
    /// curves last.
    pub fn settings(&self) -> Vec<(Setting, u32)> {
        let config = &self.config;
        let numbers = |numbers: &[u64]| short(|hash| numbers.iter().for_each(|n| hash.number(*n)));
        let objective = self.objective().map_or(0, nanos);
        let mut aim = match &config.aim {
            Aim::Violations => vec![0],
            Aim::Cost { target_ppm } => vec![1, (*target_ppm).into()],
            Aim::GlobalCost { target_ppm, weights } => {
                let weights = weights.iter().map(|weight| u64::from(*weight));
                [2, (*target_ppm).into()].into_iter().chain(weights).collect()
            }
        };
        aim.extend(self.by_price.iter().flat_map(ByPrice::numbers));
        let overload = match config.overload {
            Overload::Curve => 0,
            Overload::Capped => 1,
            Overload::Priced(ppm) => 2 + u64::from(ppm),
        };
        let mut all = vec![
            (Setting::Objective, numbers(&[objective])),
            (Setting::Writes, numbers(&[config.writes as u64])),
            (Setting::Period, numbers(&[nanos(config.period)])),
            (Setting::Aim, numbers(&aim)),
            (Setting::Relay, numbers(&[config.relay.into()])),
            (Setting::Overload, numbers(&[overload])),
            (Setting::Quantum, numbers(&[config.quantum_ppm.into()])),
            (Setting::LoadBias, numbers(&[config.load_bias.to_bits()])),
            (Setting::Pairs, numbers(&self.pairs())),
            (Setting::Release, numbers(&self.release())),
        ];
        let curves = |(index, site): (usize, &super::SiteCurves)| {
            let hash = short(|hash| {
                site.fingerprint(hash);
                self.by_price.iter().for_each(|it| it.site_fingerprint(index, hash));
            });
            (Setting::Curves(SiteId::new(index)), hash)
        };
        all.extend(self.sites.iter().enumerate().map(curves));
        all
    }

    /// The objective of all curves; `None` without any.
    pub fn objective(&self) -> Option<evenkeel_core::time::Duration> {
        let mut classes = self.sites.iter().flat_map(|site| site.versions.iter().flatten());
        classes.next().map(|class| class.curves.objective())
    }

    fn release(&self) -> Vec<u64> {
        let config = &self.config;
        let Effort { work_max, work_exact, tolerance } = config.effort;
        let mut numbers = vec![VERSION, tolerance, config.growth.unwrap_or_default().into()];
        // The effort follows the period unless it is set by a program.
        let follows = super::PlannerConfig::new(config.period).effort;
        let is_own = (work_max, work_exact) != (follows.work_max, follows.work_exact);
        numbers.extend(is_own.then_some([work_max, work_exact]).into_iter().flatten());
        numbers
    }

    fn pairs(&self) -> Vec<u64> {
        let mut numbers = Vec::new();
        for rows in [&self.config.prices, &self.config.limits_ppm] {
            numbers.push(rows.as_ref().map_or(0, Vec::len) as u64);
            numbers.extend(rows.iter().flatten().flatten().map(|value| u64::from(*value)));
        }
        numbers
    }
}

fn short(of: impl FnOnce(&mut StableHash)) -> u32 {
    let mut hash = StableHash::default();
    of(&mut hash);
    let hash = hash.finish();
    (hash ^ (hash >> 32)) as u32
}
