//! Branch and bound over loads.
//!
//! A part of the search is a set of loads for each data centre. Its bound is improved by column
//! generation ([`super::tighten`]), which also rules out loads; what is left is cut in two. Parts
//! with the smallest bound come first, so that the bound of the whole is that of the next part.
//!
//! **Where to cut.** The master mixes far loads of a data centre when a load between them would
//! cost more: that valley is what the bound misses. The cut goes where the valley is highest, at
//! the mean of the mix. (Cutting where loads are furthest apart instead took 45 times as many
//! parts on one of the published instances.) With a target, who must send is cut first: how much
//! all send together is the objective, and a small whole number, so few combinations are left and
//! each is a question of yes or no. (Without that order the same proofs took up to a hundred times
//! the work.)
//!
//! **The same answer everywhere.** There is no clock: effort is counted. Parts are ordered by
//! bound, then by age. A part is closed only when its bound, an integer, is above the best weight,
//! so that an allocation as good as the best is found too and the one with the lexicographically
//! smaller loads kept; looking for those ends after about as much work as the proof took.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use super::bound::{Column, Domain, Evaluation, IMPOSSIBLE, Prices, evaluate};
use super::local;
use super::model::{Flow, Model, loads};
use super::pairs::Pairs;
use super::place::place;
use super::prices::first_prices;
use super::question::Effort;

/// Work that always may go into telling equally good answers apart.
const TIE_WORK: u64 = 500_000;
/// Work of one local search at most.
const LOCAL_WORK: u64 = 50_000_000;
/// Of all work, the part that goes into local search.
const LOCAL_SHARE: u64 = 10;
/// Work that goes into how much the least excess is, once it is certain that there is some.
const EXCESS_WORK: u64 = 20_000_000;
/// When that is known to such a part of it, a tenth of the work is enough.
const EXCESS_PART: i128 = 100;
/// Less than any bound.
const NOTHING: i128 = -IMPOSSIBLE;

/// What a search found.
#[derive(Debug)]
pub(super) struct Found {
    /// The best allocation, if any keeps the budgets.
    pub(super) flow: Option<Flow>,
    /// No allocation weighs less.
    pub(super) bound: i128,
    /// Units of work.
    pub(super) work: u64,
}

/// Columns and their weights, as places in the pool.
pub(super) type Mix = Vec<(usize, f64)>;

/// A part of the search.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) domain: Domain,
    pub(super) bound: i128,
    pub(super) prices: Prices,
    /// Columns that were of use, as places in the pool.
    pub(super) columns: Vec<usize>,
}

/// The best allocation so far.
#[derive(Clone, Debug)]
struct Best {
    weight: i64,
    loads: Vec<u32>,
    flow: Flow,
}

/// Where a part is cut.
#[derive(Clone, Copy, Debug)]
enum Cut {
    /// Loads of a data centre up to this one, and above.
    Level(usize, u32),
    /// Flows of a pair up to this one, and above.
    Flow((usize, usize), u32),
}

/// A search in progress.
#[derive(Debug)]
pub(super) struct Search<'a> {
    pub(super) model: &'a Model,
    effort: Effort,
    best: Option<Best>,
    /// All columns that were ever found.
    pub(super) pool: Vec<Column>,
    /// Rounded loads that were improved already.
    tried: BTreeSet<Vec<u32>>,
    /// An evaluation that is no longer needed.
    pub(super) spare: Evaluation,
    pub(super) work: u64,
    local_work: u64,
}

impl<'a> Search<'a> {
    pub(super) fn new(model: &'a Model, effort: Effort) -> Self {
        Self {
            model,
            effort,
            best: None,
            pool: Vec::new(),
            tried: BTreeSet::new(),
            spare: Evaluation::default(),
            work: 0,
            local_work: 0,
        }
    }

    /// Searches from an allocation that is allowed but for its excess.
    pub(super) fn run(mut self, start: &Flow) -> Found {
        let improved = self.offer(start);
        let given_up = self.offer_giving_one_up(&improved);
        let root = Part {
            domain: Domain::within(self.model, self.cutoff()),
            bound: NOTHING,
            prices: first_prices(self.model, given_up.as_ref().unwrap_or(&improved)),
            columns: Vec::new(),
        };
        let bound = self.explore(root);
        Found { flow: self.best.map(|best| best.flow), bound, work: self.work }
    }

    fn explore(&mut self, root: Part) -> i128 {
        let mut open = BinaryHeap::from([Reverse((root.bound, 0))]);
        let mut parts = vec![Some(root)];
        let mut proven_at = None;
        while let Some(Reverse((bound, place))) = open.pop() {
            if self.is_closed(bound) {
                break;
            }
            if self.is_enough(bound, &mut proven_at) {
                return bound;
            }
            let part = parts[place].take().expect("a part is opened once");
            for child in self.split(part) {
                open.push(Reverse((child.bound, parts.len())));
                parts.push(Some(child));
            }
        }
        self.cutoff()
    }

    /// Whether nothing in a part with this bound can be better, or as good and come first.
    pub(super) fn is_closed(&self, bound: i128) -> bool {
        bound > self.cutoff()
    }

    /// What an allocation has to weigh at most to be of interest.
    pub(super) fn cutoff(&self) -> i128 {
        self.best.as_ref().map_or(IMPOSSIBLE / 2, |best| i128::from(best.weight))
    }

    /// Whether to stop although parts with this bound are open.
    fn is_enough(&self, bound: i128, proven_at: &mut Option<u64>) -> bool {
        let best = self.model.objective_of(self.cutoff());
        let bound = self.model.objective_above(bound);
        let gap = best - bound;
        let is_excess = self.model.side.as_ref().is_some_and(|it| it.excess_price.is_some());
        if is_excess && bound > 0 {
            let is_about = gap <= best / EXCESS_PART;
            return self.work >= if is_about { EXCESS_WORK / 10 } else { EXCESS_WORK };
        }
        if gap <= 0 {
            let since = *proven_at.get_or_insert(self.work);
            // Without excess the question of cost comes next, and with it redirects hardly matter.
            let patience = if is_excess { 0 } else { TIE_WORK.max(since) };
            return self.work - since >= patience;
        }
        let is_near = gap <= i128::from(self.effort.tolerance);
        self.is_spent() || (is_near && self.work >= self.effort.work_exact)
    }

    /// Whether there is no effort left.
    pub(super) fn is_spent(&self) -> bool {
        self.work >= self.effort.work_max
    }

    /// Improves an allocation, takes it if it is better than the best, and returns it.
    fn offer(&mut self, flow: &Flow) -> Flow {
        let (flow, score, work) = local::improve(self.model, flow, LOCAL_WORK);
        self.work += work;
        self.local_work += work;
        self.take(&flow, self.model.weigh(score));
        flow
    }

    /// In overload: improves the allocation that gives one data centre up; returns it when it is
    /// the best.
    fn offer_giving_one_up(&mut self, improved: &Flow) -> Option<Flow> {
        let flow = local::giving_one_up(self.model)?;
        self.work += (10 * self.model.total()) as u64;
        // Improving it saves about half.
        let worth = 2 * i128::from(self.model.score(improved).cost);
        if i128::from(self.model.score(&flow).cost) >= worth {
            return None;
        }
        let flow = self.offer(&flow);
        self.best.as_ref().is_some_and(|best| best.flow == flow).then_some(flow)
    }

    /// Takes an allocation if it is allowed and better, or as good and its loads come first.
    fn take(&mut self, flow: &Flow, weight: Option<i64>) {
        let Some(weight) = weight else { return };
        let loads = loads(self.model.sites, flow);
        let is_better = |best: &Best| (weight, &loads) < (best.weight, &best.loads);
        if self.best.as_ref().is_none_or(is_better) {
            self.best = Some(Best { weight, loads, flow: flow.clone() });
        }
    }

    /// What the best allocation brings to each data centre.
    pub(super) fn best_columns(&self) -> Vec<Column> {
        let Some(best) = &self.best else { return Vec::new() };
        let column = |site: usize| {
            let mix = (0..self.model.sites).map(|origin| (origin, best.flow[(origin, site)]));
            let mix = mix.filter(|&(_, amount)| amount > 0).collect();
            Column { site, load: best.loads[site], mix }
        };
        (0..self.model.sites).map(column).collect()
    }

    /// Improves a part's bound, and cuts what is left in two.
    fn split(&mut self, mut part: Part) -> Vec<Part> {
        let Some(mix) = self.tighten(&mut part) else { return Vec::new() };
        self.round(&part, &mix);
        if self.is_closed(part.bound) {
            return Vec::new();
        }
        let Some(cut) = self.cut(&part, &mix) else { return Vec::new() };
        let mut low = part.clone();
        match cut {
            Cut::Level(site, level) => {
                low.domain.levels[site].retain(|&other| other <= level);
                part.domain.levels[site].retain(|&other| other > level);
            }
            Cut::Flow(pair, flow) => {
                low.domain.most[pair] = flow;
                part.domain.least[pair] = flow + 1;
            }
        }
        vec![low, part]
    }

    /// Makes an allocation of the mix: its mean loads, rounded; or of the only loads there are.
    fn round(&mut self, part: &Part, mix: &Mix) {
        let is_leaf = part.domain.is_one_level_each();
        let loads = match is_leaf {
            true => part.domain.levels.iter().map(|levels| levels[0]).collect(),
            false => rounded(&self.means(mix).0, self.model),
        };
        if !is_leaf && !self.tried.insert(loads.clone()) {
            return;
        }
        self.work += (self.model.sites * self.model.sites * 50) as u64;
        let flow = place(self.model, &part.domain, &part.prices.violation, &loads, false);
        let Some(flow) = flow else { return };
        if is_leaf || self.local_work > self.work / LOCAL_SHARE + LOCAL_WORK / 10 {
            let weight = self.model.weigh(self.model.score(&flow));
            self.take(&flow, weight);
        } else {
            self.offer(&flow);
        }
    }

    /// Mean load of each data centre in the mix, and mean square.
    fn means(&self, mix: &Mix) -> (Vec<f64>, Vec<f64>) {
        let sites = self.model.sites;
        let (mut means, mut squares) = (vec![0.0; sites], vec![0.0; sites]);
        for &(place, weight) in mix {
            let column = &self.pool[place];
            let load = f64::from(column.load);
            means[column.site] += weight * load;
            squares[column.site] += weight * load * load;
        }
        (means, squares)
    }

    /// Where to cut; `None` when nothing is left to decide.
    fn cut(&mut self, part: &Part, mix: &Mix) -> Option<Cut> {
        if part.domain.is_one_level_each() {
            return self.cut_flow(part, mix);
        }
        let levels = &part.domain.levels;
        let (means, squares) = self.means(mix);
        let spare = std::mem::take(&mut self.spare);
        let evaluation = evaluate(self.model, &part.domain, &part.prices, spare);
        self.work += evaluation.work;
        let valley = |site: usize| {
            let spread = squares[site] - means[site] * means[site];
            let between = nearest(&levels[site], means[site]);
            if spread < 1e-3 { -1 } else { evaluation.above[site][between] }
        };
        let undecided = (0..self.model.sites).filter(|&site| levels[site].len() > 1);
        let key = |&site: &usize| {
            (self.model.must_send(site), valley(site), levels[site].len(), Reverse(site))
        };
        let site = undecided.max_by_key(key);
        let is_valley = site.is_some_and(|site| valley(site) != -1);
        self.spare = evaluation;
        let site = site?;
        let last_low = levels[site][levels[site].len() - 2];
        let level = match is_valley {
            false => levels[site][(levels[site].len() - 1) / 2],
            true => (means[site].floor() as u32).clamp(levels[site][0], last_low),
        };
        Some(Cut::Level(site, level))
    }

    /// Loads are decided; with a target, who serves whom may not be.
    fn cut_flow(&self, part: &Part, mix: &Mix) -> Option<Cut> {
        self.model.side.as_ref()?;
        let (model, domain) = (self.model, &part.domain);
        let mut means = Pairs::filled(model.sites, 0.0);
        for &(place, weight) in mix {
            let column = &self.pool[place];
            for &(origin, amount) in &column.mix {
                means[(origin, column.site)] += weight * f64::from(amount);
            }
        }
        let most = |(i, j): (usize, usize)| domain.most(model, i, j).min(domain.levels[j][0]);
        let is_open = |&(i, j): &(usize, usize)| {
            let may_flow = model.relay || (i != j && domain.levels[j][0] > model.demand[j]);
            may_flow && most((i, j)) > domain.least[(i, j)]
        };
        let pairs = (0..model.sites).flat_map(|i| (0..model.sites).map(move |j| (i, j)));
        let from_half = |pair: (usize, usize)| (means[pair].fract() - 0.5_f64).abs();
        let by_half = |&a: &_, &b: &_| from_half(a).total_cmp(&from_half(b));
        let pair = pairs.filter(is_open).min_by(by_half)?;
        let flow = (means[pair].floor() as u32).clamp(domain.least[pair], most(pair) - 1);
        Some(Cut::Flow(pair, flow))
    }
}

/// The place of the level nearest to a load.
fn nearest(levels: &[u32], load: f64) -> usize {
    let after = levels.partition_point(|&level| f64::from(level) < load);
    let distance = |place: &usize| (f64::from(levels[*place]) - load).abs();
    let beside = [after.saturating_sub(1), after.min(levels.len() - 1)];
    beside.into_iter().min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or(0)
}

/// Whole loads near these that sum to the demand: the largest fractions are rounded up.
fn rounded(means: &[f64], model: &Model) -> Vec<u32> {
    /// Sums of weights are not exact: so much below a whole number is that number.
    const HAIR: f64 = 1e-4;
    let floor = |site: usize| {
        let (low, high) = model.range[site];
        ((means[site] + HAIR).floor() as u32).clamp(low, high)
    };
    let mut loads: Vec<u32> = (0..model.sites).map(floor).collect();
    let fraction = |site: usize| (means[site] + HAIR).fract();
    let mut order: Vec<usize> = (0..model.sites).collect();
    order.sort_by(|&a, &b| fraction(b).total_cmp(&fraction(a)).then(a.cmp(&b)));
    let sum: i64 = loads.iter().map(|&load| i64::from(load)).sum();
    let missing = i64::from(model.total()) - sum;
    if missing < 0 {
        order.reverse();
    }
    let mut left = missing.unsigned_abs();
    while left > 0 {
        let before = left;
        for &site in &order {
            let (low, high) = model.range[site];
            let next = loads[site].checked_add_signed(missing.signum() as i32);
            if let Some(next) = next.filter(|next| left > 0 && (low..=high).contains(next)) {
                loads[site] = next;
                left -= 1;
            }
        }
        if left == before {
            break;
        }
    }
    loads
}
