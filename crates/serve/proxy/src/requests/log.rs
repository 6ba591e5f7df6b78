//! Where each worker keeps its records: a ring of the last ones, and a ring of the remarkable ones,
//! which those that are not push out later.
//!
//! A worker never waits for whoever reads: while somebody does, its records wait in a short queue.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use evenkeel_core::Instant;

use super::record::RequestRecord;

/// Records of a worker, remarkable or not.
pub const LAST_MAX: usize = 4_096;
/// Remarkable records of a worker.
pub const REMARKABLE_MAX: usize = 1_024;
/// Records that wait while somebody reads; further ones are lost, the eldest first.
const WAITING_MAX: usize = 256;
/// Room for records that a worker keeps for its next requests, apart from what is in the rings.
const ROOM_MAX: usize = 256;

/// The records of all workers.
#[derive(Clone, Debug)]
pub struct RequestLog(Arc<[Mutex<Rings>]>);

#[derive(Debug)]
struct Rings {
    /// Boxed: what the newest one pushes out is room for another request.
    last: Ring<Box<RequestRecord>>,
    remarkable: Ring<RequestRecord>,
}

#[derive(Debug)]
struct Ring<T> {
    records: Vec<T>,
    /// Where the next one goes, once it is full.
    next: usize,
    records_max: usize,
}

impl<T> Ring<T> {
    const fn new(records_max: usize) -> Self {
        Self { records: Vec::new(), next: 0, records_max }
    }

    /// Gives back what it pushes out.
    #[inline]
    fn push(&mut self, record: T) -> Option<T> {
        if self.records.len() < self.records_max {
            self.records.push(record);
            return None;
        }
        let eldest = mem::replace(&mut self.records[self.next], record);
        self.next += 1;
        if self.next == self.records_max {
            self.next = 0;
        }
        Some(eldest)
    }
}

/// Which records are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// The remarkable ones.
    Remarkable,
    /// All that are left.
    All,
}

impl RequestLog {
    /// Of so many workers. Memory grows with the requests, to
    /// [`LAST_MAX`] + [`REMARKABLE_MAX`] records for each worker.
    pub fn new(workers: usize) -> Self {
        let rings = || Rings { last: Ring::new(LAST_MAX), remarkable: Ring::new(REMARKABLE_MAX) };
        Self((0..workers).map(|_| Mutex::new(rings())).collect())
    }

    /// The part of a worker.
    pub fn writer(&self, worker: usize) -> Writer {
        Writer { log: self.clone(), worker, waiting: VecDeque::new(), room: Vec::new() }
    }

    /// The records that pass the filter, in no order, each once.
    pub fn select(
        &self,
        which: Which,
        filter: impl Fn(&RequestRecord) -> bool,
    ) -> Vec<RequestRecord> {
        let mut found = Vec::new();
        for rings in &*self.0 {
            let rings = rings.lock().unwrap_or_else(PoisonError::into_inner);
            let remarkable = rings.remarkable.records.iter();
            found.extend(remarkable.filter(|it| filter(it)).copied());
            if which == Which::All {
                // The remarkable ones are in both.
                let others = rings.last.records.iter().filter(|it| it.remarks.is_empty());
                found.extend(others.filter(|it| filter(it)).map(|it| **it));
            }
        }
        found
    }

    /// Records that are kept now.
    pub fn len(&self) -> usize {
        let of = |rings: &Mutex<Rings>| {
            let rings = rings.lock().unwrap_or_else(PoisonError::into_inner);
            rings.last.records.len() + rings.remarkable.records.len()
        };
        self.0.iter().map(of).sum()
    }

    /// Whether nothing was kept yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Writes the records of a worker.
#[derive(Debug)]
pub struct Writer {
    log: RequestLog,
    worker: usize,
    waiting: VecDeque<Box<RequestRecord>>,
    /// For the next requests.
    #[expect(clippy::vec_box, reason = "the boxes are what is used again")]
    room: Vec<Box<RequestRecord>>,
}

impl Writer {
    /// Room for the record of a request that comes now to this upstream: what one before it had,
    /// where there is any.
    #[inline]
    pub fn begin(&mut self, now: Instant, upstream: u16) -> Box<RequestRecord> {
        let Some(mut record) = self.room.pop() else {
            return Box::new(RequestRecord::new(now, upstream));
        };
        record.renew(now, upstream);
        record
    }

    /// Keeps a record.
    #[inline]
    pub fn push(&mut self, record: Box<RequestRecord>) {
        let mut rings = match self.log.0[self.worker].try_lock() {
            Ok(rings) => rings,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                if self.waiting.len() == WAITING_MAX {
                    self.waiting.pop_front();
                }
                self.waiting.push_back(record);
                return;
            }
        };
        while let Some(waited) = self.waiting.pop_front() {
            rings.push(waited);
        }
        if let Some(eldest) = rings.push(record)
            && self.room.len() < ROOM_MAX
        {
            self.room.push(eldest);
        }
    }
}

impl Rings {
    /// Gives back the room of what it pushes out.
    #[inline]
    fn push(&mut self, record: Box<RequestRecord>) -> Option<Box<RequestRecord>> {
        if !record.remarks.is_empty() {
            self.remarkable.push(*record);
        }
        self.last.push(record)
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Remarks;
    use super::*;

    fn push(writer: &mut Writer, at_ms: u64, is_slow: bool) {
        let mut record = writer.begin(Instant::from_millis(at_ms), 0);
        if is_slow {
            record.remarks.add(Remarks::SLOW);
        }
        writer.push(record);
    }

    #[test]
    fn a_million_requests_take_no_more_room_than_some_thousand_and_slow_ones_stay() {
        let log = RequestLog::new(1);
        let mut writer = log.writer(0);
        push(&mut writer, 0, true);
        for n in 1..=1_000_000 {
            push(&mut writer, n, n % 10_000 == 0);
        }
        assert_eq!(log.len(), LAST_MAX + 101);
        let rings = log.0[0].lock().unwrap();
        assert!(rings.last.records.capacity() <= LAST_MAX, "it grows to its bound");
        drop(rings);
        let most = size_of::<RequestRecord>() * (LAST_MAX + REMARKABLE_MAX);
        assert!(most < 2_600_000, "docs/explain.md says about 2.5 MB: {most}");
        let slow = log.select(Which::Remarkable, |it| it.began == Instant::ZERO);
        assert_eq!(slow.len(), 1, "the first one is remarkable, and still there");
        let all = log.select(Which::All, |_| true);
        assert_eq!(all.len(), LAST_MAX + 100, "each once");
    }

    #[test]
    fn who_writes_does_not_wait_for_who_reads() {
        let log = RequestLog::new(1);
        let mut writer = log.writer(0);
        let reading = log.0[0].lock().unwrap();
        for n in 0..300 {
            push(&mut writer, n, false);
        }
        drop(reading);
        push(&mut writer, 300, false);
        assert_eq!(log.len(), WAITING_MAX + 1);
        assert_eq!(log.select(Which::All, |it| it.began < Instant::from_millis(44)).len(), 0);
    }
}
