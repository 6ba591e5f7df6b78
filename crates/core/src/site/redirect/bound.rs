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
#[derive(Clone, Debug)]
pub(super) struct Evaluation {
    pub(super) bound: i128,
    /// For each data centre and level, how far it is above the least.
    pub(super) above: Vec<Vec<i128>>,
    /// The least level of each data centre, as its place in the domain.
    pub(super) best: Vec<usize>,
    /// Units of work.
    pub(super) work: u64,
}

impl Domain {
    pub(super) fn whole(model: &Model) -> Self {
        let sites = model.sites;
        Self {
            levels: model.range.iter().map(|&(low, high)| (low..=high).collect()).collect(),
            least: Pairs::filled(sites, 0),
            most: Pairs::from_fn(sites, |i, j| model.limit[(i, j)]),
        }
    }

    /// Without the loads that alone cost more than `cutoff`, whoever brings them.
    pub(super) fn within(model: &Model, cutoff: i128) -> Self {
        let mut domain = Self::whole(model);
        let free = Prices { served: vec![0; model.sites], violation: vec![0; model.side_rows()] };
        let mut open = Vec::new();
        for site in 0..model.sites {
            let filler = Filler::new(model, &domain, &free, site);
            // Curves do not fall: from here on prices only rise.
            let rising = if model.relay { 0 } else { model.demand[site] };
            let mut costs_more = |&load: &u32| filler.fill(load, &mut open, None) > cutoff;
            let above = domain.levels[site].iter().copied().filter(|&load| load >= rising);
            if let Some(end) = above.into_iter().find(&mut costs_more) {
                domain.levels[site].retain(|&load| load < end);
            }
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

    pub(super) fn holds(&self, model: &Model, column: &Column) -> bool {
        let mut mix = column.mix.iter().peekable();
        let site = column.site;
        let mut fits = |origin: usize| {
            let amount =
                mix.next_if(|&&(named, _)| named == origin).map_or(0, |&(_, amount)| amount);
            (self.least[(origin, site)]..=self.most(model, origin, site)).contains(&amount)
        };
        self.levels[site].binary_search(&column.load).is_ok() && (0..model.sites).all(&mut fits)
    }
}

/// The part of a bound that one data centre decides, ready to be asked for many loads.
#[derive(Debug)]
struct Filler<'a> {
    model: &'a Model,
    domain: &'a Domain,
    site: usize,
    /// What an origin's quantum costs beside violations.
    base: Vec<i64>,
    /// What a violation of an origin costs.
    slope: Vec<i64>,
    /// Who may bring load, and at most how much.
    feeders: Vec<(usize, u32)>,
    /// What origins bring in any case.
    forced: Vec<(usize, u32)>,
}

/// Evaluates the bound over a domain without empty levels. Levels that cannot be filled are as far
/// above the least as can be.
pub(super) fn evaluate(model: &Model, domain: &Domain, prices: &Prices) -> Evaluation {
    let served = model.demand.iter().zip(&prices.served);
    let mut bound: i128 = served.map(|(&d, &price)| i128::from(d) * i128::from(price)).sum();
    if let Some(side) = &model.side {
        let spent = side.budget.iter().zip(&prices.violation);
        bound -= spent.map(|(&b, &price)| i128::from(b) * i128::from(price)).sum::<i128>();
    }
    let mut evaluation =
        Evaluation { bound, above: Vec::with_capacity(model.sites), best: Vec::new(), work: 0 };
    let mut open = Vec::new();
    for site in 0..model.sites {
        let filler = Filler::new(model, domain, prices, site);
        let levels = &domain.levels[site];
        let mut values: Vec<i128> =
            levels.iter().map(|&load| filler.fill(load, &mut open, None)).collect();
        evaluation.work += (levels.len() * (4 * filler.feeders.len() + 10)) as u64;
        let best = (0..values.len()).min_by_key(|&place| values[place]).unwrap_or(0);
        let least = values[best];
        evaluation.bound = evaluation.bound.saturating_add(least);
        values.iter_mut().for_each(|value| *value = value.saturating_sub(least));
        evaluation.above.push(values);
        evaluation.best.push(best);
    }
    evaluation
}

/// The cheapest way to load a data centre so much, if there is one.
pub(super) fn column(
    model: &Model,
    domain: &Domain,
    prices: &Prices,
    site: usize,
    load: u32,
) -> Option<Column> {
    let filler = Filler::new(model, domain, prices, site);
    let mut mix = Vec::new();
    if filler.fill(load, &mut Vec::new(), Some(&mut mix)) >= IMPOSSIBLE {
        return None;
    }
    mix.sort_unstable();
    mix.dedup_by(|later, kept| {
        let is_same = later.0 == kept.0;
        if is_same {
            kept.1 += later.1;
        }
        is_same
    });
    Some(Column { site, load, mix })
}

/// More than any fill costs.
pub(super) const IMPOSSIBLE: i128 = i128::MAX / 256;

impl<'a> Filler<'a> {
    fn new(model: &'a Model, domain: &'a Domain, prices: &Prices, site: usize) -> Self {
        let sites = model.sites;
        let base = (0..sites).map(|i| model.fixed[(i, site)] - prices.served[i]).collect();
        let slope = |origin: usize| match &model.side {
            Some(side) => model.weight + side.weight[origin] * prices.violation[side.row[origin]],
            None => model.weight,
        };
        let mut filler = Self {
            model,
            domain,
            site,
            base,
            slope: (0..sites).map(slope).collect(),
            feeders: Vec::new(),
            forced: Vec::new(),
        };
        for origin in 0..sites {
            if origin == site && !model.relay {
                continue;
            }
            let least = domain.least[(origin, site)];
            let most = domain.most(model, origin, site);
            if least > 0 {
                filler.forced.push((origin, least));
            }
            if most > least {
                filler.feeders.push((origin, most - least));
            }
        }
        filler
    }

    /// What it costs to load the data centre with `load`; notes the mix when asked to. `open` is
    /// room to work in.
    #[inline]
    fn fill(
        &self,
        load: u32,
        open: &mut Vec<(i64, usize, u32)>,
        mut mix: Option<&mut Vec<(usize, u32)>>,
    ) -> i128 {
        let row = self.model.row(self.site, load);
        let unit = |origin: usize| self.base[origin] + self.slope[origin] * i64::from(row[origin]);
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
            let own = load.min(self.model.demand[self.site]);
            let pair = (self.site, self.site);
            if !(self.domain.least[pair]..=self.domain.most[pair]).contains(&own) {
                return IMPOSSIBLE;
            }
            cost += take(unit(self.site), self.site, own);
            need -= own;
        }
        for &(origin, amount) in &self.forced {
            if amount > need {
                return IMPOSSIBLE;
            }
            cost += take(unit(origin), origin, amount);
            need -= amount;
        }
        if need == 0 {
            return cost;
        }
        open.clear();
        open.extend(self.feeders.iter().map(|&(origin, most)| (unit(origin), origin, most)));
        while need > 0 {
            let cheapest = (0..open.len()).min_by_key(|&place| open[place].0);
            let Some(cheapest) = cheapest else { return IMPOSSIBLE };
            let (unit, origin, most) = open.swap_remove(cheapest);
            let amount = most.min(need);
            cost += take(unit, origin, amount);
            need -= amount;
        }
        cost
    }
}
