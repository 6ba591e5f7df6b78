//! What a new plan brings a site, for its dimmers, before it comes.
//!
//! The arrivals of a site follow its own users at once, and the shares of the plan in force do too
//! (up to the splitter's cap). So what surprises a dimmer is not how much more the plan has than
//! the one before it, but how much more than would come *under the one before it, with today's
//! demand*: where a site's users come twice as often and the plan sends half of them away, it is
//! the half that is new. **When it misleads**: demand is as old as the reports.

use super::super::split::SplitConfig;
use super::{Plan, SiteId};
use evenkeel_core::dimmer::Inflow;

/// Epochs that a plan may be old: then it is no longer followed.
const EPOCHS_GOOD: u64 = 2;
/// What is nearer to 1 is not told: arrivals themselves vary more.
const STEP_MIN: f64 = 0.05;

/// The plans for a site, one after the other.
#[derive(Clone, Debug, Default)]
pub struct Inflows {
    before: Option<Flows>,
}

/// By origin and by who serves, requests per 1,000 s that arrive.
#[derive(Clone, Debug)]
struct Flows {
    epoch: u64,
    rates: Vec<Vec<u64>>,
}

impl Inflows {
    /// What the plan that now takes force brings a site beyond the one before it. `None` where that
    /// is next to nothing, or where no plan was in force: nobody knows then what comes.
    ///
    /// # Panics
    /// When there is no such site.
    pub fn follow(&mut self, plan: &Plan, site: SiteId) -> Option<Inflow> {
        let flows = Flows::of(plan);
        let after: u64 = flows.rates.iter().map(|row| row[site.index()]).sum();
        let rates = flows.rates.clone();
        let before = self.before.replace(flows)?;
        let is_followed = plan.epoch > before.epoch && plan.epoch - before.epoch <= EPOCHS_GOOD;
        if !is_followed || !plan.members.contains(site) || before.rates.len() != rates.len() {
            return None;
        }
        let demand = rates.iter().map(|row| row.iter().sum::<u64>());
        let untold: f64 = demand.enumerate().map(|of| before.brings(of, site.index())).sum();
        let factor = after as f64 / untold;
        // Without either there is nothing to dim for, and nothing that a factor could be of.
        let is_step = untold > 0.0 && after > 0 && (factor - 1.0).abs() >= STEP_MIN;
        Inflow::new(plan.epoch, factor).filter(|_| is_step)
    }
}

impl Flows {
    fn of(plan: &Plan) -> Self {
        let arriving = |origin: usize| {
            let mut rates = plan.rates_per_1000_s(SiteId::new(origin));
            // What waits is there already.
            rates[origin] = rates[origin].saturating_sub(plan.waiting_per_1000_s[origin]);
            rates
        };
        let rates = (0..plan.answer.rates.len()).map(arriving).collect();
        Self { epoch: plan.epoch, rates }
    }

    /// What comes to a site from an origin with this demand: shares, up to the cap, and the rest
    /// stays.
    fn brings(&self, (origin, demand): (usize, u64), site: usize) -> f64 {
        let rates = &self.rates[origin];
        let growth = demand as f64 / (rates.iter().sum::<u64>().max(1)) as f64;
        let sent = growth.min(1.0 + SplitConfig::default().slack.value());
        if site != origin {
            return rates[site] as f64 * sent;
        }
        let others = rates.iter().sum::<u64>() - rates[origin];
        (demand as f64 - others as f64 * sent).max(0.0)
    }
}
