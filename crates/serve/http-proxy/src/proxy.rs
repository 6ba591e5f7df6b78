//! A client's request on its way into the proxy: what is checked, removed and kept before the
//! exchange with the replicas begins.

use std::pin::Pin;
use std::rc::Rc;

use http::{Method, StatusCode};

use crate::access::Entry;
use crate::brownout;
use crate::config::Edge;
use crate::context::{REQUEST_ID, RequestId, Trace};
use crate::datagram;
use crate::hops;
use crate::inflow::INFLOW;
use crate::protocol::{Http, Message, body_too_slow, is_idempotent};
use crate::recorded;
use crate::redirected;
use crate::replica::PROBE_PATH;
use crate::route::Route;
use crate::routes::{Choice, RouteTable, Target};
use evenkeel_http::{Body, BodyError, Client, Request, Response};
use evenkeel_http::{grpc, head};
use evenkeel_proxy::calls::exchange::Exchange;
use evenkeel_proxy::calls::observer::Record;
use evenkeel_proxy::requests::record::Remarks;
use evenkeel_proxy::requests::recorder::Draft;

/// Answers one request of a client.
///
/// All that comes before the first wait is done here, so that the future, which is moved about and
/// of which every connection has one, has neither the request nor what is rare.
pub fn serve(
    routes: &RouteTable,
    request: Request<Body>,
    client: &Client,
) -> impl Future<Output = Response<Body>> + use<> {
    let is_grpc = request.method() == Method::POST && grpc::is_grpc(request.headers());
    let begun = match routes.choose(&request) {
        Choice::Respond(status) => Err(Box::new(not_passed_on(status))),
        Choice::Forward(target) => Ok(begin(target, request, client, is_grpc)),
    };
    async move {
        let response = match begun {
            Ok((passed, then)) => passed.back(then.response().await),
            Err(response) => *response,
        };
        if is_grpc { grpc::understood(response) } else { response }
    }
}

/// What a response needs of the request that was passed on.
struct Passed {
    route: Rc<Route>,
    id: RequestId,
}

impl Passed {
    fn back(self, mut response: Response<Body>) -> Response<Body> {
        self.route.calls.note_response(response.status().as_u16());
        response.headers_mut().insert(REQUEST_ID, self.id.value());
        response
    }
}

/// How a request goes on.
enum Then {
    Exchange(Box<Exchange<Http>>),
    /// After its body was kept.
    Kept(Pin<Box<dyn Future<Output = Response<Body>>>>),
    Answered(Box<Response<Body>>),
}

impl Then {
    async fn response(self) -> Response<Body> {
        match self {
            Self::Exchange(exchange) => exchange.run().await,
            Self::Kept(kept) => kept.await,
            Self::Answered(response) => *response,
        }
    }
}

fn begin(
    target: Rc<Target>,
    mut request: Request<Body>,
    client: &Client,
    is_grpc: bool,
) -> (Passed, Then) {
    let route = Rc::clone(&target.route);
    let id = RequestId::of(request.headers_mut(), route.ids());
    let mut record = Record::of(&route.calls, &route.config.name);
    let traces = record.draft().and_then(|draft| draft.traces());
    let trace = Trace::join(request.headers_mut(), route.ids(), traces);
    if let Some(draft) = record.draft() {
        describe(draft, &request, &id, trace);
        let told = (draft.access().cloned(), draft.traces().cloned());
        if told.0.is_some() || told.1.is_some() {
            draft.tell(Entry::of(told, &target, &request, (client, &id, trace.context)));
        }
    }
    let of = (record, trace, is_grpc);
    let then = match prepare(&target, &mut request, client) {
        Ok(prepared) if prepared.wants_keeping => {
            Then::Kept(Box::pin(open_kept(target, request, prepared, of)))
        }
        Ok(prepared) => Then::Exchange(open(&target, request, prepared, of)),
        Err(response) => Then::Answered(answered_here(of.0, &route, response)),
    };
    (Passed { route, id }, then)
}

/// Keeps the body, and goes on as any request.
async fn open_kept(
    target: Rc<Target>,
    mut request: Request<Body>,
    prepared: Prepared,
    of: (Record, Trace, bool),
) -> Response<Body> {
    match keep(&mut request, &target.route).await {
        Ok(()) => open(&target, request, prepared, of).run().await,
        Err(response) => *answered_here(of.0, &target.route, Box::new(response)),
    }
}

/// What is kept of a request: never its query, which may have secrets.
fn describe(draft: &mut Draft, request: &Request<Body>, id: &RequestId, trace: Trace) {
    let line = [request.method().as_str().as_bytes(), b" ", request.uri().path().as_bytes()];
    draft.describe(&line, id.as_bytes());
    draft.record().trace_id = trace.id;
    if trace.is_sampled() {
        draft.record().remarks.add(Remarks::SAMPLED);
    }
}

/// What was found of a request before its exchange with the replicas begins.
#[derive(Clone, Copy)]
struct Prepared {
    /// Another site sent it here.
    is_forwarded: bool,
    /// Two at once would be two conversations.
    is_single: bool,
    /// A copy of it goes to another upstream.
    is_copied: bool,
    /// Its body still streams, but is to be at hand.
    wants_keeping: bool,
}

/// Makes a request fit to be sent to a replica.
///
/// # Errors
/// What is answered in place of passing it on.
fn prepare(
    target: &Target,
    request: &mut Request<Body>,
    client: &Client,
) -> Result<Prepared, Box<Response<Body>>> {
    let policy = &target.policy;
    head::prepare_request(request, client, &policy.forwarding)
        .and_then(|()| hops::count(request.headers_mut()))
        .map_err(|refusal| Box::new(refusal.into_response()))?;
    if request.uri().path() == PROBE_PATH {
        request.headers_mut().remove(datagram::HEADER); // keys of agents are for proxies
    }
    if policy.brownout == Edge::Strip {
        brownout::strip_decision(request.headers_mut());
    }
    request.headers_mut().remove(INFLOW); // agents believe their proxies only
    recorded::forget(request.headers_mut());
    let is_forwarded = redirected::is_believed(request.headers_mut(), policy.redirected);
    if let Some(bytes_max) = target.body_bytes_max {
        request.body_mut().limit(bytes_max).map_err(|error| Box::new(body_refused(&error)))?;
    }
    let is_single = head::wants_upgrade(request);
    let is_copied = !is_single && target.mirror.as_ref().is_some_and(|it| it.wants_next());
    let wants_keeping = wants_keeping(request, &target.route, is_copied);
    Ok(Prepared { is_forwarded, is_single, is_copied, wants_keeping })
}

/// Begins the exchange with the replicas.
fn open(
    target: &Target,
    request: Request<Body>,
    prepared: Prepared,
    (record, trace, is_grpc): (Record, Trace, bool),
) -> Box<Exchange<Http>> {
    let Prepared { is_forwarded, is_single, is_copied, .. } = prepared;
    if let Some(mirror) = target.mirror.as_ref().filter(|_| is_copied) {
        mirror.copy(&request, trace);
    }
    let route = Rc::clone(&target.route);
    let mut message = Message::of(request, is_grpc, trace);
    message.hedges = target.hedge && !is_single;
    let is_write = message.is_write();
    if !is_forwarded {
        route.calls.note_operation(is_write);
    }
    let depart = |headers| route.depart(headers, is_forwarded, is_write);
    let choice = message.headers().and_then(depart);
    Exchange::open(route, message, choice, record)
}

/// What no replica is asked for.
fn answered_here(
    mut record: Record,
    route: &Route,
    response: Box<Response<Body>>,
) -> Box<Response<Body>> {
    if let Some(draft) = record.draft() {
        draft.end_here(route.calls.tick(), response.status().as_u16());
    }
    response
}

fn not_passed_on(status: StatusCode) -> Response<Body> {
    head::Refusal::new(status, "no such service here").into_response()
}

/// Whether the body still streams but is short enough to be kept, for another try or for a copy.
fn wants_keeping(request: &Request<Body>, route: &Route, is_copied: bool) -> bool {
    let body = request.body();
    let announced = || http_body::Body::size_hint(body).upper();
    !body.is_complete()
        && (is_copied || is_idempotent(request.method()))
        && announced().is_some_and(|bytes| bytes <= route.config.replay_bytes_max)
}

/// Waits for the body; its call begins then.
async fn keep(request: &mut Request<Body>, route: &Route) -> Result<(), Response<Body>> {
    let body = std::mem::replace(request.body_mut(), Body::empty());
    let reading = body.collect(route.config.replay_bytes_max);
    let kept = match tokio::time::timeout(route.config.timeouts.total, reading).await {
        Ok(Ok(bytes)) => {
            *request.body_mut() = Body::full(bytes);
            Ok(())
        }
        Ok(Err(error)) => Err(body_refused(&error)),
        Err(_) => Err(body_too_slow()),
    };
    route.calls.tick();
    kept
}

fn body_refused(error: &BodyError) -> Response<Body> {
    match error {
        BodyError::TooLarge { bytes_max } => {
            head::Refusal::body_too_large(*bytes_max).into_response()
        }
        error => head::Refusal::new(StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    }
}
