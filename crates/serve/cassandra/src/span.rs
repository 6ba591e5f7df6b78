//! What spans of a request say that its record does not know.
//!
//! CQL has no place for a trace. A client that has one may put its `traceparent` into the custom
//! payload, under that name; then it is joined.

use std::rc::Rc;
use std::time::SystemTime;

use evenkeel_cql::{Envelope, Version, payload};
use evenkeel_proxy::requests::context::Joined;
use evenkeel_proxy::requests::record::{Place, Remarks, RequestRecord};
use evenkeel_proxy::requests::recorder::{AtEnd, Draft};
use evenkeel_proxy::requests::traces::{Facts, Finished, SpanContext, StoreFacts, Traces};

use super::front::Request;
use super::route::Route;

/// In the custom payload.
const TRACEPARENT: &str = "traceparent";

/// Makes a request part of a trace, where traces are exported.
pub(super) fn join(draft: &mut Draft, route: &Rc<Route>, request: &Request) {
    let Some(traces) = draft.traces().cloned() else { return };
    let ask = &request.ask;
    let body = ask.body.clone();
    let envelope = Envelope { flags: ask.flags, ..Envelope::new(Version::V4, 0, ask.opcode, body) };
    let parts = payload::split(&envelope).ok();
    let parent = parts.and_then(|parts| parts.payload.named(TRACEPARENT));
    let (joined, _) = Joined::join(parent, route.ids(), Some(&traces));
    let record = draft.record();
    record.trace_id = joined.id;
    if joined.is_sampled() {
        record.remarks.add(Remarks::SAMPLED);
    }
    let what = &request.what;
    let is_idempotent = what.idempotence.is_proven();
    let facts = StoreFacts {
        system: "cassandra",
        operation: ask.opcode.name(),
        namespace: what.keyspace.as_deref().map(str::to_owned),
        is_write: what.is_write,
        further: vec![
            ("cassandra.consistency.level", what.consistency.to_string().to_ascii_lowercase()),
            ("cassandra.query.idempotent", is_idempotent.to_string()),
        ],
    };
    draft.tell(Telling { traces, route: Rc::clone(route), context: joined.context, facts });
}

/// Tells of a request when it has ended.
struct Telling {
    traces: Traces,
    route: Rc<Route>,
    context: SpanContext,
    facts: StoreFacts,
}

impl AtEnd for Telling {
    fn ended(&mut self, record: &RequestRecord) {
        if !self.traces.wants(record) {
            return;
        }
        let config = &self.route.config;
        let tried = record.tries().iter().map(|it| it.place);
        let places = tried.chain(record.candidates().iter().map(|it| record.place(it)));
        let address = |place: Place| Some((place, self.route.address_at(place)?));
        let home = (!config.sites.is_empty()).then(|| "home".to_owned());
        let sites = config.sites.iter().map(|site| site.name.clone());
        self.traces.push(Box::new(Finished {
            record: *record,
            ended_at: SystemTime::now(),
            context: self.context,
            upstream: config.name.clone(),
            policy: config.policy.text().to_owned(),
            is_upstream_tls: false,
            facts: Facts::Store(self.facts.clone()),
            datacenters: home.into_iter().chain(sites).collect(),
            replicas: places.filter_map(address).collect(),
        }));
    }
}
