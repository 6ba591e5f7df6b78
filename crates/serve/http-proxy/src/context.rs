//! What joins a request to others' logs and traces: `x-request-id`, and the trace context of W3C.
//!
//! Where traces are exported, `traceparent` is joined or begun, and names the attempt as the
//! parent. Where they are not, it passes as it came: a span that nobody exports would be a hole in
//! the trace.

use evenkeel_http::{FieldValue, Fields};
use evenkeel_proxy::requests::context::{Ids, Joined, write_hex};
use evenkeel_proxy::requests::traces::{SpanContext, Traces};
use http::header::HeaderName;

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// A longer one of a client is replaced.
const ID_BYTES_MAX: usize = 128;

/// The trace that a request is part of, its span there, and what its attempts are told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Trace {
    /// Zero where nobody else knows of it.
    pub(crate) id: u128,
    pub(crate) context: SpanContext,
    told: Told,
}

/// What an attempt is told to be the child of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Told {
    /// Of its own span; so many have left.
    Attempt(u8),
    /// Of the request's span: the attempts of a copy are none.
    Request,
    /// Of what the request came with, if anything.
    AsItCame,
}

impl Trace {
    /// Whether whoever began the trace keeps it.
    pub(crate) const fn is_sampled(self) -> bool {
        self.joined().is_sampled()
    }

    const fn joined(self) -> Joined {
        Joined { id: self.id, context: self.context }
    }

    /// Joins the trace of a request, or begins one. Two contexts, or one that is none, are as good
    /// as nothing: the specification wants a new trace, without the old state.
    pub(crate) fn join(headers: &mut Fields, ids: &Ids, traces: Option<&Traces>) -> Self {
        let only = headers.get_only(TRACEPARENT).ok().flatten();
        let (joined, is_old) = Joined::join(only.map(FieldValue::as_bytes), ids, traces);
        if traces.is_some() && !is_old {
            headers.remove(TRACESTATE);
        }
        let told = traces.map_or(Told::AsItCame, |_| Told::Attempt(0));
        let id = if traces.is_some() || is_old { joined.id } else { 0 };
        Self { id, context: joined.context, told }
    }

    /// For a copy that is sent elsewhere: whoever gets it is told of the request's own span.
    pub(crate) const fn of_copy(self) -> Self {
        match self.told {
            Told::Attempt(_) => Self { told: Told::Request, ..self },
            Told::Request | Told::AsItCame => self,
        }
    }

    /// Whether attempts are told of spans of ours.
    pub(crate) const fn is_told(self) -> bool {
        !matches!(self.told, Told::AsItCame)
    }

    /// Writes it on the next attempt, which is a span of its own.
    pub(crate) fn mark(&mut self, headers: &mut Fields) {
        let span = match &mut self.told {
            Told::Attempt(attempts) => {
                let number = *attempts;
                *attempts = number.saturating_add(1);
                self.context.attempt(number)
            }
            Told::Request => self.context.span,
            Told::AsItCame => return,
        };
        headers.insert(TRACEPARENT, unique(&self.joined().traceparent(span)));
    }
}

/// The id of a request.
#[derive(Clone, Debug)]
pub(crate) enum RequestId {
    Came(Box<[u8]>),
    New([u8; 32]),
}

impl RequestId {
    /// The client's, if it sent one that may stand in a log, or a new one. It is in the headers
    /// then, once.
    pub(crate) fn of(headers: &mut Fields, ids: &Ids) -> Self {
        if let Some(id) = headers.get_only(REQUEST_ID).ok().flatten().filter(|id| is_sane(*id)) {
            return Self::Came(id.as_bytes().into());
        }
        let mut text = [0; 32];
        let (high, low) = text.split_at_mut(16);
        write_hex(high, ids.bits());
        write_hex(low, ids.bits());
        headers.insert(REQUEST_ID, unique(&text));
        Self::New(text)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Came(text) => text,
            Self::New(text) => text,
        }
    }

    /// As the value of a field.
    pub(crate) fn value(&self) -> FieldValue<'_> {
        unique(self.as_bytes())
    }
}

/// A value that never comes again. HTTP/2 would look for it among those that it keeps for later,
/// and keep it too, in the place of others that do come again; it keeps nothing that is sensitive.
fn unique(text: &[u8]) -> FieldValue<'_> {
    FieldValue::new(text).expect("visible bytes").sensitive()
}

fn is_sane(id: FieldValue<'_>) -> bool {
    let bytes = id.as_bytes();
    (1..=ID_BYTES_MAX).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_proxy::requests::traces::{self, Sampling};
    use http::HeaderValue;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn none_sampled() -> Traces {
        traces::open(Some(Sampling { sample: 0.0, slow: None })).0
    }

    fn headers(of: &[(HeaderName, &str)]) -> Fields {
        let mut fields = Fields::new();
        for (name, value) in of {
            fields.append(name, &HeaderValue::from_str(value).unwrap());
        }
        fields
    }

    #[test]
    fn a_trace_is_joined_and_every_attempt_is_a_span_of_its_own() {
        let ids = Ids::new();
        let mut seen = headers(&[(TRACEPARENT, PARENT), (TRACESTATE, "vendor=1")]);
        let mut trace = Trace::join(&mut seen, &ids, Some(&none_sampled()));
        assert_eq!(trace.context.parent, Some(0x00f0_67aa_0ba9_02b7));
        assert_eq!(trace.id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert!(trace.is_sampled());
        let mut spans = Vec::new();
        for number in 0..2 {
            trace.mark(&mut seen);
            let marked = seen.get(TRACEPARENT).unwrap().to_str().unwrap().to_owned();
            assert_eq!((&marked[..36], &marked[52..]), (&PARENT[..36], "-01"));
            assert_eq!(marked[36..52], format!("{:016x}", trace.context.attempt(number)));
            spans.push(marked[36..52].to_owned());
        }
        trace.of_copy().mark(&mut seen);
        let copied = seen.get(TRACEPARENT).unwrap().to_str().unwrap();
        assert_eq!(copied[36..52], format!("{:016x}", trace.context.span));
        assert!(spans[0] != spans[1] && spans[0] != PARENT[36..52], "{spans:?}");
        assert_eq!(seen.get(TRACESTATE).unwrap(), "vendor=1");
    }

    #[test]
    fn what_is_no_trace_context_begins_a_new_one_without_the_old_state() {
        let ids = Ids::new();
        let long = format!("{PARENT}-x");
        for wrong in [
            "",
            "00",
            &PARENT[..54],
            &long,
            &PARENT.replace("00-4", "ff-4"),
            &PARENT.to_uppercase(),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            let mut seen = headers(&[(TRACEPARENT, wrong), (TRACESTATE, "vendor=1")]);
            let trace = Trace::join(&mut seen, &ids, Some(&none_sampled()));
            assert!(!trace.is_sampled() && trace.id != 0, "{wrong}");
            assert!(!seen.contains(TRACESTATE), "{wrong}");
        }
        let mut twice = headers(&[(TRACEPARENT, PARENT), (TRACEPARENT, PARENT)]);
        assert!(!Trace::join(&mut twice, &ids, None).is_sampled());
        let mut later = headers(&[(TRACEPARENT, &long.replace("00-4", "01-4"))]);
        assert!(Trace::join(&mut later, &ids, None).is_sampled(), "a later version may say more");
    }

    #[test]
    fn where_nobody_exports_spans_a_trace_context_passes_as_it_came() {
        let ids = Ids::new();
        let known = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;
        for (parent, id) in [(Some(PARENT), known), (Some("no context"), 0), (None, 0)] {
            let parent = parent.map(|parent| (TRACEPARENT, parent));
            let came: Vec<_> = parent.into_iter().chain([(TRACESTATE, "vendor=1")]).collect();
            let mut seen = headers(&came);
            let mut trace = Trace::join(&mut seen, &ids, None);
            assert_eq!((trace.id, trace.is_sampled()), (id, id != 0), "{came:?}");
            trace.mark(&mut seen);
            trace.of_copy().mark(&mut seen);
            assert_eq!(seen, headers(&came));
        }
    }

    #[test]
    fn a_trace_that_begins_here_is_sampled_as_configured_and_one_that_is_joined_as_it_came() {
        let ids = Ids::new();
        let sampling = |sample| Some(Sampling { sample, slow: None });
        let (all, _control, _receiver) = traces::open(sampling(1.0));
        let begun = Trace::join(&mut Fields::new(), &ids, Some(&all));
        assert!(begun.is_sampled() && begun.context.parent.is_none());
        let unsampled = PARENT.replace("-01", "-00");
        let joined = Trace::join(&mut headers(&[(TRACEPARENT, &unsampled)]), &ids, Some(&all));
        assert!(!joined.is_sampled(), "who began it decides");
        let (none, _control, _receiver) = traces::open(sampling(0.0));
        assert!(!Trace::join(&mut Fields::new(), &ids, Some(&none)).is_sampled());
        assert!(
            Trace::join(&mut headers(&[(TRACEPARENT, PARENT)]), &ids, Some(&none)).is_sampled()
        );
    }

    #[test]
    fn a_sane_id_is_kept_and_any_other_is_replaced() {
        let ids = Ids::new();
        let longest = "x".repeat(128);
        for sane in ["a", "req-1/2:3", &longest] {
            let mut seen = headers(&[(REQUEST_ID, sane)]);
            assert_eq!(RequestId::of(&mut seen, &ids).as_bytes(), sane.as_bytes());
        }
        let too_long = "x".repeat(129);
        let spaced = headers(&[(REQUEST_ID, "a b")]);
        let twice = headers(&[(REQUEST_ID, "a"), (REQUEST_ID, "b")]);
        let long = headers(&[(REQUEST_ID, &too_long)]);
        for mut seen in [Fields::new(), headers(&[(REQUEST_ID, "")]), spaced, twice, long] {
            let id = RequestId::of(&mut seen, &ids);
            assert_eq!(id.as_bytes().len(), 32);
            assert_eq!(seen.get_all(REQUEST_ID).collect::<Vec<_>>(), [id.value()]);
        }
    }
}
