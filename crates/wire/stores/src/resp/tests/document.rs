//! The table of commands for people says what is done with commands.

use std::collections::BTreeSet;

use super::server::Server;
use super::{corpus, with_arguments, words};
use crate::resp::Protocol;
use crate::resp::commands::document::{page, way};
use crate::resp::commands::{classify, lookup};
use crate::resp::reply::{elements, payload};

/// The rows of the page: what is in front of the first space of a command, the class, and how.
fn rows() -> Vec<(String, String)> {
    let page = page();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let rows: Vec<(String, String)> =
        rows.map(|(name, rest)| (name.to_ascii_lowercase(), rest.to_owned())).collect();
    assert!(rows.len() > 250, "{} rows", rows.len());
    rows
}

#[test]
fn the_page_in_the_documentation_is_what_the_table_says() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/duplicates-commands.md");
    if std::env::var_os("EVENKEEL_WRITE_PAGE").is_some() {
        std::fs::write(file, page()).unwrap(); // `cargo xtask commands`
    }
    let written = std::fs::read_to_string(file).unwrap();
    assert!(written == page(), "it is not up to date: run `cargo xtask commands`");
}

#[test]
fn whatever_options_make_of_a_command_has_a_row() {
    let rows = rows();
    for line in corpus::COMMANDS {
        let words = words(line);
        let command = lookup(words[0].as_bytes()).unwrap();
        let (class, how) =
            with_arguments(&words, |arguments| way(command, classify(command, arguments)));
        let expected = format!("{class} | {how} |");
        let is_of_it = |name: &str| name.split(' ').next() == Some(command.name);
        assert!(rows.iter().any(|(name, rest)| is_of_it(name) && *rest == expected), "{line}");
    }
}

#[test]
fn every_command_of_a_server_has_a_row_and_no_row_is_made_up() {
    let Some(server) = Server::start(&[]) else { return };
    let reply = server.connect(Protocol::Resp3).ask(&["COMMAND", "LIST"]);
    let theirs: BTreeSet<String> = elements(&reply)
        .map(|name| String::from_utf8_lossy(payload(name).unwrap()).into_owned())
        .collect();
    let rows = rows();
    let first = |name: &str| name.split(' ').next().unwrap_or_default().to_owned();
    let named: BTreeSet<String> = rows.iter().map(|(name, _)| first(name)).collect();
    for name in theirs.iter().map(|name| name.split('|').next().unwrap()) {
        assert!(named.contains(name), "{name}");
    }
    for name in named.iter().filter(|name| !name.starts_with("ek.")) {
        assert!(theirs.contains(name), "{name}");
    }
    let newer = ["cluster migration", "cluster syncslots"];
    let containers = ["acl", "client", "cluster", "config", "module", "script"];
    for (name, _) in rows.iter().filter(|(name, _)| containers.contains(&&*first(name))) {
        let is_known = theirs.contains(&name.replace(' ', "|"));
        assert!(is_known || newer.contains(&name.as_str()), "{name}");
    }
}
