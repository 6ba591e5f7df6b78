//! Dead files: a scenario or a paper that nothing names is neither run nor read. The same for
//! metrics: each family stands in the documents, and nothing else does.

use super::{File, Tree, Violation};

pub(super) fn check(tree: &Tree, violations: &mut Vec<Violation>) {
    for scenario in tree.files.iter().filter_map(scenario_name) {
        check_scenario(tree, scenario, violations);
    }
    for paper in papers(tree) {
        check_paper(tree, paper, violations);
    }
    check_metrics(tree, violations);
}

/// Where every family of metrics has its row.
const METRICS: &str = "docs/metrics.md";

fn check_metrics(tree: &Tree, violations: &mut Vec<Violation>) {
    let Some(page) = tree.file(METRICS) else { return };
    let documented: Vec<(usize, &str)> = page
        .lines()
        .filter_map(|(line, text)| Some((line, text.strip_prefix("| `")?.split('`').next()?)))
        .collect();
    let mut described = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.starts_with("crates/serve/")) {
        for name in families(&file.text) {
            described.push(name);
            if !documented.iter().any(|(_, known)| *known == name) {
                let what = format!("the metric {name} has no row in {METRICS}; add one");
                violations.push(Violation::new(&file.path, 1, what));
            }
        }
    }
    for (line, name) in documented.iter().filter(|(_, name)| !described.contains(name)) {
        let what = format!("there is no metric {name}; take the row out");
        violations.push(Violation::new(METRICS, *line, what));
    }
}

/// The names of the families that a file describes: the first argument of their constructors.
fn families(source: &str) -> impl Iterator<Item = &str> {
    let constructors = [
        "counter(",
        "counter_by(",
        "gauge(",
        "gauge_by(",
        "histogram(",
        "histogram_of(",
        "summary(",
    ];
    constructors.into_iter().flat_map(move |constructor| {
        source.match_indices(constructor).filter_map(move |(at, _)| {
            let rest = source[at + constructor.len()..].trim_start().strip_prefix('"')?;
            rest.split('"').next().filter(|name| name.starts_with("evenkeel_"))
        })
    })
}

/// `c3-skew` for `scenarios/c3-skew.toml`.
fn scenario_name(file: &File) -> Option<&str> {
    file.path.strip_prefix("scenarios/")?.strip_suffix(".toml")
}

/// The folder names directly under `papers/`, each once.
fn papers(tree: &Tree) -> Vec<&str> {
    let paths = tree.files.iter().map(|file| file.path.as_str());
    let paths = paths.chain(tree.binaries.iter().map(String::as_str));
    let mut names: Vec<&str> =
        paths.filter_map(|path| Some(path.strip_prefix("papers/")?.split_once('/')?.0)).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn check_scenario(tree: &Tree, name: &str, violations: &mut Vec<Violation>) {
    let path = format!("scenarios/{name}.toml");
    let file_name = format!("{name}.toml");
    let quoted = format!("\"{name}\"");
    let is_named =
        tree.files.iter().filter(|file| file.path != path && can_refer(file)).any(|file| {
            names(&file.text, &file_name)
                || (file.has_extension("rs") && file.text.contains(&quoted))
        });
    if !is_named {
        let what = "dead file: no document, scenario or test names it; name it where it is used \
                    or delete it";
        violations.push(Violation::new(&path, 1, what));
    }
}

fn check_paper(tree: &Tree, name: &str, violations: &mut Vec<Violation>) {
    let folder = format!("papers/{name}/");
    let mentions = [format!("papers/{name}"), format!("paper {name}")];
    let is_named = tree
        .files
        .iter()
        .filter(|file| !file.path.starts_with(&folder) && can_refer(file))
        .any(|file| mentions.iter().any(|mention| names(&file.text, mention)));
    if !is_named {
        let what = format!(
            "dead folder: no document or test outside it names `papers/{name}` or `paper {name}`; \
             name it where it is used or delete it"
        );
        violations.push(Violation::new(&folder, 1, what));
    }
}

/// Prose, code and configuration that a reader or a test starts from.
fn can_refer(file: &File) -> bool {
    ["md", "rs", "toml", "sh"].iter().any(|extension| file.has_extension(extension))
        || file.path.starts_with(".ci/")
}

/// Whether `name` occurs, and not as a part of a longer file name.
fn names(text: &str, name: &str) -> bool {
    let continues = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    text.match_indices(name).any(|(offset, _)| {
        let before = text[..offset].chars().next_back();
        let after = text[offset + name.len()..].chars().next();
        !before.is_some_and(continues) && !after.is_some_and(continues)
    })
}

#[cfg(test)]
mod tests {
    use super::super::report;
    use super::*;

    #[test]
    fn metrics_and_their_documents_agree() {
        let page = ("docs/metrics.md", "| name |\n|---|\n| `evenkeel_a` |\n| `evenkeel_gone` |\n");
        let source = "gauge(\"evenkeel_a\", \"A.\"), counter_by(\n    \"evenkeel_b_total\",";
        let found = report(check, &[page, ("crates/serve/a/src/metrics.rs", source)]);
        assert_eq!(
            found,
            [
                "crates/serve/a/src/metrics.rs:1: the metric evenkeel_b_total has no row in \
             docs/metrics.md; add one",
                "docs/metrics.md:4: there is no metric evenkeel_gone; take the row out",
            ]
        );
    }

    fn scenario_report(other_path: &str, other: &str) -> usize {
        report(check, &[("scenarios/skew.toml", "# skew.toml"), (other_path, other)]).len()
    }

    #[test]
    fn a_scenario_must_be_named_somewhere_else() {
        assert_eq!(scenario_report("README.md", "see `scenarios/skew.toml`"), 0);
        assert_eq!(scenario_report("crates/sim/tests/all.rs", "run(\"skew\")"), 0);
        assert_eq!(scenario_report("crates/sim/tests/all.rs", "fn skew() {}"), 1);
        assert_eq!(scenario_report("README.md", "see `c3-skew.toml`, and skew"), 1);
        assert_eq!(scenario_report("data.csv", "skew.toml"), 1);
    }

    #[test]
    fn a_dead_scenario_is_reported_with_what_to_do() {
        let report = report(check, &[("scenarios/skew.toml", "")]);
        assert!(report[0].starts_with("scenarios/skew.toml:1: dead file:"), "{report:?}");
    }

    #[test]
    fn a_paper_must_be_named_outside_its_folder() {
        let own = ("papers/c3/README.md", "papers/c3 and paper c3");
        assert_eq!(report(check, &[own]).len(), 1);
        assert_eq!(report(check, &[own, ("README.md", "`evenkeel paper c3`")]), [""; 0]);
        assert_eq!(report(check, &[own, ("README.md", "[x](papers/c3/README.md)")]), [""; 0]);
        assert_eq!(report(check, &[own, ("README.md", "papers/c3-cassandra")]).len(), 1);
    }
}
