//! A plan for all sites, and what speaks for it.

use super::super::epoch::{AnswerHashes, SiteSet, StableHash, plan_hash};
use super::super::joint::Planned;
use super::super::split::{Flow, PlanRow, Predicted};
use super::super::{Answer, Problem, Status};
use super::inputs::Inputs;
use super::{ALL_PPM, SiteId, Snapshot};

/// What all sites do in one epoch.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// The epoch.
    pub epoch: u64,
    /// The sites that take part.
    pub members: SiteSet,
    /// The quantum, in requests per 1,000 s.
    pub unit_per_1000_s: u64,
    /// By site, the demand that was planned for, in requests per 1,000 s; backlog in it.
    pub demand_per_1000_s: Vec<u64>,
    /// By site, what of that stays where it came whatever the plan: writes, where they stay.
    pub kept_per_1000_s: Vec<u64>,
    /// By site, what of the rest waits there from before: it was opened at home, is served there.
    pub waiting_per_1000_s: Vec<u64>,
    /// By site, the load up to which it is sent requests of others, in requests per 1,000 s.
    pub bound_per_1000_s: Vec<u64>,
    /// What was asked, in quanta.
    pub problem: Problem,
    /// What was answered.
    pub answer: Answer,
    /// What comes with it where plans are by price: dimmers, hedges, what one more request costs.
    pub priced: Option<Planned>,
    inputs: u64,
}

impl Plan {
    pub(super) fn new(
        snapshot: &Snapshot,
        inputs: Inputs,
        problem: Problem,
        answer: Answer,
    ) -> Self {
        Self {
            epoch: snapshot.epoch,
            members: snapshot.members(),
            unit_per_1000_s: inputs.unit_per_1000_s,
            demand_per_1000_s: inputs.demand_per_1000_s,
            kept_per_1000_s: inputs.kept_per_1000_s,
            waiting_per_1000_s: inputs.waiting_per_1000_s,
            bound_per_1000_s: inputs.bound_per_1000_s,
            problem,
            answer,
            priced: None,
            inputs: snapshot.hash(),
        }
    }

    /// The same with what a plan by price says.
    pub(super) fn at(self, planned: Planned) -> Self {
        Self { priced: Some(planned), ..self }
    }

    /// What other sites must come to as well.
    pub fn hashes(&self) -> AnswerHashes {
        let rates = self.answer.rates.iter().map(Vec::as_slice);
        let rates = plan_hash(self.epoch, self.unit_per_1000_s, rates);
        let plan = self.priced.as_ref().map_or(rates, |planned| {
            let mut hash = StableHash::default();
            [rates, planned.hash].into_iter().for_each(|part| hash.number(part));
            hash.finish()
        });
        AnswerHashes { inputs: self.inputs, plan }
    }

    /// What one site does with those of its users' requests that a plan may move. What nobody can
    /// serve stays there. What waits was planned for and is at home already: shares are of what
    /// arrives.
    ///
    /// # Panics
    /// When there is no such site.
    pub fn row(&self, site: SiteId) -> PlanRow {
        let origin = site.index();
        let stays = self.kept_per_1000_s[origin] + self.waiting_per_1000_s[origin];
        let mut rates = self.rates_per_1000_s(site);
        rates[origin] = rates[origin].saturating_sub(stays);
        PlanRow {
            epoch: self.epoch,
            origin: site,
            demand_per_1000_s: self.demand_per_1000_s[origin].saturating_sub(stays),
            rates_per_1000_s: rates,
        }
    }

    /// By the site that serves, requests of one site's users per 1,000 s, those that stay in any
    /// case among them.
    ///
    /// # Panics
    /// When there is no such site.
    pub fn rates_per_1000_s(&self, site: SiteId) -> Vec<u64> {
        let origin = site.index();
        let unit = self.unit_per_1000_s;
        let mut rates: Vec<u64> =
            self.answer.rates[origin].iter().map(|&quanta| u64::from(quanta) * unit).collect();
        // Demand was rounded up to whole quanta; the difference is local.
        let demand = self.demand_per_1000_s[origin];
        let quanta: u64 = self.problem.demand()[origin].into();
        let excess = quanta * unit - demand;
        rates[origin] = rates[origin].saturating_sub(excess);
        rates
    }

    /// What others send to a site, in requests per 1,000 s.
    #[cfg(test)]
    pub fn inflow_per_1000_s(&self, site: SiteId) -> u64 {
        let rows = self.answer.rates.iter().enumerate();
        let others = rows.filter(|(from, _)| *from != site.index());
        others.map(|(_, row)| u64::from(row[site.index()]) * self.unit_per_1000_s).sum()
    }

    /// Predicted violations among a site's users' requests, in parts per million: with every site
    /// on its own, and with the plan. With the planner's load bias, so rather too many.
    pub fn predicted(&self, site: SiteId) -> Predicted {
        let from = site.index();
        let demand = self.problem.demand()[from];
        let alone_ppm = self.problem.violation_ppm(from, from, demand);
        if demand == 0 {
            return Predicted { alone_ppm, planned_ppm: self.local_ppm(from) };
        }
        let missed = self.answer.rates[from].iter().enumerate();
        let missed =
            missed.map(|(to, &quanta)| u64::from(quanta) * u64::from(self.late_ppm(from, to)));
        let shed = u64::from(self.answer.shed[from]) * u64::from(ALL_PPM);
        let planned_ppm = ((missed.sum::<u64>() + shed) / u64::from(demand)) as u32;
        Predicted { alone_ppm, planned_ppm }
    }

    /// Predicted violations among the requests of one site that are served at another, in parts per
    /// million.
    pub fn predicted_at(&self, from: SiteId, to: SiteId) -> u32 {
        self.late_ppm(from.index(), to.index())
    }

    /// With dimmers and hedges where the plan has them.
    fn late_ppm(&self, from: usize, to: usize) -> u32 {
        match &self.priced {
            Some(planned) => planned.late[from][to] as u32,
            None => self.problem.violation_ppm(from, to, self.answer.loads[to]),
        }
    }

    /// The full requests that a site serves by the plan, its own users' and others', per 1,000 s.
    ///
    /// # Panics
    /// When there is no such site.
    pub fn load_per_1000_s(&self, site: SiteId) -> u64 {
        let origins = (0..self.answer.rates.len()).map(SiteId::new);
        origins.map(|from| self.rates_per_1000_s(from)[site.index()]).sum()
    }

    /// Every flow between two sites with what speaks for it, by origin and destination.
    pub fn flows(&self, snapshot: &Snapshot) -> Vec<Flow> {
        let sites = || (0..self.answer.rates.len()).map(SiteId::new);
        let pairs = sites().flat_map(|from| sites().map(move |to| (from, to)));
        let flow = |(from, to): (SiteId, SiteId)| -> Option<Flow> {
            let quanta = self.answer.rates[from.index()][to.index()];
            let path = snapshot.report(from).and_then(|report| report.paths[to.index()]);
            (from != to && quanta > 0).then(|| Flow {
                epoch: self.epoch,
                from,
                to,
                demand_per_1000_s: self.demand_per_1000_s[from.index()],
                rate_per_1000_s: u64::from(quanta) * self.unit_per_1000_s,
                base_rtt_us: path.map(|path| path.base_rtt_us),
                origin: self.predicted(from),
                destination: self.own_users(to),
                redirected_ppm: self.predicted_at(from, to),
            })
        };
        pairs.filter_map(flow).collect()
    }

    /// Whether no allocation keeps violations within the target, or requests are shed: more servers
    /// are needed somewhere.
    pub fn wants_capacity(&self) -> bool {
        let is_shed = self.answer.shed.iter().any(|&quanta| quanta > 0);
        // By price nothing is shed: what is too much is dimmed, late, or both.
        let planned = self.priced.as_ref().map(|planned| &planned.utilisation_ppm);
        let mut work = planned.into_iter().flatten().flatten();
        let is_over = work.any(|ppm| *ppm > u64::from(ALL_PPM));
        is_shed || is_over || self.answer.status == Status::Infeasible
    }

    /// What a destination's own users get where they came, alone and with the others' requests.
    fn own_users(&self, site: SiteId) -> Predicted {
        let planned_ppm = self.local_ppm(site.index());
        Predicted { planned_ppm, ..self.predicted(site) }
    }

    fn local_ppm(&self, site: usize) -> u32 {
        self.late_ppm(site, site)
    }
}
