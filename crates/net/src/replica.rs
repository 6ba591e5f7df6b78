//! The replica-side agent: fronts one application and says with every answer how it is doing.
//!
//! A proxy sees only its own requests. What makes selection good is the state of the replica
//! itself: how many requests wait there, from whomever, and how long one takes without waiting.
//! The agent sits before the application, where both can be counted, and writes them on every
//! answer it gives ([`orca`]).
//!
//! **Where requests wait.** With `concurrency` set, that many requests are with the application
//! and the others wait here, first come, first served, where they are counted; so set it to what
//! the application serves at once. Without it all requests are with the application, the queue
//! is always reported as empty, and waiting inside the application shows as service time.
//!
//! **Service time** is the time from handing the request to the connection with the application
//! (opened first if none is kept) until the head of its answer has arrived. When the body came
//! along with the head that is the whole service; a body that still streams is not in it, but
//! its request counts as in service, and keeps its slot, until the body has ended. A request
//! body that arrives slowly from the client is in it. Answers with a status of 500 or above and
//! requests without an answer are no measurements: an application that fails at once would look
//! fast.
//!
//! **The rest of the report** (arrival rate, latency of a request that comes now) is estimated
//! as `Estimates` describes. It covers requests that are refused, but neither probes nor what
//! the listener refuses by itself (a head or body beyond its limits).
//!
//! **Cold start.** There is no report while no request has been sent to the application: a
//! service time that nobody measured is absent, not zero.
//!
//! **One thread.** The counts and the limit are those of the whole agent, so one agent runs on
//! one worker thread. Two agents on one address would each count its own half.

mod admission;
mod estimates;

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use evenkeel_core::Feedback;
use http::header::{HeaderValue, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode};

use crate::clock::Clock;
use crate::config::AgentConfig;
use crate::http::engine::head::{Forwarding, Refusal, prepare_request, prepare_response};
use crate::http::engine::{
    Body, Client, Listener, SendError, SendErrorKind, Served, Upstream, serve,
};
use crate::http::orca;
use admission::{Admission, Slot};
use estimates::{Estimates, Present};

/// What an agent answers itself, at once: `GET` of it brings 204 and the report of this moment.
pub const PROBE_PATH: &str = "/.evenkeel/probe";

/// Fronts one application on this thread until `stop` resolves, then finishes what is in flight.
///
/// Requests and answers pass unchanged but for what concerns one connection only, and for the
/// report: it replaces any load report of the application's own. `X-Forwarded-For` stays as it
/// came. What the agent answers itself:
///
/// | status | when |
/// |---|---|
/// | 204 | a probe |
/// | 502 | the application refused the connection, broke off, or answered what is not HTTP |
/// | 503, `Retry-After: 1` | as many requests wait as may |
/// | 504 | no answer in time; the attempt is cancelled and its slot is free |
///
/// A client that goes away takes its request along, whether it waits or is in service. A request
/// that died with a kept connection is sent once more if it is idempotent and its body is at
/// hand: applications close idle connections without asking.
///
/// # Errors
///
/// When the listener cannot be used.
///
/// # Panics
///
/// Outside a [`worker_runtime`](crate::http::engine::worker_runtime).
pub async fn serve_agent(
    config: &AgentConfig,
    listener: Listener,
    clock: Clock,
    stop: impl Future<Output = ()>,
) -> io::Result<Served> {
    let agent = Rc::new(Agent::new(config, clock));
    let handler = move |request, client| Rc::clone(&agent).answer(request, client);
    serve(listener, config.limits, handler, stop).await
}

struct Agent {
    app: Upstream,
    timeout: Duration,
    concurrency: Option<u32>,
    forwarding: Forwarding,
    clock: Clock,
    admission: Rc<Admission>,
    estimates: RefCell<Estimates>,
}

/// An answer of the application, and how long it took if that is a measurement.
struct Answered {
    response: Response<Body>,
    service_time: Option<Duration>,
}

impl Agent {
    fn new(config: &AgentConfig, clock: Clock) -> Agent {
        let host = HeaderValue::from_str(&config.app.to_string());
        Agent {
            app: Upstream::new(config.app, config.upstream_limits),
            timeout: config.timeout,
            concurrency: config.concurrency,
            forwarding: Forwarding {
                append_forwarded_for: false,
                host_default: host.expect("an address is a header value"),
            },
            clock,
            admission: Rc::new(Admission::new(config.concurrency, config.queue_max)),
            estimates: RefCell::default(),
        }
    }

    async fn answer(self: Rc<Self>, request: Request<Body>, client: Rc<Client>) -> Response<Body> {
        let answered = if is_probe(&request) {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            Answered { response, service_time: None }
        } else {
            self.estimates.borrow_mut().arrived(self.clock.now());
            self.pass_on(request, &client).await.unwrap_or_else(refused)
        };
        self.reported(answered)
    }

    /// Waits for a slot, asks the application, and keeps the slot until its answer has ended.
    async fn pass_on(
        &self,
        mut request: Request<Body>,
        client: &Client,
    ) -> Result<Answered, Refusal> {
        prepare_request(&mut request, client, &self.forwarding)?;
        let slot = self.admission.enter().map_err(|full| {
            let message = format!("{full} (the application cannot keep up)");
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, message)
        })?;
        let slot: Slot = slot.await;
        let sent_at = self.clock.now();
        self.estimates.borrow_mut().sent(sent_at);
        let answer = tokio::time::timeout(self.timeout, self.ask(request)).await;
        let mut response =
            answer.map_err(|_| self.too_late())?.map_err(|error| no_answer(&error))?;
        prepare_response(&mut response)?;
        let service_time = self.clock.now().since(sent_at);
        let is_measurement = !response.status().is_server_error();
        if is_measurement {
            self.estimates.borrow_mut().served(service_time);
        }
        let response = response.map(|body| body.on_end(move |_| drop(slot)));
        Ok(Answered { response, service_time: is_measurement.then_some(service_time) })
    }

    async fn ask(&self, request: Request<Body>) -> Result<Response<Body>, SendError> {
        let copy = copy_of(&request);
        match (self.app.send(request).await, copy) {
            (Err(error), Some(copy)) if died_with_its_connection(&error) => {
                self.app.send(copy).await
            }
            (answer, _) => answer,
        }
    }

    fn too_late(&self) -> Refusal {
        let (app, timeout) = (self.app.address(), self.timeout);
        let message = format!("the application at {app} did not answer within {timeout:?}");
        Refusal::new(StatusCode::GATEWAY_TIMEOUT, message)
    }

    /// Adds the report of this moment, in which the answered request has left.
    fn reported(&self, answered: Answered) -> Response<Body> {
        let Answered { mut response, service_time } = answered;
        let headers = response.headers_mut();
        headers.remove(orca::HEADER);
        headers.remove(orca::HEADER_BINARY);
        if let Some(report) = self.report(service_time) {
            headers.insert(orca::HEADER, orca::write(&report));
        }
        response
    }

    fn report(&self, service_time: Option<Duration>) -> Option<Feedback> {
        let present = Present {
            now: self.clock.now(),
            waiting: self.admission.waiting(),
            in_service: self.admission.in_service(),
            concurrency: self.concurrency,
        };
        self.estimates.borrow().report(present, service_time)
    }
}

fn is_probe(request: &Request<Body>) -> bool {
    request.uri().path() == PROBE_PATH && request.method() == Method::GET
}

fn refused(refusal: Refusal) -> Answered {
    let mut response = refusal.into_response();
    if response.status() == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    Answered { response, service_time: None }
}

fn no_answer(error: &SendError) -> Refusal {
    Refusal::new(error.status(), format!("no answer from this agent's application: {error}"))
}

/// The same request once more, if sending it twice does no harm.
fn copy_of(request: &Request<Body>) -> Option<Request<Body>> {
    if !request.method().is_idempotent() {
        return None;
    }
    let mut copy = Request::new(request.body().try_clone()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}

fn died_with_its_connection(error: &SendError) -> bool {
    error.was_reused() && error.kind() == SendErrorKind::Reset
}
