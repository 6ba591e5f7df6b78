//! The life of a request in the proxy: the loop around the dispatcher.
//!
//! Everything that is decided is decided by `step`; this file sends, waits and hands over.

use std::rc::Rc;

use evenkeel_core::request::{Failure, Outcome, Refusal, Replay};
use http::header::{HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Method, Request, Response, StatusCode, request};

use crate::board::BrownoutSeen;
use crate::calls::flights::{Flights, Woken};
use crate::calls::{HOME, Next, OpenAttempt, OpenCall, may_begin_again};
use crate::config::Edge;
use crate::http::brownout;
use crate::http::engine::head;
use crate::http::engine::{Body, BodyError, Client, SendError, SendErrorKind, Upload};
use crate::http::redirected;
use crate::http::route::{Entrance, Route};
use crate::split::Journey;

/// Answers one request of a client.
pub async fn serve(
    route: Rc<Route>,
    entrance: Rc<Entrance>,
    mut request: Request<Body>,
    client: Rc<Client>,
) -> Response<Body> {
    if let Err(refusal) = head::prepare_request(&mut request, &client, &entrance.forwarding) {
        return refusal.into_response();
    }
    if entrance.brownout == Edge::Strip {
        brownout::strip_decision(request.headers_mut());
    }
    let is_guest = redirected::is_believed(request.headers_mut(), entrance.redirected);
    if wants_keeping(&request, &route) {
        let keeping = tokio::time::timeout(route.config.timeouts.total, keep_body(request, &route));
        request = match keeping.await {
            Ok(Ok(request)) => request,
            Ok(Err(error)) => return body_refused(&error),
            Err(_) => return body_too_slow(),
        };
    }
    let mut exchange = Exchange::open(route, Message::of(request), is_guest);
    exchange.run().await
}

/// Whether the body still streams but is short enough to be kept for another try.
fn wants_keeping(request: &Request<Body>, route: &Route) -> bool {
    let body = request.body();
    let announced = || http_body::Body::size_hint(body).upper();
    !body.is_complete()
        && is_idempotent(request.method())
        && announced().is_some_and(|bytes| bytes <= route.config.replay_bytes_max)
}

async fn keep_body(request: Request<Body>, route: &Route) -> Result<Request<Body>, BodyError> {
    let (parts, body) = request.into_parts();
    let bytes = body.collect(route.config.replay_bytes_max).await?;
    Ok(Request::from_parts(parts, Body::full(bytes)))
}

/// What is sent, as often as it may be sent.
enum Message {
    /// The body streams from the client, or the method changes things: once.
    Once(Option<Request<Body>>),
    /// Idempotent, with the body at hand.
    Again(request::Parts, Body),
}

impl Message {
    fn of(request: Request<Body>) -> Self {
        match request.body().try_clone() {
            Some(body) if is_idempotent(request.method()) => {
                Self::Again(request.into_parts().0, body)
            }
            _ => Self::Once(Some(request)),
        }
    }

    const fn replay(&self) -> Replay {
        match self {
            Self::Once(_) => Replay::IfUnsent,
            Self::Again(..) => Replay::Always,
        }
    }

    /// Whether the method may change something: RFC 9110, 9.2.1.
    fn is_write(&self) -> bool {
        match self {
            Self::Once(request) => request.as_ref().is_some_and(|it| !it.method().is_safe()),
            Self::Again(parts, _) => !parts.method.is_safe(),
        }
    }

    fn upload(&self) -> Option<Upload> {
        match self {
            Self::Once(request) => request.as_ref()?.body().upload(),
            Self::Again(..) => None,
        }
    }

    fn next(&mut self) -> Option<Request<Body>> {
        match self {
            Self::Once(request) => request.take(),
            Self::Again(parts, body) => {
                body.try_clone().map(|body| Request::from_parts(parts.clone(), body))
            }
        }
    }

    /// The headers of what is still at hand.
    fn headers(&mut self) -> Option<&mut HeaderMap> {
        match self {
            Self::Once(request) => request.as_mut().map(Request::headers_mut),
            Self::Again(parts, _) => Some(&mut parts.headers),
        }
    }

    /// Takes an unsent request back.
    fn put_back(&mut self, unsent: Option<Request<Body>>) {
        if let (Self::Once(place), Some(request)) = (self, unsent) {
            *place = Some(request);
        }
    }
}

/// RFC 9110, 9.2.2.
fn is_idempotent(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::PUT | Method::DELETE
    )
}

type Answer = Result<Response<Body>, SendError>;

/// One request, from open to answer.
struct Exchange {
    // Declared first, dropped first: the call is closed before its attempts are given up.
    call: OpenCall,
    flights: Flights<Answer, Response<Body>>,
    message: Message,
    /// Of a body that streams from the client.
    upload: Option<Upload>,
    route: Rc<Route>,
    client_error: Option<SendError>,
    /// Of a request of our own users, where these are split between data centres.
    journey: Option<Journey>,
}

impl Exchange {
    fn open(route: Rc<Route>, mut message: Message, is_guest: bool) -> Self {
        let is_write = message.is_write();
        if !is_guest {
            route.calls.note_operation(is_write);
        }
        let depart = |headers| route.depart(headers, is_guest, is_write);
        let journey = message.headers().and_then(depart);
        let datacenter = journey.as_ref().map_or(HOME, Journey::datacenter);
        let call = route.open(datacenter, message.replay());
        let flights = Flights::new(&route.calls, route.after(route.config.timeouts.total));
        let upload = message.upload();
        Self { call, flights, message, upload, route, client_error: None, journey }
    }

    /// The loop around the dispatcher: the same arms as in the simulator.
    async fn run(&mut self) -> Response<Body> {
        loop {
            match self.call.step() {
                Next::Send(attempt) => self.send(attempt),
                Next::Cancel(copy) => self.flights.cancel(&mut self.call, copy),
                Next::Wait(until) => {
                    let hedge = until.map(|due| self.route.calls.wait_for(due));
                    let woken = self.flights.wait(&self.call, hedge).await;
                    self.route.calls.tick();
                    match woken {
                        Woken::Answered(copy, answer) => self.take(copy, answer),
                        Woken::Step => {}
                        Woken::TimedOut => {
                            if let Some(response) = self.time_out() {
                                return response;
                            }
                        }
                    }
                }
                Next::Answered(copy) if self.is_unavailable(copy) && self.begin_again(None) => {}
                Next::Answered(copy) => {
                    let response = self.flights.hand_over(copy);
                    return self.arrive(response);
                }
                Next::Refused(refusal) if self.begin_again(Some(refusal)) => {}
                Next::Refused(refusal) => return self.refuse(refusal),
            }
            if let Some(error) = self.client_error.take() {
                self.journey.take().into_iter().for_each(Journey::forget);
                return client_failed(&error);
            }
        }
    }

    /// Whether an answer says no more than that it cannot serve now.
    fn is_unavailable(&self, copy: usize) -> bool {
        let kept = self.flights.kept(copy).filter(|_| self.journey.is_some());
        kept.and_then(|response| failure(response.status())) == Some(Failure::Unavailable)
    }

    /// Begins again at home what another data centre did not serve, or elsewhere what home could
    /// not, if it may be sent again.
    fn begin_again(&mut self, refusal: Option<Refusal>) -> bool {
        let Some(journey) = &mut self.journey else { return false };
        let replay = self.message.replay();
        if !may_begin_again(refusal, replay) {
            return false;
        }
        let Some(headers) = self.message.headers() else { return false };
        if !journey.begin_again(refusal) {
            return false;
        }
        self.route.mark(journey, headers);
        let datacenter = journey.datacenter();
        self.call = self.route.open(datacenter, replay); // which closes the one before
        self.flights.clear();
        true
    }

    fn send(&mut self, attempt: OpenAttempt) {
        let datacenter = attempt.datacenter();
        let replica = self.route.replica(&attempt);
        let times_out_at = self.route.after(self.route.config.timeouts.attempt);
        let request = self.message.next();
        let answer = async move {
            match request {
                Some(request) => replica.send(request).await,
                None => unreachable!("the dispatcher resends only what may be resent"),
            }
        };
        self.flights.launch(&self.route.calls, attempt, answer, times_out_at);
        self.route.ask_probes(datacenter);
    }

    /// Learns from an answer and keeps it for the client.
    fn take(&mut self, copy: usize, answer: Answer) {
        let Some(mut attempt) = self.flights.land(copy) else { return };
        match answer {
            Ok(mut response) => {
                self.hear_brownout(&attempt, response.headers_mut());
                let feedback = self.route.feedback_of(response.headers_mut());
                let outcome =
                    failure(response.status()).map_or(Outcome::Replied(feedback), Outcome::Failed);
                self.call.settle(attempt.learn(&outcome));
                let response = match head::prepare_response(&mut response) {
                    Ok(()) => response,
                    Err(refusal) => refusal.into_response(),
                };
                // In flight until the last byte has passed or nobody wants it any more.
                let ended = |_| drop(attempt);
                self.flights.keep(copy, response.map(|body| body.on_end(ended)));
            }
            Err(error) => self.fail(attempt, error),
        }
    }

    /// Takes the replica's dimmer off its answer, and notes what the answer says was served.
    fn hear_brownout(&self, attempt: &OpenAttempt, headers: &mut HeaderMap) {
        if !brownout::is_mentioned(headers) {
            return;
        }
        let dimmer = brownout::take_dimmer(headers);
        let said = brownout::served(headers, &[]);
        if let Ok(Some(dimmer)) = dimmer {
            attempt.hear_dimmer(dimmer);
        }
        if dimmer.is_err() || said.is_some() {
            self.route.note_seen(&BrownoutSeen {
                full: u64::from(said.is_some_and(|said| said.is_full)),
                reduced: u64::from(said.is_some_and(|said| !said.is_full)),
                dimmers_invalid: u64::from(dimmer.is_err()),
            });
        }
    }

    fn fail(&mut self, mut attempt: OpenAttempt, error: SendError) {
        tracing::debug!(upstream = %self.route.config.name, %error, "attempt failed");
        if error.kind() == SendErrorKind::RequestBody {
            self.call.settle(attempt.learn(&Outcome::Cancelled)); // not the replica's doing
            self.client_error = Some(error);
            return;
        }
        self.call.settle(attempt.learn(&blame(&error)));
        self.message.put_back(error.into_request());
    }

    /// A limit has passed. Answers when there is nothing more to wait for.
    fn time_out(&mut self) -> Option<Response<Body>> {
        if self.upload.as_ref().is_some_and(Upload::waits_for_client) {
            self.flights.cancel_all(&mut self.call); // not the replica's doing
            self.journey.take().into_iter().for_each(Journey::forget);
            return Some(body_too_slow());
        }
        if self.flights.is_expired() {
            self.flights.expire(&mut self.call);
            return Some(self.arrive(refused(Refusal::Failed(Failure::TimedOut))));
        }
        self.flights.time_out(&self.route.calls, &mut self.call);
        None
    }

    fn refuse(&mut self, refusal: Refusal) -> Response<Body> {
        tracing::debug!(upstream = %self.route.config.name, ?refusal, "request refused");
        self.arrive(refused(refusal))
    }

    /// Ends the journey, if there was one.
    fn arrive(&mut self, response: Response<Body>) -> Response<Body> {
        if let Some(journey) = self.journey.take() {
            journey.end(failure(response.status()).is_some());
        }
        response
    }
}

/// What a failed attempt says of its replica.
fn blame(error: &SendError) -> Outcome {
    if !error.was_sent() {
        return Outcome::Failed(Failure::Unsent);
    }
    if error.kind() == SendErrorKind::Reset && error.was_reused() {
        // The end of a kept connection's idle time crossed the request: nobody's fault. It is
        // tried again like any broken attempt.
        return Outcome::Cancelled;
    }
    Outcome::Failed(Failure::Broken)
}

/// Server errors speak against the replica, except "not implemented", which speaks of the request.
fn failure(status: StatusCode) -> Option<Failure> {
    match status.as_u16() {
        502..=504 => Some(Failure::Unavailable),
        500 | 505..=599 => Some(Failure::ErrorReply),
        _ => None,
    }
}

/// What the client is told; which replica failed how is for the log and the metrics.
fn refused(refusal: Refusal) -> Response<Body> {
    let (status, words) = match refusal {
        Refusal::NoReplica => (StatusCode::SERVICE_UNAVAILABLE, "no replica may be used"),
        Refusal::BacklogFull => (StatusCode::SERVICE_UNAVAILABLE, "too many requests are waiting"),
        Refusal::Failed(Failure::Unsent) => {
            (StatusCode::BAD_GATEWAY, "no replica could be reached")
        }
        Refusal::Failed(Failure::TimedOut) => {
            (StatusCode::GATEWAY_TIMEOUT, "no replica answered in time")
        }
        Refusal::Failed(Failure::Broken | Failure::ErrorReply | Failure::Unavailable) => {
            (StatusCode::BAD_GATEWAY, "the replica broke off before it answered")
        }
    };
    let mut response = head::Refusal::new(status, words).into_response();
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

fn client_failed(error: &SendError) -> Response<Body> {
    head::Refusal::new(error.status(), error.to_string()).into_response()
}

fn body_too_slow() -> Response<Body> {
    let words = "the request body did not arrive in time";
    head::Refusal::new(StatusCode::REQUEST_TIMEOUT, words).into_response()
}

fn body_refused(error: &BodyError) -> Response<Body> {
    match error {
        BodyError::TooLarge { bytes_max } => {
            head::Refusal::body_too_large(*bytes_max).into_response()
        }
        error => head::Refusal::new(StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    }
}
