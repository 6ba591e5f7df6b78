//! How many partitions of how many duplicates: the question of `evenkeel plan duplicates` as people
//! write it, see docs/plan-duplicates.md.
//!
//! A TOML file, and recorded times in CSV beside it: milliseconds, a row for each access, a column
//! for each duplicate that it was sent to.

mod samples;
mod service;

use std::path::{Path, PathBuf};
use std::time::Duration;

use evenkeel_core::units::{OutOfRange, Probability, Rate};
use evenkeel_planner::duplicates::moves::{Arrangement, Partition};
use evenkeel_planner::duplicates::night::Night;
use evenkeel_planner::duplicates::policy::{Objective, Prices};
use evenkeel_planner::duplicates::{Arrivals, Effort, Model, Question, Service};

use crate::document::Node;
use crate::problem::{Mismatch, Problems};
use crate::reader::Table;

pub use samples::{Samples, parse_samples};

/// Nodes at most that can be asked about: as many policies again are some seconds of simulation.
pub const NODES_MAX: u32 = 256;
/// Recorded accesses at most in one file.
pub const ROWS_MAX: usize = 2_000_000;
/// Columns at most in one file.
pub const COLUMNS_MAX: usize = 64;
/// Longer service times are none.
pub const TIME_MS_MAX: f64 = 3_600_000.0;
/// Shards at most of an arrangement.
pub const SHARDS_MAX: usize = 1_024;

/// The prices of violations that are tried when none are named, as shares of a node's: figure 8's
/// range, from "a node costs more than 10,000 violations" to fewer than 100.
const SWEEP: [f64; 7] = [1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0];

/// A question.
#[derive(Clone, Debug)]
pub struct Input {
    /// What people call it.
    pub title: Option<String>,
    /// Which models are asked; one or both.
    pub models: Vec<Model>,
    /// How long duplicates serve.
    pub service: Service,
    /// Rows of times that were recorded together, in which outliers may coincide.
    pub together: Option<Vec<Vec<Duration>>>,
    /// Accesses per second.
    pub rate: Rate,
    /// The latency bound.
    pub bound: Duration,
    /// Mean time of a message.
    pub net: Duration,
    /// Mean time of repeating a message once.
    pub repeat: Duration,
    /// The share of accesses that are reads, which may go to one duplicate and be hedged.
    pub read_share: Probability,
    /// Recorded gaps between accesses; empty: Poisson.
    pub gaps: Vec<Duration>,
    /// How long simulations look.
    pub effort: Effort,
    /// Target, nodes, prices.
    pub objective: Objective,
    /// The time that the price of a node is for; prices of the objective are for a second.
    pub per: Duration,
    /// Prices of a violation to try besides, in the unit of `cost.per_violation`.
    pub sweep: Vec<f64>,
    /// Where shards are today, and what each is asked.
    pub today: Option<Today>,
    /// What to do at night.
    pub night: Option<NightInput>,
}

/// Where shards are today.
#[derive(Clone, PartialEq, Debug)]
pub struct Today {
    /// Partitions with their shards.
    pub arrangement: Arrangement,
    /// By shard, per second.
    pub rates: Vec<Rate>,
}

/// The table `[night]`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NightInput {
    nodes: u32,
    shards: u32,
    night_share: f64,
    duplicates_max: u32,
    length: Duration,
    migration_violations: f64,
}

impl Input {
    /// Reads a file and the samples that it names.
    ///
    /// # Errors
    /// Every problem of the file with its line, or the first of a file of samples with its row.
    pub fn load(path: &Path) -> Result<Self, Problems> {
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::read(&Node::load(path)?, folder)
    }

    /// Reads a document; samples are beside `folder`.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn read(node: &Node, folder: &Path) -> Result<Self, Problems> {
        let written = node.read(written)?;
        let service = written.service.load(folder)?;
        let gaps = match &written.arrivals {
            None => Vec::new(),
            Some(name) => service::single_column(&folder.join(name), "gaps")?,
        };
        Ok(Self { service: service.service, together: service.together, gaps, ..written.input })
    }

    /// What is asked of a model.
    pub fn question(&self) -> Question<'_> {
        let arrivals = match self.gaps.as_slice() {
            [] => Arrivals::Poisson,
            gaps => Arrivals::Recorded(gaps),
        };
        Question {
            net: self.net,
            repeat: self.repeat,
            arrivals,
            read_share: self.read_share,
            effort: self.effort,
            ..Question::new(&self.service, self.rate, self.bound)
        }
    }

    /// What is asked of a night, if it is: shards are asked evenly.
    ///
    /// # Errors
    /// When there are more nodes than shards.
    pub fn night(&self) -> Result<Option<Night<'_>>, OutOfRange> {
        let Some(night) = &self.night else { return Ok(None) };
        let count = |count: u32| {
            let expected = "one or more";
            core::num::NonZeroU32::new(count).ok_or(OutOfRange { came: 0.0, expected })
        };
        let day_rate = self.rate.value() / f64::from(night.shards);
        Ok(Some(Night {
            question: self.question(),
            nodes: count(night.nodes)?,
            shards: count(night.shards)?,
            day_rate: Rate::new(day_rate)?,
            night_rate: Rate::new(day_rate * night.night_share)?,
            duplicates_max: count(night.duplicates_max)?,
            prices: self.objective.prices,
            length: night.length,
            migration_violations: night.migration_violations,
        }))
    }
}

/// The file as written: all but what other files hold.
struct Written {
    input: Input,
    service: service::Source,
    arrivals: Option<PathBuf>,
}

/// The models by the names users write.
pub const MODELS: [(&str, &[Model]); 3] =
    [("lindley", &[Model::Lindley]), ("paper", &[Model::Paper]), ("both", &Model::ALL)];

fn written(root: &mut Table<'_>) -> Written {
    let title = root.key("title").text().optional();
    let target = root.key("target").probability().between(0.0..=0.999_999_999).required();
    let longest = Duration::from_secs(3_600);
    let bound = root.key("bound").duration().between(Duration::from_nanos(1)..=longest).required();
    let rate = root.key("rate").rate().between(0.0..=1e9).required();
    let service = service::read(root.key("service"));
    let nodes_max = root.key("nodes_max").integer().between(1..=NODES_MAX).required();
    let models = root.key("model").variant(&MODELS).or(&[Model::Lindley]);
    let mut time =
        |key: &str| root.key(key).duration().between(Duration::ZERO..=longest).or(Duration::ZERO);
    let (net, repeat) = (time("net"), time("repeat"));
    let read_share = root.key("reads").probability().between(0.0..=1.0).or(0.0);
    let arrivals = root.key("arrivals").text().optional().map(PathBuf::from);
    let effort = effort(root);
    let cost = root.key("cost").section(cost);
    let today = root.key("today").table(today).optional();
    let night = root.key("night").table(night).optional();
    let objective =
        Objective { target: Probability::clamped(target), nodes_max, prices: cost.prices };
    let input = Input {
        title,
        models: models.to_vec(),
        service: service::stand_in(),
        together: None,
        rate: Rate::new(rate).expect("a rate of the file is one"),
        bound,
        net,
        repeat,
        read_share: Probability::clamped(read_share),
        gaps: Vec::new(),
        effort,
        objective,
        per: cost.per,
        sweep: cost.sweep,
        today,
        night,
    };
    Written { input, service, arrivals }
}

fn effort(root: &mut Table<'_>) -> Effort {
    let default = Effort::default();
    let accesses = root.key("accesses").integer().between(1_000..=1_000_000_000);
    let accesses = accesses.or(default.accesses);
    let most = root.key("accesses_max").integer().between(1_000..=1_000_000_000);
    let most = most.or(accesses.saturating_mul(100));
    if root.is_sound() && most < accesses {
        let expected = format!("at least accesses, which is {accesses}");
        root.problem("accesses_max", Mismatch::new(most.to_string(), expected));
    }
    Effort {
        accesses,
        accesses_max: most,
        precision: root.key("precision").probability().or(default.precision),
        seed: root.key("seed").integer().between(0..=i64::MAX as u64).or(default.seed),
    }
}

struct Cost {
    prices: Prices,
    per: Duration,
    sweep: Vec<f64>,
}

fn cost(table: &mut Table<'_>) -> Cost {
    let second = Duration::from_secs(1);
    let per_node = table.key("per_node").number().between(0.0..=1e12).or(1.0);
    let per_violation = table.key("per_violation").number().between(0.0..=1e12).or(0.0);
    let per = table.key("per").duration().between(second..=second * 31_622_400).or(second);
    let item = |item: crate::reader::Setting<'_>| item.number().between(0.0..=1e12).required();
    let sweep = table.key("sweep").list(item).optional();
    let seconds = per.as_secs_f64();
    let sweep = sweep.unwrap_or_else(|| SWEEP.map(|share| share * per_node).to_vec());
    Cost { prices: Prices { per_node: per_node / seconds, per_violation }, per, sweep }
}

fn today(table: &mut Table<'_>) -> Today {
    let rates = table.key("rates").list(|item| item.rate().between(0.0..=1e9).required());
    let rates: Vec<f64> = rates
        .check("a rate for each shard, 1 to 1024 of them", |rates| {
            (1..=SHARDS_MAX).contains(&rates.len())
        })
        .required();
    let partitions = table.key("partitions").list(|item| item.table(partition).required());
    let partitions = partitions.required();
    if table.is_sound() {
        let mut named = vec![0; rates.len()];
        let all = partitions.iter().flat_map(|partition| &partition.shards);
        let mut unknown = None;
        for &shard in all {
            match named.get_mut(shard) {
                Some(count) => *count += 1,
                None => unknown = Some(shard),
            }
        }
        let known = format!("shards 0 to {}, one for each rate", rates.len().saturating_sub(1));
        if let Some(shard) = unknown {
            table.problem("partitions", Mismatch::new(format!("the shard {shard}"), known));
        } else if let Some(shard) = named.iter().position(|&count| count != 1) {
            let came = format!("the shard {shard} in {} partitions", named[shard]);
            table.problem("partitions", Mismatch::new(came, "every shard in one partition"));
        }
    }
    let rate = |value: f64| Rate::new(value).expect("a rate of the file is one");
    Today { arrangement: Arrangement { partitions }, rates: rates.into_iter().map(rate).collect() }
}

fn partition(table: &mut Table<'_>) -> Partition {
    let shard = |item: crate::reader::Setting<'_>| {
        item.integer::<usize>().between(0..=SHARDS_MAX - 1).required()
    };
    let shards = table.key("shards").list(shard).check("one shard or more", |all| !all.is_empty());
    let duplicates = table.key("duplicates").integer().between(1..=NODES_MAX);
    let duplicates = core::num::NonZeroU32::new(duplicates.or(1));
    let duplicates = duplicates.unwrap_or(core::num::NonZeroU32::MIN);
    Partition { shards: shards.required(), duplicates }
}

fn night(table: &mut Table<'_>) -> NightInput {
    let nodes = table.key("nodes").integer().between(1..=NODES_MAX).required();
    let shards = table.key("shards").integer().between(1..=SHARDS_MAX as u32).or(nodes);
    if table.is_sound() && shards < nodes {
        let came = format!("{shards} shards on {nodes} nodes");
        table.problem("shards", Mismatch::new(came, "at least as many shards as nodes"));
    }
    let most = table.key("duplicates_max").integer().between(1..=NODES_MAX).or(2);
    let day = Duration::from_secs(86_400);
    NightInput {
        nodes,
        shards,
        night_share: table.key("rate_share").probability().or(0.5),
        duplicates_max: most,
        length: table.key("length").duration().between(Duration::from_secs(1)..=day).or(day / 6),
        migration_violations: table
            .key("migration_violations")
            .number()
            .between(0.0..=1e12)
            .or(0.0),
    }
}

#[cfg(test)]
mod tests;
