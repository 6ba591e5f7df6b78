//! Size and layout of Rust files.
//!
//! A function that fits on one screen is read whole; TigerBeetle enforces 70 lines and the
//! projects we measured keep nine functions of ten below 40. Tests may tell a longer story.

use super::source::Source;
use super::{File, Tree, Violation};

const FUNCTION_LINES_MAX: usize = 70;
const TEST_FUNCTION_LINES_MAX: usize = 120;
const FILE_LINES_MAX: usize = 800;
const LINE_COLUMNS_MAX: usize = 100;

pub(super) fn check(tree: &Tree, violations: &mut Vec<Violation>) {
    for file in tree.with_extension("rs") {
        let source = Source::new(&file.text);
        check_module_doc(file, violations);
        check_columns(file, violations);
        check_functions(file, &source, violations);
        check_file_length(file, &source, violations);
    }
}

/// Whether a whole file holds tests or benchmarks.
fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.split('/').any(|part| part == "tests" || part == "benches")
}

fn check_module_doc(file: &File, violations: &mut Vec<Violation>) {
    let is_preamble = |line: &str| line.trim().is_empty() || line.starts_with("#!");
    let first = file.lines().find(|(_, line)| !is_preamble(line));
    if let Some((_, line)) = first
        && line.starts_with("//!")
    {
        return;
    }
    let what = "no module doc at the top; begin the file with `//!` lines that say what it is for";
    violations.push(Violation::new(&file.path, 1, what));
}

fn check_columns(file: &File, violations: &mut Vec<Violation>) {
    for (number, line) in file.lines() {
        let columns = line.chars().count();
        if columns > LINE_COLUMNS_MAX && !is_link_alone(line) && !is_table_row(line) {
            let what = format!(
                "line of {columns} columns, limit {LINE_COLUMNS_MAX}; break it (rustfmt does not \
                 break strings and comments)"
            );
            violations.push(Violation::new(&file.path, number, what));
        }
    }
}

/// A row of a table in documentation cannot be broken.
fn is_table_row(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("//! |") || line.starts_with("/// |")
}

/// A comment that is one unbreakable link.
fn is_link_alone(line: &str) -> bool {
    let text = line.trim_start().trim_start_matches(['/', '!']).trim();
    line.trim_start().starts_with("//") && text.contains("://") && !text.contains(' ')
}

fn check_functions(file: &File, source: &Source, violations: &mut Vec<Violation>) {
    let test_lines = source.test_lines();
    for function in source.functions() {
        let is_test = is_test_file(&file.path)
            || test_lines.iter().any(|range| range.contains(&function.line));
        let limit = if is_test { TEST_FUNCTION_LINES_MAX } else { FUNCTION_LINES_MAX };
        if function.length > limit {
            let what = format!(
                "function `{}` of {} lines, limit {limit}; name its steps as functions of their \
                 own",
                function.name, function.length
            );
            violations.push(Violation::new(&file.path, function.line, what));
        }
    }
}

/// A file of tests has the same limit: it is read too. Tests beside what they test do not count.
fn check_file_length(file: &File, source: &Source, violations: &mut Vec<Violation>) {
    let test_lines = if is_test_file(&file.path) { Vec::new() } else { source.test_lines() };
    let counts = |line: usize| !test_lines.iter().any(|range| range.contains(&line));
    let total = file.text.lines().count();
    let length = (1..=total).filter(|line| counts(*line)).count();
    if length > FILE_LINES_MAX {
        let what = format!(
            "file of {length} lines, limit {FILE_LINES_MAX} (tests beside what they test do not \
             count); split it by phase or by concern"
        );
        violations.push(Violation::new(&file.path, total, what));
    }
}

#[cfg(test)]
mod tests {
    use super::super::report;
    use super::*;

    fn function_of(lines: usize) -> String {
        let body = "    work();\n".repeat(lines - 2);
        format!("fn long() {{\n{body}}}\n")
    }

    fn in_test_module(text: &str) -> String {
        format!("#[cfg(test)]\nmod tests {{\n{text}}}\n")
    }

    fn check_text(path: &str, text: &str) -> Vec<String> {
        report(check, &[(path, &format!("//! Doc.\n{text}"))])
    }

    #[test]
    fn a_function_may_have_seventy_lines_and_no_more() {
        assert_eq!(check_text("a.rs", &function_of(70)), [""; 0]);
        let report = check_text("a.rs", &function_of(71));
        assert_eq!(report.len(), 1);
        assert!(report[0].starts_with("a.rs:2: function `long` of 71 lines, limit 70;"));
    }

    #[test]
    fn a_test_may_have_a_hundred_and_twenty() {
        let path = "crates/net/tests/nginx.rs";
        assert_eq!(check_text("a.rs", &in_test_module(&function_of(120))), [""; 0]);
        assert_eq!(check_text("a.rs", &in_test_module(&function_of(121))).len(), 1);
        assert_eq!(check_text(path, &function_of(120)), [""; 0]);
        assert_eq!(check_text(path, &function_of(121)).len(), 1);
    }

    #[test]
    fn a_file_may_have_eight_hundred_lines_beside_its_tests_and_so_may_a_file_of_tests() {
        let product = "const A: u8 = 1;\n".repeat(799); // the module doc is the 800th
        let tests = in_test_module(&"const B: u8 = 1;\n".repeat(500));
        assert_eq!(check_text("a.rs", &format!("{product}{tests}")), [""; 0]);
        let report = check_text("a.rs", &format!("{product}const C: u8 = 1;\n{tests}"));
        assert_eq!(report.len(), 1);
        assert!(report[0].contains("file of 801 lines, limit 800"));
        for path in ["crates/net/tests/nginx.rs", "crates/net/src/admin/tests.rs"] {
            assert_eq!(check_text(path, &product), [""; 0]);
            assert_eq!(check_text(path, &format!("{product}{tests}")).len(), 1, "{path}");
        }
    }

    #[test]
    fn columns_are_characters_and_a_bare_link_may_be_longer() {
        let exact = format!("// {}\n", "é".repeat(97));
        let long = format!("// {}\n", "é".repeat(98));
        let link = format!("/// https://example.org/{}\n", "x".repeat(98));
        assert_eq!(check_text("a.rs", &exact), [""; 0]);
        assert_eq!(check_text("a.rs", &link), [""; 0]);
        let report = check_text("a.rs", &long);
        assert!(report[0].starts_with("a.rs:2: line of 101 columns, limit 100;"), "{report:?}");
    }

    #[test]
    fn every_file_says_what_it_is_for() {
        assert_eq!(report(check, &[("a.rs", "#![no_main]\n\n//! Doc.\n")]), [""; 0]);
        for text in ["", "use a;\n//! Doc.\n", "/// Doc.\nfn f() {}\n"] {
            let report = report(check, &[("a.rs", text)]);
            assert!(report[0].starts_with("a.rs:1: no module doc"), "{text:?}: {report:?}");
        }
    }
}
