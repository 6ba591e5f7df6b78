//! From what all sites told to what each of them does: one [`Snapshot`] in, one [`Plan`] out.
//!
//! Signal: the rows of an epoch (demand, capacity, ways, versions of curves) and the curves that
//! every site was given beforehand. Nothing else: no clock, no plan before this one, no random
//! number, so that sites with the same snapshot have the same plan. What a plan may not go by is
//! left out on purpose: work, utilisation and latency as measured follow what was redirected
//! before, and loops that plan from them swing or starve the dimmer (`research/joint.md`, section
//! 4, of Evenkeel's design). Demand is counted where it arrives, in full requests.
//!
//! | file | does |
//! |---|---|
//! | this file | what is to be planned, and [`Planner::plan`] from top to bottom |
//! | `inflow` | what a plan brings a site beyond the one before it |
//! | `inputs` | rows and curves → quanta and tables: the [`Problem`] |
//! | `outcome` | the [`Plan`]: a row for every site, and why |
//! | `priced` | the same with dimmers and hedges, by price |
//! | `settings` | what must be set alike at all sites, one by one |
//!
//! **Quantum.** One for all sites, since quanta of one are load of another: a share of the largest
//! capacity, 1 % unless said, in whole requests per 1,000 s (Kurma, section 5.2, leaves open of
//! which data centre). Where that is too coarse for the smallest site with demand, so much less
//! that it has [`QUANTA_MIN`], as far as the solver takes so many. Demand counts in whole quanta,
//! rounded up; curves are asked about the load without what was added, so that a site alone is
//! planned as it is. What is redirected is whole quanta, and the rest of the demand stays local.
//!
//! **Bounds.** A profile, or the number of replicas in a row, may be wrong by any factor. No site
//! is sent requests beyond [`PlannerConfig::growth`] times what it was lately seen to serve in
//! time, by those whose requests these were; where little was seen yet, beyond a twentieth of all
//! demand. So what is sent grows from epoch to epoch, as long as it is served in time.
//!
//! **Who takes part.** Members of the snapshot. A site that is down sends and receives nothing,
//! one without replicas sends and receives nothing of others', and a pair whose way nobody heard
//! carries nothing.
//!
//! **Prices.** The question is asked in violations; what it costs to cross the WAN is a price per
//! pair ([`PlannerConfig::prices`]). Curves in other units, of violations and lost content and
//! copies together, can be put in their place: the solver asks only that they do not fall.
//!
//! **When it misleads.** Demand is a mean over the past: a surge is planned for an epoch later, and
//! meanwhile the splitter's cap protects who receives. Curves are steady states.

mod inflow;
mod inputs;
mod outcome;
mod priced;
mod settings;

#[cfg(test)]
mod tests;

use core::fmt;
use core::num::NonZeroU32;

use super::curve::{Conditions, LOAD_BIAS, LOAD_BIAS_MAX, ROUND_TRIPS_MAX, ResponseCurves};
use super::epoch::{RATE_MAX, SiteId, Snapshot, StableHash};
use super::learnt::Learnt;
use super::question::{Objective, Target};
use super::{
    ALL_PPM, Effort, OVERLOAD_PPM_MAX, Overload, PRICE_MAX, Problem, Question, SITES_MAX,
    WEIGHT_MAX, solve,
};
use evenkeel_core::time::{Duration, nanos};
use evenkeel_core::units::{OutOfRange, Probability, Weight};

pub use inflow::Inflows;
use inputs::Inputs;
pub use outcome::Plan;
use priced::ByPrice;
pub(crate) use priced::Came;
pub use priced::Pricing;
pub use settings::Setting;

/// Goes into every fingerprint: sites whose planners compute differently must not plan together.
const VERSION: u64 = 5;
/// Quanta of the smallest site with demand, if the solver takes so many.
pub const QUANTA_MIN: u64 = 20;
/// Requests per second that no server serves: where a profile says so, its unit is wrong.
pub const SERVER_RATE_MAX: f64 = 1e7;
/// The longest period whose parts are spent on a search.
const SEARCHED_MAX: Duration = Duration::from_secs(10);
/// Versions of one site's curves at most.
pub const CURVE_VERSIONS_MAX: usize = 256;

/// Requests of one size, and how long a site takes for them.
#[derive(Clone, PartialEq, Debug)]
pub struct SizeClass {
    /// How many of all requests are of this size.
    pub weight: Weight,
    /// Response times inside the site.
    pub curves: ResponseCurves,
    /// Round trips one takes when it is redirected, 1 to [`ROUND_TRIPS_MAX`].
    pub round_trips: u32,
}

/// The curves of one site, by [`curve_version`](super::epoch::Report::curve_version): the profile
/// first, then what may replace it while something interferes.
#[derive(Clone, PartialEq, Debug)]
pub struct SiteCurves {
    /// Each version has one or more classes of sizes.
    pub versions: Vec<Vec<SizeClass>>,
}

impl SiteCurves {
    /// The curve of a site of which nobody knows anything but the objective: every server is taken
    /// to serve one request at a time, each in an eighth of the objective. Only with a
    /// [`Learner`](super::curve::Learner) of a [`Guess`](super::curve::Prior::Guess) is that a
    /// curve to plan with.
    ///
    /// # Errors
    /// When the objective is less than 8 ns or longer than an hour.
    pub fn guess(objective: Duration) -> Result<Self, OutOfRange> {
        let one = NonZeroU32::MIN;
        Ok(Self::single(ResponseCurves::markov(objective, one, objective / 8)?))
    }

    /// One class of sizes and nothing to replace it.
    pub fn single(curves: ResponseCurves) -> Self {
        Self::of_versions([curves])
    }

    /// One class of sizes, the first curves until something interferes.
    pub fn of_versions(versions: impl IntoIterator<Item = ResponseCurves>) -> Self {
        let weight = Weight::new(1.0).expect("1 is a weight");
        let class = |curves| vec![SizeClass { weight, curves, round_trips: 1 }];
        Self { versions: versions.into_iter().map(class).collect() }
    }
}

/// What is to be small.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Aim {
    /// Violations of all sites together (KurmaPerf, eq. 1).
    Violations,
    /// What is redirected, while no site misses the objective for more than this part of its
    /// users' requests (KurmaCost, eq. 2).
    Cost {
        /// Parts per million.
        target_ppm: u32,
    },
    /// What is redirected, while all sites together miss it for no more than this part (footnote
    /// 6).
    GlobalCost {
        /// Parts per million of the weighted demand.
        target_ppm: u32,
        /// By site, at most [`WEIGHT_MAX`].
        weights: Vec<u32>,
    },
}

/// Where writes are served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Writes {
    /// Where any request is: redirected like reads.
    #[default]
    Redirected,
    /// At every site: a replicated store. Only reads are redirected, writes are there in any case.
    Everywhere,
    /// Where they come. Only reads are redirected, and no site sends more than its reads.
    Home,
}

/// How to plan. All sites must be set alike; [`Planner::fingerprint`] tells when they are not.
#[derive(Clone, PartialEq, Debug)]
pub struct PlannerConfig {
    /// What is to be small; default violations.
    pub aim: Aim,
    /// Whether a site may send requests away while it serves others'; default no.
    pub relay: bool,
    /// What a load beyond saturation means; default [`Overload::Capped`]: what nobody can serve
    /// in time stays where it came, for the dimmer there.
    pub overload: Overload,
    /// The quantum, in parts per million of the largest capacity; default 1 %.
    pub quantum_ppm: u32,
    /// How many times what it was seen to serve in time a site may be given, others' requests
    /// included; default 4. `None`: as much as its curves say.
    pub growth: Option<u32>,
    /// How many times a load is assumed to weigh; default [`LOAD_BIAS`].
    pub load_bias: f64,
    /// How long a plan lasts: a backlog is served within it; default 2.5 s.
    pub period: Duration,
    /// Where writes are served.
    pub writes: Writes,
    /// What one redirected quantum costs, `[origin][destination]`; default 1 for every pair. Of
    /// interest to an aim of cost only.
    pub prices: Option<Vec<Vec<u32>>>,
    /// How much of an origin's demand may be served at a destination, `[origin][destination]`,
    /// in parts per million: partial replication; default all of it.
    pub limits_ppm: Option<Vec<Vec<u32>>>,
    /// How long to search. Its tolerance is added to one request in a million.
    pub effort: Effort,
}

impl PlannerConfig {
    /// The defaults for this period. The search may take a fifth of it on a slow core, and is
    /// content with one request in a million after a fiftieth; a period above 10 s buys no more:
    /// the demand that is planned for ages meanwhile, and what is searched must be kept.
    pub fn new(period: Duration) -> Self {
        let searched = nanos(period.min(SEARCHED_MAX));
        let effort = Effort { work_max: searched / 5, work_exact: searched / 50, tolerance: 0 };
        Self {
            aim: Aim::Violations,
            relay: false,
            overload: Overload::Capped,
            quantum_ppm: 10_000,
            growth: Some(4),
            load_bias: LOAD_BIAS,
            period,
            writes: Writes::default(),
            prices: None,
            limits_ppm: None,
            effort,
        }
    }

    fn check(&self, sites: usize) -> Result<(), PlannerError> {
        let wrong =
            |place: &str, came: f64, expected| Err(PlannerError::new(place, came, expected));
        if !(1..=ALL_PPM).contains(&self.quantum_ppm) {
            let expected = "1 to 1000000 parts per million of the largest capacity";
            return wrong("quantum", self.quantum_ppm.into(), expected);
        }
        if self.period.is_zero() {
            return wrong("period", 0.0, "a time above zero");
        }
        if !(self.load_bias > 0.0 && self.load_bias <= LOAD_BIAS_MAX) {
            return wrong("load bias", self.load_bias, "above 0 and at most 10");
        }
        if let Overload::Priced(ppm) = self.overload
            && ppm > OVERLOAD_PPM_MAX
        {
            return wrong("overload price", ppm.into(), "at most 100000 parts per million");
        }
        match &self.aim {
            Aim::GlobalCost { weights, .. } if weights.len() != sites => {
                return wrong("weights", weights.len() as f64, "one for each site");
            }
            Aim::GlobalCost { weights, .. } if weights.iter().any(|&w| w > WEIGHT_MAX) => {
                let highest = weights.iter().copied().max().unwrap_or_default();
                return wrong("weights", highest.into(), "at most 1000");
            }
            _ => {}
        }
        let prices = check_square("prices", sites, self.prices.as_deref(), PRICE_MAX);
        prices.and_then(|()| check_square("limits", sites, self.limits_ppm.as_deref(), ALL_PPM))
    }
}

fn check_square(
    place: &str,
    sites: usize,
    rows: Option<&[Vec<u32>]>,
    most: u32,
) -> Result<(), PlannerError> {
    let Some(rows) = rows else { return Ok(()) };
    if rows.len() != sites || rows.iter().any(|row| row.len() != sites) {
        let expected = "a row and a column for each site";
        return Err(PlannerError::new(place, rows.len() as f64, expected));
    }
    match rows.iter().flatten().find(|&&value| value > most) {
        Some(&value) => Err(PlannerError::new(
            place,
            value.into(),
            match most {
                PRICE_MAX => "at most 10000",
                _ => "at most 1000000 parts per million",
            },
        )),
        None => Ok(()),
    }
}

/// Why nothing can be planned with these settings.
#[derive(Clone, PartialEq, Debug)]
pub struct PlannerError {
    /// Which setting.
    pub place: String,
    /// The site whose curves it is about, if it is.
    pub site: Option<SiteId>,
    /// What came there and what was expected.
    pub source: OutOfRange,
}

impl PlannerError {
    fn new(place: impl Into<String>, came: f64, expected: &'static str) -> Self {
        Self { place: place.into(), site: None, source: OutOfRange { came, expected } }
    }

    fn of_site(self, site: usize) -> Self {
        Self { site: Some(SiteId::new(site)), ..self }
    }
}

impl fmt::Display for PlannerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.source)
    }
}

impl std::error::Error for PlannerError {}

/// Plans for all sites, the same at each of them.
#[derive(Clone, Debug)]
pub struct Planner {
    config: PlannerConfig,
    sites: Vec<SiteCurves>,
    by_price: Option<ByPrice>,
}

impl Planner {
    /// A planner for these sites, in the order of their numbers.
    ///
    /// # Errors
    /// When there are no sites or more than [`SITES_MAX`], one has no curves, more than
    /// [`CURVE_VERSIONS_MAX`] versions or classes without weight, curves are for different
    /// objectives, or a setting is out of its range.
    pub fn new(config: PlannerConfig, sites: Vec<SiteCurves>) -> Result<Self, PlannerError> {
        if !(1..=SITES_MAX).contains(&sites.len()) {
            return Err(PlannerError::new("sites", sites.len() as f64, "1 to 64 sites"));
        }
        config.check(sites.len())?;
        let mut objective = None;
        for (site, curves) in sites.iter().enumerate() {
            let place = format!("curves of site {site}");
            curves.check(&place, &mut objective).map_err(|error| error.of_site(site))?;
        }
        Ok(Self { config, sites, by_price: None })
    }

    /// How it plans.
    pub fn config(&self) -> &PlannerConfig {
        &self.config
    }

    /// The curves of a site.
    ///
    /// # Panics
    /// When there is no such site.
    pub fn curves(&self, site: SiteId) -> &SiteCurves {
        &self.sites[site.index()]
    }

    /// What of it must be the same at all sites: settings, curves, and how this release computes.
    /// For [`EpochConfig::settings`](super::epoch::EpochConfig::settings).
    pub fn fingerprint(&self) -> u32 {
        let mut hash = StableHash::default();
        hash.number(VERSION);
        self.config.fingerprint(&mut hash);
        self.sites.iter().for_each(|site| site.fingerprint(&mut hash));
        if let Some(by_price) = &self.by_price {
            by_price.fingerprint(&mut hash);
            (0..self.sites.len()).for_each(|site| by_price.site_fingerprint(site, &mut hash));
        }
        let hash = hash.finish();
        (hash ^ (hash >> 32)) as u32
    }

    /// The full requests that so many servers of a site serve at most, in requests per 1,000 s:
    /// what it reports as its capacity. With an unknown version nothing is promised.
    pub fn capacity_per_1000_s(
        &self,
        site: SiteId,
        (version, learnt): (u32, Learnt),
        writes: Probability,
        servers: u32,
    ) -> u64 {
        let of_one = self.of_one_server(site.index(), version, writes) * learnt.scale();
        ((f64::from(servers) * of_one * 1e3).round() as u64).min(RATE_MAX)
    }

    /// The plan of an epoch.
    ///
    /// # Panics
    /// When the snapshot is of another number of sites: the exchange was set up with ours.
    #[must_use]
    pub fn plan(&self, snapshot: &Snapshot) -> Plan {
        assert_eq!(snapshot.sites.len(), self.sites.len(), "a snapshot of other sites");
        let inputs = Inputs::new(self, snapshot);
        let problem = inputs.problem(self, snapshot);
        if let Some(by_price) = &self.by_price {
            let planned = by_price.plan(snapshot, &inputs, &problem);
            return Plan::new(snapshot, inputs, problem, planned.answer.clone()).at(planned);
        }
        self.answered(snapshot, inputs, problem)
    }

    /// The plan of an epoch by the aim alone, also where plans are by price: redirects in a loop of
    /// their own.
    pub(crate) fn plan_by_aim(&self, snapshot: &Snapshot) -> Plan {
        let inputs = Inputs::new(self, snapshot);
        let problem = inputs.problem(self, snapshot);
        self.answered(snapshot, inputs, problem)
    }

    fn answered(&self, snapshot: &Snapshot, inputs: Inputs, problem: Problem) -> Plan {
        let question = self.question(problem.demand_total());
        let answer = solve(&problem, &question).expect("settings were checked for these sites");
        Plan::new(snapshot, inputs, problem, answer)
    }

    fn question(&self, demand_total: u32) -> Question {
        let objective = match &self.config.aim {
            Aim::Violations => Objective::Violations,
            Aim::Cost { target_ppm } => {
                Objective::Cost(Target::Local(vec![(*target_ppm).min(ALL_PPM); self.sites.len()]))
            }
            Aim::GlobalCost { target_ppm, weights } => {
                let ppm = (*target_ppm).min(ALL_PPM);
                Objective::Cost(Target::Global { ppm, weights: weights.clone() })
            }
        };
        let tolerance = self.config.effort.tolerance.saturating_add(demand_total.into());
        Question {
            objective,
            relay: self.config.relay,
            overload: self.config.overload,
            effort: Effort { tolerance, ..self.config.effort },
        }
    }

    /// Requests per second that saturate one server of a site; zero when the version is unknown.
    fn of_one_server(&self, site: usize, version: u32, writes: Probability) -> f64 {
        let Some(classes) = self.sites[site].versions.get(version as usize) else { return 0.0 };
        let least =
            classes.iter().map(|class| class.curves.saturation(writes) / class.curves.servers());
        least.fold(f64::INFINITY, f64::min)
    }
}

impl SiteCurves {
    /// `objective` is that of the curves that came before, in milliseconds.
    fn check(&self, place: &str, objective: &mut Option<f64>) -> Result<(), PlannerError> {
        let wrong = |came: f64, expected| Err(PlannerError::new(place, came, expected));
        let versions = self.versions.len();
        if !(1..=CURVE_VERSIONS_MAX).contains(&versions) {
            return wrong(versions as f64, "1 to 256 versions");
        }
        for class in self.versions.iter().flatten() {
            let ms = nanos(class.curves.objective()) as f64 * 1e-6;
            if *objective.get_or_insert(ms) != ms {
                return wrong(ms, "the objective (ms) of all other curves");
            }
            let per_server = class.curves.saturation(Probability::ZERO) / class.curves.servers();
            if !(0.0..=SERVER_RATE_MAX).contains(&per_server) {
                let expected = "at most 10000000 requests/s of one server (is it another unit?)";
                return wrong(per_server, expected);
            }
            if !(1..=ROUND_TRIPS_MAX).contains(&class.round_trips) {
                return wrong(class.round_trips.into(), "1 to 16 round trips");
            }
        }
        let weight = |classes: &Vec<SizeClass>| -> f64 {
            classes.iter().map(|class| class.weight.value()).sum()
        };
        match self.versions.iter().map(weight).find(|sum| *sum <= 0.0) {
            Some(none) => wrong(none, "a weight above zero in each version"),
            None => Ok(()),
        }
    }

    fn fingerprint(&self, hash: &mut StableHash) {
        hash.number(self.versions.len() as u64);
        for classes in &self.versions {
            hash.number(classes.len() as u64);
            for class in classes {
                hash.number(class.weight.value().to_bits());
                hash.number(class.round_trips.into());
                class.curves.fingerprint(hash);
            }
        }
    }
}

impl PlannerConfig {
    fn fingerprint(&self, hash: &mut StableHash) {
        match &self.aim {
            Aim::Violations => hash.number(0),
            Aim::Cost { target_ppm } => {
                hash.number(1);
                hash.number((*target_ppm).into());
            }
            Aim::GlobalCost { target_ppm, weights } => {
                hash.number(2);
                hash.number((*target_ppm).into());
                weights.iter().for_each(|weight| hash.number((*weight).into()));
            }
        }
        match self.overload {
            Overload::Curve => hash.number(0),
            Overload::Capped => hash.number(1),
            Overload::Priced(ppm) => hash.number(2 + u64::from(ppm)),
        }
        let Effort { work_max, work_exact, tolerance } = self.effort;
        let writes = match self.writes {
            Writes::Redirected => 0,
            Writes::Everywhere => 1,
            Writes::Home => 2,
        };
        let numbers = [u64::from(self.relay), self.quantum_ppm.into(), self.load_bias.to_bits()];
        let growth = self.growth.unwrap_or_default().into();
        let numbers = numbers.into_iter().chain([nanos(self.period), writes, growth]);
        numbers.chain([work_max, work_exact, tolerance]).for_each(|number| hash.number(number));
        for rows in [&self.prices, &self.limits_ppm] {
            hash.number(rows.as_ref().map_or(0, Vec::len) as u64);
            rows.iter().flatten().flatten().for_each(|value| hash.number((*value).into()));
        }
    }
}
