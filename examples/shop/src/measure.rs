//! What pages cost, in CPU time of the thread that makes them.
//!
//! Brownout is worth having when the optional part costs a multiple of the mandatory one. This
//! measures it the way a database thread does the work, queries and HTML, without HTTP, queue or
//! pretended speed. CPU time leaves out what the thread waits for, so a busy machine disturbs it
//! little; with PostgreSQL the database's own work is in another process and is not seen.

use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::arguments::CatalogueArguments;
use crate::brownout::Parts;
use crate::pace::cpu_time;
use crate::serve::item_page;
use crate::store::Store;

/// The CPU time of one sort of work over many items.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// The mean, in milliseconds.
    pub mean_ms: f64,
    /// The standard deviation divided by the mean.
    pub variation: f64,
    /// The 95th percentile, in milliseconds.
    pub p95_ms: f64,
}

/// What the parts of an item's page cost; see [`measure`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// The lean page: everything that is mandatory.
    pub mandatory: Cost,
    /// What the recommendations add.
    pub recommendations: Cost,
    /// What the comments add.
    pub comments: Cost,
    /// What both add.
    pub optional: Cost,
}

impl Costs {
    /// Mean optional work, in units of mean mandatory work.
    pub fn ratio(&self) -> f64 {
        self.optional.mean_ms / self.mandatory.mean_ms
    }
}

impl Costs {
    /// One JSON object, by part: `mean_ms`, `p95_ms` and `variation`.
    pub fn json(&self) -> String {
        let parts = self.parts().map(|(name, Cost { mean_ms, variation, p95_ms })| {
            format!(
                "\"{name}\":{{\"mean_ms\":{mean_ms},\"p95_ms\":{p95_ms},\
                 \"variation\":{variation}}}"
            )
        });
        format!("{{{}}}", parts.join(","))
    }

    fn parts(&self) -> [(&'static str, Cost); 4] {
        [
            ("mandatory", self.mandatory),
            ("recommendations", self.recommendations),
            ("comments", self.comments),
            ("optional", self.optional),
        ]
    }
}

impl fmt::Display for Costs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "CPU ms           mean    p95    cv")?;
        for (name, cost) in self.parts() {
            let Cost { mean_ms, variation, p95_ms } = cost;
            writeln!(formatter, "{name:15} {mean_ms:6.3} {p95_ms:6.3} {variation:5.2}")?;
        }
        write!(formatter, "optional / mandatory: {:.1}", self.ratio())
    }
}

/// Renders the pages of `pages` items at even distances, each with every combination of optional
/// parts, after a first round that fills the caches.
///
/// # Errors
/// When there is nothing to render or the database cannot be read.
pub fn measure(catalogue: &CatalogueArguments, pages: u32) -> Result<Costs> {
    let mut store = Store::open(catalogue)?;
    let items = store.items()?;
    let pages = i64::from(pages).min(items);
    ensure!(pages > 0, "--pages 0: expected at least one");
    let numbers: Vec<i64> = (0..pages).map(|index| 1 + index * items / pages).collect();
    let recommendations = Parts { recommendations: true, comments: false };
    let comments = Parts { recommendations: false, comments: true };
    let [mut lean, mut recommending, mut commenting, mut full] = [(); 4].map(|()| Vec::new());
    for round in 0..2 {
        for &number in &numbers {
            for (parts, costs) in [
                (Parts::NONE, &mut lean),
                (recommendations, &mut recommending),
                (comments, &mut commenting),
                (Parts::ALL, &mut full),
            ] {
                let cost = cost_of(&mut store, number, parts)?;
                if round == 1 {
                    costs.push(cost);
                }
            }
        }
    }
    Ok(Costs {
        mandatory: summary(lean.iter().copied()),
        recommendations: summary(differences(&recommending, &lean)),
        comments: summary(differences(&commenting, &lean)),
        optional: summary(differences(&full, &lean)),
    })
}

/// In milliseconds.
fn cost_of(store: &mut Store, number: i64, parts: Parts) -> Result<f64> {
    let before = cpu_time();
    item_page(store, number, parts)?.context("items are numbered without gaps")?;
    Ok(cpu_time().saturating_sub(before).max(Duration::ZERO).as_secs_f64() * 1e3)
}

fn differences(more: &[f64], less: &[f64]) -> impl ExactSizeIterator<Item = f64> {
    more.iter().zip(less).map(|(more, less)| more - less)
}

fn summary(costs: impl ExactSizeIterator<Item = f64>) -> Cost {
    let mut sorted: Vec<f64> = costs.collect();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len() as f64;
    let mean_ms = sorted.iter().sum::<f64>() / count;
    let variance = sorted.iter().map(|cost| (cost - mean_ms).powi(2)).sum::<f64>() / count;
    let p95_ms = sorted[(sorted.len() * 95).div_ceil(100) - 1];
    Cost { mean_ms, variation: variance.sqrt() / mean_ms, p95_ms }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_the_textbook_values() {
        let cost = summary([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0].into_iter());
        assert_eq!(cost, Cost { mean_ms: 5.0, variation: 2.0 / 5.0, p95_ms: 9.0 });
    }

    #[test]
    fn costs_can_be_read_by_programs() {
        let cost = |mean_ms| Cost { mean_ms, variation: 1.5, p95_ms: 3.0 };
        let costs = Costs {
            mandatory: cost(0.25),
            recommendations: cost(1.0),
            comments: cost(0.5),
            optional: cost(2.0),
        };
        let of = |name, mean| {
            format!("\"{name}\":{{\"mean_ms\":{mean},\"p95_ms\":3,\"variation\":1.5}}")
        };
        let parts = [
            of("mandatory", "0.25"),
            of("recommendations", "1"),
            of("comments", "0.5"),
            of("optional", "2"),
        ];
        assert_eq!(costs.json(), format!("{{{}}}", parts.join(",")));
    }
}
