//! What the last hour cost, kept up beside the driver: replays take a thread of their own, since
//! reports are sent meanwhile.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::Instant;
use evenkeel_geo::epoch::{SiteSet, Snapshot};
use evenkeel_geo::past::{Costs, Past};
use evenkeel_geo::planner::{Plan, Planner};
use evenkeel_runtime::clock::thread_cpu;
use tokio::task::{JoinError, JoinHandle};

use crate::state::HourState;

/// The last hour of one mesh.
#[derive(Debug)]
pub(super) struct LastHour {
    past: Past,
    replaying: Option<JoinHandle<(Costs, Duration)>>,
    /// Epochs of the last replay, and its CPU time.
    last: (u32, Duration),
}

impl LastHour {
    pub(super) fn new(period: Duration) -> Self {
        Self { past: Past::new(period), replaying: None, last: (1, Duration::ZERO) }
    }

    /// An epoch is over whose requests were hedged there; `came` is what the next plan is from.
    pub(super) fn note(
        &mut self,
        (told, plan): (&Snapshot, &Plan),
        hedges: SiteSet,
        came: &Snapshot,
    ) {
        self.past.note(told, plan, hedges, came);
    }

    /// Takes what a replay came to and begins the next one when it is time; an error is one of
    /// ours.
    pub(super) async fn go_on(
        &mut self,
        now: Instant,
        planner: &Arc<Planner>,
    ) -> Result<(), JoinError> {
        if let Some(replaying) = self.replaying.take_if(|it| it.is_finished()) {
            let (costs, cpu) = replaying.await?;
            self.past.take(now, costs);
            self.last.1 = cpu;
        }
        if self.replaying.is_none()
            && let Some(epochs) = self.past.due(now, self.last.1 / self.last.0)
        {
            self.last.0 = u32::try_from(epochs.len()).unwrap_or(u32::MAX).max(1);
            let planner = Arc::clone(planner);
            self.replaying = Some(tokio::task::spawn_blocking(move || {
                let before = thread_cpu();
                let costs = planner.replay(&epochs);
                (costs, thread_cpu().saturating_sub(before))
            }));
        }
        Ok(())
    }

    /// It for people.
    pub(super) fn state(&self, now: Instant) -> Option<HourState> {
        self.past.hour(now).map(|hour| HourState::of(&hour, self.last.1))
    }
}
