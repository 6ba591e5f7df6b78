//! The life of one request over Cassandra's protocol: the loop around the dispatcher.
//!
//! The same arms as over HTTP and in the simulator. What is different is what a node's answer says
//! of it ([`outcome`]), and that a copy which lost is not taken back: its stream stays taken, the
//! node works on it, and its answer is learnt from when it comes ([`Exchange::leave_behind`]).

use std::rc::Rc;

use evenkeel_core::Feedback;
use evenkeel_core::request::{Failure, Outcome, Refusal};
use evenkeel_cql::response::Error;
use evenkeel_cql::{Envelope, ErrorCode, Opcode, Version, payload};

use super::front::Request;
use super::node::{Answer, SendError, SendErrorKind};
use super::route::Route;
use crate::calls::flights::{Flight, Flights, Woken};
use crate::calls::{HOME, Next, OpenAttempt, OpenCall, may_begin_again};
use crate::split::Journey;

type Answered = Result<Answer, SendError>;

/// One request, from open to answer.
pub(crate) struct Exchange {
    // Declared first, dropped first: the call is closed before its attempts are given up.
    call: OpenCall,
    flights: Flights<Answered, Answer>,
    request: Rc<Request>,
    route: Rc<Route>,
    /// Why the last attempt failed that did.
    error: Option<SendError>,
    /// Where requests are split between data centres.
    journey: Option<Journey>,
}

impl Exchange {
    pub(crate) fn open(route: Rc<Route>, request: Request) -> Self {
        let what = &request.what;
        route.calls.note_operation(what.is_write);
        let splits = route.calls.split().is_some();
        let journey = splits.then(|| route.calls.depart(route.bonds(what))).flatten();
        let datacenter = journey.as_ref().map_or(HOME, Journey::datacenter);
        let call = route.calls.open(datacenter, route.group(datacenter, what), what.replay);
        let flights = Flights::new(&route.calls, route.calls.after(route.config.timeouts.total));
        Self { call, flights, request: Rc::new(request), route, error: None, journey }
    }

    /// The loop around the dispatcher: the same arms as in the simulator.
    pub(crate) async fn run(&mut self) -> Answer {
        loop {
            match self.call.step() {
                Next::Send(attempt) => self.send(attempt),
                Next::Cancel(copy) => self.leave_behind(copy),
                Next::Wait(until) => {
                    let hedge = until.map(|due| self.route.calls.wait_for(due));
                    let woken = self.flights.wait(&self.call, hedge).await;
                    self.route.calls.tick();
                    match woken {
                        Woken::Answered(copy, answer) => self.take(copy, answer),
                        Woken::Step => {}
                        Woken::TimedOut if self.flights.is_expired() => {
                            self.time_out_all();
                            return self.refuse(Refusal::Failed(Failure::TimedOut));
                        }
                        Woken::TimedOut => self.time_out_late(),
                    }
                }
                Next::Answered(copy) if self.is_unavailable(copy) && self.begin_again(None) => {}
                Next::Answered(copy) => {
                    let answer = self.flights.hand_over(copy);
                    return self.arrive(answer);
                }
                Next::Refused(refusal) if self.begin_again(Some(refusal)) => {}
                Next::Refused(refusal) => return self.refuse(refusal),
            }
        }
    }

    /// Whether an answer says no more than that it cannot serve now.
    fn is_unavailable(&self, copy: usize) -> bool {
        let kept = self.flights.kept(copy).filter(|_| self.journey.is_some());
        kept.and_then(code) == Some(ErrorCode::Overloaded)
    }

    /// Begins again at home what another data centre did not serve, or elsewhere what home could
    /// not, if it may be sent again.
    fn begin_again(&mut self, refusal: Option<Refusal>) -> bool {
        let Some(journey) = &mut self.journey else { return false };
        let what = &self.request.what;
        if !may_begin_again(refusal, what.replay) || !journey.begin_again(refusal) {
            return false;
        }
        let datacenter = journey.datacenter();
        let group = self.route.group(datacenter, what);
        self.call = self.route.calls.open(datacenter, group, what.replay); // closes the one before
        self.flights.clear();
        true
    }

    fn send(&mut self, attempt: OpenAttempt) {
        let node = self.route.node(&attempt);
        let request = Rc::clone(&self.request);
        let answer = async move { node.ask(&request.dialect, request.ask.clone()).await };
        let times_out_at = self.route.calls.after(self.route.config.timeouts.attempt);
        self.flights.launch(&self.route.calls, attempt, answer, times_out_at);
    }

    /// Learns from an answer and keeps it for the client.
    fn take(&mut self, copy: usize, answered: Answered) {
        let Some(mut attempt) = self.flights.land(copy) else { return };
        let outcome = outcome(&answered, || self.route.polled(&attempt));
        self.call.settle(attempt.learn(&outcome));
        match answered {
            Ok(answer) => self.flights.keep(copy, answer),
            Err(error) => {
                tracing::debug!(upstream = %self.route.config.name, %error, "attempt failed");
                if let Some(answer) = error.answer() {
                    self.flights.keep(copy, answer.clone());
                }
                self.error = Some(error);
            }
        }
    }

    /// Leaves a copy that lost to itself.
    fn leave_behind(&mut self, copy: usize) {
        if let Some(flight) = self.flights.release(copy) {
            tokio::task::spawn_local(await_loser(Rc::clone(&self.route), flight));
        }
    }

    fn time_out_late(&mut self) {
        let late = self.flights.release_late(&self.route.calls);
        self.time_out(late);
    }

    fn time_out_all(&mut self) {
        let all = self.flights.release_all();
        self.time_out(all);
    }

    /// These have failed. Their nodes work on them until they answer or their connections break.
    fn time_out(&mut self, late: Vec<Flight<Answered>>) {
        for mut flight in late {
            self.call.settle(flight.attempt.learn(&Outcome::Failed(Failure::TimedOut)));
            tokio::task::spawn_local(await_loser(Rc::clone(&self.route), flight));
        }
    }

    fn refuse(&mut self, refusal: Refusal) -> Answer {
        tracing::debug!(upstream = %self.route.config.name, ?refusal, "request refused");
        let told = self.route.refusal(refusal, &self.request, self.error.as_ref());
        self.arrive(told.answer())
    }

    /// Ends the journey, if there was one.
    fn arrive(&mut self, answer: Answer) -> Answer {
        if let Some(journey) = self.journey.take() {
            journey.end(code(&answer).is_some_and(is_failure));
        }
        answer
    }
}

/// Waits for the answer of a copy that lost or was late: it says most about a slow node, and until
/// then the node works on it. Ends when the connection does, which is watched.
async fn await_loser(route: Rc<Route>, flight: Flight<Answered>) {
    let Flight { mut attempt, answer, .. } = flight;
    let answered = answer.await;
    if !attempt.is_learnt() {
        route.calls.tick();
        let outcome = outcome(&answered, || route.polled(&attempt));
        attempt.learn_late(&outcome);
    }
}

/// What an answer, or that there is none, says of its node.
///
/// Errors that any coordinator would have answered with (syntax, rights, replicas that are down or
/// late) are answers: another node must not be asked for them in haste, and the drivers' own retry
/// policies know best what to do.
fn outcome(answered: &Answered, polled: impl FnOnce() -> Option<Feedback>) -> Outcome {
    match answered {
        Ok(answer) => match code(answer) {
            Some(ErrorCode::Overloaded) => Outcome::Failed(Failure::Unavailable),
            // It says that nothing was done.
            Some(ErrorCode::Bootstrapping) => Outcome::Failed(Failure::Unsent),
            Some(ErrorCode::ServerError) => Outcome::Failed(Failure::ErrorReply),
            Some(_) | None => Outcome::Replied(answer.feedback.or_else(polled)),
        },
        // The node refused the client's login or keyspace: that is an answer, too.
        Err(error) if error.answer().is_some() => Outcome::Replied(None),
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
