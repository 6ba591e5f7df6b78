//! What one request may have, and what it asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use evenkeel_core::dimmer::wire::{self, Decision};
use evenkeel_core::dimmer::{Content, PARTS_MAX};
use http::header::{HeaderName, HeaderValue};
use http::{Extensions, HeaderMap, StatusCode};

use crate::headers::{self, OPTIONAL, SERVED, Said};

/// What one request may have. Clones are of the same request.
///
/// It is in the extensions of each request below a [`BrownoutLayer`](crate::BrownoutLayer), and an
/// axum extractor that cannot fail. Where no layer is, everything is served.
#[derive(Clone, Debug, Default)]
pub struct Brownout {
    decided: Option<Arc<Decided>>,
}

impl Brownout {
    /// What the request with these extensions may have: of `http`, or of what was made of them
    /// (tonic's are the same).
    #[must_use]
    pub fn of(extensions: &Extensions) -> Self {
        extensions.get().cloned().unwrap_or_default()
    }

    /// Whether to compute this optional part. Ask once for each part that is worth leaving out, and
    /// before the head of the response leaves: what was asked for and refused by then makes the
    /// response a lean one, which no cache keeps. In a body that streams it is too late to ask.
    #[must_use]
    pub fn optional(&self, part: &str) -> bool {
        self.decided.as_ref().is_none_or(|decided| decided.ask(part))
    }

    /// The decision for the services this request calls, which obey it
    /// ([`Inbound::Obey`](crate::Inbound)). `None` where nobody has decided: no layer is there, or
    /// what the edge said cannot be read.
    ///
    /// ```
    /// # let brownout = evenkeel_brownout::Brownout::default();
    /// let mut request = http::Request::new(());
    /// request.headers_mut().extend(brownout.outgoing_header());
    /// ```
    #[must_use]
    pub fn outgoing_header(&self) -> Option<(HeaderName, HeaderValue)> {
        Some((OPTIONAL, self.decided.as_ref()?.outgoing()?))
    }

    pub(crate) const fn decided(decided: Arc<Decided>) -> Self {
        Self { decided: Some(decided) }
    }
}

/// The decision about one request, shared by its handler and its response.
#[derive(Debug)]
pub(crate) struct Decided {
    parts: Arc<[String]>,
    content: Content,
    /// What was decided at the edge, in its own words: it may allow any of the parts.
    edge: Said,
    /// A bit for each part by its number, and one for all names that are not among them.
    granted: AtomicU64,
    refused: AtomicU64,
}

impl Decided {
    pub(crate) fn new(parts: Arc<[String]>, content: Content, edge: Said) -> Self {
        let (granted, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { parts, content, edge, granted, refused }
    }

    fn ask(&self, part: &str) -> bool {
        let number = self.parts.iter().position(|name| name == part);
        let is_allowed = match &self.edge {
            Said::Decision(value) => read(value).is_none_or(|decision| decision.allows(part)),
            Said::Unclear => true,
            Said::Nothing => number.map_or(self.content.is_full(), |number| self.allows(number)),
        };
        let asked = if is_allowed { &self.granted } else { &self.refused };
        // The response is made after its handler asked, in the same task or joined to it.
        asked.fetch_or(1 << number.unwrap_or(usize::from(PARTS_MAX)), Ordering::Relaxed);
        is_allowed
    }

    fn allows(&self, number: usize) -> bool {
        u8::try_from(number).is_ok_and(|number| self.content.allows(number))
    }

    fn outgoing(&self) -> Option<HeaderValue> {
        match &self.edge {
            Said::Decision(value) => Some(value.clone()),
            Said::Unclear => None,
            Said::Nothing => Some(headers::value(wire::write(self.content, &self.parts))),
        }
    }

    /// What the application says it served.
    pub(crate) fn served(&self, headers: &HeaderMap) -> Option<Content> {
        match headers::said(headers, &SERVED) {
            Said::Decision(value) => read(&value).map(|decision| decision.content(&self.parts)),
            Said::Nothing | Said::Unclear => None,
        }
    }

    /// Says in the head of the response what it holds. The application's own word counts more than
    /// what it asked for: it may have had the part at hand.
    pub(crate) fn mark(&self, status: StatusCode, headers: &mut HeaderMap) {
        let is_full = match headers::said(headers, &SERVED) {
            Said::Decision(value) => read(&value).is_none_or(Decision::is_full),
            Said::Nothing | Said::Unclear => {
                let (granted, refused) = (load(&self.granted), load(&self.refused));
                if granted | refused != 0 && status != StatusCode::NOT_MODIFIED {
                    headers.insert(SERVED, self.held(granted, refused));
                }
                refused == 0
            }
        };
        if !is_full && status != StatusCode::NOT_MODIFIED {
            headers::forbid_storing(headers);
        }
    }

    /// The parts that were asked for and granted, if not all of them.
    fn held(&self, granted: u64, refused: u64) -> HeaderValue {
        if refused == 0 {
            return HeaderValue::from_static("?1");
        }
        let held = (0..).zip(self.parts.iter()).filter(|(number, _)| granted >> number & 1 == 1);
        headers::value(wire::write_parts(held.map(|(_, part)| part.as_str())))
    }
}

fn load(asked: &AtomicU64) -> u64 {
    asked.load(Ordering::Relaxed)
}

fn read(value: &HeaderValue) -> Option<Decision<'_>> {
    Decision::parse(value.as_bytes()).ok()
}
