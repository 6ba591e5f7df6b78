//! The copies of one request on their way: each flies, has answered or is over.
//!
//! What a copy's answer is (`A`) and how it fails (`E`) is the protocol's; sending, waiting and
//! time limits are the same for all.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use evenkeel_core::request::Outcome;
use evenkeel_core::{Feedback, Instant};

use super::{Calls, OpenAttempt, OpenCall};
use evenkeel_runtime::timer::Wait;

/// An attempt on its way.
pub(super) struct Pending<A, E> {
    pub(super) attempt: OpenAttempt,
    pub(super) answer: Pin<Box<dyn Future<Output = Result<A, E>>>>,
    pub(super) times_out_at: Instant,
}

/// An answer that is kept until the dispatcher says whose answer counts.
pub(super) struct Kept<A> {
    pub(super) answer: A,
    /// While not all of the answer has come.
    pub(super) attempt: Option<OpenAttempt>,
}

/// What became of a copy, by its number.
enum Copy<A, E> {
    Pending(Pending<A, E>),
    Answered(Kept<A>),
    /// It failed, lost, or was handed over.
    Over,
}

impl<A, E> Copy<A, E> {
    fn take_pending(&mut self) -> Option<Pending<A, E>> {
        match std::mem::replace(self, Self::Over) {
            Self::Pending(pending) => Some(pending),
            other => {
                *self = other;
                None
            }
        }
    }

    const fn pending(&self) -> Option<&Pending<A, E>> {
        match self {
            Self::Pending(pending) => Some(pending),
            Self::Answered(_) | Self::Over => None,
        }
    }
}

/// What ended a wait.
pub(super) enum Woken<A, E> {
    Answered(usize, Result<A, E>),
    /// A copy waits at its replica, which reports this.
    Queued(usize, Feedback),
    /// A further copy may be due, or the call's turn has come.
    Step,
    /// A time limit passed: of an attempt, or of the whole request.
    TimedOut,
}

/// The copies of one request.
pub(super) struct Attempts<A, E> {
    copies: Vec<Copy<A, E>>,
    expires_at: Instant,
    /// The next time limit: of an attempt, or of the whole request.
    limit: Wait,
}

impl<A, E> Attempts<A, E> {
    /// No copy yet, of a request that must be answered by then.
    pub(super) fn new(calls: &Calls, expires_at: Instant) -> Self {
        // Most requests need no second copy.
        Self { copies: Vec::with_capacity(1), expires_at, limit: calls.wait_until(expires_at) }
    }

    /// Sends the next copy, which must be answered by then.
    pub(super) fn start(
        &mut self,
        calls: &Calls,
        attempt: OpenAttempt,
        answer: impl Future<Output = Result<A, E>> + 'static,
        times_out_at: Instant,
    ) {
        let answer = Box::pin(answer);
        self.copies.push(Copy::Pending(Pending { attempt, answer, times_out_at }));
        self.set_limit(calls);
    }

    /// Arms the one timer of this request for its next time limit.
    fn set_limit(&mut self, calls: &Calls) {
        let attempts = self.pending().map(|pending| pending.times_out_at);
        let next = attempts.min().map_or(self.expires_at, |at| at.min(self.expires_at));
        self.limit = calls.wait_until(next);
    }

    fn pending(&self) -> impl Iterator<Item = &Pending<A, E>> {
        self.copies.iter().filter_map(Copy::pending)
    }

    /// Waits for an answer, for the next step, for the call's turn where it is held, or for a
    /// limit. Of the two times only the earlier one is waited for: most requests are answered
    /// before either, and arming a timer is what they cost.
    pub(super) async fn wait(&mut self, call: &OpenCall, due: Option<Wait>) -> Woken<A, E> {
        let is_held = self.pending().next().is_none();
        let mut due = due.filter(|due| due.deadline() < self.limit.deadline());
        let mut is_new = true;
        poll_fn(|context| {
            if let Some(answered) = self.poll_attempts(context) {
                return Poll::Ready(answered);
            }
            if let Some(queued) = self.poll_notices(context) {
                return Poll::Ready(queued);
            }
            if is_held {
                if !is_new && call.was_resumed() {
                    return Poll::Ready(Woken::Step);
                }
                is_new = false;
                call.hold(context.waker());
            }
            match &mut due {
                Some(due) => Pin::new(due).poll(context).map(|()| Woken::Step),
                None => Pin::new(&mut self.limit).poll(context).map(|()| Woken::TimedOut),
            }
        })
        .await
    }

    fn poll_attempts(&mut self, context: &mut Context<'_>) -> Option<Woken<A, E>> {
        for (number, copy) in self.copies.iter_mut().enumerate() {
            if let Copy::Pending(pending) = copy
                && let Poll::Ready(answer) = pending.answer.as_mut().poll(context)
            {
                return Some(Woken::Answered(number, answer));
            }
        }
        None
    }

    fn poll_notices(&self, context: &Context<'_>) -> Option<Woken<A, E>> {
        self.copies.iter().enumerate().find_map(|(number, copy)| {
            let report = copy.pending()?.attempt.take_notice(context.waker())?;
            Some(Woken::Queued(number, report))
        })
    }

    /// Tells a call what was heard of one of its copies.
    pub(super) fn hear_queued(&self, call: &mut OpenCall, copy: usize, report: &Feedback) {
        if let Some(pending) = self.copies[copy].pending() {
            call.hear_queued(&pending.attempt, report);
        }
    }

    /// Whether the answer of a copy is kept: one with an error, while another copy may do better.
    pub(super) fn has_answer(&self) -> bool {
        self.copies.iter().any(|copy| matches!(copy, Copy::Answered(_)))
    }

    /// How many copies there are, those that are over among them.
    pub(super) fn len(&self) -> usize {
        self.copies.len()
    }

    /// A copy that still flies, for whoever waits for it from now on; `None` when it is over.
    pub(super) fn release(&mut self, copy: usize) -> Option<Pending<A, E>> {
        self.copies[copy].take_pending()
    }

    /// All copies that still fly, with their numbers, and nobody is late any more: those that are
    /// late, or all where the whole request is.
    pub(super) fn release_late(&mut self, calls: &Calls) -> Vec<(usize, Pending<A, E>)> {
        let (now, is_expired) = (calls.read_at(), self.is_expired(calls));
        let is_late = |pending: &Pending<A, E>| is_expired || pending.times_out_at <= now;
        let copies = self.copies.iter_mut().enumerate();
        let late = copies.filter(|(_, copy)| copy.pending().is_some_and(is_late));
        let late = late.filter_map(|(number, copy)| Some((number, copy.take_pending()?))).collect();
        self.set_limit(calls);
        late
    }

    /// Whether the whole request has taken too long.
    pub(super) fn is_expired(&self, calls: &Calls) -> bool {
        calls.read_at() >= self.expires_at
    }

    /// Keeps a copy's answer until the dispatcher says whose answer counts.
    ///
    /// # Panics
    /// When the copy is still waited for.
    pub(super) fn keep(&mut self, copy: usize, kept: Kept<A>) {
        let place = &mut self.copies[copy];
        assert!(matches!(place, Copy::Over), "an answer is kept once, of a copy that landed");
        *place = Copy::Answered(kept);
    }

    /// The answer that is kept of a copy.
    pub(super) fn kept(&self, copy: usize) -> Option<&A> {
        match &self.copies[copy] {
            Copy::Answered(kept) => Some(&kept.answer),
            Copy::Pending(_) | Copy::Over => None,
        }
    }

    /// The answer of the copy that the dispatcher chose.
    ///
    /// # Panics
    /// When that copy has not answered: the dispatcher knows who did.
    pub(super) fn hand_over(&mut self, copy: usize) -> Kept<A> {
        match std::mem::replace(&mut self.copies[copy], Copy::Over) {
            Copy::Answered(kept) => kept,
            Copy::Pending(_) | Copy::Over => unreachable!("the dispatcher knows who answered"),
        }
    }

    /// An answer of which the dispatcher heard that nothing was done.
    pub(super) fn last_kept(&mut self) -> Option<A> {
        let copies = self.copies.iter_mut().rev();
        let mut kept = copies.filter_map(|copy| match std::mem::replace(copy, Copy::Over) {
            Copy::Answered(kept) => Some(kept.answer),
            Copy::Pending(_) | Copy::Over => None,
        });
        kept.next()
    }

    /// Gives every copy up, for what is not the replicas' doing.
    pub(super) fn cancel_all(&mut self, call: &mut OpenCall) {
        for copy in &mut self.copies {
            let Some(mut pending) = copy.take_pending() else { continue };
            call.settle(pending.attempt.learn(&Outcome::Cancelled));
        }
    }

    /// Forgets the copies of a call that another one follows.
    pub(super) fn clear(&mut self) {
        self.copies.clear();
    }
}
