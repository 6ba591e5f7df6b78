//! Data centres: who is where, what lies between them, and how load is shared.

use std::path::Path;
use std::time::Duration;

use evenkeel_geo::demand::forecast::{Choice, Rule};
use evenkeel_settings::{Mismatch, Setting, Table};
use serde::{Serialize, Serializer};

use crate::millis;
use crate::scenario::priced::unknown_site;
use crate::scenario::{HOUR, Prices, SERVERS_MAX, Scenario, Surge};
use crate::trace::{Made, RateSeries, Split, match_days, one_hot, shifting};

/// A data centre, whose users send their requests to its clients.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Site {
    /// Its name.
    pub name: String,
    /// Its replicas, each as `[cluster]` says.
    pub servers: usize,
    /// Its clients (proxies), each with a dispatcher and a splitter of its own.
    pub clients: usize,
    /// Its part of a demand that does not vary, relative to the others' parts.
    pub share: f64,
}

/// The way between two data centres.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WanWay {
    /// The two, by name.
    pub between: [String; 2],
    /// The shortest and the longest base round trip.
    #[serde(skip)]
    pub rtt: [Duration; 2],
}

/// What lies between data centres.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Wan {
    /// Base round trips; every pair has one.
    pub ways: Vec<WanWay>,
    /// Mean of what a round trip takes beyond its base: an exponential part in either direction.
    #[serde(with = "millis", rename = "residual_ms")]
    pub residual: Duration,
    /// Mean time after which a way is routed anew; zero: it stays in the middle of its range.
    #[serde(with = "millis", rename = "reroute_every_ms")]
    pub reroute_every: Duration,
}

/// How demand varies over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "shape")]
pub enum Series {
    /// Not at all: sites have their shares of the workload's rate.
    Even,
    /// One site is hot, like the paper's Trace-1.
    OneHot {
        /// The load that counts as full, as a share of what a site can serve.
        full: f64,
        /// Equal seeds make equal series, whatever the seed of the run.
        seed: u64,
    },
    /// Spare capacity is scarce and shifts, like the paper's Trace-2.
    Shifting {
        /// As above.
        full: f64,
        /// As above.
        seed: u64,
    },
    /// A steady total, whose parts drift: who is hot changes all the time.
    Drifting {
        /// Mean load of a site, as a share of what it can serve.
        full: f64,
        /// Standard deviation of the logarithm of a site's part.
        sigma: f64,
        /// The time after which a part remembers 1/e of its deviation.
        #[serde(with = "millis", rename = "memory_ms")]
        memory: Duration,
        /// As above.
        seed: u64,
    },
    /// The hours from eight in the morning of a made-up day ([`match_days`]), a minute of them in
    /// each 2.5 s.
    Day {
        /// Mean load of all sites together, as a share of what they can serve.
        full: f64,
        /// As above.
        seed: u64,
    },
    /// From a file, see [`RateSeries::read`].
    File {
        /// Its name.
        file: String,
        /// The highest rate of any site, as a share of what the first can serve.
        full: f64,
    },
}

/// How load is shared between data centres.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Redirect {
    /// Time between two plans.
    #[serde(with = "millis", rename = "period_ms")]
    pub period: Duration,
    /// The least amount that is redirected, as a share of the largest site's capacity.
    pub quantum: f64,
    /// Demand is the mean over this time.
    #[serde(with = "millis", rename = "demand_over_ms")]
    pub demand_over: Duration,
    /// How our own plans are told the demand of the next period from that.
    #[serde(serialize_with = "forecast_name")]
    pub forecast: Choice,
    /// The share of violations that plans of least cost allow every site.
    pub target: f64,
    /// Base round trips are rounded to this before they are told; zero: they are not.
    #[serde(with = "millis", rename = "rtt_step_ms")]
    pub rtt_step: Duration,
    /// Whether sites watch their own curves and replace those that no longer hold.
    pub watch: bool,
    /// Whether sites learn how their curves differ from their profiles.
    pub learn: bool,
    /// Whether sites have profiles; without any their curves are a guess.
    pub profiled: bool,
    /// The share of an origin's demand by which DNS changes what is redirected, per second.
    pub sticky_per_s: f64,
    /// How often the planner that follows the time of day plans.
    #[serde(with = "millis", rename = "slow_period_ms")]
    pub slow_period: Duration,
    /// Requests of each load step of the profile.
    pub profile_requests: u64,
    /// How many times the load that it serves a site is believed to serve: 1 where the profile is
    /// right.
    pub profile_scale: f64,
}

fn forecast(setting: Setting<'_>) -> Choice {
    let rules = Rule::ALL.map(Choice::Fixed).into_iter().chain([Choice::Tested]);
    let named: Vec<_> = rules.map(|choice| (choice.name(), choice)).collect();
    setting.variant(&named).or(Choice::Tested)
}

fn forecast_name<S: Serializer>(choice: &Choice, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(choice.name())
}

/// All that a scenario says of data centres.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Geography {
    /// The data centres.
    pub sites: Vec<Site>,
    /// What lies between them.
    pub wan: Wan,
    /// How load is shared.
    pub redirect: Redirect,
    /// How demand varies.
    pub series: Series,
    /// What comes on top of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub surges: Vec<Surge>,
    /// What things cost, where that is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prices: Option<Prices>,
    /// The rates of each site, made from it.
    #[serde(skip)]
    pub rates: Option<RateSeries>,
}

/// Data centres at most.
const SITES_MAX: usize = 64;
const MINUTE: Duration = Duration::from_secs(60);

impl Geography {
    /// Reads `[[sites]]` and what belongs to them; `None` when there are none.
    pub(super) fn read(root: &mut Table<'_>) -> Option<Self> {
        let setting = root.key("sites");
        if setting.value().is_none() {
            let expected = "sites too, such as [[sites]] with a name and servers";
            for key in ["wan", "redirect", "series", "surges", "prices"] {
                if root.key(key).value().is_some() {
                    root.problem(key, Mismatch::new(format!("{key} without sites"), expected));
                }
            }
            return None;
        }
        let sites = setting.list(|item| item.table(Site::read).required());
        let expected = "2 to 64 data centres of different names";
        let sites = sites.check(expected, |sites| {
            let mut names: Vec<_> = sites.iter().map(|site| &site.name).collect();
            names.sort_unstable();
            names.dedup();
            names.len() == sites.len() && (2..=SITES_MAX).contains(&sites.len())
        });
        let geography = Self {
            sites: sites.or(Vec::new()),
            wan: root.key("wan").section(Wan::read),
            redirect: root.key("redirect").section(Redirect::read),
            series: root.key("series").section(Series::read),
            surges: root
                .key("surges")
                .list(|item| item.table(Surge::read).required())
                .or(Vec::new()),
            prices: {
                let prices = root.key("prices");
                prices.value().is_some().then(|| prices.table(Prices::read).required())
            },
            rates: None,
        };
        geography.check_ways(root);
        Some(geography)
    }

    fn check_ways(&self, root: &mut Table<'_>) {
        if !root.is_sound() {
            return;
        }
        for way in &self.wan.ways {
            for name in &way.between {
                if self.place(name).is_none() {
                    let known: Vec<_> = self.sites.iter().map(|site| site.name.as_str()).collect();
                    let what = Mismatch::new(format!("{name:?}"), known.join(" or "));
                    root.problem("wan", what);
                }
            }
        }
        for surge in &self.surges {
            if self.place(&surge.site).is_none() {
                root.problem("surges", unknown_site(surge));
            }
            if self.series == Series::Even {
                let expected = "a series that has steps: its shape is even";
                root.problem("surges", Mismatch::new("a surge", expected));
            }
        }
        for (from, site) in self.sites.iter().enumerate() {
            for (to, other) in self.sites.iter().enumerate().skip(from + 1) {
                if self.round_trip(from, to).is_none() {
                    let came = format!("no way between {} and {}", site.name, other.name);
                    root.problem("wan", Mismatch::new(came, "a way for each pair of sites"));
                }
            }
        }
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.sites.iter().position(|site| site.name == name)
    }

    /// The shortest and the longest base round trip between two sites.
    pub fn round_trip(&self, from: usize, to: usize) -> Option<[Duration; 2]> {
        let names = [&self.sites.get(from)?.name, &self.sites.get(to)?.name];
        let is_between = |way: &&WanWay| {
            let [a, b] = &way.between;
            [a, b] == names || [b, a] == names
        };
        self.wan.ways.iter().find(is_between).map(|way| way.rtt)
    }

    /// Replicas of all sites.
    pub fn servers(&self) -> usize {
        self.sites.iter().map(|site| site.servers).sum()
    }

    /// Clients of all sites.
    pub fn clients(&self) -> usize {
        self.sites.iter().map(|site| site.clients).sum()
    }
}

/// What follows from the data centres for the rest of the scenario.
impl Scenario {
    /// Makes the rates and counts the requests.
    pub(super) fn resolve_sites(&mut self, root: &mut Table<'_>) {
        let Some(geography) = &self.geography else { return };
        if !root.is_sound() {
            return;
        }
        self.cluster.servers = geography.servers();
        self.cluster.replication_factor = 1;
        self.workload.clients = geography.clients();
        if geography.series == Series::Even {
            return;
        }
        let length = self.workload.duration.unwrap_or(30 * MINUTE);
        let server = self.capacity() / geography.servers() as f64;
        let full = server * geography.sites[0].servers as f64;
        match geography.series.made(geography.sites.len(), full, length) {
            Err(problem) => {
                let came = format!("{}: {}", problem.place, problem.came);
                root.problem("series", Mismatch::new(came, problem.expected));
            }
            Ok(mut rates) => {
                for surge in &geography.surges {
                    let site = geography.place(&surge.site);
                    let steps = site.map(|site| surge.apply(site, &mut rates));
                    // One behind the end of a run that was made shorter is as a fault there.
                    if steps == Some(0) && surge.at < rates.duration() {
                        root.problem("surges", surge.without_steps(rates.step));
                    }
                }
                let sum = rates.mean_total() * rates.duration().as_secs_f64();
                self.workload.duration = None;
                self.workload.rate = Some(rates.mean_total());
                self.workload.requests = (sum.round() as u64).max(1);
                if let Some(geography) = &mut self.geography {
                    geography.rates = Some(rates);
                }
            }
        }
    }

    /// What does not go together with data centres.
    pub(super) fn check_sites(&self, root: &mut Table<'_>) {
        let has_sites = self.geography.is_some();
        for policy in &self.run.policies {
            if super::Spelling::of(policy).sharing.is_some() && !has_sites {
                let expected = "sites too: there is nothing to share load between";
                root.problem("run.policies", Mismatch::new(format!("{policy:?}"), expected));
            }
        }
        if !has_sites {
            return;
        }
        let workload = &self.workload;
        let has_phases = workload.phases.iter().any(|phase| phase.clients_join > 0);
        let without = "none of it where there are sites";
        for (key, is_there) in [
            ("workload.read_repair", workload.read_repair > 0.0),
            ("workload.workers", workload.workers > 1),
            ("workload.writes", workload.writes > 0.0),
            ("workload.skew", workload.skew > 0.0),
            ("workload.phases", has_phases),
        ] {
            if is_there {
                root.problem(key, Mismatch::new("a value", without));
            }
        }
        let is_alike = self.replicas.windows(2).all(|two| two[0] == two[1]);
        let has_some = !self.replicas.is_empty();
        if has_some && !(is_alike && self.replicas.len() == self.cluster.servers) {
            let came = format!("{} replicas beside sites", self.replicas.len());
            let expected = "one, which each server of each site is like";
            root.problem("replicas", Mismatch::new(came, expected));
        }
        let is_priced = self.geography.as_ref().is_some_and(|it| it.prices.is_some());
        if is_priced && !has_some {
            let expected =
                "replicas with `work` too: others leave no content out and count no copies";
            root.problem("prices", Mismatch::new("prices without replicas", expected));
        }
        if workload.objective.is_zero() {
            let expected = "an objective, which requests miss or not, such as \"30ms\"";
            root.problem("workload", Mismatch::new("no objective", expected));
        }
    }
}

impl Site {
    fn read(table: &mut Table<'_>) -> Self {
        Self {
            name: table.key("name").text().required(),
            servers: table.key("servers").integer().between(1..=SERVERS_MAX).or(5),
            clients: table.key("clients").integer().between(1..=1_000).or(2),
            share: table.key("share").number().between(0.0..=1e6).or(1.0),
        }
    }
}

impl Wan {
    fn read(table: &mut Table<'_>) -> Self {
        let ways = table.key("ways").list(|item| item.table(WanWay::read).required());
        let residual = table.key("residual").duration().between(Duration::ZERO..=MINUTE);
        Self {
            ways: ways.required(),
            residual: residual.or(Duration::from_micros(500)),
            reroute_every: table
                .key("reroute_every")
                .duration()
                .between(Duration::ZERO..=HOUR)
                .or(Duration::ZERO),
        }
    }
}

impl WanWay {
    fn read(table: &mut Table<'_>) -> Self {
        let two = |item: Setting<'_>| item.text().required();
        let names = table.key("between").list(two);
        let names = names.check("the names of two sites", |names| names.len() == 2).required();
        let shortest = Duration::from_micros(10);
        let rtt = |item: Setting<'_>| item.duration().between(shortest..=MINUTE).required();
        let range = table.key("rtt").list(rtt);
        let expected = "the shortest and the longest round trip, such as [\"9ms\", \"10ms\"]";
        let range = range.check(expected, |range| range.len() == 2 && range[0] <= range[1]);
        let (names, range) = (names, range.required());
        let name = |n: usize| names.get(n).cloned().unwrap_or_default();
        let end = |n: usize| range.get(n).copied().unwrap_or(shortest);
        Self { between: [name(0), name(1)], rtt: [end(0), end(1)] }
    }
}

impl Series {
    fn read(table: &mut Table<'_>) -> Self {
        let shapes = ["even", "one-hot", "shifting", "drifting", "day", "file"];
        let shape = table.key("shape").choice(&shapes).or("even");
        let full = table.key("full").number().between(1e-3..=100.0).or(0.7);
        let seed = table.key("seed").integer().between(0..=u64::MAX).or(1);
        let file = table.key("file").text().optional();
        let sigma = table.key("sigma").number().between(0.0..=3.0).or(0.25);
        let second = Duration::from_secs(1);
        let memory = table.key("memory").duration().between(second..=HOUR).or(MINUTE);
        match (shape, file) {
            ("one-hot", _) => Self::OneHot { full, seed },
            ("shifting", _) => Self::Shifting { full, seed },
            ("drifting", _) => Self::Drifting { full, sigma, memory, seed },
            ("day", _) => Self::Day { full, seed },
            ("file", Some(file)) => Self::File { file, full },
            ("file", None) => {
                table.problem("file", Mismatch::new("nothing", "the name of a CSV file of rates"));
                Self::Even
            }
            _ => Self::Even,
        }
    }

    /// The rates of this many sites, the first of which can serve so many requests per second.
    fn made(
        &self,
        sites: usize,
        capacity: f64,
        length: Duration,
    ) -> Result<RateSeries, crate::trace::TraceError> {
        let step = Duration::from_secs(1);
        let steps = (length.as_secs_f64().ceil() as usize).max(1);
        let of = |full: f64, seed: u64| Made { sites, step, steps, full: full * capacity, seed };
        match self {
            Self::Even => RateSeries::new(step, vec![vec![capacity; steps]; sites]),
            Self::OneHot { full, seed } => one_hot(&of(*full, *seed)),
            Self::Shifting { full, seed } => shifting(&of(*full, *seed)),
            Self::Drifting { full, sigma, memory, seed } => {
                let (sigma, memory, seed) = (*sigma, *memory, *seed);
                let split = Split { shifts: vec![Duration::ZERO; sites], sigma, memory, seed };
                let total = full * capacity * sites as f64;
                split.split(&RateSeries::new(step, vec![vec![total; steps]])?)
            }
            Self::Day { full, seed } => {
                let step = Duration::from_millis(2_500);
                let (minute, morning) = (MINUTE, 8 * 60);
                let steps = length.as_nanos().div_ceil(step.as_nanos()).max(1) as usize;
                let made =
                    Made { sites, step: minute, steps: morning + steps, full: 1.0, seed: *seed };
                let hours = match_days(&made)?.cut(8 * HOUR, minute * steps as u32)?;
                let mean = hours.mean_total() / sites as f64;
                RateSeries::new(step, hours.scaled(full * capacity / mean)?.rates)
            }
            Self::File { file, full } => {
                let series = RateSeries::load(Path::new(file))?;
                let series = series.select(&(0..sites).collect::<Vec<_>>())?;
                let length = length.min(series.duration());
                series.cut(Duration::ZERO, length)?.with_peak(full * capacity)
            }
        }
    }
}

impl Redirect {
    fn read(table: &mut Table<'_>) -> Self {
        let least = Duration::from_millis(100);
        let duration = |setting: Setting<'_>, least, default_ms| {
            let default = Duration::from_millis(default_ms);
            setting.duration().between(least..=HOUR).or(default)
        };
        Self {
            period: duration(table.key("period"), least, 2_500),
            quantum: table.key("quantum").number().between(1e-4..=0.5).or(0.01),
            demand_over: duration(table.key("demand_over"), least, 5_000),
            forecast: forecast(table.key("forecast")),
            target: table.key("target").probability().or(0.05),
            rtt_step: duration(table.key("rtt_step"), Duration::ZERO, 0),
            watch: table.key("watch").boolean().or(false),
            learn: table.key("learn").boolean().or(false),
            profiled: table.key("profiled").boolean().or(true),
            sticky_per_s: table.key("sticky_per_s").probability().or(0.013),
            slow_period: duration(table.key("slow_period"), least, 600_000),
            profile_requests: table
                .key("profile_requests")
                .integer()
                .between(1_000..=1_000_000_000)
                .or(150_000),
            profile_scale: table.key("profile_scale").number().between(0.1..=10.0).or(1.0),
        }
    }
}
