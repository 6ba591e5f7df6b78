//! `[prices]`: what things cost, in late requests. One set for all that goes by price: plans
//! between data centres, and how many duplicates are worth their nodes.

use evenkeel_geo::joint::{JOINT_PRICE_MAX, Prices};

use crate::Table;

const PPM: f64 = 1e6;

/// Reads a table of prices: `optional`, `wan`, `node`. What it leaves out is as in `unsaid`.
pub fn prices(table: &mut Table<'_>, unsaid: &Prices) -> Prices {
    let mut price = |key: &str, unsaid: u32| {
        let price = table.key(key).number().between(0.0..=f64::from(JOINT_PRICE_MAX) / PPM);
        price.optional().map_or(unsaid, |price| (price * PPM).round() as u32)
    };
    Prices {
        optional: price("optional", unsaid.optional),
        wan: price("wan", unsaid.wan),
        node_second: price("node", unsaid.node_second),
    }
}
