//! The Lagrangian bound. Give every origin a price for having one of its quanta served, and each
//! data centre chooses its load and its mix for itself; what they choose together costs no more
//! than any allocation, whatever the prices are.
//!
//! `L(π, μ) = Σ π_i D_i − Σ μ_r budget_r + Σ_j min over loads m of h_j(m)`, where `h_j(m)` fills
//! `j` with `m` quanta, cheapest first, at `fixed_ij + (weight + μ_r) f_ij(m) − π_i` each. Prices
//! are integers, so the bound is exact, and a load whose `h_j` is too far above the least can be
//! ruled out for good.

use super::model::Model;
use super::pairs::Pairs;

/// What is still allowed in one part of the search.
#[derive(Clone, Debug)]
pub(super) struct Domain {
    /// The loads of each data centre, ascending.
    pub(super) levels: Vec<Vec<u32>>,
    /// The least flow of each pair.
    pub(super) least: Pairs<u32>,
    /// The most.
    pub(super) most: Pairs<u32>,
}

/// Prices of the rows that tie data centres together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Prices {
    /// For each origin: of having one quantum served.
    pub(super) served: Vec<i64>,
    /// For each row of the target: of one unit of violations, zero or more.
    pub(super) violation: Vec<i64>,
}

/// One way to load a data centre: a load and who brings it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Column {
    pub(super) site: usize,
    pub(super) load: u32,
    /// Origins and their quanta, none of them zero.
    pub(super) mix: Vec<(usize, u32)>,
}

/// What a set of prices says.
#[derive(Clone, Default, Debug)]
pub(super) struct Evaluation {
    pub(super) bound: i128,
    /// For each data centre and level, how far it is above the least.
    pub(super) above: Vec<Vec<i128>>,
    /// The least level of each data centre, as its place in the domain.
    pub(super) best: Vec<usize>,
    /// Units of work.
    pub(super) work: u64,
    /// Whether loads were ruled out by it.
    pub(super) has_narrowed: bool,
}

impl Domain {
    pub(super) fn whole(model: &Model) -> Self {
        let sites = model.sites;
        Self {
            levels: model.range.iter().map(|&(low, high)| (low..=high).collect()).collect(),
            least: Pairs::from_fn(sites, |i, j| if i == j { model.kept[i] } else { 0 }),
            most: Pairs::from_fn(sites, |i, j| model.limit[(i, j)]),
        }
    }

    /// Without the loads that alone cost more than `cutoff`, whoever brings them.
    pub(super) fn within(model: &Model, cutoff: i128) -> Self {
        let whole = Self::whole(model);
        let mut domain = whole.clone();
        let free = Prices { served: vec![0; model.sites], violation: vec![0; model.side_rows()] };
        let mut filler = Filler::new(model, &whole, &free);
        for site in 0..model.sites {
            filler.turn_to(site);
            // Curves do not fall: from here on prices only rise.
            let rising = if model.relay { 0 } else { model.demand[site] };
            let levels = &mut domain.levels[site];
            let first = levels.partition_point(|&load| load < rising);
            let keeps = |&load: &u32| filler.fill(load, None) <= cutoff;
            let kept = first + levels[first..].partition_point(keeps);
            levels.truncate(kept);
        }
        domain
    }

    pub(super) fn is_one_level_each(&self) -> bool {
        self.levels.iter().all(|levels| levels.len() == 1)
    }

    /// What an origin can bring to a destination at most: what it need not keep.
    pub(super) fn most(&self, model: &Model, origin: usize, site: usize) -> u32 {
        let most = self.most[(origin, site)];
        if model.relay || origin == site {
            return most;
        }
        let kept = self.levels[origin].first().copied().unwrap_or(0);
        most.min(model.demand[origin].saturating_sub(kept))
    }

    /// Whether a column is one of those still allowed.
    pub(super) fn holds(&self, model: &Model, column: &Column) -> bool {
        let site = column.site;
        let fits = |&(origin, amount): &(usize, u32)| {
            (self.least[(origin, site)]..=self.most(model, origin, site)).contains(&amount)
        };
        let is_there = |origin: usize| column.mix.iter().any(|&(named, _)| named == origin);
        self.levels[site].binary_search(&column.load).is_ok()
            && column.mix.iter().all(fits)
            && (0..model.sites).all(|origin| self.least[(origin, site)] == 0 || is_there(origin))
    }
}

/// The part of a bound that one data centre decides, ready to be asked for many loads.
#[derive(Debug)]
pub(super) struct Filler<'a> {
    model: &'a Model,
    domain: &'a Domain,
    prices: &'a Prices,
    /// The data centre it is ready for.
    site: usize,
    /// Its own requests, which come first unless data centres relay.
    own: Feeder,
    /// Who may bring load, and at most how much.
    feeders: Vec<Feeder>,
    /// What origins bring in any case.
    forced: Vec<Feeder>,
    /// Room to work in: what a quantum of each feeder costs.
    units: Vec<i64>,
    /// Room to work in: who brings how much.
    mix: Vec<(usize, u32)>,
}

/// An origin as a data centre sees it: `base + slope · ppm` for each of at most `most` quanta.
#[derive(Clone, Copy, Debug)]
struct Feeder {
    origin: usize,
    most: u32,
    base: i64,
    slope: i64,
}

impl Feeder {
    #[inline]
    fn unit(&self, row: &[u32]) -> i64 {
        self.base + self.slope * i64::from(row[self.origin])
    }
}

/// Evaluates the bound over a domain without empty levels. Levels that cannot be filled are as far
/// above the least as can be. `spare` is an evaluation that is no longer needed.
pub(super) fn evaluate(
    model: &Model,
    domain: &Domain,
    prices: &Prices,
    spare: Evaluation,
) -> Evaluation {
    let served = model.demand.iter().zip(&prices.served);
    let mut bound: i128 = served.map(|(&d, &price)| i128::from(d) * i128::from(price)).sum();
    if let Some(side) = &model.side {
        let spent = side.budget.iter().zip(&prices.violation);
        bound -= spent.map(|(&b, &price)| i128::from(b) * i128::from(price)).sum::<i128>();
    }
    let mut evaluation = Evaluation { bound, work: 0, has_narrowed: false, ..spare };
    evaluation.above.resize(model.sites, Vec::new());
    evaluation.best.clear();
    let mut filler = Filler::new(model, domain, prices);
    for (site, values) in evaluation.above.iter_mut().enumerate() {
        filler.turn_to(site);
        let levels = &domain.levels[site];
        let steep = levels.partition_point(|&load| load < filler.flat_from());
        values.clear();
        values.extend(levels[..steep].iter().map(|&load| filler.fill(load, None)));
        filler.fill_flat(&levels[steep..], values);
        evaluation.work += (steep * (4 * filler.feeders.len() + 10) + levels.len()) as u64;
        let best = (0..values.len()).min_by_key(|&place| values[place]).unwrap_or(0);
        let least = values[best];
        evaluation.bound = evaluation.bound.saturating_add(least);
        values.iter_mut().for_each(|value| *value = value.saturating_sub(least));
        evaluation.best.push(best);
    }
    evaluation
}

/// More than any fill costs.
pub(super) const IMPOSSIBLE: i128 = i128::MAX / 256;

impl<'a> Filler<'a> {
    pub(super) fn new(model: &'a Model, domain: &'a Domain, prices: &'a Prices) -> Self {
        let own = Feeder { origin: 0, most: 0, base: 0, slope: 0 };
        let room = || Vec::with_capacity(model.sites);
        Self {
            model,
            domain,
            prices,
            site: 0,
            own,
            feeders: room(),
            forced: Vec::new(),
            units: Vec::with_capacity(model.sites),
            mix: Vec::with_capacity(model.sites + 1),
        }
    }

    /// Makes ready for a data centre.
    pub(super) fn turn_to(&mut self, site: usize) {
        let (model, domain) = (self.model, self.domain);
        self.site = site;
        self.own = self.feeder(site, model.demand[site]);
        self.feeders.clear();
        self.forced.clear();
        for origin in 0..model.sites {
            if origin == site && !model.relay {
                continue;
            }
            let least = domain.least[(origin, site)];
            let most = domain.most(model, origin, site);
            if least > 0 {
                self.forced.push(self.feeder(origin, least));
            }
            if most > least {
                self.feeders.push(self.feeder(origin, most - least));
            }
        }
    }

    fn feeder(&self, origin: usize, most: u32) -> Feeder {
        let (model, prices) = (self.model, self.prices);
        let slope = match &model.side {
            Some(side) => model.weight + side.weight[origin] * prices.violation[side.row[origin]],
            None => model.weight,
        };
        let base = model.fixed[(origin, self.site)] - prices.served[origin];
        Feeder { origin, most, base, slope }
    }

    /// The cheapest mix of so much load, if there is one.
    pub(super) fn mix(&mut self, load: u32) -> Option<&[(usize, u32)]> {
        let mut mix = std::mem::take(&mut self.mix);
        mix.clear();
        let cost = self.fill(load, Some(&mut mix));
        mix.sort_unstable();
        mix.dedup_by(|later, kept| {
            let is_same = later.0 == kept.0;
            if is_same {
                kept.1 += later.1;
            }
            is_same
        });
        self.mix = mix;
        (cost < IMPOSSIBLE).then_some(&*self.mix)
    }

    /// The load from which on curves no longer rise and only guests come.
    fn flat_from(&self) -> u32 {
        let own = if self.model.relay { 0 } else { self.own.most };
        self.model.flat_from(self.site).max(own)
    }

    /// What these loads cost, none of them below [`Self::flat_from`], ascending: prices are the
    /// same for all of them, so that the next quantum is the cheapest that is left.
    fn fill_flat(&mut self, levels: &[u32], costs: &mut Vec<i128>) {
        let Some(&first) = levels.first() else { return };
        let row = self.model.row(self.site, first);
        let own = if self.model.relay { None } else { Some(&self.own) };
        let (mut filled, mut cost) = (0, 0);
        for feeder in own.into_iter().chain(&self.forced) {
            filled += feeder.most;
            cost += i128::from(feeder.unit(row)) * i128::from(feeder.most);
        }
        let pair = (self.site, self.site);
        let allowed = self.domain.least[pair]..=self.domain.most[pair];
        let is_allowed = own.is_none_or(|own| allowed.contains(&own.most));
        let mut order: Vec<(i64, u32)> =
            self.feeders.iter().map(|feeder| (feeder.unit(row), feeder.most)).collect();
        order.sort_unstable();
        let mut next = order.into_iter();
        let (mut unit, mut left) = (0, 0);
        for &load in levels {
            while filled < load {
                if left == 0 {
                    let Some(cheapest) = next.next() else { break };
                    (unit, left) = cheapest;
                }
                let amount = left.min(load - filled);
                cost += i128::from(unit) * i128::from(amount);
                (filled, left) = (filled + amount, left - amount);
            }
            costs.push(if is_allowed && filled == load { cost } else { IMPOSSIBLE });
        }
    }

    /// What it costs to load the data centre with `load`; notes the mix when asked to.
    #[inline]
    fn fill(&mut self, load: u32, mut mix: Option<&mut Vec<(usize, u32)>>) -> i128 {
        let row = self.model.row(self.site, load);
        let mut cost = 0;
        let mut need = load;
        let mut take = |unit: i64, origin: usize, amount: u32| {
            if let Some(mix) = &mut mix
                && amount > 0
            {
                mix.push((origin, amount));
            }
            i128::from(unit) * i128::from(amount)
        };
        if !self.model.relay {
            let amount = load.min(self.own.most);
            let pair = (self.site, self.site);
            if !(self.domain.least[pair]..=self.domain.most[pair]).contains(&amount) {
                return IMPOSSIBLE;
            }
            cost += take(self.own.unit(row), self.site, amount);
            need -= amount;
        }
        for feeder in &self.forced {
            if feeder.most > need {
                return IMPOSSIBLE;
            }
            cost += take(feeder.unit(row), feeder.origin, feeder.most);
            need -= feeder.most;
        }
        if need == 0 {
            return cost;
        }
        self.units.clear();
        self.units.extend(self.feeders.iter().map(|feeder| feeder.unit(row)));
        for _ in 0..self.feeders.len() {
            let (mut cheapest, mut least) = (0, TAKEN);
            for (place, &unit) in self.units.iter().enumerate() {
                if unit < least {
                    (cheapest, least) = (place, unit);
                }
            }
            let Feeder { origin, most, .. } = self.feeders[cheapest];
            let amount = most.min(need);
            cost += take(least, origin, amount);
            need -= amount;
            if need == 0 {
                return cost;
            }
            self.units[cheapest] = TAKEN;
        }
        IMPOSSIBLE
    }
}

/// In place of a unit's price: no more of it.
const TAKEN: i64 = i64::MAX;
