//! Copies that one dispatcher told of and that nobody has written down yet.
//!
//! The dispatcher's thread never waits for the writer's: while that takes what there is (it swaps
//! two buffers), a copy goes to a short queue. What finds no room is lost, and its whole window is:
//! a window that lacks some of its requests would look like one with less load.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use evenkeel_core::Instant;
use evenkeel_core::request::copies::{CopyRecord, CopySink, ServedRecord, ServedSink};
use evenkeel_core::time::{Duration, nanos};
use evenkeel_twin::join::REQUEST_BITS;

/// Rows that wait for the writer: a second and a half of ten thousand requests each second.
pub(crate) const ROWS_MAX: usize = 16_384;
/// Rows that wait while the writer takes the others.
const ASIDE_MAX: usize = 64;
/// Files have 63 bits for the number of a request, and of whom it is.
const SERIAL_MAX: u32 = (1 << (63 - REQUEST_BITS)) - 1;
/// What is kept or dropped as a whole.
pub(crate) const WINDOW: Duration = Duration::from_secs(10);

/// Replicas of which one upstream has days.
#[derive(Clone, Debug, PartialEq)]
pub struct Stream {
    /// Its folder: that of its table, such as `upstream.shop`.
    pub name: String,
    /// Who records it, as its manifest says: a proxy, or an agent.
    pub by: &'static str,
    /// The policy of its rows, as scenarios spell it (`c3+hedge`), then that which is tried out.
    pub policies: Vec<String>,
    /// Share of its requests that are sent to two replicas.
    pub pairs: f64,
    /// What is known of the proxy, as TOML of a scenario: see [`crate::like`].
    pub like: String,
    /// Replicas it has as it begins; more may follow.
    pub replicas: usize,
}

/// A lane whose writer does not know it yet.
#[derive(Debug)]
pub(crate) struct NewLane {
    pub(crate) stream: Arc<Stream>,
    pub(crate) of: Teller,
    pub(crate) lane: Lane,
}

/// A dispatcher that tells of its copies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Teller {
    /// Its number among those of its stream.
    pub(crate) client: u16,
    /// Which of all this process has had: each counts its requests from one on.
    pub(crate) serial: u32,
}

impl Teller {
    /// A request's number among those of all dispatchers of this process, and with great
    /// probability of all others whose copies an agent sees.
    pub(crate) const fn number(self, request: u64) -> u64 {
        request | ((self.serial & SERIAL_MAX) as u64) << REQUEST_BITS
    }
}

/// What a lane is told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Told {
    /// By a dispatcher.
    Copy(CopyRecord),
    /// By an agent.
    Served(ServedRecord),
}

impl Told {
    /// When it was sent, or came.
    pub(crate) const fn at(&self) -> Instant {
        match self {
            Self::Copy(copy) => copy.sent_at,
            Self::Served(copy) => copy.arrived_at,
        }
    }

    /// The window that was in.
    pub(crate) fn window(&self) -> u64 {
        self.at().as_nanos() / nanos(WINDOW)
    }
}

/// What found no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    pub(crate) rows: u64,
    /// The first and the last of the windows that lack some.
    pub(crate) windows: (u64, u64),
}

#[derive(Debug)]
struct Waiting {
    rows: Vec<Told>,
    lost: Option<Lost>,
}

/// The buffer of one dispatcher.
#[derive(Clone, Debug)]
pub(crate) struct Lane(Arc<Mutex<Waiting>>);

impl Lane {
    pub(crate) fn new() -> Self {
        let rows = Vec::with_capacity(ROWS_MAX);
        Self(Arc::new(Mutex::new(Waiting { rows, lost: None })))
    }

    /// For the dispatcher or agent.
    pub(crate) fn sink(&self, of: Teller) -> LaneSink {
        LaneSink { lane: self.clone(), of, aside: Vec::with_capacity(ASIDE_MAX), lost: None }
    }

    /// Whether the dispatcher is gone.
    pub(crate) fn is_over(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Takes what there is; `room` is empty, and is given to the dispatcher for the next ones.
    pub(crate) fn take(&self, room: &mut Vec<Told>) -> Option<Lost> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        mem::swap(&mut waiting.rows, room);
        waiting.lost.take()
    }
}

/// The dispatcher's end of a lane.
#[derive(Debug)]
pub(crate) struct LaneSink {
    lane: Lane,
    of: Teller,
    aside: Vec<Told>,
    lost: Option<Lost>,
}

impl CopySink for LaneSink {
    #[inline]
    fn copy_ended(&mut self, copy: &CopyRecord) {
        self.tell(&Told::Copy(*copy));
    }

    fn number(&self, request: u64) -> u64 {
        self.of.number(request)
    }
}

impl ServedSink for LaneSink {
    #[inline]
    fn copy_left(&mut self, copy: &ServedRecord) {
        self.tell(&Told::Served(*copy));
    }
}

impl LaneSink {
    #[inline]
    fn tell(&mut self, copy: &Told) {
        let mut waiting = match self.lane.0.try_lock() {
            Ok(waiting) => waiting,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                match self.aside.len() < ASIDE_MAX {
                    true => self.aside.push(*copy),
                    false => note(&mut self.lost, copy),
                }
                return;
            }
        };
        for aside in self.aside.drain(..) {
            push(&mut waiting, &aside);
        }
        push(&mut waiting, copy);
        if let Some(lost) = self.lost.take() {
            waiting.lost = Some(merged(waiting.lost, lost));
        }
    }
}

impl Drop for LaneSink {
    fn drop(&mut self) {
        // The dispatcher ends: now there is time to wait.
        let mut waiting = self.lane.0.lock().unwrap_or_else(PoisonError::into_inner);
        for aside in self.aside.drain(..) {
            push(&mut waiting, &aside);
        }
        if let Some(lost) = self.lost.take() {
            waiting.lost = Some(merged(waiting.lost, lost));
        }
    }
}

#[inline]
fn push(waiting: &mut Waiting, copy: &Told) {
    match waiting.rows.len() < ROWS_MAX {
        true => waiting.rows.push(*copy),
        false => note(&mut waiting.lost, copy),
    }
}

#[cold]
fn note(lost: &mut Option<Lost>, copy: &Told) {
    let window = copy.window();
    *lost = Some(merged(*lost, Lost { rows: 1, windows: (window, window) }));
}

fn merged(one: Option<Lost>, other: Lost) -> Lost {
    one.map_or(other, |one| Lost {
        rows: one.rows + other.rows,
        windows: (one.windows.0.min(other.windows.0), one.windows.1.max(other.windows.1)),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use evenkeel_core::request::Kind;
    use evenkeel_core::request::copies::CopyEnd;
    use evenkeel_core::{GroupId, Instant, ReplicaId};

    use super::*;

    const ONE: Teller = Teller { client: 0, serial: 0 };

    /// A copy that was sent then.
    pub(crate) fn copy(request: u64, sent_ms: u64) -> CopyRecord {
        CopyRecord {
            request,
            sent_at: Instant::from_millis(sent_ms),
            after_ns: 0,
            latency_ns: 3_000_000,
            replica: ReplicaId::new(0),
            group: GroupId::new(0),
            kind: Kind::First,
            is_explored: false,
            end: CopyEnd::Answered,
            size: 0,
        }
    }

    #[test]
    fn what_finds_no_room_is_counted_with_its_windows_and_nothing_grows() {
        let lane = Lane::new();
        let mut sink = lane.sink(ONE);
        (0..ROWS_MAX as u64).for_each(|n| sink.copy_ended(&copy(n, 5)));
        sink.copy_ended(&copy(0, 25_000));
        sink.copy_ended(&copy(1, 47_000));
        let mut room = Vec::with_capacity(ROWS_MAX);
        assert_eq!(lane.take(&mut room), Some(Lost { rows: 2, windows: (2, 4) }));
        assert_eq!((room.len(), room.capacity()), (ROWS_MAX, ROWS_MAX));
        room.clear();
        assert_eq!(lane.take(&mut room), None);
    }

    #[test]
    fn who_tells_does_not_wait_for_who_takes() {
        let lane = Lane::new();
        let mut sink = lane.sink(ONE);
        let taking = lane.0.lock().unwrap();
        (0..ASIDE_MAX as u64 + 3).for_each(|n| sink.copy_ended(&copy(n, 15_000)));
        drop(taking);
        sink.copy_ended(&copy(99, 15_000));
        let mut room = Vec::new();
        assert_eq!(lane.take(&mut room), Some(Lost { rows: 3, windows: (1, 1) }));
        assert_eq!(room.len(), ASIDE_MAX + 1);
        assert!(!lane.is_over());
        drop(sink);
        assert!(lane.is_over());
    }
}
