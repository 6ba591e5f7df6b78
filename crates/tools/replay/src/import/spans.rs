//! OTLP spans as JSON, a request to a collector on each line: client spans are copies, server spans
//! below them are the agents' part.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;

use evenkeel_twin::rows::{End, Served, Why};
use serde::Deserialize;
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use super::time::DAY_NS;
use super::{Copy, Gathered, ImportError, LINE_OF_SPANS_MAX, ROWS_MAX, WRONG_MAX, next_line};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct ResourceSpans {
    resource: Resource,
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Resource {
    attributes: Vec<Attribute>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ScopeSpans {
    spans: Vec<Span>,
}

#[derive(Deserialize)]
struct Attribute {
    key: String,
    #[serde(default)]
    value: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Span {
    span_id: String,
    #[serde(default)]
    parent_span_id: String,
    #[serde(default)]
    trace_id: String,
    #[serde(default)]
    trace_state: String,
    #[serde(default)]
    kind: Value,
    start_time_unix_nano: Value,
    end_time_unix_nano: Value,
    #[serde(default)]
    attributes: Vec<Attribute>,
    #[serde(default)]
    status: Value,
}

/// A client span.
struct Sent {
    span: u64,
    parent: u64,
    start_ns: u64,
    end_ns: u64,
    is_failed: bool,
    is_again: bool,
    replica: u16,
}

#[derive(Default)]
struct Spans {
    sent: Vec<Sent>,
    /// By the client span above: start, end and the service's name.
    served: BTreeMap<u64, (u64, u64, u64)>,
    /// Client spans without an address.
    skipped: u64,
}

pub(super) fn read(
    mut log: impl BufRead,
    unnamed: &str,
    gathered: &mut Gathered,
) -> Result<(u64, u64, u64), ImportError> {
    let mut spans = Spans::default();
    let (mut lines, mut wrong, mut first) = (0, 0, None);
    let mut bytes = Vec::new();
    while next_line(&mut log, LINE_OF_SPANS_MAX, &mut bytes)? {
        lines += 1;
        if bytes.trim_ascii().is_empty() {
            continue;
        }
        match serde_json::from_slice::<Document>(&bytes) {
            Ok(document) => spans.take(document, lines, gathered)?,
            Err(error) => {
                wrong += 1;
                first.get_or_insert((lines, error.to_string()));
            }
        }
    }
    if let Some((line, came)) = first
        && wrong as f64 > WRONG_MAX * lines as f64
    {
        let expected = "a JSON object with resourceSpans";
        return Err(ImportError::Line { line, came, expected, wrong, lines });
    }
    let skipped = spans.skipped;
    spans.rows(unnamed, gathered)?;
    Ok((lines, skipped, wrong))
}

impl Spans {
    fn take(
        &mut self,
        document: Document,
        line: u64,
        gathered: &mut Gathered,
    ) -> Result<(), ImportError> {
        for resource in document.resource_spans {
            let service = text(&resource.resource.attributes, "service.name").unwrap_or_default();
            let service = xxh3_64(service.as_bytes());
            for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                if is_sampled(&span) {
                    return Err(ImportError::Sampled(line));
                }
                let times = number(&span.start_time_unix_nano)
                    .zip(number(&span.end_time_unix_nano))
                    .filter(|(start_ns, end_ns)| {
                        (*start_ns..=start_ns.saturating_add(DAY_NS)).contains(end_ns)
                    });
                let Some((start_ns, end_ns)) = times else {
                    self.skipped += 1;
                    continue;
                };
                if is_kind(&span.kind, 2, "SPAN_KIND_SERVER") {
                    let parent = id(&span.trace_id, &span.parent_span_id);
                    self.served.insert(parent, (start_ns, end_ns, service));
                } else if is_kind(&span.kind, 3, "SPAN_KIND_CLIENT") {
                    self.client(&span, start_ns, end_ns, gathered)?;
                }
                if self.sent.len() + self.served.len() > ROWS_MAX {
                    return Err(ImportError::TooMuch(ROWS_MAX, "spans"));
                }
            }
        }
        Ok(())
    }

    fn client(
        &mut self,
        span: &Span,
        start_ns: u64,
        end_ns: u64,
        gathered: &mut Gathered,
    ) -> Result<(), ImportError> {
        let of = |key: &str| text(&span.attributes, key);
        let peer = of("network.peer.address").map(|address| (address, of("network.peer.port")));
        let server = || of("server.address").map(|address| (address, of("server.port")));
        let older = || of("net.peer.name").map(|address| (address, of("net.peer.port")));
        let Some((address, port)) = peer.or_else(server).or_else(older) else {
            self.skipped += 1;
            return Ok(());
        };
        let replica = gathered.replica(&format!("{address} {}", port.unwrap_or_default()))?;
        let code = span.status.get("code").unwrap_or(&Value::Null);
        self.sent.push(Sent {
            span: id(&span.trace_id, &span.span_id),
            parent: id(&span.trace_id, &span.parent_span_id),
            start_ns,
            end_ns,
            is_failed: is_kind(code, 2, "STATUS_CODE_ERROR"),
            is_again: of("http.request.resend_count").is_some_and(|count| count != "0"),
            replica,
        });
        Ok(())
    }

    fn rows(mut self, unnamed: &str, gathered: &mut Gathered) -> Result<(), ImportError> {
        self.sent.sort_by_key(|sent| (sent.parent, sent.start_ns, sent.span));
        let policy = gathered.policy(unnamed, self.sent.len())?;
        let mut services = BTreeSet::new();
        let mut before: Option<(u64, u64)> = None;
        for sent in &self.sent {
            let again = before.filter(|(parent, _)| sent.is_again && *parent == sent.parent);
            let arrived_ns = again.map_or(sent.start_ns, |(_, arrived_ns)| arrived_ns);
            if again.is_none() && before.is_some() {
                gathered.requests += 1;
            }
            before = Some((sent.parent, arrived_ns));
            let copy = Copy {
                replica: "",
                after_ns: (sent.start_ns - arrived_ns).min(DAY_NS),
                latency_ns: sent.end_ns - sent.start_ns,
                end: if sent.is_failed { End::Failed } else { End::Answered },
            };
            let why = if again.is_some() { Why::Retry } else { Why::First };
            let mut row = gathered.row(arrived_ns, &copy, (sent.replica, policy), (why, 0));
            if let Some((start_ns, end_ns, service)) = self.served.remove(&sent.span) {
                services.insert(service);
                let service_ns = (end_ns - start_ns).min(row.latency_ns);
                row.served = Some(Served { wait_ns: 0, service_ns, queue: 0, is_full: true });
            }
            gathered.push(row)?;
        }
        // Requests of others, at the services that we know: whose replica's they are is not told.
        let strangers = self.served.values().filter(|(.., service)| services.contains(service));
        gathered.strangers = vec![strangers.count() as u64];
        Ok(())
    }
}

fn id(trace: &str, span: &str) -> u64 {
    xxh3_64(format!("{trace} {span}").as_bytes())
}

/// An enum of Protobuf as JSON: its number or its name.
fn is_kind(value: &Value, number: u64, name: &str) -> bool {
    value.as_u64() == Some(number) || value.as_str() == Some(name)
}

/// A 64-bit number of Protobuf as JSON: a text, or a number.
fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

fn text(attributes: &[Attribute], key: &str) -> Option<String> {
    let attribute = attributes.iter().find(|attribute| attribute.key == key)?;
    let value = attribute.value.as_object()?.values().next()?;
    value.as_str().map(str::to_owned).or_else(|| value.is_number().then(|| value.to_string()))
}

/// Whether a span says that others like it were left out: a threshold or a probability in the
/// state of its trace (OpenTelemetry's `ot=th:…` and `ot=p:…`), or an attribute of Jaeger's.
fn is_sampled(span: &Span) -> bool {
    let state = span.trace_state.split(',').filter_map(|entry| entry.trim().strip_prefix("ot="));
    let mut parts = state.flat_map(|entry| entry.split(';')).filter_map(|it| it.split_once(':'));
    let is_part = |value: &str| !value.trim_matches('0').is_empty();
    if parts.any(|(key, value)| matches!(key, "th" | "p") && is_part(value)) {
        return true;
    }
    let share = |key| text(&span.attributes, key)?.parse::<f64>().ok();
    ["sampling.probability", "sampler.param"]
        .into_iter()
        .any(|key| share(key).is_some_and(|share| share < 1.0))
}
