//! The life of a request in the proxy: the loop around the dispatcher.
//!
//! Everything that is decided is decided by `step`; this file sends, waits and hands over.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use evenkeel_core::request::{Failure, Outcome, Refusal, Replay};
use http::header::{HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Method, Request, Response, StatusCode, request};

use crate::config::Edge;
use crate::http::brownout;
use crate::http::engine::head;
use crate::http::engine::{Body, BodyError, Client, SendError, SendErrorKind, Upload};
use crate::http::redirected::{self, Journey};
use crate::http::route::{BrownoutSeen, Entrance, HOME, Next, OpenAttempt, OpenCall, Route};
use crate::timer::Wait;

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

/// One attempt on its way. Dropping it closes its connection, which cancels it.
struct Flight {
    attempt: OpenAttempt,
    answer: Pin<Box<dyn Future<Output = Answer>>>,
    times_out_at: Instant,
}

/// What became of a copy, by its number.
enum Copy {
    Flying(Flight),
    /// Its answer is kept until the dispatcher says whose answer counts.
    Answered(Response<Body>),
    /// It failed, lost, or was handed over.
    Over,
}

impl Copy {
    fn take_flight(&mut self) -> Option<Flight> {
        match std::mem::replace(self, Self::Over) {
            Self::Flying(flight) => Some(flight),
            other => {
                *self = other;
                None
            }
        }
    }

    const fn flight(&self) -> Option<&Flight> {
        match self {
            Self::Flying(flight) => Some(flight),
            Self::Answered(_) | Self::Over => None,
        }
    }
}

/// What ended a wait.
enum Woken {
    Answered(usize, Answer),
    /// A hedge is due, or the call's turn has come.
    Step,
    /// A time limit passed: of an attempt, or of the whole request.
    TimedOut,
}

/// One request, from open to answer.
struct Exchange {
    // Declared first, dropped first: the call is closed before its attempts are given up.
    call: OpenCall,
    copies: Vec<Copy>,
    message: Message,
    /// Of a body that streams from the client.
    upload: Option<Upload>,
    route: Rc<Route>,
    expires_at: Instant,
    /// The next time limit: of an attempt, or of the whole request.
    limit: Wait,
    client_error: Option<SendError>,
    /// Of a request of our own users, where these are split between data centres.
    journey: Option<Journey>,
}

impl Exchange {
    fn open(route: Rc<Route>, mut message: Message, is_guest: bool) -> Self {
        let is_write = message.is_write();
        if !is_guest {
            route.note_operation(is_write);
        }
        let depart = |headers| route.depart(headers, is_guest, is_write);
        let journey = message.headers().and_then(depart);
        let group = journey.as_ref().map_or(HOME, Journey::group);
        let call = route.open(group, message.replay());
        let expires_at = route.after(route.config.timeouts.total);
        let limit = route.timer.at(expires_at);
        let copies = Vec::with_capacity(1); // most requests need no second
        let upload = message.upload();
        let client_error = None;
        Self { call, copies, message, upload, route, expires_at, limit, client_error, journey }
    }

    /// The loop around the dispatcher: the same arms as in the simulator.
    async fn run(&mut self) -> Response<Body> {
        loop {
            match self.call.step() {
                Next::Send(attempt) => self.send(attempt),
                Next::Cancel(copy) => self.cancel(copy),
                Next::Wait(until) => {
                    let hedge =
                        until.map(|due| self.route.timer.at(self.route.clock.std_instant(due.at)));
                    let woken = self.wait(hedge).await;
                    self.route.tick();
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
                Next::Answered(copy) => return self.hand_over(copy),
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
        let status = match &self.copies[copy] {
            Copy::Answered(response) if self.journey.is_some() => response.status(),
            _ => return false,
        };
        failure(status) == Some(Failure::Unavailable)
    }

    /// Begins again at home what another data centre did not serve, or elsewhere what home could
    /// not, if it may be sent again.
    fn begin_again(&mut self, refusal: Option<Refusal>) -> bool {
        let Some(journey) = &mut self.journey else { return false };
        let replay = self.message.replay();
        let is_unsent = refusal.is_some_and(|refusal| match refusal {
            Refusal::NoReplica | Refusal::BacklogFull => true,
            Refusal::Failed(failure) => failure == Failure::Unsent,
        });
        if !is_unsent && replay != Replay::Always {
            return false;
        }
        let Some(headers) = self.message.headers() else { return false };
        let has_begun = if journey.is_lost(refusal) {
            journey.rescue(refusal, headers)
        } else {
            journey.turn_back(refusal, headers)
        };
        if !has_begun {
            return false;
        }
        let group = journey.group();
        self.call = self.route.open(group, replay); // which closes the one before
        self.copies.clear();
        true
    }

    fn send(&mut self, attempt: OpenAttempt) {
        let group = attempt.group();
        let replica = self.route.replica(&attempt);
        let times_out_at = self.route.after(self.route.config.timeouts.attempt);
        let request = self.message.next();
        let answer = async move {
            match request {
                Some(request) => replica.send(request).await,
                None => unreachable!("the dispatcher resends only what may be resent"),
            }
        };
        let answer = Box::pin(answer);
        self.copies.push(Copy::Flying(Flight { attempt, answer, times_out_at }));
        self.set_limit();
        self.route.ask_probes(group);
    }

    /// Arms the one timer of this request for its next time limit.
    fn set_limit(&mut self) {
        let attempts = self.flights().map(|flight| flight.times_out_at);
        let next = attempts.min().map_or(self.expires_at, |at| at.min(self.expires_at));
        self.limit = self.route.timer.at(next);
    }

    fn flights(&self) -> impl Iterator<Item = &Flight> {
        self.copies.iter().filter_map(Copy::flight)
    }

    async fn wait(&mut self, mut hedge: Option<Wait>) -> Woken {
        let is_held = self.flights().next().is_none();
        let mut is_new = true;
        poll_fn(|context| {
            if let Some(answered) = self.poll_flights(context) {
                return Poll::Ready(answered);
            }
            if let Some(hedge) = &mut hedge
                && Pin::new(hedge).poll(context).is_ready()
            {
                return Poll::Ready(Woken::Step);
            }
            if is_held {
                if !is_new && self.call.was_resumed() {
                    return Poll::Ready(Woken::Step);
                }
                is_new = false;
                self.call.hold(context.waker());
            }
            Pin::new(&mut self.limit).poll(context).map(|()| Woken::TimedOut)
        })
        .await
    }

    fn poll_flights(&mut self, context: &mut Context<'_>) -> Option<Woken> {
        for (number, copy) in self.copies.iter_mut().enumerate() {
            if let Copy::Flying(flight) = copy
                && let Poll::Ready(answer) = flight.answer.as_mut().poll(context)
            {
                return Some(Woken::Answered(number, answer));
            }
        }
        None
    }

    /// Learns from an answer and keeps it for the client.
    fn take(&mut self, copy: usize, answer: Answer) {
        let Some(Flight { mut attempt, .. }) = self.copies[copy].take_flight() else { return };
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
                self.copies[copy] = Copy::Answered(response.map(|body| body.on_end(ended)));
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

    fn cancel(&mut self, copy: usize) {
        let Some(Flight { mut attempt, .. }) = self.copies[copy].take_flight() else { return };
        self.call.settle(attempt.learn(&Outcome::Cancelled));
    }

    /// A limit has passed. Answers when there is nothing more to wait for.
    fn time_out(&mut self) -> Option<Response<Body>> {
        if self.upload.as_ref().is_some_and(Upload::waits_for_client) {
            (0..self.copies.len()).for_each(|copy| self.cancel(copy)); // not the replica's doing
            self.journey.take().into_iter().for_each(Journey::forget);
            return Some(body_too_slow());
        }
        if Instant::now() >= self.expires_at {
            return Some(self.expire());
        }
        self.time_out_attempts();
        None
    }

    fn time_out_attempts(&mut self) {
        let now = Instant::now();
        for copy in &mut self.copies {
            let is_late = copy.flight().is_some_and(|flight| flight.times_out_at <= now);
            if let Some(mut flight) = is_late.then(|| copy.take_flight()).flatten() {
                let timed_out = Outcome::Failed(Failure::TimedOut);
                self.call.settle(flight.attempt.learn(&timed_out));
            }
        }
        self.set_limit();
    }

    /// The whole request took too long: what is on its way has failed, too.
    fn expire(&mut self) -> Response<Body> {
        for Flight { mut attempt, .. } in self.copies.iter_mut().filter_map(Copy::take_flight) {
            self.call.settle(attempt.learn(&Outcome::Failed(Failure::TimedOut)));
        }
        self.arrive(refused(Refusal::Failed(Failure::TimedOut)))
    }

    fn hand_over(&mut self, copy: usize) -> Response<Body> {
        match std::mem::replace(&mut self.copies[copy], Copy::Over) {
            Copy::Answered(response) => self.arrive(response),
            Copy::Flying(_) | Copy::Over => unreachable!("the dispatcher knows who answered"),
        }
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
