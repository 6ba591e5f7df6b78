//! Nothing of one machine in the tree: no absolute home paths, no private package registries, no
//! invisible characters.
//!
//! The forbidden texts are put together from parts, so that this file does not contain them.

use super::{File, Tree, Violation};

/// Folders that exist on the author's machine only.
const MACHINE_FOLDERS: [&str; 4] =
    [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];

/// Host name endings that resolve in one company's network only.
const PRIVATE_HOSTS: [&str; 3] =
    [concat!(".inter", "nal"), concat!(".cor", "p"), concat!(".intra", "net")];

/// Keys that send package downloads somewhere else.
const REGISTRY_KEYS: [&str; 5] = [
    concat!("replace", "-with"),
    concat!("[regis", "tries"),
    concat!("[sou", "rce."),
    concat!("index", "-url"),
    concat!("GOPR", "OXY="),
];

const PUBLIC_INDEX: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Kinds of files that people write by hand; data and licence texts stay as they came.
const WRITTEN_BY_HAND: [&str; 8] = ["rs", "toml", "md", "sh", "yml", "yaml", "html", "css"];

pub(super) fn check(tree: &Tree, violations: &mut Vec<Violation>) {
    for file in &tree.files {
        for (number, line) in file.lines() {
            if let Some(what) = machine_text(file, line) {
                violations.push(Violation::new(&file.path, number, what));
            }
        }
    }
}

pub(super) fn check_whitespace(tree: &Tree, violations: &mut Vec<Violation>) {
    let by_hand = |file: &&File| {
        file.path.starts_with(".ci/")
            || WRITTEN_BY_HAND.iter().any(|extension| file.has_extension(extension))
    };
    for file in tree.files.iter().filter(by_hand) {
        for (number, line) in file.lines() {
            if line.contains('\t') {
                let what = "tab, limit none; use spaces (in a literal: \\t)";
                violations.push(Violation::new(&file.path, number, what));
            }
            if line.ends_with(char::is_whitespace) {
                let what = "trailing space, limit none; delete it";
                violations.push(Violation::new(&file.path, number, what));
            }
        }
    }
}

fn machine_text(file: &File, line: &str) -> Option<String> {
    if let Some(folder) = MACHINE_FOLDERS.iter().find(|folder| begins_a_path(line, folder)) {
        return Some(format!(
            "absolute path `{folder}…`, limit none; it exists on one machine: make it relative or \
             take it from the environment"
        ));
    }
    if let Some(host) = PRIVATE_HOSTS.iter().find(|ending| names_host(line, ending)) {
        return Some(format!("host `*{host}`, limit none; it resolves in one network: name none"));
    }
    registry_text(file, line).map(|found| {
        format!("package source `{found}`, limit crates.io; keep mirrors in your own settings")
    })
}

/// Whether `folder` occurs as the begin of a path rather than inside a longer one.
fn begins_a_path(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(offset, _)| {
        let before = line[..offset].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-/}~)*>$".contains(c))
    })
}

/// Whether a URL on this line has a host with this ending.
fn names_host(line: &str, ending: &str) -> bool {
    line.split("://").skip(1).any(|rest| {
        let host = rest.split(|c: char| !c.is_alphanumeric() && !"-.".contains(c)).next();
        host.is_some_and(|host| host.ends_with(ending))
    })
}

fn registry_text<'a>(file: &File, line: &'a str) -> Option<&'a str> {
    let text = line.trim();
    if file.path == "Cargo.lock" {
        let source = text.strip_prefix("source = \"")?.strip_suffix('"')?;
        return (source != PUBLIC_INDEX).then_some(source);
    }
    REGISTRY_KEYS.iter().any(|key| text.starts_with(key)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::super::report;
    use super::*;

    #[test]
    fn paths_of_one_machine_are_reported_wherever_they_begin() {
        for folder in MACHINE_FOLDERS {
            for line in [
                format!("{folder}main"),
                format!("path = \"{folder}main\""),
                format!("see `{folder}x`"),
                format!("PATH=/usr/bin:{folder}bin"),
            ] {
                let found = report(check, &[("a.toml", &format!("\n{line}\n"))]);
                assert_eq!(found.len(), 1, "{line}: {found:?}");
                assert!(found[0].starts_with("a.toml:2: absolute path"), "{found:?}");
            }
        }
    }

    #[test]
    fn the_same_words_inside_longer_paths_are_free() {
        for folder in MACHINE_FOLDERS {
            let text =
                format!("target{folder}x https://example.org{folder}x $DIR{folder} ..{folder}");
            assert_eq!(report(check, &[("a.md", &text)]), [""; 0]);
        }
    }

    #[test]
    fn private_hosts_and_package_sources_are_reported() {
        for ending in PRIVATE_HOSTS {
            let text = format!("https://crates{ending}/index");
            assert_eq!(report(check, &[("a.md", &text)]).len(), 1, "{text}");
            assert_eq!(report(check, &[("a.md", "https://example.org/x")]), [""; 0]);
        }
        for key in REGISTRY_KEYS {
            assert_eq!(report(check, &[(".cargo/config.toml", key)]).len(), 1, "{key}");
        }
    }

    #[test]
    fn the_lock_file_names_the_public_index_only() {
        let lock = |source: &str| format!("[[package]]\nsource = \"{source}\"\n");
        assert_eq!(report(check, &[("Cargo.lock", &lock(PUBLIC_INDEX))]), [""; 0]);
        let found = report(check, &[("Cargo.lock", &lock("sparse+https://mirror.example/"))]);
        assert!(found[0].starts_with("Cargo.lock:2: package source"), "{found:?}");
    }

    #[test]
    fn tabs_and_trailing_spaces_are_reported_in_what_people_write() {
        let found = report(check_whitespace, &[("a.md", "a\tb\nc  \nd\r\ne\n")]);
        assert_eq!(found.len(), 3);
        assert!(found[0].starts_with("a.md:1: tab"), "{found:?}");
        assert!(found[1].starts_with("a.md:2: trailing space"), "{found:?}");
        assert_eq!(report(check_whitespace, &[("a.csv", "a\tb \n"), ("LICENSE", "\t")]), [""; 0]);
    }
}
