//! `--set path=value`: one setting of a document, overlaid from the command line.

use std::collections::BTreeMap;
use std::path::Path;

use crate::document::{DEPTH_MAX, Node, Value, parse_value};
use crate::problem::{Mismatch, Place, Problem, Problems, excerpt, joined, quoted};

impl Node {
    /// Reads a TOML file and sets what people assign on a command line, as [`set`](Self::set) does.
    ///
    /// # Errors
    /// As [`load`](Self::load), or every assignment that cannot be made.
    pub fn load_with(path: &Path, assignments: &[String]) -> Result<Self, Problems> {
        let mut node = Self::load(path)?;
        let mut problems = Problems::default();
        for assignment in assignments {
            if let Err(problem) = node.set(assignment) {
                problems.push(problem);
            }
        }
        problems.into_result(node)
    }

    /// Overlays `path.to.value=VALUE`.
    ///
    /// The path names tables and, with numbers from 0, items of lists (`faults.0.at`); tables
    /// that are missing are made. A key with a dot is written in quotes. VALUE is a value of TOML
    /// where it is one (`3`, `true`, `[1, 8]`, `{cores = 8}`), a list of bare words
    /// (`[c3,random]`), or else a text (`30ms`, `c3`).
    ///
    /// # Errors
    /// When there is no `=`, or the path leads through something that is no table or list.
    /// The document is then as it was.
    pub fn set(&mut self, assignment: &str) -> Result<(), Problem> {
        let flag = Place::Flag(assignment.into());
        let (path, value) = assignment.split_once('=').ok_or_else(|| {
            let came = quoted(assignment);
            let what = Mismatch::new(came, "path=value, such as workload.rate=500/s");
            Problem { at: flag.clone(), path: String::new(), what }
        })?;
        let keys = keys(path.trim(), &flag)?;
        let value = flag_value(value.trim(), &flag).map_err(|problems| first(&problems, path))?;
        let mut here = self;
        let mut so_far = String::new();
        for key in keys {
            here = step(here, key, &so_far, &flag)?;
            so_far = joined(&so_far, key);
        }
        *here = value;
        Ok(())
    }
}

/// Splits `a."b.c".0`; quotes keep dots together.
fn keys<'p>(path: &'p str, flag: &Place) -> Result<Vec<&'p str>, Problem> {
    let mut in_quotes = false;
    let parts = path.split(|c: char| {
        in_quotes ^= c == '"';
        c == '.' && !in_quotes
    });
    let unquote = |part: &'p str| {
        let inner = part.strip_prefix('"').and_then(|part| part.strip_suffix('"'));
        inner.unwrap_or(part)
    };
    let keys: Vec<&str> = parts.map(|part| unquote(part.trim())).take(DEPTH_MAX + 1).collect();
    let valid = |key: &&str| !key.is_empty() && !key.contains('"');
    if keys.len() <= DEPTH_MAX && keys.iter().all(valid) {
        return Ok(keys);
    }
    let expected = format!("at most {DEPTH_MAX} keys with dots between, such as workload.rate");
    let what = Mismatch::new(format!("the path {}", quoted(path)), expected);
    Err(Problem { at: flag.clone(), path: String::new(), what })
}

/// The node under `key`; an absent one becomes an empty table, which the last step overwrites.
fn step<'n>(
    here: &'n mut Node,
    key: &str,
    so_far: &str,
    flag: &Place,
) -> Result<&'n mut Node, Problem> {
    let described = here.value.described();
    let problem = |came: String, expected: String| {
        let what = Mismatch::new(came, expected);
        Problem { at: flag.clone(), path: so_far.to_owned(), what }
    };
    match &mut here.value {
        Value::Table(entries) => Ok(entries.entry(key.to_owned()).or_insert_with(|| {
            let value = Value::Table(BTreeMap::new());
            Node { value, at: flag.clone() }
        })),
        Value::List(items) => {
            let last = items.len().checked_sub(1);
            let item = key.parse::<usize>().ok().and_then(|index| items.get_mut(index));
            item.ok_or_else(|| {
                let expected = last.map(|last| format!("an index from 0 to {last}"));
                let expected = expected.unwrap_or_else(|| "a list with items".to_owned());
                problem(format!("the index {}", excerpt(key)), expected)
            })
        }
        _ => Err(problem(described, format!("a table or list, to reach {}", quoted(key)))),
    }
}

fn flag_value(text: &str, flag: &Place) -> Result<Node, Problems> {
    if let Some(node) = parse_value(text, flag)? {
        return Ok(node);
    }
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let value = match inner.filter(|inner| !inner.contains(['[', ']', '{', '}', '"', '\''])) {
        Some(words) => {
            let items = words.split(',').map(|word| flag_value(word.trim(), flag));
            Value::List(items.collect::<Result<_, _>>()?)
        }
        None => Value::Text(text.to_owned()),
    };
    Ok(Node { value, at: flag.clone() })
}

fn first(problems: &Problems, path: &str) -> Problem {
    let problem = problems.iter().next().expect("an error holds at least one problem").clone();
    let within = if problem.path.is_empty() { String::new() } else { format!(".{}", problem.path) };
    Problem { path: format!("{}{within}", excerpt(path.trim())), ..problem }
}
