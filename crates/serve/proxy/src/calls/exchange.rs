//! The life of one request, whatever its protocol: the loop around core's dispatcher.
//!
//! Everything that is decided is decided by `step`; this file sends, waits and hands over, with the
//! same arms as the simulator. A [`Protocol`] says what its messages mean.
//!
//! The head of an answer settles its call: latency, policies and hedging learn from it. The last
//! byte settles the attempt: a body that breaks off is its replica's failure. Between the two the
//! [`Tail`] keeps what must live as long: the attempt, the choice of the site, the record.

use std::fmt::Display;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use evenkeel_core::request::{BodyEnd, Failure, Kind, Outcome, Refusal, Replay, Request};
use evenkeel_core::{GroupId, Instant};

use evenkeel_geo::split::patience::Waits;
use evenkeel_runtime::timer::Wait;
use tokio::sync::oneshot;

use super::attempts::{Attempts, Kept, Pending, Woken};
use super::observer::{Event, Record};
use super::{Calls, Next, OpenAttempt, OpenCall};
use crate::config::Timeouts;
use crate::requests::record::RequestRecord;
use crate::site_choice::SiteChoice;
use crate::site_setup::HOME;

/// What becomes of a copy that lost, or was late.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loser {
    /// It is cancelled: its future is dropped, and the attempt ends.
    Cancel,
    /// Its replica works on it all the same. It stays in flight until its answer comes, which is
    /// learnt from: it says most about a slow replica.
    Detach,
}

/// What an exchange must know of a protocol.
pub trait Protocol: Sized + 'static {
    /// What one worker has of an upstream.
    type Upstream: 'static;
    /// What is sent, as often as it may be.
    type Request;
    /// What the client is told.
    type Answer: 'static;
    /// Why an attempt brought no answer.
    type Error: Display + 'static;

    /// What becomes of a copy that lost.
    const LOSER: Loser;

    /// Who is asked in a data centre where nobody of a request's group is up.
    const FALLBACK: Option<GroupId> = None;

    /// The name of an upstream, for the log.
    fn name(upstream: &Self::Upstream) -> &str;

    /// The calls of an upstream.
    fn calls(upstream: &Self::Upstream) -> &Rc<Calls>;

    /// How long its attempts and requests may take.
    fn timeouts(upstream: &Self::Upstream) -> Timeouts;

    /// How long a request may take to the head of its answer.
    fn total(upstream: &Self::Upstream, _request: &Self::Request) -> Duration {
        Self::timeouts(upstream).total
    }

    /// Whether the request may be sent again.
    fn replay(request: &Self::Request) -> Replay;

    /// Whether it only reads, so that a second replica may do the same at once for the record: a
    /// write twice at once is not what the client asked for, be it idempotent.
    fn may_pair(request: &Self::Request) -> bool;

    /// The replicas of a data centre any of which can answer it.
    fn group(upstream: &Self::Upstream, datacenter: usize, request: &Self::Request) -> GroupId;

    /// Sends a copy. Dropping the future gives it up.
    fn send(
        upstream: &Rc<Self::Upstream>,
        attempt: &OpenAttempt,
        request: &mut Self::Request,
    ) -> impl Future<Output = Result<Self::Answer, Self::Error>> + 'static;

    /// Sends the questions that the policy wants asked in a data centre
    /// ([`Calls::probe`]). Called when a request has been sent, or waits.
    fn ask(_upstream: &Rc<Self::Upstream>, _datacenter: usize) {}

    /// What the head of an answer, or that there is none, says of its replica. Takes off the answer
    /// what is not for the client; may put an answer in place of an error.
    fn learn(
        upstream: &Self::Upstream,
        attempt: &OpenAttempt,
        answer: &mut Result<Self::Answer, Self::Error>,
    ) -> Outcome;

    /// How many bytes an answer has, where that is known.
    fn size(_answer: &Self::Answer) -> Option<u64> {
        None
    }

    /// Has the agents told the number of a request with each copy, from now on; `None`: no longer.
    fn tell_number(_: &Self::Upstream, _: &mut Self::Request, _number: Option<u64>) {}

    /// Takes back what an attempt did not send.
    ///
    /// # Errors
    /// When the client is at fault: what it is told.
    fn take_back(request: &mut Self::Request, error: Self::Error) -> Result<(), Self::Answer>;

    /// What a client is told that is at fault when a time limit passes, because all wait for it;
    /// `None` when the replicas are late.
    fn client_is_late(request: &Self::Request) -> Option<Self::Answer>;

    /// Whether an answer says no more than that its replica cannot serve now.
    fn is_unavailable(answer: &Self::Answer) -> bool;

    /// Whether a user with this answer did not get what was asked for, because of the servers.
    fn is_failure(answer: &Self::Answer) -> bool;

    /// Prepares a request that goes to another data centre now.
    fn reroute(upstream: &Self::Upstream, request: &mut Self::Request, choice: &SiteChoice);

    /// What the client is told when there is no answer.
    fn refuse(upstream: &Self::Upstream, refusal: Refusal, request: &Self::Request)
    -> Self::Answer;

    /// Writes down what an answer is: its status, its size.
    fn describe(_answer: &Self::Answer, _into: &mut RequestRecord) {}

    /// Whether all of an answer has come with its head.
    fn is_whole(answer: &Self::Answer) -> bool;

    /// Ties an answer that is not whole to what lives until its last byte: whoever passes that on
    /// calls [`Tail::end`]. Of the request, what the end depends on may be kept.
    fn attach(answer: Self::Answer, request: Self::Request, tail: Tail) -> Self::Answer;
}

/// One request, from open to answer.
pub struct Exchange<P: Protocol> {
    // Declared first, dropped first: the call is closed before its attempts are given up.
    call: OpenCall,
    attempts: Attempts<P::Answer, P::Error>,
    request: P::Request,
    upstream: Rc<P::Upstream>,
    /// Of a request of our own users, where these are split between data centres.
    choice: Option<SiteChoice>,
    record: Record,
    /// Dropped with the rest when there is an answer: then the second copy of a pair is given up.
    pair: Option<oneshot::Sender<()>>,
}

impl<P: Protocol> Exchange<P> {
    /// Begins with a request that is to go where its site choice says: home, if it has none. The
    /// clock was read for it: by [`Record::of`], or since.
    pub fn open(
        upstream: Rc<P::Upstream>,
        mut request: P::Request,
        choice: Option<SiteChoice>,
        record: Record,
    ) -> Box<Self> {
        let datacenter = choice.as_ref().map_or(HOME, SiteChoice::datacenter);
        let call = open::<P>(&upstream, datacenter, &request);
        let number = call.number();
        if number.is_some() {
            P::tell_number(&upstream, &mut request, number);
        }
        let calls = P::calls(&upstream);
        let attempts = Attempts::new(calls, calls.read_at() + P::total(&upstream, &request));
        // It is large, and lives in futures: there it would be copied each time one is moved.
        Box::new(Self { call, attempts, request, upstream, choice, record, pair: None })
    }

    /// The loop around the dispatcher.
    pub async fn run(mut self: Box<Self>) -> P::Answer {
        loop {
            match self.call.step(&mut self.record) {
                Next::Send(attempt) => self.send(attempt),
                Next::Cancel(copy) => {
                    if let Some(pending) = self.attempts.release(copy) {
                        self.lose(copy, pending);
                    }
                }
                Next::Wait(until) => {
                    P::ask(&self.upstream, self.call.datacenter());
                    let Waits::Until(leaves_at) = self.leave() else { continue };
                    let until = match (until, leaves_at) {
                        (Some(due), Some(leaves_at)) => Some(due.at.min(leaves_at)),
                        (due, leaves_at) => due.map(|due| due.at).or(leaves_at),
                    };
                    if let Some(answer) = self.wait(until).await {
                        return answer;
                    }
                }
                Next::Answered(copy) if self.is_unavailable(copy) && self.begin_again(None) => {}
                Next::Answered(copy) => return self.answer(copy),
                Next::Refused(refusal) if self.begin_again(Some(refusal)) => {}
                Next::Refused(refusal) => return self.refuse(refusal),
            }
        }
    }

    fn calls(&self) -> &Rc<Calls> {
        P::calls(&self.upstream)
    }

    #[inline(always)]
    fn note(&mut self, event: Event) {
        self.record.event(|| P::calls(&self.upstream).read_at(), event);
    }

    fn send(&mut self, attempt: OpenAttempt) {
        let (datacenter, replica, kind) = (attempt.datacenter(), attempt.replica(), attempt.kind());
        let answer = P::send(&self.upstream, &attempt, &mut self.request);
        let calls = P::calls(&self.upstream);
        let times_out_at = calls.read_at() + P::timeouts(&self.upstream).attempt;
        self.attempts.start(calls, attempt, answer, times_out_at);
        self.note(Event::Sent { datacenter, replica, kind });
        if kind == Kind::First
            && P::may_pair(&self.request)
            && let Some(pair) = self.call.pair()
        {
            self.send_pair(pair, times_out_at);
        }
    }

    /// Sends the same request to a second replica, only to see what it costs there: nobody is
    /// given its answer. Every other one is given up as a hedge that lost is, if that can be: only
    /// so it shows whether replicas stop working then.
    #[cold]
    fn send_pair(&mut self, attempt: OpenAttempt, times_out_at: Instant) {
        let is_even = self.call.number().is_some_and(|number| number.is_multiple_of(2));
        let given_up = (is_even && matches!(P::LOSER, Loser::Cancel)).then(|| {
            let (answered, given_up) = oneshot::channel();
            self.pair = Some(answered);
            given_up
        });
        let answer = P::send(&self.upstream, &attempt, &mut self.request);
        let answer: Answering<P> = Box::pin(answer);
        let limit = self.calls().wait_until(times_out_at);
        let pending = Pending { attempt, answer, times_out_at };
        let upstream = Rc::clone(&self.upstream);
        tokio::task::spawn_local(await_pair::<P>(upstream, pending, limit, given_up));
    }

    /// Gives up a copy that lost.
    fn lose(&mut self, copy: usize, mut pending: Pending<P::Answer, P::Error>) {
        self.note(Event::Left { copy });
        match P::LOSER {
            Loser::Cancel => self.call.settle(pending.attempt.give_up()),
            Loser::Detach => self.abandon(pending),
        }
    }

    /// Nobody waits for this copy any more.
    fn abandon(&self, pending: Pending<P::Answer, P::Error>) {
        match P::LOSER {
            Loser::Cancel => drop(pending),
            Loser::Detach => {
                tokio::task::spawn_local(await_loser::<P>(Rc::clone(&self.upstream), pending));
            }
        }
    }

    /// Waits for something to happen. Answers when there is nothing more to wait for.
    async fn wait(&mut self, until: Option<Instant>) -> Option<P::Answer> {
        let due = until.map(|at| self.calls().wait_until(at));
        let woken = self.attempts.wait(&self.call, due).await;
        self.calls().tick();
        match woken {
            Woken::Answered(copy, answer) => self.take(copy, answer),
            Woken::Queued(copy, report) => {
                self.attempts.hear_queued(&mut self.call, copy, &report);
                None
            }
            Woken::Step => None,
            Woken::TimedOut => self.time_out(),
        }
    }

    /// Learns from an answer and keeps it for the client.
    fn take(&mut self, copy: usize, mut answer: Result<P::Answer, P::Error>) -> Option<P::Answer> {
        let Pending { mut attempt, .. } = self.attempts.release(copy)?;
        note_size::<P>(&mut attempt, &answer);
        let outcome = P::learn(&self.upstream, &attempt, &mut answer);
        self.call.settle(attempt.learn(&outcome));
        self.note(Event::Learnt { copy, outcome });
        match answer {
            Ok(answer) => {
                let mut attempt = Some(attempt);
                if P::is_whole(&answer) {
                    attempt.take().into_iter().for_each(|it| it.finish(BodyEnd::Complete));
                }
                self.attempts.keep(copy, Kept { answer, attempt });
                None
            }
            Err(error) => {
                tracing::debug!(upstream = P::name(&self.upstream), %error, "attempt failed");
                let reported = P::take_back(&mut self.request, error).err()?;
                Some(self.blame_client(reported))
            }
        }
    }

    /// A limit has passed. Answers when there is nothing more to wait for.
    fn time_out(&mut self) -> Option<P::Answer> {
        if let Some(reported) = P::client_is_late(&self.request) {
            self.attempts.cancel_all(&mut self.call);
            return Some(self.blame_client(reported));
        }
        let calls = Rc::clone(self.calls());
        for (copy, pending) in self.attempts.release_late(&calls) {
            self.fail_late(copy, pending);
        }
        self.attempts.is_expired(&calls).then(|| {
            self.call.expire();
            self.refuse(Refusal::Failed(Failure::TimedOut))
        })
    }

    /// A copy was not answered in time.
    fn fail_late(&mut self, copy: usize, mut pending: Pending<P::Answer, P::Error>) {
        let outcome = Outcome::Failed(Failure::TimedOut);
        self.call.settle(pending.attempt.learn(&outcome));
        self.note(Event::Learnt { copy, outcome });
        self.abandon(pending);
    }

    /// Comes home from another data centre that does not answer, if it may be sent again; or says
    /// how long it waits there.
    fn leave(&mut self) -> Waits {
        const AS_LONG_AS_IT_TAKES: Waits = Waits::Until(None);
        let choice = self.choice.as_mut().filter(|choice| choice.is_away());
        let Some(choice) = choice else { return AS_LONG_AS_IT_TAKES };
        let is_bound = !P::replay(&self.request).is_allowed_after(Failure::TimedOut);
        let has_answer = is_bound || self.attempts.has_answer();
        if has_answer || P::client_is_late(&self.request).is_some() {
            return AS_LONG_AS_IT_TAKES;
        }
        let waits = choice.waits(self.call.silent_at());
        if matches!(waits, Waits::Until(_)) {
            return waits;
        }
        for copy in 0..self.attempts.len() {
            match self.attempts.release(copy) {
                Some(pending) if waits == Waits::InVain => self.fail_late(copy, pending),
                Some(pending) => self.lose(copy, pending),
                None => {}
            }
        }
        self.choice.iter_mut().for_each(SiteChoice::leave);
        self.reopen();
        waits
    }

    /// Whether an answer says no more than that it cannot serve now, where others may be asked.
    fn is_unavailable(&self, copy: usize) -> bool {
        let kept = self.attempts.kept(copy).filter(|_| self.choice.is_some());
        kept.is_some_and(P::is_unavailable)
    }

    /// Begins again at home what another data centre did not serve, or elsewhere what home could
    /// not, if it may be sent again.
    fn begin_again(&mut self, refusal: Option<Refusal>) -> bool {
        let Some(choice) = &mut self.choice else { return false };
        let may_be_sent = may_begin_again(refusal, P::replay(&self.request));
        if !may_be_sent || !choice.begin_again(refusal) {
            return false;
        }
        self.reopen();
        true
    }

    /// Begins again where its site choice says now.
    fn reopen(&mut self) {
        let Some(choice) = &self.choice else { return };
        P::reroute(&self.upstream, &mut self.request, choice);
        let datacenter = choice.datacenter();
        self.call = open::<P>(&self.upstream, datacenter, &self.request); // closes the one before
        P::tell_number(&self.upstream, &mut self.request, self.call.number());
        self.attempts.clear();
        self.note(Event::BegunAgain { datacenter });
    }

    /// Hands over the answer of a copy.
    #[expect(clippy::boxed_local, reason = "out of its box it would be moved, all of it")]
    fn answer(mut self: Box<Self>, copy: usize) -> P::Answer {
        let Kept { answer, attempt } = self.attempts.hand_over(copy);
        self.note(Event::Answered { copy });
        self.record_answer(&answer);
        if let Some(choice) = &mut self.choice {
            choice.answer(P::is_failure(&answer));
        }
        let Some(attempt) = attempt else {
            self.end();
            return answer;
        };
        let (choice, record) = (self.choice.take(), std::mem::take(&mut self.record));
        let tail = Tail { attempt: Some(attempt), choice, record, end: BodyEnd::ClientGone };
        P::attach(answer, self.request, tail)
    }

    fn refuse(&mut self, refusal: Refusal) -> P::Answer {
        tracing::debug!(upstream = P::name(&self.upstream), ?refusal, "request refused");
        self.note(Event::Refused(refusal));
        self.choice.iter_mut().for_each(|choice| choice.answer(true));
        self.end();
        // In a replica's own words, where one said that it did nothing.
        let said = match refusal {
            Refusal::Failed(Failure::Unsent) => self.attempts.last_kept(),
            _ => None,
        };
        let answer = said.unwrap_or_else(|| P::refuse(&self.upstream, refusal, &self.request));
        self.record_answer(&answer);
        answer
    }

    /// Writes down what the client is given.
    fn record_answer(&mut self, answer: &P::Answer) {
        let Some(draft) = self.record.draft() else { return };
        P::describe(answer, draft.record());
        if draft.record().is_reduced {
            draft.set_dimmer(|datacenter, replica| {
                let dispatcher = P::calls(&self.upstream).dispatcher(datacenter);
                dispatcher.fleet().replica(replica).dimmer().map(|(dimmer, _)| dimmer.value())
            });
        }
    }

    /// All of the answer is there.
    fn end(&mut self) {
        self.choice.take().into_iter().for_each(|choice| choice.end(BodyEnd::Complete));
        self.note(Event::Ended(BodyEnd::Complete));
    }

    /// What a client is told that is at fault says nothing of any site.
    fn blame_client(&mut self, reported: P::Answer) -> P::Answer {
        self.choice.take().into_iter().for_each(SiteChoice::forget);
        reported
    }
}

fn open<P: Protocol>(upstream: &P::Upstream, datacenter: usize, request: &P::Request) -> OpenCall {
    let group = P::group(upstream, datacenter, request);
    let request = Request::new(group, P::replay(request));
    P::calls(upstream).open(datacenter, Request { fallback: P::FALLBACK, ..request })
}

/// Whether what ended with a refusal or (`None`) an answer of "unavailable" may be sent once more,
/// to another data centre.
fn may_begin_again(refusal: Option<Refusal>, replay: Replay) -> bool {
    match refusal {
        Some(Refusal::NoReplica | Refusal::BacklogFull) => true,
        Some(Refusal::Failed(failure)) => replay.is_allowed_after(failure),
        None => replay.is_allowed_after(Failure::Unavailable),
    }
}

fn note_size<P: Protocol>(attempt: &mut OpenAttempt, answer: &Result<P::Answer, P::Error>) {
    answer.as_ref().ok().and_then(P::size).into_iter().for_each(|bytes| attempt.note_size(bytes));
}

type Answering<P> =
    Pin<Box<dyn Future<Output = Result<<P as Protocol>::Answer, <P as Protocol>::Error>>>>;

/// Waits for the answer of the second copy of a pair: as long as for any other, or until its
/// request has an answer.
async fn await_pair<P: Protocol>(
    upstream: Rc<P::Upstream>,
    mut pending: Pending<P::Answer, P::Error>,
    limit: Wait,
    mut given_up: Option<oneshot::Receiver<()>>,
) {
    let mut limit = pin!(limit);
    let ended = poll_fn(|context| {
        if let Poll::Ready(answer) = pending.answer.as_mut().poll(context) {
            return Poll::Ready(Some(Some(answer)));
        }
        let given_up = given_up.as_mut().map(|given_up| Pin::new(given_up).poll(context));
        if given_up.is_some_and(|given_up| given_up.is_ready()) {
            return Poll::Ready(None);
        }
        limit.as_mut().poll(context).map(|()| Some(None))
    });
    let ended = ended.await;
    P::calls(&upstream).tick();
    let Some(answer) = ended else {
        return drop(pending);
    };
    let Some(mut answer) = answer else {
        return pending.attempt.learn_late(&Outcome::Failed(Failure::TimedOut));
    };
    note_size::<P>(&mut pending.attempt, &answer);
    let outcome = P::learn(&upstream, &pending.attempt, &mut answer);
    pending.attempt.learn_late(&outcome);
    if answer.as_ref().is_ok_and(P::is_whole) {
        pending.attempt.finish(BodyEnd::Complete); // of another one nobody wants the rest
    }
}

/// Waits for the answer of a copy that lost or was late. Ends when its connection does, which is
/// watched.
async fn await_loser<P: Protocol>(
    upstream: Rc<P::Upstream>,
    pending: Pending<P::Answer, P::Error>,
) {
    let Pending { mut attempt, answer, .. } = pending;
    let mut answer = answer.await;
    if !attempt.is_learnt() {
        P::calls(&upstream).tick();
        note_size::<P>(&mut attempt, &answer);
        let outcome = P::learn(&upstream, &attempt, &mut answer);
        attempt.learn_late(&outcome);
    }
    if answer.as_ref().is_ok_and(P::is_whole) {
        attempt.finish(BodyEnd::Complete); // of another one nobody wants the rest
    }
}

/// What lives until the last byte of an answer. Dropped without an end, the client has gone.
pub struct Tail {
    /// `None` only while being dropped.
    attempt: Option<OpenAttempt>,
    choice: Option<SiteChoice>,
    record: Record,
    end: BodyEnd,
}

impl Tail {
    /// The body has come to this end.
    pub fn end(mut self, end: BodyEnd) {
        self.end = end; // the rest is done where it is dropped, however that comes about
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        let Some(attempt) = self.attempt.take() else { return };
        let (calls, end) = (Rc::clone(attempt.calls()), self.end);
        attempt.finish(end);
        self.choice.take().into_iter().for_each(|choice| choice.end(end));
        self.record.event(|| calls.tick(), Event::Ended(end));
    }
}

#[cfg(test)]
mod tests;
