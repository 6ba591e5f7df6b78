//! Column generation: the best bound of one part of the search, and the mix of columns behind it.
//!
//! The master proposes prices inside a box, the bound is evaluated there, and the columns it asks
//! for join the master. A better bound moves the box there, and a proposal at its wall that keeps
//! its promise makes it larger; a worse one makes it smaller. The evaluation also rules out loads
//! that no better allocation can have, and columns go with them.

use super::bound::{Column, Evaluation, Filler, Prices, evaluate};
use super::master::Master;
use super::prices::{SIDE_SCALE, from_duals};
use super::search::{Mix, Part, Search};
use super::trust::Trust;

/// Rounds in one part at most.
const ROUNDS_MAX: usize = 60;
/// What is left to hope for, of the bound, when it is not worth another round.
const HOPELESS: f64 = 1e-6;

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
        self.spare = first;
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
            if evaluation.has_narrowed {
                self.rule_out(part, &evaluation, &mut used, &mut master)?;
            }
            self.spare = evaluation;
        }
        let mix = master.mix().map(|(place, weight)| (used[place], weight)).collect();
        part.columns = used;
        Some(mix)
    }

    /// Takes columns out that a smaller domain no longer holds, and begins afresh where they were
    /// in use; `None` when a data centre cannot be loaded in any way.
    fn rule_out(
        &mut self,
        part: &Part,
        evaluation: &Evaluation,
        used: &mut Vec<usize>,
        master: &mut Master,
    ) -> Option<()> {
        let holds = |&place: &usize| part.domain.holds(self.model, &self.pool[place]);
        let keeps: Vec<bool> = used.iter().map(holds).collect();
        if !keeps.contains(&false) {
            return Some(());
        }
        let mut each = keeps.iter();
        used.retain(|_| each.next() == Some(&true));
        if !master.retain(&keeps) {
            *used = self.first_of_each(part, std::mem::take(used), evaluation)?;
            *master = self.master(used);
        }
        Some(())
    }

    /// A way to load a data centre, the best one if it is still there: loads ruled out elsewhere
    /// may have taken away what it was filled with.
    fn any_column(&self, part: &Part, site: usize, best: usize) -> Option<Column> {
        let levels = &part.domain.levels[site];
        let mut filler = Filler::new(self.model, &part.domain, &part.prices);
        filler.turn_to(site);
        let mut all = std::iter::once(levels[best]).chain(levels.iter().copied());
        all.find_map(|load| Some(Column { site, load, mix: filler.mix(load)?.to_vec() }))
    }

    /// Evaluates the bound and rules out loads; `None` when that closes the part.
    fn evaluate(&mut self, part: &mut Part, prices: &Prices) -> Option<Evaluation> {
        let spare = std::mem::take(&mut self.spare);
        let mut evaluation = evaluate(self.model, &part.domain, prices, spare);
        self.work += evaluation.work;
        if self.is_closed(evaluation.bound) {
            self.spare = evaluation;
            return None;
        }
        let room = self.cutoff() - evaluation.bound;
        for (site, levels) in part.domain.levels.iter_mut().enumerate() {
            let above = &evaluation.above[site];
            let load = levels[evaluation.best[site]];
            if above.iter().any(|&above| above > room) {
                evaluation.has_narrowed = true;
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
                let column = self.any_column(part, site, evaluation.best[site])?;
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
        let is_new = self.is_new(column.site, column.load, &column.mix, used);
        if is_new {
            used.push(self.pool.len());
            self.pool.push(column);
        }
        is_new
    }

    fn is_new(&self, site: usize, load: u32, mix: &[(usize, u32)], used: &[usize]) -> bool {
        let is_it =
            |column: &Column| column.load == load && column.site == site && column.mix == mix;
        !used.iter().any(|&place| is_it(&self.pool[place]))
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
        let mut filler = Filler::new(self.model, &part.domain, prices);
        for site in 0..self.model.sites {
            let levels = &part.domain.levels[site];
            let best = evaluation.best[site];
            let beside = best.saturating_sub(1)..=(best + 1).min(levels.len() - 1);
            filler.turn_to(site);
            for &load in &levels[beside] {
                let Some(mix) = filler.mix(load) else { continue };
                if self.is_new(site, load, mix, used) {
                    used.push(self.pool.len());
                    self.pool.push(Column { site, load, mix: mix.to_vec() });
                    self.bring(used[used.len() - 1], master);
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
        let mut master = Master::new(model.sites, &ties);
        used.iter().for_each(|&place| self.bring(place, &mut master));
        master.start();
        master
    }

    /// Adds a column to the master.
    fn bring(&self, place: usize, master: &mut Master) {
        let model = self.model;
        let Column { site, load, ref mix } = self.pool[place];
        let row = model.row(site, load);
        let mut price = 0;
        master.put(site, 1.0);
        for &(origin, amount) in mix {
            price += i64::from(amount) * model.unit_price(origin, site, load);
            master.put(model.sites + origin, f64::from(amount));
        }
        if let Some(side) = &model.side {
            let spends = |&(origin, amount): &(usize, u32)| {
                side.weight[origin] * i64::from(amount) * i64::from(row[origin])
            };
            if model.side_rows() == model.sites {
                for one in mix.iter().filter(|one| spends(one) != 0) {
                    let row = 2 * model.sites + side.row[one.0];
                    master.put(row, spends(one) as f64 / SIDE_SCALE);
                }
            } else {
                let spent: i64 = mix.iter().map(spends).sum();
                master.put(2 * model.sites, spent as f64 / SIDE_SCALE);
            }
        }
        master.push(price as f64 / model.unit as f64);
    }
}
