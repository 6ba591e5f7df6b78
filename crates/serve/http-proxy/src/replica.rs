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
//! (opened first if none is kept) until the head of its answer has arrived, with the first bytes
//! of a body whose length is known. When all came that is the whole service; a body that still
//! streams is not in it, but its request counts as in service, and keeps its slot, until the body
//! has ended, or has stalled for `idle_timeout`. A request
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
//! **Brownout.** With a dimmer the agent also decides what each request is served and tells the
//! application in `Brownout-Optional`, and the proxies in `Brownout-Dimmer` and the report;
//! `Dimming` has the details.
//!
//! The first request after a plan between data centres says what that brings ([`inflow`]).
//!
//! **Probes** ask for the report alone: over HTTP ([`PROBE_PATH`]), or in a datagram to the same
//! port ([`datagram`]) by whoever got a key with an answer over HTTP. Who has one and asks for it
//! with a request is told in a datagram if that must wait, with the report of that moment. The
//! proxy may then give it up and send it elsewhere, and it never reaches the application.
//!
//! **The record of a day** (`book`): of each request when it came, how long it waited and was
//! served and how it ended, with the number that the proxy told.
//!
//! **One thread.** The counts and the limit are those of the whole agent, so one agent runs on
//! one worker thread. Two agents on one address would each count its own half.

mod admission;
mod book;
mod dimming;
mod questions;
mod span;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use evenkeel_core::report::{Estimates, Present};
use evenkeel_core::request::copies::ServedSink;
use evenkeel_core::{Feedback, Instant};
use http::header::{HeaderValue, RETRY_AFTER};
use http::{Method, StatusCode};
use tokio::task::JoinSet;

use crate::agent_state::{AgentProbes, AgentState};
use crate::config::{AgentConfig, Switch};
use crate::datagram::{self, ProbeKey, Wish};
use crate::{brownout, hops, inflow, orca, recorded};
use admission::{Admission, Entering, Full, Slot};
use book::{Book, Entry};
use dimming::{Dimming, Visit};
use evenkeel_http::head::{Forwarding, Refusal, prepare_request, prepare_response};
use evenkeel_http::{
    Body, Client, Fields, LiveLimits, Request, Response, SendError, SendErrorKind, Upstream, grpc,
    serve_within,
};
use evenkeel_proxy::requests::context::Ids;
use evenkeel_proxy::requests::traces::Traces;
use evenkeel_runtime::accept::StopSignal;
use evenkeel_runtime::accept::{Listener, ListenerFilters, Served, first};
use evenkeel_runtime::clock::Clock;
use evenkeel_runtime::datagrams::Datagrams;
use evenkeel_runtime::limits::ServerLimits;
use evenkeel_runtime::tls::{ClientTls, ServerTls};
use questions::Questions;
use span::AgentSpan;

/// What an agent answers itself, at once: `GET` of it brings 204 and the report of this moment.
pub const PROBE_PATH: &str = "/.evenkeel/probe";

/// When the UDP port is tried again that somebody else has.
const UDP_AGAIN: Duration = Duration::from_secs(1);

/// Fronts one application on this thread until told to stop, then finishes what is in flight;
/// see [`Agent::serve`].
///
/// # Errors
/// When the listener cannot be used.
///
/// # Panics
/// Outside a [`worker_runtime`](evenkeel_runtime::accept::worker_runtime).
pub async fn serve_agent(
    config: &AgentConfig,
    listener: Listener,
    clock: Clock,
    stop: StopSignal,
) -> io::Result<Served> {
    Agent::new(config, clock).serve(listener, stop).await
}

/// The agent before one application.
pub struct Agent {
    app: Upstream,
    queue_timeout: Duration,
    timeout: Duration,
    concurrency: Option<u32>,
    limits: ServerLimits,
    tls: Option<ServerTls>,
    is_app_tls: bool,
    forwarding: Forwarding,
    clock: Clock,
    traces: Option<Traces>,
    ids: Ids,
    admission: Rc<Admission>,
    estimates: RefCell<Estimates>,
    dimming: Option<Rc<Dimming>>,
    /// What becomes of each request, where days are recorded.
    book: RefCell<Option<Rc<Book>>>,
    /// Whether it answers probes over UDP, too.
    has_udp: bool,
    questions: Questions,
    probes_http: Cell<u64>,
}

impl Agent {
    /// An agent that has not heard of its application yet, without TLS.
    ///
    /// # Panics
    /// Outside a [`worker_runtime`](evenkeel_runtime::accept::worker_runtime).
    pub fn new(config: &AgentConfig, clock: Clock) -> Rc<Agent> {
        Self::with_tls(config, (None, None), None, clock)
    }

    /// The same, in TLS towards proxies and towards the application where so asked, and with spans
    /// for whoever collects them.
    ///
    /// # Panics
    /// As [`Agent::new`].
    pub fn with_tls(
        config: &AgentConfig,
        (tls, app_tls): (Option<ServerTls>, Option<ClientTls>),
        traces: Option<Traces>,
        clock: Clock,
    ) -> Rc<Agent> {
        let host = HeaderValue::from_str(&config.app.authority());
        let seed = u64::from(config.app.port().unwrap_or_default()) << 16
            | u64::from(config.address.port());
        let dimmer = config.dimmer.as_ref();
        Rc::new(Agent {
            is_app_tls: app_tls.is_some(),
            app: Upstream::with_tls(config.app, config.upstream_limits, app_tls),
            tls,
            queue_timeout: config.queue_timeout,
            timeout: config.timeout,
            concurrency: config.concurrency,
            limits: config.limits,
            forwarding: Forwarding {
                trusted_proxies: None,
                append_forwarded_for: false,
                is_https: false,
                host_default: host.expect("an address is a header value"),
            },
            clock,
            traces,
            ids: Ids::new(),
            admission: Rc::new(Admission::new(config.concurrency, config.queue_max)),
            estimates: RefCell::default(),
            dimming: dimmer.map(|dimmer| Dimming::new(dimmer, clock, seed)),
            book: RefCell::default(),
            has_udp: config.udp_probes,
            questions: Questions::new(),
            probes_http: Cell::new(0),
        })
    }

    /// Tells this one from now on what becomes of each request, but for probes.
    pub fn record(&self, sink: Box<dyn ServedSink>) {
        self.book.replace(Some(Book::new(sink, self.clock)));
    }

    /// Serves on this thread until told to stop, then finishes what is in flight.
    ///
    /// Requests and answers pass unchanged but for what concerns one connection only, for the
    /// report, which replaces any load report of the application's own, and for what brownout
    /// says. `X-Forwarded-For` stays as it came. What the agent answers itself:
    ///
    /// | status | when |
    /// |---|---|
    /// | 204 | a probe |
    /// | 502 | the application refused the connection, broke off, or answered what is not HTTP |
    /// | 503, `Retry-After: 1` | as many requests wait as may, or this one has for too long |
    /// | 504 | no answer in time; the attempt is cancelled and its slot is free |
    ///
    /// A client that goes away takes its request along, whether it waits or is in service. A
    /// request that died with a kept connection is sent once more if it is idempotent and its body
    /// is at hand: applications close idle connections without asking.
    ///
    /// # Errors
    /// When the listener cannot be used.
    ///
    /// # Panics
    /// Outside a [`worker_runtime`](evenkeel_runtime::accept::worker_runtime).
    pub async fn serve(self: Rc<Self>, listener: Listener, stop: StopSignal) -> io::Result<Served> {
        let mut keeping = JoinSet::new(); // until it is dropped
        if let Some(dimming) = self.dimming.clone() {
            keeping.spawn_local(dimming.keep_time());
        }
        if let (true, Ok(address)) = (self.has_udp, listener.address()) {
            keeping.spawn_local(Rc::clone(&self).answer_datagrams(address, stop.clone()));
        }
        let limits = LiveLimits::new(self.limits, ListenerFilters::of_tls(self.tls.clone()));
        let handler = move |request, client| Rc::clone(&self).answer(request, client);
        serve_within(listener, &limits, handler, stop).await
    }

    /// Answers probes in datagrams until another process has the port: that one knows none of our
    /// keys. While another program has it probes come over HTTP, which costs more and changes
    /// nothing else; a process that this one replaces gives it up soon.
    async fn answer_datagrams(self: Rc<Self>, address: SocketAddr, mut stop: StopSignal) {
        let answering = async {
            let mut has_warned = false;
            let socket = loop {
                match Datagrams::at(address) {
                    Ok(socket) => break socket,
                    Err(error) if !has_warned => {
                        has_warned = true;
                        let words = "no probes over UDP yet (does another program use its port?)";
                        tracing::warn!(agent = %address, %error, "{words}");
                    }
                    Err(_) => {}
                }
                tokio::time::sleep(UDP_AGAIN).await;
            };
            self.questions.serve(socket, &self.clock, || self.report(None)).await;
        };
        first(answering, stop.replaced()).await;
    }

    /// How it stands.
    pub fn state(&self) -> AgentState {
        let brownout = self.dimming.as_ref().map(|dimming| dimming.stands());
        AgentState {
            waiting: self.admission.waiting(),
            in_service: self.admission.in_service(),
            brownout,
            probes: self.probes(),
        }
    }

    fn probes(&self) -> AgentProbes {
        AgentProbes { answered_http: self.probes_http.get(), ..self.questions.counts() }
    }

    /// Puts a hand on its dimmer, or takes it off. Without brownout nothing happens.
    pub fn set_switch(&self, switch: Switch) {
        if let Some(dimming) = &self.dimming {
            dimming.set_switch(switch);
        }
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Agent({:?}, {:?})", self.app, self.state())
    }
}

/// An answer of the application, and how long it took if that is a measurement.
struct Answered {
    response: Response<Body>,
    service_time: Option<Duration>,
}

/// Why a request does not come to the application.
enum NoSlot {
    Full(Full),
    Late,
}

/// The life of a request.
impl Agent {
    async fn answer(self: Rc<Self>, request: Request<Body>, client: Rc<Client>) -> Response<Body> {
        let answered = if is_probe(&request) {
            Answered { response: self.probed(&request), service_time: None }
        } else {
            let is_grpc = grpc::is_grpc(request.headers());
            let mut answered = self.pass_on(request, &client).await.unwrap_or_else(refused);
            if is_grpc {
                answered.response = grpc::understood(answered.response);
            }
            answered
        };
        self.reported(answered)
    }

    /// What a probe is answered, but for the report.
    fn probed(&self, request: &Request<Body>) -> Response<Body> {
        self.probes_http.set(self.probes_http.get() + 1);
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        if ProbeKey::is_wanted(request.headers()) {
            let key = self.questions.new_key(self.clock.now());
            key.inspect(|key| response.headers_mut().insert(datagram::HEADER, key));
        }
        response
    }

    async fn pass_on(
        &self,
        mut request: Request<Body>,
        client: &Client,
    ) -> Result<Answered, Refusal> {
        let now = self.clock.now();
        self.estimates.borrow_mut().arrived(now);
        let wish = Wish::take(request.headers_mut());
        let mut entry = self.enter(now, request.headers_mut());
        let inflow = inflow::take(request.headers_mut());
        let mut span = self.span(&mut request, client);
        let prepared = prepare_request(&mut request, client, &self.forwarding);
        prepared.and_then(|()| hops::count(request.headers_mut())).inspect_err(|_| {
            entry.iter_mut().for_each(Entry::failed);
        })?;
        let mut visit = self.dimming.as_ref().map(|dimming| {
            dimming.expect(now, inflow);
            dimming.arrive(now, &mut request)
        });
        let slot = match self.slot(now, wish).await {
            Ok(slot) => slot,
            Err(refused) => {
                entry.iter_mut().for_each(Entry::failed);
                span.iter_mut().for_each(|span| span.refused());
                return Err(self.refused(visit, &refused));
            }
        };
        let sent_at = self.clock.now();
        self.estimates.borrow_mut().sent(sent_at);
        if let Some(visit) = &mut visit {
            visit.begin(sent_at);
        }
        let is_reduced = visit.as_ref().is_some_and(Visit::is_reduced);
        entry.iter_mut().for_each(|entry| entry.sent(sent_at, !is_reduced));
        if let Some(span) = &mut span {
            span.sent(sent_at, request.headers_mut(), is_reduced);
        }
        match tokio::time::timeout(self.timeout, self.ask(request)).await {
            Ok(Ok(response)) => self.pass_back(response, visit, (slot, span, entry), sent_at),
            Ok(Err(error)) => {
                entry.iter_mut().for_each(Entry::failed);
                span.iter_mut().for_each(|span| span.failed(self.clock.now(), Some(&error)));
                self.end(visit, |visit, now| visit.failed(now, Some(&error)));
                Err(no_answer(&error))
            }
            Err(_) => {
                entry.iter_mut().for_each(Entry::failed);
                span.iter_mut().for_each(|span| span.failed(self.clock.now(), None));
                self.end(visit, Visit::timed_out);
                Err(self.too_late())
            }
        }
    }

    /// While a day is recorded.
    fn enter(&self, now: Instant, headers: &mut Fields) -> Option<Entry> {
        let number = recorded::take(headers); // which the application gets without it
        let queue = self.admission.waiting().saturating_add(self.admission.in_service());
        self.book.borrow().as_ref().map(|book| book.enter(now, number, queue))
    }

    /// While traces are exported.
    fn span(&self, request: &mut Request<Body>, client: &Client) -> Option<Box<AgentSpan>> {
        let traces = self.traces.as_ref().filter(|traces| traces.is_on())?;
        let of = (traces, &self.ids, self.clock);
        let app = (self.app.address(), self.is_app_tls);
        Some(AgentSpan::begin(of, request, (client, self.tls.is_some()), app))
    }

    /// A place at the application. Who must wait for it is told if they wish.
    fn slot(
        &self,
        now: Instant,
        wish: Option<Wish>,
    ) -> impl Future<Output = Result<Slot, NoSlot>> + use<> {
        let entering = self.admission.enter();
        if let Some(wish) = wish
            && entering.as_ref().is_ok_and(Entering::must_wait)
        {
            self.questions.notify(now, &wish, || self.report(None));
        }
        let limit = self.queue_timeout;
        async move {
            let entering = entering.map_err(NoSlot::Full)?;
            tokio::time::timeout(limit, entering).await.map_err(|_| NoSlot::Late)
        }
    }

    fn refused(&self, visit: Option<Visit>, why: &NoSlot) -> Refusal {
        match why {
            NoSlot::Late => {
                self.end(visit, Visit::timed_out);
                self.waited_too_long()
            }
            NoSlot::Full(full) => {
                self.end(visit, |visit, now| visit.failed(now, None));
                refused_by(full)
            }
        }
    }

    /// Passes an answer on; it keeps the slot until it has ended.
    fn pass_back(
        &self,
        mut response: Response<Body>,
        visit: Option<Visit>,
        (slot, mut span, mut entry): (Slot, Option<Box<AgentSpan>>, Option<Entry>),
        sent_at: Instant,
    ) -> Result<Answered, Refusal> {
        let now = self.clock.now();
        if let Err(refusal) = prepare_response(&mut response) {
            entry.iter_mut().for_each(Entry::failed);
            self.end(visit, |visit, now| visit.failed(now, None));
            return Err(refusal);
        }
        let service_time = now.since(sent_at);
        let is_measurement = !response.status().is_server_error();
        if is_measurement {
            self.estimates.borrow_mut().served(service_time);
        }
        span.iter_mut().for_each(|span| span.answered(now, &response));
        entry.iter_mut().for_each(|entry| entry.answered(&response));
        let ended = move |end| {
            drop(slot);
            entry.into_iter().for_each(|entry| entry.ended(end));
            span.into_iter().for_each(|span| span.ended(end));
        };
        let response = match visit {
            Some(visit) => visit.answered(now, response, ended),
            None => response.map(|body| body.on_end(ended)),
        };
        Ok(Answered { response, service_time: is_measurement.then_some(service_time) })
    }

    fn end(&self, visit: Option<Visit>, how: impl FnOnce(Visit, Instant)) {
        if let Some(visit) = visit {
            how(visit, self.clock.now());
        }
    }

    async fn ask(&self, request: Request<Body>) -> Result<Response<Body>, SendError> {
        let copy = copy_of(&request);
        match (self.app.send(request).await, copy) {
            (Err(error), Some(copy)) if died_with_its_connection(&error) => {
                Box::pin(self.app.send(copy)).await
            }
            (answer, _) => answer,
        }
    }

    fn waited_too_long(&self) -> Refusal {
        let (app, limit) = (self.app.address(), self.queue_timeout);
        let slots = self.concurrency.unwrap_or(u32::MAX);
        let message = format!(
            "the application at {app} served {slots} other requests for {limit:?}, and this one \
             waited (the application is too slow, or stands still)"
        );
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, message)
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
        headers.insert(orca::HEADER, &orca::write(&self.report(service_time)));
        if let Some(dimming) = &self.dimming {
            headers.remove(brownout::DIMMER_2014);
            headers.insert(brownout::DIMMER, &brownout::write_dimmer(dimming.dimmer()));
        }
        response
    }

    fn report(&self, service_time: Option<Duration>) -> Feedback {
        let present = Present {
            now: self.clock.now(),
            waiting: self.admission.waiting(),
            in_service: self.admission.in_service(),
            concurrency: self.concurrency,
        };
        let dimmer = self.dimming.as_ref().map(|dimming| dimming.dimmer());
        Feedback { dimmer, ..self.estimates.borrow().report(present, service_time) }
    }
}

fn is_probe(request: &Request<Body>) -> bool {
    request.uri().path() == PROBE_PATH && request.method() == Method::GET
}

fn refused(refusal: Refusal) -> Answered {
    let mut response = refusal.into_response();
    if response.status() == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(RETRY_AFTER, &HeaderValue::from_static("1"));
    }
    Answered { response, service_time: None }
}

fn refused_by(full: &Full) -> Refusal {
    let message = format!("{full} (the application cannot keep up)");
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, message)
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
