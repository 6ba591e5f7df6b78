//! Logs of other proxies, and spans, as a recorded day.
//!
//! A log tells less than a recording: no agent's part, no pairs, often milliseconds only. What each
//! format suffices for is said with it. Of an address only its place among others is kept.

mod envoy;
mod fields;
mod haproxy;
mod nginx;
mod spans;
mod time;

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read as _};

use evenkeel_core::Rng;
use evenkeel_core::request::select::Policy;
use evenkeel_records::Manifest;
use evenkeel_records::reader::ordered;
use evenkeel_sim::scenario::Spelling;
use evenkeel_twin::rows::{Day, End, Row, Served, Why};
use thiserror::Error;

/// Bytes of a line at most, of a log and of spans.
const LINE_MAX: u64 = 64 << 10;
const LINE_OF_SPANS_MAX: u64 = 64 << 20;
/// Copies of a day at most: some 3 GB.
const ROWS_MAX: usize = 40_000_000;
const REPLICAS_MAX: usize = 4_096;
/// Days from the first copy to the last one, at most.
const DAYS_MAX: u64 = 8;
/// Lines that may be wrong: logs have a torn one here and there.
const WRONG_MAX: f64 = 0.01;
const MS: u64 = 1_000_000;

evenkeel_core::named! {
    /// What is imported.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Format {
        /// nginx, with the fields that docs/replay.md names.
        Nginx = "nginx",
        /// HAProxy's HTTP log (`option httplog`).
        HaProxy = "haproxy",
        /// Envoy's default access log, or JSON with the same operators.
        Envoy = "envoy",
        /// OTLP spans as JSON, a request to a collector on each line.
        Spans = "otlp",
        /// Cassandra's log of slow queries; refused.
        CassandraSlow = "cassandra-slow",
        /// Redis's SLOWLOG; refused.
        RedisSlow = "redis-slowlog",
    }
}

impl Format {
    /// What it suffices for.
    pub const fn suffices_for(self) -> &'static str {
        match self {
            Self::Nginx => {
                "policies and load, if answers take 5 ms or more; hedges as a range; no agents, so \
                 unseen requests cannot be told"
            }
            Self::HaProxy => {
                "policies and load, if answers take 5 ms or more; the queue at the proxy is told \
                 apart; of retries only the last; hedges as a range; unseen requests cannot be told"
            }
            Self::Envoy => {
                "policies and load, if answers take 5 ms or more; of retries only the last; hedges \
                 as a range; unseen requests cannot be told"
            }
            Self::Spans => {
                "policies, load and replicas; with server spans as with agents, and requests of \
                 unrecorded clients are told; hedges as a range"
            }
            Self::CassandraSlow | Self::RedisSlow => "nothing: it has only what was slow",
        }
    }
}

/// What is told beside the log.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The policy of lines that name none.
    pub policy: Option<String>,
}

/// A day out of a log.
#[derive(Debug)]
pub struct Imported {
    /// What is known beside its rows.
    pub manifest: Manifest,
    /// The rows.
    pub day: Day,
    /// Lines that were read.
    pub lines: u64,
    /// Lines that no replica answered: left out.
    pub skipped: u64,
    /// Lines that were wrong: left out.
    pub wrong: u64,
}

/// Why a log is no day.
#[derive(Debug, Error)]
pub enum ImportError {
    /// It cannot be read.
    #[error("cannot read the log: {0}")]
    Io(#[from] io::Error),
    /// Too many lines are wrong.
    #[error(
        "line {line}: got {came}, expected {expected} ({wrong} of {lines} lines are like this)"
    )]
    Line {
        /// The first such line, from 1.
        line: u64,
        /// What came.
        came: String,
        /// What was expected.
        expected: &'static str,
        /// Lines that are wrong.
        wrong: u64,
        /// Lines in all.
        lines: u64,
    },
    /// A bound is reached.
    #[error("got more than {0} {1}: import a shorter part of the log")]
    TooMuch(usize, &'static str),
    /// Longer than a replay takes, or with a wrong time.
    #[error(
        "got requests over {0} days, expected at most {DAYS_MAX}: import a shorter part of the \
         log, or is the time of a line wrong?"
    )]
    TooLong(u64),
    /// Policies that cannot be told apart.
    #[error("got lines under the policies {0}, expected one, and one more that was explored")]
    Policies(String),
    /// Only the slow ones are there.
    #[error(
        "no answer: {0} has only what was slow. Whether a request waits depends on all others: \
         import an access log, or record"
    )]
    OnlySlow(&'static str),
    /// Only some are there.
    #[error(
        "no answer: line {0} has a span that was sampled. One request in ten made p99 20 to 100 % \
         wrong in simulations: export all spans for some minutes"
    )]
    Sampled(u64),
    /// No line has a replica's answer.
    #[error("got {0} lines and none that a replica answered: is it the log of another format?")]
    Nothing(u64),
}

impl ImportError {
    /// Whether the log is what it says and only suffices for nothing.
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::OnlySlow(_) | Self::Sampled(_))
    }
}

/// What a line should have been.
#[derive(Debug)]
pub(crate) struct Wrong {
    pub(crate) came: String,
    pub(crate) expected: &'static str,
}

impl Wrong {
    pub(crate) fn new(came: &str, expected: &'static str) -> Self {
        // A log may have secrets, and lines are long: the beginning suffices to see what it is.
        let shown: String = came.chars().take(60).collect();
        Self { came: format!("{shown:?}"), expected }
    }
}

/// One copy of a request, from a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy<'a> {
    pub(crate) replica: &'a str,
    /// From the request's arrival until it was sent, ns.
    pub(crate) after_ns: u64,
    pub(crate) latency_ns: u64,
    pub(crate) end: End,
}

/// One request, from a line.
#[derive(Debug, Default)]
pub(crate) struct Request<'a> {
    /// ns from any time.
    pub(crate) arrived_ns: u64,
    pub(crate) copies: Vec<Copy<'a>>,
    /// Bytes of the answer.
    pub(crate) bytes: u64,
    /// Which policy decided, where the line tells.
    pub(crate) policy: Option<&'a str>,
}

/// Rows as they gather.
struct Gathered {
    rows: Vec<Row>,
    replicas: BTreeMap<String, u16>,
    /// Policies in the order in which they came, with the rows of each.
    policies: Vec<(String, u64)>,
    requests: u64,
    strangers: Vec<u64>,
    rng: Rng,
}

/// Reads a log.
///
/// # Errors
/// When it is none of this format, or suffices for nothing.
pub fn import(
    format: Format,
    log: impl BufRead,
    options: &Options,
) -> Result<Imported, ImportError> {
    match format {
        Format::CassandraSlow => return Err(ImportError::OnlySlow("a log of slow queries")),
        Format::RedisSlow => return Err(ImportError::OnlySlow("SLOWLOG")),
        _ => {}
    }
    let mut gathered = Gathered {
        rows: Vec::new(),
        replicas: BTreeMap::new(),
        policies: Vec::new(),
        requests: 0,
        strangers: Vec::new(),
        rng: Rng::stream(1, "times within a millisecond"),
    };
    let unnamed = options.policy.as_deref().unwrap_or("");
    let (lines, skipped, wrong) = match format {
        Format::Spans => spans::read(log, unnamed, &mut gathered)?,
        _ => read_lines(format, log, unnamed, &mut gathered)?,
    };
    if gathered.rows.is_empty() {
        return Err(ImportError::Nothing(lines));
    }
    let (manifest, day) = gathered.finish(format)?;
    Ok(Imported { manifest, day, lines, skipped, wrong })
}

fn read_lines(
    format: Format,
    mut log: impl BufRead,
    unnamed: &str,
    gathered: &mut Gathered,
) -> Result<(u64, u64, u64), ImportError> {
    let (mut lines, mut skipped, mut wrong, mut first) = (0, 0, 0, None);
    let mut bytes = Vec::new();
    while next_line(&mut log, LINE_MAX, &mut bytes)? {
        lines += 1;
        let line = String::from_utf8_lossy(&bytes);
        let line = line.trim();
        if is_slow_log(line) {
            return Err(ImportError::OnlySlow("this log"));
        }
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let fields;
        let request = match format {
            Format::HaProxy => haproxy::request(line),
            Format::Envoy if !line.starts_with('{') => envoy::text(line),
            _ => {
                fields = fields::Fields::new(line);
                match (&fields, format) {
                    (Ok(fields), Format::Envoy) => envoy::json(fields),
                    (Ok(fields), _) => nginx::request(fields),
                    (Err(()), _) => Err(Wrong::new(line, "key=value fields, or one JSON object")),
                }
            }
        };
        match request.and_then(|request| gathered.checked(request)) {
            Ok(request) if request.copies.is_empty() => skipped += 1,
            Ok(request) => gathered.add(&request, unnamed, MS)?,
            Err(problem) => {
                wrong += 1;
                first.get_or_insert((lines, problem));
            }
        }
    }
    match first {
        Some((line, Wrong { came, expected })) if wrong as f64 > WRONG_MAX * lines as f64 => {
            Err(ImportError::Line { line, came, expected, wrong, lines })
        }
        _ => Ok((lines, skipped, wrong)),
    }
}

/// What logs of slow requests say of themselves.
fn is_slow_log(line: &str) -> bool {
    line.contains("operations were slow in the last") || line.starts_with("# Query_time:")
}

/// The next line without its end; what is longer than it may is cut off, and wrong by that.
fn next_line(log: &mut impl BufRead, max: u64, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    if log.take(max).read_until(b'\n', line)? == 0 {
        return Ok(false);
    }
    if line.len() as u64 == max && line.last() != Some(&b'\n') {
        // The rest of it, in pieces.
        let mut rest = Vec::new();
        while log.take(max).read_until(b'\n', &mut rest)? > 0 && rest.last() != Some(&b'\n') {
            rest.clear();
        }
    }
    Ok(true)
}

impl Gathered {
    /// Torn lines have parts of names.
    fn checked<'a>(&self, request: Request<'a>) -> Result<Request<'a>, Wrong> {
        let Some(name) = request.policy else { return Ok(request) };
        let is_known = self.policies.iter().any(|(known, _)| known == name);
        if is_known || Spelling::of(name).policy.parse::<Policy>().is_ok() {
            return Ok(request);
        }
        Err(Wrong::new(&format!("policy={name}"), "policy=NAME, a policy such as round-robin"))
    }

    /// Adds a request; its times are told in steps of `step_ns`.
    fn add(
        &mut self,
        request: &Request<'_>,
        unnamed: &str,
        step_ns: u64,
    ) -> Result<(), ImportError> {
        // Nobody arrives at the beginning of each millisecond.
        let within_ns = (self.rng.unit() * step_ns as f64) as u64;
        let arrived_ns = request.arrived_ns.saturating_add(within_ns);
        let policy = self.policy(request.policy.unwrap_or(unnamed), request.copies.len())?;
        for (number, copy) in request.copies.iter().enumerate() {
            let replica = self.replica(copy.replica)?;
            let why = if number == 0 { Why::First } else { Why::Retry };
            let row = self.row(arrived_ns, copy, (replica, policy), (why, request.bytes));
            self.push(row)?;
        }
        self.requests += 1;
        Ok(())
    }

    fn row(
        &self,
        arrived_ns: u64,
        copy: &Copy<'_>,
        (replica, policy): (u16, u8),
        (why, bytes): (Why, u64),
    ) -> Row {
        Row {
            request: self.requests,
            gap_ns: arrived_ns.saturating_add(copy.after_ns),
            after_ns: copy.after_ns,
            latency_ns: copy.latency_ns,
            client: 0,
            replica,
            group: 0,
            policy,
            size: (u64::BITS - bytes.leading_zeros()) as u8,
            why,
            end: copy.end,
            served: None::<Served>,
        }
    }

    fn push(&mut self, row: Row) -> Result<(), ImportError> {
        if self.rows.len() >= ROWS_MAX {
            return Err(ImportError::TooMuch(ROWS_MAX, "copies"));
        }
        self.rows.push(row);
        Ok(())
    }

    fn replica(&mut self, name: &str) -> Result<u16, ImportError> {
        if let Some(place) = self.replicas.get(name) {
            return Ok(*place);
        }
        let place = self.replicas.len();
        if place >= REPLICAS_MAX {
            return Err(ImportError::TooMuch(REPLICAS_MAX, "replicas"));
        }
        self.replicas.insert(name.to_owned(), place as u16);
        Ok(place as u16)
    }

    fn policy(&mut self, name: &str, rows: usize) -> Result<u8, ImportError> {
        let place = self.policies.iter().position(|(known, _)| known == name);
        let place = place.unwrap_or(self.policies.len());
        if place == self.policies.len() {
            self.policies.push((name.to_owned(), 0));
        }
        if place > 1 {
            let names: Vec<String> =
                self.policies.iter().map(|(name, _)| format!("{name:?}")).collect();
            return Err(ImportError::Policies(names.join(", ")));
        }
        self.policies[place].1 += rows as u64;
        Ok(place as u8)
    }

    /// The policy of most rows is the day's.
    fn finish(mut self, format: Format) -> Result<(Manifest, Day), ImportError> {
        let times = || self.rows.iter().map(|row| row.gap_ns);
        let length_ns = times().max().unwrap_or(0) - times().min().unwrap_or(0);
        if length_ns > DAYS_MAX * time::DAY_NS {
            return Err(ImportError::TooLong(length_ns / time::DAY_NS));
        }
        if self.policies.len() == 2 && self.policies[1].1 > self.policies[0].1 {
            self.policies.swap(0, 1);
            for row in &mut self.rows {
                row.policy = 1 - row.policy;
            }
        }
        let mut policies: Vec<String> = self.policies.into_iter().map(|(name, _)| name).collect();
        if policies.iter().any(String::is_empty) {
            if policies.len() > 1 {
                return Err(ImportError::Policies(format!("{policies:?}")));
            }
            policies.clear();
        }
        self.strangers.resize(self.replicas.len(), 0);
        let resolution_ns = if format == Format::Spans { 1_000 } else { MS };
        let by = format!("evenkeel import {}", format.name());
        let manifest = Manifest {
            resolution_ns,
            like: "[workload]\ncancel = true\n".to_owned(),
            ..Manifest::new(&by, policies, self.replicas.len())
        };
        let rows = ordered(self.rows, true);
        Ok((manifest, Day { rows, strangers: self.strangers, dropped: (0, 1) }))
    }
}
