//! The proxy's side of probes in datagrams ([`datagram`](crate::datagram)): one socket for each
//! family of addresses of an upstream, and what each worker knows of each agent.
//!
//! **Over which channel.** The first probe of an agent goes over HTTP and asks for a key; with a
//! key they go in datagrams. After three without an answer in a row they go over HTTP again: the
//! agent was restarted, or keeps silent, or no datagram gets through. Where no datagram with a key
//! was ever answered, the next key is asked for a second later, then two, up to a minute: that a
//! firewall is there should cost nothing. A key is replaced before its agent forgets it.
//!
//! **How long.** A datagram without an answer after four round trips, within
//! [`PATIENCE_MIN`] and [`PATIENCE_MAX`], is taken as lost. The round trip is a moving average,
//! begun with that of the probe over HTTP; an answer that comes later is dropped. So when a way
//! becomes much longer, the way back to HTTP measures it.
//!
//! Answers are learnt from as they come, by the task that reads the socket: nothing waits for a
//! timer but the end of waiting.
//!
//! **Notices.** Where the policy wants to hear that a request must wait at its replica, the request
//! asks the agent for that, if a datagram was answered with the key. A notice is believed once, of
//! a request that is on its way; any other is dropped. One that is lost changes nothing.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use evenkeel_core::request::Probe;
use evenkeel_core::{Feedback, Instant};
use evenkeel_http::Fields;
use http::HeaderValue;
use tokio::task::JoinSet;

use crate::datagram::{BYTES, Envelope, Kind, NOTICE, ProbeKey, Rejected};
use evenkeel_proxy::calls::{Calls, Notice, OpenAttempt};
use evenkeel_proxy::upstream_state::{ProbeCounts, ProbeResults};
use evenkeel_runtime::bucket::Bucket;
use evenkeel_runtime::datagrams::Datagrams;

/// Bounds of how long an answer is waited for.
const PATIENCE_MIN: Duration = Duration::from_millis(10);
const PATIENCE_MAX: Duration = Duration::from_millis(100);
/// As many round trips.
const PATIENCE_ROUND_TRIPS: u32 = 4;
/// The weight of a new round trip is one of so many.
const ROUND_TRIP_MEMORY: u32 = 8;
/// Questions without an answer in a row after which the key is given up.
const UNANSWERED_MAX: u32 = 3;
/// When another key is asked for: of an agent that has told one, and of one that tells none.
const KEY_RENEWED: Duration = Duration::from_secs(10 * 60);
const KEY_ABSENT: Duration = Duration::from_secs(5);
/// After keys with which nothing was ever answered; doubled each time, up to the second.
const VAIN_FIRST: Duration = Duration::from_secs(1);
const VAIN_MAX: Duration = Duration::from_secs(64);
/// Datagrams that a worker reads in a second, at most: more answers than it can ask for.
const PER_S_MAX: f64 = 500_000.0;
const BURST: f64 = 20_000.0;

/// Asks the agents of an upstream for one worker.
pub(crate) struct Prober {
    shared: Rc<Shared>,
    /// By family: version 4, version 6.
    sockets: [RefCell<Option<Rc<Datagrams>>>; 2],
    /// End with this.
    tasks: RefCell<JoinSet<()>>,
}

struct Shared {
    calls: Rc<Calls>,
    /// By nonce.
    asked: RefCell<BTreeMap<u64, Asked>>,
    nonce: Cell<u64>,
    /// By the request's number.
    awaited: RefCell<BTreeMap<u64, Awaited>>,
    number: Cell<u64>,
    /// When the first question is to be given up.
    alarm: Cell<Option<Instant>>,
    /// Of the task that waits for that.
    waker: RefCell<Waker>,
    counts: Cell<ProbeCounts>,
}

/// A question on its way.
struct Asked {
    agent: Rc<AgentLine>,
    datacenter: usize,
    probe: Probe,
    sent_at: Instant,
    until: Instant,
}

/// A request on its way that the agent may tell of.
struct Awaited {
    agent: Rc<AgentLine>,
    notice: Rc<Notice>,
}

/// While a notice is of use.
pub(crate) struct Awaiting {
    shared: Rc<Shared>,
    number: u64,
}

impl Drop for Awaiting {
    fn drop(&mut self) {
        self.shared.awaited.borrow_mut().remove(&self.number);
    }
}

impl fmt::Debug for Prober {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Prober({} asked)", self.shared.asked.borrow().len())
    }
}

impl Prober {
    /// Nobody is asked yet.
    pub(crate) fn new(calls: Rc<Calls>) -> Self {
        let shared = Shared {
            calls,
            asked: RefCell::default(),
            nonce: Cell::new(0),
            awaited: RefCell::default(),
            number: Cell::new(0),
            alarm: Cell::new(None),
            waker: RefCell::new(Waker::noop().clone()),
            counts: Cell::default(),
        };
        let (sockets, tasks) = (Default::default(), RefCell::default());
        Self { shared: Rc::new(shared), sockets, tasks }
    }

    /// Asks in a datagram.
    ///
    /// # Errors
    /// When it cannot: then ask over HTTP.
    pub(crate) fn ask(
        &self,
        agent: &Rc<AgentLine>,
        to: SocketAddr,
        (datacenter, probe): (usize, Probe),
    ) -> Result<(), Probe> {
        let shared = &self.shared;
        let sent_at = shared.calls.clock.now();
        let nonce = shared.nonce.get() + 1;
        let Some((question, patience)) = agent.question(sent_at, nonce) else { return Err(probe) };
        shared.nonce.set(nonce);
        let sent = self.socket(to).and_then(|socket| socket.send(&question, to));
        if let Err(error) = sent {
            if error.kind() != io::ErrorKind::WouldBlock {
                agent.give_up_key(sent_at);
            }
            return Err(probe);
        }
        let until = sent_at + patience;
        let asked = Asked { agent: Rc::clone(agent), datacenter, probe, sent_at, until };
        shared.asked.borrow_mut().insert(nonce, asked);
        if shared.alarm.get().is_none_or(|at| until < at) {
            shared.alarm.set(Some(until));
            shared.waker.borrow().wake_by_ref();
        }
        Ok(())
    }

    /// Asks an agent with a request to tell if that must wait; `None` where it could not.
    pub(crate) fn listen(
        &self,
        agent: &Rc<AgentLine>,
        attempt: &OpenAttempt,
        headers: &mut Fields,
    ) -> Option<Awaiting> {
        let shared = &self.shared;
        let number = shared.number.get() + 1;
        headers.insert(NOTICE, &agent.wish(number)?);
        shared.number.set(number);
        let awaited = Awaited { agent: Rc::clone(agent), notice: attempt.notice() };
        shared.awaited.borrow_mut().insert(number, awaited);
        Some(Awaiting { shared: Rc::clone(shared), number })
    }

    /// Notes the end of a probe over HTTP.
    pub(crate) fn note_http(&self, which: impl Fn(&mut ProbeResults) -> &mut u64) {
        self.shared.count(|counts| which(&mut counts.http));
    }

    /// Takes what was counted since the last time.
    pub(crate) fn take_counts(&self) -> ProbeCounts {
        self.shared.counts.take()
    }

    /// That of the family of an address.
    fn socket(&self, to: SocketAddr) -> io::Result<Rc<Datagrams>> {
        let mut place = self.sockets[usize::from(to.is_ipv6())].borrow_mut();
        if let Some(socket) = &*place {
            return Ok(Rc::clone(socket));
        }
        let socket = Rc::new(Datagrams::towards(to)?);
        *place = Some(Rc::clone(&socket));
        let mut tasks = self.tasks.borrow_mut();
        if tasks.is_empty() {
            tasks.spawn_local(Rc::clone(&self.shared).give_up_late());
        }
        tasks.spawn_local(Rc::clone(&self.shared).read(Rc::clone(&socket)));
        Ok(socket)
    }
}

impl Shared {
    async fn read(self: Rc<Self>, socket: Rc<Datagrams>) {
        let (clock, bucket) = (self.calls.clock, Bucket::new(PER_S_MAX, BURST));
        let took = |bytes: &[u8], _| self.take(bytes);
        socket.read::<{ BYTES + 1 }>(&clock, bucket, || (), took).await;
    }

    fn take(&self, bytes: &[u8]) {
        if let Ok(envelope) = Envelope::read(bytes, Kind::Answer) {
            self.take_answer(envelope, bytes);
        } else if let Ok(envelope) = Envelope::read(bytes, Kind::Notice) {
            self.take_notice(envelope, bytes);
        } else {
            self.count(|counts| &mut counts.invalid);
        }
    }

    /// Passes on what an agent tells of a request, once.
    fn take_notice(&self, Envelope { nonce: number, .. }: Envelope, bytes: &[u8]) {
        let mut awaited = self.awaited.borrow_mut();
        let Some(Awaited { agent, .. }) = awaited.get(&number) else {
            return self.count(|counts| &mut counts.unexpected); // late, or come twice
        };
        let Ok(report) = agent.read(bytes, Kind::Notice) else {
            return self.count(|counts| &mut counts.invalid);
        };
        let told = awaited.remove(&number).expect("it is there");
        drop(awaited);
        told.notice.tell(report);
        self.count(|counts| &mut counts.notices);
    }

    /// Learns from an answer.
    fn take_answer(&self, Envelope { nonce, .. }: Envelope, bytes: &[u8]) {
        let mut waiting = self.asked.borrow_mut();
        let Some(asked) = waiting.get(&nonce) else {
            return self.count(|counts| &mut counts.unexpected); // late, or come twice
        };
        // What is forged must not end the question.
        let Ok(report) = asked.agent.read(bytes, Kind::Answer) else {
            return self.count(|counts| &mut counts.invalid);
        };
        let asked = waiting.remove(&nonce).expect("it is there");
        drop(waiting);
        self.calls.learn_probe(asked.datacenter, &asked.probe, Some(&report));
        asked.agent.answered(self.calls.read_at().since(asked.sent_at));
        self.count(|counts| &mut counts.udp.answered);
    }

    /// Ends questions that nobody answers. One task for all: most are answered long before.
    async fn give_up_late(self: Rc<Self>) {
        loop {
            let alarm = self.alarm.get();
            let mut timer = alarm.map(|at| self.calls.wait_until(at));
            std::future::poll_fn(|context| {
                self.waker.borrow_mut().clone_from(context.waker());
                if self.alarm.get() != alarm {
                    return Poll::Ready(());
                }
                let Some(timer) = &mut timer else { return Poll::Pending };
                Pin::new(timer).poll(context)
            })
            .await;
            let now = self.calls.clock.now();
            if self.alarm.get().is_some_and(|at| at <= now) {
                self.end_late(now);
            }
        }
    }

    fn end_late(&self, now: Instant) {
        let mut waiting = self.asked.borrow_mut();
        let is_late = |it: &(&u64, &Asked)| it.1.until <= now;
        let late: Vec<u64> = waiting.iter().filter(is_late).map(|it| *it.0).collect();
        let late: Vec<Asked> = late.iter().filter_map(|nonce| waiting.remove(nonce)).collect();
        self.alarm.set(waiting.values().map(|asked| asked.until).min());
        drop(waiting);
        for asked in late {
            asked.agent.unanswered(now);
            self.count(|counts| &mut counts.udp.unanswered);
            self.calls.learn_probe(asked.datacenter, &asked.probe, None);
        }
    }

    fn count(&self, which: impl Fn(&mut ProbeCounts) -> &mut u64) {
        let mut counts = self.counts.get();
        *which(&mut counts) += 1;
        self.counts.set(counts);
    }
}

/// How an agent is asked.
#[derive(Debug, Default)]
pub(crate) struct AgentLine(RefCell<Line>);

#[derive(Debug, Default)]
struct Line {
    key: Option<ProbeKey>,
    /// Whether something was answered with this key.
    is_proven: bool,
    /// Questions in a row.
    unanswered: u32,
    /// Keys in a row with which nothing was answered.
    vain: u32,
    /// When a key is to be asked for.
    ask_key_at: Instant,
    round_trip: Duration,
}

impl AgentLine {
    /// A question, and how long its answer is waited for; `None` where it is to go over HTTP.
    fn question(&self, now: Instant, nonce: u64) -> Option<([u8; BYTES], Duration)> {
        let line = self.0.borrow();
        let key = line.key.as_ref().filter(|_| now < line.ask_key_at)?;
        let patience = line.round_trip * PATIENCE_ROUND_TRIPS;
        Some((key.question(nonce), patience.clamp(PATIENCE_MIN, PATIENCE_MAX)))
    }

    /// Whether a probe over HTTP is to ask for a key.
    pub(crate) fn wants_key(&self, now: Instant) -> bool {
        now >= self.0.borrow().ask_key_at
    }

    /// Takes in whether an agent told a key that it was asked for, and how long that took.
    pub(crate) fn learn_key(&self, now: Instant, key: Option<ProbeKey>, round_trip: Duration) {
        let line = &mut *self.0.borrow_mut();
        line.ask_key_at = now + if key.is_some() { KEY_RENEWED } else { KEY_ABSENT };
        (line.key, line.round_trip) = (key, round_trip);
        (line.is_proven, line.unanswered) = (false, 0);
    }

    /// What asks for a notice of the request with this number; `None` where no datagram was
    /// answered with the key yet.
    fn wish(&self, number: u64) -> Option<HeaderValue> {
        let line = self.0.borrow();
        line.key.as_ref().filter(|_| line.is_proven).map(|key| key.wish(number))
    }

    fn read(&self, bytes: &[u8], kind: Kind) -> Result<Feedback, Rejected> {
        let line = self.0.borrow();
        line.key.as_ref().ok_or(Rejected::Foreign)?.read(bytes, kind)
    }

    fn answered(&self, round_trip: Duration) {
        let line = &mut *self.0.borrow_mut();
        (line.is_proven, line.unanswered, line.vain) = (true, 0, 0);
        let before = line.round_trip * (ROUND_TRIP_MEMORY - 1);
        line.round_trip = (before + round_trip) / ROUND_TRIP_MEMORY;
    }

    fn unanswered(&self, now: Instant) {
        let line = &mut *self.0.borrow_mut();
        line.unanswered += 1;
        if line.unanswered >= UNANSWERED_MAX && line.key.is_some() {
            line.give_up_key(now);
        }
    }

    /// No datagram leaves.
    fn give_up_key(&self, now: Instant) {
        self.0.borrow_mut().give_up_key(now);
    }
}

impl Line {
    fn give_up_key(&mut self, now: Instant) {
        self.key = None;
        if self.is_proven {
            self.ask_key_at = now;
            return;
        }
        self.ask_key_at = now + VAIN_MAX.min(VAIN_FIRST * (1 << self.vain.min(16)));
        self.vain += 1;
    }
}

#[cfg(test)]
mod tests;
