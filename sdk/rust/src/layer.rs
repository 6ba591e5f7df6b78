//! The life of a request: it arrives, is served, and ends once, whichever way.
//!
//! | what happens | end |
//! |---|---|
//! | the head is ready | answered, with what the application says it served |
//! | its status is 5xx, or the like in gRPC | failed |
//! | the service returns an error | failed |
//! | the future is dropped: the client went away, a time limit above passed, a panic | given up |

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use evenkeel_core::dimmer::wire::Decision;
use evenkeel_core::dimmer::{Choice, Content, End, Ticket};
use evenkeel_core::units::Dimmer;
use http::request::Parts;
use http::{HeaderValue, Request, Response};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::controller::{BrownoutHandle, Controller};
use crate::decision::{Brownout, Decided};
use crate::headers::{self, OPTIONAL, Said};
use crate::settings::{Checked, Inbound, SessionOf, Settings, SettingsError};

/// Leaves out optional content while the service has more work than it can do in time.
///
/// All services made of one layer, and of its clones, share one controller. Put it around what has
/// optional content; health checks and static files below it are fast and few people's business,
/// and make the percentile look better than it is.
#[derive(Clone)]
pub struct BrownoutLayer {
    desk: Arc<Desk>,
}

impl BrownoutLayer {
    /// A layer with these settings, which begins with full content.
    ///
    /// # Errors
    /// When a setting is out of its range or a name cannot be carried in a header.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        let Checked { config, parts, inbound, session } = settings.check()?;
        let controller = Arc::new(Controller::new(config));
        Ok(Self { desk: Arc::new(Desk { controller, parts: parts.into(), inbound, session }) })
    }

    /// For a metrics page, and to hold the dimmer by hand.
    #[must_use]
    pub fn handle(&self) -> BrownoutHandle {
        BrownoutHandle::new(Arc::clone(&self.desk.controller))
    }
}

impl<S> Layer<S> for BrownoutLayer {
    type Service = BrownoutService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        BrownoutService { inner, desk: Arc::clone(&self.desk) }
    }
}

impl fmt::Debug for BrownoutLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BrownoutLayer").field(&self.handle().state()).finish()
    }
}

/// A service below a [`BrownoutLayer`].
#[derive(Clone)]
pub struct BrownoutService<S> {
    inner: S,
    desk: Arc<Desk>,
}

impl<S, B, R> Service<Request<B>> for BrownoutService<S>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        let visit = self.desk.admit(&mut parts);
        let response = self.inner.call(Request::from_parts(parts, body));
        ResponseFuture { response, visit: Some(visit) }
    }
}

impl<S: fmt::Debug> fmt::Debug for BrownoutService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrownoutService").field("inner", &self.inner).finish_non_exhaustive()
    }
}

pin_project! {
    /// The response of a [`BrownoutService`].
    pub struct ResponseFuture<F> {
        #[pin]
        response: F,
        visit: Option<Visit>,
    }
}

impl<F, R, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<R>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut outcome = ready!(this.response.poll(context));
        if let Some(visit) = this.visit.take() {
            match &mut outcome {
                Ok(response) => visit.answer(response),
                Err(_) => visit.fail(),
            }
        }
        Poll::Ready(outcome)
    }
}

impl<F: fmt::Debug> fmt::Debug for ResponseFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").field("response", &self.response).finish_non_exhaustive()
    }
}

/// Where requests come in: what all of one layer share.
struct Desk {
    controller: Arc<Controller>,
    parts: Arc<[String]>,
    inbound: Inbound,
    session: Option<SessionOf>,
}

impl Desk {
    /// Decides what the request is served, and tells it.
    fn admit(&self, request: &mut Parts) -> Visit {
        let inbound = match self.inbound {
            Inbound::Obey => headers::said(&request.headers, &OPTIONAL),
            Inbound::Decide => {
                request.headers.remove(OPTIONAL);
                Said::Nothing
            }
        };
        let ticket = self.controller.arrive(self.choice(&inbound, request));
        let decided = Arc::new(Decided::new(Arc::clone(&self.parts), ticket.content(), inbound));
        request.extensions.insert(Brownout::decided(Arc::clone(&decided)));
        Visit { controller: Arc::clone(&self.controller), decided, ticket: Some(ticket) }
    }

    fn choice(&self, inbound: &Said, request: &Parts) -> Choice {
        match inbound {
            Said::Decision(value) => Choice::Decided(self.content_of(value)),
            Said::Unclear => Choice::Decided(self.full()),
            Said::Nothing => {
                let session = self.session.as_ref().and_then(|session| session(request));
                session.map_or(Choice::Coin, |session| Choice::Session(session.place()))
            }
        }
    }

    fn content_of(&self, value: &HeaderValue) -> Content {
        let decision = Decision::parse(value.as_bytes());
        decision.map_or(self.full(), |decision| decision.content(&self.parts))
    }

    fn full(&self) -> Content {
        Content::new(u8::MAX, u8::try_from(self.parts.len()).unwrap_or(u8::MAX))
    }
}

/// One request at the service. Dropped before its end it was given up: nobody else learns of it.
struct Visit {
    controller: Arc<Controller>,
    decided: Arc<Decided>,
    ticket: Option<Ticket>,
}

impl Visit {
    fn answer<R>(mut self, response: &mut Response<R>) {
        let status = response.status();
        let headers = response.headers_mut();
        let end = if headers::is_failure(status, headers) {
            End::Failed
        } else {
            End::Answered(self.decided.served(headers))
        };
        if let Some(dimmer) = self.end(end) {
            headers::write_dimmer(headers, dimmer);
        }
        self.decided.mark(status, headers);
    }

    fn fail(mut self) {
        self.end(End::Failed);
    }

    fn end(&mut self, end: End) -> Option<Dimmer> {
        self.ticket.take().map(|ticket| self.controller.end(ticket, end))
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.end(End::GivenUp);
    }
}
