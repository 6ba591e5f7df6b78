//! Fills one record while its request lasts, and keeps it at the end, however that comes about.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use evenkeel_core::distribution::RollingRecorder;
use evenkeel_core::request::decision::{Candidate, Decisions, HedgeFate, Verdict};
use evenkeel_core::request::{BodyEnd, Failure, Kind, Outcome, Refusal};
use evenkeel_core::time::{Duration, nanos};
use evenkeel_core::units::Probability;
use evenkeel_core::{Instant, ReplicaId};
use evenkeel_runtime::clock::Clock;

use super::access::Access;
use super::event::Event;
use super::log::Writer;
use super::record::{AttemptEnd, Place, Remarks, RequestEnd, RequestRecord, Try, Why, micros_of};
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
    /// What is slow, as it was last learnt; `u64::MAX` while that is not known.
    slow_ns: Cell<u64>,
    ended: Cell<u64>,
    learnt_at: Cell<Instant>,
    /// `u64::MAX` where there is none.
    objective_ns: Cell<u64>,
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
            slow_ns: Cell::new(u64::MAX),
            ended: Cell::new(0),
            learnt_at: Cell::new(Instant::ZERO),
            objective_ns: Cell::new(objective.map_or(u64::MAX, nanos)),
            sinks,
        })
    }

    /// Takes over another objective.
    pub fn set_objective(&self, objective: Option<Duration>) {
        self.objective_ns.set(objective.map_or(u64::MAX, nanos));
    }

    /// Begins with a request that comes now.
    pub fn begin(self: &Rc<Self>, now: Instant) -> Draft {
        Draft {
            record: Some(self.writer.borrow_mut().begin(now, self.upstream)),
            recorder: Rc::clone(self),
            base: 0,
            cost: f32::NAN,
            ended_at: Instant::FAR,
            at_end: None,
        }
    }

    /// What is remarkable of its time. Learns it.
    #[inline]
    fn judge_time(&self, now: Instant, total_ns: u64, remarks: &mut Remarks) {
        let slow = self.slow_ns.get();
        let ended = self.ended.get() + 1;
        self.ended.set(ended);
        let is_rare = now >= self.learnt_at.get() + RARE;
        if ended <= SAMPLES_MIN || ended.is_multiple_of(LEARNT_EVERY) || is_rare {
            self.learn(now, Duration::from_nanos(total_ns));
        }
        if total_ns > slow {
            remarks.add(Remarks::SLOW);
        }
        if total_ns > self.objective_ns.get() {
            remarks.add(Remarks::OVER_OBJECTIVE);
        }
    }

    #[inline(never)]
    fn learn(&self, now: Instant, total: Duration) {
        self.learnt_at.set(now);
        let mut latency = self.latency.borrow_mut();
        latency.record(now, total);
        let slow = latency.quantile_cached(now, Probability::clamped(SLOW_ABOVE));
        self.slow_ns.set(slow.map_or(u64::MAX, nanos));
    }
}

/// Hears of a record when it is complete.
pub trait AtEnd {
    /// It is.
    fn ended(&mut self, record: &RequestRecord);
}

/// The record of a request that is on its way.
pub struct Draft {
    /// `None` only while being dropped.
    record: Option<Box<RequestRecord>>,
    recorder: Rc<Recorder>,
    /// Attempts before it began again elsewhere: copies are numbered from there.
    base: u8,
    /// The policy's cost of the copy that leaves next.
    cost: f32,
    /// When it ended; [`Instant::FAR`] while it lasts.
    ended_at: Instant,
    at_end: Option<Box<dyn AtEnd>>,
}

impl Draft {
    const OPEN: &str = "a record is there until its draft is dropped";

    /// What is known so far.
    #[inline]
    pub fn record(&mut self) -> &mut RequestRecord {
        self.record.as_mut().expect(Self::OPEN)
    }

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

    /// Its line and id.
    #[inline]
    pub fn describe(&mut self, line: &[&[u8]], id: &[u8]) {
        let record = self.record();
        record.line.set(line);
        record.id.set(&[id]);
    }

    /// Takes over what a step decided in a data centre.
    #[inline]
    pub fn decided(&mut self, datacenter: usize, decisions: &Decisions) {
        let record = self.record.as_mut().expect(Self::OPEN);
        if let Some(choice) = decisions.choice() {
            self.cost = choice.candidates().first().map_or(f32::NAN, |first| first.cost);
            record.was_held |= choice.verdict == Verdict::Hold;
            if record.attempts == 0 {
                record.set_candidates(datacenter, choice);
            }
        }
        if let Some(note) = decisions.hedge()
            && record.hedge != HedgeFate::Sent
        {
            let is_late_word = note.fate == HedgeFate::None && record.attempts > 0;
            if !is_late_word {
                record.hedge = note.fate;
            }
            if let Some(delay_ns) = note.delay_ns.filter(|_| note.fate == HedgeFate::Due) {
                record.hedge_delay_us = micros_of(delay_ns);
                // Rounded without `round`, which is a call of the C library.
                record.hedge_quantile =
                    note.quantile.map_or(0, |quantile| (quantile * 1_000.0 + 0.5) as u16);
            }
        }
        record.is_retry_denied |= decisions.is_retry_denied();
    }

    /// Takes over what happens. Inlined where an event is made, of which only what is written down
    /// is left there.
    #[inline(always)]
    pub fn event(&mut self, at: Instant, event: Event) {
        let record = self.record.as_mut().expect(Self::OPEN);
        let us = micros_of(at.nanos_since(record.began));
        match event {
            Event::Sent { datacenter, replica, kind } => {
                record.send(us, (datacenter, replica, kind), self.cost);
            }
            Event::Learnt { copy, outcome } => {
                record.end_try(self.base, copy, us, end_of(&outcome));
            }
            Event::Left { copy } => record.end_try(self.base, copy, us, AttemptEnd::Lost),
            Event::BegunAgain { .. } => self.base = record.attempts,
            Event::Answered { copy } => {
                (record.answered_by, record.head_us) = (self.base + copy as u8, us);
            }
            Event::Refused(refusal) => {
                (record.end, self.ended_at) = (end_of_refusal(refusal), at);
            }
            Event::Ended(_) if self.ended_at != Instant::FAR => {} // of a refusal
            Event::Ended(end) => {
                record.end = match end {
                    BodyEnd::Complete => RequestEnd::Complete,
                    BodyEnd::UpstreamBroke => RequestEnd::BodyBroke,
                    BodyEnd::TimedOut => RequestEnd::BodyTimedOut,
                    // Nobody reads a body of no bytes to its end.
                    BodyEnd::ClientGone if record.bytes == 0 => RequestEnd::Complete,
                    BodyEnd::ClientGone => RequestEnd::ClientGone,
                };
                self.ended_at = at;
            }
        }
    }

    /// Asks for the dimmer of who answered.
    pub fn set_dimmer(&mut self, of: impl FnOnce(usize, ReplicaId) -> Option<f64>) {
        let record = self.record();
        let Some(it) = record.tries().get(usize::from(record.answered_by)) else {
            return;
        };
        let replica = ReplicaId::new(usize::from(it.place.slot));
        if let Some(dimmer) = of(usize::from(it.place.datacenter), replica) {
            record.dimmer = (dimmer * 100.0).round() as u8;
        }
    }

    /// The proxy itself answered, with this status.
    pub fn end_here(&mut self, now: Instant, status: u16) {
        let record = self.record();
        (record.end, record.status) = (RequestEnd::Local, status);
        self.ended_at = now;
    }
}

impl RequestRecord {
    /// Takes over that an attempt leaves.
    #[inline]
    fn send(
        &mut self,
        sent_us: u32,
        (datacenter, replica, kind): (usize, ReplicaId, Kind),
        cost: f32,
    ) {
        let (datacenter, slot) = (datacenter as u8, replica.index() as u16);
        let is_told = |it: &&Candidate| it.slot == slot && self.candidates_at == datacenter;
        let generation = self.candidates().iter().find(is_told).map_or(0, |it| it.generation);
        let is_waiting = self.tries().iter().any(|it| it.end == AttemptEnd::Pending);
        let why = Why::of(kind, is_waiting);
        let place = Place { datacenter, slot, generation };
        if let Some(attempt) = self.tries.get_mut(usize::from(self.attempts)) {
            let (end, ended_us) = (AttemptEnd::Pending, u32::MAX);
            *attempt = Try { place, why, end, sent_us, ended_us, cost };
        }
        self.attempts = self.attempts.saturating_add(1);
        self.remarks.add(match why {
            Why::Hedge => Remarks::HEDGED,
            Why::Retry | Why::Rescue => Remarks::RETRIED,
            Why::First | Why::Moved => Remarks::default(),
        });
        if datacenter > 0 {
            self.remarks.add(Remarks::REDIRECTED);
        }
    }

    /// Takes over what became of a copy. Copies are numbered from this attempt on.
    #[inline]
    fn end_try(&mut self, base: u8, copy: usize, ended_us: u32, end: AttemptEnd) {
        if let Some(attempt) = self.tries.get_mut(usize::from(base) + copy) {
            (attempt.end, attempt.ended_us) = (end, ended_us);
        }
    }

    #[inline]
    fn judge(&mut self, now: Instant, recorder: &Recorder) {
        let total_ns = now.nanos_since(self.began);
        self.total_us = micros_of(total_ns);
        let answered = self.tries().get(usize::from(self.answered_by)).map(|it| it.end);
        let is_error = matches!(answered, Some(AttemptEnd::ErrorReply | AttemptEnd::Unavailable));
        if self.end.is_failure() || is_error {
            self.remarks.add(Remarks::FAILED);
        }
        if self.is_reduced {
            self.remarks.add(Remarks::DIMMED);
        }
        if self.end != RequestEnd::Local {
            recorder.judge_time(now, total_ns, &mut self.remarks);
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let Some(mut record) = self.record.take() else { return };
        let now = match self.ended_at {
            Instant::FAR => self.recorder.clock.now(),
            at => at,
        };
        record.judge(now, &self.recorder);
        if let Some(at_end) = &mut self.at_end {
            at_end.ended(&record);
        }
        self.recorder.writer.borrow_mut().push(record);
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
