//! What a step offers, over whichever protocol the service speaks.

use std::time::Duration;

use evenkeel_core::units::Probability;

use super::config::{ProfileConfig, Requests};
use crate::{Arrivals, Load, LoadError, Outcome, Progress, Stop, Target, Workload};

/// One load, of requests as the configuration says.
pub(super) struct Offer {
    pub(super) arrivals: Arrivals,
    pub(super) write_share: Probability,
    /// Requests due before this are sent and not counted.
    pub(super) warm_up: Duration,
    /// When it ends, the warm-up included.
    pub(super) duration: Option<Duration>,
    pub(super) requests_max: Option<u64>,
    pub(super) connections_max: usize,
    pub(super) seed: u64,
}

impl Offer {
    /// Without writes, without warm-up and without an end.
    pub(super) fn new(config: &ProfileConfig, arrivals: Arrivals) -> Self {
        Self {
            arrivals,
            write_share: Probability::ZERO,
            warm_up: Duration::ZERO,
            duration: None,
            requests_max: None,
            connections_max: config.steps.connections_max,
            seed: config.seed,
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
                let mut load = Load::new(target, self.arrivals);
                load.warm_up = self.warm_up;
                load.duration = self.duration;
                load.requests_max = self.requests_max;
                load.timeout = config.steps.timeout;
                load.connections_max = self.connections_max;
                load.seed = self.seed;
                load.run(stop, on_progress)
            }
            Requests::Cassandra(template) => {
                let mut load = (**template).clone();
                load.workload = Workload { read_share: self.write_share.complement().value() };
                load.arrivals = self.arrivals;
                load.warm_up = self.warm_up;
                load.duration = self.duration;
                load.requests_max = self.requests_max;
                load.seed = self.seed;
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
