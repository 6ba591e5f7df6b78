//! An instance: one JSON object with everything in it, as benchmarks store them.

use std::sync::Arc;

use evenkeel_planner::model::{Counts, RoundTrips};
use serde::Deserialize;

use super::{COUNT_MAX, Input, PLACES_MAX, RTT_MS_MAX, Size, whole};
use crate::problem::{Mismatch, Place, Problem};

/// As written. Keys that are not here are for people, or answers to compare with.
#[derive(Deserialize)]
struct Document {
    name: Option<String>,
    #[serde(default)]
    sites: Vec<String>,
    #[serde(default)]
    clients: Vec<String>,
    rtt_client_site_ms: Vec<Vec<f64>>,
    rtt_site_site_ms: Vec<Vec<f64>>,
    counts: Vec<[f64; 5]>,
    #[serde(default)]
    problems: Vec<Wanted>,
}

#[derive(Deserialize)]
struct Wanted {
    num_replicas: usize,
    num_voters: usize,
}

/// Parses an instance.
///
/// # Errors
/// With line and column where it is no such object, or with the matrix, row and column that
/// is wrong.
pub fn parse(bytes: &[u8], file: &str) -> Result<Input, Problem> {
    let document: Document = serde_json::from_slice(bytes).map_err(|error| {
        let at = Place::File {
            file: file.into(),
            line: u32::try_from(error.line()).unwrap_or(u32::MAX),
            column: u32::try_from(error.column()).unwrap_or(u32::MAX),
        };
        let text = error.to_string();
        let came = text.rsplit_once(" at line ").map_or(&*text, |(message, _)| message);
        let expected = "an object with rtt_client_site_ms, rtt_site_site_ms and counts";
        Problem { at, path: String::new(), what: Mismatch::new(came, expected) }
    })?;
    document.check().map_err(|what| whole(file, what))
}

impl Document {
    fn check(self) -> Result<Input, Mismatch> {
        let (sites, clients) = (self.rtt_site_site_ms.len(), self.rtt_client_site_ms.len());
        for (what, came) in [("sites", sites), ("clients", clients)] {
            if !(1..=PLACES_MAX).contains(&came) {
                return Err(Mismatch::new(format!("{came} {what}"), format!("1 to {PLACES_MAX}")));
            }
        }
        let long = self.rtt_client_site_ms.iter().chain(&self.rtt_site_site_ms).flatten();
        if let Some(long) = long.clone().find(|ms| **ms > RTT_MS_MAX) {
            return Err(Mismatch::new(format!("a round trip of {long} ms"), "at most 600000 ms"));
        }
        if let Some(count) = self.counts.iter().flatten().find(|count| **count > COUNT_MAX) {
            return Err(Mismatch::new(format!("a count of {count}"), "at most 1e15"));
        }
        let wrong = |error: evenkeel_planner::model::BadInput| {
            Mismatch::new(error.to_string(), "an instance of one shape")
        };
        let trips =
            RoundTrips::new(&self.rtt_client_site_ms, &self.rtt_site_site_ms).map_err(wrong)?;
        if self.counts.len() != clients {
            let came = format!("{} rows of counts", self.counts.len());
            return Err(Mismatch::new(came, format!("{clients}, one for each client")));
        }
        let size =
            |wanted: &Wanted| Size { replicas: wanted.num_replicas, voters: wanted.num_voters };
        let trips_by_interval = vec![Arc::new(trips.clone())];
        Ok(Input {
            title: self.name,
            sites: names(self.sites, sites, "site")?,
            clients: names(self.clients, clients, "client")?,
            trips,
            trips_by_interval,
            interval: None,
            distributions: None,
            leader_cost: 1.0,
            intervals: vec![Counts::new(self.counts).map_err(wrong)?],
            tau: 1.0,
            sizes: self.problems.iter().map(size).collect(),
            today: None,
            rules: Vec::new(),
            domains: None,
            voter_domains: None,
            domain_voters_max: None,
            domain_replicas_max: None,
        })
    }
}

fn names(given: Vec<String>, expected: usize, kind: &str) -> Result<Vec<String>, Mismatch> {
    match given.len() {
        0 => Ok((0..expected).map(|number| format!("{kind} {number}")).collect()),
        came if came == expected => Ok(given),
        came => Err(Mismatch::new(format!("{came} names of {kind}s"), format!("{expected}"))),
    }
}
