//! `[placement]` and its `[[placement.databases]]`.

mod store;
mod tables;

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::units::Probability;
use evenkeel_planner::domains::Diversity;
use evenkeel_planner::history::INTERVALS_MAX;
use evenkeel_planner::model::{Layout, Route};
use evenkeel_planner::steady::Steady;
use evenkeel_settings::common::{DAY, SECOND, check_name, file};
use evenkeel_settings::shared::duration;
use evenkeel_settings::{Mismatch, Setting, Table, Value};

use crate::act::window::Window;
use crate::config::{
    DatabaseConfig, OperationsConfig, PlacementConfig, PlacementTier, SystemConfig,
};
use evenkeel_stores::clients::rest::url;
use tables::Tables;

pub use tables::Mesh;

const INTERVALS: RangeInclusive<Duration> = SECOND..=Duration::from_secs(7 * 86_400);
const PERCENTILES: RangeInclusive<f64> = 50.0..=99.999;
const DATABASES_MAX: usize = 10_000;
const QUERY_BYTES_MAX: usize = 2_000;
const NO_DAYS: [&str; 0] = [];

/// What is asked unless something else is written.
const QUERY: &str = "sum by (datacenter, operation) \
                     (increase(evenkeel_operations_total{database=\"$database\"}[$interval]))";

const TIERS: [(i64, PlacementTier); 3] =
    [(1, PlacementTier::Leader), (2, PlacementTier::Voters), (3, PlacementTier::Replicas)];

impl PlacementConfig {
    /// `mesh` are the sites of `[redirect]`, if it is there.
    pub fn read(table: &mut Table<'_>, mesh: Option<&Mesh>) -> Self {
        let interval = duration(table, "interval", INTERVALS, 1_800 * SECOND);
        let percentile = table.key("percentile").number().between(PERCENTILES).optional();
        let percentile = percentile.map(|percent| Probability::clamped(percent / 100.0));
        let tables = Tables::read(table, percentile.is_some(), mesh);
        let tier = tier(table.key("tier"));
        let voter_domains = table.key("voter_domains").integer().between(1..=1_000).optional();
        if voter_domains.is_some() && table.key("domains").value().is_none() {
            let expected = "domains too: a file with the failure domain of each site";
            table.problem("voter_domains", Mismatch::new("voter_domains alone", expected));
        }
        let diversity =
            voter_domains.map(|domains_min| Diversity { domains_min, per_domain_max: usize::MAX });
        let dry_run = table.key("dry_run").boolean().or(true);
        let common = Common { tables: &tables, tier, diversity, dry_run };
        let databases = databases(&table.key("databases"), &common);
        let audit = table.key("audit").value().map(|_| file(table.key("audit")));
        if !dry_run && audit.is_none() {
            let expected = "audit = \"FILE\" too: moves need an audit log";
            table.problem("dry_run", Mismatch::new("dry_run = false alone", expected));
        }
        Self {
            interval,
            percentile,
            is_mesh: tables.is_mesh(),
            tier: tier.unwrap_or(PlacementTier::Leader),
            tau: table.key("tau").number().between(1.0..=1e9).or(2.0),
            route: table.key("route").variant(&Route::NAMED).or(Route::Nearest),
            steady: steady(table, interval),
            dry_run,
            audit,
            window: window(table.key("window")),
            clients: tables.clients(),
            databases,
        }
    }
}

/// What holds for all databases.
struct Common<'t> {
    tables: &'t Tables<'t>,
    /// What is written for all.
    tier: Option<PlacementTier>,
    diversity: Option<Diversity>,
    dry_run: bool,
}

fn tier(setting: Setting<'_>) -> Option<PlacementTier> {
    let number = setting.integer::<i64>().between(1..=3).optional()?;
    TIERS.iter().find(|(known, _)| *known == number).map(|(_, tier)| *tier)
}

/// When to move: times become intervals.
fn steady(table: &mut Table<'_>, interval: Duration) -> Steady {
    let default = Steady::default();
    let cooldown = duration(table, "cooldown", Duration::ZERO..=90 * DAY, 4 * interval);
    let payback = duration(table, "payback", SECOND..=90 * DAY, 8 * interval);
    let intervals = table.key("intervals").integer().between(1..=INTERVALS_MAX);
    let interval_s = interval.as_secs_f64();
    Steady {
        gain_min: table.key("gain_min").probability().between(0.0..=0.9).or(default.gain_min),
        intervals: intervals.or(default.intervals),
        cooldown,
        payback_intervals: payback.as_secs_f64() / interval_s,
        interval_s,
        cost: default.cost,
    }
}

/// `02:00-04:00`, or with days before it: `sat sun 02:00-04:00`.
fn window(setting: Setting<'_>) -> Option<Window> {
    let stand_in = Window::parse("00:00-00:01", &NO_DAYS).expect("it is a window");
    let expected =
        "hours in UTC such as \"02:00-04:00\", days before them: \"sat sun 02:00-04:00\"";
    let parse = |text: &str| {
        let mut words: Vec<&str> = text.split_whitespace().collect();
        let hours = words.pop().unwrap_or("");
        Window::parse(hours, &words).map_err(|error| {
            Mismatch::new(format!("{text:?}"), expected).with_hint(error.to_string())
        })
    };
    setting.parsed(expected, stand_in, parse).optional()
}

fn databases(setting: &Setting<'_>, common: &Common<'_>) -> Vec<DatabaseConfig> {
    if matches!(setting.value(), Some(Value::Table(_))) {
        let hint = "write [[placement.databases]], in double brackets";
        setting.problem(Mismatch::new("a table", "a list of tables").with_hint(hint));
        return Vec::new();
    }
    let mut names = BTreeSet::new();
    let read = setting.clone().list(|item| {
        let database = item.clone().table(|table| database(table, common)).required()?;
        if !database.name.is_empty() && !names.insert(database.name.clone()) {
            let came = format!("the database {:?} twice", database.name);
            item.problem(Mismatch::new(came, "each database once"));
        }
        Some(database)
    });
    let number = format!("1 to {DATABASES_MAX} tables [[placement.databases]]");
    let read = read.check(&number, |all| (1..=DATABASES_MAX).contains(&all.len())).required();
    read.into_iter().flatten().collect()
}

/// `None` where the round trips of its sites are not known, which is a problem already.
fn database(table: &mut Table<'_>, common: &Common<'_>) -> Option<DatabaseConfig> {
    let tables = common.tables;
    let name_at = table.key("name");
    let name = name_at.clone().text().required();
    if !name.is_empty() {
        check_name(&name, "a database of this name", &name_at);
    }
    let operations = table.key("operations").table(operations).required();
    let system_at = table.key("system");
    let system = system_at.clone().table(|table| store::read(table, &name, tables)).optional();
    let system = system.flatten();
    let sites = match (&system, system_at.value()) {
        (Some((_, sites)), _) => sites.clone(),
        (None, Some(_)) => Arc::from([]),
        (None, None) => tables.sites(table.key("sites")),
    };
    if system.is_some() && table.key("sites").value().is_some() {
        let expected = "one of them: the sites of a system are those of its members";
        table.problem("sites", Mismatch::new("sites beside system", expected));
    }
    let today = today(table, &sites, system_at.value().is_some());
    let tier = tier_of(table, common, system.as_ref().map(|(system, _)| system));
    let count = |setting: Setting<'_>| setting.integer().between(1..=1_000).optional();
    let (replicas, voters): (Option<usize>, Option<usize>) =
        (count(table.key("replicas")), count(table.key("voters")));
    let acts = system.is_some() && !common.dry_run;
    for (key, came) in [("replicas", replicas), ("voters", voters)] {
        if acts && tier == PlacementTier::Replicas && came.is_none() {
            // What is there after a move that was cut off is not what was wanted.
            let expected = "a number, because tier 3 moves replicas (dry_run = false)";
            table.problem(key, Mismatch::new("nothing", expected));
        }
    }
    if let (Some(replicas), Some(voters)) = (replicas, voters)
        && voters > replicas
    {
        let expected = format!("at most replicas, which is {replicas}");
        table.problem("voters", Mismatch::new(voters.to_string(), expected));
    }
    if let Some(came) = replicas.max(voters).filter(|came| !sites.is_empty() && *came > sites.len())
    {
        let key = if replicas == Some(came) { "replicas" } else { "voters" };
        let expected = format!("at most the number of sites, which is {}", sites.len());
        table.problem(key, Mismatch::new(came.to_string(), expected));
    }
    let (trips, tails) = match tables.is_mesh() {
        true if sites.is_empty() => return None,
        true => (None, None),
        false => {
            let (trips, tails) = tables.trips(&sites)?;
            (Some(trips), tails)
        }
    };
    Some(DatabaseConfig {
        name,
        trips,
        tails,
        domains: tables.domains(&sites),
        diversity: common.diversity,
        sites,
        operations,
        today,
        system: system.map(|(system, _)| system),
        tier,
        replicas,
        voters,
    })
}

/// What may change of a database: what is written, and not more than its system can.
fn tier_of(
    table: &mut Table<'_>,
    common: &Common<'_>,
    system: Option<&SystemConfig>,
) -> PlacementTier {
    let written = tier(table.key("tier")).or(common.tier);
    let most = system.map_or(PlacementTier::Replicas, store::most);
    if !system.is_some_and(|system| system.store.elects()) {
        return written.unwrap_or(PlacementTier::Leader).min(most);
    }
    if written == Some(PlacementTier::Leader) {
        let expected = "2: its servers elect the leader; only votes can be moved";
        table.problem("tier", Mismatch::new("tier 1 for ZooKeeper", expected));
    }
    most
}

fn operations(table: &mut Table<'_>) -> OperationsConfig {
    let optional = |table: &mut Table<'_>, key: &str| -> Option<PathBuf> {
        table.key(key).value().map(|_| file(table.key(key)))
    };
    let is_query = |query: &String| (1..=QUERY_BYTES_MAX).contains(&query.len());
    let query = table.key("query").text().check("a query of 1 to 2000 bytes", is_query);
    let query = query.or(QUERY.to_owned());
    let (authority, token_file) = (optional(table, "ca_file"), optional(table, "token_file"));
    let (csv, server) = (optional(table, "csv"), table.key("prometheus"));
    match (csv, server.value()) {
        (Some(csv), None) => {
            for key in ["query", "ca_file", "token_file"] {
                if table.key(key).value().is_some() {
                    let expected = "prometheus too: a file has no query";
                    table.problem(key, Mismatch::new(format!("{key} beside csv"), expected));
                }
            }
            OperationsConfig::Csv(csv)
        }
        (None, Some(_)) => {
            let server = url(server, authority.is_some());
            OperationsConfig::Prometheus { server, query, authority, token_file }
        }
        (csv, _) => {
            let came = if csv.is_some() { "both of them" } else { "neither of them" };
            let expected = "either prometheus (a URL) or csv (a file)";
            table.problem("prometheus", Mismatch::new(came, expected));
            OperationsConfig::Csv(PathBuf::new())
        }
    }
}

/// `today`: where everything is, for a database that nobody looks at.
fn today(table: &mut Table<'_>, sites: &[String], is_looked_at: bool) -> Option<Layout> {
    let setting = table.key("today");
    if is_looked_at {
        if setting.value().is_some() {
            let expected = "one of them: a system has the layout itself";
            setting.problem(Mismatch::new("today beside system", expected));
        }
        return None;
    }
    let named: Vec<(&str, usize)> = sites.iter().map(String::as_str).zip(0..).collect();
    let at = setting.clone();
    let read = |table: &mut Table<'_>| {
        let site = |setting: Setting<'_>| match named.is_empty() {
            true => setting.text().optional().map(|_| 0),
            false => Some(setting.variant(&named).required()),
        };
        let leader = site(table.key("leader"));
        let voters: Vec<Option<usize>> = table.key("voters").list(site).required();
        let replicas = table.key("replicas").list(site).or(voters.clone());
        let whole = |places: Vec<Option<usize>>| places.into_iter().collect::<Option<Vec<_>>>();
        let (leader, voters, replicas) = (leader?, whole(voters)?, whole(replicas)?);
        if !table.is_sound() || named.is_empty() {
            return None;
        }
        let named = |error: evenkeel_planner::model::BadInput| {
            let hint = format!("sites count from 0: {}", sites.join(", "));
            at.problem(Mismatch::new(error.to_string(), "a layout").with_hint(hint));
        };
        Layout::new(leader, voters, replicas).map_err(named).ok()
    };
    let read = setting.clone().table(read);
    if setting.value().is_none() {
        let expected = "today (leader, voters, replicas) or system";
        setting.problem(Mismatch::new("neither today nor system", expected));
        return None;
    }
    read.required()
}
