//! Who watches a request: logs, traces. Nobody as a rule, which costs one branch for each event.

use evenkeel_core::request::{BodyEnd, Kind, Outcome, Refusal};
use evenkeel_core::{Instant, ReplicaId};
use tracing::Level;

/// What happens to a request, in the order in which it happens.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Event {
    /// A copy leaves for a replica of a data centre.
    Sent { datacenter: usize, replica: ReplicaId, kind: Kind },
    /// The copy with this number has an outcome: its head came, or none will.
    Learnt { copy: usize, outcome: Outcome },
    /// The copy with this number lost, or is late, and nobody waits for it any more.
    Left { copy: usize },
    /// What one data centre did not serve goes to this one.
    BegunAgain { datacenter: usize },
    /// The client is given the answer of this copy.
    Answered { copy: usize },
    /// There is no answer.
    Refused(Refusal),
    /// The last byte of the answer has passed, or none will any more.
    Ended(BodyEnd),
}

/// Watches one request. It is dropped when nothing more happens: without [`Event::Ended`] or
/// [`Event::Refused`] when the client left before an answer came, or was at fault.
pub(crate) trait Observer {
    /// This happens now.
    fn event(&mut self, at: Instant, event: Event);
}

/// What is written down of one request.
#[derive(Default)]
pub struct Record(Option<Box<dyn Observer>>);

impl Record {
    /// Of a request to this upstream: a trace, where the log wants one.
    pub fn of(upstream: &str) -> Self {
        if !tracing::enabled!(Level::TRACE) {
            return Self::default();
        }
        Self::to(Trace { span: tracing::trace_span!("request", upstream) })
    }

    /// For this observer.
    pub(crate) fn to(observer: impl Observer + 'static) -> Self {
        Self(Some(Box::new(observer)))
    }

    #[inline]
    pub(super) fn event(&mut self, at: impl FnOnce() -> Instant, event: Event) {
        if let Some(observer) = &mut self.0 {
            observer.event(at(), event);
        }
    }
}

/// Writes a request into the log.
struct Trace {
    span: tracing::Span,
}

impl Observer for Trace {
    fn event(&mut self, at: Instant, event: Event) {
        let at_ms = at.millis_since(Instant::ZERO);
        self.span.in_scope(|| tracing::trace!(at_ms, ?event));
    }
}
