//! Fills one record while its request lasts, and keeps it at the end, however that comes about.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use evenkeel_core::distribution::RollingRecorder;
use evenkeel_core::request::decision::{Decisions, HedgeFate, Verdict};
use evenkeel_core::request::{BodyEnd, Failure, Outcome, Refusal};
use evenkeel_core::time::Duration;
use evenkeel_core::units::Probability;
use evenkeel_core::{Instant, ReplicaId};
use evenkeel_runtime::clock::Clock;

use super::access::Access;
use super::event::Event;
use super::log::Writer;
use super::record::{
    ATTEMPTS_MAX, AttemptEnd, Place, Remarks, RequestEnd, RequestRecord, Text, Told, Try, Why,
    micros,
};
use super::traces::Traces;

/// Slow is what takes longer than this quantile of the last [`LEARNT_OVER`].
const SLOW_ABOVE: f64 = 0.99;
const LEARNT_OVER: Duration = Duration::from_secs(30);
/// Before so many requests nobody knows what is slow.
const SAMPLES_MIN: u64 = 200;
/// Of more requests each eighth is learnt from, and each that comes so long after the last: what is
/// slow does not change from one to the next.
const LEARNT_EVERY: u64 = 8;
const RARE: Duration = Duration::from_millis(5);

/// Who is told of requests that have ended, beside the records of their worker.
#[derive(Clone, Debug, Default)]
pub struct Sinks {
    /// The access log.
    pub access: Option<Access>,
    /// Traces.
    pub traces: Option<Traces>,
}

/// Keeps the requests of one upstream on one worker.
pub struct Recorder {
    clock: Clock,
    upstream: u16,
    writer: Rc<RefCell<Writer>>,
    latency: RefCell<RollingRecorder>,
    /// What is slow, as it was last learnt.
    slow: Cell<Option<Duration>>,
    ended: Cell<u64>,
    learnt_at: Cell<Instant>,
    objective: Cell<Option<Duration>>,
    sinks: Sinks,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recorder(upstream {})", self.upstream)
    }
}

impl Recorder {
    /// Of the upstream in this place, whose objective is known where there is one.
    pub fn new(
        clock: Clock,
        upstream: usize,
        objective: Option<Duration>,
        (writer, sinks): (Rc<RefCell<Writer>>, Sinks),
    ) -> Rc<Self> {
        let latency = RollingRecorder::new(LEARNT_OVER, SAMPLES_MIN);
        Rc::new(Self {
            clock,
            upstream: upstream as u16,
            writer,
            latency: RefCell::new(latency.expect("the window is above zero")),
            slow: Cell::new(None),
            ended: Cell::new(0),
            learnt_at: Cell::new(Instant::ZERO),
            objective: Cell::new(objective),
            sinks,
        })
    }

    /// Takes over another objective.
    pub fn set_objective(&self, objective: Option<Duration>) {
        self.objective.set(objective);
    }

    /// Begins with a request that comes now.
    pub fn begin(self: &Rc<Self>, now: Instant) -> Draft {
        Draft {
            record: RequestRecord::new(now, self.upstream),
            recorder: Rc::clone(self),
            base: 0,
            cost: f32::NAN,
            ended_at: None,
            at_end: None,
        }
    }

    /// What is remarkable of its time. Learns it.
    fn judge_time(&self, now: Instant, total: Duration, remarks: &mut Remarks) {
        let slow = self.slow.get();
        let ended = self.ended.get() + 1;
        self.ended.set(ended);
        let is_rare = now >= self.learnt_at.get() + RARE;
        if ended <= SAMPLES_MIN || ended.is_multiple_of(LEARNT_EVERY) || is_rare {
            self.learnt_at.set(now);
            let mut latency = self.latency.borrow_mut();
            latency.record(now, total);
            self.slow.set(latency.quantile_cached(now, Probability::clamped(SLOW_ABOVE)));
        }
        if slow.is_some_and(|slow| total > slow) {
            remarks.add(Remarks::SLOW);
        }
        if self.objective.get().is_some_and(|objective| total > objective) {
            remarks.add(Remarks::OVER_OBJECTIVE);
        }
    }
}

/// Hears of a record when it is complete.
pub trait AtEnd {
    /// It is.
    fn ended(&mut self, record: &RequestRecord);
}

/// The record of a request that is on its way.
pub struct Draft {
    /// What is known so far.
    pub record: RequestRecord,
    recorder: Rc<Recorder>,
    /// Attempts before it began again elsewhere: copies are numbered from there.
    base: u8,
    /// The policy's cost of the copy that leaves next.
    cost: f32,
    /// When it ended; `None` while it lasts.
    ended_at: Option<Instant>,
    at_end: Option<Box<dyn AtEnd>>,
}

impl Draft {
    /// Tells this one, too, when it ends.
    pub fn tell(&mut self, at_end: impl AtEnd + 'static) {
        self.at_end = Some(Box::new(at_end));
    }

    /// The access log, while there is one.
    pub fn access(&self) -> Option<&Access> {
        self.recorder.sinks.access.as_ref().filter(|access| access.is_on())
    }

    /// Where traces go, while somebody wants them.
    pub fn traces(&self) -> Option<&Traces> {
        self.recorder.sinks.traces.as_ref().filter(|traces| traces.is_on())
    }

    /// Its line, id and trace.
    pub fn describe(&mut self, line: &[&[u8]], id: &[u8]) {
        (self.record.line, self.record.id) = (Text::of(line), Text::of(&[id]));
    }

    fn since(&self, at: Instant) -> u32 {
        micros(at.since(self.record.began))
    }

    /// Takes over what a step decided in a data centre.
    #[inline]
    pub fn decided(&mut self, datacenter: usize, decisions: &Decisions) {
        if let Some(choice) = decisions.choice() {
            self.cost = choice.candidates.first().map_or(f32::NAN, |first| Told::of(0, first).cost);
            self.record.was_held |= choice.verdict == Verdict::Hold;
            if self.record.attempts == 0 {
                self.record.set_candidates(datacenter, &choice.candidates);
                self.record.members = u16::try_from(choice.members).unwrap_or(u16::MAX);
                self.record.cause = choice.cause;
            }
        }
        if let Some(note) = decisions.hedge()
            && self.record.hedge != HedgeFate::Sent
        {
            let is_late_word = note.fate == HedgeFate::None && self.record.attempts > 0;
            if !is_late_word {
                self.record.hedge = note.fate;
            }
            if let Some(delay) = note.delay.filter(|_| note.fate == HedgeFate::Due) {
                self.record.hedge_delay_us = micros(delay);
                self.record.hedge_quantile =
                    note.quantile.map_or(0, |quantile| (quantile * 1_000.0).round() as u16);
            }
        }
        self.record.is_retry_denied |= decisions.is_retry_denied();
    }

    /// The generation of a replica, as the candidates tell it.
    fn generation(&self, datacenter: usize, replica: ReplicaId) -> u16 {
        let mut told = self.record.candidates().iter().map(|told| told.place);
        let known = told.find(|place| {
            usize::from(place.slot) == replica.index()
                && usize::from(place.datacenter) == datacenter
        });
        known.map_or(0, |place| place.generation)
    }

    fn copy(&mut self, copy: usize) -> Option<&mut Try> {
        self.record.tries.get_mut(usize::from(self.base) + copy)
    }

    /// Takes over what happens.
    #[inline]
    pub fn event(&mut self, at: Instant, event: Event) {
        match event {
            Event::Sent { datacenter, replica, kind } => {
                let is_waiting = self.record.tries().iter().any(|it| it.end == AttemptEnd::Pending);
                let attempt = Try {
                    place: Place {
                        datacenter: datacenter as u8,
                        slot: replica.index() as u16,
                        generation: self.generation(datacenter, replica),
                    },
                    why: Why::of(kind, is_waiting),
                    end: AttemptEnd::Pending,
                    sent_us: self.since(at),
                    ended_us: u32::MAX,
                    cost: self.cost,
                };
                let number = usize::from(self.record.attempts);
                if number < ATTEMPTS_MAX {
                    self.record.tries[number] = attempt;
                }
                self.record.attempts = self.record.attempts.saturating_add(1);
                self.record.remarks.add(match attempt.why {
                    Why::Hedge => Remarks::HEDGED,
                    Why::Retry | Why::Rescue => Remarks::RETRIED,
                    Why::First => Remarks::default(),
                });
                if datacenter > 0 {
                    self.record.remarks.add(Remarks::REDIRECTED);
                }
            }
            Event::Learnt { copy, outcome } => {
                let ended_us = self.since(at);
                if let Some(attempt) = self.copy(copy) {
                    (attempt.end, attempt.ended_us) = (end_of(&outcome), ended_us);
                }
            }
            Event::Left { copy } => {
                let ended_us = self.since(at);
                if let Some(attempt) = self.copy(copy) {
                    (attempt.end, attempt.ended_us) = (AttemptEnd::Lost, ended_us);
                }
            }
            Event::BegunAgain { .. } => self.base = self.record.attempts,
            Event::Answered { copy } => {
                self.record.answered_by = self.base + copy as u8;
                self.record.head_us = self.since(at);
            }
            Event::Refused(refusal) => {
                self.record.end = end_of_refusal(refusal);
                self.ended_at = Some(at);
            }
            Event::Ended(_) if self.ended_at.is_some() => {} // of a refusal
            Event::Ended(end) => {
                self.record.end = match end {
                    BodyEnd::Complete => RequestEnd::Complete,
                    BodyEnd::UpstreamBroke => RequestEnd::BodyBroke,
                    BodyEnd::TimedOut => RequestEnd::BodyTimedOut,
                    // Nobody reads a body of no bytes to its end.
                    BodyEnd::ClientGone if self.record.bytes == 0 => RequestEnd::Complete,
                    BodyEnd::ClientGone => RequestEnd::ClientGone,
                };
                self.ended_at = Some(at);
            }
        }
    }

    /// Asks for the dimmer of who answered.
    pub fn set_dimmer(&mut self, of: impl FnOnce(usize, ReplicaId) -> Option<f64>) {
        let Some(it) = self.record.tries().get(usize::from(self.record.answered_by)) else {
            return;
        };
        let replica = ReplicaId::new(usize::from(it.place.slot));
        if let Some(dimmer) = of(usize::from(it.place.datacenter), replica) {
            self.record.dimmer = (dimmer * 100.0).round() as u8;
        }
    }

    /// The proxy itself answered, with this status.
    pub fn end_here(&mut self, now: Instant, status: u16) {
        (self.record.end, self.record.status) = (RequestEnd::Local, status);
        self.ended_at = Some(now);
    }

    fn judge(&mut self, now: Instant) {
        let record = &mut self.record;
        let total = now.since(record.began);
        record.total_us = micros(total);
        let answered = record.tries().get(usize::from(record.answered_by)).map(|it| it.end);
        let is_error = matches!(answered, Some(AttemptEnd::ErrorReply | AttemptEnd::Unavailable));
        if record.end.is_failure() || is_error {
            record.remarks.add(Remarks::FAILED);
        }
        if record.is_reduced {
            record.remarks.add(Remarks::DIMMED);
        }
        if record.end != RequestEnd::Local {
            self.recorder.judge_time(now, total, &mut self.record.remarks);
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let now = self.ended_at.unwrap_or_else(|| self.recorder.clock.now());
        self.judge(now);
        self.recorder.writer.borrow_mut().push(&self.record);
        if let Some(at_end) = &mut self.at_end {
            at_end.ended(&self.record);
        }
    }
}

const fn end_of(outcome: &Outcome) -> AttemptEnd {
    match outcome {
        Outcome::Replied(_) => AttemptEnd::Answered,
        Outcome::Cancelled => AttemptEnd::Lost,
        Outcome::Failed(Failure::Unsent) => AttemptEnd::Unsent,
        Outcome::Failed(Failure::Broken) => AttemptEnd::Broken,
        Outcome::Failed(Failure::TimedOut) => AttemptEnd::TimedOut,
        Outcome::Failed(Failure::Unavailable) => AttemptEnd::Unavailable,
        Outcome::Failed(Failure::ErrorReply) => AttemptEnd::ErrorReply,
    }
}

const fn end_of_refusal(refusal: Refusal) -> RequestEnd {
    match refusal {
        Refusal::NoReplica => RequestEnd::NoReplica,
        Refusal::BacklogFull => RequestEnd::QueueFull,
        Refusal::Failed(Failure::Unsent) => RequestEnd::Unsent,
        Refusal::Failed(Failure::Broken) => RequestEnd::Broken,
        Refusal::Failed(Failure::TimedOut) => RequestEnd::TimedOut,
        Refusal::Failed(Failure::Unavailable | Failure::ErrorReply) => RequestEnd::Unavailable,
    }
}
