//! What one worker learns, its siblings use.
//!
//! The workers of a process have a dispatcher each and share no lock. So each would know only its
//! own requests, and a replica that looks idle to all of them gets a request from each. Here every
//! worker writes into a row of its own what it has in flight at each replica, and what answers told
//! in sum; before it chooses, it looks at the rows of the others, if it has not for a while.
//!
//! **Cost**: a few plain stores for each request into memory that nobody else writes. A look reads
//! one line of memory for each replica and sibling, most of which another processor has; it is put
//! off until it costs about a hundredth of the time (`LOOK_NS_PER_CELL`).
//!
//! **When it misleads**: what is known of siblings is as old as the last look. Queues that are
//! shorter than a look apart are not seen; the own requests in flight always are.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};

use crate::fleet::{Elsewhere, Feedback, Fleet, GivenUp, Replica, ReplicaId};
use crate::request::select::{Selector, Told};
use crate::time::{Instant, nanos};

/// A look is this long after the one before, at the least.
const LOOK_NS_MIN: u64 = 250_000;
/// And this long for each cell that it reads: a cell costs about 50 ns where another processor has
/// it.
const LOOK_NS_PER_CELL: u64 = 5_000;
const CELLS_OF_CHUNK: usize = 64;
/// Replicas in later slots are not shared.
const CHUNKS: usize = 64;

/// What the workers of one process know of the replicas of one upstream: a row for each worker.
#[derive(Debug)]
pub struct Siblings(Box<[Row]>);

#[derive(Debug)]
struct Row([OnceLock<Box<[Cell]>>; CHUNKS]);

/// What one worker says of one replica. Only that worker writes; a line of memory of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Cell {
    /// Of which replica of the slot it speaks.
    generation: AtomicU32,
    in_flight: AtomicU32,
    /// Odd while what follows is being written.
    version: AtomicU32,
    answers: AtomicU32,
    queue: AtomicU32,
    /// Copies that were given up, as the bits of a number: see [`GivenUp`].
    given_up: AtomicU32,
    latency_ns: AtomicU64,
    service_ns: AtomicU64,
    waited_ns: AtomicU64,
    given_up_at: AtomicU64,
}

/// Sums over all answers of a replica; they wrap.
#[derive(Clone, Copy, Default, Debug)]
struct Sums {
    answers: u32,
    queue: u32,
    latency_ns: u64,
    service_ns: u64,
}

/// A worker's place among its siblings.
#[derive(Debug)]
pub struct Seat {
    siblings: Arc<Siblings>,
    own: usize,
    look_at: Instant,
    /// By slot and sibling: what was known at the last look, of which generation.
    seen: Vec<(u32, Sums)>,
}

impl Siblings {
    /// Room for so many workers.
    pub fn new(workers: usize) -> Arc<Self> {
        let row = || Row([const { OnceLock::new() }; CHUNKS]);
        Arc::new(Self((0..workers).map(|_| row()).collect()))
    }

    /// The place of a worker, from 0; `None` where it has no siblings.
    ///
    /// # Panics
    /// When there is no room for this worker.
    pub fn seat(self: &Arc<Self>, worker: usize) -> Option<Seat> {
        assert!(worker < self.0.len(), "worker {worker} of {}", self.0.len());
        let siblings = Arc::clone(self);
        let seat = Seat { siblings, own: worker, look_at: Instant::ZERO, seen: Vec::new() };
        (self.0.len() > 1).then_some(seat)
    }
}

impl Row {
    fn cell(&self, slot: usize) -> Option<&Cell> {
        let chunk = self.0.get(slot / CELLS_OF_CHUNK)?.get()?;
        Some(&chunk[slot % CELLS_OF_CHUNK])
    }

    fn own_cell(&self, slot: usize) -> Option<&Cell> {
        let chunk = self.0.get(slot / CELLS_OF_CHUNK)?;
        let cells = || (0..CELLS_OF_CHUNK).map(|_| Cell::default()).collect();
        Some(&chunk.get_or_init(cells)[slot % CELLS_OF_CHUNK])
    }
}

impl Cell {
    /// What it says, unless that is being written at this moment.
    fn read(&self) -> Option<(Sums, GivenUp)> {
        let version = self.version.load(Ordering::Acquire);
        let sums = Sums {
            answers: self.answers.load(Ordering::Relaxed),
            queue: self.queue.load(Ordering::Relaxed),
            latency_ns: self.latency_ns.load(Ordering::Relaxed),
            service_ns: self.service_ns.load(Ordering::Relaxed),
        };
        let given_up = GivenUp {
            copies: f64::from(f32::from_bits(self.given_up.load(Ordering::Relaxed))),
            waited_ns: self.waited_ns.load(Ordering::Relaxed),
            at: Instant::from_nanos(self.given_up_at.load(Ordering::Relaxed)),
        };
        fence(Ordering::Acquire);
        let is_whole = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        is_whole.then_some((sums, given_up))
    }

    /// Changes what it says; only its own worker does.
    fn write(&self, change: impl FnOnce()) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        change();
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    fn add(&self, latency_ns: u64, service_ns: u64, queue: u32) {
        let add = |sum: &AtomicU64, more| {
            sum.store(sum.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        };
        let count = |sum: &AtomicU32, more| {
            sum.store(sum.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        };
        count(&self.answers, 1);
        count(&self.queue, queue);
        add(&self.latency_ns, latency_ns);
        add(&self.service_ns, service_ns);
    }

    fn set_given_up(&self, given_up: &GivenUp) {
        self.given_up.store((given_up.copies as f32).to_bits(), Ordering::Relaxed);
        self.waited_ns.store(given_up.waited_ns, Ordering::Relaxed);
        self.given_up_at.store(given_up.at.as_nanos(), Ordering::Relaxed);
    }
}

impl Sums {
    /// What came since `before`.
    const fn since(self, before: Self) -> Self {
        Self {
            answers: self.answers.wrapping_sub(before.answers),
            queue: self.queue.wrapping_sub(before.queue),
            latency_ns: self.latency_ns.wrapping_sub(before.latency_ns),
            service_ns: self.service_ns.wrapping_sub(before.service_ns),
        }
    }

    const fn and(self, other: Self) -> Self {
        Self {
            answers: self.answers.wrapping_add(other.answers),
            queue: self.queue.wrapping_add(other.queue),
            latency_ns: self.latency_ns.wrapping_add(other.latency_ns),
            service_ns: self.service_ns.wrapping_add(other.service_ns),
        }
    }

    fn told(self) -> Told {
        let answers = f64::from(self.answers);
        Told {
            answers: self.answers,
            latency_ms: self.latency_ns as f64 * 1e-6 / answers,
            service_ms: self.service_ns as f64 * 1e-6 / answers,
            queue: f64::from(self.queue) / answers,
        }
    }
}

impl Seat {
    /// Says what is in flight at a replica, which has changed.
    #[inline]
    pub(crate) fn note_in_flight(&self, id: ReplicaId, replica: &Replica) {
        let Some(cell) = self.siblings.0[self.own].own_cell(id.index()) else { return };
        cell.in_flight.store(replica.in_flight(), Ordering::Relaxed);
        cell.generation.store(replica.generation(), Ordering::Relaxed);
    }

    /// Says what an answer told of a replica, about which this is known now.
    #[inline]
    pub(crate) fn note_answer(
        &self,
        (id, replica): (ReplicaId, &Replica),
        latency_ns: u64,
        report: Option<&Feedback>,
    ) {
        let Some(cell) = self.siblings.0[self.own].own_cell(id.index()) else { return };
        let report = report.and_then(|it| Some((nanos(it.service_time?), it.queue_length)));
        let (service_ns, queue) = report.unwrap_or((latency_ns, 0));
        cell.write(|| {
            cell.add(latency_ns, service_ns, queue);
            cell.set_given_up(&replica.given_up);
        });
    }

    /// Says that a copy was given up.
    pub(crate) fn note_given_up(&self, id: ReplicaId, replica: &Replica) {
        if let Some(cell) = self.siblings.0[self.own].own_cell(id.index()) {
            cell.write(|| cell.set_given_up(&replica.given_up));
        }
    }

    /// Whether it is time to look.
    #[inline]
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        now >= self.look_at
    }

    /// Looks what siblings have in flight, and lets the policy learn what they heard.
    #[cold]
    pub(crate) fn look(&mut self, now: Instant, fleet: &mut Fleet, selector: &mut dyn Selector) {
        let others = self.siblings.0.len() - 1;
        let slots = fleet.len().min(CHUNKS * CELLS_OF_CHUNK);
        self.seen.resize(slots * others, (u32::MAX, Sums::default()));
        for slot in 0..slots {
            let id = ReplicaId::new(slot);
            let generation = fleet.replica(id).generation();
            let seen = &mut self.seen[slot * others..][..others];
            let rows = self.siblings.0.iter().enumerate().filter(|(row, _)| *row != self.own);
            let mut elsewhere = Elsewhere { in_flight: 0, given_up: 0.0 };
            let mut heard = Sums::default();
            for ((_, row), (of, before)) in rows.zip(seen) {
                let Some(cell) = row.cell(slot) else {
                    (*of, *before) = (generation, Sums::default()); // it begins with nothing
                    continue;
                };
                if cell.generation.load(Ordering::Relaxed) != generation {
                    continue; // it speaks of another replica
                }
                elsewhere.in_flight += cell.in_flight.load(Ordering::Relaxed);
                let Some((sums, given_up)) = cell.read() else { continue };
                elsewhere.given_up += given_up.left(now);
                if *of == generation {
                    heard = heard.and(sums.since(*before));
                }
                (*of, *before) = (generation, sums);
            }
            fleet.replica_mut(id).elsewhere = elsewhere;
            if heard.answers > 0 {
                selector.on_siblings(now, id, &heard.told());
            }
        }
        let cells = (slots * others) as u64;
        self.look_at = now.plus_nanos(LOOK_NS_MIN.max(cells * LOOK_NS_PER_CELL));
    }
}

/// A worker that ends has nothing in flight any more.
impl Drop for Seat {
    fn drop(&mut self) {
        let chunks = self.siblings.0[self.own].0.iter().filter_map(OnceLock::get);
        for cell in chunks.flat_map(|chunk| chunk.iter()) {
            cell.in_flight.store(0, Ordering::Relaxed);
            cell.write(|| cell.set_given_up(&GivenUp::default()));
        }
    }
}
