//! The restricted master problem: mix the columns found so far so that every origin is served
//! exactly and targets are kept. Its dual proposes the next prices.
//!
//! A primal simplex method with an explicit inverse: rows are few (two or three for each data
//! centre), columns come and go. Slack variables on the rows that tie data centres together hold
//! the dual inside a box around prices that are known to be good; without it the proposals swing
//! from one end to the other. Right-hand sides are a hair apart from what they should be, so that
//! the method does not turn in circles. Whatever comes out is a proposal: the bound it leads to is
//! computed in integers.

/// A column: its price, and its non-zero entries. The first rows, one for each data centre, demand
/// that the weights of its columns come to one.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) price: f64,
    pub(super) terms: Vec<(u32, f64)>,
}

/// The problem and its basis.
#[derive(Debug)]
pub(super) struct Master {
    /// Rows that pick one column for each data centre; the tying rows come after them.
    sites: usize,
    rows: usize,
    right: Vec<f64>,
    /// Two slacks for each tying row, then the columns.
    entries: Vec<Entry>,
    basis: Vec<usize>,
    inverse: Vec<f64>,
    amounts: Vec<f64>,
    duals: Vec<f64>,
    pivots: usize,
}

const TINY: f64 = 1e-9;
/// Pivots after which the inverse is computed afresh.
const REFRESH: usize = 100;

impl Master {
    /// `ties` are the right-hand sides of the tying rows; `first` is one column for each data
    /// centre, in order.
    pub(super) fn new(ties: &[f64], first: Vec<Entry>) -> Self {
        let (sites, rows) = (first.len(), first.len() + ties.len());
        let nudge = |row: usize| 1e-7 * (1.0 + ((row * 7919) % 101) as f64 / 101.0);
        let mut right = vec![1.0; sites];
        right.extend(ties.iter().enumerate().map(|(row, value)| value + nudge(row)));
        let slack = |row: usize, sign: f64| Entry { price: 0.0, terms: vec![(row as u32, sign)] };
        let mut entries: Vec<Entry> =
            (sites..rows).flat_map(|row| [slack(row, 1.0), slack(row, -1.0)]).collect();
        let mut basis: Vec<usize> = (entries.len()..entries.len() + sites).collect();
        entries.extend(first);
        let mut left = right.clone();
        for &column in &basis {
            for &(row, value) in entries[column].terms.iter().filter(|term| term.0 >= sites as u32)
            {
                left[row as usize] -= value;
            }
        }
        basis.extend((sites..rows).map(|row| 2 * (row - sites) + usize::from(left[row] < 0.0)));
        let (inverse, duals) = (vec![0.0; rows * rows], vec![0.0; rows]);
        let amounts = vec![0.0; rows];
        let mut master =
            Self { sites, rows, right, entries, basis, inverse, amounts, duals, pivots: 0 };
        master.refresh();
        master
    }

    pub(super) fn push(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    /// Holds the dual of every tying row between `low` and `high`.
    pub(super) fn hold(&mut self, low: &[f64], high: &[f64]) {
        for (tie, (&low, &high)) in low.iter().zip(high).enumerate() {
            self.entries[2 * tie].price = high;
            self.entries[2 * tie + 1].price = -low;
        }
        self.price_rows();
    }

    /// Goes to the optimum, or as far as `pivots_max` leads. Returns the work it took.
    pub(super) fn solve(&mut self, pivots_max: usize) -> u64 {
        let mut work = 0;
        for _ in 0..pivots_max {
            work += (self.entries.len() * 8 + 2 * self.rows * self.rows) as u64;
            let Some(entering) = self.cheapest() else { break };
            if !self.pivot(entering) {
                break;
            }
            self.pivots += 1;
            if self.pivots.is_multiple_of(REFRESH) {
                self.refresh();
                work += (self.rows * self.rows * self.rows) as u64;
            }
        }
        work
    }

    /// Duals of the tying rows.
    pub(super) fn tie_duals(&self) -> &[f64] {
        &self.duals[self.sites..]
    }

    /// The value of the mix, slacks included.
    pub(super) fn value(&self) -> f64 {
        let parts = self.basis.iter().zip(&self.amounts);
        parts.map(|(&column, amount)| self.entries[column].price * amount).sum()
    }

    /// The columns in use, counted from 0 in the order they came, and their weights.
    pub(super) fn mix(&self) -> impl Iterator<Item = (usize, f64)> {
        let slacks = 2 * (self.rows - self.sites);
        let parts = self.basis.iter().zip(&self.amounts);
        let used = parts.map(|(&column, &weight)| (column, weight));
        let columns = used.filter(move |&(column, weight)| column >= slacks && weight > 1e-9);
        columns.map(move |(column, weight)| (column - slacks, weight))
    }

    /// How much of its price a column has not earned: zero or more at the optimum.
    fn reduced(&self, column: usize) -> f64 {
        let entry = &self.entries[column];
        let earned = entry.terms.iter().map(|&(row, value)| self.duals[row as usize] * value);
        entry.price - earned.sum::<f64>()
    }

    fn cheapest(&self) -> Option<usize> {
        let (mut best, mut least) = (None, 0.0);
        for column in 0..self.entries.len() {
            let reduced = self.reduced(column);
            let is_enough = reduced < -TINY * (1.0 + self.entries[column].price.abs());
            if is_enough && reduced < least {
                (best, least) = (Some(column), reduced);
            }
        }
        best
    }

    /// Brings a column into the basis; false when no row limits it.
    fn pivot(&mut self, entering: usize) -> bool {
        let rows = self.rows;
        let reduced = self.reduced(entering);
        let mut direction = vec![0.0; rows];
        for &(row, value) in &self.entries[entering].terms {
            for (place, sum) in direction.iter_mut().enumerate() {
                *sum += self.inverse[place * rows + row as usize] * value;
            }
        }
        let Some(leaving) = self.limiting(&direction) else { return false };
        let pivot = direction[leaving];
        let step = self.amounts[leaving] / pivot;
        for value in &mut self.inverse[leaving * rows..(leaving + 1) * rows] {
            *value /= pivot;
        }
        let pivot_row: Vec<f64> = self.inverse[leaving * rows..(leaving + 1) * rows].to_vec();
        for (place, &factor) in direction.iter().enumerate() {
            if place == leaving || factor == 0.0 {
                continue;
            }
            let row = &mut self.inverse[place * rows..(place + 1) * rows];
            for (value, &other) in row.iter_mut().zip(&pivot_row) {
                *value -= factor * other;
            }
            self.amounts[place] = (self.amounts[place] - factor * step).max(0.0);
        }
        for (dual, &other) in self.duals.iter_mut().zip(&pivot_row) {
            *dual += reduced * other;
        }
        self.amounts[leaving] = step.max(0.0);
        self.basis[leaving] = entering;
        true
    }

    fn limiting(&self, direction: &[f64]) -> Option<usize> {
        let (mut best, mut least) = (None, f64::INFINITY);
        for (place, &rate) in direction.iter().enumerate() {
            if rate > TINY {
                let ratio = self.amounts[place] / rate;
                let is_less = ratio < least - 1e-12;
                if is_less || (ratio <= least && best.is_some_and(|b: usize| rate > direction[b])) {
                    (best, least) = (Some(place), ratio);
                }
            }
        }
        best
    }

    /// Inverse, amounts and duals from the basis alone.
    fn refresh(&mut self) {
        let rows = self.rows;
        let mut matrix = vec![0.0; rows * rows];
        for (place, &column) in self.basis.iter().enumerate() {
            for &(row, value) in &self.entries[column].terms {
                matrix[row as usize * rows + place] += value;
            }
        }
        if let Some(inverse) = invert(matrix, rows) {
            self.inverse = inverse;
        }
        for place in 0..rows {
            let row = &self.inverse[place * rows..(place + 1) * rows];
            let amount: f64 = row.iter().zip(&self.right).map(|(a, b)| a * b).sum();
            self.amounts[place] = amount.max(0.0);
        }
        self.price_rows();
    }

    fn price_rows(&mut self) {
        self.duals.fill(0.0);
        for (place, &column) in self.basis.iter().enumerate() {
            let price = self.entries[column].price;
            let row = &self.inverse[place * self.rows..(place + 1) * self.rows];
            for (dual, value) in self.duals.iter_mut().zip(row) {
                *dual += price * value;
            }
        }
    }
}

/// The inverse by elimination with the largest pivot of each column; `None` when there is none.
fn invert(mut matrix: Vec<f64>, rows: usize) -> Option<Vec<f64>> {
    let mut inverse = vec![0.0; rows * rows];
    for row in 0..rows {
        inverse[row * rows + row] = 1.0;
    }
    for column in 0..rows {
        let size = |row: usize| matrix[row * rows + column].abs();
        let pivot = (column..rows).max_by(|&a, &b| size(a).total_cmp(&size(b)))?;
        if size(pivot) < TINY {
            return None;
        }
        for place in 0..rows {
            matrix.swap(column * rows + place, pivot * rows + place);
            inverse.swap(column * rows + place, pivot * rows + place);
        }
        let scale = 1.0 / matrix[column * rows + column];
        for place in 0..rows {
            matrix[column * rows + place] *= scale;
            inverse[column * rows + place] *= scale;
        }
        for row in 0..rows {
            let factor = matrix[row * rows + column];
            if row == column || factor == 0.0 {
                continue;
            }
            for place in 0..rows {
                matrix[row * rows + place] -= factor * matrix[column * rows + place];
                inverse[row * rows + place] -= factor * inverse[column * rows + place];
            }
        }
    }
    Some(inverse)
}
