//! Redirect, dim or hedge, by one price.
//!
//! Three mechanisms act against the same violations. Each in a loop of its own, they fight: the
//! dimmer hides overload from the planner, hedges are paid for in optional content. Here they have
//! prices in one unit, the violation, and one plan.
//!
//! **Priced curves.** For every data centre and load the cheapest dimmer and hedge, by what its own
//! users cost there and the nearest others beyond its own demand, go into the curve;
//! then the problem is the redirect plan as before, with
//! costs where shares of late requests were. With demand λ_ij, load m_j = Σ_i λ_ij, dimmer θ and
//! hedge h:
//!
//! ```text
//! min Σ_ij λ_ij G_ij(m_j)       G_ij = f_ij(u) + optional·(1−θ) + wan·[i≠j] + node·e_h·w·y
//! u = m·w(θ) / capacity         w(θ) = θ + (1−θ)·n/y        f(u > 1) = f(1) + 2·(u − 1)
//! ```
//!
//! y and n are the work of a full and of a lean request and e_h the work of copies as a share of
//! it. Who is there is known only with the plan, so that quanta are then moved while that makes it
//! cheaper (`refine`). **Source**: joint study, sections 1 and 2. Against every joint decision of
//! three data centres (960 plans, default and drawn prices) a plan costs 0.015 % more on average
//! and 5 % in the worst (`cargo test -p evenkeel-geo every_joint -- --ignored --nocapture`); with
//! curves alone it was 0.3 % and 27 %. One curve for each hedge is
//! enough: at equal work the knee is at the same load (2.6 % dearer than a curve for each dimmer).
//! **Overload** is priced by work, after dimming: a steady-state curve ends at one, but the backlog
//! outlives the plan.
//!
//! **What a price is.** [`Planned::more`] is what one more request costs: its own cost and what it
//! does to those who are there. Without dimming it is f + u·f'; where content is dimmed, more
//! requests only dim more, at f(u) + optional·y/(y−n). A request is sent away where that is cheaper
//! by more than the way. **When it misleads**: a plan cannot carry the dimmer itself, demand moves
//! within its seconds (the study: 33.1 in place of 17.9). The dimmer of each replica goes by its
//! own arrivals; the plan tells which load it is to leave. **Integers**: costs are millionths of a
//! violation, dimmers whole percents; every data centre computes the same.

mod explain;
mod parts;
mod refine;

use super::epoch::StableHash;
use super::problem::{COST_PPM_MAX, Problem, ProblemError};
use super::question::{Answer, Effort, Overload, Question};
use super::solve::solve;
use super::{ALL_PPM, Objective};
pub use parts::Parts;
pub(crate) use parts::{SETPOINTS, Serving};
use refine::Refining;

/// The highest price, in millionths of a violation: ten violations.
pub const JOINT_PRICE_MAX: u32 = 10 * ALL_PPM;
/// What a load twice the capacity costs beyond its curve: the backlog left for the next plan.
const OVERLOAD_PPM: u64 = 2 * ALL_PPM as u64;
/// How far from a break-even hedges stay as they were, in millionths of the capacity (joint study,
/// F6).
pub const HEDGE_MARGIN_PPM: u64 = 20_000;
/// Steps of the dimmer that are tried first, then whole percents around the best.
const COARSE: u32 = 10;
const FULL: u32 = 100;
/// Loads between which the dimmer is looked for near that of the load before.
const ALL_TRIED_EVERY: u32 = 8;
const PPM: u64 = ALL_PPM as u64;

/// What things cost, in millionths of a request that misses the objective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prices {
    /// Optional content that a request is served without; default 0.1. What a visitor buys less
    /// without it, over what is lost when the page is late.
    pub optional: u32,
    /// A redirected request; default 0.015: 50 kB at 0.02 $/GB, where 1,000 violations cost
    /// 0.068 $.
    pub wan: u32,
    /// A node for a second; default 0.35: 0.085 $ an hour, by the same measure.
    pub node_second: u32,
}

impl Default for Prices {
    fn default() -> Self {
        Self { optional: 100_000, wan: 15_000, node_second: 350_000 }
    }
}

/// What requests are at one data centre.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Service {
    /// Node time of a full request, microseconds.
    pub full_us: u32,
    /// The same without optional content, at most `full_us`; `full_us` where nothing can be left
    /// out.
    pub lean_us: u32,
}

/// The other curves of a problem: with hedges.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hedged {
    /// As in [`Problem::new`], over the load of first copies.
    pub curves: Vec<Vec<Vec<u32>>>,
    /// Work of copies, in millionths of the work of first ones.
    pub extra_ppm: u32,
}

/// How a data centre serves a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct State {
    /// Share of optional content, percent.
    pub dimmer: u32,
    /// Whether requests are hedged.
    pub is_hedged: bool,
}

evenkeel_core::named! {
    /// What a plan says of hedges at a data centre: what is cheapest at the planned load, if it is
    /// so with somewhat less load and with somewhat more.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Hedging {
        /// Copies are worth more than they cost.
        On = "on",
        /// They are not.
        Off = "off",
        /// The load is within [`HEDGE_MARGIN_PPM`] of where that changes.
        AsBefore = "as before",
    }
}

impl Hedging {
    /// Whether requests are hedged from now on. Demand varies around a break-even; without memory
    /// hedges would begin and end with every plan (joint study, F6 and F10). The plan itself must
    /// not remember: sites with the same reports have the same one.
    #[must_use]
    pub const fn follow(self, was: bool) -> bool {
        match self {
            Self::On => true,
            Self::Off => false,
            Self::AsBefore => was,
        }
    }
}

/// A problem of redirects with prices.
#[derive(Clone, Debug)]
pub struct Joint {
    priced: Problem,
    /// Of each data centre, by load.
    states: Vec<Vec<State>>,
    pricing: Pricing,
}

/// One plan for all three mechanisms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Planned {
    /// Who serves whom. Objective and bounds are of the best plan on the priced curves, quanta
    /// times millionths of a violation; rates and loads are those after quanta were moved.
    pub answer: Answer,
    /// What it costs with `states`: at most the objective.
    pub cost: u64,
    /// How each data centre serves its load: what is cheapest for those who are there.
    pub states: Vec<State>,
    /// Work at each data centre after dimming, millionths of its capacity: where content is
    /// dimmed, the load that its dimmers are to leave. `None` where the capacity is unknown.
    pub utilisation_ppm: Vec<Option<u64>>,
    /// `more[i][j]`: what one more quantum of `i` costs if it is served at `j`, millionths of a
    /// violation for each of its requests: its own cost and what it does to those who are there.
    pub more: Vec<Vec<u64>>,
    /// `last[i][j]`: what the last quantum of `i` costs that is served at `j`, as much as would be
    /// saved without it; 0 where none is. At most `more[i][i]`, or it would be served at home.
    pub last: Vec<Vec<u64>>,
    /// What one more quantum of each data centre costs where that is cheapest, of the places that
    /// may serve one more: the price of its demand, millionths of a violation.
    pub price: Vec<u64>,
    /// Whether requests are hedged at each data centre, for who has a plan after the other.
    pub hedging: Vec<Hedging>,
    /// `late[i][j]`: how many of the requests of `i` are late that are served at `j`, with the
    /// content and the hedges that `states` say, parts per million.
    pub late: Vec<Vec<u64>>,
    /// Requests that miss the objective: quanta times parts per million.
    pub violations: u64,
    /// The same everywhere for the same plan.
    pub hash: u64,
}

/// Late requests by load and state.
#[derive(Clone, Debug)]
struct Late {
    plain: Problem,
    hedged: Option<Problem>,
}

impl Late {
    /// Parts per million late of `from` at `to`, for this work in millionths of a quantum.
    fn ppm(&self, from: usize, to: usize, work: u64, is_hedged: bool) -> u64 {
        let problem = self.hedged.as_ref().filter(|_| is_hedged).unwrap_or(&self.plain);
        let load = u32::try_from(work / PPM).unwrap_or(u32::MAX);
        let at = |load: u32| u64::from(problem.violation_ppm(from, to, load));
        let (below, above) = (at(load), at(load.saturating_add(1)));
        below + (above - below) * (work % PPM) / PPM
    }

    /// What the work beyond the capacity costs.
    fn overload_ppm(&self, to: usize, work: u64) -> u64 {
        match u64::from(self.plain.saturation()[to]) {
            capacity if capacity == u64::from(u32::MAX) => 0,
            capacity => {
                let beyond = work.saturating_sub(capacity * PPM);
                OVERLOAD_PPM.saturating_mul(beyond) / (capacity.max(1) * PPM)
            }
        }
    }
}

impl Service {
    /// Work of a request at this dimmer, millionths of a full one's.
    fn work_ppm(&self, dimmer: u32) -> u64 {
        let lean = u64::from(self.lean_us) * PPM / u64::from(self.full_us.max(1));
        let lean = if self.full_us == 0 { PPM } else { lean };
        (u64::from(dimmer) * PPM + u64::from(FULL - dimmer) * lean) / u64::from(FULL)
    }

    const fn can_dim(&self) -> bool {
        self.lean_us < self.full_us
    }
}

impl Joint {
    /// Prices a problem: its curves are shares of late full requests over the load of full ones,
    /// its saturation the capacity. Prices of redirects in the problem itself are not used.
    ///
    /// # Errors
    /// When a price is above [`JOINT_PRICE_MAX`], lean work above full work, when there is not one
    /// service for every data centre, or the hedged curves are none for this problem.
    pub fn new(
        problem: &Problem,
        hedged: Option<&Hedged>,
        services: &[Service],
        prices: &Prices,
    ) -> Result<Self, ProblemError> {
        check(problem, services, prices)?;
        let demand = problem.demand().to_vec();
        let extra_ppm = hedged.map_or(0, |hedged| hedged.extra_ppm);
        let hedged =
            hedged.map(|hedged| Problem::new(demand, hedged.curves.clone())).transpose()?;
        let late = Late { plain: problem.clone(), hedged };
        let pricing = Pricing::new(late, *prices, services.to_vec(), extra_ppm);
        let (sites, loads) = (0..problem.sites(), problem.demand_total() + 1);
        let states = |site: usize| pricing.by_load(site, loads, |load| users(problem, site, load));
        let states: Vec<Vec<State>> = sites.clone().map(states).collect();
        let row = |from| sites.clone().map(|to| pricing.curve(from, to, &states[to])).collect();
        let priced = problem.clone().with_costs(sites.clone().map(row).collect())?;
        Ok(Self { priced, states, pricing })
    }

    /// How a data centre serves a load, in quanta.
    pub fn state(&self, site: usize, load: u32) -> State {
        let states = &self.states[site];
        states[(load as usize).min(states.len() - 1)]
    }

    /// What is said of hedges at a data centre that serves this load so: nothing where nobody knows
    /// what they are worth.
    fn hedging(&self, site: usize, load: u32, state: State) -> Hedging {
        if self.pricing.late.hedged.is_none() {
            return Hedging::AsBefore;
        }
        let margin = match self.pricing.late.plain.saturation()[site] {
            u32::MAX => 0, // nobody knows what a share of the load is
            capacity => (u64::from(capacity) * HEDGE_MARGIN_PPM).div_ceil(PPM) as u32,
        };
        let around = [load.saturating_sub(margin), load.saturating_add(margin)];
        let is_same = |&load: &u32| self.state(site, load).is_hedged == state.is_hedged;
        match (around.iter().all(is_same), state.is_hedged) {
            (true, true) => Hedging::On,
            (true, false) => Hedging::Off,
            (false, _) => Hedging::AsBefore,
        }
    }

    /// What a request of `from` costs at `to` while that has this load, millionths of a violation.
    pub fn cost_ppm(&self, from: usize, to: usize, load: u32) -> u32 {
        self.priced.violation_ppm(from, to, load)
    }

    /// The effort that ends within ten milliseconds of CPU at eight data centres and the default
    /// quantum, a few millionths of a violation from the optimum. Of 240 problems of six kinds the
    /// longest took 8.9 ms, half of them less than 2.9, and none cost 0.01 % more than after a
    /// search of everything (`cargo test -p evenkeel-geo --profile dist ten_milliseconds --
    /// --ignored --nocapture`, on a machine that was busy with other work).
    pub fn effort(&self) -> Effort {
        let tolerance = 10 * u64::from(self.priced.demand_total());
        Effort { work_max: 5_000_000, work_exact: 1_000_000, tolerance }
    }

    /// What one more quantum costs where that is cheapest, of the places that may serve one more.
    fn price(&self, from: usize, answer: &Answer, more: &[u64]) -> u64 {
        let (row, priced) = (&answer.rates[from], &self.priced);
        let kept = priced.kept(from, priced.demand()[from]);
        let is_open = |to: &usize| {
            let has_way = row[*to] < priced.limit(from, *to) && row[from] >= kept;
            *to == from || (has_way && answer.loads[*to] < priced.bounds()[*to])
        };
        (0..row.len()).filter(is_open).map(|to| more[to]).min().unwrap_or_default()
    }

    /// The cheapest plan. A data centre may send requests away while it serves others'.
    ///
    /// # Errors
    /// None for a problem that [`Joint::new`] took.
    pub fn plan(&self, effort: Effort) -> Result<Planned, ProblemError> {
        let question = Question {
            objective: Objective::Violations,
            relay: true,
            overload: Overload::Curve,
            effort,
        };
        let mut answer = solve(&self.priced, &question)?;
        answer.rates = Refining::new(self, &self.priced, answer.rates).rates();
        let load = |site: usize| answer.rates.iter().map(|row| row[site]).sum();
        answer.loads = (0..answer.loads.len()).map(load).collect();
        let away = |(from, row): (usize, &Vec<u32>)| row.iter().sum::<u32>() - row[from];
        answer.redirected = answer.rates.iter().enumerate().map(away).sum();
        let (pricing, loads) = (&self.pricing, &answer.loads);
        let sites = 0..loads.len();
        let users = |site: usize| -> Vec<(usize, u32)> {
            sites.clone().map(|from| (from, answer.rates[from][site])).collect()
        };
        let state = |site: usize| match loads[site] {
            0 => self.state(site, 0),
            load => pricing.cheapest(site, load, &users(site)),
        };
        let states: Vec<State> = sites.clone().map(state).collect();
        let work = |site: usize| {
            u64::from(loads[site]) * pricing.services[site].work_ppm(states[site].dimmer)
        };
        let utilisation = |site: usize| match pricing.late.plain.saturation()[site] {
            u32::MAX => None,
            capacity => Some(work(site) / u64::from(capacity.max(1))),
        };
        let late_ppm =
            |from: usize, to: usize| pricing.late.ppm(from, to, work(to), states[to].is_hedged);
        let late = |from: usize, to: usize| u64::from(answer.rates[from][to]) * late_ppm(from, to);
        let cost = |site: usize| pricing.sum(site, loads[site], &users(site), states[site]);
        let square = |of: &dyn Fn(usize, usize) -> u64| -> Vec<Vec<u64>> {
            sites.clone().map(|from| sites.clone().map(|to| of(from, to)).collect()).collect()
        };
        let more = |from: usize, to: usize| {
            let mut users = users(to);
            users[from].1 += 1;
            pricing.least(to, &users).saturating_sub(cost(to))
        };
        let more = square(&more);
        let last = |from: usize, to: usize| {
            let mut users = users(to);
            users[from].1 = users[from].1.saturating_sub(1);
            cost(to).saturating_sub(pricing.least(to, &users))
        };
        let pairs = sites.clone().flat_map(|from| sites.clone().map(move |to| (from, to)));
        Ok(Planned {
            cost: sites.clone().map(cost).sum(),
            utilisation_ppm: sites.clone().map(utilisation).collect(),
            price: sites.clone().map(|from| self.price(from, &answer, &more[from])).collect(),
            more,
            last: square(&last),
            late: square(&late_ppm),
            hedging: sites.clone().map(|at| self.hedging(at, loads[at], states[at])).collect(),
            violations: pairs.map(|(from, to)| late(from, to)).sum(),
            hash: hash(&answer, &states),
            states,
            answer,
        })
    }
}

/// Who is served at this load, as far as it is certain: what is more than a data centre's own
/// demand comes from others, and the nearest are the cheapest. (Priced for its own users alone, a
/// plan of three data centres with five quanta each was 38 % above the joint optimum.)
fn users(problem: &Problem, site: usize, load: u32) -> [(usize, u32); 2] {
    let own = problem.demand()[site].min(load);
    let others = (0..problem.sites()).filter(|&from| from != site && problem.demand()[from] > 0);
    let nearest = others.min_by_key(|&from| (problem.distance(from, site), from)).unwrap_or(site);
    // At no load a first request is priced.
    [(site, own.max(u32::from(load == 0))), (nearest, load - own)]
}

fn hash(answer: &Answer, states: &[State]) -> u64 {
    let mut hash = StableHash::default();
    for (row, state) in answer.rates.iter().zip(states) {
        row.iter().for_each(|rate| hash.number(u64::from(*rate)));
        hash.number(u64::from(state.dimmer));
        hash.number(u64::from(state.is_hedged));
    }
    hash.finish()
}

/// What it takes to price a state.
#[derive(Clone, Debug)]
struct Pricing {
    late: Late,
    prices: Prices,
    services: Vec<Service>,
    extra_ppm: u32,
    /// By data centre, what a request is at each dimmer: states are priced a hundred thousand
    /// times for a plan.
    dimmed: Vec<Vec<Dimmed>>,
}

/// A request at one dimmer, in millionths: its work, of a full one's; what it costs, beside being
/// late and its way; and what its copies cost.
#[derive(Clone, Copy, Debug)]
struct Dimmed {
    work: u64,
    content: u64,
    copies: u64,
}

impl Pricing {
    fn new(late: Late, prices: Prices, services: Vec<Service>, extra_ppm: u32) -> Self {
        let mut pricing = Self { late, prices, services, extra_ppm, dimmed: Vec::new() };
        let at = |site: usize, dimmer: u32| {
            let left_out = u64::from(prices.optional) * u64::from(FULL - dimmer);
            Dimmed {
                work: pricing.services[site].work_ppm(dimmer),
                content: left_out / u64::from(FULL),
                copies: pricing.copies_ppm(site, dimmer),
            }
        };
        let sites = 0..pricing.services.len();
        let all = sites.map(|site| (0..=FULL).map(|dimmer| at(site, dimmer)).collect());
        pricing.dimmed = all.collect();
        pricing
    }

    /// What a request of `from` costs at `to`, by its load.
    fn curve(&self, from: usize, to: usize, states: &[State]) -> Vec<u32> {
        let mut highest = 0;
        let cost = |(load, state): (usize, &State)| {
            let cost = self.cost(from, to, load as u32, *state);
            let cost = u32::try_from(cost).unwrap_or(COST_PPM_MAX).min(COST_PPM_MAX);
            // What is cheapest for its own users may become cheaper for others with more load.
            highest = cost.max(highest);
            highest
        };
        states.iter().enumerate().map(cost).collect()
    }

    /// What all these users cost.
    fn sum(&self, site: usize, load: u32, users: &[(usize, u32)], state: State) -> u64 {
        let (work, of_each) = self.of_each(site, load, state);
        let of = |&(from, amount): &(usize, u32)| match amount {
            0 => 0,
            _ => u64::from(amount) * (of_each + self.of_origin(from, site, work, state)),
        };
        users.iter().map(of).sum()
    }

    /// What these users cost in the state that is cheapest for them.
    fn least(&self, site: usize, users: &[(usize, u32)]) -> u64 {
        let load = users.iter().map(|user| user.1).sum();
        if load == 0 {
            return 0;
        }
        self.sum(site, load, users, self.cheapest(site, load, users))
    }

    fn cost(&self, from: usize, to: usize, load: u32, state: State) -> u64 {
        let (work, of_each) = self.of_each(to, load, state);
        of_each + self.of_origin(from, to, work, state)
    }

    /// The work of this load, and what each request costs wherever it came.
    fn of_each(&self, to: usize, load: u32, state: State) -> (u64, u64) {
        #[cfg(test)]
        PRICED.set(PRICED.get() + 1);
        let Dimmed { work, content, copies } = self.dimmed[to][state.dimmer as usize];
        let work = u64::from(load) * work;
        let copies = if state.is_hedged { copies } else { 0 };
        (work, self.late.overload_ppm(to, work) + content + copies)
    }

    /// What it costs besides, for where it came.
    fn of_origin(&self, from: usize, to: usize, work: u64, state: State) -> u64 {
        let wan = if from == to { 0 } else { u64::from(self.prices.wan) };
        self.late.ppm(from, to, work, state.is_hedged) + wan
    }

    /// What the copies of a request cost, millionths of a violation.
    fn copies_ppm(&self, to: usize, dimmer: u32) -> u64 {
        let service = &self.services[to];
        let work = u128::from(service.work_ppm(dimmer));
        let work_us = u128::from(service.full_us) * work / u128::from(PPM);
        let price = u128::from(self.prices.node_second);
        let copies = work_us * u128::from(self.extra_ppm) * price;
        u64::try_from(copies / u128::from(PPM * PPM)).unwrap_or(u64::MAX >> 1)
    }

    /// The cheapest way to serve these users at this load: among equals the fullest, then unhedged.
    fn cheapest(&self, site: usize, load: u32, users: &[(usize, u32)]) -> State {
        let hedges: &[bool] = if self.late.hedged.is_some() { &[false, true] } else { &[false] };
        self.cheapest_of(hedges, site, load, users)
    }

    /// The cheapest way for every load up to this one, of its users.
    ///
    /// With one request more the best dimmer is hardly another one: between loads at which all are
    /// tried it is looked for near the last one, and full content besides.
    fn by_load(
        &self,
        site: usize,
        loads: u32,
        users: impl Fn(u32) -> [(usize, u32); 2],
    ) -> Vec<State> {
        let hedges: &[bool] = if self.late.hedged.is_some() { &[false, true] } else { &[false] };
        let mut last = [FULL; 2];
        let mut state = |load: u32| {
            let users = users(load);
            let states = hedges.iter().zip(&mut last).map(|(&is_hedged, last)| {
                let of = |dimmer: u32| self.key(site, load, &users, State { dimmer, is_hedged });
                let (dimmer, key) = match (self.services[site].can_dim(), load % ALL_TRIED_EVERY) {
                    (false, _) => (FULL, of(FULL)),
                    (true, 0) => {
                        let dimmer = self.dimmer(site, load, &users, is_hedged);
                        (dimmer, of(dimmer))
                    }
                    (true, _) => near(*last, of),
                };
                *last = dimmer;
                (key, State { dimmer, is_hedged })
            });
            let best = states.min_by_key(|(key, _)| *key).map(|(_, state)| state);
            best.unwrap_or(State { dimmer: FULL, is_hedged: false })
        };
        (0..=loads).map(&mut state).collect()
    }

    /// By what the cheapest state is the least: cost, then content, then hedges.
    fn key(
        &self,
        site: usize,
        load: u32,
        users: &[(usize, u32)],
        state: State,
    ) -> (u64, u32, bool) {
        (self.sum(site, load, users, state), FULL - state.dimmer, state.is_hedged)
    }

    /// The same with or without hedges only.
    fn cheapest_of(
        &self,
        hedges: &[bool],
        site: usize,
        load: u32,
        users: &[(usize, u32)],
    ) -> State {
        let full = State { dimmer: FULL, is_hedged: false };
        let bests = hedges.iter().map(|&is_hedged| match self.services[site].can_dim() {
            true => State { dimmer: self.dimmer(site, load, users, is_hedged), is_hedged },
            false => State { dimmer: FULL, is_hedged },
        });
        bests.min_by_key(|state| self.key(site, load, users, *state)).unwrap_or(full)
    }

    /// The cheapest dimmer: of ten, then of those around.
    fn dimmer(&self, site: usize, load: u32, users: &[(usize, u32)], is_hedged: bool) -> u32 {
        let amount: u64 = users.iter().map(|user| u64::from(user.1)).sum();
        let best_of = |dimmers: &mut dyn Iterator<Item = u32>| {
            let mut best = (u64::MAX, FULL);
            // From full content down: what was left out costs its price, whatever else it brings.
            for dimmer in dimmers {
                let left_out = u64::from(self.prices.optional) * u64::from(FULL - dimmer);
                if amount * (left_out / u64::from(FULL)) >= best.0 {
                    break;
                }
                let cost = self.sum(site, load, users, State { dimmer, is_hedged });
                if cost < best.0 {
                    best = (cost, dimmer);
                }
            }
            best.1
        };
        let coarse = best_of(&mut (0..=FULL).rev().step_by(COARSE as usize));
        let around = coarse.saturating_sub(COARSE)..=(coarse + COARSE).min(FULL);
        best_of(&mut around.rev())
    }
}

/// The cheapest dimmer downhill from this one, either way, or full content; and its key.
fn near<T: Ord>(last: u32, of: impl Fn(u32) -> T) -> (u32, T) {
    let mut best = (last, of(last));
    for is_up in [false, true] {
        while let Some(next) = best.0.checked_add_signed(if is_up { 1 } else { -1 }) {
            let key = if next <= FULL { of(next) } else { break };
            if key >= best.1 {
                break;
            }
            best = (next, key);
        }
    }
    if best.0 == FULL {
        return best;
    }
    let full = of(FULL);
    if full < best.1 { (FULL, full) } else { best }
}

fn check(problem: &Problem, services: &[Service], prices: &Prices) -> Result<(), ProblemError> {
    let error =
        |place: String, came: String, expected: String| Err(ProblemError { place, came, expected });
    if services.len() != problem.sites() {
        let expected = format!("{}, one for each data centre", problem.sites());
        return error("services".to_owned(), format!("{} values", services.len()), expected);
    }
    let named = [prices.optional, prices.wan, prices.node_second];
    for (name, price) in ["optional", "wan", "node"].into_iter().zip(named) {
        if price > JOINT_PRICE_MAX {
            let expected = format!("at most {JOINT_PRICE_MAX} millionths of a violation");
            return error(format!("price {name}"), price.to_string(), expected);
        }
    }
    match services.iter().position(|service| service.lean_us > service.full_us) {
        None => Ok(()),
        Some(site) => {
            let Service { full_us, lean_us } = services[site];
            let expected = format!("at most {full_us} us, the work of a full request");
            error(format!("service {site}"), format!("{lean_us} us without optional"), expected)
        }
    }
}

#[cfg(test)]
std::thread_local! {
    /// How many states were priced: a plan's time as it is the same on every machine.
    static PRICED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests;
