//! Which test binary runs when.
//!
//! Most tests of sockets wait, for timers, leases and servers, so several of their binaries run at
//! once, then those of duplicates, whose stores compute little, two at once, and then those of
//! whole clusters of real servers, one at a time. What only computes fills the time that they
//! leave, with the least priority: whoever wakes goes first. What measures this machine runs last
//! and alone.

use super::binary::{Binary, Kind};

/// How a binary is to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// It keeps the processors busy and does not look at a clock.
    Computes,
    /// It mostly waits.
    Waits,
    /// It holds servers to deadlines that compute little: two at once.
    InPairs,
    /// It holds servers to deadlines that compute while they start: one at a time.
    InTurn,
    /// It measures what the machine can do, or how late an answer is.
    Alone,
}

/// What is known of a binary; without a row it is [`Row::UNKNOWN`].
#[derive(Clone, Copy, Debug)]
struct Row {
    /// Empty for any: integration tests keep their names when they move.
    package: &'static str,
    target: &'static str,
    manner: Manner,
    /// About how long it takes by itself. The longest start first, so that none is left over.
    seconds: u32,
    /// Whether real servers of others decide when it is done: only then a test that fails on a
    /// robbed machine is judged again.
    has_servers: bool,
}

impl Row {
    const UNKNOWN: Self =
        Self { package: "", target: "", manner: Manner::Waits, seconds: 5, has_servers: false };
}

const fn servers(target: &'static str, manner: Manner, seconds: u32) -> Row {
    Row { target, manner, seconds, has_servers: true, ..Row::UNKNOWN }
}

const fn long(target: &'static str, seconds: u32) -> Row {
    Row { target, seconds, ..Row::UNKNOWN }
}

const fn of(package: &'static str, target: &'static str, manner: Manner, seconds: u32) -> Row {
    Row { package, target, manner, seconds, ..Row::UNKNOWN }
}

/// The first row that fits counts.
const ROWS: &[Row] = &[
    // Five shops are made as slow as a share of this machine's speed, and a capacity is measured.
    Row { has_servers: true, ..of("evenkeel", "brownout", Manner::Alone, 70) },
    // Late requests of two services side by side, beside what was foretold.
    Row { has_servers: true, ..of("evenkeel", "day", Manner::Alone, 60) },
    // A curve of latencies is measured and compared with the law of the service.
    of("evenkeel", "profile", Manner::Alone, 30),
    // Latencies of three data centres, before nginx, beside what was predicted.
    Row { has_servers: true, ..of("evenkeel", "redirect", Manner::Alone, 30) },
    // Tail latencies while a server is paused.
    servers("nginx", Manner::Alone, 30),
    // How late answers are while stores pause, beside what was predicted.
    of("evenkeel-duplicates", "advice", Manner::Alone, 36),
    // A megabyte of each kind of statement must be read within two seconds.
    of("evenkeel-cql", "statements_random", Manner::Alone, 10),
    // Commits are timed beside predictions, which hold within a tenth.
    servers("placement_etcd", Manner::Alone, 93),
    // Shares of late requests beside what was planned.
    servers("cassandra_sites", Manner::Alone, 46),
    // With one other such binary beside it on two cores a change of the schema was answered a
    // second late, and ZooKeeper was reached after half a minute.
    servers("cassandra", Manner::InTurn, 270),
    servers("cassandra_nodes", Manner::InTurn, 30),
    servers("placement_zookeeper", Manner::InTurn, 30),
    // Waits for DNS servers that are silent, and for TTLs.
    servers("discovery", Manner::Waits, 60),
    // A client gives up when nothing has come for a second.
    servers("peers", Manner::Waits, 6),
    servers("placement_patroni", Manner::Waits, 30),
    servers("placement_nats", Manner::Waits, 15),
    servers("placement_real", Manner::Waits, 15),
    servers("duplicates", Manner::InPairs, 90),
    // Replicas that sleep most of the time, under time limits of one and three seconds.
    servers("soak", Manner::InPairs, 14),
    servers("envoy", Manner::Waits, 20),
    // Looks at pages with Chromium.
    Row { has_servers: true, ..of("evenkeel-shop", "http", Manner::Waits, 15) },
    long("redirect", 84),
    // A DNS server that hangs, and plans that grow old.
    Row { has_servers: true, ..of("evenkeel-mesh", "evenkeel_mesh", Manner::Waits, 12) },
    // Members that are asked and never answer.
    long("placement_faults", 10),
    long("redirect_mesh", 40),
    // The largest sets of unit tests.
    of("evenkeel-duplicates-engine", "evenkeel_duplicates_engine", Manner::Waits, 30),
    of("evenkeel-duplicates", "evenkeel_duplicates", Manner::Waits, 10),
    of("evenkeel-stores", "evenkeel_stores", Manner::Waits, 30),
    of("evenkeel-cassandra", "evenkeel_cassandra", Manner::Waits, 20),
    of("evenkeel-core", "evenkeel_core", Manner::Computes, 50),
    of("evenkeel-ordered", "ordered_moves", Manner::Computes, 20),
    of("evenkeel-core", "stories", Manner::Computes, 20),
];

/// Modules of unit tests that start real servers too.
const UNITS_WITH_SERVERS: &[&str] = &[
    "store::tests::",
    "tests::whole::",
    "tests::cut::",
    "tests::against_redis::",
    "tests::server::",
];

/// Packages that only compute, unit tests and all.
const COMPUTE: &[&str] = &[
    "evenkeel-core",
    "evenkeel-geo",
    "evenkeel-planner",
    "evenkeel-settings",
    "evenkeel-sim",
    "evenkeel-papers",
    "evenkeel-twin",
    "evenkeel-replay",
    "evenkeel-records",
];

fn row(rows: &[Row], binary: &Binary) -> Row {
    let fits = |row: &&Row| {
        (row.package.is_empty() && binary.kind == Kind::Test || row.package == binary.package)
            && row.target == binary.target
    };
    let computes = COMPUTE.contains(&&*binary.package);
    let other = Row {
        manner: if computes { Manner::Computes } else { Row::UNKNOWN.manner },
        ..Row::UNKNOWN
    };
    rows.iter().find(fits).copied().unwrap_or(other)
}

/// Whether real servers decide if this test of `binary` passes.
pub(super) fn has_servers(binary: &Binary, test: &str) -> bool {
    let is_unit_with_servers = || UNITS_WITH_SERVERS.iter().any(|module| test.contains(module));
    row(ROWS, binary).has_servers || binary.kind == Kind::Lib && is_unit_with_servers()
}

/// What runs when: binaries by their index, in the order in which they start.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Schedule {
    /// First: what waits.
    pub(super) wait: Vec<usize>,
    /// Then, two at once.
    pub(super) pairs: Vec<usize>,
    /// Then, one after another.
    pub(super) in_turn: Vec<usize>,
    /// Beside all these, with the least priority: what computes.
    pub(super) compute: Vec<usize>,
    /// At last, one after another: what measures.
    pub(super) measure: Vec<usize>,
}

/// Each binary once.
pub(super) fn schedule(binaries: &[Binary]) -> Schedule {
    schedule_by(ROWS, binaries)
}

fn schedule_by(table: &[Row], binaries: &[Binary]) -> Schedule {
    let rows: Vec<Row> = binaries.iter().map(|binary| row(table, binary)).collect();
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|index| (std::cmp::Reverse(rows[*index].seconds), *index));
    let mut schedule = Schedule::default();
    for index in order {
        match rows[index].manner {
            Manner::Waits => schedule.wait.push(index),
            Manner::Computes => schedule.compute.push(index),
            Manner::InPairs => schedule.pairs.push(index),
            Manner::InTurn => schedule.in_turn.push(index),
            Manner::Alone => schedule.measure.push(index),
        }
    }
    schedule
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binary(package: &str, kind: Kind, target: &str) -> Binary {
        Binary::made_up(package, kind, target)
    }

    #[test]
    fn the_longest_start_first_and_what_measures_runs_last() {
        let table = [
            of("evenkeel", "brownout", Manner::Alone, 70),
            servers("nginx", Manner::Alone, 30),
            servers("cassandra", Manner::InTurn, 270),
            servers("duplicates", Manner::InPairs, 90),
        ];
        let binaries = [
            binary("evenkeel", Kind::Test, "brownout"),
            binary("evenkeel-server", Kind::Test, "proxy"),
            binary("evenkeel-core", Kind::Lib, "evenkeel_core"),
            binary("evenkeel-proxy", Kind::Test, "brownout"),
            binary("evenkeel-cassandra", Kind::Test, "cassandra"),
            binary("evenkeel-server", Kind::Test, "nginx"),
            binary("evenkeel", Kind::Test, "duplicates"),
        ];
        let (wait, compute, pairs, in_turn) = (vec![1, 3], vec![2], vec![6], vec![4]);
        let expected = Schedule { wait, compute, pairs, in_turn, measure: vec![0, 5] };
        assert_eq!(schedule_by(&table, &binaries), expected);
    }

    #[test]
    fn every_binary_runs_once() {
        let targets = ROWS.iter().map(|row| (row.package, row.target));
        let all: Vec<Binary> = targets
            .flat_map(|(package, target)| {
                [Kind::Lib, Kind::Bin, Kind::Test].map(|kind| binary(package, kind, target))
            })
            .collect();
        let Schedule { wait, compute, pairs, in_turn, measure } = schedule(&all);
        let mut found = [wait, compute, pairs, in_turn, measure].concat();
        found.sort_unstable();
        assert_eq!(found, (0..all.len()).collect::<Vec<_>>());
    }

    #[test]
    fn real_servers_are_those_of_the_table() {
        let of = |package, kind, target, test| has_servers(&binary(package, kind, target), test);
        assert!(of("evenkeel-anything", Kind::Test, "cassandra", "a"));
        assert!(of("evenkeel", Kind::Test, "redirect", "a"));
        assert!(!of("evenkeel-server", Kind::Test, "redirect", "a"));
        assert!(!of("cassandra", Kind::Lib, "cassandra", "a"), "unit tests");
        assert!(of("evenkeel-stores", Kind::Lib, "evenkeel_stores", "tests::whole::redis"));
    }
}
