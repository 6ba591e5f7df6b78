//! `docs/failures.md`: what operators read before they trust the program. No cell of a table is
//! empty, every link within the page leads to a heading, and each test that a row names is there.
//!
//! The last cell of a row names tests in words, as `` `file.rs`: words of a test; of another ``.
//! The words with underscores are its name, or the beginning of it. A file is the end of its path,
//! or a module or folder with the tests; it counts until the next one is named, and without one
//! every file is looked through. What a file tells may have its name in the `main.rs` beside it.
//! What is in brackets at the end is for readers. Instead of a name there may be a file alone, "the
//! same", "the property tests of …", or "none: " and why there is none.

use super::{File, Tree, Violation};

const PAGE: &str = "docs/failures.md";
/// The last column of tables whose rows name tests.
const TESTS: &str = "test";
/// How an entry begins that names no test.
const WORDS: [&str; 3] = ["the same", "the property tests of ", "none: "];

pub(super) fn check(tree: &Tree, violations: &mut Vec<Violation>) {
    let Some(page) = tree.file(PAGE) else { return };
    let mut report = |line, what| violations.push(Violation::new(PAGE, line, what));
    let anchors: Vec<String> = page.text.lines().filter_map(anchor).collect();
    let mut names_tests = false;
    for (number, line) in page.lines() {
        for target in line.split("](#").skip(1).filter_map(|rest| rest.split(')').next()) {
            if !anchors.iter().any(|anchor| anchor == target) {
                report(number, format!("no heading of this page is #{target}; correct the link"));
            }
        }
        let Some(cells) = cells(line) else { continue };
        if page.text.lines().nth(number).is_some_and(|next| next.starts_with("|---")) {
            names_tests = cells.last().is_some_and(|last| last == TESTS);
            continue;
        }
        if let Some(place) = cells.iter().position(String::is_empty) {
            let what = "is empty; say what happens, or why it cannot or has no test";
            report(number, format!("cell {} {what}", place + 1));
        }
        for what in missing(tree, cells.last().filter(|_| names_tests)) {
            report(number, what);
        }
    }
}

/// The cells of a table's row, without the line between head and rows.
fn cells(line: &str) -> Option<Vec<String>> {
    let row = line.trim_end().strip_prefix('|')?.strip_suffix('|')?;
    let cell = |text: &str| text.trim().to_owned();
    (!row.starts_with("---")).then(|| row.replace("\\|", "/").split('|').map(cell).collect())
}

/// How a heading is linked to.
fn anchor(line: &str) -> Option<String> {
    let heading = line.strip_prefix('#')?.trim_start_matches('#').trim().to_lowercase();
    let is_kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
    Some(heading.chars().filter(is_kept).collect::<String>().replace(' ', "-"))
}

/// What a row's tests lack.
fn missing(tree: &Tree, tests: Option<&String>) -> Vec<String> {
    let mut found = Vec::new();
    let mut of: Vec<&str> = Vec::new();
    for entry in tests.map_or("", String::as_str).split(';').map(str::trim) {
        let spans: Vec<&str> = entry.split('`').collect();
        let words = if WORDS.iter().any(|words| entry.starts_with(words)) {
            continue;
        } else if let [_, named @ .., words] = &spans[..] {
            // Around files there may be words such as "with".
            let files: Vec<&str> = named.iter().step_by(2).copied().collect();
            for one in &files {
                if !tree.files.iter().any(|known| is_of(known, one)) {
                    found.push(format!("there is no file {one}; name the one with the test"));
                }
            }
            of = files;
            words
        } else {
            entry
        };
        let name = name(words);
        let is_named = WORDS.iter().any(|start| name.starts_with(&start.trim().replace(' ', "_")));
        if name.is_empty() || is_named {
            continue;
        }
        let starts = ['(', '<', '_'].map(|next| format!("fn {name}{next}"));
        let has = |known: &File| starts.iter().any(|start| known.text.contains(start));
        let is_one = |known: &File, file: &str| is_of(known, file) || is_beside(tree, known, file);
        let may_have = |known: &File| of.is_empty() || of.iter().any(|file| is_one(known, file));
        if !tree.with_extension("rs").any(|known| has(known) && may_have(known)) {
            let of = if of.is_empty() { String::new() } else { format!(" in {}", of.join(", ")) };
            found.push(format!("there is no test {name}{of}; name the one that shows it"));
        }
    }
    found
}

/// Whether a file is the one that is named by the end of its path, or belongs to it as a module.
fn is_of(known: &File, named: &str) -> bool {
    let module = named.trim_end_matches(".rs").trim_end_matches('/');
    let path = format!("/{}", known.path);
    path.ends_with(&format!("/{module}.rs")) || path.contains(&format!("/{module}/"))
}

/// Whether a file is the `main.rs` of the tests in the folder of the one that is named.
fn is_beside(tree: &Tree, known: &File, named: &str) -> bool {
    let folder = known.path.strip_suffix("main.rs").filter(|folder| folder.contains("/tests/"));
    let has = |folder: &str| {
        let is_in = |file: &&File| file.path.starts_with(folder);
        tree.files.iter().filter(is_in).any(|file| is_of(file, named))
    };
    folder.is_some_and(has)
}

/// The name of a test from its words.
fn name(words: &str) -> String {
    let plain = words.trim_start_matches(':').trim();
    let plain = match plain.rsplit_once(" (") {
        Some((before, after)) if after.ends_with(')') => before,
        _ => plain,
    };
    let plain = plain.replace('\'', "").to_lowercase();
    let parts = plain.split(|c: char| !c.is_ascii_alphanumeric());
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("_")
}

#[cfg(test)]
mod tests {
    use super::super::report;
    use super::*;

    const FILES: [(&str, &str); 4] = [
        ("crates/ship/src/deck.rs", "fn the_crews_awake() {}\nfn a_sail_tears<T>() {}\n"),
        ("crates/ship/tests/storm/main.rs", "fn it_floats() {}\n"),
        ("crates/ship/src/deck/tests.rs", "fn a_rope_holds() {}\n"),
        ("crates/ship/tests/storm/waves.rs", "pub(crate) fn rise() {}\n"),
    ];

    fn of_rows(rows: &str) -> Vec<String> {
        let page =
            format!("# Failures\n\n## At sea\n\n| f | result | test |\n|---|---|---|\n{rows}");
        report(check, &[(PAGE, &page), FILES[0], FILES[1], FILES[2], FILES[3]])
    }

    #[test]
    fn tests_that_are_there_are_found_by_their_words() {
        for tests in [
            "`deck.rs`: the crew's awake; a sail tears",
            "it floats",
            "`ship/src/deck.rs`: the crew's awake (in the morning); `storm`: it floats",
            "`deck.rs`: a rope holds; a sail",
            "`ship/tests/storm/main.rs`",
            "`storm/waves.rs`: it floats",
            "with the ropes of `deck/tests.rs`, `main.rs`: it floats",
            "`deck.rs` with `main.rs`: the same test, twice",
            "the same",
            "`deck.rs`: the crew's awake; the property tests of ropes",
            "none: nobody can make the sea",
        ] {
            assert_eq!(of_rows(&format!("| a | b | {tests} |\n")), [""; 0], "{tests}");
        }
    }

    #[test]
    fn what_is_missing_is_told() {
        for (tests, told) in [
            ("`deck.rs`: a sail holds", "there is no test a_sail_holds in deck.rs"),
            ("`deck.rs`: a sail te", "there is no test a_sail_te in deck.rs"),
            ("`deck.rs`: it floats", "there is no test it_floats in deck.rs"),
            ("`hull.rs`: it floats", "there is no file hull.rs"),
            ("nobody knows", "there is no test nobody_knows;"),
            ("", "cell 3 is empty"),
        ] {
            let found = of_rows(&format!("| a | b | {tests} |\n"));
            assert!(found[0].starts_with("docs/failures.md:7: "), "{found:?}");
            assert!(found[0].contains(told), "{found:?} lacks {told}");
        }
        assert!(of_rows("| | b | it floats |\n")[0].contains("cell 1 is empty"));
    }

    #[test]
    fn a_matrix_has_links_to_headings_and_no_empty_cell() {
        let matrix =
            "\n| what | sea | land |\n|---|---|---|\n| wind | [sails](#at-sea) | cannot be |\n";
        assert_eq!(of_rows(matrix), [""; 0]);
        let found = of_rows(&matrix.replace("at-sea", "at-see").replace("cannot be", ""));
        assert!(found[0].contains("#at-see") && found[1].contains("cell 3"), "{found:?}");
    }
}
