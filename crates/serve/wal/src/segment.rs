//! The bytes of one segment: a head, then records. No files here.
//!
//! ```text
//! head    magic 8 | version 4 | crc 4 | begins 8 | base 8 | epoch 8 | epoch since 8 | salt 4 | 0 4
//! record  crc 4 | length 4 | sequence 8 | shard 2 | partition 2 | kind 1 | mark 1 | command
//! ```
//!
//! Version 1, which is read still and never written, has no `partition` in its records: a shard was
//! in one partition for ever. Versions before 3 do not tell the time ([`super::Log::tell_time`]).
//!
//! All numbers have their lowest byte first. `begins` is the segment's offset in the whole log,
//! `base` the last sequence number before it; so a segment that is missing, or shorter than it was
//! when the next one began, is found. The checksum (CRC-32) of a record covers all that follows it
//! and starts from the log's salt, a number drawn when the log was made: bytes that look like a
//! record inside a client's value are not taken for one.
//!
//! A crash may cut off the end of the last segment (*torn*). Damage is told from that by what
//! follows: behind a cut there is nothing, behind damage there are records.

use crc32fast::Hasher;

/// The version of the format that is written; those before it are read.
pub const VERSION: u32 = 3;
/// The first version that tells the time.
pub(super) const TELLS_TIME: u32 = 3;

/// The longest command of a record, in bytes: Redis's own bound on one value, and a little more.
pub const COMMAND_BYTES_MAX: usize = (512 << 20) + (64 << 10);

pub(super) const HEAD_BYTES: usize = 56;
/// Of a record before its command, in version 1 and since.
const RECORD_BYTES: [usize; 2] = [20, 22];
const MAGIC: [u8; 8] = *b"EvKeeLog";
const MARK: u8 = 0xe7;
const CRC_BYTES: usize = 4;
/// Bytes whose checksums are computed in search of a record behind damage: about a second.
const SEARCH_BYTES_MAX: usize = 4 << 30;
/// A place to begin reading is remembered after so many bytes.
pub(super) const LANDMARK_BYTES: u64 = 1 << 20;

/// What a record is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RecordKind {
    /// A write that may be repeated: in order, a suffix of them leads to the same state.
    Idempotent,
    /// A write that must be applied exactly once.
    Once,
    /// Not a write: what a key held after the write with this sequence number.
    State,
}

/// What the log itself writes between the records, and the kinds of records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tag {
    Command(RecordKind),
    /// Its command is the epoch; it begins after the sequence number.
    Epoch,
    /// A whole state, as of the sequence number or later, follows.
    StateBegins,
    /// The whole state that began at the sequence number is there.
    StateEnds,
    /// Its command is the version of the layout that is in use after the sequence number.
    Layout,
    /// Its command is the time behind which the writes after the sequence number were done.
    Time,
}

impl Tag {
    const fn byte(self) -> u8 {
        match self {
            Self::Command(RecordKind::Idempotent) => 1,
            Self::Command(RecordKind::Once) => 2,
            Self::Command(RecordKind::State) => 3,
            Self::Epoch => 16,
            Self::StateBegins => 17,
            Self::StateEnds => 18,
            Self::Layout => 19,
            Self::Time => 20,
        }
    }

    const fn of(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Command(RecordKind::Idempotent),
            2 => Self::Command(RecordKind::Once),
            3 => Self::Command(RecordKind::State),
            16 => Self::Epoch,
            17 => Self::StateBegins,
            18 => Self::StateEnds,
            19 => Self::Layout,
            20 => Self::Time,
            _ => return None,
        })
    }

    /// Whether it is a write with a sequence number of its own.
    pub(super) const fn is_write(self) -> bool {
        matches!(self, Self::Command(RecordKind::Idempotent | RecordKind::Once))
    }
}

/// The beginning of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    /// Of the format: 1 to [`VERSION`].
    pub version: u32,
    /// Offset of the segment's first byte in the whole log.
    pub begins: u64,
    /// The last sequence number before it.
    pub base: u64,
    /// The epoch at its beginning; 0 = none has begun.
    pub epoch: u64,
    /// The first sequence number of that epoch.
    pub epoch_since: u64,
    /// Where checksums start.
    pub salt: u32,
}

/// Why bytes are no head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum NoHead {
    /// Cut off, or never written.
    Torn,
    Version(u32),
    Damaged {
        offset: u64,
        found: String,
        expected: String,
    },
}

impl Head {
    pub(super) fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        let numbers = [self.begins, self.base, self.epoch, self.epoch_since];
        for (place, number) in bytes[16..48].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes[48..52].copy_from_slice(&self.salt.to_le_bytes());
        let crc = checksum(0, &bytes[16..]);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(super) fn decode(segment: &[u8]) -> Result<Self, NoHead> {
        let Some(bytes) = segment.get(..HEAD_BYTES) else { return Err(NoHead::Torn) };
        if segment.iter().all(|&byte| byte == 0) {
            return Err(NoHead::Torn);
        }
        if bytes[..8] != MAGIC {
            let found = format!("the bytes {:02x?}", &bytes[..8]);
            let expected = format!("{MAGIC:02x?}, with which a segment begins");
            return Err(NoHead::Damaged { offset: 0, found, expected });
        }
        let version = u32_at(bytes, 8);
        let (crc, computed) = (u32_at(bytes, 12), checksum(0, &bytes[16..]));
        // A version that is damaged and one that is newer look alike: both stop the reader.
        if !(1..=VERSION).contains(&version) {
            return Err(NoHead::Version(version));
        }
        if crc != computed {
            let found = format!("a head with the checksum {computed:08x}");
            return Err(NoHead::Damaged { offset: 12, found, expected: format!("{crc:08x}") });
        }
        Ok(Self {
            version,
            begins: u64_at(bytes, 16),
            base: u64_at(bytes, 24),
            epoch: u64_at(bytes, 32),
            epoch_since: u64_at(bytes, 40),
            salt: u32_at(bytes, 48),
        })
    }
}

/// A record as it lies in a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Frame<'a> {
    pub sequence: u64,
    pub shard: u16,
    /// Whose stream it is of; `None` in version 1.
    pub partition: Option<u16>,
    pub tag: Tag,
    pub command: &'a [u8],
}

/// Why bytes are no record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum NoFrame {
    /// It may be one of this length, and is not all here.
    Short(usize),
    Wrong {
        found: String,
        expected: String,
    },
}

impl Frame<'_> {
    /// Bytes of the whole record.
    pub(super) const fn length(&self) -> usize {
        let version = if self.partition.is_some() { 2 } else { 1 };
        head_bytes(version) + self.command.len()
    }
}

/// Bytes of a record before its command.
const fn head_bytes(version: u32) -> usize {
    if version == 1 { RECORD_BYTES[0] } else { RECORD_BYTES[1] }
}

/// Appends a record. The command is not longer than [`COMMAND_BYTES_MAX`].
#[inline]
pub(super) fn encode(buffer: &mut Vec<u8>, salt: u32, frame: &Frame<'_>) {
    let start = buffer.len();
    let length = u32::try_from(frame.command.len()).expect("commands are bounded");
    let mut head = [0; RECORD_BYTES[1]];
    head[4..8].copy_from_slice(&length.to_le_bytes());
    head[8..16].copy_from_slice(&frame.sequence.to_le_bytes());
    head[16..18].copy_from_slice(&frame.shard.to_le_bytes());
    let mut end = 18;
    if let Some(partition) = frame.partition {
        head[18..20].copy_from_slice(&partition.to_le_bytes());
        end = 20;
    }
    (head[end], head[end + 1]) = (frame.tag.byte(), MARK);
    buffer.extend_from_slice(&head[..end + 2]);
    buffer.extend_from_slice(frame.command);
    let crc = checksum(salt, &buffer[start + CRC_BYTES..]);
    buffer[start..start + CRC_BYTES].copy_from_slice(&crc.to_le_bytes());
}

/// The record at the beginning of `bytes`, in a segment of this version.
#[inline]
pub(super) fn decode(bytes: &[u8], salt: u32, version: u32) -> Result<Frame<'_>, NoFrame> {
    let head_bytes = head_bytes(version);
    let Some(head) = bytes.get(..head_bytes) else { return Err(NoFrame::Short(head_bytes)) };
    let length = u32_at(head, 4) as usize;
    let (kind, mark) = (head[head_bytes - 2], head[head_bytes - 1]);
    let wrong = |found: String, expected: String| Err(NoFrame::Wrong { found, expected });
    let Some(tag) = Tag::of(kind).filter(|_| mark == MARK) else {
        let expected = format!("a known kind and the mark {MARK:02x}");
        return wrong(format!("a record of kind {kind} with the mark {mark:02x}"), expected);
    };
    if length > COMMAND_BYTES_MAX {
        let found = format!("a record with a command of {length} bytes");
        return wrong(found, format!("at most {COMMAND_BYTES_MAX}"));
    }
    let whole = head_bytes + length;
    let Some(record) = bytes.get(..whole) else { return Err(NoFrame::Short(whole)) };
    let (crc, computed) = (u32_at(record, 0), checksum(salt, &record[CRC_BYTES..]));
    if crc != computed {
        let found = format!("a record with the checksum {computed:08x}");
        return wrong(found, format!("{crc:08x}"));
    }
    let (sequence, shard, command) = fields(record, version);
    let partition = (version > 1).then(|| u16::from_le_bytes([record[18], record[19]]));
    Ok(Frame { sequence, shard, partition, tag, command })
}

/// Sequence number, shard and command of a record that [`decode`] found whole.
#[inline]
pub(super) fn fields(record: &[u8], version: u32) -> (u64, u16, &[u8]) {
    let shard = u16::from_le_bytes([record[16], record[17]]);
    (u64_at(record, 8), shard, &record[head_bytes(version)..])
}

/// What was found in a whole segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Survey {
    pub head: Head,
    /// Bytes up to the end of the last whole record.
    pub length: u64,
    /// The last sequence number up to there.
    pub last: u64,
    /// Epochs that began in it, and their first sequence numbers.
    pub epochs: Vec<(u64, u64)>,
    /// Places to begin reading: from the offset on there are only later sequence numbers.
    pub landmarks: Vec<Landmark>,
    /// States that began and ended.
    pub states: Vec<(Tag, u64)>,
    /// The latest version of the layout that came into use; 0 = none.
    pub layout: u64,
    /// What is behind the last whole record, when that is no record.
    pub rest: Option<Rest>,
}

/// From `offset` in the segment on there are only sequence numbers after `sequence`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Landmark {
    pub sequence: u64,
    pub offset: u64,
}

/// Bytes that are no record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Rest {
    pub found: String,
    pub expected: String,
    /// Where the next record is that is whole; none in what a crash has cut off.
    pub next: Option<u64>,
}

/// Reads a whole segment.
pub(super) fn survey(segment: &[u8]) -> Result<Survey, NoHead> {
    let head = Head::decode(segment)?;
    let start = Landmark { sequence: head.base, offset: HEAD_BYTES as u64 };
    let mut survey = Survey {
        head,
        length: HEAD_BYTES as u64,
        last: head.base,
        epochs: Vec::new(),
        landmarks: vec![start],
        states: Vec::new(),
        layout: 0,
        rest: None,
    };
    let mut at = HEAD_BYTES;
    while at < segment.len() {
        let judged = decode(&segment[at..], head.salt, head.version)
            .map_err(|none| match none {
                NoFrame::Wrong { found, expected } => (found, expected),
                NoFrame::Short(whole) => {
                    let found = format!("{} bytes up to the end", segment.len() - at);
                    (found, format!("a record of {whole}"))
                }
            })
            .and_then(|frame| note(&mut survey, &frame).map(|()| frame.length()));
        match judged {
            Ok(length) => {
                at += length;
                survey.length = at as u64;
                survey.landmark();
            }
            Err((found, expected)) => {
                let next = following(segment, at, &head);
                survey.rest = Some(Rest { found, expected, next });
                break;
            }
        }
    }
    Ok(survey)
}

impl Survey {
    fn landmark(&mut self) {
        let here = Landmark { sequence: self.last, offset: self.length };
        let latest = self.landmarks.last().map_or(0, |landmark| landmark.offset);
        if here.offset - latest >= LANDMARK_BYTES {
            self.landmarks.push(here);
        }
    }
}

/// Takes a record into account, if it is one that may stand here.
fn note(survey: &mut Survey, frame: &Frame<'_>) -> Result<(), (String, String)> {
    let Frame { sequence, tag, command, .. } = *frame;
    let last = survey.last;
    if tag.is_write() {
        if sequence <= last {
            let found = format!("sequence number {sequence} after {last}");
            return Err((found, "a later one".to_owned()));
        }
        survey.last = sequence;
        return Ok(());
    }
    if sequence > last {
        let found = format!("a record of the state after {sequence} behind {last}");
        return Err((found, format!("at most {last}")));
    }
    match tag {
        Tag::Epoch | Tag::Layout | Tag::Time => {
            let Ok(number) = command.try_into().map(u64::from_le_bytes) else {
                let found = format!("an epoch, a layout or a time of {} bytes", command.len());
                return Err((found, "8".to_owned()));
            };
            match tag {
                Tag::Layout => survey.layout = survey.layout.max(number),
                Tag::Epoch => survey.epochs.push((number, sequence.saturating_add(1))),
                _ => {}
            }
        }
        Tag::StateBegins | Tag::StateEnds => survey.states.push((tag, sequence)),
        Tag::Command(_) => {}
    }
    Ok(())
}

/// Where behind `damaged` a record begins that is whole, or may: what a client sent can be made so
/// that every place looks like the head of a long record, and the search must end.
fn following(segment: &[u8], damaged: usize, head: &Head) -> Option<u64> {
    let (mut to_search, whole) = (SEARCH_BYTES_MAX, head_bytes(head.version));
    for start in damaged + 1..segment.len().saturating_sub(whole - 1) {
        let bytes = &segment[start..];
        if bytes[whole - 1] != MARK || Tag::of(bytes[whole - 2]).is_none() {
            continue;
        }
        let length = u32_at(bytes, 4) as usize;
        if to_search == 0 || decode(bytes, head.salt, head.version).is_ok() {
            return Some(start as u64);
        }
        to_search = to_search.saturating_sub(if length < bytes.len() { length } else { 0 });
    }
    None
}

fn checksum(salt: u32, bytes: &[u8]) -> u32 {
    let mut hasher = Hasher::new_with_initial(salt);
    hasher.update(bytes);
    hasher.finalize()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
