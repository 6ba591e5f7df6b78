//! What a site would plan from, as a TOML file: sites with their demand, servers and curves, the
//! ways between them, and the objective. `docs/plan-redirect.md` explains every key.

use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use evenkeel_core::distribution::LogNormal;
use evenkeel_core::units::{Probability, Rate};
use evenkeel_geo::curve::{LOAD_BIAS, LOAD_BIAS_MAX, OBJECTIVE_MAX, RESIDUAL_BIN, ResponseCurves};
use evenkeel_geo::epoch::{
    self, RESIDUAL_BINS, Report, Row, SiteEntry, SiteId, SiteLiveness, SiteSet, Snapshot,
    per_1000_s,
};
use evenkeel_geo::joint::Service;
use evenkeel_geo::planner::{Aim, Plan, Planner, PlannerConfig, SiteCurves};
use evenkeel_geo::{ALL_PPM, Effort, Learnt, Overload, SITES_MAX};
use evenkeel_settings::{Mismatch, Node, Problems, Setting, Table, profile};

/// Servers of a site at most.
const SERVERS_MAX: u32 = 10_000;
const MINUTE: Duration = Duration::from_secs(60);
/// Residual delays: what 50, 75, 90, 99, 99.9 and 100 % of round trips stay within.
const QUANTILES: usize = epoch::RESIDUAL_SHARES_PPM.len();

/// What people ask beside what is in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) by_cost: bool,
    pub(super) relay: bool,
    pub(super) overload_price: Option<u32>,
}

/// A plan, what it was made from, and what sites are called.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) names: Vec<String>,
    pub(super) target_ppm: u32,
    /// The sites with too few quanta, each with how many.
    pub(super) coarse: Vec<(String, u64)>,
    pub(super) services: Vec<Service>,
    pub(super) snapshot: Snapshot,
    pub(super) plan: Plan,
}

/// One `[[site]]`.
struct Site {
    name: String,
    demand: f64,
    servers: u32,
    curves: Option<ResponseCurves>,
    work: Service,
}

/// All of the file.
struct Input {
    sites: Vec<Site>,
    round_trips: Vec<Vec<Duration>>,
    residual: [u16; QUANTILES],
    target_ppm: u32,
    quantum_ppm: u32,
    load_bias: f64,
}

/// Loads a file and plans from it; profiles it names are looked for in its own folder.
///
/// # Errors
/// Everything that is wrong with it, each with its place.
pub(super) fn plan(path: &Path, wish: Wish) -> anyhow::Result<Planned> {
    let input = load(path)?;
    let config = PlannerConfig {
        aim: match wish.by_cost {
            true => Aim::Cost { target_ppm: input.target_ppm },
            false => Aim::Violations,
        },
        relay: wish.relay,
        overload: wish.overload_price.map_or(Overload::Capped, Overload::Priced),
        quantum_ppm: input.quantum_ppm,
        load_bias: input.load_bias,
        growth: None, // nothing was served yet
        effort: Effort::default(),
        ..PlannerConfig::new(Duration::from_millis(2_500))
    };
    let curves = input.sites.iter().filter_map(|site| site.curves.clone());
    let planner = Planner::new(config, curves.map(SiteCurves::single).collect())?;
    let snapshot = snapshot(&input, &planner)?;
    let plan = planner.plan(&snapshot);
    let services = input.sites.iter().map(|site| site.work).collect();
    let names: Vec<String> = input.sites.into_iter().map(|site| site.name).collect();
    let reports = || (0..names.len()).filter_map(|site| snapshot.report(SiteId::new(site)));
    let capacity: Vec<u64> = reports().map(|report| report.capacity_per_1000_s).collect();
    let coarse = planner.coarse(&capacity, &plan.demand_per_1000_s).into_iter();
    let coarse = coarse.map(|(site, quanta)| (names[site.index()].clone(), quanta)).collect();
    Ok(Planned { target_ppm: input.target_ppm, coarse, names, services, snapshot, plan })
}

fn load(path: &Path) -> Result<Input, Problems> {
    let folder = path.parent().unwrap_or(Path::new("."));
    Node::load(path)?.read(|root| input(root, folder))
}

fn input(root: &mut Table<'_>, folder: &Path) -> Input {
    let objective = root.key("objective").duration();
    let objective = objective.between(Duration::from_micros(1)..=OBJECTIVE_MAX).required();
    let folder = folder.to_owned();
    let shape = move |table: &mut Table<'_>| site(table, &folder, objective);
    let sites = root.key("site").list(|item| item.table(shape.clone()).required());
    let sites = sites.check("1 to 64 sites", |sites| (1..=SITES_MAX).contains(&sites.len()));
    let sites = sites.required();
    let trip = |item: Setting<'_>| item.duration().between(Duration::ZERO..=MINUTE).required();
    let round_trips = root.key("round_trips").list(|row| row.list(trip).required()).required();
    let count = sites.len();
    let is_square = round_trips.len() == count && round_trips.iter().all(|row| row.len() == count);
    if root.is_sound() && !is_square {
        let came = format!("{} rows", round_trips.len());
        let expected = format!("{count} rows of {count} durations: from each site to each");
        root.problem("round_trips", Mismatch::new(came, expected));
    }
    let bin = |item: Setting<'_>| {
        let most = RESIDUAL_BIN * (u32::from(RESIDUAL_BINS) - 1);
        let beyond = item.duration().between(Duration::ZERO..=most).required();
        beyond.as_nanos().div_ceil(RESIDUAL_BIN.as_nanos()) as u16
    };
    let residual = root.key("residual").list(bin);
    let expected = "6 durations that do not fall: what 50, 75, 90, 99, 99.9 and 100 % stay within";
    let residual = residual.check(expected, |bins| bins.len() == QUANTILES && bins.is_sorted());
    let ppm = |share: f64| (share * f64::from(ALL_PPM)).round() as u32;
    let quantum = root.key("quantum").probability().check("above 0", |&share| ppm(share) > 0);
    Input {
        sites,
        round_trips,
        residual: residual.or(vec![0; QUANTILES]).try_into().unwrap_or_default(),
        target_ppm: ppm(root.key("target").probability().or(0.05)),
        quantum_ppm: ppm(quantum.or(0.01)),
        load_bias: root.key("load_bias").number().between(0.01..=LOAD_BIAS_MAX).or(LOAD_BIAS),
    }
}

fn site(table: &mut Table<'_>, folder: &Path, objective: Duration) -> Site {
    let name = table.key("name").text().check("a name", |name| !name.is_empty()).required();
    let demand = table.key("demand").rate().between(0.0..=1e9).required();
    let servers = table.key("servers").integer().between(0..=SERVERS_MAX).required();
    let file = table.key("profile").text().optional().map(|file| folder.join(file));
    let service = table.key("service").duration().between(Duration::from_nanos(1)..=MINUTE);
    let service = service.optional();
    let cv = table.key("cv").number().between(0.0..=100.0).or(1.0);
    let curves = match (file, service) {
        (Some(file), None) => measured(&file, objective).map_err(|wrong| ("profile", wrong)),
        (None, Some(service)) => {
            queue(objective, servers, service, cv).map_err(|wrong| ("service", wrong))
        }
        (Some(_), Some(_)) => Err(("service", Mismatch::new("profile and service", "one of them"))),
        (None, None) => Err(("profile", Mismatch::new("nothing", "a profile, or a service time"))),
    };
    if table.is_sound()
        && let Err((key, wrong)) = &curves
    {
        table.problem(key, wrong.clone());
    }
    let work = work(table, service);
    Site { name, demand, servers, curves: curves.ok(), work }
}

/// The work of requests, for prices: nothing can be left out unless `lean` says so.
fn work(table: &mut Table<'_>, service: Option<Duration>) -> Service {
    let range = Duration::from_micros(1)..=MINUTE;
    let full = table.key("work").duration().between(range.clone()).optional().or(service);
    let lean = table.key("lean").duration().between(Duration::ZERO..=MINUTE).optional();
    let us = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
    match (full, lean) {
        (None, Some(_)) => {
            let expected = "`work` too: what a request takes with its optional content";
            table.problem("lean", Mismatch::new("lean alone", expected));
            Service::default()
        }
        (Some(full), Some(lean)) if lean > full => {
            let expected = format!("at most {full:?}, the work of a request with all its content");
            table.problem("lean", Mismatch::new(format!("{lean:?}"), expected));
            Service::default()
        }
        (full, lean) => {
            let full_us = full.map_or(0, us);
            Service { full_us, lean_us: lean.map_or(full_us, us) }
        }
    }
}

fn measured(file: &Path, objective: Duration) -> Result<ResponseCurves, Mismatch> {
    let refuse = |error: String| Mismatch::new(error, "a profile (evenkeel profile makes one)");
    let profile = profile::load(file).map_err(|problems| refuse(problems.to_string()))?;
    ResponseCurves::measured(objective, &profile).map_err(|error| refuse(error.to_string()))
}

/// M/M/c, or M/G/c with log-normal service times, for as many servers as there are.
fn queue(
    objective: Duration,
    servers: u32,
    service: Duration,
    cv: f64,
) -> Result<ResponseCurves, Mismatch> {
    let servers = NonZeroU32::new(servers).unwrap_or(NonZeroU32::MIN);
    let curves = if cv == 1.0 {
        ResponseCurves::markov(objective, servers, service)
    } else {
        LogNormal::with_mean_cv(service, cv)
            .and_then(|law| ResponseCurves::general(objective, servers, &law))
    };
    curves.map_err(|error| Mismatch::new(error.to_string(), "a service time that has curves"))
}

/// The rows that these sites would send each other.
fn snapshot(input: &Input, planner: &Planner) -> anyhow::Result<Snapshot> {
    let count = input.sites.len();
    let row = |(number, site): (usize, &Site)| -> anyhow::Result<SiteEntry> {
        let id = SiteId::new(number);
        let path = |(to, trip): (usize, &Duration)| {
            let base_rtt_us = u32::try_from(trip.as_micros()).unwrap_or(u32::MAX).max(1);
            let path = epoch::Path { base_rtt_us, residual_bins: input.residual, beyond_ppm: 0 };
            (to != number).then_some(path)
        };
        let report = Report {
            demand_per_1000_s: per_1000_s(Rate::new(site.demand)?),
            capacity_per_1000_s: planner.capacity_per_1000_s(
                id,
                (0, Learnt::AS_PROFILED),
                Probability::ZERO,
                site.servers,
            ),
            paths: input.round_trips[number].iter().enumerate().map(path).collect(),
            ..Report::empty(count)
        };
        report.check().map_err(|error| anyhow::anyhow!("site {}: {error}", site.name))?;
        let row = Row {
            site: id,
            epoch: 0,
            settings: planner.fingerprint(),
            received: SiteSet::first(count),
            answers: [None; 2],
            report,
        };
        Ok(SiteEntry { liveness: SiteLiveness::Fresh, last: Some(row) })
    };
    let sites = input.sites.iter().enumerate().map(row).collect::<anyhow::Result<_>>()?;
    Ok(Snapshot { epoch: 0, sites })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = r#"
        objective = "30ms"
        round_trips = [["0ms", "10ms"], ["10ms", "0ms"]]
        [[site]]
        name = "A"
        demand = "1900/s"
        servers = 10
        service = "5ms"
        [[site]]
        name = "B"
        demand = "500/s"
        servers = 10
        service = "5ms"
    "#;

    fn read(text: &str) -> Result<Input, String> {
        let node = Node::parse(text, "test.toml").map_err(|problems| problems.to_string())?;
        let read = node.read(|root| input(root, Path::new(".")));
        read.map_err(|problems| problems.to_string())
    }

    #[test]
    fn a_snapshot_has_a_row_for_each_site() {
        let input = read(TWO).unwrap();
        assert_eq!((input.quantum_ppm, input.target_ppm), (10_000, 50_000));
        let curves = input.sites.iter().filter_map(|site| site.curves.clone());
        let config = PlannerConfig::new(Duration::from_secs(1));
        let planner = Planner::new(config, curves.map(SiteCurves::single).collect()).unwrap();
        let snapshot = snapshot(&input, &planner).unwrap();
        assert!(snapshot.is_complete());
        let report = snapshot.report(SiteId::new(0)).unwrap();
        assert_eq!(report.demand_per_1000_s, 1_900_000);
        assert_eq!(report.paths[1].unwrap().base_rtt_us, 10_000);
        assert_eq!(report.paths[0], None);
    }

    #[test]
    fn everything_that_is_wrong_is_told_with_its_line() {
        let text = TWO.replace("\"500/s\"", "-5").replace("name = \"B\"", "nmae = \"B\"");
        let error = read(&text).err().unwrap();
        assert!(error.contains("test.toml:11:18: site.1.demand: got -5"), "{error}");
        assert!(error.contains("nmae") && error.contains("demand"), "{error}");
        let text = TWO.replace(", [\"10ms\", \"0ms\"]", "");
        let error = read(&text).err().unwrap();
        assert!(error.contains("got 1 rows, expected 2 rows of 2 durations"), "{error}");
        let text = TWO.replacen("service = \"5ms\"", "", 1);
        let error = read(&text).err().unwrap();
        assert!(error.contains("a profile, or a service time"), "{error}");
    }
}
