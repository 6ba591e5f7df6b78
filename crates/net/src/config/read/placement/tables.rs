//! Round trips and failure domains: files in the formats of `evenkeel plan placement`.

use std::cell::RefCell;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use evenkeel_core::placement::domains::Domains;
use evenkeel_core::placement::model::RoundTrips;
use evenkeel_settings::placement::{BYTES_MAX, Matrix, load_domains, parse_matrix};
use evenkeel_settings::{Mismatch, Setting, Table, Value};

use super::file;

/// Sites, and the round trips between them and to them.
type Made = (Arc<[String]>, Arc<RoundTrips>);

/// What the tables say. Databases of equal sites share one matrix: thousands of them may.
pub(super) struct Tables {
    matrix: Option<Matrix>,
    /// Sites that have a row and a column.
    sites: Arc<[String]>,
    /// The failure domain of each of them, as a number.
    domains: Option<Vec<usize>>,
    made: RefCell<Vec<Made>>,
}

impl Tables {
    /// Reads `round_trips` and `domains`.
    pub(super) fn read(table: &mut Table<'_>) -> Self {
        let matrix = matrix(&table.key("round_trips"));
        let both = |matrix: &Matrix| {
            let names = matrix.to.iter().filter(|name| matrix.from.contains(name));
            names.cloned().collect::<Vec<_>>()
        };
        let sites = matrix.as_ref().map(both).unwrap_or_default();
        if matrix.is_some() && sites.is_empty() {
            let came = "round trips between no sites: no name has a row and a column";
            table.problem("round_trips", Mismatch::new(came, "a row and a column for each site"));
        }
        let domains = domains(&table.key("domains"), &sites);
        Self { matrix, sites: sites.into(), domains, made: RefCell::default() }
    }

    /// Where operations come from.
    pub(super) fn clients(&self) -> Arc<[String]> {
        self.matrix.as_ref().map(|matrix| matrix.from.clone()).unwrap_or_default().into()
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
        let Some(listed) = listed.check("one site or more", |all| !all.is_empty()).optional()
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

    /// From all clients to these sites and between them; a leader's own vote takes no time. `None`
    /// without a matrix or sites.
    pub(super) fn trips(&self, sites: &Arc<[String]>) -> Option<Arc<RoundTrips>> {
        let matrix = self.matrix.as_ref().filter(|_| !sites.is_empty())?;
        if let Some((_, made)) = self.made.borrow().iter().find(|(of, _)| of == sites) {
            return Some(Arc::clone(made));
        }
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
        let trips = Arc::new(RoundTrips::new(&from_clients, &between).ok()?);
        self.made.borrow_mut().push((Arc::clone(sites), Arc::clone(&trips)));
        Some(trips)
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

/// Whether the name of a file is written here.
fn is_written(setting: &Setting<'_>) -> bool {
    matches!(setting.value(), Some(Value::Text(text)) if !text.is_empty())
}

fn matrix(setting: &Setting<'_>) -> Option<Matrix> {
    let path = file(setting.clone());
    if !is_written(setting) {
        return None;
    }
    let read = text(&path).map_err(|came| Mismatch::new(came, "a file of round trips"));
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
fn text(path: &Path) -> Result<String, String> {
    let unreadable = |error| format!("no readable file {} ({error})", path.display());
    let mut text = String::new();
    let opened = std::fs::File::open(path).map_err(unreadable)?;
    opened.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > BYTES_MAX {
        return Err(format!("more than 64 MiB in {}", path.display()));
    }
    Ok(text)
}
