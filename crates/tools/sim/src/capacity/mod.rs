//! What it costs to serve a trace: servers by the billing unit, redirected requests by the byte.
//!
//! [`Capacity`] says what is to be served and at which prices; [`Capacity::simulate`] lets one
//! [`Strategy`] serve it, step by step: the elastic controller of core
//! ([`Elastic`]) sizes each site's fleet, core's solver
//! redirects, and a bill is kept. It is the simulation of the Kurma paper (section 7.2, figure 12).
//!
//! **What is simulated.** Demand is constant within a step and known when the step begins, as in
//! the paper. Violations are those of the curves. A server is ordered, boots, serves; it is given
//! back when its paid time ends, never before. Fleets begin booted, at what the first step asks
//! for. Demand is rounded up to whole quanta, for every strategy alike.
//!
//! **When it misleads.** Queues do not outlive a step, servers have no state to move, and a
//! service that must keep data at every site cannot give all its servers back (`servers_min`).
//!
//! **Bounds.** [`Strategy::Shared`] is a lower bound of the others while its servers boot at once:
//! where violations grow ever faster with load, up to the target and to the chord from there to
//! saturation, the same load on one pool violates no more than on several; its fleet is then the
//! least that can serve each step, and ordering only when needed is the cheapest way to cover needs
//! with units of equal length. That redirecting is never dearer than [`Strategy::Local`] is no
//! theorem: servers stay where they are while redirects keep the target, also when another place
//! would be better, and a redirect may cost more than the server that it saves.

mod curves;
mod error;
mod fleet;
mod input;
mod outlook;

use std::time::Duration;

use evenkeel_geo::Elastic;
use evenkeel_geo::curve::ResponseCurves;
use serde::Serialize;

use crate::trace::RateSeries;
use curves::Curves;
use fleet::Fleet;
use outlook::{Alone, Served, Sharing};

pub use error::InputError;

/// Parts per million in one.
const ALL_PPM: f64 = 1e6;

evenkeel_core::named! {
    /// Who serves what, and who is asked before a server is added.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum Strategy {
        /// Each site alone, with the servers that its highest demand needs, all the time.
        Peak = "peak",
        /// Each site alone, scaled by its own violations (the paper's AllLocal).
        Local = "local",
        /// Scaled when redirecting for the fewest violations cannot keep the target (KurmaPerf).
        RedirectViolations = "redirect-violations",
        /// Scaled when no redirecting at all can keep the target, which takes the fewest redirects
        /// (KurmaCost).
        Redirect = "redirect",
        /// All servers in one place, without any way between them (the paper's AllShared), scaled
        /// without hysteresis: a lower bound.
        Shared = "shared",
    }
}

/// What is to be paid for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Prices {
    /// Of a server for an hour, in any currency.
    pub server_hour: f64,
    /// Of 10⁹ bytes between sites, in the same currency.
    pub wan_gb: f64,
    /// Bytes that a redirected request and its response take.
    pub request_bytes: f64,
}

/// What is to be served, by what, and at which prices.
#[derive(Clone, Debug)]
pub struct Capacity {
    /// Names of the sites.
    pub names: Vec<String>,
    /// What arrives at each; a step is the period of the elastic controllers.
    pub demand: RateSeries,
    /// `[from][to]` round trip between sites; the diagonal is not looked at.
    pub round_trips: Vec<Vec<Duration>>,
    /// How a pool of servers responds; scaled by the number of servers.
    pub curves: ResponseCurves,
    /// How many times a load is assumed to weigh: above 1 is cautious.
    pub load_bias: f64,
    /// Requests per second that redirects are multiples of.
    pub quantum: f64,
    /// The share of each site's requests that may miss the objective, in parts per million.
    pub target_ppm: u32,
    /// The controller, the same at every site.
    pub elastic: Elastic,
    /// From ordering a server to its first request.
    pub boot: Duration,
    /// What servers and redirects cost.
    pub prices: Prices,
    /// Billing units to try: a unit that was begun is paid.
    pub billing: Vec<Duration>,
}

/// What a strategy came to.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Outcome {
    /// The strategy's name.
    pub strategy: &'static str,
    /// The billing unit, in seconds.
    pub billing_s: f64,
    /// Servers and WAN together, in the currency of the prices.
    pub cost: f64,
    /// The same for 24 hours.
    pub cost_per_day: f64,
    /// Servers alone.
    pub server_cost: f64,
    /// Redirects alone.
    pub wan_cost: f64,
    /// Server-hours paid.
    pub server_hours: f64,
    /// Server-hours in which a server could serve.
    pub serving_hours: f64,
    /// Servers ordered, those at the start included.
    pub orders: u64,
    /// Redirected requests.
    pub wan_requests: f64,
    /// The share of all requests that missed the objective.
    pub violations: f64,
    /// The share of a site's steps with requests that kept the target.
    pub steps_within_target: f64,
    /// Serving servers of all sites, by step.
    #[serde(skip)]
    pub servers: Vec<u32>,
}

impl Outcome {
    /// The part of `other`'s cost that this one saves; negative when it is dearer.
    pub fn saving(&self, other: &Self) -> f64 {
        if other.cost > 0.0 { 1.0 - self.cost / other.cost } else { 0.0 }
    }
}

impl Capacity {
    /// Serves the whole trace by one strategy. `billing` is a unit, above zero.
    ///
    /// # Errors
    /// When the parts do not fit each other: names, trips or prices out of range, or more quanta
    /// of demand than the solver takes.
    pub fn simulate(&self, strategy: Strategy, billing: Duration) -> Result<Outcome, InputError> {
        self.check()?;
        if billing.is_zero() {
            return Err(InputError::new("billing", "0 s", "a unit above zero"));
        }
        let curves = Curves::new(self)?;
        let run = Run { capacity: self, curves, tally: Tally::default() };
        Ok(run.serve(strategy, billing))
    }

    /// Demand of one step in quanta, rounded up.
    fn quanta(&self, step: usize) -> Vec<u32> {
        let of_site = |rates: &Vec<f64>| (rates[step] / self.quantum).ceil() as u32;
        self.demand.rates.iter().map(of_site).collect()
    }
}

/// A simulation on its way.
struct Run<'a> {
    capacity: &'a Capacity,
    curves: Curves<'a>,
    tally: Tally,
}

/// What is counted.
#[derive(Default)]
struct Tally {
    requests: u64,
    /// Times parts per million.
    violations: u64,
    redirected: u64,
    steps: u64,
    steps_within: u64,
    servers: Vec<u32>,
}

impl Tally {
    fn count(&mut self, demand: &[u32], served: &Served, target_ppm: u32) {
        self.redirected += u64::from(served.redirected);
        for (&demand, &violations) in demand.iter().zip(&served.violations) {
            self.requests += u64::from(demand);
            self.violations += violations;
            self.steps += u64::from(demand > 0);
            let within = demand > 0 && violations <= u64::from(demand) * u64::from(target_ppm);
            self.steps_within += u64::from(within);
        }
    }
}

impl Run<'_> {
    fn serve(mut self, strategy: Strategy, billing: Duration) -> Outcome {
        let steps = self.capacity.demand.steps();
        let sites = self.pools(strategy);
        let boot = self.capacity.boot;
        let fleet = || Fleet::new(self.capacity.demand.step, billing, boot);
        let mut fleets: Vec<Fleet> = (0..sites).map(|_| fleet()).collect();
        for step in 0..steps {
            let now = self.capacity.quanta(step);
            let demand = if strategy == Strategy::Shared { vec![now.iter().sum()] } else { now };
            if strategy != Strategy::Peak || step == 0 {
                self.scale(strategy, &demand, &mut fleets, step == 0);
            }
            let serving: Vec<u32> = fleets.iter().map(Fleet::serving).collect();
            let served = self.served(strategy, &demand, &serving);
            self.tally.count(&demand, &served, self.capacity.target_ppm);
            self.tally.servers.push(serving.iter().sum());
            fleets.iter_mut().for_each(Fleet::pass);
        }
        self.outcome(strategy, billing, &mut fleets)
    }

    /// How many fleets there are.
    fn pools(&self, strategy: Strategy) -> usize {
        if strategy == Strategy::Shared { 1 } else { self.capacity.demand.sites() }
    }

    /// Orders and gives back.
    fn scale(&mut self, strategy: Strategy, demand: &[u32], fleets: &mut [Fleet], is_start: bool) {
        let servers: Vec<u32> = fleets.iter().map(Fleet::servers).collect();
        let free: Vec<u32> = fleets.iter().map(Fleet::free).collect();
        let wanted = self.wanted(strategy, demand, &servers, &free);
        for (fleet, wanted) in fleets.iter_mut().zip(wanted) {
            fleet.become_of(wanted, is_start);
        }
    }

    fn wanted(
        &mut self,
        strategy: Strategy,
        demand: &[u32],
        servers: &[u32],
        free: &[u32],
    ) -> Vec<u32> {
        let elastic = self.capacity.elastic;
        match strategy {
            Strategy::Redirect | Strategy::RedirectViolations => {
                let few = strategy == Strategy::RedirectViolations;
                let mut outlook = Sharing::new(self.capacity, &mut self.curves, demand, few);
                elastic.step(servers, free, &mut outlook)
            }
            Strategy::Shared => {
                let sites = self.capacity.demand.sites() as u32;
                // A bound does not hesitate.
                let elastic = Elastic {
                    in_ppm: elastic.out_ppm,
                    servers_min: elastic.servers_min * sites,
                    servers_max: elastic.servers_max.saturating_mul(sites),
                    ..elastic
                };
                elastic.step(servers, free, &mut Alone::new(&mut self.curves, demand[0]))
            }
            Strategy::Local | Strategy::Peak => {
                let highest = self.highest();
                let alone = |site: usize| {
                    let peak = strategy == Strategy::Peak;
                    let demand = if peak { highest[site] } else { demand[site] };
                    let mut outlook = Alone::new(&mut self.curves, demand);
                    elastic.step(&servers[site..=site], &free[site..=site], &mut outlook)[0]
                };
                (0..servers.len()).map(alone).collect()
            }
        }
    }

    /// The highest demand of each site, in quanta.
    fn highest(&self) -> Vec<u32> {
        let peak = |rates: &Vec<f64>| rates.iter().copied().fold(0.0, f64::max);
        let quanta = |peak: f64| (peak / self.capacity.quantum).ceil() as u32;
        self.capacity.demand.rates.iter().map(peak).map(quanta).collect()
    }

    fn served(&mut self, strategy: Strategy, demand: &[u32], serving: &[u32]) -> Served {
        match strategy {
            Strategy::Redirect | Strategy::RedirectViolations => {
                let few = strategy == Strategy::RedirectViolations;
                let mut outlook = Sharing::new(self.capacity, &mut self.curves, demand, few);
                outlook.served(serving)
            }
            _ => Served::at_home(&mut self.curves, demand, serving),
        }
    }

    fn outcome(self, strategy: Strategy, billing: Duration, fleets: &mut [Fleet]) -> Outcome {
        let Capacity { prices, demand, quantum, .. } = self.capacity;
        let hour_s = 3_600.0;
        let step_s = demand.step.as_secs_f64();
        let tally = self.tally;
        let units: u64 = fleets.iter_mut().map(Fleet::close).sum();
        let server_hours = units as f64 * billing.as_secs_f64() / hour_s;
        let serving: f64 = tally.servers.iter().map(|&servers| f64::from(servers)).sum();
        let wan_requests = tally.redirected as f64 * quantum * step_s;
        let server_cost = server_hours * prices.server_hour;
        let wan_cost = wan_requests * prices.request_bytes / 1e9 * prices.wan_gb;
        let cost = server_cost + wan_cost;
        let part = |of: u64, all: f64| if all > 0.0 { of as f64 / all } else { 0.0 };
        Outcome {
            strategy: strategy.name(),
            billing_s: billing.as_secs_f64(),
            cost,
            cost_per_day: cost * 24.0 * hour_s / demand.duration().as_secs_f64(),
            server_cost,
            wan_cost,
            server_hours,
            serving_hours: serving * step_s / hour_s,
            orders: fleets.iter().map(Fleet::orders).sum(),
            wan_requests,
            violations: part(tally.violations, tally.requests as f64 * ALL_PPM),
            steps_within_target: part(tally.steps_within, tally.steps as f64),
            servers: tally.servers,
        }
    }
}

#[cfg(test)]
mod tests;
