//! The box that holds the master's duals near prices known to be good.

use super::bound::Prices;
use super::model::Model;
use super::prices::{SIDE_SCALE, to_duals};

/// A centre and how far from it to look, for each tying row.
#[derive(Debug)]
pub(super) struct Trust {
    centre: Vec<f64>,
    radius: Vec<f64>,
    /// Rows of demand; those of the target come after them.
    sites: usize,
    /// The least dual of the target's rows: excess costs no more.
    least: f64,
}

impl Trust {
    pub(super) fn new(model: &Model, prices: &Prices) -> Self {
        let centre = to_duals(prices, model);
        let mean = centre.iter().map(|dual| dual.abs()).sum::<f64>() / centre.len() as f64;
        let radius = |dual: &f64| 0.1 * dual.abs() + 0.02 * mean + 1.0;
        let price = model.side.as_ref().and_then(|side| side.excess_price);
        let least = |price: i64| -(price as f64) / model.unit as f64 * SIDE_SCALE;
        Self {
            radius: centre.iter().map(radius).collect(),
            centre,
            sites: model.sites,
            least: price.map_or(f64::NEG_INFINITY, least),
        }
    }

    /// The lowest and highest duals of all rows.
    pub(super) fn walls(&self) -> (Vec<f64>, Vec<f64>) {
        let parts = || self.centre.iter().zip(&self.radius);
        let mut low: Vec<f64> = parts().map(|(centre, radius)| centre - radius).collect();
        let mut high: Vec<f64> = parts().map(|(centre, radius)| centre + radius).collect();
        low[self.sites..].iter_mut().for_each(|low| *low = low.max(self.least));
        high[self.sites..].iter_mut().for_each(|high| *high = high.min(0.0));
        (low, high)
    }

    /// Whether the box is what keeps these duals from going further.
    pub(super) fn is_at_wall(&self, duals: &[f64]) -> bool {
        let near = |((dual, centre), radius): ((&f64, &f64), &f64)| {
            (dual - centre).abs() >= (1.0 - 1e-6) * radius
        };
        duals.iter().zip(&self.centre).zip(&self.radius).any(near)
    }

    pub(super) fn move_to(&mut self, duals: Vec<f64>) {
        self.centre = duals;
    }

    pub(super) fn scale(&mut self, factor: f64) {
        self.radius.iter_mut().for_each(|radius| *radius *= factor);
    }
}
