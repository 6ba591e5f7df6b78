//! The copies of one request on their way: each flies, has answered or is over.
//!
//! What a copy's answer is (`A`) and what of it is kept until the dispatcher says whose answer
//! counts (`K`) is the protocol's; sending, waiting and time limits are the same for all.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use evenkeel_core::request::{Failure, Outcome};

use super::{Calls, OpenAttempt, OpenCall};
use crate::timer::Wait;

/// An attempt on its way.
pub(crate) struct Flight<A> {
    pub(crate) attempt: OpenAttempt,
    pub(crate) answer: Pin<Box<dyn Future<Output = A>>>,
    times_out_at: Instant,
}

/// What became of a copy, by its number.
enum Copy<A, K> {
    Flying(Flight<A>),
    /// Its answer is kept until the dispatcher says whose answer counts.
    Answered(K),
    /// It failed, lost, or was handed over.
    Over,
}

impl<A, K> Copy<A, K> {
    fn take_flight(&mut self) -> Option<Flight<A>> {
        match std::mem::replace(self, Self::Over) {
            Self::Flying(flight) => Some(flight),
            other => {
                *self = other;
                None
            }
        }
    }

    const fn flight(&self) -> Option<&Flight<A>> {
        match self {
            Self::Flying(flight) => Some(flight),
            Self::Answered(_) | Self::Over => None,
        }
    }
}

/// What ended a wait.
pub(crate) enum Woken<A> {
    Answered(usize, A),
    /// A hedge is due, or the call's turn has come.
    Step,
    /// A time limit passed: of an attempt, or of the whole request.
    TimedOut,
}

/// The copies of one request.
pub(crate) struct Flights<A, K> {
    copies: Vec<Copy<A, K>>,
    expires_at: Instant,
    /// The next time limit: of an attempt, or of the whole request.
    limit: Wait,
}

impl<A, K> Flights<A, K> {
    /// No copy yet, of a request that must be answered by then.
    pub(crate) fn new(calls: &Calls, expires_at: Instant) -> Self {
        // Most requests need no second copy.
        Self { copies: Vec::with_capacity(1), expires_at, limit: calls.timer.at(expires_at) }
    }

    /// Sends the next copy, which must be answered by then.
    pub(crate) fn launch(
        &mut self,
        calls: &Calls,
        attempt: OpenAttempt,
        answer: impl Future<Output = A> + 'static,
        times_out_at: Instant,
    ) {
        let answer = Box::pin(answer);
        self.copies.push(Copy::Flying(Flight { attempt, answer, times_out_at }));
        self.set_limit(calls);
    }

    /// Arms the one timer of this request for its next time limit.
    fn set_limit(&mut self, calls: &Calls) {
        let attempts = self.flying().map(|flight| flight.times_out_at);
        let next = attempts.min().map_or(self.expires_at, |at| at.min(self.expires_at));
        self.limit = calls.timer.at(next);
    }

    fn flying(&self) -> impl Iterator<Item = &Flight<A>> {
        self.copies.iter().filter_map(Copy::flight)
    }

    /// Waits for an answer, for `hedge`, for the call's turn where it is held, or for a limit.
    pub(crate) async fn wait(&mut self, call: &OpenCall, mut hedge: Option<Wait>) -> Woken<A> {
        let is_held = self.flying().next().is_none();
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
                if !is_new && call.was_resumed() {
                    return Poll::Ready(Woken::Step);
                }
                is_new = false;
                call.hold(context.waker());
            }
            Pin::new(&mut self.limit).poll(context).map(|()| Woken::TimedOut)
        })
        .await
    }

    fn poll_flights(&mut self, context: &mut Context<'_>) -> Option<Woken<A>> {
        for (number, copy) in self.copies.iter_mut().enumerate() {
            if let Copy::Flying(flight) = copy
                && let Poll::Ready(answer) = flight.answer.as_mut().poll(context)
            {
                return Some(Woken::Answered(number, answer));
            }
        }
        None
    }

    /// The attempt of a copy that has just answered or failed; `None` when it is over already.
    pub(crate) fn land(&mut self, copy: usize) -> Option<OpenAttempt> {
        self.copies[copy].take_flight().map(|flight| flight.attempt)
    }

    /// Keeps a copy's answer until the dispatcher says whose answer counts.
    pub(crate) fn keep(&mut self, copy: usize, answer: K) {
        self.copies[copy] = Copy::Answered(answer);
    }

    /// The answer that is kept of a copy.
    pub(crate) fn kept(&self, copy: usize) -> Option<&K> {
        match &self.copies[copy] {
            Copy::Answered(answer) => Some(answer),
            Copy::Flying(_) | Copy::Over => None,
        }
    }

    /// The answer of the copy that the dispatcher chose.
    ///
    /// # Panics
    /// When that copy has not answered: the dispatcher knows who did.
    pub(crate) fn hand_over(&mut self, copy: usize) -> K {
        match std::mem::replace(&mut self.copies[copy], Copy::Over) {
            Copy::Answered(answer) => answer,
            Copy::Flying(_) | Copy::Over => unreachable!("the dispatcher knows who answered"),
        }
    }

    /// Gives a copy up that lost.
    pub(crate) fn cancel(&mut self, call: &mut OpenCall, copy: usize) {
        let Some(mut attempt) = self.land(copy) else { return };
        call.settle(attempt.give_up());
    }

    /// Gives every copy up, for what is not the replicas' doing.
    pub(crate) fn cancel_all(&mut self, call: &mut OpenCall) {
        for copy in 0..self.copies.len() {
            let Some(mut attempt) = self.land(copy) else { continue };
            call.settle(attempt.learn(&Outcome::Cancelled));
        }
    }

    /// A copy that still flies, for whoever waits for it from now on.
    pub(crate) fn release(&mut self, copy: usize) -> Option<Flight<A>> {
        self.copies[copy].take_flight()
    }

    /// All copies that still fly.
    pub(crate) fn release_all(&mut self) -> Vec<Flight<A>> {
        self.copies.iter_mut().filter_map(Copy::take_flight).collect()
    }

    /// The copies that are late.
    pub(crate) fn release_late(&mut self, calls: &Calls) -> Vec<Flight<A>> {
        let now = Instant::now();
        let is_late =
            |copy: &&mut Copy<A, K>| copy.flight().is_some_and(|flight| flight.times_out_at <= now);
        let late = self.copies.iter_mut().filter(is_late).filter_map(Copy::take_flight).collect();
        self.set_limit(calls);
        late
    }

    /// Whether the whole request has taken too long.
    pub(crate) fn is_expired(&self) -> bool {
        Instant::now() >= self.expires_at
    }

    /// Fails the copies that are late, and gives them up.
    pub(crate) fn time_out(&mut self, calls: &Calls, call: &mut OpenCall) {
        for flight in self.release_late(calls) {
            fail(flight, call);
        }
    }

    /// Fails all copies that still fly, and gives them up: the whole request took too long.
    pub(crate) fn expire(&mut self, call: &mut OpenCall) {
        for flight in self.release_all() {
            fail(flight, call);
        }
    }

    /// Forgets the copies of a call that another one follows.
    pub(crate) fn clear(&mut self) {
        self.copies.clear();
    }
}

fn fail<A>(mut flight: Flight<A>, call: &mut OpenCall) {
    call.settle(flight.attempt.learn(&Outcome::Failed(Failure::TimedOut)));
}
