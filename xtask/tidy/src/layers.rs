//! Who may know whom: each crate uses only lower ones, and none grows beyond a day's reading.
//!
//! The order is data ([`super::crates`]). What decides runs the same lines in the simulator and
//! behind sockets only as long as it has no clock, no I/O and no iteration whose order depends on
//! a hash seed.

use std::collections::BTreeMap;

use super::crates::{BANNED, Crate, Kind, LAW, Law};
use super::product::{self, Product};
use super::source::{Source, closing_brace, words};
use super::{File, Tree, Violation};

pub(super) fn check(law: &Law, tree: &Tree, violations: &mut Vec<Violation>) {
    let standing = law.standing(tree);
    for known in &standing {
        let manifest = tree.file(&known.manifest()).expect("who stands has a manifest");
        check_manifest(law, known, &standing, manifest, violations);
        check_size(known, &product::of_crate(tree, known.folder), violations);
        if known.kind == Kind::Decides {
            let source = format!("{}/src/", known.folder);
            let files = tree.with_extension("rs").filter(|file| file.path.starts_with(&source));
            files.for_each(|file| check_decisions(file, violations));
        }
    }
    check_rows(law, tree, &standing, violations);
}

/// Every crate has a row, and every row a crate.
fn check_rows(law: &Law, tree: &Tree, standing: &[Crate], violations: &mut Vec<Violation>) {
    let unknown = |file: &&File| {
        is_of_a_crate(&file.path) && standing.iter().all(|known| known.manifest() != file.path)
    };
    for file in tree.files.iter().filter(unknown) {
        let what = "crate without a row; give it a level in xtask/tidy/src/crates.rs";
        violations.push(Violation::new(&file.path, 1, what));
    }
    for row in law.crates.iter().filter(|row| tree.file(&row.manifest()).is_none()) {
        let what = "no such crate; delete its row in xtask/tidy/src/crates.rs";
        violations.push(Violation::new(&row.manifest(), 1, what));
    }
}

/// Manifests that tests drive (such as of a rival's driver) are not of the workspace.
fn is_of_a_crate(path: &str) -> bool {
    let ours = ["crates/", "examples/", "sdk/", "xtask/"];
    let of_tests = path.split('/').any(|part| part == "tests");
    path.ends_with("/Cargo.toml") && !of_tests && ours.iter().any(|start| path.starts_with(start))
}

fn check_size(known: &Crate, products: &[Product<'_>], violations: &mut Vec<Violation>) {
    let lines: usize = products.iter().map(|product| product.lines).sum();
    if lines > known.lines_max {
        let what = format!(
            "crate of {lines} lines without tests, limit {}; cut it where few names cross",
            known.lines_max
        );
        violations.push(Violation::new(&known.manifest(), 1, what));
    }
}

/// Lines without tests of every crate, by package, in the table's order.
pub(super) fn sizes(tree: &Tree) -> Vec<(&'static str, usize)> {
    let lines = |row: &Crate| product::of_crate(tree, row.folder).iter().map(|p| p.lines).sum();
    LAW.standing(tree).iter().map(|row| (row.package, lines(row))).collect()
}

fn check_decisions(file: &File, violations: &mut Vec<Violation>) {
    let source = Source::new(&file.text);
    for (name, instead) in BANNED {
        for offset in words(source.code(), name).chain(grouped(source.code(), name)) {
            let what = format!("a decision mentions `{name}`, limit none; {instead}");
            violations.push(Violation::new(&file.path, source.line(offset), what));
        }
    }
}

/// Where `use std::{…}` brings in a banned `std::name`.
fn grouped(code: &str, banned: &str) -> Vec<usize> {
    let Some((parent, module)) = banned.split_once("::") else { return Vec::new() };
    let opening = format!("{parent}::{{");
    let groups = code.match_indices(&opening).filter_map(|(offset, _)| {
        let open = offset + opening.len() - 1;
        Some(open..closing_brace(code.as_bytes(), open)?)
    });
    groups
        .flat_map(|group| {
            let inside = words(&code[group.clone()], module).map(move |found| group.start + found);
            inside.collect::<Vec<_>>()
        })
        .collect()
}

/// The tables of a manifest that name dependencies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Table {
    Normal,
    Tests,
    Other,
}

fn table(header: &str) -> Table {
    match header {
        _ if header.contains("dev-dependencies") => Table::Tests,
        _ if header.contains("dependencies") => Table::Normal,
        _ => Table::Other,
    }
}

fn check_manifest(
    law: &Law,
    known: &Crate,
    standing: &[Crate],
    file: &File,
    violations: &mut Vec<Violation>,
) {
    let packages: BTreeMap<_, _> = standing.iter().map(|row| (row.package, row)).collect();
    let mut within = Table::Other;
    for (number, line) in file.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.starts_with('[') {
            within = table(line);
        }
        if within == Table::Other {
            continue;
        }
        for dependency in dependencies_named(line) {
            let is_excepted =
                within == Table::Tests && law.tests_may_use.contains(&(known.package, dependency));
            let reason = match packages.get(dependency) {
                Some(_) if is_excepted => None,
                Some(other) => misplaced(known, other),
                None => stranger(known, dependency),
            };
            if let Some(reason) = reason {
                let what = format!("depends on `{dependency}`, limit none; {reason}");
                violations.push(Violation::new(&file.path, number, what));
            }
        }
    }
}

/// The packages a manifest line names: its key (or the last part of its table header) and the
/// real name of a renamed package.
fn dependencies_named(line: &str) -> Vec<&str> {
    let key = match line.strip_prefix('[').and_then(|header| header.strip_suffix(']')) {
        Some(header) => header.rsplit('.').next(),
        None => line.split(['=', '.', ' ']).next(),
    };
    let renamed = line
        .split_once("package")
        .and_then(|(_, rest)| rest.trim_start().strip_prefix('='))
        .and_then(|rest| rest.split('"').nth(1));
    key.into_iter().chain(renamed).filter(|name| !name.is_empty()).collect()
}

/// What is wrong with `known` using `other`.
fn misplaced(known: &Crate, other: &Crate) -> Option<String> {
    if other.level >= known.level {
        return Some(format!(
            "it is of level {} and this crate of {}, which uses lower ones only: move what both \
             need below both",
            other.level, known.level
        ));
    }
    let kinds = (known.kind, other.kind);
    (!known.kind.may_use(other.kind))
        .then(|| format!("a crate of kind {:?} uses none of kind {:?}", kinds.0, kinds.1))
}

fn stranger(known: &Crate, dependency: &str) -> Option<String> {
    let is_tokio = dependency == "tokio" || dependency.starts_with("tokio-");
    // Tests of the program speak gRPC. That its own code has no tokio, its words tell.
    let is_for_tests = known.package == "evenkeel" && dependency == "tokio";
    (is_tokio && !is_for_tests && !known.kind.may_use_tokio()).then(|| {
        "tokio lives in crates with sockets and only there: call what those offer".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::super::crates::row;
    use super::*;

    const CRATES: &[Crate] = &[
        row("k-core", "crates/core", 0, Kind::Decides),
        row("k-plan", "crates/plan", 1, Kind::Decides),
        row("k-sockets", "crates/sockets", 1, Kind::Sockets),
        Crate { lines_max: 3, ..row("k-sim", "crates/sim", 2, Kind::Pure) },
        row("k-proxy", "crates/proxy", 2, Kind::Sockets),
        row("k", "crates/cli", 3, Kind::Assembles),
        row("k-sdk", "sdk/rust", 2, Kind::Outside),
    ];

    fn report_law(law: &Law, files: &[(&str, &str)]) -> Vec<String> {
        let mut violations = Vec::new();
        check(law, &Tree::of(files), &mut violations);
        violations.iter().map(Violation::to_string).collect()
    }

    /// These files, and an empty manifest for each crate that has none among them.
    fn complete<'a>(
        manifests: &'a [String],
        files: &[(&'a str, &'a str)],
    ) -> Vec<(&'a str, &'a str)> {
        let is_given = |path: &&String| files.iter().any(|(given, _)| given == path);
        let others = manifests.iter().filter(|path| !is_given(path)).map(|path| (&**path, ""));
        others.chain(files.iter().copied()).collect()
    }

    fn manifests() -> Vec<String> {
        CRATES.iter().map(Crate::manifest).collect()
    }

    /// What is wrong with this tree.
    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let law = Law { crates: CRATES, ..Law::default() };
        report_law(&law, &complete(&manifests(), files))
    }

    fn decision(text: &str) -> Vec<String> {
        found(&[("crates/plan/Cargo.toml", ""), ("crates/plan/src/fleet.rs", text)])
    }

    #[test]
    fn decisions_may_not_touch_what_is_not_an_argument() {
        for text in [
            "use std::net::IpAddr;",
            "use std::{\n    fmt,\n    net::IpAddr,\n};",
            "std::thread::sleep(d);",
            "use std::fs;",
            "tokio::spawn(f);",
            "let now = Instant::now();",
            "use std::time::SystemTime;",
            "let m: HashMap<u8, u8>;",
            "use std::collections::{BTreeMap, HashSet};",
        ] {
            let report = decision(text);
            assert_eq!(report.len(), 1, "{text}: {report:?}");
            assert!(report[0].starts_with("crates/plan/src/fleet.rs:"), "{report:?}");
        }
        assert!(decision("use std::{\n    fmt,\n    net,\n};")[0].contains(":3: "));
    }

    #[test]
    fn comments_other_names_and_other_crates_are_free() {
        for text in
            ["// no HashMap here", "let s = \"tokio\";", "use std::{fmt, mem};", "MyHashMapX"]
        {
            assert_eq!(decision(text), [""; 0], "{text}");
        }
        assert_eq!(found(&[("crates/net/src/lib.rs", "use std::net::IpAddr;")]), [""; 0]);
    }

    /// With `text` as the manifest of the crate in `folder`.
    fn with(folder: &str, text: &str) -> Vec<String> {
        found(&[(&format!("{folder}/Cargo.toml"), text)])
    }

    #[test]
    fn a_crate_uses_lower_ones_only() {
        for (folder, text) in [
            ("crates/core", "[dev-dependencies]\nk-sim.workspace = true\n"),
            ("crates/plan", "[dependencies]\nk-sockets.workspace = true\n"),
            ("crates/proxy", "[dependencies]\nk-sim = { path = \"../sim\" }\n"),
            ("crates/proxy", "[dependencies.k-sim]\npath = \"../sim\"\n"),
            ("crates/proxy", "[target.'cfg(unix)'.dependencies]\nk.workspace = true\n"),
            ("crates/proxy", "[dependencies]\nx = { package = \"k-sim\" }\n"),
            ("crates/sim", "[build-dependencies]\nk.workspace = true\n"),
        ] {
            assert_eq!(with(folder, text).len(), 1, "{folder} {text}");
        }
        let cli = "[package]\nname = \"k\"\n[dependencies]\nk-sim.workspace = true\n\
                   k-proxy.workspace = true\n";
        assert_eq!(with("crates/cli", cli), [""; 0]);
    }

    #[test]
    fn the_simulator_sees_no_socket_however_low() {
        let text = "[dependencies]\nk-plan.workspace = true\nk-sockets.workspace = true\n";
        let report = with("crates/sim", text);
        assert_eq!(report.len(), 1, "{report:?}");
        assert!(report[0].starts_with("crates/sim/Cargo.toml:3: depends on `k-sockets`"));
    }

    #[test]
    fn tokio_lives_with_sockets() {
        let text = "[package]\nname = \"x\"\n[dependencies]\ntokio.workspace = true\n";
        assert_eq!(with("crates/proxy", text), [""; 0]);
        assert_eq!(with("sdk/rust", text), [""; 0]);
        let report = with("crates/sim", text);
        assert!(report[0].starts_with("crates/sim/Cargo.toml:4: depends on `tokio`"));
        let helper = "[dependencies]\ntokio-util = \"0.7\"\n";
        assert_eq!(with("crates/cli", helper).len(), 1);
        let comment = "[dependencies]\n# tokio stays away\nserde.workspace = true # not tokio\n";
        assert_eq!(with("crates/sim", comment), [""; 0]);
    }

    #[test]
    fn tests_may_use_what_an_exception_names() {
        let law =
            Law { crates: CRATES, tests_may_use: &[("k-sockets", "k-proxy")], ..Law::default() };
        let dev = "[dev-dependencies]\nk-proxy.workspace = true\n";
        let manifests = manifests();
        let files = |text| complete(&manifests, &[("crates/sockets/Cargo.toml", text)]);
        assert_eq!(report_law(&law, &files(dev)), [""; 0]);
        let normal = dev.replace("dev-", "");
        assert_eq!(report_law(&law, &files(&normal)).len(), 1);
    }

    #[test]
    fn a_crate_has_a_row_and_a_row_a_crate() {
        let report = found(&[("crates/rudder/Cargo.toml", "")]);
        assert!(report[0].starts_with("crates/rudder/Cargo.toml:1: crate without a row"));
        assert_eq!(found(&[("crates/net/tests/rival/Cargo.toml", "")]), [""; 0]);
        let law = Law { crates: CRATES, ..Law::default() };
        let gone = report_law(&law, &[]);
        assert_eq!(gone.len(), CRATES.len());
        assert!(gone[0].starts_with("crates/core/Cargo.toml:1: no such crate"));
    }

    #[test]
    fn a_crate_has_a_limit_that_tests_do_not_count_for() {
        let tests = "#[cfg(test)]\nmod tests {\n    a\n}\n";
        let of = |lines: usize| {
            let text = format!("{}{tests}", "// a\n".repeat(lines));
            found(&[("crates/sim/Cargo.toml", ""), ("crates/sim/src/lib.rs", &text)])
        };
        assert_eq!(of(3), [""; 0]);
        assert!(of(4)[0].contains("crate of 4 lines without tests, limit 3"));
    }
}
