//! Reading a log from a place on while it is written.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::LogError;
use super::medium::{OpenSegment, Shelf};
use super::segment::{
    Frame, HEAD_BYTES, Head, NoFrame, RecordKind, TELLS_TIME, Tag, VERSION, decode, fields,
};

/// Read at once, and kept when a longer record has been read.
const CHUNK_BYTES: usize = 256 << 10;
/// Passed over by one call of [`Reader::next`] before it pauses.
const PAUSE_BYTES: u64 = 1 << 20;

/// One record of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Of a write its own sequence number; of a state that of the last write it contains.
    pub sequence: u64,
    /// The shard of its key.
    pub shard: u16,
    /// What it is.
    pub kind: RecordKind,
    /// Up to which time, in ms since 1970, deadlines had passed before it, as far as that was told
    /// from where the reader began ([`super::Log::tell_time`]).
    pub passed_unix_ms: Option<i64>,
    /// The command, as it was appended.
    pub command: &'a [u8],
}

/// A part of the log: the stream of one partition.
#[derive(Clone, Debug)]
pub struct Part {
    /// Which.
    pub partition: u16,
    /// By shard: whether it was there before shards could move. That is what records of version 1
    /// go by, which name no partition.
    pub shards: Vec<bool>,
}

impl Part {
    fn has(&self, frame: &Frame<'_>) -> bool {
        match frame.partition {
            Some(partition) => partition == self.partition,
            None => self.shards.get(usize::from(frame.shard)).copied().unwrap_or_default(),
        }
    }
}

/// What a log and its readers share.
#[derive(Debug)]
pub(super) struct Bounds {
    end: AtomicU64,
    first_sequence: AtomicU64,
}

impl Bounds {
    pub(super) const fn new(end: u64, first_sequence: u64) -> Self {
        Self { end: AtomicU64::new(end), first_sequence: AtomicU64::new(first_sequence) }
    }

    /// Offset behind what is committed, in the whole log.
    pub(super) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    pub(super) fn extend(&self, end: u64) {
        self.end.store(end, Ordering::Release);
    }

    /// The first write that can be read.
    pub(super) fn first_sequence(&self) -> u64 {
        self.first_sequence.load(Ordering::Acquire)
    }

    pub(super) fn begin_with(&self, first_sequence: u64) {
        self.first_sequence.store(first_sequence, Ordering::Release);
    }
}

/// What is read.
#[derive(Clone, Debug)]
pub(super) enum Wanted {
    /// Writes after this sequence number.
    WritesAfter(u64),
    /// Writes and states, all of them.
    Everything,
}

/// Reads records in the order of the log, up to what is committed at that moment; later calls go on
/// from there. It holds one chunk (256 KiB) or one record, whichever is more.
#[derive(Debug)]
pub struct Reader {
    shelf: Shelf,
    bounds: Arc<Bounds>,
    salt: u32,
    wanted: Wanted,
    part: Option<Part>,
    /// The segment that is open and its offset in the whole log.
    segment: Option<(OpenSegment, u64)>,
    /// Of its format.
    version: u32,
    /// Offset of the next record in the whole log.
    at: u64,
    buffer: Vec<u8>,
    /// What of `buffer` is still to be read.
    from: usize,
    to: usize,
    passed: u64,
    passed_unix_ms: Option<i64>,
}

impl Reader {
    pub(super) fn new(
        shelf: Shelf,
        bounds: Arc<Bounds>,
        salt: u32,
        (wanted, part): (Wanted, Option<Part>),
        (begins, at): (u64, u64),
    ) -> Result<Self, LogError> {
        let passed = if let Wanted::WritesAfter(sequence) = wanted { sequence } else { 0 };
        let mut reader = Self {
            shelf,
            bounds,
            salt,
            wanted,
            part,
            segment: None,
            version: VERSION,
            at,
            buffer: Vec::new(),
            from: 0,
            to: 0,
            passed,
            passed_unix_ms: None,
        };
        reader.enter(begins)?;
        reader.at = at;
        Ok(reader)
    }

    /// The next record that is wanted. `None`: there is none now, since everything committed has
    /// been read ([`Reader::is_at_end`]), or since 1 MiB that is not wanted has been passed over
    /// and others should have their turn.
    ///
    /// # Errors
    /// When its segment has been removed meanwhile, cannot be read or is damaged.
    #[expect(clippy::should_implement_trait, reason = "the record borrows from the reader")]
    pub fn next(&mut self) -> Result<Option<Record<'_>>, LogError> {
        let pause = self.at.saturating_add(PAUSE_BYTES);
        let (length, kind) = loop {
            if self.at >= pause {
                return Ok(None);
            }
            match decode(&self.buffer[self.from..self.to], self.salt, self.version) {
                Ok(frame) => {
                    let (length, kind) = (frame.length(), self.kind_if_wanted(&frame));
                    if frame.tag.is_write() {
                        self.passed = self.passed.max(frame.sequence);
                    }
                    if let (Tag::Time, Ok(time)) = (frame.tag, frame.command.try_into()) {
                        let later = Some(i64::from_le_bytes(time));
                        self.passed_unix_ms = self.passed_unix_ms.max(later);
                    }
                    self.from += length;
                    self.at += length as u64;
                    if let Some(kind) = kind {
                        break (length, kind);
                    }
                }
                Err(NoFrame::Short(whole)) => {
                    if !self.fill(whole)? {
                        return Ok(None);
                    }
                }
                Err(NoFrame::Wrong { found, expected }) => {
                    return Err(self.damaged(found, expected));
                }
            }
        };
        let (sequence, shard, command) =
            fields(&self.buffer[self.from - length..self.from], self.version);
        let passed_unix_ms = self.passed_unix_ms;
        Ok(Some(Record { sequence, shard, kind, passed_unix_ms, command }))
    }

    /// Whether records from here on say which deadlines had passed before them: those of earlier
    /// releases do not.
    pub const fn tells_time(&self) -> bool {
        self.version >= TELLS_TIME
    }

    /// Whether everything that is committed has been read.
    pub fn is_at_end(&self) -> bool {
        self.at >= self.bounds.end()
    }

    /// Bytes of the log from here to what is committed.
    pub fn bytes_left(&self) -> u64 {
        self.bounds.end().saturating_sub(self.at)
    }

    /// The sequence number up to which everything has been read or passed over.
    pub const fn passed(&self) -> u64 {
        self.passed
    }

    fn kind_if_wanted(&self, frame: &Frame<'_>) -> Option<RecordKind> {
        let Tag::Command(kind) = frame.tag else { return None };
        let is_later = match self.wanted {
            Wanted::Everything => true,
            Wanted::WritesAfter(sequence) => frame.tag.is_write() && frame.sequence > sequence,
        };
        let is_of_part = self.part.as_ref().is_none_or(|part| part.has(frame));
        (is_later && is_of_part).then_some(kind)
    }

    /// Reads on until `whole` bytes are there, if so many are committed.
    fn fill(&mut self, whole: usize) -> Result<bool, LogError> {
        let end = self.bounds.end();
        let read_to = self.at + (self.to - self.from) as u64;
        let committed = end.saturating_sub(read_to);
        if committed == 0 {
            return Ok(false);
        }
        self.make_room(whole);
        let (segment, begins) = self.segment.as_ref().expect("one is open");
        let most =
            usize::try_from(committed).unwrap_or(usize::MAX).min(self.buffer.len() - self.to);
        let place = &mut self.buffer[self.to..self.to + most];
        let read = segment.read_at(place, read_to - begins);
        let path = || self.shelf.path(*begins);
        let read = read.map_err(|error| LogError::system(&path(), "read it", error))?;
        self.to += read;
        if read == 0 {
            if self.to > self.from {
                let found = "the end of the segment within a record".to_owned();
                return Err(self.damaged(found, format!("{whole} bytes")));
            }
            self.enter(read_to)?;
        }
        Ok(true)
    }

    /// Room for `whole` bytes from `from` on, and for a chunk.
    fn make_room(&mut self, whole: usize) {
        self.buffer.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        let size = whole.max(CHUNK_BYTES);
        if self.to < CHUNK_BYTES && self.buffer.len() > size {
            self.buffer.truncate(size);
            self.buffer.shrink_to(size);
        }
        if self.buffer.len() < size {
            self.buffer.resize(size, 0);
        }
    }

    /// Opens the segment that begins at this offset.
    fn enter(&mut self, begins: u64) -> Result<(), LogError> {
        let Some(segment) = self.shelf.open(begins)? else {
            let first = self.bounds.first_sequence();
            return Err(LogError::Gone { asked: self.passed, first });
        };
        let mut head = [0; HEAD_BYTES];
        let read = segment.read_at(&mut head, 0);
        let path = || self.shelf.path(begins);
        let read = read.map_err(|error| LogError::system(&path(), "read it", error))?;
        self.segment = Some((segment, begins));
        self.at = begins;
        match Head::decode(&head[..read]) {
            Ok(head) if head.begins == begins && head.salt == self.salt => {
                self.version = head.version;
            }
            Ok(_) => {
                let found = "the head of another segment".to_owned();
                return Err(self.damaged(found, "its own".to_owned()));
            }
            Err(_) => {
                return Err(self.damaged("no head".to_owned(), "a head".to_owned()));
            }
        }
        self.at = begins + HEAD_BYTES as u64;
        Ok(())
    }

    fn damaged(&self, found: String, expected: String) -> LogError {
        let begins = self.segment.as_ref().map_or(0, |(_, begins)| *begins);
        LogError::Damaged {
            path: self.shelf.path(begins),
            offset: self.at - begins,
            found,
            expected,
            cause: "it was written and checked before: is the disk sound, or did somebody write?",
        }
    }
}
