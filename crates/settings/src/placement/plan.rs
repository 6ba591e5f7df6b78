//! A plan in TOML with tables beside it, or a folder of tables with the usual names.

use std::path::Path;

use evenkeel_core::placement::model::{Layout, RoundTrips};
use evenkeel_core::placement::replicas::Site;

use super::tables::{Matrix, parse_counts, parse_matrix};
use super::{Input, Size, load_domains, read, whole};
use crate::document::Node;
use crate::problem::{Mismatch, Problem, Problems, quoted};
use crate::reader::Table;

/// As written.
#[derive(Default)]
struct Written {
    title: Option<String>,
    round_trips: String,
    counts: String,
    domains: Option<String>,
    sites: Vec<String>,
    tau: f64,
    replicas: Option<usize>,
    voters: Option<usize>,
    voter_domains: Option<usize>,
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

/// `rtt.csv`, `counts.csv`, and `domains.csv` if it is there.
pub(super) fn load_folder(folder: &Path) -> Result<Input, Problems> {
    let domains = folder.join("domains.csv").is_file().then(|| "domains.csv".to_owned());
    let written = Written {
        round_trips: "rtt.csv".to_owned(),
        counts: "counts.csv".to_owned(),
        domains,
        tau: 2.0,
        ..Written::default()
    };
    assemble(&written, folder, &folder.display().to_string())
}

fn written(root: &mut Table<'_>) -> Written {
    let mut names = |key: &str| root.key(key).list(|item| item.text().required()).or(Vec::new());
    let (sites, fixed, forbidden) = (names("sites"), names("fixed"), names("forbidden"));
    Written {
        title: root.key("title").text().optional(),
        round_trips: root.key("round_trips").text().required(),
        counts: root.key("counts").text().required(),
        domains: root.key("domains").text().optional(),
        sites,
        tau: root.key("tau").number().between(1.0..=1e9).or(2.0),
        replicas: root.key("replicas").integer().between(1..=1_000).optional(),
        voters: root.key("voters").integer().between(1..=1_000).optional(),
        voter_domains: root.key("voter_domains").integer().between(1..=1_000).optional(),
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
    let table = folder.join(&written.round_trips);
    let matrix_file = table.display().to_string();
    let matrix = parse_matrix(&read(&table)?, &matrix_file)?;
    let sites = if written.sites.is_empty() { matrix.to.clone() } else { written.sites.clone() };
    let trips = trips(&matrix, &sites, &matrix_file)?;
    let table = folder.join(&written.counts);
    let intervals = parse_counts(&read(&table)?, &table.display().to_string(), &matrix.from)?;
    let domains = match &written.domains {
        Some(name) => Some(load_domains(&folder.join(name), &sites)?),
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
    let today = match &written.today {
        None => None,
        Some(today) => {
            let leader = place(&sites, &today.leader, "today.leader", file)?;
            let voters = places(&today.voters, "today.voters")?;
            let replicas = places(&today.replicas, "today.replicas")?;
            Some(Layout::new(leader, voters, replicas).map_err(|error| {
                let what = Mismatch::new(error.to_string(), "a layout");
                Problem { path: "today".to_owned(), ..whole(file, what) }
            })?)
        }
    };
    let replicas = written.replicas.or(today.as_ref().map(|today| today.replicas().len()));
    let voters = written.voters.or(today.as_ref().map(|today| today.voters().len()));
    let size = replicas.zip(voters).map(|(replicas, voters)| Size { replicas, voters });
    Ok(Input {
        title: written.title.clone(),
        sites,
        clients: matrix.from,
        trips,
        intervals,
        tau: written.tau,
        sizes: size.into_iter().collect(),
        today,
        rules,
        domains,
        voter_domains: written.voter_domains,
        domain_replicas_max: written.domain_replicas_max,
    })
}

/// From all rows to the sites, and between sites; a leader's own vote takes no time.
fn trips(matrix: &Matrix, sites: &[String], file: &str) -> Result<RoundTrips, Problem> {
    let column = |name: &String| place(&matrix.to, name, "", file);
    let columns: Vec<usize> = sites.iter().map(column).collect::<Result<_, _>>()?;
    let picked = |row: &Vec<f64>| columns.iter().map(|&column| row[column]).collect::<Vec<f64>>();
    let mut between = Vec::with_capacity(sites.len());
    for (site, name) in sites.iter().enumerate() {
        let row = matrix.from.iter().position(|from| from == name).ok_or_else(|| {
            let came = format!("no row from {}", quoted(name));
            let what = Mismatch::new(came, "a row for every site, as there is a column");
            whole(file, what.with_hint("is the matrix not square?"))
        })?;
        let mut row = picked(&matrix.ms[row]);
        row[site] = 0.0;
        between.push(row);
    }
    let from_clients: Vec<Vec<f64>> = matrix.ms.iter().map(picked).collect();
    RoundTrips::new(&from_clients, &between)
        .map_err(|error| whole(file, Mismatch::new(error.to_string(), "round trips")))
}
