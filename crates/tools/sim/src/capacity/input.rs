//! What `evenkeel plan capacity` is given: one TOML file, with the files it names beside it.

use std::fmt;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use evenkeel_core::distribution::{Distribution, LogNormal};
use evenkeel_core::units::Rate;
use evenkeel_geo::curve::{LOAD_BIAS_MAX, OBJECTIVE_MAX, ResponseCurves};
use evenkeel_geo::{Elastic, SITES_MAX};
use evenkeel_settings::{Mismatch, Node, Problems, Setting, Table, profile};

use super::curves::Curves;
use super::{ALL_PPM, Capacity, InputError, Prices};
use crate::trace::{
    LogCounter, Made, RateSeries, Split, TraceError, match_days, one_hot, shifting,
};

/// Servers of a site at most.
const SERVERS_MAX: u32 = 10_000;
const DAY: Duration = Duration::from_secs(86_400);
/// How many standard deviations the 95th percentile of a normal distribution lies above its mean.
const NORMAL_P95: f64 = 1.644_853_626_951_472_2;
/// Loads that curves between two given percentiles are made for.
const LOADS: u32 = 128;

impl Capacity {
    /// Loads an input; files it names are looked for in its own folder.
    ///
    /// # Errors
    /// Everything that is wrong with it, each with its place.
    pub fn load(path: &Path) -> Result<Self, Problems> {
        Self::read(&Node::load(path)?, path.parent().unwrap_or(Path::new(".")))
    }

    /// Reads an input; files it names are looked for in `folder`.
    ///
    /// # Errors
    /// Everything that is wrong with it, each with its place.
    pub fn read(node: &Node, folder: &Path) -> Result<Self, Problems> {
        node.read(|root| {
            let (names, round_trips) = root.key("sites").table(sites).required();
            let (objective, target) = root.key("objective").table(objective).required();
            let curves = root.key("curves").table(|table| Shape::read(table, folder)).required();
            let controller = root.key("controller").section(Controller::read);
            let (period, count) = (controller.period, names.len());
            let demand = root.key("trace").table(|table| trace(table, folder, period, count));
            let demand = demand.required();
            let prices = root.key("prices").section(prices);
            let billing = root.key("billing");
            let unit = |item: Setting<'_>| item.duration().between(SECOND..=366 * DAY).required();
            let billing =
                billing.list(unit).check("one billing unit or more", |list| !list.is_empty());
            let billing = billing.or(vec![MINUTE, 60 * MINUTE]);
            let made = root.is_sound().then(|| curves.curves(objective));
            let curves =
                made.and_then(|made| made.map_err(|wrong| root.key("curves").problem(wrong)).ok());
            let stand_in = || ResponseCurves::markov(MINUTE, NonZeroU32::MIN, SECOND);
            let capacity = Self {
                names,
                demand,
                round_trips,
                curves: curves.unwrap_or_else(|| stand_in().expect("a queue that exists")),
                load_bias: controller.load_bias,
                quantum: controller.quantum,
                target_ppm: ppm(target),
                elastic: controller.elastic(target),
                boot: controller.boot,
                prices,
                billing,
            };
            if root.is_sound()
                && let Err(wrong) = capacity.check()
            {
                root.key(wrong.key).problem(Mismatch::new(wrong.came, wrong.expected));
            }
            capacity
        })
    }

    /// Whether the parts fit each other.
    pub(super) fn check(&self) -> Result<(), InputError> {
        let sites = self.demand.sites();
        let demand = RateSeries::new(self.demand.step, self.demand.rates.clone());
        demand.map_err(|error| InputError::new("trace", error.came, error.expected))?;
        if sites > SITES_MAX {
            return Err(InputError::new("sites", sites, format!("at most {SITES_MAX}")));
        }
        let is_square = self.round_trips.iter().all(|row| row.len() == sites);
        if self.names.len() != sites || self.round_trips.len() != sites || !is_square {
            let expected = format!("names and a square of round trips for {sites} sites");
            return Err(InputError::new("sites", "another number", expected));
        }
        let Prices { server_hour, wan_gb, request_bytes } = self.prices;
        if ![server_hour, wan_gb, request_bytes].iter().all(|price| (0.0..=1e12).contains(price)) {
            let came = format!("{:?}", self.prices);
            return Err(InputError::new("prices", came, "numbers from 0 to 1e12"));
        }
        let Elastic { in_ppm, out_ppm, servers_min, servers_max } = self.elastic;
        if in_ppm > out_ppm || servers_min > servers_max || servers_max > SERVERS_MAX {
            let came = format!("{:?}", self.elastic);
            let expected = format!("in <= out and min <= max <= {SERVERS_MAX} servers");
            return Err(InputError::new("controller", came, expected));
        }
        if !(self.load_bias > 0.0 && self.load_bias <= LOAD_BIAS_MAX) {
            return Err(InputError::new("controller", self.load_bias, "a load bias up to 10"));
        }
        Curves::new(self).map(drop)
    }
}

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn ppm(share: f64) -> u32 {
    (share * ALL_PPM).round() as u32
}

fn sites(table: &mut Table<'_>) -> (Vec<String>, Vec<Vec<Duration>>) {
    let names = table.key("names").list(|item| item.text().required());
    let names = names.check("1 to 64 names", |names| (1..=SITES_MAX).contains(&names.len()));
    let names = names.required();
    let trip = |item: Setting<'_>| item.duration().between(Duration::ZERO..=MINUTE).required();
    let row = |row: Setting<'_>| row.list(trip).required();
    let round_trips = table.key("round_trips").list(row).required();
    let count = names.len();
    let is_square = round_trips.len() == count && round_trips.iter().all(|row| row.len() == count);
    if table.is_sound() && !is_square {
        let came = format!("{} rows", round_trips.len());
        let expected = format!("{count} rows of {count} durations: from each site to each");
        table.problem("round_trips", Mismatch::new(came, expected));
    }
    (names, round_trips)
}

fn objective(table: &mut Table<'_>) -> (Duration, f64) {
    let latency = table.key("latency").duration();
    let latency = latency.between(Duration::from_micros(1)..=OBJECTIVE_MAX).required();
    (latency, table.key("violations").probability().or(0.05))
}

fn prices(table: &mut Table<'_>) -> Prices {
    let mut price = |key: &str, default| table.key(key).number().between(0.0..=1e12).or(default);
    Prices {
        server_hour: price("server_hour", 0.133),
        wan_gb: price("wan_gb", 0.01),
        request_bytes: price("request_bytes", 375.0),
    }
}

struct Controller {
    period: Duration,
    boot: Duration,
    scale_in: Option<f64>,
    servers_min: u32,
    servers_max: u32,
    quantum: f64,
    load_bias: f64,
}

impl Controller {
    fn read(table: &mut Table<'_>) -> Self {
        let period = table.key("period").duration().between(SECOND..=DAY).or(MINUTE);
        let boot = table.key("boot").duration().between(Duration::ZERO..=DAY).or(Duration::ZERO);
        let scale_in = table.key("scale_in").probability().optional();
        let servers_min = table.key("servers_min").integer().between(0..=SERVERS_MAX).or(1);
        let servers_max = table.key("servers_max").integer().between(1..=SERVERS_MAX).or(100);
        if table.is_sound() && servers_min > servers_max {
            let expected = format!("at most servers_max, which is {servers_max}");
            table.problem("servers_min", Mismatch::new(servers_min.to_string(), expected));
        }
        let quantum = table.key("quantum").rate().between(1e-6..=1e12).or(100.0);
        let load_bias = table.key("load_bias").number().between(0.01..=LOAD_BIAS_MAX).or(1.0);
        Self { period, boot, scale_in, servers_min, servers_max, quantum, load_bias }
    }

    fn elastic(&self, target: f64) -> Elastic {
        let Self { servers_min, servers_max, .. } = *self;
        let in_ppm = ppm(self.scale_in.unwrap_or(target));
        Elastic { out_ppm: ppm(target), in_ppm, servers_min, servers_max }
    }
}

/// Where curves come from.
enum Shape {
    Profile(PathBuf),
    Queue { servers: NonZeroU32, service: Duration, cv: f64 },
    Percentiles { servers: NonZeroU32, saturation: f64, sigma: f64, points: Vec<(f64, Duration)> },
}

impl Shape {
    fn read(table: &mut Table<'_>, folder: &Path) -> Self {
        let profile = table.key("profile").text().optional();
        if let Some(profile) = profile {
            return Self::Profile(folder.join(profile));
        }
        let servers = table.key("servers").integer().between(1..=SERVERS_MAX).required();
        let servers = NonZeroU32::new(servers).unwrap_or(NonZeroU32::MIN);
        let service = table.key("service").duration().between(Duration::from_nanos(1)..=DAY);
        if let Some(service) = service.optional() {
            let cv = table.key("cv").number().between(0.0..=100.0).or(1.0);
            return Self::Queue { servers, service, cv };
        }
        let saturation = table.key("saturation").rate().between(1e-6..=1e12).required();
        let sigma = table.key("sigma").number().between(0.0..=10.0).required();
        let point = |table: &mut Table<'_>| {
            let load = table.key("load").probability().required();
            (load, table.key("p95").duration().between(Duration::from_nanos(1)..=DAY).required())
        };
        let points = table.key("points").list(|item| item.table(point).required());
        let ascending = |points: &Vec<(f64, Duration)>| {
            !points.is_empty() && points.windows(2).all(|pair| pair[0].0 < pair[1].0)
        };
        let points = points.check("loads with their p95, ascending", ascending).required();
        Self::Percentiles { servers, saturation, sigma, points }
    }

    fn curves(&self, objective: Duration) -> Result<ResponseCurves, Mismatch> {
        let refuse = |error: &dyn fmt::Display| Mismatch::new(error.to_string(), "a usable curve");
        match self {
            Self::Profile(path) => {
                let profile = profile::load(path).map_err(|problems| refuse(&problems))?;
                ResponseCurves::measured(objective, &profile).map_err(|error| refuse(&error))
            }
            Self::Queue { servers, service, cv } if *cv == 1.0 => {
                ResponseCurves::markov(objective, *servers, *service)
                    .map_err(|error| refuse(&error))
            }
            Self::Queue { servers, service, cv } => LogNormal::with_mean_cv(*service, *cv)
                .and_then(|law| ResponseCurves::general(objective, *servers, &law))
                .map_err(|error| refuse(&error)),
            Self::Percentiles { servers, saturation, sigma, points } => {
                percentiles(objective, *servers, *saturation, *sigma, points)
                    .map_err(|error| refuse(&error))
            }
        }
    }
}

/// Lognormal response times of which the 95th percentiles are known at some parts of saturation;
/// between them their logarithm is linear in the load, outside it is that of the nearest.
fn percentiles(
    objective: Duration,
    servers: NonZeroU32,
    saturation: f64,
    sigma: f64,
    points: &[(f64, Duration)],
) -> Result<ResponseCurves, evenkeel_core::units::OutOfRange> {
    let ln_s = |at: &(f64, Duration)| at.1.as_secs_f64().ln();
    let p95_ln_s = |load: f64| {
        let after = points.partition_point(|&(known, _)| known <= load);
        match (after.checked_sub(1).and_then(|at| points.get(at)), points.get(after)) {
            (Some(below), Some(above)) => {
                let part = (load - below.0) / (above.0 - below.0);
                ln_s(below) + part * (ln_s(above) - ln_s(below))
            }
            (Some(only), None) | (None, Some(only)) => ln_s(only),
            (None, None) => 0.0,
        }
    };
    let loads = (0..LOADS).map(|k| f64::from(k) / f64::from(LOADS));
    let law = |load: f64| {
        let median = (p95_ln_s(load) - NORMAL_P95 * sigma).exp();
        let median = Duration::try_from_secs_f64(median).unwrap_or(DAY);
        let law = LogNormal::with_median_sigma(median.max(Duration::from_nanos(1)), sigma)?;
        Ok((Rate::new(load * saturation)?, law))
    };
    let laws = loads.map(law).collect::<Result<Vec<_>, _>>()?;
    let laws: Vec<(Rate, &dyn Distribution)> =
        laws.iter().map(|(load, law)| (*load, law as &dyn Distribution)).collect();
    ResponseCurves::of_laws(objective, servers, Rate::new(saturation)?, &laws)
}

fn trace(table: &mut Table<'_>, folder: &Path, period: Duration, sites: usize) -> RateSeries {
    let stand_in = || RateSeries { step: SECOND, rates: vec![vec![0.0]; sites.max(1)] };
    let source = Source::read(table, folder);
    let scale = table.key("scale").number().between(0.0..=1e9).optional();
    let peak = table.key("peak").rate().optional();
    if scale.is_some() && peak.is_some() {
        table.problem("scale", Mismatch::new("scale and peak", "one of them"));
    }
    let from = table.key("from").duration().or(Duration::ZERO);
    let length = table.key("length").duration().optional();
    if !table.is_sound() {
        return stand_in();
    }
    let made = || {
        let series = source.series(period, sites)?;
        let series = match length {
            Some(length) => series.cut(from, length)?,
            None => series.cut(from, series.duration().saturating_sub(from))?,
        };
        let series = series.in_steps_of(period)?;
        let series = peak.map_or(Ok(series.clone()), |peak| series.with_peak(peak))?;
        let series = series.scaled(scale.unwrap_or(1.0))?;
        if series.sites() == sites {
            return Ok(series);
        }
        let came = format!("{} sites", series.sites());
        Err(TraceError::new("trace", came, format!("{sites}, as sites.names has")))
    };
    made().unwrap_or_else(|error: TraceError| {
        let came = format!("{} at {}", error.came, error.place);
        table.problem(source.key(), Mismatch::new(came, error.expected));
        stand_in()
    })
}

/// Where demand comes from.
enum Source {
    File(PathBuf),
    Total { path: PathBuf, split: Split },
    Logs { paths: Vec<PathBuf>, regions: Vec<usize> },
    Made { shape: Shaped, length: Duration, seed: u64 },
}

type Shaped = fn(&Made) -> Result<RateSeries, TraceError>;

const SHAPES: [(&str, Shaped); 3] =
    [("match-days", match_days), ("one-hot", one_hot), ("shifting", shifting)];

impl Source {
    fn read(table: &mut Table<'_>, folder: &Path) -> Self {
        let seed = table.key("seed").integer().or(1998);
        if let Some(file) = table.key("file").text().optional() {
            return Self::File(folder.join(file));
        }
        if let Some(total) = table.key("total").text().optional() {
            let shift =
                |item: Setting<'_>| item.duration().between(Duration::ZERO..=DAY).required();
            let paper = Split::paper();
            let shifts = table.key("shifts").list(shift).or(paper.shifts);
            let sigma = table.key("sigma").number().between(0.0..=3.0).or(paper.sigma);
            let memory = table.key("memory").duration().between(SECOND..=DAY).or(paper.memory);
            let split = Split { shifts, sigma, memory, seed };
            return Self::Total { path: folder.join(total), split };
        }
        let path = |item: Setting<'_>| folder.join(item.text().required());
        if let Some(paths) = table.key("logs").list(path).optional() {
            let region = |item: Setting<'_>| item.integer().between(0..=3).required();
            let regions = table.key("regions").list(region).or(vec![2, 1, 0]);
            return Self::Logs { paths, regions };
        }
        let shape = table.key("generate").variant(&SHAPES).required();
        let length = table.key("generate_length").duration().between(SECOND..=366 * DAY);
        Self::Made { shape, length: length.or(7 * DAY), seed }
    }

    /// The key that says it.
    fn key(&self) -> &'static str {
        match self {
            Self::File(_) => "file",
            Self::Total { .. } => "total",
            Self::Logs { .. } => "logs",
            Self::Made { .. } => "generate",
        }
    }

    fn series(&self, period: Duration, sites: usize) -> Result<RateSeries, TraceError> {
        match self {
            Self::File(path) => RateSeries::load(path),
            Self::Total { path, split } => split.split(&RateSeries::load(path)?),
            Self::Logs { paths, regions } => {
                let step_s = u32::try_from(period.as_secs()).unwrap_or(u32::MAX);
                let mut counter = LogCounter::new(step_s)?;
                for path in paths {
                    let name = path.display().to_string();
                    let log = std::fs::File::open(path).map_err(|error| {
                        let came = format!("no readable file ({error})");
                        TraceError::new(name.as_str(), came, "a log (is the path right?)")
                    })?;
                    counter.read(&name, log)?;
                }
                counter.series()?.select(regions)
            }
            Self::Made { shape, length, seed } => {
                let steps = (length.as_nanos() / period.as_nanos().max(1)) as usize;
                shape(&Made { sites, step: period, steps, full: 1.0, seed: *seed })
            }
        }
    }
}
