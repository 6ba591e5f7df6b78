//! The log of duplicated writes: what every duplicate must have applied, in one order.
//!
//! A write is in the log before any duplicate gets it, so a duplicate that was away is brought back
//! by reading from where it was, and a service that lost all of its duplicates' last seconds has
//! them here. Records lie in segments ([`segment`]) of bounded size; the oldest go as wholes.
//!
//! **What a crash can lose.** A record counts as written when [`Log::commit`] returns. The end of
//! the *process* loses nothing of that. The end of the *machine* (power, kernel) loses nothing
//! under [`Sync::Always`], the time between two syncs and the length of one under [`Sync::Every`],
//! and what the system had not written by itself under [`Sync::Never`]: with duplicates on several
//! machines that is what they are for. What is left is a prefix of what was appended; should there
//! be a hole with records behind it, opening says where and refuses, since nobody but an operator
//! knows whether those behind it are to be given up.
//!
//! **State records** let old segments go although nobody has copied them: once for every key what
//! it holds is in the log ([`Log::state_begins`] … [`Log::state_ends`]), a duplicate can be made
//! from the log's own beginning ([`Log::read_everything`]). A state that does not fit goes like all
//! that is old, and then counts as none ([`Log::state`]).
//!
//! **In memory** ([`LogPlace::Memory`]) it is a ring that is empty at every start; the rest is the
//! same (`medium.rs`).
//!
//! One thread writes; readers may be anywhere and see what is committed.

mod background_writer;
mod error;
mod medium;
mod reader;
mod recovery;
pub mod segment;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};

use self::background_writer::{sync, sync_directory};
pub use self::error::LogError;
use self::medium::{InMemory, Medium, create};
use self::reader::{Bounds, Wanted};
pub use self::reader::{Part, Reader, Record};
pub use self::recovery::Recovered;
use self::recovery::{Found, Segment, StatePlace, path_of, recover};
pub use self::segment::{COMMAND_BYTES_MAX, RecordKind};
use self::segment::{Frame, HEAD_BYTES, Head, LANDMARK_BYTES, Landmark, Tag, VERSION};

/// A segment is not shorter, unless the log is.
const SEGMENT_BYTES_MIN: u64 = 1 << 10;
/// Kept for the next batch; what a larger one took is given back.
const BUFFER_BYTES_KEPT: usize = 1 << 20;

/// When what is written is made to survive the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sync {
    /// When the operating system likes (Linux: within about 30 s).
    Never,
    /// Before every [`Log::commit`] returns: as slow as the disk.
    Always,
    /// So often, on a thread of its own.
    Every(Duration),
}

impl Sync {
    const fn every(self) -> Duration {
        if let Self::Every(every) = self { every } else { Duration::ZERO }
    }
}

/// Where a log is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogPlace {
    /// In files: it outlives the process.
    #[default]
    Disk,
    /// In the memory of the process, of which it takes [`LogSettings::bytes_max`] and one segment
    /// at most: it is empty at every start.
    Memory,
}

/// How a log is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogSettings {
    /// A new segment begins when one would become longer, in bytes; a batch is not split.
    pub segment_bytes: u64,
    /// The whole log, in bytes, at least two segments. When it would become longer, the oldest
    /// segments go: who has not applied them has to be copied. Only segments that are complete
    /// go, so it may be exceeded by one segment and one batch.
    pub bytes_max: u64,
    /// When it is synced.
    pub sync: Sync,
    /// Where it is.
    pub place: LogPlace,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            bytes_max: 4 << 30,
            sync: Sync::Every(Duration::from_secs(1)),
            place: LogPlace::Disk,
        }
    }
}

/// A log that is open for writing.
#[derive(Debug)]
pub struct Log {
    medium: Medium,
    settings: LogSettings,
    /// Complete ones, and last the one that is written.
    segments: VecDeque<Segment>,
    /// The latest state that is complete.
    state: Option<StatePlace>,
    /// One that is being recorded.
    begun: Option<StatePlace>,
    salt: u32,
    bounds: Arc<Bounds>,
    /// What has been appended and not committed.
    buffer: Vec<u8>,
    appended: Position,
    committed: Position,
    failed: Option<String>,
}

/// How far a log has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Position {
    sequence: u64,
    epoch: u64,
    epoch_since: u64,
}

impl Log {
    /// Opens the log in this directory, which is made if there is none, reads all of it and cuts
    /// off what a crash left half written. One in memory needs no directory, and begins empty.
    ///
    /// # Errors
    /// When another one writes it, a segment is damaged or of another version, the operating system
    /// refuses, or the settings contradict themselves.
    pub fn open(directory: &Path, settings: LogSettings) -> Result<(Self, Recovered), LogError> {
        check(&settings)?;
        if settings.place == LogPlace::Memory {
            return Self::in_memory(settings);
        }
        let made = fs::create_dir_all(directory);
        made.map_err(|error| LogError::system(directory, "make the directory", error))?;
        let lock = lock(directory)?;
        let found = match recover(directory)? {
            Some(found) => found,
            None => begin(directory)?,
        };
        let recovered = found.recovered.clone();
        Ok((Self::on_disk(directory, settings, found, lock)?, recovered))
    }

    fn on_disk(
        directory: &Path,
        settings: LogSettings,
        found: Found,
        lock: File,
    ) -> Result<Self, LogError> {
        let last = found.segments.last().expect("a log has a segment").begins;
        Self::of(Medium::on_disk(directory, settings.sync, last, lock)?, settings, found)
    }

    fn in_memory(settings: LogSettings) -> Result<(Self, Recovered), LogError> {
        let (memory, head) = (InMemory::default(), first_head());
        memory.create(&head);
        let found = found_nothing(&head);
        let recovered = found.recovered.clone();
        Ok((Self::of(Medium::Memory(memory), settings, found)?, recovered))
    }

    fn of(medium: Medium, settings: LogSettings, found: Found) -> Result<Self, LogError> {
        let Found { version, segments, state, end, salt, recovered } = found;
        let (epoch, epoch_since) = recovered.epochs.last().copied().unwrap_or((0, 1));
        let position = Position { sequence: recovered.last_sequence, epoch, epoch_since };
        let mut log = Self {
            medium,
            settings,
            segments: segments.into(),
            state,
            begun: None,
            salt,
            bounds: Arc::new(Bounds::new(end, recovered.first_sequence)),
            buffer: Vec::new(),
            appended: position,
            committed: position,
            failed: None,
        };
        if version != VERSION {
            let turned = log.turn(); // a segment is of one version
            log.noted(turned)?;
        }
        Ok(log)
    }

    /// Begins anew, with nothing: what it held is of no use, since others have written meanwhile.
    /// It is moved to `DIRECTORY/aside`, in place of what is there, in case somebody misses a write
    /// that was never acknowledged. Nobody may be reading it.
    ///
    /// # Errors
    /// When the operating system refuses. What was not moved is still a log.
    pub fn quarantine(&mut self) -> Result<Recovered, LogError> {
        let begins = self.segments.iter().map(|segment| segment.begins);
        let (log, recovered) = match self.medium.put_aside(begins)? {
            None => Self::in_memory(self.settings.clone())?,
            Some((directory, lock)) => {
                let found = begin(&directory)?;
                let recovered = found.recovered.clone();
                (Self::on_disk(&directory, self.settings.clone(), found, lock)?, recovered)
            }
        };
        *self = log;
        Ok(recovered)
    }

    /// Says that the log knows nothing of the writes up to this one, though duplicates have them:
    /// for a log that was lost. What it held before is removed.
    ///
    /// # Errors
    /// As [`Log::commit`].
    ///
    /// # Panics
    /// When the log has already come further.
    pub fn begin_after(&mut self, sequence: u64) -> Result<(), LogError> {
        assert!(sequence >= self.appended.sequence, "{sequence}: the log has come further");
        self.commit()?;
        (self.appended.sequence, self.committed.sequence) = (sequence, sequence);
        let turned = self.turn();
        self.noted(turned)?;
        while self.segments.len() > 1 {
            self.remove_oldest();
        }
        Ok(())
    }

    /// Says that nobody has the numbers up to this one that were not appended. In memory only: one
    /// on disk would take what is before them for forgotten when it is opened again.
    ///
    /// # Panics
    /// When it is on disk, has come further, or something is appended and not committed.
    pub fn skip_to(&mut self, sequence: u64) {
        assert!(self.settings.place == LogPlace::Memory && !self.is_dirty(), "what would be lost?");
        assert!(sequence >= self.appended.sequence, "{sequence}: the log has come further");
        (self.appended.sequence, self.committed.sequence) = (sequence, sequence);
    }

    /// Begins an epoch: what is appended from here on is of this one. Nothing is written yet.
    ///
    /// # Errors
    /// When the log has failed.
    ///
    /// # Panics
    /// When the epoch is not later than the one before it.
    pub fn begin_epoch(&mut self, epoch: u64) -> Result<(), LogError> {
        self.check_sound()?;
        let Position { sequence, epoch: before, .. } = self.appended;
        assert!(epoch > before, "epoch {epoch} after {before}: epochs ascend");
        let command = &epoch.to_le_bytes();
        let frame = Frame { sequence, shard: 0, partition: Some(0), tag: Tag::Epoch, command };
        segment::encode(&mut self.buffer, self.salt, &frame);
        let epoch_since = sequence.saturating_add(1);
        self.appended = Position { sequence, epoch, epoch_since };
        Ok(())
    }

    /// Says that the layout of this version is in use from here on. Nothing is written yet.
    ///
    /// # Errors
    /// When the log has failed.
    pub fn begin_layout(&mut self, version: u64) -> Result<(), LogError> {
        self.check_sound()?;
        let (sequence, command) = (self.appended.sequence, &version.to_le_bytes());
        let frame = Frame { sequence, shard: 0, partition: Some(0), tag: Tag::Layout, command };
        segment::encode(&mut self.buffer, self.salt, &frame);
        Ok(())
    }

    /// Says that every deadline up to this time, in ms since 1970, has passed for the writes that
    /// follow, of all partitions: who does them again finds no key that had such a one. Nothing is
    /// written yet.
    ///
    /// # Errors
    /// When the log has failed.
    pub fn tell_time(&mut self, unix_ms: i64) -> Result<(), LogError> {
        self.check_sound()?;
        let (sequence, command) = (self.appended.sequence, &unix_ms.to_le_bytes());
        let frame = Frame { sequence, shard: 0, partition: Some(0), tag: Tag::Time, command };
        segment::encode(&mut self.buffer, self.salt, &frame);
        Ok(())
    }

    /// Appends a record of a shard to the stream of a partition, which is the one that holds the
    /// shard, or is to hold it. Nothing is written before [`Log::commit`].
    ///
    /// # Errors
    /// When the command is too long ([`COMMAND_BYTES_MAX`]), or the log has failed.
    ///
    /// # Panics
    /// When a write does not have a later sequence number than the one before it (in memory: an
    /// earlier one), or a state holds at a sequence number that has not been appended.
    #[inline]
    pub fn append(
        &mut self,
        sequence: u64,
        (shard, partition): (u16, u16),
        kind: RecordKind,
        command: &[u8],
    ) -> Result<(), LogError> {
        self.check_sound()?;
        if command.len() > COMMAND_BYTES_MAX {
            let bytes = command.len();
            return Err(LogError::TooLong { bytes, bytes_max: COMMAND_BYTES_MAX });
        }
        let (tag, last) = (Tag::Command(kind), self.appended.sequence);
        if tag.is_write() {
            // What was read from duplicates of two partitions may have the same number.
            let is_same = sequence == last && self.settings.place == LogPlace::Memory;
            assert!(
                sequence > last || is_same,
                "write {sequence} after {last}: sequence numbers ascend"
            );
            self.appended.sequence = sequence;
        } else {
            assert!(sequence <= last, "a state after {sequence}, the last write is {last}");
        }
        let partition = Some(partition);
        let frame = Frame { sequence, shard, partition, tag, command };
        segment::encode(&mut self.buffer, self.salt, &frame);
        Ok(())
    }

    /// Writes what has been appended, with one `write`, and syncs it as the settings say.
    ///
    /// # Errors
    /// When the operating system refuses, now or in an earlier sync. Then it is unknown what of
    /// this batch is in the log, and the log takes nothing more before [`Log::mend`].
    #[inline]
    pub fn commit(&mut self) -> Result<(), LogError> {
        self.check_sound()?;
        if self.buffer.is_empty() {
            return Ok(());
        }
        let written = self.write();
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_BYTES_KEPT);
        self.noted(written)
    }

    /// Gives up what has been appended and not committed; the sequence number of the last write
    /// that is.
    pub fn discard(&mut self) -> u64 {
        self.buffer.clear();
        self.appended = self.committed;
        self.committed.sequence
    }

    /// Writes to a log again that failed, once there is room: what was not committed is cut off.
    ///
    /// # Errors
    /// When the system refuses still, or a sync or a removal failed: nobody knows what that lost.
    pub fn mend(&mut self) -> Result<(), LogError> {
        self.medium.mend(self.current().begins, self.bounds.end())?;
        self.discard();
        self.failed = None;
        Ok(())
    }

    /// Whether something has been appended and not committed.
    pub const fn is_dirty(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// The sequence number of the last write that was appended; 0 = none ever.
    pub const fn last_sequence(&self) -> u64 {
        self.appended.sequence
    }

    /// The epoch that was begun last; 0 = none ever.
    pub const fn epoch(&self) -> u64 {
        self.appended.epoch
    }

    /// The first sequence number whose write can be read.
    pub fn first_sequence(&self) -> u64 {
        self.bounds.first_sequence()
    }

    /// Length of what is committed and not removed, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bounds.end() - self.segments[0].begins
    }

    /// Reads the writes after this one, of one partition's stream or of all.
    ///
    /// # Errors
    /// When some of them have been removed, or the segment cannot be read.
    pub fn read_after(&self, sequence: u64, part: Option<&Part>) -> Result<Reader, LogError> {
        let first = self.first_sequence();
        if sequence.saturating_add(1) < first {
            return Err(LogError::Gone { asked: sequence, first });
        }
        let later = self.segments.partition_point(|segment| segment.base <= sequence);
        let segment = &self.segments[later.max(1) - 1];
        let landmarks = &segment.landmarks;
        let later = landmarks.partition_point(|landmark| landmark.sequence <= sequence);
        let from = segment.begins + landmarks[later.max(1) - 1].offset;
        self.reader(Wanted::WritesAfter(sequence), part, (segment.begins, from))
    }

    /// Reads all writes and states of a partition's stream, as [`Log::read_after`], from the oldest
    /// on. A state holds at its own sequence number: writes of that key before it may come after
    /// it.
    ///
    /// # Errors
    /// When the segment cannot be read.
    pub fn read_everything(&self, part: Option<&Part>) -> Result<Reader, LogError> {
        let begins = self.segments[0].begins;
        self.reader(Wanted::Everything, part, (begins, begins + HEAD_BYTES as u64))
    }

    fn reader(
        &self,
        wanted: Wanted,
        part: Option<&Part>,
        place: (u64, u64),
    ) -> Result<Reader, LogError> {
        let wanted = (wanted, part.cloned());
        let (shelf, bounds) = (self.medium.shelf(), Arc::clone(&self.bounds));
        Reader::new(shelf, bounds, self.salt, wanted, place)
    }

    /// Says that a whole state follows, each record as of this write or a later one. What was
    /// appended is committed, and a new segment begins, so that all before it can go later.
    ///
    /// # Errors
    /// As [`Log::commit`].
    ///
    /// # Panics
    /// When that write has not been appended.
    pub fn state_begins(&mut self, sequence: u64) -> Result<(), LogError> {
        self.commit()?;
        let turned = self.turn();
        self.noted(turned)?;
        self.begun = Some(StatePlace { begins: self.current().begins, sequence });
        self.mark(Tag::StateBegins, sequence);
        self.commit()
    }

    /// Whether the state that is being recorded is there from its beginning.
    ///
    /// # Errors
    /// When it is not: the log became too long meanwhile.
    pub const fn check_begun(&self) -> Result<(), LogError> {
        match self.begun {
            Some(_) => Ok(()),
            None => Err(LogError::StateGone { bytes_max: self.settings.bytes_max }),
        }
    }

    /// Says that the state that began at this write is complete, and commits. Now
    /// [`Log::truncate_before`] may be told the write after it.
    ///
    /// # Errors
    /// As [`Log::commit`] and [`Log::check_begun`].
    ///
    /// # Panics
    /// When that write has not been appended.
    pub fn state_ends(&mut self, sequence: u64) -> Result<(), LogError> {
        self.check_sound()?;
        self.check_begun()?;
        self.mark(Tag::StateEnds, sequence);
        self.commit()?;
        // The end may have begun a segment, and the beginning gone for it.
        self.check_begun()?;
        self.state = self.begun.take();
        Ok(())
    }

    /// The write at which the latest complete state begins, while all of it is in the log.
    pub fn state(&self) -> Option<u64> {
        self.state.map(|state| state.sequence)
    }

    fn mark(&mut self, tag: Tag, sequence: u64) {
        let last = self.appended.sequence;
        assert!(sequence <= last, "a state after {sequence}, the last write is {last}");
        let frame = Frame { sequence, shard: 0, partition: Some(0), tag, command: &[] };
        segment::encode(&mut self.buffer, self.salt, &frame);
    }

    /// Removes the segments that hold only writes before this one, up to the latest state; returns
    /// how many bytes go. Readers that have one of them open may read it to its end.
    pub fn truncate_before(&mut self, sequence: u64) -> u64 {
        let before = self.bytes();
        // Where nothing was written meanwhile, the state's own segments hold no later write.
        let kept_from = self.state.map_or(u64::MAX, |state| state.begins);
        while self.segments[0].begins < kept_from
            && self.segments.get(1).is_some_and(|next| next.base < sequence)
        {
            self.remove_oldest();
        }
        before - self.bytes()
    }

    fn remove_oldest(&mut self) {
        assert!(self.segments.len() > 1, "the segment that is written stays");
        let Some(oldest) = self.segments.pop_front() else { return };
        let is_left = |state: &StatePlace| state.begins > oldest.begins;
        self.state = self.state.filter(is_left);
        self.begun = self.begun.filter(is_left);
        self.bounds.begin_with(self.segments[0].base.saturating_add(1));
        self.medium.remove(oldest.begins);
    }

    #[inline]
    fn check_sound(&self) -> Result<(), LogError> {
        match self.failed.as_deref().or_else(|| self.medium.failed()) {
            None => Ok(()),
            Some(why) => Err(LogError::Refuses(why.to_owned())),
        }
    }

    /// Remembers a failure.
    #[inline]
    fn noted(&mut self, result: Result<(), LogError>) -> Result<(), LogError> {
        if let Err(error) = &result {
            self.failed = Some(error.to_string());
        }
        result
    }

    fn write(&mut self) -> Result<(), LogError> {
        let length = self.buffer.len() as u64;
        let written = self.bounds.end() - self.current().begins;
        if written > HEAD_BYTES as u64 && written + length > self.settings.segment_bytes {
            self.turn()?;
        }
        let end = self.bounds.end();
        let here =
            Landmark { sequence: self.committed.sequence, offset: end - self.current().begins };
        self.medium.write(self.current().begins, &self.buffer)?;
        self.committed = self.appended;
        self.bounds.extend(end + length);
        let landmarks = &mut self.segments.back_mut().expect("one is written").landmarks;
        let latest = landmarks.last().map_or(0, |landmark| landmark.offset);
        if here.offset - latest >= LANDMARK_BYTES {
            landmarks.push(here);
        }
        Ok(())
    }

    /// Begins the next segment; what is in the buffer will be in it.
    fn turn(&mut self) -> Result<(), LogError> {
        let head = head_after(self.bounds.end(), self.committed, self.salt);
        self.medium.turn(&head)?;
        self.segments.push_back(segment_of(&head));
        self.bounds.extend(head.begins + HEAD_BYTES as u64);
        while self.segments.len() > 1 && self.bytes() > self.settings.bytes_max {
            self.remove_oldest();
        }
        Ok(())
    }

    fn current(&self) -> &Segment {
        self.segments.back().expect("a log has a segment")
    }
}

fn check(settings: &LogSettings) -> Result<(), LogError> {
    let LogSettings { segment_bytes, bytes_max, sync, .. } = settings;
    let wrong = |words: String| Err(LogError::Settings(words));
    if *segment_bytes < SEGMENT_BYTES_MIN {
        return wrong(format!("segments of {segment_bytes} bytes, at least {SEGMENT_BYTES_MIN}"));
    }
    if *bytes_max / 2 < *segment_bytes {
        return wrong(format!(
            "at most {bytes_max} bytes in segments of {segment_bytes}: at least two segments were \
             expected, since only whole ones can go"
        ));
    }
    if *sync == Sync::Every(Duration::ZERO) {
        return wrong("a sync every 0 s: a longer time was expected, or every commit".to_owned());
    }
    Ok(())
}

/// Only one process writes.
fn lock(directory: &Path) -> Result<File, LogError> {
    let path = directory.join("lock");
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
    let mut file = opened.map_err(|error| LogError::system(&path, "open it", error))?;
    if let Err(error) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
        if error != rustix::io::Errno::WOULDBLOCK {
            return Err(LogError::system(&path, "lock it", error.into()));
        }
        let mut holder = String::new();
        // Only for the words of the error.
        let _ = (&file).take(100).read_to_string(&mut holder);
        let holder = holder.trim();
        let holder = if holder.is_empty() { "another process" } else { holder }.to_owned();
        return Err(LogError::Locked { directory: directory.to_owned(), holder });
    }
    let written = file.set_len(0).and_then(|()| file.rewind());
    let written = written.and_then(|()| writeln!(file, "process {}", std::process::id()));
    written.map_err(|error| LogError::system(&path, "write to it", error))?;
    Ok(file)
}

/// A log that holds nothing.
fn begin(directory: &Path) -> Result<Found, LogError> {
    let head = first_head();
    let path = path_of(directory, head.begins);
    sync(&create(&path, &head)?, &path)?;
    sync_directory(directory)?;
    Ok(found_nothing(&head))
}

fn first_head() -> Head {
    head_after(0, Position { sequence: 0, epoch: 0, epoch_since: 1 }, salt())
}

fn found_nothing(head: &Head) -> Found {
    Found {
        version: head.version,
        segments: vec![segment_of(head)],
        state: None,
        end: HEAD_BYTES as u64,
        salt: head.salt,
        recovered: Recovered {
            last_sequence: 0,
            first_sequence: 1,
            epochs: Vec::new(),
            state: None,
            layout: 0,
            torn_bytes: 0,
        },
    }
}

const fn head_after(end: u64, position: Position, salt: u32) -> Head {
    let Position { sequence, epoch, epoch_since } = position;
    Head { version: VERSION, begins: end, base: sequence, epoch, epoch_since, salt }
}

fn segment_of(head: &Head) -> Segment {
    let start = Landmark { sequence: head.base, offset: HEAD_BYTES as u64 };
    Segment { begins: head.begins, base: head.base, landmarks: vec![start] }
}

/// A number that nobody who only sends commands knows.
fn salt() -> u32 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mixed = since.as_nanos() as u64 ^ (u64::from(std::process::id()) << 32);
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}
