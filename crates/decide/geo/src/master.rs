//! The restricted master problem: mix the columns found so far so that every origin is served
//! exactly and targets are kept. Its dual proposes the next prices.
//!
//! A primal simplex method with an explicit inverse: rows are few (two or three for each data
//! centre), columns come and go. Slack variables on the rows that tie data centres together hold
//! the dual inside a box around prices that are known to be good; without it the proposals swing
//! from one end to the other. Right-hand sides are a hair apart from what they should be, so that
//! the method does not turn in circles. Whatever comes out is a proposal: the bound it leads to is
//! computed in integers.

/// The problem and its basis.
#[derive(Debug)]
pub(super) struct Master {
    /// Rows that pick one column for each data centre; the tying rows come after them.
    sites: usize,
    rows: usize,
    right: Vec<f64>,
    /// Two slacks for each tying row, then the columns: prices, where terms end, and terms.
    prices: Vec<f64>,
    ends: Vec<u32>,
    terms: Vec<(u32, f64)>,
    basis: Vec<usize>,
    /// Row by row of the problem, so that a column of it is read in one go.
    inverse: Vec<f64>,
    amounts: Vec<f64>,
    duals: Vec<f64>,
    pivots: usize,
    /// Room to work in.
    direction: Vec<f64>,
    basic: Vec<f64>,
}

const TINY: f64 = 1e-9;
/// Pivots after which the inverse is computed afresh.
const REFRESH: usize = 100;

impl Master {
    /// Rows that demand that the weights of each data centre's columns come to one, and tying rows
    /// with these right-hand sides. Wants one column for each data centre, in order, others, and
    /// a start.
    pub(super) fn new(sites: usize, ties: &[f64]) -> Self {
        let rows = sites + ties.len();
        let nudge = |row: usize| 1e-7 * (1.0 + ((row * 7919) % 101) as f64 / 101.0);
        let mut right = vec![1.0; sites];
        right.extend(ties.iter().enumerate().map(|(row, value)| value + nudge(row)));
        let mut master = Self {
            sites,
            rows,
            right,
            prices: Vec::new(),
            ends: Vec::new(),
            terms: Vec::new(),
            basis: Vec::new(),
            inverse: vec![0.0; rows * rows],
            amounts: Vec::new(),
            duals: vec![0.0; rows],
            pivots: 0,
            direction: vec![0.0; rows],
            basic: Vec::with_capacity(rows),
        };
        for row in sites..rows {
            for sign in [1.0, -1.0] {
                master.put(row, sign);
                master.push(0.0);
            }
        }
        master
    }

    /// The first column of each data centre, and slacks for what is missing or too much: an
    /// identity, columns below it, and signs.
    pub(super) fn start(&mut self) {
        let (sites, rows) = (self.sites, self.rows);
        let slacks = 2 * (rows - sites);
        self.basis = (slacks..slacks + sites).collect();
        self.amounts = self.right.clone();
        for column in 0..sites {
            self.inverse[column * rows + column] = 1.0;
            for place in self.span(slacks + column) {
                let (row, value) = self.terms[place];
                if row as usize >= sites {
                    self.amounts[row as usize] -= value;
                    self.inverse[column * rows + row as usize] = -value;
                }
            }
        }
        for row in sites..rows {
            let is_negative = self.amounts[row] < 0.0;
            self.basis.push(2 * (row - sites) + usize::from(is_negative));
            self.inverse[row * rows + row] = 1.0;
            if is_negative {
                self.amounts[row] = -self.amounts[row];
                (0..rows).for_each(|column| self.inverse[column * rows + row] *= -1.0);
            }
        }
        self.price_rows();
    }

    /// Puts an entry, not zero, into the next column: 1 into the row of its data centre, the others
    /// into tying rows.
    pub(super) fn put(&mut self, row: usize, value: f64) {
        self.terms.push((row as u32, value));
    }

    /// Adds the column of the entries put, at this price.
    pub(super) fn push(&mut self, price: f64) {
        self.prices.push(price);
        self.ends.push(self.terms.len() as u32);
    }

    /// Keeps those columns, counted from 0 in the order they came; false when one that is to go is
    /// in the basis, which then stays as it is.
    pub(super) fn retain(&mut self, keeps: &[bool]) -> bool {
        let slacks = 2 * (self.rows - self.sites);
        let stays = |column: usize| column < slacks || keeps[column - slacks];
        if !self.basis.iter().all(|&column| stays(column)) {
            return false;
        }
        let mut names = vec![usize::MAX; self.prices.len()];
        let (mut kept, mut start, mut filled) = (0, 0, 0);
        for (column, name) in names.iter_mut().enumerate() {
            let end = self.ends[column] as usize;
            if stays(column) {
                self.terms.copy_within(start..end, filled);
                filled += end - start;
                (self.prices[kept], self.ends[kept]) = (self.prices[column], filled as u32);
                *name = kept;
                kept += 1;
            }
            start = end;
        }
        self.prices.truncate(kept);
        self.ends.truncate(kept);
        self.terms.truncate(filled);
        self.basis.iter_mut().for_each(|column| *column = names[*column]);
        true
    }

    /// Holds the dual of every tying row between `low` and `high`.
    pub(super) fn hold(&mut self, low: &[f64], high: &[f64]) {
        for (tie, (&low, &high)) in low.iter().zip(high).enumerate() {
            self.prices[2 * tie] = high;
            self.prices[2 * tie + 1] = -low;
        }
        self.price_rows();
    }

    /// Goes to the optimum, or as far as `pivots_max` leads. Returns the work it took.
    pub(super) fn solve(&mut self, pivots_max: usize) -> u64 {
        let mut work = 0;
        for _ in 0..pivots_max {
            work += (self.prices.len() * 8 + 2 * self.rows * self.rows) as u64;
            let Some((entering, reduced)) = self.cheapest() else { break };
            if !self.pivot(entering, reduced) {
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
        parts.map(|(&column, amount)| self.prices[column] * amount).sum()
    }

    /// The columns in use, counted from 0 in the order they came, and their weights.
    pub(super) fn mix(&self) -> impl Iterator<Item = (usize, f64)> {
        let slacks = 2 * (self.rows - self.sites);
        let parts = self.basis.iter().zip(&self.amounts);
        let used = parts.map(|(&column, &weight)| (column, weight));
        let columns = used.filter(move |&(column, weight)| column >= slacks && weight > 1e-9);
        columns.map(move |(column, weight)| (column - slacks, weight))
    }

    fn span(&self, column: usize) -> std::ops::Range<usize> {
        let start = if column == 0 { 0 } else { self.ends[column - 1] };
        start as usize..self.ends[column] as usize
    }

    /// The column that has earned least of its price, if one has not earned it all.
    fn cheapest(&self) -> Option<(usize, f64)> {
        let (mut best, mut least, mut start) = (None, 0.0, 0);
        for (column, (&price, &end)) in self.prices.iter().zip(&self.ends).enumerate() {
            let terms = &self.terms[start..end as usize];
            start = end as usize;
            let (mut reduced, mut size) = (price, 1.0 + price.abs());
            for &(row, value) in terms {
                let earned = self.duals[row as usize] * value;
                reduced -= earned;
                size += earned.abs();
            }
            if reduced < least && reduced < -TINY * size {
                (best, least) = (Some(column), reduced);
            }
        }
        best.map(|column| (column, least))
    }

    /// Brings a column into the basis; false when no row limits it.
    fn pivot(&mut self, entering: usize, reduced: f64) -> bool {
        let rows = self.rows;
        let mut direction = std::mem::take(&mut self.direction);
        direction.fill(0.0);
        for &(row, value) in &self.terms[self.span(entering)] {
            let line = &self.inverse[row as usize * rows..][..rows];
            for (sum, &part) in direction.iter_mut().zip(line) {
                *sum += part * value;
            }
        }
        let leaving = self.limiting(&direction);
        if let Some(leaving) = leaving {
            self.exchange(leaving, entering, reduced, &direction);
        }
        self.direction = direction;
        leaving.is_some()
    }

    fn exchange(&mut self, leaving: usize, entering: usize, reduced: f64, direction: &[f64]) {
        let (rows, pivot) = (self.rows, direction[leaving]);
        let lines = self.inverse.chunks_exact_mut(rows).zip(&mut self.duals);
        for (line, dual) in lines {
            let scaled = line[leaving] / pivot;
            if scaled == 0.0 {
                continue;
            }
            for (value, &factor) in line.iter_mut().zip(direction) {
                *value -= factor * scaled;
            }
            line[leaving] = scaled;
            *dual += reduced * scaled;
        }
        let step = self.amounts[leaving] / pivot;
        for (amount, &factor) in self.amounts.iter_mut().zip(direction) {
            *amount = (*amount - factor * step).max(0.0);
        }
        self.amounts[leaving] = step.max(0.0);
        self.basis[leaving] = entering;
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
        // Turned over, as the inverse is kept.
        let mut matrix = vec![0.0; rows * rows];
        for (place, &column) in self.basis.iter().enumerate() {
            for &(row, value) in &self.terms[self.span(column)] {
                matrix[place * rows + row as usize] += value;
            }
        }
        if let Some(inverse) = invert(matrix, rows) {
            self.inverse = inverse;
        }
        self.amounts.fill(0.0);
        for (line, &right) in self.inverse.chunks_exact(rows).zip(&self.right) {
            for (amount, &value) in self.amounts.iter_mut().zip(line) {
                *amount += value * right;
            }
        }
        self.amounts.iter_mut().for_each(|amount| *amount = amount.max(0.0));
        self.price_rows();
    }

    fn price_rows(&mut self) {
        let prices = &mut self.basic;
        prices.clear();
        prices.extend(self.basis.iter().map(|&column| self.prices[column]));
        for (dual, line) in self.duals.iter_mut().zip(self.inverse.chunks_exact(self.rows)) {
            *dual = product(prices, line);
        }
    }
}

/// The sum of products, in four parts: one addition need not wait for the other.
fn product(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 4];
    let (fours, others) = (a.chunks_exact(4).zip(b.chunks_exact(4)), a.len() / 4 * 4);
    for (a, b) in fours {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += a * b;
        }
    }
    let rest: f64 = a[others..].iter().zip(&b[others..]).map(|(a, b)| a * b).sum();
    (sums[0] + sums[1]) + (sums[2] + sums[3]) + rest
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
