//! Who may know whom: core decides, sim pretends, net opens sockets.
//!
//! `crates/core` runs the same lines in the simulator and behind sockets only as long as it has no
//! clock, no I/O and no iteration whose order depends on a hash seed.

use super::source::{Source, closing_brace, words};
use super::{File, Tree, Violation};

/// What the source of core must not name, and what to use instead. Comments may name it.
const BANNED_IN_CORE: [(&str, &str); 8] = [
    ("std::net", "addresses and sockets belong to crates/net"),
    ("std::thread", "core is driven from outside; threads belong to crates/net"),
    ("std::fs", "files are read by crates/net, crates/settings or crates/cli"),
    ("tokio", "async belongs to crates/net"),
    ("Instant::now", "time is an argument: take `now` as a parameter"),
    ("SystemTime", "time is an argument: take `now` as a parameter"),
    ("HashMap", "its order is not deterministic: use Vec or BTreeMap"),
    ("HashSet", "its order is not deterministic: use Vec or BTreeSet"),
];

/// Crates of the workspace that a crate must not depend on.
const FORBIDDEN_DEPENDENCIES: [(&str, &[&str]); 5] = [
    ("crates/core/", &["evenkeel-sim", "evenkeel-net", "evenkeel"]),
    ("crates/settings/", &["evenkeel-sim", "evenkeel-net", "evenkeel"]),
    ("crates/cql/", &["evenkeel-sim", "evenkeel-net", "evenkeel"]),
    ("crates/sim/", &["evenkeel-net", "evenkeel"]),
    ("crates/net/", &["evenkeel-sim", "evenkeel"]),
];

pub(super) fn check(tree: &Tree, violations: &mut Vec<Violation>) {
    for file in tree.with_extension("rs").filter(|file| file.path.starts_with("crates/core/src/")) {
        check_core_source(file, violations);
    }
    let is_manifest = |file: &&File| file.path.ends_with("/Cargo.toml");
    for file in tree.files.iter().filter(is_manifest) {
        check_manifest(file, violations);
    }
}

fn check_core_source(file: &File, violations: &mut Vec<Violation>) {
    let source = Source::new(&file.text);
    for (name, instead) in BANNED_IN_CORE {
        for offset in words(source.code(), name).chain(grouped(source.code(), name)) {
            let what = format!("core mentions `{name}`, limit none; {instead}");
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

fn check_manifest(file: &File, violations: &mut Vec<Violation>) {
    let mut in_dependencies = false;
    for (number, line) in file.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.starts_with('[') {
            in_dependencies = line.contains("dependencies");
        }
        if in_dependencies {
            for dependency in dependencies_named(line) {
                let Some(reason) = forbidden(&file.path, dependency) else { continue };
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

fn forbidden(manifest: &str, dependency: &str) -> Option<&'static str> {
    let is_tokio = dependency == "tokio" || dependency.starts_with("tokio-");
    let is_ours = manifest.starts_with("crates/") || manifest.starts_with("xtask/");
    // What stands outside (examples/, sdk/) lives in the users' world, runtime included.
    if is_tokio && is_ours && !manifest.starts_with("crates/net/") {
        return Some("tokio lives in crates/net and only there: call what evenkeel-net offers");
    }
    let (_, names) = FORBIDDEN_DEPENDENCIES.iter().find(|(at, _)| manifest.starts_with(at))?;
    names.contains(&dependency).then_some(
        "sim and net know core and never each other; only crates/cli knows them all: move what \
         both need to core",
    )
}

#[cfg(test)]
mod tests {
    use super::super::report;
    use super::*;

    fn core_report(text: &str) -> Vec<String> {
        report(check, &[("crates/core/src/fleet.rs", text)])
    }

    #[test]
    fn core_may_not_touch_what_is_not_an_argument() {
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
            let report = core_report(text);
            assert_eq!(report.len(), 1, "{text}: {report:?}");
            assert!(report[0].starts_with("crates/core/src/fleet.rs:"), "{report:?}");
        }
        assert!(core_report("use std::{\n    fmt,\n    net,\n};")[0].contains(":3: "));
    }

    #[test]
    fn comments_other_names_and_other_crates_are_free() {
        for text in
            ["// no HashMap here", "let s = \"tokio\";", "use std::{fmt, mem};", "MyHashMapX"]
        {
            assert_eq!(core_report(text), [""; 0], "{text}");
        }
        assert_eq!(report(check, &[("crates/net/src/lib.rs", "use std::net::IpAddr;")]), [""; 0]);
    }

    #[test]
    fn sim_and_net_never_see_each_other() {
        for (path, text) in [
            ("crates/sim/Cargo.toml", "[dependencies]\nevenkeel-net.workspace = true\n"),
            ("crates/net/Cargo.toml", "[dependencies]\nevenkeel-sim = { path = \"../sim\" }\n"),
            ("crates/net/Cargo.toml", "[dependencies.evenkeel-sim]\npath = \"../sim\"\n"),
            ("crates/core/Cargo.toml", "[dev-dependencies]\nevenkeel-sim.workspace = true\n"),
            ("crates/sim/Cargo.toml", "[dependencies]\nx = { package = \"evenkeel-net\" }\n"),
        ] {
            assert_eq!(report(check, &[(path, text)]).len(), 1, "{path} {text}");
        }
    }

    #[test]
    fn tokio_lives_in_net() {
        let text = "[package]\nname = \"x\"\n[dependencies]\ntokio.workspace = true\n";
        assert_eq!(report(check, &[("crates/net/Cargo.toml", text)]), [""; 0]);
        let report_sim = report(check, &[("crates/sim/Cargo.toml", text)]);
        assert!(report_sim[0].starts_with("crates/sim/Cargo.toml:4: depends on `tokio`"));
        let helper = "[dependencies]\ntokio-util = \"0.7\"\n";
        assert_eq!(report(check, &[("crates/cli/Cargo.toml", helper)]).len(), 1);
        assert_eq!(report(check, &[("examples/shop/Cargo.toml", text)]), [""; 0]);
    }

    #[test]
    fn allowed_dependencies_and_other_tables_are_free() {
        let cli = "[package]\nname = \"evenkeel\"\n[dependencies]\nevenkeel-sim.workspace = true\n\
                   evenkeel-net.workspace = true\n";
        assert_eq!(report(check, &[("crates/cli/Cargo.toml", cli)]), [""; 0]);
        let root = "[workspace.dependencies]\ntokio = \"1\"\n";
        assert_eq!(report(check, &[("Cargo.toml", root)]), [""; 0]);
        let comment = "[dependencies]\n# tokio stays in net\nserde.workspace = true # not tokio\n";
        assert_eq!(report(check, &[("crates/sim/Cargo.toml", comment)]), [""; 0]);
    }
}
