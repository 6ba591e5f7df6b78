//! Where segments are: files of a directory, or the memory of this process.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::background_writer::{BackgroundWriter, sync, sync_directory};
use super::recovery::path_of;
use super::segment::Head;
use super::{LogError, Sync};

/// Where a log goes that is of no use any more.
const QUARANTINE: &str = "aside";
/// What must find room before a log that failed is written to again, in bytes: more than a batch,
/// so that a full disk is not tried again with every byte that is freed.
const ROOM_BYTES: usize = 1 << 20;

/// Where the segments of one log are, and how they are written.
#[derive(Debug)]
pub(super) enum Medium {
    Disk(Disk),
    Memory(InMemory),
}

#[derive(Debug)]
pub(super) struct Disk {
    directory: PathBuf,
    sync: Sync,
    background_writer: BackgroundWriter,
    /// The segment that is written.
    file: Arc<File>,
    /// Held until everything else is closed.
    lock: File,
}

/// Segments by the offsets of their first bytes in the whole log; they go when the last one goes
/// who has them open.
#[derive(Debug, Clone, Default)]
pub(super) struct InMemory(Arc<Mutex<BTreeMap<u64, Shared>>>);

/// The bytes of a segment.
type Shared = Arc<RwLock<Vec<u8>>>;

/// Where a reader finds segments.
#[derive(Debug, Clone)]
pub(super) enum Shelf {
    Directory(PathBuf),
    Memory(InMemory),
}

/// A segment that is read.
#[derive(Debug)]
pub(super) enum OpenSegment {
    File(File),
    Memory(Shared),
}

impl InMemory {
    fn segments(&self) -> MutexGuard<'_, BTreeMap<u64, Shared>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a segment.
    pub(super) fn create(&self, head: &Head) {
        let segment = Arc::new(RwLock::new(head.encode().to_vec()));
        self.segments().insert(head.begins, segment);
    }

    fn append(&self, begins: u64, bytes: &[u8]) {
        let segment = self.segments().get(&begins).map(Arc::clone);
        if let Some(segment) = segment {
            segment.write().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        }
    }
}

impl Medium {
    pub(super) fn on_disk(
        directory: &Path,
        sync: Sync,
        last: u64,
        lock: File,
    ) -> Result<Self, LogError> {
        let path = path_of(directory, last);
        let opened = OpenOptions::new().append(true).open(&path);
        let file = Arc::new(opened.map_err(|error| LogError::system(&path, "open it", error))?);
        let background_writer = BackgroundWriter::start(directory, sync.every())?;
        let directory = directory.to_owned();
        Ok(Self::Disk(Disk { directory, sync, background_writer, file, lock }))
    }

    /// What failed since the beginning, while nobody waited.
    #[inline]
    pub(super) fn failed(&self) -> Option<&str> {
        match self {
            Self::Disk(disk) => disk.background_writer.failed(),
            Self::Memory(_) => None,
        }
    }

    pub(super) fn shelf(&self) -> Shelf {
        match self {
            Self::Disk(disk) => Shelf::Directory(disk.directory.clone()),
            Self::Memory(memory) => Shelf::Memory(memory.clone()),
        }
    }

    /// Appends to the segment that is written, which begins there, and syncs it as it is to be.
    pub(super) fn write(&self, begins: u64, bytes: &[u8]) -> Result<(), LogError> {
        let disk = match self {
            Self::Disk(disk) => disk,
            Self::Memory(memory) => {
                memory.append(begins, bytes);
                return Ok(());
            }
        };
        let path = || path_of(&disk.directory, begins);
        let failed = |error| LogError::system(&path(), "write to it", error);
        (&*disk.file).write_all(bytes).map_err(failed)?;
        match disk.sync {
            Sync::Never => {}
            Sync::Always => sync(&disk.file, &path())?,
            Sync::Every(_) => disk.background_writer.sync(&disk.file, path),
        }
        Ok(())
    }

    /// Begins the next segment.
    pub(super) fn turn(&mut self, head: &Head) -> Result<(), LogError> {
        let disk = match self {
            Self::Disk(disk) => disk,
            Self::Memory(memory) => {
                memory.create(head);
                return Ok(());
            }
        };
        let path = path_of(&disk.directory, head.begins);
        let file = Arc::new(create(&path, head)?);
        let complete = std::mem::replace(&mut disk.file, Arc::clone(&file));
        match disk.sync {
            Sync::Never => {}
            Sync::Always => {
                sync(&file, &path)?;
                sync_directory(&disk.directory)?;
            }
            Sync::Every(_) => disk.background_writer.settle(complete, file, path),
        }
        Ok(())
    }

    /// Removes a segment that is complete.
    pub(super) fn remove(&self, begins: u64) {
        match self {
            Self::Disk(disk) => disk.background_writer.remove(path_of(&disk.directory, begins)),
            Self::Memory(memory) => {
                memory.segments().remove(&begins);
            }
        }
    }

    /// Once there is room again: the segment that is written ends there, where all ended that was
    /// committed.
    ///
    /// # Errors
    /// When the system refuses still, or a sync or a removal failed: nobody knows what that lost.
    pub(super) fn mend(&mut self, begins: u64, end: u64) -> Result<(), LogError> {
        let Self::Disk(disk) = self else { return Ok(()) };
        if let Some(why) = disk.background_writer.failed() {
            return Err(LogError::Refuses(why.to_owned()));
        }
        let room = disk.directory.join("room");
        let written = fs::write(&room, vec![0; ROOM_BYTES]);
        let written = written.and(fs::remove_file(&room));
        written.map_err(|error| LogError::system(&room, "write to it", error))?;
        let path = path_of(&disk.directory, begins);
        let cut = || {
            let file = OpenOptions::new().append(true).open(&path)?;
            file.set_len(end - begins)?;
            // A segment that was begun in vain.
            match fs::remove_file(path_of(&disk.directory, end)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(file),
            }
        };
        let file = cut().map_err(|error| LogError::system(&path, "cut off its end", error))?;
        disk.file = Arc::new(file);
        Ok(())
    }

    /// Puts these segments aside, in place of what is there; the directory, and its lock, where
    /// there is one.
    pub(super) fn put_aside(
        &mut self,
        begins: impl DoubleEndedIterator<Item = u64>,
    ) -> Result<Option<(PathBuf, File)>, LogError> {
        let disk = match self {
            Self::Disk(disk) => disk,
            Self::Memory(memory) => {
                memory.segments().clear();
                return Ok(None);
            }
        };
        let quarantined = disk.directory.join(QUARANTINE);
        let system = |path: &Path, what, error| LogError::system(path, what, error);
        if quarantined.exists() {
            fs::remove_dir_all(&quarantined)
                .map_err(|error| system(&quarantined, "remove it", error))?;
        }
        fs::create_dir(&quarantined).map_err(|error| system(&quarantined, "make it", error))?;
        // The latest first: after a crash a beginning is left, which is as old and goes as well.
        for begins in begins.rev() {
            let from = path_of(&disk.directory, begins);
            let moved = fs::rename(&from, path_of(&quarantined, begins));
            moved.map_err(|error| system(&from, "move it aside", error))?;
        }
        let lock = disk.lock.try_clone();
        let lock = lock.map_err(|error| system(&disk.directory, "hold its lock", error))?;
        Ok(Some((disk.directory.clone(), lock)))
    }
}

impl Shelf {
    /// Opens the segment that begins there; `None` where it has been removed.
    pub(super) fn open(&self, begins: u64) -> Result<Option<OpenSegment>, LogError> {
        match self {
            Self::Directory(directory) => {
                let path = path_of(directory, begins);
                match File::open(&path) {
                    Ok(file) => Ok(Some(OpenSegment::File(file))),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                    Err(error) => Err(LogError::system(&path, "open it", error)),
                }
            }
            Self::Memory(memory) => {
                let segment = memory.segments().get(&begins).map(Arc::clone);
                Ok(segment.map(OpenSegment::Memory))
            }
        }
    }

    /// For people: which segment.
    pub(super) fn path(&self, begins: u64) -> PathBuf {
        match self {
            Self::Directory(directory) => path_of(directory, begins),
            Self::Memory(_) => path_of(Path::new("(in memory)"), begins),
        }
    }
}

impl OpenSegment {
    /// Reads until `place` is full or the segment ends.
    pub(super) fn read_at(&self, place: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            Self::File(file) => read_at(file, place, offset),
            Self::Memory(segment) => {
                let segment = segment.read().unwrap_or_else(PoisonError::into_inner);
                let from = usize::try_from(offset).unwrap_or(usize::MAX).min(segment.len());
                let count = place.len().min(segment.len() - from);
                place[..count].copy_from_slice(&segment[from..from + count]);
                Ok(count)
            }
        }
    }
}

fn read_at(file: &File, place: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut read = 0;
    while read < place.len() {
        match file.read_at(&mut place[read..], offset + read as u64) {
            Ok(0) => break,
            Ok(bytes) => read += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

/// Makes the file of a segment.
pub(super) fn create(path: &Path, head: &Head) -> Result<File, LogError> {
    let made = OpenOptions::new().append(true).create_new(true).open(path);
    let mut file = made.map_err(|error| LogError::system(path, "make it", error))?;
    let written: io::Result<()> = file.write_all(&head.encode());
    written.map_err(|error| LogError::system(path, "write to it", error))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::super::{Log, LogPlace, LogSettings, Record, RecordKind};
    use super::*;

    impl Medium {
        /// What is written from now on cannot be.
        pub(crate) fn break_file(&mut self, begins: u64) {
            let Self::Disk(disk) = self else { panic!("it has no file") };
            disk.file = Arc::new(File::open(path_of(&disk.directory, begins)).unwrap());
        }
    }

    /// A log in memory of so many bytes, in segments of 1 KiB, and the directory it must not make.
    fn in_memory(bytes_max: u64) -> (Log, PathBuf) {
        let directory = std::env::temp_dir().join("evenkeel-log-that-is-never-made");
        let place = LogPlace::Memory;
        let settings = LogSettings { segment_bytes: 1 << 10, bytes_max, place, ..<_>::default() };
        let (log, recovered) = Log::open(&directory, settings).unwrap();
        assert_eq!((recovered.last_sequence, recovered.epochs.len()), (0, 0));
        (log, directory)
    }

    fn write(log: &mut Log, sequences: impl Iterator<Item = u64>) {
        for sequence in sequences {
            let command = sequence.to_le_bytes();
            log.append(sequence, (1, 1), RecordKind::Once, &command).unwrap();
            log.commit().unwrap();
        }
    }

    fn read(log: &Log, after: u64) -> Vec<u64> {
        let mut reader = log.read_after(after, None).unwrap();
        let mut found = Vec::new();
        while let Some(Record { sequence, command, .. }) = reader.next().unwrap() {
            assert_eq!(command, sequence.to_le_bytes());
            found.push(sequence);
        }
        assert!(reader.is_at_end());
        found
    }

    #[test]
    fn a_log_in_memory_is_a_ring_and_no_file() {
        let (mut log, directory) = in_memory(4 << 10);
        log.begin_epoch(3).unwrap();
        for sequence in 1..=500 {
            write(&mut log, sequence..=sequence);
            assert!(log.bytes() <= 5 << 10);
        }
        let first = log.first_sequence();
        assert!(first > 300 && first < 450, "{first}");
        assert_eq!(read(&log, first - 1), (first..=500).collect::<Vec<_>>());
        assert!(matches!(log.read_after(first - 2, None), Err(LogError::Gone { .. })));
        let Medium::Memory(memory) = &log.medium else { panic!("it is elsewhere") };
        let held: usize = memory.segments().values().map(|it| it.read().unwrap().len()).sum();
        assert_eq!(held as u64, log.bytes(), "what was removed is freed");
        assert!(!directory.exists());
    }

    #[test]
    fn who_reads_a_segment_reads_it_to_its_end_and_is_told_what_has_gone() {
        let (mut log, _) = in_memory(2 << 10);
        write(&mut log, 1..=40);
        let first = log.first_sequence();
        let mut reader = log.read_after(first - 1, None).unwrap();
        assert_eq!(reader.next().unwrap().map(|record| record.sequence), Some(first));
        write(&mut log, 41..=400);
        let mut last = first;
        let gone = loop {
            match reader.next() {
                Ok(Some(record)) => last = record.sequence,
                Ok(None) => panic!("at the end after {last}"),
                Err(error) => break error,
            }
        };
        assert!(last > first, "it had that segment open");
        assert!(matches!(gone, LogError::Gone { asked, .. } if asked == last), "{gone}");
    }

    #[test]
    fn a_log_in_memory_begins_again_after_what_others_have_and_is_emptied() {
        let (mut log, _) = in_memory(4 << 10);
        log.begin_epoch(2).unwrap();
        write(&mut log, 1..=20);
        log.begin_after(5_000).unwrap();
        log.begin_epoch(7).unwrap();
        write(&mut log, 5_001..=5_003);
        assert_eq!(read(&log, 5_000), [5_001, 5_002, 5_003]);
        assert!(log.read_after(4_999, None).is_err());
        // What is not committed can be taken back.
        log.append(5_004, (0, 0), RecordKind::Once, b"never").unwrap();
        assert_eq!(log.discard(), 5_003);
        assert_eq!(read(&log, 5_000), [5_001, 5_002, 5_003]);
        let recovered = log.quarantine().unwrap();
        assert_eq!((recovered.last_sequence, log.last_sequence()), (0, 0));
        write(&mut log, 1..=3);
        assert_eq!(read(&log, 0), [1, 2, 3]);
    }
}
