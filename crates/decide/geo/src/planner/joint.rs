//! From what all sites told to one plan for redirects, dimmers and hedges, by price.

use super::super::joint::{Hedged, Joint, Planned, Prices, Service};
use super::super::{Problem, ProblemError};
use super::inputs::Inputs;
use super::{Plan, Planner, PlannerError, SiteCurves, SiteId, Snapshot};

/// Plans for all sites by price, the same at each of them.
///
/// Its curves are shares of late *full* requests; the planner's aim and its rules for overload are
/// not asked: overload has a price.
#[derive(Clone, Debug)]
pub struct JointPlanner {
    planner: Planner,
    /// The same sites with hedges, and the work of copies in millionths.
    hedged: Option<(Planner, u32)>,
    services: Vec<Service>,
    prices: Prices,
}

impl JointPlanner {
    /// A planner by price in place of the aim of this one. `hedged` has the curves of each site
    /// with hedges and the work of copies, in millionths of that of first ones; `services` the work
    /// of requests at each site.
    ///
    /// # Errors
    /// When the hedged curves cannot be planned with. What is wrong with services and prices says
    /// [`Self::plan`].
    pub fn new(
        planner: Planner,
        hedged: Option<(Vec<SiteCurves>, u32)>,
        services: Vec<Service>,
        prices: Prices,
    ) -> Result<Self, PlannerError> {
        let with = |(curves, extra_ppm)| {
            Ok::<_, PlannerError>((Planner::new(planner.config().clone(), curves)?, extra_ppm))
        };
        let hedged = hedged.map(with).transpose()?;
        Ok(Self { planner, hedged, services, prices })
    }

    /// The curves of a site with hedges, if there are any.
    ///
    /// # Panics
    /// When there is no such site.
    pub fn hedged(&self, site: SiteId) -> Option<&SiteCurves> {
        self.hedged.as_ref().map(|(planner, _)| planner.curves(site))
    }

    /// The plan of an epoch: shares as a [`Plan`] has them, and what comes with them.
    ///
    /// # Errors
    /// As [`Joint::new`]: services or prices out of their ranges.
    ///
    /// # Panics
    /// When the snapshot is of another number of sites.
    pub fn plan(&self, snapshot: &Snapshot) -> Result<(Plan, Planned), ProblemError> {
        assert_eq!(snapshot.sites.len(), self.planner.sites.len(), "a snapshot of other sites");
        let inputs = Inputs::new(&self.planner, snapshot);
        let problem = inputs.problem(&self.planner, snapshot);
        let hedged = self.hedged.as_ref().map(|(planner, extra_ppm)| Hedged {
            curves: curves(&inputs.problem(planner, snapshot)),
            extra_ppm: *extra_ppm,
        });
        let joint = Joint::new(&problem, hedged.as_ref(), &self.services, &self.prices)?;
        let planned = joint.plan(joint.effort())?;
        Ok((Plan::new(snapshot, inputs, problem, planned.answer.clone()), planned))
    }
}

/// All curves of a problem, as long as all demand.
fn curves(problem: &Problem) -> Vec<Vec<Vec<u32>>> {
    let sites = || 0..problem.sites();
    let curve = |from: usize, to: usize| -> Vec<u32> {
        (0..=problem.demand_total()).map(|load| problem.violation_ppm(from, to, load)).collect()
    };
    sites().map(|from| sites().map(|to| curve(from, to)).collect()).collect()
}
