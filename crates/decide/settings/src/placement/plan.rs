//! A plan in TOML with tables beside it, or a folder of tables with the usual names.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_planner::model::{Layout, RoundTrips};
use evenkeel_planner::replicas::Site;

use super::spread::parse_distributions;
use super::tables::{Matrix, parse_counts, parse_matrix};
use super::{Input, Size, load_domains, read, whole};
use crate::document::Node;
use crate::problem::{Mismatch, Problem, Problems, quoted};
use crate::reader::Table;

const SECOND: Duration = Duration::from_secs(1);
const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// As written.
#[derive(Default)]
struct Written {
    title: Option<String>,
    /// One for all intervals, or one for each.
    round_trips: Vec<String>,
    is_by_interval: bool,
    distributions: Option<String>,
    interval: Option<Duration>,
    leader_cost: f64,
    counts: String,
    domains: Option<String>,
    sites: Vec<String>,
    tau: f64,
    replicas: Option<usize>,
    voters: Option<usize>,
    voter_domains: Option<usize>,
    domain_voters_max: Option<usize>,
    domain_replicas_max: Option<usize>,
    fixed: Vec<String>,
    forbidden: Vec<String>,
    today: Option<Today>,
}

#[derive(Default)]
struct Today {
    leader: String,
    voters: Vec<String>,
    replicas: Vec<String>,
}

pub(super) fn load(path: &Path) -> Result<Input, Problems> {
    let written = Node::load(path)?.read(written)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    assemble(&written, folder, &path.display().to_string())
}

/// `rtt.csv`, `counts.csv`, and `domains.csv` and `distributions.csv` if they are there.
pub(super) fn load_folder(folder: &Path) -> Result<Input, Problems> {
    let if_there = |name: &str| folder.join(name).is_file().then(|| name.to_owned());
    let written = Written {
        round_trips: vec!["rtt.csv".to_owned()],
        counts: "counts.csv".to_owned(),
        domains: if_there("domains.csv"),
        distributions: if_there("distributions.csv"),
        leader_cost: 1.0,
        tau: 2.0,
        ..Written::default()
    };
    assemble(&written, folder, &folder.display().to_string())
}

fn written(root: &mut Table<'_>) -> Written {
    let mut names = |key: &str| root.key(key).list(|item| item.text().required()).or(Vec::new());
    let (sites, fixed, forbidden) = (names("sites"), names("fixed"), names("forbidden"));
    let by_interval = names("round_trips_by_interval");
    let is_by_interval = !by_interval.is_empty();
    let one = root.key("round_trips").text();
    let round_trips = match (is_by_interval, one) {
        (false, one) => vec![one.required()],
        (true, one) => {
            if one.optional().is_some() {
                let came = "round_trips and round_trips_by_interval";
                root.problem("round_trips", Mismatch::new(came, "one of the two"));
            }
            by_interval
        }
    };
    Written {
        title: root.key("title").text().optional(),
        round_trips,
        is_by_interval,
        distributions: root.key("distributions").text().optional(),
        interval: root.key("interval").duration().between(SECOND..=YEAR).optional(),
        leader_cost: root.key("leader_cost").number().between(0.0..=1e9).or(1.0),
        counts: root.key("counts").text().required(),
        domains: root.key("domains").text().optional(),
        sites,
        tau: root.key("tau").number().between(1.0..=1e9).or(2.0),
        replicas: root.key("replicas").integer().between(1..=1_000).optional(),
        voters: root.key("voters").integer().between(1..=1_000).optional(),
        voter_domains: root.key("voter_domains").integer().between(1..=1_000).optional(),
        domain_voters_max: root.key("domain_voters_max").integer().between(1..=1_000).optional(),
        domain_replicas_max: root
            .key("domain_replicas_max")
            .integer()
            .between(1..=1_000)
            .optional(),
        fixed,
        forbidden,
        today: root.key("today").table(today).optional(),
    }
}

fn today(table: &mut Table<'_>) -> Today {
    let mut names = |key: &str| table.key(key).list(|item| item.text().required()).required();
    let (voters, replicas) = (names("voters"), names("replicas"));
    Today { leader: table.key("leader").text().required(), voters, replicas }
}

/// The place of a name among sites.
fn place(sites: &[String], name: &str, key: &str, file: &str) -> Result<usize, Problem> {
    sites.iter().position(|site| site == name).ok_or_else(|| {
        let known: Vec<&str> = sites.iter().map(String::as_str).collect();
        let came = format!("the unknown site {}", quoted(name));
        let what = Mismatch::unknown(came, name, &known);
        Problem { path: key.to_owned(), ..whole(file, what) }
    })
}

fn assemble(written: &Written, folder: &Path, file: &str) -> Result<Input, Problems> {
    let matrices = Matrices::load(&written.round_trips, folder)?;
    let (matrix, _) = matrices.of_place(0);
    let clients = matrix.from.clone();
    let sites = if written.sites.is_empty() { matrix.to.clone() } else { written.sites.clone() };
    let table = folder.join(&written.counts);
    let intervals = parse_counts(&read(&table)?, &table.display().to_string(), &clients)?;
    let trips_by_interval = matrices.trips(written, &clients, &sites, intervals.len(), file)?;
    let newest = trips_by_interval.last().expect("a table of counts has an interval");
    let domains = match &written.domains {
        Some(name) => Some(load_domains(&folder.join(name), &sites)?),
        None => None,
    };
    let distributions = match &written.distributions {
        Some(name) => {
            let (table, path) = (folder.join(name), folder.join(name).display().to_string());
            Some(parse_distributions(&read(&table)?, &path, &clients, &sites)?)
        }
        None => None,
    };
    let places = |names: &[String], key: &str| -> Result<Vec<usize>, Problem> {
        names.iter().map(|name| place(&sites, name, key, file)).collect()
    };
    let mut rules = vec![Site::Free; sites.len()];
    for (names, key, rule) in
        [(&written.fixed, "fixed", Site::Fixed), (&written.forbidden, "forbidden", Site::Forbidden)]
    {
        places(names, key)?.into_iter().for_each(|site| rules[site] = rule);
    }
    let today = written.today.as_ref().map(|today| layout(today, &sites, file)).transpose()?;
    let replicas = written.replicas.or(today.as_ref().map(|today| today.replicas().len()));
    let voters = written.voters.or(today.as_ref().map(|today| today.voters().len()));
    let size = replicas.zip(voters).map(|(replicas, voters)| Size { replicas, voters });
    Ok(Input {
        title: written.title.clone(),
        trips: RoundTrips::clone(newest),
        sites,
        clients,
        trips_by_interval,
        intervals,
        interval: written.interval,
        distributions,
        leader_cost: written.leader_cost,
        tau: written.tau,
        sizes: size.into_iter().collect(),
        today,
        rules,
        domains,
        voter_domains: written.voter_domains,
        domain_voters_max: written.domain_voters_max,
        domain_replicas_max: written.domain_replicas_max,
    })
}

fn layout(today: &Today, sites: &[String], file: &str) -> Result<Layout, Problem> {
    let places = |names: &[String], key: &str| -> Result<Vec<usize>, Problem> {
        names.iter().map(|name| place(sites, name, key, file)).collect()
    };
    let leader = place(sites, &today.leader, "today.leader", file)?;
    let voters = places(&today.voters, "today.voters")?;
    let replicas = places(&today.replicas, "today.replicas")?;
    Layout::new(leader, voters, replicas).map_err(|error| {
        let what = Mismatch::new(error.to_string(), "a layout");
        Problem { path: "today".to_owned(), ..whole(file, what) }
    })
}

/// Tables of round trips, each read once.
struct Matrices {
    /// By the place in the list: which table.
    places: Vec<usize>,
    tables: Vec<(Matrix, String)>,
}

impl Matrices {
    fn load(names: &[String], folder: &Path) -> Result<Self, Problem> {
        let (mut places, mut tables, mut known) = (Vec::new(), Vec::new(), Vec::new());
        for name in names {
            if let Some(place) = known.iter().position(|other| *other == name) {
                places.push(place);
                continue;
            }
            let table = folder.join(name);
            let file = table.display().to_string();
            places.push(tables.len());
            known.push(name);
            tables.push((parse_matrix(&read(&table)?, &file)?, file));
        }
        Ok(Self { places, tables })
    }

    fn of_place(&self, place: usize) -> &(Matrix, String) {
        &self.tables[self.places[place]]
    }

    /// The round trips of every interval; those of one table are one.
    fn trips(
        &self,
        written: &Written,
        clients: &[String],
        sites: &[String],
        intervals: usize,
        file: &str,
    ) -> Result<Vec<Arc<RoundTrips>>, Problem> {
        if written.is_by_interval && self.places.len() != intervals {
            let came = format!("{} tables of round trips", self.places.len());
            let expected = format!("{intervals}, one for each interval of {}", written.counts);
            let path = "round_trips_by_interval".to_owned();
            return Err(Problem { path, ..whole(file, Mismatch::new(came, expected)) });
        }
        let one = |(matrix, file): &(Matrix, String)| trips(matrix, clients, sites, file);
        let tables: Vec<Arc<RoundTrips>> =
            self.tables.iter().map(|table| one(table).map(Arc::new)).collect::<Result<_, _>>()?;
        let of = |interval: usize| {
            let place = if written.is_by_interval { interval } else { 0 };
            Arc::clone(&tables[self.places[place]])
        };
        Ok((0..intervals).map(of).collect())
    }
}

/// From clients to the sites, and between sites; a leader's own vote takes no time.
fn trips(
    matrix: &Matrix,
    clients: &[String],
    sites: &[String],
    file: &str,
) -> Result<RoundTrips, Problem> {
    let column = |name: &String| place(&matrix.to, name, "", file);
    let columns: Vec<usize> = sites.iter().map(column).collect::<Result<_, _>>()?;
    let picked = |row: &Vec<f64>| columns.iter().map(|&column| row[column]).collect::<Vec<f64>>();
    let row = |name: &String| {
        let row = matrix.from.iter().position(|from| from == name).ok_or_else(|| {
            let came = format!("no row from {}", quoted(name));
            let what = Mismatch::new(came, "a row for every site, as there is a column");
            whole(file, what.with_hint("is the matrix not square?"))
        })?;
        Ok::<_, Problem>(picked(&matrix.ms[row]))
    };
    let from_clients: Vec<Vec<f64>> = clients.iter().map(row).collect::<Result<_, _>>()?;
    let mut between = sites.iter().map(row).collect::<Result<Vec<_>, _>>()?;
    between.iter_mut().enumerate().for_each(|(site, row)| row[site] = 0.0);
    RoundTrips::new(&from_clients, &between)
        .map_err(|error| whole(file, Mismatch::new(error.to_string(), "round trips")))
}
