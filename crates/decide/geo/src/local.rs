//! Local search: a good allocation soon, so that bounds have something to beat.
//!
//! Steps move some quanta of one origin from one destination to another, in sizes from 64 down to
//! one, or move two origins at once: one pushes another out. Every step must make the score
//! smaller.

use super::model::{Flow, Model, Score};

/// Moves `amount` quanta of `origin` from one destination to another.
#[derive(Clone, Copy, Debug)]
struct Shift {
    origin: usize,
    from: usize,
    to: usize,
    amount: u32,
}

/// An allocation and its sums.
#[derive(Debug)]
struct Walk<'a> {
    model: &'a Model,
    /// `(destination, origin)`: a destination's sum reads one row.
    flow: Flow,
    loads: Vec<u32>,
    sent: Vec<u32>,
    received: Vec<u32>,
    /// Cost of each destination.
    costs: Vec<i64>,
    /// What counts in each row of the target, for each destination, and in all.
    spent_at: Vec<i64>,
    spent: Vec<i64>,
    /// Room to work in.
    trial: Vec<i64>,
    score: Score,
    work: u64,
}

/// Improves an allowed allocation until no step does, or the work is spent; returns it, its score,
/// and the work.
pub(super) fn improve(model: &Model, start: &Flow, work_max: u64) -> (Flow, Score, u64) {
    let mut walk = Walk::new(model, start);
    while walk.work < work_max && (walk.sweep_single() || walk.sweep_double()) {}
    (turned(model.sites, &walk.flow), walk.score, walk.work)
}

/// The allocation that gives one data centre up: all others keep what they serve best by themselves
/// and send it the rest. Where demand is more than all can serve, the fewest violations are near
/// such an allocation, and steps from any other lead uphill first. `None` with a target, and where
/// loads are capped.
pub(super) fn giving_one_up(model: &Model) -> Option<Flow> {
    let total = model.total();
    if model.side.is_some() || model.range.iter().any(|&range| range != (0, total)) {
        return None;
    }
    let cost = |site: usize, to: usize, load: u32| {
        let sent = model.demand[site] - load;
        i64::from(load) * model.unit_price(site, site, load)
            + i64::from(sent) * model.unit_price(site, to, total)
    };
    let kept = |site: usize, to: usize| {
        let demand = model.demand[site];
        let least = demand - model.limit[(site, to)];
        let all = (least..=demand).min_by_key(|&load| cost(site, to, load));
        if site == to { 0 } else { all.unwrap_or(demand) }
    };
    let all =
        |&to: &usize| (0..model.sites).map(|site| cost(site, to, kept(site, to))).sum::<i64>();
    let to = (0..model.sites).min_by_key(all)?;
    let kept: Vec<u32> = (0..model.sites).map(|site| kept(site, to)).collect();
    Some(Flow::from_fn(model.sites, |i, j| {
        let own = if i == j { kept[i] } else { 0 };
        let sent = if j == to { model.demand[i] - kept[i] } else { 0 };
        own + sent
    }))
}

fn turned(sites: usize, flow: &Flow) -> Flow {
    Flow::from_fn(sites, |i, j| flow[(j, i)])
}

impl<'a> Walk<'a> {
    fn new(model: &'a Model, flow: &Flow) -> Self {
        let sites = model.sites;
        let loads = super::model::loads(sites, flow);
        let away = |site: usize, other: usize| if site == other { 0 } else { flow[(site, other)] };
        let sent = (0..sites).map(|i| (0..sites).map(|j| away(i, j)).sum()).collect();
        let received = (0..sites).map(|j| (0..sites).map(|i| away(i, j)).sum()).collect();
        let score = model.score(flow);
        let rows = model.side_rows();
        let mut walk = Self {
            model,
            flow: turned(sites, flow),
            loads,
            sent,
            received,
            costs: vec![0; sites],
            spent_at: vec![0; sites * rows],
            spent: vec![0; rows],
            trial: vec![0; rows],
            score,
            work: 0,
        };
        for site in 0..sites {
            walk.costs[site] = walk.sum(site);
            walk.keep_spent(site);
        }
        walk
    }

    /// Tries every single move once for every size; true when one helped.
    fn sweep_single(&mut self) -> bool {
        let mut has_improved = false;
        for size in [64, 32, 16, 8, 4, 2, 1] {
            for origin in 0..self.model.sites {
                for from in 0..self.model.sites {
                    for to in 0..self.model.sites {
                        if self.is_idle(origin, from, to) {
                            continue;
                        }
                        let amount = self.flow[(from, origin)].min(size);
                        has_improved |= self.attempt(&[Shift { origin, from, to, amount }]);
                    }
                }
            }
        }
        has_improved
    }

    /// One origin moves in, another that is there moves out, to where the first one was or home.
    fn sweep_double(&mut self) -> bool {
        let sites = self.model.sites;
        let mut has_improved = false;
        for origin in 0..sites {
            for from in 0..sites {
                for to in 0..sites {
                    if self.is_idle(origin, from, to) {
                        continue;
                    }
                    for other in 0..sites {
                        for size in [8, 1] {
                            has_improved |= self.push_out(origin, from, to, other, size);
                        }
                    }
                }
            }
        }
        has_improved
    }

    fn push_out(&mut self, origin: usize, from: usize, to: usize, other: usize, size: u32) -> bool {
        let amount = self.flow[(from, origin)].min(self.flow[(to, other)]).min(size);
        if other == origin || amount == 0 {
            return false;
        }
        let first = Shift { origin, from, to, amount };
        let out = |place: usize| Shift { origin: other, from: to, to: place, amount };
        (other != to && self.attempt(&[first, out(other)]))
            || (from != to && from != other && self.attempt(&[first, out(from)]))
    }

    /// Makes the shifts if they are allowed and the score gets smaller.
    fn attempt(&mut self, shifts: &[Shift]) -> bool {
        self.work += 20;
        for (done, shift) in shifts.iter().enumerate() {
            if self.flow[(shift.from, shift.origin)] < shift.amount {
                self.undo(&shifts[..done]);
                return false;
            }
            self.shift(*shift);
        }
        let mut touched = [usize::MAX; 4];
        for (place, shift) in shifts.iter().enumerate() {
            (touched[2 * place], touched[2 * place + 1]) = (shift.from, shift.to);
        }
        let is_allowed = shifts.iter().all(|shift| self.is_allowed(shift));
        if is_allowed && self.settle(&touched) {
            return true;
        }
        self.undo(shifts);
        false
    }

    /// Whether there is nothing to move, or roles forbid it whatever moves out in return.
    fn is_idle(&mut self, origin: usize, from: usize, to: usize) -> bool {
        self.work += 1;
        let is_barred = to != origin && (self.sent[to] > 0 || self.received[origin] > 0);
        from == to || self.flow[(from, origin)] == 0 || (is_barred && !self.model.relay)
    }

    fn undo(&mut self, shifts: &[Shift]) {
        for &Shift { origin, from, to, amount } in shifts.iter().rev() {
            self.shift(Shift { origin, from: to, to: from, amount });
        }
    }

    fn shift(&mut self, Shift { origin, from, to, amount }: Shift) {
        self.flow[(from, origin)] -= amount;
        self.flow[(to, origin)] += amount;
        self.loads[from] -= amount;
        self.loads[to] += amount;
        if from != origin {
            self.sent[origin] -= amount;
            self.received[from] -= amount;
        }
        if to != origin {
            self.sent[origin] += amount;
            self.received[to] += amount;
        }
    }

    fn is_allowed(&self, shift: &Shift) -> bool {
        let model = self.model;
        let (low, high) = model.range[shift.to];
        let (low_from, high_from) = model.range[shift.from];
        let is_in_range = (low..=high).contains(&self.loads[shift.to])
            && (low_from..=high_from).contains(&self.loads[shift.from]);
        let has_one_role = |site: usize| self.sent[site] == 0 || self.received[site] == 0;
        is_in_range
            && self.flow[(shift.origin, shift.origin)] >= model.kept[shift.origin]
            && self.flow[(shift.to, shift.origin)] <= model.limit[(shift.origin, shift.to)]
            && (model.relay || (has_one_role(shift.origin) && has_one_role(shift.to)))
    }

    /// Keeps what the touched destinations came to if the score is smaller.
    fn settle(&mut self, touched: &[usize; 4]) -> bool {
        let mut changed: [(usize, i64); 4] = [(usize::MAX, 0); 4];
        let mut cost = self.score.cost;
        for (place, &site) in touched.iter().enumerate() {
            if site == usize::MAX || touched[..place].contains(&site) {
                continue;
            }
            let sum = self.sum(site);
            cost += sum - self.costs[site];
            changed[place] = (site, sum);
        }
        let touched = || changed.iter().map(|&(site, _)| site).filter(|&site| site != usize::MAX);
        let excess = self.excess_with(touched());
        let score = Score { excess, cost };
        if score >= self.score {
            return false;
        }
        self.score = score;
        for (site, sum) in changed.into_iter().filter(|&(site, _)| site != usize::MAX) {
            self.costs[site] = sum;
            self.keep_spent(site);
        }
        true
    }

    fn sum(&mut self, site: usize) -> i64 {
        let (model, load) = (self.model, self.loads[site]);
        let row = model.row(site, load);
        self.work += 2 * model.sites as u64;
        let mut cost = 0;
        for (origin, &ppm) in row.iter().enumerate() {
            let amount = self.flow[(site, origin)];
            if amount > 0 {
                let unit = model.fixed[(origin, site)] + model.weight * i64::from(ppm);
                cost += i64::from(amount) * unit;
            }
        }
        cost
    }

    /// The excess if these destinations were settled.
    fn excess_with(&mut self, sites: impl Iterator<Item = usize>) -> i64 {
        let Some(side) = &self.model.side else { return 0 };
        let rows = side.budget.len();
        let mut trial = std::mem::take(&mut self.trial);
        trial.copy_from_slice(&self.spent);
        for site in sites {
            for (row, before) in self.spent_at[site * rows..][..rows].iter().enumerate() {
                trial[row] -= before;
            }
            self.add_spent(site, &mut trial);
        }
        self.work += (self.model.sites + rows) as u64;
        let excess = self.model.excess(&trial);
        self.trial = trial;
        excess
    }

    fn keep_spent(&mut self, site: usize) {
        let rows = self.spent.len();
        let mut at = vec![0; rows];
        self.add_spent(site, &mut at);
        for (row, now) in at.into_iter().enumerate() {
            let before = std::mem::replace(&mut self.spent_at[site * rows + row], now);
            self.spent[row] += now - before;
        }
    }

    /// Adds what a destination's violations count in each row.
    fn add_spent(&self, site: usize, spent: &mut [i64]) {
        let Some(side) = &self.model.side else { return };
        let row = self.model.row(site, self.loads[site]);
        for (origin, &ppm) in row.iter().enumerate() {
            let amount = self.flow[(site, origin)];
            if amount > 0 {
                let violations = i64::from(amount) * i64::from(ppm);
                spent[side.row[origin]] += side.weight[origin] * violations;
            }
        }
    }
}
