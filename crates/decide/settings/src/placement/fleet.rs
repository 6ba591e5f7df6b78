//! Many databases in one folder: a TOML file for each, and what sites can take.

use std::path::{Path, PathBuf};

use super::{Input, parse_capacities, plan, read, whole};
use crate::problem::{Mismatch, Problem, Problems};

/// Databases at most.
const DATABASES_MAX: usize = 100_000;

/// Databases that share sites.
#[derive(Clone, PartialEq, Debug)]
pub struct Fleet {
    /// In the order of their names; at least one.
    pub databases: Vec<Database>,
    /// What the leaders at each site can take together, by name, in operations per second at a
    /// `leader_cost` of 1; none where nobody said.
    pub capacities: Option<Vec<(String, f64)>>,
}

/// One of many databases.
#[derive(Clone, PartialEq, Debug)]
pub struct Database {
    /// The name of its file without `.toml`.
    pub name: String,
    /// Its file.
    pub file: PathBuf,
    /// What is in it.
    pub input: Input,
}

impl Fleet {
    /// Whether a folder is one of databases: whether a TOML file is in it.
    pub fn is_in(folder: &Path) -> bool {
        folder.is_dir() && files(folder).is_ok_and(|files| !files.is_empty())
    }

    /// Reads every TOML file of a folder, and `capacity.csv` if it is there.
    ///
    /// # Errors
    /// Every problem of the first file that has any.
    pub fn load(folder: &Path) -> Result<Self, Problems> {
        let shown = folder.display().to_string();
        let files = files(folder).map_err(|error| {
            whole(&shown, Mismatch::new(format!("no readable folder ({error})"), "a folder"))
        })?;
        if !(1..=DATABASES_MAX).contains(&files.len()) {
            let came = format!("{} files *.toml", files.len());
            let expected = format!("1 to {DATABASES_MAX}, one for each database");
            return Err(whole(&shown, Mismatch::new(came, expected)).into());
        }
        let one = |file: PathBuf| -> Result<Database, Problems> {
            let input = plan::load(&file)?;
            let name = file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
            Ok(Database { name: name.unwrap_or_default(), file, input })
        };
        let databases: Vec<Database> = files.into_iter().map(one).collect::<Result<_, _>>()?;
        let table = folder.join("capacity.csv");
        let capacities = match table.is_file() {
            true => Some(parse_capacities(&read(&table)?, &table.display().to_string())?),
            false => None,
        };
        let fleet = Self { databases, capacities };
        fleet.check(&table.display().to_string())?;
        Ok(fleet)
    }

    /// With capacities, every database says how long its intervals are, and every site has one.
    fn check(&self, table: &str) -> Result<(), Problem> {
        let Some(capacities) = &self.capacities else { return Ok(()) };
        for Database { file, input, .. } in &self.databases {
            let file = file.display().to_string();
            if input.interval.is_none() {
                let what = Mismatch::new("nothing", "the length of an interval, such as \"1h\"");
                let what = what.with_hint("capacity.csv is in operations per second");
                return Err(Problem { path: "interval".to_owned(), ..whole(&file, what) });
            }
            let is_known = |site: &&String| capacities.iter().all(|(known, _)| known != *site);
            if let Some(site) = input.sites.iter().find(is_known) {
                let came = format!("no row for the site \"{site}\" of {file}");
                let what = Mismatch::new(came, "a capacity for every site, inf for no limit");
                return Err(whole(table, what.with_hint("misspelt?")));
            }
        }
        Ok(())
    }
}

/// TOML files of a folder, in the order of their names.
fn files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|kind| kind == "toml") && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
