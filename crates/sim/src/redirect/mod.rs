//! Load between data centres: what every site measures, exchanges and plans, in virtual time.
//!
//! The decisions are core's own: the exchange of rows, the estimator of ways, the planner, the
//! watch over curves and the splitter. What is here gives them their inputs.
//!
//! | file | does |
//! |---|---|
//! | this file | [`Mode`]: the ways to share load that scenarios compare |
//! | `profile` | curves of one site, from its own simulation |
//! | `control` | one site's control loop |
//! | `spread` | what a site does with a plan, its own or a peer's |
//! | `tally` | who served whom, and how late |

pub(crate) mod control;
pub(crate) mod profile;
pub(crate) mod spread;
pub(crate) mod tally;

pub use tally::{RedirectReport, SiteReport, SiteWindow};

use evenkeel_core::site::redirect::Overload;
use evenkeel_core::site::redirect::planner::{Aim, PlannerConfig};

use crate::scenario::Redirect;

/// How load is shared between data centres: a policy's suffix, as in `least-outstanding+kurma`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Every request stays where it came (`AllLocal`).
    Local,
    /// The replica policy chooses among the replicas of all sites.
    Everywhere,
    /// Every request goes to the next site: for comparing predictions with measurements.
    Away,
    /// The paper's KurmaPerf: fewest violations, curves as measured.
    Kurma,
    /// The paper's KurmaCost: fewest redirects within the target.
    KurmaCost,
    /// KurmaPerf with the curves of an M/M/c queue.
    KurmaMmc,
    /// KurmaPerf, followed as slowly as clients follow DNS.
    KurmaDns,
    /// KurmaPerf, planned every few minutes from a moving average (Donar).
    KurmaSlow,
    /// What Evenkeel does unless told otherwise: KurmaPerf with a cautious load, capped at
    /// saturation.
    Planned,
    /// The same, and sites may send and receive at once.
    Relayed,
    /// The same as `Planned` at the least cost within the target.
    PlannedCost,
    /// Each site up to its capacity, then the nearest with room (waterfall by capacity).
    Waterfall,
    /// By headroom of utilisation (Envoy's `load_aware_locality`).
    Headroom,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Local,
        Self::Everywhere,
        Self::Away,
        Self::Kurma,
        Self::KurmaCost,
        Self::KurmaMmc,
        Self::KurmaDns,
        Self::KurmaSlow,
        Self::Planned,
        Self::Relayed,
        Self::PlannedCost,
        Self::Waterfall,
        Self::Headroom,
    ];

    /// The suffix, without `+`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Everywhere => "everywhere",
            Self::Away => "away",
            Self::Kurma => "kurma",
            Self::KurmaCost => "kurma-cost",
            Self::KurmaMmc => "kurma-mmc",
            Self::KurmaDns => "kurma-dns",
            Self::KurmaSlow => "kurma-slow",
            Self::Planned => "planned",
            Self::Relayed => "relayed",
            Self::PlannedCost => "planned-cost",
            Self::Waterfall => "waterfall",
            Self::Headroom => "headroom",
        }
    }

    /// The mode of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// How core's planner plans for it; `None` when it does not.
    pub(crate) fn planner(self, redirect: &Redirect) -> Option<PlannerConfig> {
        let ours = PlannerConfig {
            quantum_ppm: (redirect.quantum * 1e6).round() as u32,
            ..PlannerConfig::new(redirect.period)
        };
        // As published: no bias, and an overload is what its curve says.
        let theirs = PlannerConfig { load_bias: 1.0, overload: Overload::Curve, ..ours.clone() };
        let cost = Aim::Cost { target_ppm: (redirect.target * 1e6).round() as u32 };
        match self {
            Self::Kurma | Self::KurmaMmc | Self::KurmaDns | Self::KurmaSlow => Some(theirs),
            Self::KurmaCost => Some(PlannerConfig { aim: cost, ..theirs }),
            Self::Planned => Some(ours),
            Self::Relayed => Some(PlannerConfig { relay: true, ..ours }),
            Self::PlannedCost => Some(PlannerConfig { aim: cost, ..ours }),
            // To predict what is then compared with what happens.
            Self::Away => Some(theirs),
            Self::Local | Self::Everywhere | Self::Waterfall | Self::Headroom => None,
        }
    }

    /// Whether sites exchange what they know.
    pub(crate) const fn is_exchanged(self) -> bool {
        !matches!(self, Self::Local | Self::Everywhere | Self::Headroom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_is_found_by_its_name() {
        for mode in Mode::ALL {
            assert_eq!(Mode::named(mode.name()), Some(mode));
        }
        assert_eq!(Mode::named("hedge"), None);
    }
}
