//! Round trips, how they vary, and failure domains: files in the formats of
//! `evenkeel plan placement`, or the mesh of `[redirect]`, whose sites are known here and whose
//! round trips are measured later.

use std::cell::RefCell;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use evenkeel_planner::domains::Domains;
use evenkeel_planner::model::RoundTrips;
use evenkeel_planner::tail::Tails;
use evenkeel_settings::common::file;
use evenkeel_settings::placement::{
    BYTES_MAX, Distributions, Matrix, load_domains, parse_distributions, parse_matrix,
};
use evenkeel_settings::{Mismatch, Setting, Table, Value};

/// In place of the name of a file.
pub(crate) const MESH: &str = "mesh";

/// The sites whose mesh measures round trips.
pub struct Mesh {
    /// Their names.
    pub sites: Vec<String>,
    /// Whether another process of this site measures, and this one does not.
    pub is_follower: bool,
}

/// Sites, the round trips between them and to them, and how these vary.
#[derive(Clone)]
struct Made {
    sites: Arc<[String]>,
    trips: Arc<RoundTrips>,
    tails: Option<Arc<Tails>>,
}

/// What the tables say. Databases of equal sites share one matrix: thousands of them may.
pub(super) struct Tables<'a> {
    matrix: Option<Matrix>,
    is_mesh: bool,
    /// Where operations come from.
    clients: Arc<[String]>,
    /// Sites that have a row and a column.
    sites: Arc<[String]>,
    /// The failure domain of each of them, as a number.
    domains: Option<Vec<usize>>,
    /// Whether it matters how round trips vary, and where that is written.
    spread: Option<Setting<'a>>,
    made: RefCell<Vec<Made>>,
}

impl<'a> Tables<'a> {
    /// Reads `round_trips`, `distributions` and `domains`; distributions only if `has_percentile`.
    pub(super) fn read(table: &mut Table<'a>, has_percentile: bool, mesh: Option<&Mesh>) -> Self {
        let round_trips = table.key("round_trips");
        let is_mesh = matches!(round_trips.value(), Some(Value::Text(text)) if text == MESH);
        let spread = table.key("distributions");
        if spread.value().is_some() && (is_mesh || !has_percentile) {
            let expected = match is_mesh {
                true => "no such key: the mesh measures the variation of round trips",
                false => "percentile too: the mean needs no distributions",
            };
            spread.problem(Mismatch::new("distributions", expected));
        }
        let spread = Some(spread).filter(|_| has_percentile && !is_mesh);
        if is_mesh {
            let sites: Arc<[String]> = of_mesh(&round_trips, mesh).into();
            let domains = domains(&table.key("domains"), &sites);
            let clients = Arc::clone(&sites);
            let made = RefCell::default();
            return Self { matrix: None, is_mesh, clients, sites, domains, spread, made };
        }
        let matrix = matrix(&round_trips);
        let both = |matrix: &Matrix| {
            let names = matrix.to.iter().filter(|name| matrix.from.contains(name));
            names.cloned().collect::<Vec<_>>()
        };
        let sites = matrix.as_ref().map(both).unwrap_or_default();
        if matrix.is_some() && sites.is_empty() {
            let came = "round trips without a site: no name has a row and a column";
            table.problem("round_trips", Mismatch::new(came, "a row and a column for each site"));
        }
        let domains = domains(&table.key("domains"), &sites);
        let clients = matrix.as_ref().map(|matrix| matrix.from.clone()).unwrap_or_default();
        let (clients, sites) = (clients.into(), sites.into());
        Self { matrix, is_mesh, clients, sites, domains, spread, made: RefCell::default() }
    }

    /// Where operations come from.
    pub(super) fn clients(&self) -> Arc<[String]> {
        Arc::clone(&self.clients)
    }

    /// Whether round trips are measured, not written.
    pub(super) const fn is_mesh(&self) -> bool {
        self.is_mesh
    }

    /// All sites with their names.
    pub(super) fn named(&self) -> Vec<(&str, usize)> {
        self.sites.iter().map(String::as_str).zip(0..).collect()
    }

    /// The sites of one database: those that are listed, or all.
    pub(super) fn sites(&self, setting: Setting<'_>) -> Arc<[String]> {
        let named = self.named();
        if named.is_empty() {
            let _ = setting.list(|item| item.text().required()).optional(); // its own problems
            return Arc::from([]);
        }
        let listed = setting.clone().list(|item| {
            let place: usize = item.clone().variant(&named).required();
            (place, item)
        });
        let Some(listed) = listed.check("one or more sites", |all| !all.is_empty()).optional()
        else {
            return Arc::clone(&self.sites);
        };
        let mut places: Vec<usize> = Vec::with_capacity(listed.len());
        for (place, item) in listed {
            if places.contains(&place) {
                let came = format!("{:?} again", self.sites[place]);
                item.problem(Mismatch::new(came, "each site once"));
                continue;
            }
            places.push(place);
        }
        places.into_iter().map(|place| self.sites[place].clone()).collect()
    }

    /// From all clients to these sites and between them, and how that varies where it matters; a
    /// leader's own vote takes no time. `None` without a matrix or sites.
    pub(super) fn trips(
        &self,
        sites: &Arc<[String]>,
    ) -> Option<(Arc<RoundTrips>, Option<Arc<Tails>>)> {
        let known = self.made.borrow().iter().find(|made| made.sites == *sites).cloned();
        let made = match known {
            Some(made) => made,
            None => {
                let trips = self.make(sites)?;
                let tails = self.tails(sites, &trips).map(Arc::new);
                let made = Made { sites: Arc::clone(sites), trips, tails };
                self.made.borrow_mut().push(made.clone());
                made
            }
        };
        Some((made.trips, made.tails))
    }

    /// How round trips vary: as is written, or not at all.
    fn tails(&self, sites: &[String], trips: &RoundTrips) -> Option<Tails> {
        let setting = self.spread.as_ref()?;
        let read = || -> Result<Tails, Mismatch> {
            let spread = match is_written(setting) {
                false => Distributions::constant(trips),
                true => {
                    let path = file(setting.clone());
                    let expected = "distributions as for evenkeel plan placement";
                    let text =
                        text(&path).map_err(|came| Mismatch::new(came.to_string(), expected))?;
                    let file = path.display().to_string();
                    parse_distributions(&text, &file, &self.clients, sites).map_err(|problem| {
                        Mismatch::new(format!("a file with a problem ({problem})"), expected)
                    })?
                }
            };
            spread.tails().map(|(tails, _)| tails)
        };
        read().map_err(|what| setting.problem(what)).ok()
    }

    fn make(&self, sites: &Arc<[String]>) -> Option<Arc<RoundTrips>> {
        let matrix = self.matrix.as_ref().filter(|_| !sites.is_empty())?;
        let place = |of: &[String], name: &String| of.iter().position(|known| known == name);
        let columns: Vec<usize> =
            sites.iter().map(|name| place(&matrix.to, name)).collect::<Option<_>>()?;
        let picked = |row: &Vec<f64>| columns.iter().map(|column| row[*column]).collect();
        let from_clients: Vec<Vec<f64>> = matrix.ms.iter().map(picked).collect();
        let between = |(site, name): (usize, &String)| {
            let mut row: Vec<f64> = picked(&matrix.ms[place(&matrix.from, name)?]);
            row[site] = 0.0;
            Some(row)
        };
        let between: Vec<Vec<f64>> =
            sites.iter().enumerate().map(between).collect::<Option<_>>()?;
        RoundTrips::new(&from_clients, &between).ok().map(Arc::new)
    }

    /// The failure domains of these sites, if they are known.
    pub(super) fn domains(&self, sites: &[String]) -> Option<Domains> {
        let known = self.domains.as_ref()?;
        let of = |name: &String| {
            let place = self.sites.iter().position(|site| site == name)?;
            known.get(place).copied()
        };
        sites.iter().map(of).collect::<Option<Vec<_>>>().map(Domains::new)
    }
}

/// The sites of the mesh of this process.
fn of_mesh(setting: &Setting<'_>, mesh: Option<&Mesh>) -> Vec<String> {
    let wrong = |came: &str, expected: &str| {
        setting.problem(Mismatch::new(came, expected));
        Vec::new()
    };
    match mesh {
        Some(Mesh { is_follower: true, .. }) => wrong(
            "the mesh, with [redirect] controller",
            "[redirect] with listen: a follower measures no round trips, its controller does",
        ),
        Some(Mesh { sites, .. }) => sites.clone(),
        None => wrong(
            "the mesh without [redirect]",
            "[redirect], whose probes measure round trips, or the name of a file",
        ),
    }
}

/// Whether the name of a file is written here.
fn is_written(setting: &Setting<'_>) -> bool {
    matches!(setting.value(), Some(Value::Text(text)) if !text.is_empty())
}

fn matrix(setting: &Setting<'_>) -> Option<Matrix> {
    let path = file(setting.clone());
    if !is_written(setting) {
        return None;
    }
    let read = text(&path).map_err(|came| Mismatch::new(came.to_string(), "a file of round trips"));
    let parsed = read.and_then(|text| {
        let expected = "round trips as for evenkeel plan placement";
        parse_matrix(&text, &path.display().to_string()).map_err(|problem| {
            Mismatch::new(format!("a file with a problem ({problem})"), expected)
        })
    });
    parsed.map_err(|what| setting.problem(what)).ok()
}

fn domains(setting: &Setting<'_>, sites: &[String]) -> Option<Vec<usize>> {
    setting.value()?;
    let path = file(setting.clone());
    if !is_written(setting) || sites.is_empty() {
        return None;
    }
    let names = match load_domains(&path, sites) {
        Ok(names) => names,
        Err(problems) => {
            let came = format!("a file with a problem ({})", problems.to_string().trim());
            setting.problem(Mismatch::new(came, "columns site,domain, a row for every site"));
            return None;
        }
    };
    let mut known: Vec<&String> = names.iter().collect();
    known.sort_unstable();
    known.dedup();
    Some(names.iter().filter_map(|name| known.binary_search(&name).ok()).collect())
}

/// A text of bounded length.
///
/// # Errors
/// When it cannot be read or is too long, with its path.
fn text(path: &Path) -> io::Result<String> {
    let unreadable = |error: io::Error| {
        let words = format!("no readable file {} ({error})", path.display());
        io::Error::new(error.kind(), words)
    };
    let mut text = String::new();
    let opened = std::fs::File::open(path).map_err(unreadable)?;
    opened.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > BYTES_MAX {
        let words = format!("more than 64 MiB in {}", path.display());
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, words));
    }
    Ok(text)
}
