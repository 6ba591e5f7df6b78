//! What sites told and what was profiled, as a problem in whole quanta.

use super::super::curve::{Axis, Class, NetworkPath, Residual, Table, pair_table};
use super::super::epoch::{Path, Report};
use super::super::learnt::Learnt;
use super::super::problem::CURVE_VALUES_MAX;
use super::super::{Problem, QUANTA_MAX};
use super::{ALL_PPM, Conditions, Planner, QUANTA_MIN, RATE_MAX, SiteId, Snapshot, Writes};
use evenkeel_core::time::{Duration, nanos};
use evenkeel_core::units::{Probability, Rate};

/// Values of curves at most, of all pairs, where quanta are less than asked for because of a small
/// site: some hundredths of a second.
const FINE_VALUES_MAX: u64 = 1 << 20;
/// Loads of all sites at most where plans are by price, for the same reason: each is priced with
/// all dimmers, with and without hedges.
const PRICED_LOADS_MAX: u64 = 1 << 14;
/// A site of which nothing was seen yet is given one in so many of all requests.
const FIRST: u64 = 20;

/// Demand and conditions of all sites for one epoch.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Inputs {
    /// The quantum, in requests per 1,000 s; at least 1.
    pub(super) unit_per_1000_s: u64,
    /// By site, the requests per 1,000 s that are planned for; zero for those that are no members.
    pub(super) demand_per_1000_s: Vec<u64>,
    /// By site, what of that stays there whatever the plan.
    pub(super) kept_per_1000_s: Vec<u64>,
    /// By site, what of it waits there from before, without what is kept anyway.
    pub(super) waiting_per_1000_s: Vec<u64>,
    /// By site, the requests per 1,000 s up to which it is sent those of others.
    pub(super) bound_per_1000_s: Vec<u64>,
    /// By site, what a load means there; no servers for those that are no members.
    conditions: Vec<Conditions>,
    /// By site, the version of its curves in force.
    versions: Vec<u32>,
}

impl Inputs {
    pub(super) fn new(planner: &Planner, snapshot: &Snapshot) -> Self {
        let sites = planner.sites.len();
        let report = |site: usize| snapshot.report(SiteId::new(site));
        let arriving = |site: usize| report(site).map_or(0, |report| planner.arriving(report));
        let split = |site: usize| -> (u64, u64) {
            let writes_ppm = report(site).map_or(0, |report| report.writes_ppm);
            let all = arriving(site);
            let writes = (u128::from(all) * u128::from(writes_ppm) / u128::from(ALL_PPM)) as u64;
            (all - writes, writes)
        };
        let writes: u64 = (0..sites).map(|site| split(site).1).sum();
        let kind = planner.config.writes;
        let is_everywhere = kind == Writes::Everywhere;
        let demand: Vec<u64> = (0..sites)
            .map(|site| if is_everywhere { split(site).0 } else { arriving(site) })
            .collect();
        let all: u64 = (0..sites).map(arriving).sum();
        // Who will send is not known yet: the mix is that without redirects, or that of all.
        let mix = |site: usize| match kind {
            Writes::Everywhere => part(writes, demand[site] + writes),
            Writes::Home => part(split(site).1, demand[site]),
            Writes::Redirected => part(writes, all),
        };
        let waiting = |site: usize| {
            let Some(report) = report(site) else { return 0 };
            let waiting = arriving(site).saturating_sub(report.demand_per_1000_s);
            let ppm = if kind == Writes::Redirected { 0 } else { report.writes_ppm };
            waiting - (u128::from(waiting) * u128::from(ppm) / u128::from(ALL_PPM)) as u64
        };
        let kept = |site: usize| if kind == Writes::Home { split(site).1 } else { 0 };
        let background = if is_everywhere { writes } else { 0 };
        let background = Rate::new(background as f64 * 1e-3).expect("a sum of rates is a rate");
        let conditions = (0..sites).map(|site| Conditions {
            servers: report(site).map_or(0, |report| planner.servers(site, report)),
            write_share: mix(site),
            background,
            load_bias: planner.config.load_bias,
            learnt: report(site).map_or(Learnt::AS_PROFILED, |report| report.learnt),
        });
        let capacity = |site: usize| report(site).map_or(0, |report| report.capacity_per_1000_s);
        let capacity: Vec<u64> = (0..sites).map(capacity).collect();
        let seen = |site: usize| -> u64 {
            let reports = (0..sites).filter_map(report);
            reports.map(|report| report.in_time_per_1000_s.get(site).copied().unwrap_or(0)).sum()
        };
        let bound = |site: usize| match planner.config.growth {
            None => u64::MAX,
            Some(growth) => seen(site).saturating_mul(growth.into()).max(all / FIRST),
        };
        Self {
            unit_per_1000_s: planner.unit(&capacity, &demand),
            bound_per_1000_s: (0..sites).map(bound).collect(),
            conditions: conditions.collect(),
            versions: (0..sites).map(|site| report(site).map_or(0, |r| r.curve_version)).collect(),
            kept_per_1000_s: (0..sites).map(kept).collect(),
            waiting_per_1000_s: (0..sites).map(waiting).collect(),
            demand_per_1000_s: demand,
        }
    }

    /// Whole quanta of a site's demand that may be served elsewhere: not what is kept, and not what
    /// waits, which was opened at home.
    fn movable(&self, site: usize) -> u32 {
        let stays = self.kept_per_1000_s[site] + self.waiting_per_1000_s[site];
        if stays == 0 {
            return u32::MAX;
        }
        (self.demand_per_1000_s[site].saturating_sub(stays) / self.unit_per_1000_s) as u32
    }

    /// The demand of a site in quanta, rounded up.
    fn quanta(&self, site: usize) -> u32 {
        // The unit is large enough for the sum of all; see `Planner::unit`.
        self.demand_per_1000_s[site].div_ceil(self.unit_per_1000_s) as u32
    }

    /// By how much a site's quanta are more than its demand.
    fn rounded_up(&self, site: usize) -> u64 {
        u64::from(self.quanta(site)) * self.unit_per_1000_s - self.demand_per_1000_s[site]
    }

    /// The quanta up to which a site is sent those of others.
    fn bound(&self, site: usize) -> u32 {
        let most = self.bound_per_1000_s[site].saturating_add(self.rounded_up(site));
        u32::try_from(most / self.unit_per_1000_s).unwrap_or(u32::MAX)
    }

    pub(super) fn problem(&self, planner: &Planner, snapshot: &Snapshot) -> Problem {
        let sites = planner.sites.len();
        let demand: Vec<u32> = (0..sites).map(|site| self.quanta(site)).collect();
        let levels = demand.iter().sum::<u32>() as usize + 1;
        let path = |from: usize, to: usize| -> Option<Path> {
            let other = snapshot.report(SiteId::new(to))?;
            let path = (*snapshot.report(SiteId::new(from))?.paths.get(to)?)?;
            (other.capacity_per_1000_s > 0).then_some(path)
        };
        let table = |from: usize, to: usize| -> Table {
            let paths = if from == to {
                Some(NetworkPath::inside())
            } else {
                path(from, to).map(network_path)
            };
            self.table(planner, to, paths.as_slice(), levels)
        };
        let (mut saturation, mut curves) = (Vec::new(), vec![Vec::with_capacity(sites); sites]);
        for to in 0..sites {
            for (from, row) in curves.iter_mut().enumerate() {
                let mut table = table(from, to);
                table.trim();
                if from == to {
                    saturation.push(table.saturation);
                }
                row.push(table.misses_ppm);
            }
        }
        let pairs = |value: &dyn Fn(usize, usize) -> u32| -> Vec<Vec<u32>> {
            (0..sites).map(|from| (0..sites).map(|to| value(from, to)).collect()).collect()
        };
        let limits = pairs(&|from, to| {
            let limits = planner.config.limits_ppm.as_ref();
            let ppm = limits.map_or(ALL_PPM, |limits| limits[from][to]);
            let ppm = if path(from, to).is_some() { ppm } else { 0 };
            (u64::from(demand[from]) * u64::from(ppm) / u64::from(ALL_PPM)) as u32
        });
        let distances = pairs(&|from, to| path(from, to).map_or(0, |path| path.base_rtt_us));
        let problem = Problem::new(demand.clone(), curves)
            .and_then(|problem| problem.with_limits(&limits))
            .and_then(|problem| problem.with_distances(&distances))
            .and_then(|problem| {
                problem.with_movable((0..sites).map(|site| self.movable(site)).collect())
            })
            .and_then(|problem| problem.with_saturation(saturation))
            .and_then(|problem| {
                problem.with_bounds((0..sites).map(|site| self.bound(site)).collect())
            })
            .and_then(|problem| match &planner.config.prices {
                Some(prices) => problem.with_prices(prices),
                None => Ok(problem),
            });
        problem.expect("sizes and ranges were checked where they came in")
    }

    /// Violations of requests served at `to` that came over these ways, for every load.
    fn table(&self, planner: &Planner, to: usize, paths: &[NetworkPath], levels: usize) -> Table {
        let version = self.versions[to] as usize;
        let Some(classes) = planner.sites[to].versions.get(version) else {
            return Table::unreachable(levels);
        };
        let classes = classes.iter().map(|of| Class {
            weight: of.weight,
            curves: &of.curves,
            round_trips: of.round_trips,
        });
        let classes: Vec<Class<'_>> = classes.collect();
        let rate = |per_1000_s: u64| Rate::new(per_1000_s as f64 * 1e-3).expect("it is a rate");
        let (quantum, rounded_up) = (rate(self.unit_per_1000_s), rate(self.rounded_up(to)));
        let axis = Axis { quantum, levels, rounded_up };
        pair_table(&classes, paths, &axis, &self.conditions[to]).expect("ranges were checked")
    }
}

impl Planner {
    /// Full requests that arrive, and what waits from before, in requests per 1,000 s.
    fn arriving(&self, report: &Report) -> u64 {
        let backlog = u128::from(report.backlog_requests) * 1_000_000_000_000;
        let backlog = backlog / u128::from(nanos(self.config.period));
        let sum = u128::from(report.demand_per_1000_s) + backlog;
        sum.min(u128::from(RATE_MAX)) as u64
    }

    /// How many servers a reported capacity is; [`Planner::capacity_per_1000_s`] backwards.
    pub(super) fn servers(&self, site: usize, report: &Report) -> u32 {
        let writes = Probability::clamped(f64::from(report.writes_ppm) * 1e-6);
        let of_one = self.of_one_server(site, report.curve_version, writes);
        let of_one = of_one * report.learnt.scale();
        if of_one <= 0.0 {
            return 0;
        }
        // At least one where there is any: a fraction of a server serves, if little.
        let servers = (report.capacity_per_1000_s as f64 * 1e-3 / of_one).round() as u32;
        servers.max(u32::from(report.capacity_per_1000_s > 0))
    }

    /// The reads per 1,000 s that a site serves at most if it is as it was profiled.
    ///
    /// # Panics
    /// When there is no such site.
    pub fn profiled_per_1000_s(&self, site: SiteId) -> u64 {
        let servers = self.sites[site.index()].versions[0].iter().map(|of| of.curves.servers());
        let servers = servers.fold(1.0, f64::max).round() as u32;
        let profiled = (0, Learnt::AS_PROFILED);
        self.capacity_per_1000_s(site, profiled, Probability::ZERO, servers)
    }

    /// Sites of this capacity and demand, in requests per 1,000 s, that have fewer than
    /// [`QUANTA_MIN`] quanta, each with how many: the sites are too unequal for one plan.
    ///
    /// # Panics
    /// When there is not one value for each site.
    pub fn coarse(&self, capacity: &[u64], demand: &[u64]) -> Vec<(SiteId, u64)> {
        assert_eq!((capacity.len(), demand.len()), (self.sites.len(), self.sites.len()));
        let unit = self.unit(capacity, demand);
        let sizes = capacity.iter().zip(demand).enumerate().filter(|(_, (_, demand))| **demand > 0);
        let quanta = sizes.map(|(site, (capacity, demand))| {
            (SiteId::new(site), (*capacity.max(demand)).div_ceil(unit))
        });
        quanta.filter(|(_, quanta)| *quanta < QUANTA_MIN).collect()
    }

    /// The quantum: a share of the largest capacity, or so little that the smallest site with
    /// demand has [`QUANTA_MIN`], as far as curves stay short; but so many that the solver takes
    /// them all, and curves that are as long as all demand of as many pairs as there are.
    pub fn unit(&self, capacity_per_1000_s: &[u64], demand_per_1000_s: &[u64]) -> u64 {
        let largest = capacity_per_1000_s.iter().copied().max().unwrap_or(0);
        let share = u128::from(largest) * u128::from(self.config.quantum_ppm);
        let share = share.div_ceil(u128::from(ALL_PPM)) as u64;
        let sizes = capacity_per_1000_s.iter().zip(demand_per_1000_s);
        let asked = sizes.filter(|(_, demand)| **demand > 0);
        let smallest = asked.map(|(capacity, demand)| *capacity.max(demand)).min();
        let all: u64 = demand_per_1000_s.iter().sum();
        let pairs = (demand_per_1000_s.len() * demand_per_1000_s.len()) as u64;
        let sites = demand_per_1000_s.len() as u64;
        let fine_max = match self.by_price {
            Some(_) => PRICED_LOADS_MAX / sites,
            None => FINE_VALUES_MAX / pairs,
        };
        let fine = |smallest: u64| (smallest / QUANTA_MIN).max(all / fine_max);
        let share = smallest.map_or(share, |smallest| share.min(fine(smallest)));
        let levels = CURVE_VALUES_MAX as u64 / pairs;
        // Curves by price have two values more than there are quanta.
        let quanta = u64::from(QUANTA_MAX).min(levels - 2);
        // Every site may round up by one.
        let least = all.div_ceil(quanta - sites);
        share.max(least).max(1)
    }
}

fn part(of: u64, all: u64) -> Probability {
    Probability::clamped(if all == 0 { 0.0 } else { of as f64 / all as f64 })
}

fn network_path(path: Path) -> NetworkPath {
    let residual = Residual::new(path.residual_ppm(), path.beyond_ppm);
    let residual = residual.expect("a path that was accepted sums to a million");
    NetworkPath { base: Duration::from_micros(path.base_rtt_us.into()), residual }
}
