//! One connection to a replica that many requests share.
//!
//! A request that is given up resets its stream. Servers take many resets for an attack, and a
//! `h2` of before has closed connections over frames that crossed its own. So a connection resets
//! few streams per second; beyond that a copy that lost is read to its end and forgotten. A
//! connection that has reset many is not used any more.

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::rc::{Rc, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use evenkeel_runtime::accept::first;
use evenkeel_runtime::limits::UpstreamLimits;
use evenkeel_runtime::stream::Stream;
use h2::client::{Connection, SendRequest};
use h2::{Ping, PingPong};
use tokio::time::Instant;

use super::frames::{Frames, GO_AWAY, RST_STREAM, Watch, Watched};
use super::{CONNECTION_WINDOW, SEND_BUFFER, STREAM_WINDOW};
use crate::counts::{Counted, Side, count};

/// Streams of a connection until another one is opened.
const STREAMS_WANTED: usize = 32;

/// Streams that a connection resets, at once and per second; see the module.
const RESETS_PER_SECOND: f64 = 25.0;

/// Streams that a connection resets before it is not used any more.
const RESETS_MAX: u32 = 500;

/// Reset streams that are remembered: more than a connection ever resets, so that no late frame is
/// taken for an error.
const RESETS_REMEMBERED: usize = 2_000;
const REMEMBERED_FOR: Duration = Duration::from_secs(60);

/// How long a connection may be silent before somebody who gives up asks whether it is alive.
const SILENCE: Duration = Duration::from_secs(1);

/// How long the answer to that may take.
const PONG_WITHIN: Duration = Duration::from_secs(10);

/// What was noted of a replica's bytes.
#[derive(Debug, Default)]
struct Heard {
    frames: RefCell<Frames>,
    /// Counts reads.
    reads: Cell<u32>,
    /// The last stream that the replica serves, once it has said that.
    last_stream: Cell<Option<u32>>,
}

struct Listening(Rc<Heard>);

impl Watch for Listening {
    fn read(&mut self, bytes: &[u8]) {
        let Heard { frames, reads, last_stream } = &*self.0;
        reads.set(reads.get().wrapping_add(1));
        frames.borrow_mut().pass(bytes, |frame| {
            if frame.kind == RST_STREAM {
                count(Side::Replicas, Counted::ResetsReceived);
            }
            if frame.kind == GO_AWAY {
                count(Side::Replicas, Counted::GoAwaysReceived);
                let last = last_stream.get().unwrap_or(u32::MAX).min(frame.last_stream);
                last_stream.set(Some(last));
            }
        });
    }
}

/// One connection. It closes when nobody has it any more and its streams are done.
pub(crate) struct Session {
    sender: SendRequest<Bytes>,
    is_tls: bool,
    heard: Rc<Heard>,
    active: Cell<usize>,
    was_used: Cell<bool>,
    is_retired: Cell<bool>,
    /// In which sweep it was first seen without a stream.
    idle_since_sweep: Cell<Option<u32>>,
    resets: Cell<u32>,
    tokens: Cell<(f64, Instant)>,
    doubt: Doubt,
}

/// Whether the connection is alive.
#[derive(Default)]
struct Doubt {
    is_asked: Cell<bool>,
    driver: RefCell<Option<Waker>>,
}

impl Session {
    /// Speaks HTTP/2 on this stream from now on. `ended` is called once it is closed.
    ///
    /// # Errors
    /// When the first bytes cannot be written.
    pub(crate) async fn open(
        stream: Stream,
        limits: &UpstreamLimits,
        ended: impl FnOnce() + 'static,
    ) -> Result<Rc<Self>, h2::Error> {
        let (is_tls, heard) = (stream.is_tls(), Rc::<Heard>::default());
        let io = Watched::new(stream, Vec::new(), Listening(Rc::clone(&heard)));
        let (sender, connection) = builder(limits).handshake(io).await?;
        let session = Rc::new(Self {
            sender,
            is_tls,
            heard,
            active: Cell::new(0),
            was_used: Cell::new(false),
            is_retired: Cell::new(false),
            idle_since_sweep: Cell::new(None),
            resets: Cell::new(0),
            tokens: Cell::new((RESETS_PER_SECOND, Instant::now())),
            doubt: Doubt::default(),
        });
        count(Side::Replicas, Counted::Http2);
        let its = Rc::downgrade(&session);
        tokio::task::spawn_local(async move {
            drive(connection, &its).await;
            its.upgrade().iter().for_each(|session| session.retire());
            ended();
        });
        Ok(session)
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.is_tls
    }

    pub(crate) fn sender(&self) -> SendRequest<Bytes> {
        self.sender.clone()
    }

    /// Streams that are open or wait to be.
    pub(crate) fn active(&self) -> usize {
        self.active.get()
    }

    /// Whether a stream was answered before.
    pub(crate) fn was_used(&self) -> bool {
        self.was_used.get()
    }

    /// Whether it takes further requests.
    pub(crate) fn is_usable(&self) -> bool {
        !self.is_retired.get() && self.heard.last_stream.get().is_none()
    }

    /// Whether it waits for a sign of life.
    pub(crate) fn is_doubted(&self) -> bool {
        self.doubt.is_asked.get()
    }

    /// Takes no further request; it closes when its streams are done.
    pub(crate) fn retire(&self) {
        self.is_retired.set(true);
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.is_retired.get()
    }

    /// How many streams the replica lets it have.
    pub(crate) fn streams_max(&self) -> usize {
        self.sender.current_max_send_streams().max(1)
    }

    /// How many streams it has before another connection is opened.
    pub(crate) fn streams_wanted(&self) -> usize {
        self.streams_max().min(STREAMS_WANTED)
    }

    /// A stream begins, which is to [end](Self::end).
    pub(crate) fn begin(&self) {
        count(Side::Replicas, Counted::Streams);
        self.active.set(self.active.get() + 1);
        self.idle_since_sweep.set(None);
    }

    pub(crate) fn end(&self) {
        self.active.set(self.active.get() - 1);
    }

    /// A stream was answered.
    pub(crate) fn note_answer(&self) {
        self.was_used.set(true);
    }

    /// Counts reads, to see later whether anything came.
    pub(crate) fn reads(&self) -> u32 {
        self.heard.reads.get()
    }

    /// Whether the replica has said that it does not process this stream.
    pub(crate) fn is_unprocessed(&self, stream: u32) -> bool {
        self.heard.last_stream.get().is_some_and(|last| stream > last)
    }

    /// For how many sweeps it has been idle at this one.
    pub(crate) fn sweeps_idle(&self, sweep: u32) -> u32 {
        if self.active() > 0 {
            return 0;
        }
        let since = self.idle_since_sweep.get().unwrap_or(sweep);
        self.idle_since_sweep.set(Some(since));
        sweep.wrapping_sub(since)
    }

    /// Whether one more stream may be reset, which then counts.
    pub(crate) fn may_reset(&self) -> bool {
        let (tokens, at) = self.tokens.get();
        let now = Instant::now();
        let fresh = now.duration_since(at).as_secs_f64() * RESETS_PER_SECOND;
        let tokens = (tokens + fresh).min(RESETS_PER_SECOND);
        let may_reset = tokens >= 1.0;
        self.tokens.set((if may_reset { tokens - 1.0 } else { tokens }, now));
        if may_reset {
            self.note_reset();
        }
        may_reset
    }

    /// A stream is reset.
    pub(crate) fn note_reset(&self) {
        count(Side::Replicas, Counted::ResetsSent);
        self.resets.set(self.resets.get() + 1);
        if self.resets.get() >= RESETS_MAX {
            self.retire();
        }
    }

    /// Somebody gave up who began then, when so many reads had been counted: if nothing came since,
    /// the replica is asked whether it is there.
    pub(crate) fn doubt(&self, began: Instant, reads: u32) {
        if reads != self.reads() || began.elapsed() < SILENCE || self.doubt.is_asked.get() {
            return;
        }
        self.doubt.is_asked.set(true);
        if let Some(driver) = &*self.doubt.driver.borrow() {
            driver.wake_by_ref();
        }
    }
}

fn builder(limits: &UpstreamLimits) -> h2::client::Builder {
    let mut builder = h2::client::Builder::new();
    builder
        .enable_push(false)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_max_send_streams(STREAMS_WANTED)
        .max_header_list_size(limits.head_bytes_max as u32)
        .max_send_buffer_size(SEND_BUFFER)
        .max_concurrent_reset_streams(RESETS_REMEMBERED)
        .reset_stream_duration(REMEMBERED_FOR)
        .max_local_error_reset_streams(None);
    builder
}

/// Reads and writes until the connection is closed, or does not answer whether it is alive.
async fn drive(mut connection: Connection<Watched<Listening>, Bytes>, session: &Weak<Session>) {
    let ping = connection.ping_pong();
    let closed = async {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to a replica ends");
        }
    };
    let dead = async {
        match ping {
            Some(ping) => wait_for_death(ping, session).await,
            None => pending().await,
        }
    };
    first(closed, dead).await;
}

/// Asks when there is doubt. Ends when there is no answer.
async fn wait_for_death(mut ping: PingPong, session: &Weak<Session>) {
    loop {
        std::future::poll_fn(|cx| {
            let Some(session) = session.upgrade() else { return Poll::Pending };
            if session.doubt.is_asked.get() {
                return Poll::Ready(());
            }
            *session.doubt.driver.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
        let answer = ping.ping(Ping::opaque());
        if !matches!(tokio::time::timeout(PONG_WITHIN, answer).await, Ok(Ok(_))) {
            return;
        }
        session.upgrade().iter().for_each(|session| session.doubt.is_asked.set(false));
    }
}
