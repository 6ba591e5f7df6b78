//! Cassandra's protocol as an exchange sees it.
//!
//! What is different from HTTP is what a node's answer says of it ([`outcome`]), and that a copy
//! which lost is not taken back: its stream stays taken, the node works on it, and its answer is
//! learnt from when it comes. Answers are whole when they come.

use std::rc::Rc;

use evenkeel_core::request::ring::Layout;
use evenkeel_core::request::{BodyEnd, Failure, Outcome, Refusal, Replay};
use evenkeel_core::{Feedback, GroupId};
use evenkeel_cql::response::Error;
use evenkeel_cql::{Envelope, ErrorCode, Opcode, Version, payload};

use super::front::Request;
use super::route::Route;
use evenkeel_cql::client::{Answer, SendError, SendErrorKind};
use evenkeel_proxy::calls::exchange::{Loser, Protocol, Tail};
use evenkeel_proxy::calls::{Calls, OpenAttempt};
use evenkeel_proxy::config::Timeouts;
use evenkeel_proxy::site_choice::SiteChoice;

/// Cassandra's native protocol.
pub(super) struct Cql;

/// A request of a client, and how it fared.
pub(super) struct Query {
    request: Rc<Request>,
    /// Why the last attempt failed that did.
    error: Option<SendError>,
}

impl From<Request> for Query {
    fn from(request: Request) -> Self {
        Self { request: Rc::new(request), error: None }
    }
}

impl Protocol for Cql {
    type Upstream = Route;
    type Request = Query;
    type Answer = Answer;
    type Error = SendError;

    const LOSER: Loser = Loser::Detach;
    /// Any node can coordinate any request, and knows best what its replicas can still do.
    const FALLBACK: Option<GroupId> = Some(Layout::EVERYBODY);

    fn name(route: &Route) -> &str {
        &route.config.name
    }

    fn calls(route: &Route) -> &Rc<Calls> {
        &route.calls
    }

    fn timeouts(route: &Route) -> Timeouts {
        route.config.timeouts
    }

    fn replay(query: &Query) -> Replay {
        query.request.what.replay
    }

    fn may_pair(query: &Query) -> bool {
        !query.request.what.is_write
    }

    fn group(route: &Route, datacenter: usize, query: &Query) -> GroupId {
        route.group(datacenter, &query.request.what)
    }

    fn send(
        route: &Rc<Route>,
        attempt: &OpenAttempt,
        query: &mut Query,
    ) -> impl Future<Output = Result<Answer, SendError>> + 'static {
        let node = route.node(attempt);
        let request = Rc::clone(&query.request);
        async move { node.ask(&request.dialect, request.ask.clone()).await }
    }

    fn learn(
        route: &Route,
        attempt: &OpenAttempt,
        answered: &mut Result<Answer, SendError>,
    ) -> Outcome {
        // The node refused the client's login or keyspace: that is an answer, too.
        if let Some(answer) = answered.as_ref().err().and_then(SendError::answer).cloned() {
            *answered = Ok(answer);
            return Outcome::Replied(None);
        }
        outcome(answered, || route.polled(attempt))
    }

    fn size(answer: &Answer) -> Option<u64> {
        Some(answer.body.len() as u64)
    }

    fn take_back(query: &mut Query, error: SendError) -> Result<(), Answer> {
        query.error = Some(error);
        Ok(())
    }

    fn client_is_late(_: &Query) -> Option<Answer> {
        None // it came as a whole
    }

    fn is_unavailable(answer: &Answer) -> bool {
        code(answer) == Some(ErrorCode::Overloaded)
    }

    fn is_failure(answer: &Answer) -> bool {
        code(answer).is_some_and(is_failure)
    }

    fn reroute(_: &Route, _: &mut Query, _: &SiteChoice) {}

    fn refuse(route: &Route, refusal: Refusal, query: &Query) -> Answer {
        route.refusal(refusal, &query.request, query.error.as_ref()).answer()
    }

    fn is_whole(_: &Answer) -> bool {
        true
    }

    fn attach(answer: Answer, _: Query, tail: Tail) -> Answer {
        tail.end(BodyEnd::Complete);
        answer
    }
}

/// What an answer, or that there is none, says of its node.
///
/// Errors that any coordinator would have answered with (syntax, rights, replicas that are down or
/// late) are answers: another node must not be asked for them in haste, and the drivers' own retry
/// policies know best what to do.
fn outcome(
    answered: &Result<Answer, SendError>,
    polled: impl FnOnce() -> Option<Feedback>,
) -> Outcome {
    match answered {
        Ok(answer) => match code(answer) {
            Some(ErrorCode::Overloaded) => Outcome::Failed(Failure::Unavailable),
            // It says that nothing was done.
            Some(ErrorCode::Bootstrapping) => Outcome::Failed(Failure::Unsent),
            Some(ErrorCode::ServerError) => Outcome::Failed(Failure::ErrorReply),
            Some(_) | None => Outcome::Replied(answer.feedback.or_else(polled)),
        },
        Err(error) if !error.was_sent() => Outcome::Failed(Failure::Unsent),
        Err(error) if error.kind() == SendErrorKind::Silent => Outcome::Failed(Failure::TimedOut),
        Err(_) => Outcome::Failed(Failure::Broken),
    }
}

/// Of an ERROR, its code.
fn code(answer: &Answer) -> Option<ErrorCode> {
    if answer.opcode != Opcode::Error {
        return None;
    }
    let (opcode, body) = (answer.opcode, answer.body.clone());
    let envelope = Envelope { flags: answer.flags, ..Envelope::new(Version::V4, 0, opcode, body) };
    let parts = payload::split(&envelope).ok()?;
    ErrorCode::of(Error::code_of(parts.message).ok()?)
}

/// Whether the user of a request that was answered with this error did not get what was asked for
/// because of the servers.
const fn is_failure(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::ServerError
            | ErrorCode::Unavailable
            | ErrorCode::Overloaded
            | ErrorCode::Bootstrapping
            | ErrorCode::WriteTimeout
            | ErrorCode::ReadTimeout
            | ErrorCode::ReadFailure
            | ErrorCode::WriteFailure
            | ErrorCode::CasWriteUnknown
    )
}
