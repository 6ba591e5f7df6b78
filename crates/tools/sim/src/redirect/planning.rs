//! What each mode asks of core's planner.

use evenkeel_geo::Overload;
use evenkeel_geo::planner::{Aim, PlannerConfig};

use super::Mode;
use crate::scenario::Redirect;

impl Mode {
    /// How core's planner plans for it; `None` when it does not.
    pub(crate) fn planner(self, redirect: &Redirect) -> Option<PlannerConfig> {
        let ours = PlannerConfig {
            quantum_ppm: (redirect.quantum * 1e6).round() as u32,
            ..PlannerConfig::new(redirect.period)
        };
        // As published: no bias, an overload is what its curve says, and curves are believed.
        let theirs = PlannerConfig {
            load_bias: 1.0,
            overload: Overload::Curve,
            growth: None,
            ..ours.clone()
        };
        let cost = Aim::Cost { target_ppm: (redirect.target * 1e6).round() as u32 };
        match self {
            Self::Kurma | Self::KurmaMmc | Self::KurmaDns | Self::KurmaSlow => Some(theirs),
            Self::KurmaCost => Some(PlannerConfig { aim: cost, ..theirs }),
            Self::Planned | Self::Joint | Self::Hindsight => Some(ours),
            Self::Relayed => Some(PlannerConfig { relay: true, ..ours }),
            Self::PlannedCost => Some(PlannerConfig { aim: cost, ..ours }),
            // To predict what is then compared with what happens.
            Self::Away => Some(theirs),
            Self::Local | Self::Failover | Self::Everywhere | Self::Waterfall | Self::Headroom => {
                None
            }
        }
    }
}
