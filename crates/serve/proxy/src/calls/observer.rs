//! Who watches a request: the recorder of its worker, and where the log wants it a trace.

use evenkeel_core::Instant;
use evenkeel_core::request::decision::Decisions;
use tracing::Level;

use super::Calls;
pub(crate) use crate::requests::event::Event;
use crate::requests::recorder::Draft;

/// Watches one request. It is dropped when nothing more happens: without [`Event::Ended`] or
/// [`Event::Refused`] when the client left before an answer came, or was at fault.
pub(crate) trait Observer {
    /// This happens now.
    fn event(&mut self, at: Instant, event: Event);
}

/// What is written down of one request.
#[derive(Default)]
pub struct Record {
    draft: Option<Draft>,
    observer: Option<Box<dyn Observer>>,
}

impl Record {
    /// Of a request that comes now to this upstream, for which the clock is read: what its recorder
    /// keeps where there is one, and a trace where the log wants one.
    pub fn of(calls: &Calls, upstream: &str) -> Self {
        let now = calls.tick();
        let draft = calls.recorder().map(|recorder| recorder.begin(now));
        let observer = tracing::enabled!(Level::TRACE).then(|| {
            let span = tracing::trace_span!("request", upstream);
            Box::new(Trace { span }) as Box<dyn Observer>
        });
        Self { draft, observer }
    }

    /// For this observer.
    #[cfg(test)]
    pub(crate) fn to(observer: impl Observer + 'static) -> Self {
        Self { draft: None, observer: Some(Box::new(observer)) }
    }

    /// What its recorder keeps, where there is one.
    pub fn draft(&mut self) -> Option<&mut Draft> {
        self.draft.as_mut()
    }

    /// Inlined where an event is made: its recorder then writes down what it says, and the event
    /// itself, which is large, is made only for an observer.
    #[inline(always)]
    pub(super) fn event(&mut self, at: impl FnOnce() -> Instant, event: Event) {
        if self.draft.is_none() && self.observer.is_none() {
            return;
        }
        let at = at();
        if let Some(draft) = &mut self.draft {
            draft.event(at, event);
        }
        if let Some(observer) = &mut self.observer {
            observe(&mut **observer, at, &event);
        }
    }

    /// What a step decided in a data centre.
    #[inline]
    pub(super) fn decided(&mut self, datacenter: usize, decisions: &Decisions) {
        if let Some(draft) = &mut self.draft {
            draft.decided(datacenter, decisions);
        }
    }
}

#[cold]
#[inline(never)]
fn observe(observer: &mut dyn Observer, at: Instant, event: &Event) {
    observer.event(at, *event);
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
