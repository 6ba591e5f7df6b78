//! What cannot be served: as little as possible, from all in equal shares as far as that helps.
//!
//! Which demands can be served with loads that end at saturation is a matroid: an origin that
//! cannot have one more quantum served now cannot later either. So filling all origins at the same
//! share of their demand, and going on with those that can still rise, serves the most in total and
//! leaves the least-served origin with as much as it can have.
//!
//! One case is no matroid: limits on what may be sent, and data centres that may not send while
//! they receive. There the shares still rise together, but another demand may serve more in total.

use super::pairs::Pairs;
use super::problem::Problem;
use super::transport::Transport;

/// Steps in which shares rise together.
const STEPS: u64 = 4096;

/// The demand that can be served with loads capped at saturation.
pub(super) fn servable(problem: &Problem, relay: bool) -> Vec<u32> {
    let demand = problem.demand();
    if spill(problem, demand, relay).is_some() {
        return demand.to_vec();
    }
    let can_rise = demand.iter().map(|&quanta| quanta > 0).collect();
    let mut filling = Filling { problem, relay, served: vec![0; demand.len()], can_rise };
    let mut step = 0;
    while filling.can_rise.contains(&true) && step < STEPS {
        step = filling.highest_step(step);
        filling.rise_to(step);
        step += 1;
        filling.rise_singly(step);
    }
    filling.served
}

/// Flows that bring every load to saturation or below; `None` when there are none. Unless it is
/// needed elsewhere, a data centre's room goes to its own requests first.
pub(super) fn spill(problem: &Problem, demand: &[u32], relay: bool) -> Option<Pairs<u32>> {
    let sites = demand.len();
    let saturation = problem.saturation();
    let kept = |site: usize| problem.kept(site, demand[site]);
    let local = |site: usize| if relay { kept(site) } else { demand[site].min(saturation[site]) };
    if (0..sites).any(|site| kept(site) > local(site).min(saturation[site])) {
        return None;
    }
    let pairs = || (0..sites).flat_map(|i| (0..sites).map(move |j| (i, j)));
    let price = |(i, j)| if i == j { 0 } else { 1 + i64::from(problem.distance(i, j)) };
    let most = |(i, j)| problem.limit(i, j).min(demand[i]);
    let transport = Transport {
        supply: (0..sites).map(|site| demand[site] - local(site)).collect(),
        need: (0..sites).map(|site| saturation[site] - local(site)).collect(),
        price: pairs().map(price).collect(),
        most: pairs().map(most).collect(),
    };
    let placed = transport.solve(false);
    let moved = |i: usize, j: usize| placed[i * sites + j];
    let flow = Pairs::from_fn(sites, |i, j| moved(i, j) + if i == j { local(i) } else { 0 });
    let is_whole = |(row, &all): (&[u32], &u32)| row.iter().sum::<u32>() == all;
    let places_all = flow.rows().zip(demand).all(is_whole);
    places_all.then_some(flow)
}

fn share(quanta: u32, step: u64) -> u32 {
    (u64::from(quanta) * step / STEPS) as u32
}

/// What is served so far, and who can have more.
struct Filling<'a> {
    problem: &'a Problem,
    relay: bool,
    served: Vec<u32>,
    can_rise: Vec<bool>,
}

impl Filling<'_> {
    fn can_serve(&self, demand: &[u32]) -> bool {
        spill(self.problem, demand, self.relay).is_some()
    }

    /// What is served with all that can rise at this step.
    fn at_step(&self, step: u64) -> Vec<u32> {
        let one = |site: usize| match self.can_rise[site] {
            true => share(self.problem.demand()[site], step).max(self.served[site]),
            false => self.served[site],
        };
        (0..self.served.len()).map(one).collect()
    }

    /// The highest step that all who can rise reach together.
    fn highest_step(&self, from: u64) -> u64 {
        let (mut low, mut high) = (from, STEPS);
        while low < high {
            let middle = (low + high).div_ceil(2);
            if self.can_serve(&self.at_step(middle)) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        low
    }

    fn rise_to(&mut self, step: u64) {
        self.served = self.at_step(step);
        let parts = self.served.iter().zip(self.problem.demand());
        for (can, (served, demand)) in self.can_rise.iter_mut().zip(parts) {
            *can &= served < demand;
        }
    }

    /// Quantum by quantum to the next step, the least served first.
    fn rise_singly(&mut self, step: u64) {
        let demand = self.problem.demand();
        loop {
            let is_below = |&site: &usize| {
                self.can_rise[site] && self.served[site] < share(demand[site], step.min(STEPS))
            };
            let by_share = |&a: &usize, &b: &usize| {
                let (of_a, of_b) = (u64::from(self.served[a]), u64::from(self.served[b]));
                (of_a * u64::from(demand[b])).cmp(&(of_b * u64::from(demand[a])))
            };
            let Some(least) = (0..demand.len()).filter(is_below).min_by(by_share) else { return };
            self.served[least] += 1;
            if !self.can_serve(&self.served) {
                self.served[least] -= 1;
                self.can_rise[least] = false;
            }
        }
    }
}
