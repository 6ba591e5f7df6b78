//! Open-loop load on Cassandra: YCSB's core workloads over the native protocol.
//!
//! *Signal* and *statistic* are those of the load on HTTP: latency counts from the moment a request
//! was due. Requests share connections, each on a stream of its own, so a request never waits for
//! another's answer here; connections take turns. Prepared statements, the nodes' answers and
//! timeouts are the product's own code ([`evenkeel_cql::client`]).
//!
//! *When it misleads.* It sends to the nodes (or the proxy) it is given and is not token-aware: on
//! a cluster of several nodes a coordinator often has to ask another. Drivers are; compare through
//! the proxy, or with a driver's own benchmark. One thread makes all requests and reads all
//! answers; [`Report::doubt`](super::Report::doubt) says when it was late. A request that
//! timed out goes on in the cluster, and its stream is free when the node has answered it.

mod drive;
mod fill;
pub(super) mod parameters;
mod session;
#[cfg(test)]
mod tests;
mod workload;

use std::time::Duration;

use evenkeel_core::request::ring::Consistency;

use super::{LoadError, Outcome, Parameters, Plan, Progress, Stop, on_thread, outside};
use evenkeel_cql::Version;
use evenkeel_cql::client::Login;
use evenkeel_runtime::tls::ClientTls;
use parameters::CassandraParameters;

pub use workload::{Popularity, RecordSize, Workload};

/// Where the native protocol is spoken when an address has no port.
const PORT: u16 = 9042;
/// The environment variable with the password, where nodes want one: what is typed on a command
/// line is seen by everybody.
pub const PASSWORD_VARIABLE: &str = "EVENKEEL_CQL_PASSWORD";
/// The table, by the name YCSB gives it.
const TABLE: &str = "usertable";
/// The most connections: one node's threads do not get more done with more.
const CONNECTIONS_MAX: usize = 1_000;

/// A load on one table of Cassandra.
#[derive(Clone, Debug)]
pub struct CassandraLoad {
    /// Whom to ask, and of which keyspace.
    pub target: CassandraTarget,
    /// How much is read and how much updated.
    pub workload: Workload,
    /// The records of the table; at least 1.
    pub records: u64,
    /// Which of them are asked for how often.
    pub popularity: Popularity,
    /// How long records are.
    pub size: RecordSize,
    /// How many replicas each request waits for.
    pub consistency: Consistency,
    /// The version of the native protocol.
    pub version: Version,
    /// Who asks; `None` where nodes let everybody in.
    pub login: Option<Login>,
    /// With what connections are encrypted; `None`: they are not.
    pub tls: Option<ClientTls>,
    /// Whether updates carry the time at which they were due to leave, as drivers' do. Without it
    /// each coordinator stamps them, and a proxy may not send them twice.
    pub has_timestamps: bool,
    /// When requests are due.
    pub plan: Plan,
    /// Connections, all addresses together; from 1 to 1,000.
    pub connections: usize,
    /// The most requests in flight; those beyond fail at once.
    pub in_flight_max: usize,
}

/// Addresses and keyspace of a URL such as `cql://10.0.0.1:9042,10.0.0.2/shop`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CassandraTarget {
    /// `host:port`, at least one; connections take them in turn.
    pub addresses: Vec<String>,
    /// Letter by letter as it was created: `shop` and not `Shop`, unless that was quoted.
    pub keyspace: String,
}

impl CassandraTarget {
    /// Whether a URL means Cassandra: begins with `cql://`.
    pub fn is_meant(url: &str) -> bool {
        url.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("cql://"))
    }

    /// Reads a URL: addresses with or without port (9042), separated by commas, and a keyspace.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(url: &str) -> Result<Self, LoadError> {
        let expected = "a URL such as cql://127.0.0.1:9042/keyspace (several addresses: with `,`)";
        let problem = || LoadError::setting("url", format!("`{url}`"), expected);
        let rest = Self::is_meant(url).then(|| &url[6..]).ok_or_else(problem)?;
        let (addresses, keyspace) = rest.split_once('/').ok_or_else(problem)?;
        let is_name = |text: &str| {
            let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
            !text.is_empty() && text.len() <= 48 && text.chars().all(is_part)
        };
        if !is_name(keyspace) {
            return Err(problem());
        }
        let addresses = addresses.split(',').map(|address| with_port(address).ok_or_else(problem));
        Ok(Self { addresses: addresses.collect::<Result<_, _>>()?, keyspace: keyspace.into() })
    }

    /// The table with its keyspace, as statements name it.
    fn table(&self) -> String {
        format!("\"{}\".{TABLE}", self.keyspace)
    }
}

fn with_port(address: &str) -> Option<String> {
    let authority = address.parse::<http::uri::Authority>().ok()?;
    let host = authority.host();
    if host.is_empty() || address.contains('@') {
        return None;
    }
    match authority.port_u16() {
        Some(_) => Some(address.to_owned()),
        // A port was written, but is none: `host:99999`.
        None if address.len() > host.len() => None,
        None => Some(format!("{host}:{PORT}")),
    }
}

impl CassandraLoad {
    /// A load with usual bounds: workload B on 1,000 records of 1,000 bytes, zipfian, at
    /// `LOCAL_QUORUM` over protocol v5 and 4 connections.
    pub fn new(target: CassandraTarget, plan: impl Into<Plan>) -> Self {
        Self {
            target,
            workload: Workload::B,
            records: 1_000,
            popularity: Popularity::Zipfian(0.99),
            size: RecordSize::default(),
            consistency: Consistency::LocalQuorum,
            version: Version::V5,
            login: None,
            tls: None,
            has_timestamps: true,
            plan: plan.into(),
            connections: 4,
            in_flight_max: 100_000,
        }
    }

    /// The parameters as resolved, for the report.
    pub fn parameters(&self) -> Parameters {
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        Parameters {
            authority: self.target.addresses.join(","),
            path: format!("/{}/{TABLE}", self.target.keyspace),
            method: "CQL".into(),
            arrivals: self.plan.arrivals.kind(),
            rate: self.plan.arrivals.rate_mean(),
            duration_s: self.plan.end().map(|end| end.as_secs_f64()),
            requests_max: self.plan.requests_max,
            timeout_ms: milliseconds(self.plan.timeout),
            objective_ms: self.plan.objective.map(milliseconds),
            connections_max: self.connections,
            queue_max: self.in_flight_max,
            seed: self.plan.seed,
            cassandra: Some(CassandraParameters {
                read_share: self.workload.read_share,
                records: self.records,
                popularity: self.popularity.name(),
                record_bytes: self.size.bytes,
                has_skewed_sizes: self.size.is_skewed,
                consistency: self.consistency.name(),
                protocol: self.version.number(),
                has_timestamps: self.has_timestamps,
            }),
        }
    }

    /// Creates the table if there is none, and with `replication` (what CQL has after
    /// `replication =`) the keyspace too, and writes every record once. `on_progress` is told how
    /// many are written.
    ///
    /// # Errors
    /// When a setting is out of range, no address answers, or a record cannot be written after
    /// several attempts.
    pub fn fill(
        &self,
        replication: Option<&str>,
        stop: &Stop,
        on_progress: impl FnMut(u64),
    ) -> Result<(), LoadError> {
        self.check()?;
        fill::fill(self, replication, stop, on_progress)
    }

    /// Carries the load out, as [`Load::run`](super::Load::run) does.
    ///
    /// # Errors
    /// When a setting is out of range, no address answers, the statements cannot be prepared (is
    /// there no table?), or the system gives no thread, timer or runtime. Failing requests are no
    /// error, even when all of them fail.
    pub fn run(
        self,
        stop: &Stop,
        on_progress: impl FnMut(&Progress),
    ) -> Result<Outcome, LoadError> {
        self.check()?;
        on_thread(stop, on_progress, move |stop, progress| {
            drive::drive_to_end(self, stop, &progress)
        })
    }

    /// Whether every setting is in its range.
    pub(crate) fn check(&self) -> Result<(), LoadError> {
        self.plan.check()?;
        if !(1..=CONNECTIONS_MAX).contains(&self.connections) {
            return outside("connections", &self.connections, "from 1 to 1,000 (streams share)");
        }
        if self.consistency.is_serial() {
            let expected = "a level of plain requests, such as LOCAL_QUORUM";
            return outside("consistency", &self.consistency.name(), expected);
        }
        workload::Draw::new(self.workload, self.records, self.popularity, self.plan.seed)?;
        workload::Values::new(self.size, self.plan.seed).map(drop)
    }
}
