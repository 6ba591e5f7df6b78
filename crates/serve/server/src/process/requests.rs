//! `/api/v1/requests`: what became of requests, and why.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;
use tokio::sync::watch;

use crate::config::Config;
use evenkeel_proxy::config::UpstreamConfig;
use evenkeel_proxy::requests::exemplars;
use evenkeel_proxy::requests::log::{RequestLog, Which};
use evenkeel_proxy::requests::record::{ID_BYTES, Place, Remarks, RequestRecord};
use evenkeel_proxy::requests::shown::ShownRequest;
use evenkeel_proxy::requests::words::Names;
use evenkeel_proxy::site_setup::HOME;
use evenkeel_proxy::upstream_state::UpstreamStates;
use evenkeel_runtime::clock::Clock;
use evenkeel_runtime::component::{Answer, Content, Endpoint, Surface};
use evenkeel_runtime::metrics::Scrape;

const SHOWN: usize = 100;
const SHOWN_MAX: usize = 1_000;

/// Who is asked.
pub(super) struct Requests {
    /// The configuration in force.
    pub(super) configs: watch::Receiver<Arc<Config>>,
    pub(super) states: Arc<UpstreamStates>,
    pub(super) clock: Clock,
    pub(super) log: RequestLog,
}

/// What came in a query, and what was expected.
#[derive(Debug)]
struct WrongQuery(String);

/// What is wanted.
#[derive(Debug, PartialEq, Eq)]
struct Query {
    /// Only with one of these remarks.
    remarks: Option<Remarks>,
    id: Option<Vec<u8>>,
    limit: usize,
}

impl Query {
    fn read(text: &str) -> Result<Self, WrongQuery> {
        let mut query = Self { remarks: None, id: None, limit: SHOWN };
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=').unwrap_or((pair, "")) {
                ("slow", "") => query.restrict(&[Remarks::SLOW, Remarks::OVER_OBJECTIVE]),
                ("failed", "") => query.restrict(&[Remarks::FAILED]),
                ("id", id) if !id.is_empty() => query.id = Some(decoded(id)?),
                ("limit", limit) => match limit.parse() {
                    Ok(limit @ 1..=SHOWN_MAX) => query.limit = limit,
                    _ => {
                        return Err(WrongQuery(format!(
                            "limit: got {limit:?}, expected a number from 1 to {SHOWN_MAX}\n"
                        )));
                    }
                },
                _ => {
                    return Err(WrongQuery(format!(
                        "got {pair:?} in the query, expected slow, failed, id=ID or limit=N\n"
                    )));
                }
            }
        }
        Ok(query)
    }

    fn restrict(&mut self, remarks: &[Remarks]) {
        let all = self.remarks.get_or_insert_default();
        remarks.iter().for_each(|remark| all.add(*remark));
    }

    fn matches(&self, record: &RequestRecord) -> bool {
        self.remarks.is_none_or(|remarks| record.remarks.has(remarks))
            && self.id.as_ref().is_none_or(|id| {
                // Of a longer one the beginning is kept.
                record.id.bytes() == &id[..id.len().min(ID_BYTES)]
            })
    }
}

/// Undoes the percent-encoding of a value.
fn decoded(text: &str) -> Result<Vec<u8>, WrongQuery> {
    let mut bytes = text.bytes();
    let mut all = Vec::new();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            all.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        match digit(bytes.next()).zip(digit(bytes.next())) {
            Some((high, low)) => all.push((high * 16 + low) as u8),
            None => {
                return Err(WrongQuery(format!(
                    "id: got {text:?}, expected two digits after each %\n"
                )));
            }
        }
    }
    Ok(all)
}

#[derive(Serialize)]
struct Document {
    /// How many were found, those that are not shown among them.
    found: usize,
    requests: Vec<ShownRequest>,
}

impl Requests {
    /// Where it is asked, and exemplars for histograms that are there before.
    pub(super) fn surface(self) -> Surface {
        let all = Arc::new(self);
        let counted = Arc::clone(&all);
        let endpoint =
            Endpoint::by_query("/api/v1/requests", move |query| match Query::read(query) {
                Ok(query) => {
                    let json = serde_json::to_string(&all.find(&query));
                    let json = json.expect("numbers and strings are always JSON");
                    Answer { status: 200, content: Content::Json(json) }
                }
                Err(WrongQuery(words)) => Answer { status: 400, content: Content::Text(words) },
            });
        let exemplars = Surface::of_metrics(move |scrape: &mut _| counted.exemplify(scrape));
        Surface { endpoints: vec![endpoint], ..exemplars }
    }

    fn exemplify(&self, scrape: &mut Scrape) {
        let config = Arc::clone(&self.configs.borrow());
        for (place, upstream) in config.named_upstreams() {
            let upstream = &upstream.common;
            let names = Replicas { states: &self.states, place, upstream };
            let address = |replica| names.replica(replica);
            let of = (place, upstream.name.as_str());
            exemplars::collect(scrape, &self.log, self.clock.now(), of, address);
        }
    }

    fn find(&self, query: &Query) -> Document {
        let which = if query.id.is_some() { Which::All } else { Which::Remarkable };
        let config = Arc::clone(&self.configs.borrow());
        let is_known = |it: &RequestRecord| usize::from(it.upstream) < config.upstreams.len();
        let mut found = self.log.select(which, |it| query.matches(it) && is_known(it));
        if query.remarks.is_some() {
            found.sort_by_key(|it| Reverse(it.total_us));
        } else {
            found.sort_by_key(|it| Reverse(it.began));
        }
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let (since_1970, now) = (since_1970.unwrap_or_default(), self.clock.now());
        let shown = found.iter().take(query.limit).map(|record| {
            let place = usize::from(record.upstream);
            let upstream = &config.upstreams[place].common;
            let names = Replicas { states: &self.states, place, upstream };
            let at = since_1970.saturating_sub(now.since(record.began));
            let at_unix_ms = u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
            ShownRequest::new(record, upstream.name.clone(), at_unix_ms, &names)
        });
        Document { requests: shown.collect(), found: found.len() }
    }
}

/// The names of an upstream's replicas: their addresses.
struct Replicas<'a> {
    states: &'a UpstreamStates,
    place: usize,
    upstream: &'a UpstreamConfig,
}

impl Names for Replicas<'_> {
    fn replica(&self, place: Place) -> String {
        let slot = usize::from(place.slot);
        let address = match usize::from(place.datacenter) {
            HOME => {
                let generations = &self.states.plan(self.place).generations;
                let generation = generations.get(slot).copied().unwrap_or_default();
                let is_same = generation as u16 == place.generation;
                let home = self.states.home(self.place);
                home.get(slot).copied().filter(|_| is_same)
            }
            site => {
                let site = self.upstream.sites.get(site - 1);
                site.and_then(|site| site.replicas.get(slot)).copied()
            }
        };
        match address {
            Some(address) => address.to_string(),
            None => {
                let mut name = format!("replica {slot}");
                if usize::from(place.datacenter) != HOME {
                    let _ = write!(name, " of {}", self.datacenter(place.datacenter));
                }
                name
            }
        }
    }

    fn datacenter(&self, datacenter: u8) -> String {
        let site = usize::from(datacenter).checked_sub(1);
        let site = site.and_then(|site| self.upstream.sites.get(site));
        site.map_or_else(|| format!("data centre {datacenter}"), |site| site.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_says_what_it_wants_or_what_was_expected() {
        assert_eq!(Query::read("").unwrap().limit, SHOWN);
        let query = Query::read("slow&failed&limit=3").unwrap();
        assert!(query.limit == 3 && query.remarks.is_some_and(|it| it.has(Remarks::FAILED)));
        assert_eq!(Query::read("id=a%2Fb").unwrap().id.as_deref(), Some(&b"a/b"[..]));
        for wrong in ["fast", "slow=1", "limit=0", "limit=1001", "limit", "id=", "id=%", "id=%4"] {
            let WrongQuery(words) = Query::read(wrong).unwrap_err();
            assert!(words.contains("expected"), "{wrong}: {words}");
        }
    }
}
