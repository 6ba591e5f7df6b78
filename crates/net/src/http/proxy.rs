//! The life of a request in the proxy: the loop around the dispatcher.
//!
//! Everything that is decided is decided by `step`; this file sends, waits and hands over.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use arrayvec::ArrayVec;
use evenkeel_core::request::call::ATTEMPTS_MAX;
use evenkeel_core::request::{Failure, Outcome, Refusal, Replay};
use http::header::{HeaderValue, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode, request};
use tokio::time::Sleep;

use crate::http::engine::head::{self, Forwarding};
use crate::http::engine::{Body, BodyError, Client, SendError, SendErrorKind};
use crate::http::orca;
use crate::http::route::{Next, OpenAttempt, OpenCall, Route};
use crate::timer::Wait;

/// Answers one request of a client.
pub async fn serve(
    route: Rc<Route>,
    forwarding: Rc<Forwarding>,
    mut request: Request<Body>,
    client: Rc<Client>,
) -> Response<Body> {
    if let Err(refusal) = head::prepare_request(&mut request, &client, &forwarding) {
        return refusal.into_response();
    }
    let message = match Message::of(request, &route).await {
        Ok(message) => message,
        Err(error) => return body_refused(&error),
    };
    Exchange::open(route, message).run().await
}

/// What is sent, as often as it may be sent.
enum Message {
    /// The body streams from the client, or the method changes things: once.
    Once(Option<Request<Body>>),
    /// Idempotent, with the body at hand.
    Again(request::Parts, Body),
}

impl Message {
    async fn of(request: Request<Body>, route: &Route) -> Result<Self, BodyError> {
        if !is_idempotent(request.method()) {
            return Ok(Self::Once(Some(request)));
        }
        let (parts, body) = request.into_parts();
        if let Some(body) = body.try_clone() {
            return Ok(Self::Again(parts, body));
        }
        let bytes_max = route.config.replay_bytes_max;
        let announced = http_body::Body::size_hint(&body).upper();
        if announced.is_none_or(|bytes| bytes > bytes_max) {
            return Ok(Self::Once(Some(Request::from_parts(parts, body))));
        }
        let body = Body::full(body.collect(bytes_max).await?);
        Ok(Self::Again(parts, body))
    }

    const fn replay(&self) -> Replay {
        match self {
            Self::Once(_) => Replay::IfUnsent,
            Self::Again(..) => Replay::Always,
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
    flights: ArrayVec<Option<Flight>, ATTEMPTS_MAX>,
    answers: ArrayVec<Option<Response<Body>>, ATTEMPTS_MAX>,
    message: Message,
    route: Rc<Route>,
    expires_at: Instant,
    client_error: Option<SendError>,
}

impl Exchange {
    fn open(route: Rc<Route>, message: Message) -> Self {
        let call = route.open(message.replay());
        let expires_at = Instant::now() + route.config.timeouts.total;
        let (flights, answers) = (ArrayVec::new(), ArrayVec::new());
        Self { call, flights, answers, message, route, expires_at, client_error: None }
    }

    /// The loop around the dispatcher: the same arms as in the simulator.
    async fn run(mut self) -> Response<Body> {
        let mut limit = pin!(tokio::time::sleep_until(self.expires_at.into()));
        loop {
            match self.call.step() {
                Next::Send(attempt) => self.send(attempt, limit.as_mut()),
                Next::Cancel(copy) => self.cancel(copy),
                Next::Wait(until) => {
                    let hedge =
                        until.map(|due| self.route.timer.at(self.route.clock.std_instant(due.at)));
                    match self.wait(hedge, limit.as_mut()).await {
                        Woken::Answered(copy, answer) => self.take(copy, answer),
                        Woken::Step => {}
                        Woken::TimedOut if Instant::now() >= self.expires_at => {
                            return self.expire();
                        }
                        Woken::TimedOut => self.time_out_attempts(limit.as_mut()),
                    }
                }
                Next::Answered(copy) => {
                    let answer = self.answers[copy].take();
                    return answer.unwrap_or_else(|| refused(Refusal::Failed(Failure::Broken)));
                }
                Next::Refused(refusal) => return self.refuse(refusal),
            }
            if let Some(error) = self.client_error.take() {
                return client_failed(&error);
            }
        }
    }

    fn send(&mut self, attempt: OpenAttempt, limit: Pin<&mut Sleep>) {
        let replica = self.route.replica(&attempt);
        let times_out_at = Instant::now() + self.route.config.timeouts.attempt;
        let request = self.message.next();
        let answer = async move {
            match request {
                Some(request) => replica.send(request).await,
                None => unreachable!("the dispatcher resends only what may be resent"),
            }
        };
        self.flights.push(Some(Flight { attempt, answer: Box::pin(answer), times_out_at }));
        self.answers.push(None);
        self.set_limit(limit);
        self.route.ask_probes();
    }

    /// Arms the one timer of this request for the next time limit.
    fn set_limit(&self, mut limit: Pin<&mut Sleep>) {
        let attempts = self.flights.iter().flatten().map(|flight| flight.times_out_at);
        let next = attempts.min().map_or(self.expires_at, |at| at.min(self.expires_at));
        if limit.deadline() != next.into() {
            limit.as_mut().reset(next.into());
        }
    }

    async fn wait(&mut self, mut hedge: Option<Wait>, mut limit: Pin<&mut Sleep>) -> Woken {
        let mut is_held = self.flights.iter().all(Option::is_none);
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
                self.call.hold(context.waker());
                is_held = false;
            } else if self.flights.iter().all(Option::is_none) {
                if self.call.was_resumed() {
                    return Poll::Ready(Woken::Step);
                }
                self.call.hold(context.waker());
            }
            limit.as_mut().poll(context).map(|()| Woken::TimedOut)
        })
        .await
    }

    fn poll_flights(&mut self, context: &mut Context<'_>) -> Option<Woken> {
        for (copy, flight) in self.flights.iter_mut().enumerate() {
            if let Some(flight) = flight
                && let Poll::Ready(answer) = flight.answer.as_mut().poll(context)
            {
                return Some(Woken::Answered(copy, answer));
            }
        }
        None
    }

    /// Learns from an answer and keeps it for the client.
    fn take(&mut self, copy: usize, answer: Answer) {
        let Some(Flight { mut attempt, .. }) = self.flights[copy].take() else { return };
        match answer {
            Ok(mut response) => {
                let feedback = orca::take_feedback(response.headers_mut()).unwrap_or_default();
                let outcome =
                    failure(response.status()).map_or(Outcome::Replied(feedback), Outcome::Failed);
                self.call.settle(attempt.learn(&outcome));
                let response = match head::prepare_response(&mut response) {
                    Ok(()) => response,
                    Err(refusal) => refusal.into_response(),
                };
                // In flight until the last byte has passed or nobody wants it any more.
                let ended = |_| drop(attempt);
                self.answers[copy] = Some(response.map(|body| body.on_end(ended)));
            }
            Err(error) => self.fail(attempt, error),
        }
    }

    fn fail(&mut self, mut attempt: OpenAttempt, error: SendError) {
        tracing::debug!(upstream = %self.route.config.name, %error, "attempt failed");
        if error.kind() == SendErrorKind::RequestBody {
            self.call.settle(attempt.learn(&Outcome::Cancelled)); // not the replica's doing
            self.client_error = Some(error);
            return;
        }
        let failure = if error.was_sent() { Failure::Broken } else { Failure::Unsent };
        self.call.settle(attempt.learn(&Outcome::Failed(failure)));
        self.message.put_back(error.into_request());
    }

    fn cancel(&mut self, copy: usize) {
        let Some(Flight { mut attempt, .. }) = self.flights[copy].take() else { return };
        self.call.settle(attempt.learn(&Outcome::Cancelled));
    }

    fn time_out_attempts(&mut self, limit: Pin<&mut Sleep>) {
        let now = Instant::now();
        for place in &mut self.flights {
            if let Some(mut flight) = place.take_if(|flight| flight.times_out_at <= now) {
                let timed_out = Outcome::Failed(Failure::TimedOut);
                self.call.settle(flight.attempt.learn(&timed_out));
            }
        }
        self.set_limit(limit);
    }

    /// The whole request took too long: what is on its way has failed, too.
    fn expire(mut self) -> Response<Body> {
        for flight in self.flights.iter_mut().filter_map(Option::take) {
            let mut attempt = flight.attempt;
            self.call.settle(attempt.learn(&Outcome::Failed(Failure::TimedOut)));
        }
        refused(Refusal::Failed(Failure::TimedOut))
    }

    fn refuse(self, refusal: Refusal) -> Response<Body> {
        tracing::debug!(upstream = %self.route.config.name, ?refusal, "request refused");
        refused(refusal)
    }
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

fn body_refused(error: &BodyError) -> Response<Body> {
    match error {
        BodyError::TooLarge { bytes_max } => {
            head::Refusal::body_too_large(*bytes_max).into_response()
        }
        error => head::Refusal::new(StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    }
}
