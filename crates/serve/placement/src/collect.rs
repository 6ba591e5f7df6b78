//! Where operations are counted: Prometheus, or a file.
//!
//! **The convention.** A counter `evenkeel_operations_total` with the labels `database`,
//! `datacenter` (where the client is: a row of the round trips) and `operation` (`weak-read`,
//! `bounded-read`, `strong-read`, `single-group` or `multi-group`). What is asked is its
//! `increase` over an interval, which takes counters that were reset into account, as one range
//! query: a single point, or as many as a history keeps when the process has just begun, so that a
//! restart forgets nothing.
//!
//! Everything is bounded: the answer (4 MiB), its series, the time for it. Series that name no
//! client or no operation are left out and told, with their labels.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use evenkeel_planner::model::{Counts, Operation};
use evenkeel_settings::placement::COUNT_MAX;
use serde_json::Value;

use super::appended::Appended;
use super::collected::{CollectError, CollectErrorKind, Collected};
use crate::config::{DatabaseConfig, OperationsConfig};
use evenkeel_stores::clients::rest::{Answer, Call, Client, Endpoint, TlsFiles};

/// For one question.
const DEADLINE: Duration = Duration::from_secs(10);
/// Series of one answer at most.
const SERIES_MAX: usize = 20_000;
/// Warnings about one answer at most, and the series that one names.
const WARNINGS_MAX: usize = 3;
/// Tokens are short.
const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// Collects the counts of one database.
#[derive(Debug)]
pub(super) struct Collector {
    source: Source,
    clients: Arc<[String]>,
    interval: Duration,
}

#[derive(Debug)]
enum Source {
    Prometheus { server: Endpoint, client: Client, query: String, token: Option<String> },
    Csv(Box<Appended>),
}

impl Collector {
    /// Reads the token and the authority; asks nobody.
    ///
    /// # Errors
    /// When one of them cannot be read, or the server's URL is none.
    pub(super) fn new(
        database: &DatabaseConfig,
        clients: Arc<[String]>,
        interval: Duration,
    ) -> Result<Self, CollectError> {
        let source = match &database.operations {
            OperationsConfig::Csv(path) => {
                Source::Csv(Box::new(Appended::new(path.clone(), interval)))
            }
            OperationsConfig::Prometheus { server, query, authority, token_file } => {
                let client = match authority {
                    None => Client::plain(DEADLINE),
                    Some(authority) => {
                        let files = TlsFiles { authority, identity: None };
                        Client::with_tls(DEADLINE, files).map_err(CollectErrorKind::remote)?
                    }
                };
                let token = token_file.as_ref().map(secret).transpose();
                let token = token.map_err(CollectErrorKind::File)?;
                let token = token.map(|token| format!("Bearer {token}"));
                let server = Endpoint::parse(server).map_err(CollectErrorKind::remote)?;
                let seconds = format!("{}ms", interval.as_millis());
                let query = query.replace("$database", &database.name);
                let query = query.replace("$interval", &seconds);
                Source::Prometheus { server, client, query, token }
            }
        };
        Ok(Self { source, clients, interval })
    }

    /// The intervals that ended since the last call; of Prometheus so many.
    ///
    /// # Errors
    /// When nothing can be known of the last one.
    pub(super) async fn collect(&mut self, intervals: usize) -> Result<Collected, CollectError> {
        let (interval, clients) = (self.interval, &self.clients);
        match &mut self.source {
            Source::Csv(file) => file.collect(clients).await,
            Source::Prometheus { server, client, query, token } => {
                let end = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                let end_s = end.map_err(|_| CollectErrorKind::Clock)?.as_secs_f64();
                let range = Range { end_s, step_s: interval.as_secs_f64(), points: intervals };
                let path = range.path(query);
                let call = Call { authorization: token.as_deref(), ..Call::get(&path) };
                let answer = client.call(server, call).await.map_err(CollectErrorKind::remote)?;
                range.read(&answer, clients).map_err(|kind| kind.at(server))
            }
        }
    }
}

/// The first line of a file that holds a password or a token.
///
/// # Errors
/// When it cannot be read or is empty, with its path.
pub(super) fn secret(path: &PathBuf) -> io::Result<String> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let words = format!("{}: {error} (is the path right?)", path.display());
        io::Error::new(error.kind(), words)
    })?;
    let line = text.lines().next().unwrap_or("").trim();
    if line.is_empty() || line.len() > TOKEN_BYTES_MAX {
        let path = path.display();
        let words = format!("{path}: a first line of 1 byte to 16 KiB was expected");
        return Err(io::Error::new(io::ErrorKind::InvalidData, words));
    }
    Ok(line.to_owned())
}

/// So many points, the last one now.
#[derive(Clone, Copy)]
struct Range {
    end_s: f64,
    step_s: f64,
    points: usize,
}

impl Range {
    fn start_s(&self) -> f64 {
        self.end_s - self.step_s * self.points.saturating_sub(1) as f64
    }

    fn path(&self, query: &str) -> String {
        let (start, end, step) = (self.start_s(), self.end_s, self.step_s);
        let query = encoded(query);
        let path = "/api/v1/query_range";
        format!("{path}?query={query}&start={start:.3}&end={end:.3}&step={step:.3}")
    }

    /// Which of the points a time is, the oldest first.
    fn point(&self, at_s: f64) -> Option<usize> {
        let point = ((at_s - self.start_s()) / self.step_s).round();
        (0.0..self.points as f64).contains(&point).then_some(point as usize)
    }

    fn read(&self, answer: &Answer, clients: &[String]) -> Result<Collected, CollectErrorKind> {
        let body = &answer.body;
        if answer.status != 200 || body["status"] != "success" {
            let reported =
                body["error"].as_str().or(body.as_str()).unwrap_or("no reason was given");
            let reported: String = reported.chars().take(300).collect();
            return Err(CollectErrorKind::Refused { status: answer.status, reported });
        }
        let series = match &body["data"]["resultType"] {
            Value::String(kind) if kind == "matrix" => body["data"]["result"].as_array(),
            _ => None,
        };
        let series = series.ok_or(CollectErrorKind::NoMatrix)?;
        if series.len() > SERIES_MAX {
            let came = series.len();
            return Err(CollectErrorKind::ManySeries { came, most: SERIES_MAX });
        }
        let mut sums = Sums::new(self.points, clients);
        for one in series {
            sums.add(self, one)?;
        }
        sums.collected()
    }
}

/// Counts as they come in.
struct Sums<'c> {
    clients: BTreeMap<&'c str, usize>,
    names: &'c [String],
    /// By point, then client; a point that no series has is not known.
    by_point: Vec<Option<Vec<[f64; 5]>>>,
    unknown_places: BTreeSet<String>,
    unknown_operations: BTreeSet<String>,
    heard: BTreeSet<usize>,
}

impl<'c> Sums<'c> {
    fn new(points: usize, names: &'c [String]) -> Self {
        Self {
            clients: names.iter().map(String::as_str).zip(0..).collect(),
            names,
            by_point: vec![None; points],
            unknown_places: BTreeSet::new(),
            unknown_operations: BTreeSet::new(),
            heard: BTreeSet::new(),
        }
    }

    fn add(&mut self, range: &Range, series: &Value) -> Result<(), CollectErrorKind> {
        let label = |name: &str| series["metric"][name].as_str().unwrap_or("");
        let (place, operation) = (label("datacenter"), label("operation"));
        let client = self.clients.get(place).copied();
        let kind = Operation::named(operation);
        let shown = |label: &str| label.chars().take(60).collect::<String>();
        let (Some(client), Some(kind)) = (client, kind) else {
            let words =
                format!("{{datacenter=\"{}\", operation=\"{}\"}}", shown(place), shown(operation));
            let unknown = match client {
                None => &mut self.unknown_places,
                Some(_) => &mut self.unknown_operations,
            };
            unknown.insert(words);
            return Ok(());
        };
        self.heard.insert(client);
        for point in series["values"].as_array().into_iter().flatten() {
            let at_s = point[0].as_f64().ok_or(CollectErrorKind::NoTime)?;
            let value = point[1].as_str().and_then(|text| text.parse::<f64>().ok());
            let value =
                value.filter(|value| (0.0..=COUNT_MAX).contains(value)).ok_or_else(|| {
                    let (place, operation) = (place.to_owned(), operation.to_owned());
                    CollectErrorKind::NoCount { place, operation, came: point[1].to_string() }
                })?;
            let Some(point) = range.point(at_s) else { continue };
            let none = || vec![[0.0; 5]; self.names.len()];
            self.by_point[point].get_or_insert_with(none)[client][kind as usize] += value;
        }
        Ok(())
    }

    fn collected(self) -> Result<Collected, CollectErrorKind> {
        let mut warnings = Vec::new();
        let mut warn = |series: &BTreeSet<String>, expected: &str| {
            if series.is_empty() || warnings.len() == WARNINGS_MAX {
                return;
            }
            let named: Vec<&str> = series.iter().take(WARNINGS_MAX).map(String::as_str).collect();
            let more = series.len() - named.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let named = named.join(", ");
            warnings.push(format!("left out: {named}{more}; {expected}"));
        };
        let known = self.names.join(", ");
        let expected = format!("expected as datacenter a row of round_trips: {known}");
        warn(&self.unknown_places, &expected);
        let known = Operation::ALL.map(Operation::name).join(", ");
        warn(&self.unknown_operations, &format!("expected as operation one of {known}"));
        if self.by_point.last().is_none_or(Option::is_none) {
            let cause = match &warnings[..] {
                [] => "is evenkeel_operations_total exported with this database's name, and \
                       scraped for longer than an interval?"
                    .to_owned(),
                left_out => left_out.join("; "),
            };
            return Err(CollectErrorKind::NoOperations { cause });
        }
        let silent = (0..self.names.len()).filter(|client| !self.heard.contains(client));
        let silent: Vec<&str> = silent.map(|client| self.names[client].as_str()).collect();
        if !silent.is_empty() {
            let names = silent.join(", ");
            warnings.push(format!("no series with datacenter {names}: counted as 0"));
        }
        let counts = self.by_point.into_iter().flatten().map(Counts::new);
        let intervals = counts.collect::<Result<_, _>>().map_err(CollectErrorKind::Input)?;
        Ok(Collected { intervals, warnings })
    }
}

/// A text as part of a URL's query (RFC 3986): all but unreserved bytes in hexadecimal.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const RANGE: Range = Range { end_s: 10_000.0, step_s: 100.0, points: 3 };

    fn read(result: &Value) -> Result<Collected, CollectErrorKind> {
        let clients = ["oslo".to_owned(), "rome".to_owned()];
        let data = json!({"resultType": "matrix", "result": result});
        let body = json!({"status": "success", "data": data});
        RANGE.read(&Answer { status: 200, body }, &clients)
    }

    fn series(place: &str, operation: &str, values: &Value) -> Value {
        json!({"metric": {"datacenter": place, "operation": operation}, "values": values})
    }

    #[test]
    fn points_become_intervals_and_what_no_series_has_is_left_out() {
        let result = json!([
            series("oslo", "weak-read", &json!([[9_800.0, "3"], [10_000.0, "5.5"]])),
            series("oslo", "weak-read", &json!([[10_000, "1"]])),
            series("rome", "multi-group", &json!([[9_999.9, "2"]])),
        ]);
        let collected = read(&result).unwrap();
        let first = Counts::new(vec![[3.0, 0.0, 0.0, 0.0, 0.0], [0.0; 5]]).unwrap();
        let last = [[6.5, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 2.0]];
        assert_eq!(collected.intervals, [first, Counts::new(last.to_vec()).unwrap()]);
        assert!(collected.warnings.is_empty());
    }

    #[test]
    fn series_that_fit_nowhere_are_named() {
        let now = json!([[10_000, "1"]]);
        let result = json!([
            series("oslo", "weak-read", &now),
            series("osla", "weak-read", &now),
            series("oslo", "weak-reed", &now),
        ]);
        let collected = read(&result).unwrap();
        let words = collected.warnings.join("\n");
        assert_eq!(collected.warnings.len(), 3, "{words}");
        assert!(words.contains("{datacenter=\"osla\", operation=\"weak-read\"}"), "{words}");
        assert!(words.contains("{datacenter=\"oslo\", operation=\"weak-reed\"}"), "{words}");
        assert!(words.contains("no series with datacenter rome"), "{words}");
        assert_eq!(collected.intervals[0].total(), 1.0);
    }

    #[test]
    fn what_cannot_be_counted_is_an_error_with_its_cause() {
        let reported = |result: Value| read(&result).unwrap_err().to_string();
        assert!(reported(json!([])).contains("evenkeel_operations_total"));
        let negative = reported(json!([series("oslo", "weak-read", &json!([[10_000, "-1"]]))]));
        assert!(negative.contains("oslo") && negative.contains("increase"), "{negative}");
        assert!(
            reported(json!([series("oslo", "weak-read", &json!([[10_000, "NaN"]]))]))
                .contains("NaN")
        );
        assert!(
            reported(json!([series("x", "weak-read", &json!([[10_000, "1"]]))])).contains("\"x\"")
        );
        let body = json!({"status": "error", "error": "parse error: unexpected end"});
        let error = RANGE.read(&Answer { status: 400, body }, &[]).unwrap_err().to_string();
        assert!(error.contains("400") && error.contains("unexpected end"), "{error}");
        let body = Value::String("<html>".to_owned());
        let error = RANGE.read(&Answer { status: 200, body }, &[]).unwrap_err().to_string();
        assert!(error.contains("<html>"), "{error}");
    }

    #[test]
    fn a_query_survives_the_way_through_a_url() {
        assert_eq!(encoded("a{b=\"ü c\"}[5m]"), "a%7Bb%3D%22%C3%BC%20c%22%7D%5B5m%5D");
        let path = RANGE.path("x");
        assert!(path.ends_with("?query=x&start=9800.000&end=10000.000&step=100.000"), "{path}");
    }
}
