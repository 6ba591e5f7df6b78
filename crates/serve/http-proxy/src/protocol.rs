//! HTTP as an exchange sees it: what is sent how often, and what an answer says of its replica.

use std::rc::Rc;
use std::time::Duration;

use evenkeel_core::GroupId;
use evenkeel_core::request::{BodyEnd, Failure, Outcome, Refusal, Replay};
use futures_util::FutureExt as _;
use http::header::{HeaderValue, RETRY_AFTER};
use http::{Method, StatusCode};

use crate::brownout;
use crate::context::Trace;
use crate::inflow::INFLOW;
use crate::recorded;
use crate::route::Route;
use evenkeel_http::{Body, ConnectTime, End, Fields, Outgoing, SendError, SendErrorKind, Upload};
use evenkeel_http::{Request, Response, request};
use evenkeel_http::{grpc, head};
use evenkeel_proxy::calls::exchange::{Loser, Protocol, Tail};
use evenkeel_proxy::calls::{Calls, OpenAttempt, WHOLE};
use evenkeel_proxy::config::Timeouts;
use evenkeel_proxy::requests::record::{RequestRecord, micros};
use evenkeel_proxy::site_choice::SiteChoice;
use evenkeel_proxy::upstream_state::BrownoutSeen;

/// HTTP. A copy that nobody wants is cut off: in HTTP/1.1 with its connection, in HTTP/2 its stream
/// is reset.
pub(crate) struct Http;

impl Protocol for Http {
    type Upstream = Route;
    type Request = Message;
    type Answer = Response<Body>;
    type Error = SendError;

    const LOSER: Loser = Loser::Cancel;

    fn name(route: &Route) -> &str {
        &route.config.name
    }

    fn calls(route: &Route) -> &Rc<Calls> {
        &route.calls
    }

    fn timeouts(route: &Route) -> Timeouts {
        route.config.timeouts
    }

    fn total(route: &Route, message: &Message) -> Duration {
        let total = route.config.timeouts.total;
        let grpc = message.grpc.as_ref().and_then(|grpc| grpc.timeout);
        grpc.map_or(total, |timeout| timeout.min(total))
    }

    fn replay(message: &Message) -> Replay {
        match message.copies {
            Copies::Once(_) => Replay::IfUnsent,
            Copies::Again(..) if message.hedges => Replay::Always,
            Copies::Again(..) => Replay::AfterFailure,
        }
    }

    fn may_pair(message: &Message) -> bool {
        match &message.copies {
            Copies::Once(_) => false,
            Copies::Again(parts, _) => is_read(&parts.method),
        }
    }

    fn group(_: &Route, _: usize, _: &Message) -> GroupId {
        WHOLE
    }

    #[inline(always)] // so that the future begins where it stays: it is large, and moving it costs
    fn send(
        route: &Rc<Route>,
        attempt: &OpenAttempt,
        message: &mut Message,
    ) -> impl Future<Output = Result<Response<Body>, SendError>> + 'static {
        let replica = route.replica(attempt);
        let is_grpc = message.grpc.is_some();
        let mut awaiting = None;
        let inflow = route.inflow(attempt);
        let is_as_it_is = !message.trace.is_told() && !attempt.wants_notice() && inflow.is_none();
        let outgoing = match &message.copies {
            Copies::Again(head, body) if is_as_it_is => {
                body.try_clone().map(|body| Outgoing::Copy(head, body))
            }
            _ => message.next().map(|mut request| {
                message.trace.mark(request.headers_mut());
                awaiting = route.listen(attempt, request.headers_mut());
                inflow.iter().for_each(|it| request.headers_mut().insert(INFLOW, it));
                Outgoing::Request(request)
            }),
        };
        let Some(outgoing) = outgoing else {
            unreachable!("the dispatcher resends only what may be resent")
        };
        // Not a block of its own, which would have the future twice: as what it came with, and as
        // what it waits for.
        replica.send_out(outgoing).map(move |mut answer| {
            drop(awaiting); // no notice is of use any more
            if let (Ok(response), true) = (&mut answer, is_grpc) {
                response.extensions_mut().insert(Grpc::default());
            }
            answer
        })
    }

    fn ask(route: &Rc<Route>, datacenter: usize) {
        route.ask_probes(datacenter);
    }

    #[inline]
    fn learn(
        route: &Route,
        attempt: &OpenAttempt,
        answer: &mut Result<Response<Body>, SendError>,
    ) -> Outcome {
        let response = match answer {
            Ok(response) => response,
            Err(error) => {
                route.say_no_tls(attempt, error);
                return blame(error);
            }
        };
        receive_brownout(route, attempt, response.headers_mut());
        let feedback = route.feedback_of(response.headers_mut());
        let outcome = failure(response).map_or(Outcome::Replied(feedback), Outcome::Failed);
        if let Err(refusal) = head::prepare_response(response) {
            *response = refusal.into_response();
        }
        outcome
    }

    fn size(response: &Response<Body>) -> Option<u64> {
        http_body::Body::size_hint(response.body()).exact()
    }

    fn tell_number(route: &Route, message: &mut Message, number: Option<u64>) {
        let Some(headers) = message.headers() else { return };
        match number.filter(|_| route.has_agents()) {
            Some(number) => recorded::tell(headers, number),
            None => recorded::forget(headers),
        }
    }

    fn take_back(message: &mut Message, error: SendError) -> Result<(), Response<Body>> {
        if error.kind() == SendErrorKind::RequestBody {
            return Err(client_failed(&error));
        }
        message.put_back(error.into_request());
        Ok(())
    }

    fn client_is_late(message: &Message) -> Option<Response<Body>> {
        let waits = message.upload.as_ref().is_some_and(Upload::waits_for_client);
        waits.then(body_too_slow)
    }

    fn is_unavailable(response: &Response<Body>) -> bool {
        failure(response) == Some(Failure::Unavailable)
    }

    fn is_failure(response: &Response<Body>) -> bool {
        failure(response).is_some()
    }

    fn reroute(route: &Route, message: &mut Message, choice: &SiteChoice) {
        message.headers().into_iter().for_each(|headers| route.mark(choice, headers));
    }

    fn refuse(_: &Route, refusal: Refusal, _: &Message) -> Response<Body> {
        refused(refusal)
    }

    fn describe(response: &Response<Body>, into: &mut RequestRecord) {
        into.status = response.status().as_u16();
        let connecting = response.extensions().get::<ConnectTime>();
        into.connect_us = connecting.map_or(0, |it| micros(it.0));
        let size = http_body::Body::size_hint(response.body()).exact();
        into.bytes = size.unwrap_or(u64::MAX);
        let headers = response.headers();
        into.is_reduced = brownout::is_mentioned(headers)
            && brownout::served(headers, &[]).is_some_and(|said| !said.is_full);
    }

    fn is_whole(response: &Response<Body>) -> bool {
        response.body().is_complete()
    }

    fn attach(response: Response<Body>, message: Message, tail: Tail) -> Response<Body> {
        let upload = message.upload;
        let ended = move |end| {
            // A request that breaks off takes the answer along, which is not the replica's doing.
            let has_client_broken = upload.as_ref().is_some_and(Upload::is_broken);
            tail.end(match end {
                End::Complete => BodyEnd::Complete,
                End::GrpcStatus(status) if grpc::is_failure(status) => BodyEnd::UpstreamBroke,
                End::GrpcStatus(_) => BodyEnd::Complete,
                End::Broken if has_client_broken => BodyEnd::ClientGone,
                End::Broken => BodyEnd::UpstreamBroke,
                End::Abandoned => BodyEnd::ClientGone,
            });
        };
        response.map(|body| body.on_end(ended))
    }
}

/// What is sent, as often as it may be sent.
pub(crate) struct Message {
    copies: Copies,
    /// Of a body that streams from the client.
    upload: Option<Upload>,
    /// Whether it may be sent again in haste.
    pub(super) hedges: bool,
    /// Of a call of gRPC.
    grpc: Option<Grpc>,
    trace: Trace,
}

/// A call of gRPC, whose outcome is not in the status of its answer. An answer carries it as well.
#[derive(Clone, Copy, Debug, Default)]
struct Grpc {
    /// How long the client waits.
    timeout: Option<Duration>,
}

enum Copies {
    /// The body streams from the client, or the method changes things: once.
    Once(Option<Request<Body>>),
    /// Idempotent, with the body at hand.
    Again(Box<request::Parts>, Body),
}

impl Message {
    pub(super) fn of(request: Request<Body>, is_grpc: bool, trace: Trace) -> Self {
        let upload = request.body().upload();
        let grpc = is_grpc.then(|| Grpc { timeout: grpc::timeout(request.headers()) });
        let copies = match request.body().try_clone() {
            Some(body) if is_idempotent(request.method()) => {
                Copies::Again(request.into_parts().0, body)
            }
            _ => Copies::Once(Some(request)),
        };
        Self { copies, upload, hedges: true, grpc, trace }
    }

    /// Whether the method may change something: RFC 9110, 9.2.1.
    pub(super) fn is_write(&self) -> bool {
        match &self.copies {
            Copies::Once(request) => request.as_ref().is_some_and(|it| !it.method().is_safe()),
            Copies::Again(parts, _) => !parts.method.is_safe(),
        }
    }

    fn next(&mut self) -> Option<Request<Body>> {
        match &mut self.copies {
            Copies::Once(request) => request.take(),
            Copies::Again(parts, body) => {
                body.try_clone().map(|body| Request::from_parts(parts.clone(), body))
            }
        }
    }

    /// The headers of what is still at hand.
    pub(super) fn headers(&mut self) -> Option<&mut Fields> {
        match &mut self.copies {
            Copies::Once(request) => request.as_mut().map(Request::headers_mut),
            Copies::Again(parts, _) => Some(&mut parts.headers),
        }
    }

    /// Takes an unsent request back.
    fn put_back(&mut self, unsent: Option<Request<Body>>) {
        if let (Copies::Once(place), Some(mut request)) = (&mut self.copies, unsent) {
            request.headers_mut().remove(INFLOW); // the next replica's may be another site's
            *place = Some(request);
        }
    }
}

/// RFC 9110, 9.2.2.
pub(super) fn is_idempotent(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::PUT | Method::DELETE
    )
}

/// Whether a method asks for nothing but an answer: the safe ones of RFC 9110, 9.2.1, without
/// TRACE.
fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Takes the replica's dimmer off its answer, and notes what the answer says was served.
fn receive_brownout(route: &Route, attempt: &OpenAttempt, headers: &mut Fields) {
    if !brownout::is_mentioned(headers) {
        return;
    }
    let dimmer = brownout::take_dimmer(headers);
    let said = brownout::served(headers, &[]);
    if let Ok(Some(dimmer)) = dimmer {
        attempt.receive_dimmer(dimmer);
    }
    if dimmer.is_err() || said.is_some() {
        route.note_seen(&BrownoutSeen {
            full: u64::from(said.is_some_and(|said| said.is_full)),
            reduced: u64::from(said.is_some_and(|said| !said.is_full)),
            dimmers_invalid: u64::from(dimmer.is_err()),
        });
    }
}

/// What a failed attempt says of its replica.
fn blame(error: &SendError) -> Outcome {
    if error.kind() == SendErrorKind::RequestBody {
        return Outcome::Cancelled; // the client's doing
    }
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

/// Server errors speak against the replica, except those that speak of the request: "not
/// implemented" and "loop detected". A loop that is tried again at each of its hops is a flood.
fn failure(response: &Response<Body>) -> Option<Failure> {
    match response.status().as_u16() {
        502..=504 => Some(Failure::Unavailable),
        500 | 505..=507 | 509..=599 => Some(Failure::ErrorReply),
        _ => grpc_failure(response),
    }
}

/// What the head of an answer says that is all there is.
fn grpc_failure(response: &Response<Body>) -> Option<Failure> {
    response.extensions().get::<Grpc>()?;
    match grpc::status_in(response.headers())? {
        status if grpc::is_unavailable(status) => Some(Failure::Unavailable),
        status => grpc::is_failure(status).then_some(Failure::ErrorReply),
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
        response.headers_mut().insert(RETRY_AFTER, &HeaderValue::from_static("1"));
    }
    response
}

fn client_failed(error: &SendError) -> Response<Body> {
    head::Refusal::new(error.status(), error.to_string()).into_response()
}

pub(super) fn body_too_slow() -> Response<Body> {
    let words = "the request body did not arrive in time";
    head::Refusal::new(StatusCode::REQUEST_TIMEOUT, words).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_proxy::requests::context::Ids;

    #[test]
    fn only_reads_are_sent_to_two_replicas_for_the_record() {
        let message = |method: &str| {
            let request = http::Request::builder().method(method).body(Body::empty()).unwrap();
            let mut request = Request::from(request);
            let trace = Trace::join(request.headers_mut(), &Ids::new(), None);
            Message::of(request, false, trace)
        };
        for method in ["GET", "HEAD", "OPTIONS"] {
            assert!(Http::may_pair(&message(method)), "{method}");
        }
        for method in ["PUT", "DELETE", "POST", "PATCH", "TRACE"] {
            assert!(!Http::may_pair(&message(method)), "{method}");
        }
        assert_eq!(Http::replay(&message("PUT")), Replay::Always, "it may be hedged all the same");
    }
}
