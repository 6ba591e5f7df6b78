//! Column generation: the best bound of one part of the search, and the mix of columns behind it.
//!
//! The master proposes prices inside a box, the bound is evaluated there, and the columns it asks
//! for join the master. A better bound moves the box there, and a proposal at its wall that keeps
//! its promise makes it larger; a worse one makes it smaller. The evaluation also rules out loads
//! that no better allocation can have, and columns go with them.

use super::bound::{Column, Evaluation, Prices, column, evaluate};
use super::master::{Entry, Master};
use super::prices::{SIDE_SCALE, from_duals};
use super::search::{Part, Search};
use super::trust::Trust;

/// Rounds in one part at most.
const ROUNDS_MAX: usize = 60;
/// What is left to hope for, of the bound, when it is not worth another round.
const HOPELESS: f64 = 1e-6;

/// Columns and their weights, as places in the pool.
pub(super) type Mix = Vec<(usize, f64)>;

impl Search<'_> {
    /// Leaves the best bound and prices in the part; returns the mix, or `None` when the part is
    /// closed.
    pub(super) fn tighten(&mut self, part: &mut Part) -> Option<Mix> {
        let prices = part.prices.clone();
        let first = self.evaluate(part, &prices)?;
        let mut used = self.gather(part, &first)?;
        let mut master = self.master(&used);
        let mut trust = Trust::new(self.model, &prices);
        let (unit, mut best) = (self.model.unit as f64, first.bound);
        part.bound = part.bound.max(best);
        for _ in 0..ROUNDS_MAX {
            let (low, high) = trust.walls();
            master.hold(&low, &high);
            self.work += master.solve(40 * low.len());
            let hoped = master.value() * unit - best as f64;
            if self.is_spent() || hoped <= HOPELESS * (unit + (best as f64).abs()) {
                break;
            }
            let duals = master.tie_duals().to_vec();
            let prices = from_duals(&duals, self.model);
            let evaluation = self.evaluate(part, &prices)?;
            let is_news = self.extend(part, &prices, &evaluation, &mut used, &mut master);
            if evaluation.bound > best {
                let gain = (evaluation.bound - best) as f64;
                if trust.is_at_wall(&duals) && gain > 0.1 * hoped {
                    trust.scale(2.0);
                }
                trust.move_to(duals);
                (best, part.prices) = (evaluation.bound, prices);
                part.bound = part.bound.max(best);
            } else if is_news {
                trust.scale(0.7);
            } else {
                break;
            }
            let holds = |&place: &usize| part.domain.holds(self.model, &self.pool[place]);
            if !used.iter().all(holds) {
                used.retain(holds);
                used = self.first_of_each(part, used, &evaluation)?;
                master = self.master(&used);
            }
        }
        let mix = master.mix().map(|(place, weight)| (used[place], weight)).collect();
        part.columns = used;
        Some(mix)
    }

    /// Evaluates the bound and rules out loads; `None` when that closes the part.
    fn evaluate(&mut self, part: &mut Part, prices: &Prices) -> Option<Evaluation> {
        let mut evaluation = evaluate(self.model, &part.domain, prices);
        self.work += evaluation.work;
        if self.is_closed(evaluation.bound) {
            return None;
        }
        let room = self.cutoff() - evaluation.bound;
        for (site, levels) in part.domain.levels.iter_mut().enumerate() {
            let above = &evaluation.above[site];
            let load = levels[evaluation.best[site]];
            if above.iter().any(|&above| above > room) {
                let mut above = above.iter();
                levels.retain(|_| above.next().is_some_and(|&above| above <= room));
            }
            evaluation.best[site] = levels.binary_search(&load).expect("the least one stays");
        }
        Some(evaluation)
    }

    /// The columns to start with: those of use before, and the best allocation's.
    fn gather(&mut self, part: &Part, evaluation: &Evaluation) -> Option<Vec<usize>> {
        let holds = |&place: &usize| part.domain.holds(self.model, &self.pool[place]);
        let mut used: Vec<usize> = part.columns.iter().copied().filter(holds).collect();
        for column in self.best_columns() {
            if part.domain.holds(self.model, &column) {
                self.note(column, &mut used);
            }
        }
        self.first_of_each(part, used, evaluation)
    }

    /// Puts one column of each data centre first, found anew where none is left; `None` when a
    /// data centre cannot be loaded in any way.
    fn first_of_each(
        &mut self,
        part: &Part,
        mut used: Vec<usize>,
        evaluation: &Evaluation,
    ) -> Option<Vec<usize>> {
        let mut first = Vec::new();
        for site in 0..self.model.sites {
            if !used.iter().any(|&place| self.pool[place].site == site) {
                // Loads ruled out elsewhere may have taken away what the best one was filled with.
                let levels = &part.domain.levels[site];
                let best = levels[evaluation.best[site]];
                let mut all = std::iter::once(best).chain(levels.iter().copied());
                let fill = |load| column(self.model, &part.domain, &part.prices, site, load);
                let column = all.find_map(fill)?;
                self.note(column, &mut used);
            }
            let last = used.iter().rposition(|&place| self.pool[place].site == site);
            first.push(used.remove(last.expect("there is one")));
        }
        first.extend(used);
        Some(first)
    }

    /// Adds a column to the pool and to those in use, unless it is in use already.
    fn note(&mut self, column: Column, used: &mut Vec<usize>) -> bool {
        if used.iter().any(|&place| self.pool[place] == column) {
            return false;
        }
        used.push(self.pool.len());
        self.pool.push(column);
        true
    }

    /// Adds the columns these prices ask for and those beside them: a mix of two neighbours stands
    /// for the load between. True when one that they ask for is new.
    fn extend(
        &mut self,
        part: &Part,
        prices: &Prices,
        evaluation: &Evaluation,
        used: &mut Vec<usize>,
        master: &mut Master,
    ) -> bool {
        let mut is_news = false;
        for site in 0..self.model.sites {
            let levels = &part.domain.levels[site];
            let best = evaluation.best[site];
            let beside = best.saturating_sub(1)..=(best + 1).min(levels.len() - 1);
            for &load in &levels[beside] {
                let column = column(self.model, &part.domain, prices, site, load);
                let Some(column) = column else { continue };
                let entry = self.entry(&column);
                if self.note(column, used) {
                    master.push(entry);
                    is_news |= load == levels[best];
                }
            }
        }
        is_news
    }

    fn master(&self, used: &[usize]) -> Master {
        let model = self.model;
        let mut ties: Vec<f64> = model.demand.iter().map(|&demand| f64::from(demand)).collect();
        if let Some(side) = &model.side {
            ties.extend(side.budget.iter().map(|&budget| budget as f64 / SIDE_SCALE));
        }
        let mut entries = used.iter().map(|&place| self.entry(&self.pool[place]));
        let first = entries.by_ref().take(model.sites).collect();
        let mut master = Master::new(&ties, first);
        entries.for_each(|entry| master.push(entry));
        master
    }

    /// A column as the master sees it.
    fn entry(&self, column: &Column) -> Entry {
        let model = self.model;
        let Column { site, load, ref mix } = *column;
        let mut terms = vec![(site as u32, 1.0)];
        let mut price = 0;
        let mut spent = vec![0; model.side_rows()];
        for &(origin, amount) in mix {
            price += i64::from(amount) * model.unit_price(origin, site, load);
            terms.push(((model.sites + origin) as u32, f64::from(amount)));
            if let Some(side) = &model.side {
                let violations = i64::from(amount) * i64::from(model.ppm(origin, site, load));
                spent[side.row[origin]] += side.weight[origin] * violations;
            }
        }
        for (row, &spent) in spent.iter().enumerate().filter(|&(_, &spent)| spent != 0) {
            terms.push(((2 * model.sites + row) as u32, spent as f64 / SIDE_SCALE));
        }
        Entry { price: price as f64 / model.unit as f64, terms }
    }
}
