//! Clients that make work and no progress.
//!
//! `h2` bounds the memory that frames cost, not the work. Two things are counted here for each
//! connection, and what is counted leaks away with time, so that a client that cancels honestly
//! for hours is no flood:
//!
//! - **Frames that ask nothing** (PING, SETTINGS, WINDOW_UPDATE, PRIORITY, RST_STREAM,
//!   CONTINUATION, empty DATA, unknown ones), and heads that become no request (too large, too many
//!   at once). Requests and what is sent to the client allow for some.
//! - **Streams cut short** ("rapid reset"): reset before they were answered, and sooner than the
//!   limit of streams at once would let them be replaced.
//!
//! Who goes too far gets GOAWAY with ENHANCE_YOUR_CALM.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

use super::frames::{DATA, Frame, Frames, GO_AWAY, HEADERS, RST_STREAM};
use crate::counts::{Counted, Side, count};

/// Frames that ask nothing, at once and per second.
const FRAMES_MAX: f64 = 1_000.0;
const FRAMES_PER_SECOND: f64 = 100.0;

/// What a head counts, until it is one of a request.
const HEAD: f64 = 1.0;

/// What a request, and a piece of an answer, allow for.
const FRAMES_PER_REQUEST: f64 = 10.0;
const FRAMES_PER_PIECE: f64 = 2.0;

/// Streams cut short, at once and per second, if they are more than half of all.
const SHORT_MAX: f64 = 100.0;
const SHORT_PER_SECOND: f64 = 50.0;

/// What a client has to its credit at most, in streams.
const OTHER_MAX: f64 = 10.0 * SHORT_MAX;

/// A stream that lived for this long has cost no more than one that was answered.
const SHORT: Duration = Duration::from_millis(100);

/// A count that leaks.
#[derive(Debug)]
struct Bucket {
    count: f64,
    at: Instant,
}

impl Bucket {
    fn new() -> Self {
        Self { count: 0.0, at: Instant::now() }
    }

    /// Counts something; whether there were too many, with what leaked meanwhile left out. The
    /// clock is read only near the limit.
    fn add(&mut self, count: f64, max: f64, per_second: f64) -> bool {
        self.count = (self.count + count).max(0.0);
        if self.count <= max {
            return false;
        }
        let now = Instant::now();
        let leaked = now.duration_since(self.at).as_secs_f64() * per_second;
        self.at = now;
        self.count = (self.count - leaked).max(0.0);
        self.count > max
    }
}

/// The counts of one connection.
#[derive(Debug)]
pub(crate) struct Flood {
    frames: RefCell<Frames>,
    idle: RefCell<Bucket>,
    short: RefCell<Bucket>,
    /// Streams that were not cut short; leaks like the others.
    other: RefCell<Bucket>,
    is_over: Cell<bool>,
}

impl Flood {
    /// Of a connection whose frames begin after so many bytes.
    pub(crate) fn new(preface_bytes: usize) -> Rc<Self> {
        Rc::new(Self {
            frames: RefCell::new(Frames::after(preface_bytes)),
            idle: RefCell::new(Bucket::new()),
            short: RefCell::new(Bucket::new()),
            other: RefCell::new(Bucket::new()),
            is_over: Cell::new(false),
        })
    }

    /// Whether the client went too far.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// Bytes came from the client.
    pub(crate) fn read(&self, bytes: &[u8]) {
        let mut sum = 0.0;
        self.frames.borrow_mut().pass(bytes, |frame| {
            sum += weight(frame);
            match frame.kind {
                RST_STREAM => count(Side::Clients, Counted::ResetsReceived),
                GO_AWAY => count(Side::Clients, Counted::GoAwaysReceived),
                _ => {}
            }
        });
        self.count(sum);
    }

    /// A head became a request.
    pub(crate) fn asked(&self) {
        self.count(-(HEAD + FRAMES_PER_REQUEST));
    }

    /// A piece of an answer left.
    pub(crate) fn sent(&self) {
        self.count(-FRAMES_PER_PIECE);
    }

    fn count(&self, frames: f64) {
        if self.idle.borrow_mut().add(frames, FRAMES_MAX, FRAMES_PER_SECOND) {
            self.is_over.set(true);
        }
    }

    /// A stream ended that began then.
    pub(crate) fn ended(&self, began: Instant, was_answered: bool) {
        let was_short = !was_answered && began.elapsed() < SHORT;
        let mut other = self.other.borrow_mut();
        if !was_short {
            other.add(1.0, SHORT_MAX, SHORT_PER_SECOND);
            other.count = other.count.min(OTHER_MAX);
            return;
        }
        let mut short = self.short.borrow_mut();
        let too_many = short.add(1.0, SHORT_MAX, SHORT_PER_SECOND);
        other.add(0.0, SHORT_MAX, SHORT_PER_SECOND);
        if too_many && short.count > other.count {
            self.is_over.set(true);
        }
    }
}

fn weight(frame: Frame) -> f64 {
    match frame.kind {
        HEADERS => HEAD,
        DATA if !frame.is_empty_data() => 0.0,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::frames::GO_AWAY;
    use super::*;

    const PING: u8 = 6;

    fn frame(kind: u8, length: u8) -> Vec<u8> {
        let mut bytes = vec![0, 0, length, kind, 0, 0, 0, 0, 1];
        bytes.resize(9 + usize::from(length), 0);
        bytes
    }

    fn virtual_time(test: impl Future<Output = ()>) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true).build().unwrap().block_on(test);
    }

    #[test]
    fn frames_that_ask_nothing_are_a_flood_and_those_with_requests_are_not() {
        virtual_time(async {
            for (kind, length) in [(PING, 8), (4, 0), (2, 5), (3, 4), (9, 0), (DATA, 0), (99, 0)] {
                let flood = Flood::new(0);
                (0..1_000).for_each(|_| flood.read(&frame(kind, length)));
                assert!(!flood.is_over(), "kind {kind}");
                flood.read(&frame(kind, length));
                assert!(flood.is_over(), "kind {kind}");
            }
            let flood = Flood::new(0);
            for _ in 0..10_000 {
                flood.read(&frame(HEADERS, 20));
                flood.asked();
                (0..4).for_each(|_| flood.read(&frame(PING, 8)));
                flood.read(&frame(DATA, 100));
            }
            assert!(!flood.is_over());
            (0..100_000).for_each(|_| flood.read(&frame(DATA, 100)));
            assert!(!flood.is_over(), "an upload");
            (0..100_000).for_each(|_| {
                flood.sent();
                flood.read(&frame(8, 4));
            });
            assert!(!flood.is_over(), "a download");
            flood.read(&frame(GO_AWAY, 8));
            // Each is more than a head may be, and is refused before it is a request.
            let flood = Flood::new(0);
            (0..1_001).for_each(|_| flood.read(&frame(HEADERS, 200)));
            assert!(flood.is_over());
        });
    }

    #[test]
    fn counts_leak() {
        virtual_time(async {
            let flood = Flood::new(0);
            for _ in 0..1_000 {
                (0..90).for_each(|_| flood.read(&frame(PING, 8)));
                (0..40).for_each(|_| flood.ended(Instant::now(), false));
                tokio::time::advance(Duration::from_secs(1)).await;
            }
            assert!(!flood.is_over());
        });
    }

    #[test]
    fn streams_cut_short_are_a_flood_if_they_are_most_and_lived_for_a_moment() {
        virtual_time(async {
            let flood = Flood::new(0);
            (0..100).for_each(|_| flood.ended(Instant::now(), false));
            assert!(!flood.is_over());
            flood.ended(Instant::now(), false);
            assert!(flood.is_over());

            let flood = Flood::new(0);
            let began = Instant::now();
            tokio::time::advance(SHORT).await;
            (0..1_000).for_each(|_| flood.ended(began, false));
            assert!(!flood.is_over(), "they were worked on");

            let flood = Flood::new(0);
            for _ in 0..1_000 {
                flood.ended(Instant::now(), true);
                flood.ended(Instant::now(), false);
            }
            assert!(!flood.is_over(), "half of them are answered");
        });
    }
}
