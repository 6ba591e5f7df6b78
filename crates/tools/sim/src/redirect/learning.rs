//! A site's curve that learns: what the simulator counts for core's learner.

use evenkeel_core::Duration;
use evenkeel_core::units::{Dimmer, Probability};
use evenkeel_geo::Learnt;
use evenkeel_geo::curve::{Conditions, Family, Learner, Prior, Seen};
use evenkeel_geo::demand::Lately;
use evenkeel_geo::joint::Service;
use evenkeel_geo::planner::SiteCurves;

/// One site's learner and what was counted since it was last asked.
#[derive(Debug)]
pub(crate) struct Learning {
    learner: Learner,
    plain: Family,
    hedged: Option<Family>,
    /// Lean over full work.
    lean: f64,
    /// Requests that came to servers, without copies: all, those that met a dimmer below full
    /// content, those served in full.
    came: u64,
    dimmed: u64,
    full: u64,
}

impl Learning {
    /// From these curves, which are guessed or profiled, without hedges and with.
    pub(crate) fn new(
        kind: Prior,
        plain: &SiteCurves,
        hedged: Option<&SiteCurves>,
        service: Service,
    ) -> Self {
        let family = |curves: &SiteCurves| Family::local(&curves.versions[0][0].curves);
        Self {
            learner: Learner::new(kind),
            plain: family(plain),
            hedged: hedged.map(family),
            lean: f64::from(service.lean_us) / f64::from(service.full_us.max(1)),
            came: 0,
            dimmed: 0,
            full: 0,
        }
    }

    /// A request came to a server with this dimmer.
    #[inline]
    pub(crate) fn came(&mut self, dimmer: Option<Dimmer>, is_full: bool) {
        self.came += 1;
        self.dimmed += u64::from(dimmer.is_some_and(|dimmer| dimmer < Dimmer::FULL));
        self.full += u64::from(is_full);
    }

    /// Learns what the last period showed, in which so many servers lived and requests were hedged
    /// or not.
    pub(crate) fn learn(
        &mut self,
        over: Duration,
        lately: &Lately,
        (servers, is_hedged): (u32, bool),
    ) {
        let came = core::mem::take(&mut self.came);
        let (dimmed, full) =
            (core::mem::take(&mut self.dimmed) as f64, core::mem::take(&mut self.full) as f64);
        let all = came.max(1) as f64;
        let work = (1.0 - self.lean).mul_add(full / all, self.lean);
        let seen = Seen {
            load: lately.load(),
            work: Probability::clamped(work),
            dimmed: Probability::clamped(dimmed / all),
            requests: lately.local_ended,
            missed: lately.local_missed,
            grown: lately.local_grown,
        };
        let family = self.hedged.as_ref().filter(|_| is_hedged).unwrap_or(&self.plain);
        let conditions = Conditions::with_servers(servers).unbiased();
        self.learner.observe(over, family, &conditions, &seen);
    }

    /// What plans use.
    pub(crate) fn believed(&self) -> Learnt {
        self.learner.believed()
    }
}
