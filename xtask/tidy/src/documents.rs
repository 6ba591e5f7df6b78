//! Markdown: every relative link leads to a file of the tree, and the README's first screen says
//! how to see the program work and how to check a change. The schema of configurations is that of
//! their document.

use super::{File, Tree, Violation};
use crate::schema::{self, DOCUMENT, SCHEMA};

const FIRST_SCREEN_LINES: usize = 60;
const FIRST_SCREEN_COMMANDS: [&str; 2] = ["cargo run --release -- demo", "cargo xtask ci"];

/// What makes the first of them run.
const RUNS_THE_CLI: &str = "default-members = [\"crates/tools/cli\"]";

pub(super) fn check(tree: &Tree, violations: &mut Vec<Violation>) {
    check_readme(tree, violations);
    for file in tree.with_extension("md") {
        check_links(tree, file, violations);
    }
}

fn check_readme(tree: &Tree, violations: &mut Vec<Violation>) {
    let text = tree.file("README.md").map_or("", |file| &file.text);
    let screen: Vec<&str> = text.lines().take(FIRST_SCREEN_LINES).collect();
    for command in FIRST_SCREEN_COMMANDS {
        if !screen.iter().any(|line| line.contains(command)) {
            let what = format!(
                "`{command}` not in the first {FIRST_SCREEN_LINES} lines; a newcomer looks there \
                 and nowhere else: show it"
            );
            violations.push(Violation::new("README.md", 1, what));
        }
    }
    let manifest = tree.file("Cargo.toml").map_or(RUNS_THE_CLI, |file| &file.text);
    if !manifest.contains(RUNS_THE_CLI) {
        let what = format!("no `{RUNS_THE_CLI}`, without which `cargo run` does not know what");
        violations.push(Violation::new("Cargo.toml", 1, what));
    }
}

pub(super) fn check_schema(tree: &Tree, violations: &mut Vec<Violation>) {
    let Some(document) = tree.file(DOCUMENT) else { return };
    let what = match schema::of_document(&document.text) {
        Ok(schema) if tree.file(SCHEMA).is_some_and(|file| file.text == schema) => return,
        Ok(_) => format!("is not what {DOCUMENT} says; run `cargo xtask schema`"),
        Err(error) => format!("cannot be made: {error}"),
    };
    violations.push(Violation::new(SCHEMA, 1, what));
}

fn check_links(tree: &Tree, file: &File, violations: &mut Vec<Violation>) {
    for (line, target) in links(&file.text) {
        let Some(path) = relative_path(target) else { continue };
        let is_found = resolve(&file.path, path).is_some_and(|found| tree.holds(&found));
        if !is_found {
            let what = format!(
                "link to `{target}`, which is no file of this tree (ignored files do not count); \
                 correct the path, it is relative to this document"
            );
            violations.push(Violation::new(&file.path, line, what));
        }
    }
}

/// Link targets with their line, from inline links and link definitions; code is left out.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut in_fence = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_fence = !in_fence;
        } else if !in_fence {
            let targets = inline_targets(line).into_iter().chain(defined_target(line));
            found.extend(targets.map(|target| (index + 1, target)));
        }
    }
    found
}

/// `b` of each `[a](b)` and `[a](b "title")` outside `code spans`.
fn inline_targets(line: &str) -> Vec<&str> {
    let is_in_code = |offset: usize| line[..offset].matches('`').count() % 2 == 1;
    line.match_indices("](")
        .filter(|(offset, _)| !is_in_code(*offset))
        .filter_map(|(offset, opening)| {
            let (target, _) = line[offset + opening.len()..].split_once(')')?;
            target.split_whitespace().next()
        })
        .collect()
}

/// `b` of `[a]: b`.
fn defined_target(line: &str) -> Option<&str> {
    let (label, target) = line.strip_prefix('[')?.split_once("]:")?;
    (!label.starts_with('^')).then(|| target.split_whitespace().next())?
}

/// The path of a link into the tree, without its anchor; nothing for other links.
fn relative_path(target: &str) -> Option<&str> {
    let target = target.trim_start_matches('<').trim_end_matches('>');
    let path = target.split('#').next().unwrap_or_default();
    let is_elsewhere = target.contains("://") || target.starts_with("mailto:");
    (!is_elsewhere && !path.is_empty()).then_some(path)
}

/// The path from the root of the tree; nothing when the link leaves the tree.
fn resolve(document: &str, target: &str) -> Option<String> {
    let folder = document.rsplit_once('/').map_or("", |(folder, _)| folder);
    let (start, rest) = match target.strip_prefix('/') {
        Some(rest) => ("", rest),
        None => (folder, target),
    };
    let mut parts: Vec<&str> = start.split('/').filter(|part| !part.is_empty()).collect();
    for part in rest.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::super::report;
    use super::*;

    const README: &str = "cargo run --release -- demo\ncargo xtask ci\n";

    fn link_report(document: &str) -> Vec<String> {
        report(check, &[("README.md", README), ("docs/a/b.md", document), ("docs/c.md", "")])
    }

    #[test]
    fn links_that_lead_somewhere_are_free() {
        for document in [
            "[c](../c.md)",
            "[c](../c.md#part) and [top](#top)",
            "[root](/README.md), [folder](../a/) and [docs](..)",
            "[out](https://example.org/x.md) [mail](mailto:a@example.org)",
            "[c](../c.md \"title\") [c](<../c.md>)",
            "```\n[c](no.md)\n```",
            "`[c](no.md)` is code",
            "[c]: ../c.md\n[^1]: a footnote",
        ] {
            assert_eq!(link_report(document), [""; 0], "{document}");
        }
    }

    #[test]
    fn links_that_lead_nowhere_are_reported_with_their_line() {
        for document in [
            "\n[c](c.md)",
            "\n`code` [c](../no.md)",
            "\n[c]: no.md",
            "\n[x](../c.md) [c](../../../outside.md)",
            "\n![figure](figure.png)",
        ] {
            let report = link_report(document);
            assert_eq!(report.len(), 1, "{document}: {report:?}");
            assert!(report[0].starts_with("docs/a/b.md:2: link to `"), "{report:?}");
        }
    }

    #[test]
    fn a_stale_schema_is_reported() {
        let rows = "## `[a]`\n| `b` | c | number | `1` | 1 – 2 |\n";
        let schema = schema::of_document(rows).unwrap();
        let found =
            |rows: &str, schema: &str| report(check_schema, &[(DOCUMENT, rows), (SCHEMA, schema)]);
        assert_eq!(found(rows, &schema), [""; 0]);
        let stale = found(&rows.replace('2', "3"), &schema);
        assert!(stale.len() == 1 && stale[0].contains("cargo xtask schema"), "{stale:?}");
        let unknown = found(&rows.replace("number", "colour"), &schema);
        assert!(unknown[0].contains("configuration.md:2") && unknown[0].contains("colour"));
        assert_eq!(report(check_schema, &[(DOCUMENT, rows)]).len(), 1);
    }

    #[test]
    fn the_first_screen_holds_both_commands() {
        let late = format!("{}cargo xtask ci\n", "\n".repeat(60));
        let report_late = report(check, &[("README.md", &late)]);
        assert_eq!(report_late.len(), 2);
        let just = format!("{}{README}", "\n".repeat(58));
        assert_eq!(report(check, &[("README.md", &just)]), [""; 0]);
        assert_eq!(report(check, &[]).len(), 2);
        let manifest = ("Cargo.toml", "[workspace]\ndefault-members = [\"xtask\"]");
        assert_eq!(report(check, &[("README.md", &just), manifest]).len(), 1);
    }
}
