//! The order of the crates, as data: who may use whom, and how large each may grow.
//!
//! A crate uses only crates of lower levels, so a change is rebuilt and read upwards only. The
//! [`Kind`] adds what levels cannot say: decisions have no clock and no I/O, and the simulator
//! never sees a socket although some of those lie below it.
//!
//! The lists of exceptions name what does not follow yet. An entry that no longer applies is a
//! violation itself, so that they can only become shorter.

use super::Tree;

/// What a crate may touch. See [`Kind::may_use`] for the order among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Decisions: no clock, no I/O, no hash order ([`BANNED`]).
    Decides,
    /// Reads files or pretends; no sockets, no tokio.
    Pure,
    /// Sockets and clocks; the only kind inside the house that may depend on tokio.
    Sockets,
    /// Puts all of them together and speaks to people; has no tokio of its own.
    Assembles,
    /// Lives in the users' world, whatever they use there.
    Outside,
}

impl Kind {
    /// Whether a crate of this kind may depend on one of `other`, if its level is lower.
    pub(super) fn may_use(self, other: Self) -> bool {
        match self {
            Self::Decides => other == Self::Decides,
            Self::Pure => matches!(other, Self::Decides | Self::Pure),
            Self::Sockets => other != Self::Assembles,
            Self::Assembles | Self::Outside => true,
        }
    }

    pub(super) fn may_use_tokio(self) -> bool {
        matches!(self, Self::Sockets | Self::Outside)
    }
}

/// One crate of the workspace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crate {
    pub(super) package: &'static str,
    /// From the root of the tree.
    pub(super) folder: &'static str,
    /// A crate depends only on crates of lower levels.
    pub(super) level: u8,
    pub(super) kind: Kind,
    /// Limit of its lines file `src`, comments included, tests left out.
    pub(super) lines_max: usize,
}

impl Crate {
    pub(super) fn manifest(&self) -> String {
        format!("{}/Cargo.toml", self.folder)
    }
}

/// All of it. Tests of the rules make up their own.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Law {
    pub(super) crates: &'static [Crate],
    pub(super) tests_may_use: &'static [(&'static str, &'static str)],
    pub(super) steps: &'static [Place],
    pub(super) accepts: &'static [Place],
    pub(super) string_errors: &'static [Place],
    pub(super) circles: &'static [(&'static str, &'static str)],
}

pub(super) const LAW: Law = Law {
    crates: CRATES,
    tests_may_use: TESTS_MAY_USE,
    steps: STEPS,
    accepts: ACCEPTS,
    string_errors: STRING_ERRORS,
    circles: CIRCLES,
};

impl Law {
    /// The crates that the tree has.
    pub(super) fn standing(&self, tree: &Tree) -> Vec<Crate> {
        let rows = self.crates.iter().copied();
        rows.filter(|row| tree.file(&row.manifest()).is_some()).collect()
    }
}

/// A crate that is read as a whole.
const LINES_MAX: usize = 15_000;

pub(super) const fn row(
    package: &'static str,
    folder: &'static str,
    level: u8,
    kind: Kind,
) -> Crate {
    Crate { package, folder, level, kind, lines_max: LINES_MAX }
}

/// The crates, lowest first: `decide`, `wire`, `serve`, `tools`.
const CRATES: &[Crate] = &[
    row("evenkeel-core", "crates/decide/core", 0, Kind::Decides),
    row("evenkeel-ordered", "crates/decide/ordered", 1, Kind::Decides),
    row("evenkeel-geo", "crates/decide/geo", 1, Kind::Decides),
    row("evenkeel-planner", "crates/decide/planner", 1, Kind::Decides),
    row("evenkeel-twin", "crates/decide/twin", 1, Kind::Decides),
    row("evenkeel-settings", "crates/decide/settings", 2, Kind::Pure),
    row("evenkeel-dns", "crates/wire/dns", 2, Kind::Sockets),
    row("evenkeel-records", "crates/wire/records", 2, Kind::Pure),
    row("evenkeel-runtime", "crates/wire/runtime", 3, Kind::Sockets),
    row("evenkeel-http", "crates/wire/http", 4, Kind::Sockets),
    row("evenkeel-kubernetes", "crates/wire/kubernetes", 4, Kind::Sockets),
    row("evenkeel-cql", "crates/wire/cql", 4, Kind::Sockets),
    row("evenkeel-stores", "crates/wire/stores", 5, Kind::Sockets),
    row("evenkeel-redis-acl", "crates/wire/redis-acl", 6, Kind::Sockets),
    row("evenkeel-proxy", "crates/serve/proxy", 5, Kind::Sockets),
    row("evenkeel-mesh", "crates/serve/mesh", 4, Kind::Sockets),
    row("evenkeel-http-proxy", "crates/serve/http-proxy", 6, Kind::Sockets),
    row("evenkeel-cassandra", "crates/serve/cassandra", 6, Kind::Sockets),
    row("evenkeel-placement", "crates/serve/placement", 6, Kind::Sockets),
    row("evenkeel-leadership", "crates/serve/leadership", 7, Kind::Sockets),
    row("evenkeel-wal", "crates/serve/wal", 4, Kind::Sockets),
    row("evenkeel-manager", "crates/serve/manager", 4, Kind::Sockets),
    row("evenkeel-duplicates-config", "crates/serve/duplicates-config", 8, Kind::Sockets),
    row("evenkeel-duplicates-state", "crates/serve/duplicates-state", 9, Kind::Sockets),
    row("evenkeel-store-link", "crates/serve/store-link", 9, Kind::Sockets),
    row("evenkeel-duplicates-engine", "crates/serve/duplicates-engine", 10, Kind::Sockets),
    row("evenkeel-duplicates", "crates/serve/duplicates", 11, Kind::Sockets),
    row("evenkeel-record", "crates/serve/record", 4, Kind::Sockets),
    row("evenkeel-traces", "crates/serve/traces", 6, Kind::Sockets),
    row("evenkeel-server", "crates/serve/server", 12, Kind::Sockets),
    row("evenkeel-sim", "crates/tools/sim", 3, Kind::Pure),
    row("evenkeel-replay", "crates/tools/replay", 4, Kind::Pure),
    row("evenkeel-papers", "crates/tools/papers", 4, Kind::Pure),
    row("evenkeel-load", "crates/tools/load", 5, Kind::Sockets),
    row("evenkeel-testkit", "crates/tools/testkit", 7, Kind::Sockets),
    row("evenkeel", "crates/tools/cli", 13, Kind::Assembles),
    row("evenkeel-brownout", "sdk/rust", 2, Kind::Outside),
    row("evenkeel-scylla", "sdk/scylla", 2, Kind::Outside),
    row("evenkeel-shop", "examples/shop", 0, Kind::Outside),
    row("xtask-tidy", "xtask/tidy", 0, Kind::Pure),
    row("xtask", "xtask", 13, Kind::Assembles),
];

/// Dependencies that only tests have and that do not point downwards: (package, dependency).
const TESTS_MAY_USE: &[(&str, &str)] = &[
    // Servers, clients, certificates and waiting for everybody's tests.
    ("evenkeel-http", "evenkeel-testkit"),
    ("evenkeel-cql", "evenkeel-testkit"),
    ("evenkeel-stores", "evenkeel-testkit"),
    ("evenkeel-kubernetes", "evenkeel-testkit"),
    ("evenkeel-mesh", "evenkeel-testkit"),
    ("evenkeel-http-proxy", "evenkeel-testkit"),
    ("evenkeel-cassandra", "evenkeel-testkit"),
    ("evenkeel-traces", "evenkeel-testkit"),
    ("evenkeel-placement", "evenkeel-testkit"),
    ("evenkeel-duplicates", "evenkeel-testkit"),
    ("evenkeel-redis-acl", "evenkeel-testkit"),
    ("evenkeel-replay", "evenkeel-testkit"),
];

/// What the source of a crate that decides must not name, and what to use instead. Comments may
/// name it.
pub(super) const BANNED: [(&str, &str); 8] = [
    ("std::net", "addresses and sockets belong to crates with sockets"),
    ("std::thread", "decisions are driven from outside, threads too"),
    ("std::fs", "files are read by settings or cli"),
    ("tokio", "async belongs to crates with sockets"),
    ("Instant::now", "time is an argument: take `now` as a parameter"),
    ("SystemTime", "time is an argument: take `now` as a parameter"),
    ("HashMap", "its order is not deterministic: use Vec or BTreeMap"),
    ("HashSet", "its order is not deterministic: use Vec or BTreeSet"),
];

/// So many of something in a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) file: &'static str,
    pub(super) count: usize,
}

const fn place(file: &'static str, count: usize) -> Place {
    Place { file, count }
}

/// Where a dispatcher's `Call` is stepped: once around sockets, once in the simulator, once in the
/// engine of RESP. The rest of the house must not grow a loop of its own.
const STEPS: &[Place] = &[
    // The guard steps core's call, the exchange steps the guard.
    place("crates/serve/proxy/src/calls/guards.rs", 1),
    place("crates/serve/proxy/src/calls/exchange.rs", 1),
    place("crates/serve/duplicates-engine/src/reading.rs", 1),
    place("crates/tools/sim/src/world/client.rs", 1),
    place("sdk/scylla/src/chooser.rs", 1),
];

/// Where connections are accepted. The one loop has limits, phases and a drain; others would not.
const ACCEPTS: &[Place] = &[
    // One for the loop, one for what waits in the kernel's backlog at the end; by port and by path.
    place("crates/wire/runtime/src/accept/listener.rs", 4),
    // No client: the process that replaces this one.
    place("crates/serve/server/src/process/hand_over/offer.rs", 1),
    // A server for tests, on threads of its own: a test's may be held up.
    place("crates/tools/testkit/src/kubernetes.rs", 1),
    // A relay that passes on whatever comes, for tests of datagrams.
    place("crates/tools/testkit/src/relay.rs", 1),
    // A collector of traces, for tests: it answers wrongly on purpose.
    place("crates/tools/testkit/src/otlp.rs", 1),
    // Replicas that this one started, of a master that only a benchmark has.
    place("xtask/src/bench_redis/expiry/duplicates.rs", 1),
    // Streams of a connection that was accepted.
    place("crates/wire/http/src/h2/server.rs", 1),
    place("crates/serve/mesh/src/envoy/grpc/mod.rs", 1),
];

/// Where an error is still a `String`, which nobody can match.
const STRING_ERRORS: &[Place] = &[];

/// Uses of one file by another that close a circle: (who, whom).
const CIRCLES: &[(&str, &str)] = &[];
