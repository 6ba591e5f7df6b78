//! What a step offers, over whichever protocol the service speaks.

use evenkeel_core::units::Probability;

use super::config::{ProfileConfig, Requests};
use crate::{Arrivals, Load, LoadError, Outcome, Plan, Progress, Stop, Target, Workload};

/// One load, of requests as the configuration says.
pub(super) struct Offer {
    pub(super) plan: Plan,
    pub(super) write_share: Probability,
    pub(super) connections_max: usize,
}

impl Offer {
    /// Without writes, without warm-up and without an end.
    pub(super) fn new(config: &ProfileConfig, arrivals: Arrivals) -> Self {
        Self {
            plan: Plan { timeout: config.steps.timeout, seed: config.seed, ..arrivals.into() },
            write_share: Probability::ZERO,
            connections_max: config.steps.connections_max,
        }
    }

    /// Carries it out.
    pub(super) fn make(
        self,
        config: &ProfileConfig,
        stop: &Stop,
        on_progress: impl FnMut(&Progress),
    ) -> Result<Outcome, LoadError> {
        match &config.requests {
            Requests::Http(http) => {
                let target = self.target(&http.read, http.write.as_ref())?;
                let mut load = Load::new(target, self.plan);
                load.connections_max = self.connections_max;
                load.run(stop, on_progress)
            }
            Requests::Cassandra(template) => {
                let mut load = (**template).clone();
                load.workload = Workload { read_share: self.write_share.complement().value() };
                load.plan = self.plan;
                load.run(stop, on_progress)
            }
        }
    }

    fn target(&self, read: &Target, write: Option<&Target>) -> Result<Target, LoadError> {
        let read = read.clone();
        match write {
            Some(write) if self.write_share.value() > 0.0 => {
                read.mixed(write.clone(), self.write_share.value())
            }
            _ => Ok(read),
        }
    }
}
