//! What a server sends its replicas, read by somebody who wants to know what a command has done.
//!
//! A server answers `PSYNC ? -1` with `+FULLRESYNC id offset`, a snapshot, and then every write as
//! it took effect: without time, chance and conditions. [`ReplicationParser`] passes over the
//! snapshot, whatever its form, and finds the commands; [`Groups`] puts together those that were
//! done in one transaction, and tells them by the watermark that ends it.
//!
//! **Untrusted bytes**, as everywhere in this room. The offset counts the bytes of all whole
//! commands: `PSYNC id offset+1` goes on from there.
//!
//! **Source**: `replication.c` of Redis 7.0.15 (`readSyncBulkPayload`, `masterTryPartialResync`).

use super::commands::{self, Keys};
use super::reply::payload;
use super::request::{Arguments, Limits, RequestParser};
use super::{ProtocolError, databases};
use crate::store::keys::{RESERVED, WATERMARK};

/// Bytes of the mark at the end of a snapshot of unknown length.
const MARK_BYTES: usize = 40;
/// No line before a snapshot is longer.
const LINE_BYTES_MAX: usize = 1_024;

/// Why a stream cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplicationError {
    /// The answer to `PSYNC` is an error, or something else than `FULLRESYNC` and `CONTINUE`.
    #[error("PSYNC was answered with '{0}'")]
    Refused(String),
    /// What follows is no snapshot.
    #[error("a snapshot begins with '{0}', expected its length or $EOF")]
    Snapshot(String),
    /// What follows the snapshot is no command.
    #[error("{0}")]
    Command(ProtocolError),
}

/// What was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A snapshot comes, and after it what was written since.
    Snapshot,
    /// The snapshot is over, or there is none: commands follow.
    Commands,
    /// A command, see [`ReplicationParser::arguments`].
    Command,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    /// Of the answer to `PSYNC`.
    Answer,
    /// Of the line before a snapshot.
    Head,
    /// So many bytes of a snapshot are to come.
    Bytes(u64),
    /// A snapshot ends behind these bytes.
    Until(Vec<u8>),
    Commands,
}

/// Finds the commands of one stream.
#[derive(Debug)]
pub struct ReplicationParser {
    state: State,
    parser: RequestParser,
    id: Vec<u8>,
    offset: u64,
}

impl ReplicationParser {
    /// For what comes behind `PSYNC ? -1`.
    pub fn new(limits: Limits) -> Self {
        let parser = RequestParser::new(limits);
        Self { state: State::Answer, parser, id: Vec::new(), offset: 0 }
    }

    /// It is to go on behind this byte of this stream, which others have read.
    pub fn go_on_from(&mut self, id: &[u8], offset: u64) {
        (self.id, self.offset) = (id.to_vec(), offset);
    }

    /// The next connection begins: what of a command had come on the last one comes again.
    pub fn reconnect(&mut self) {
        self.state = State::Answer;
        self.parser.reset();
    }

    /// What `PSYNC` is asked with: the stream's name, and the next byte of it. `None` before the
    /// first one began.
    pub fn place(&self) -> Option<(&[u8], u64)> {
        (!self.id.is_empty()).then_some((&self.id, self.offset + 1))
    }

    /// Bytes of the stream that were read, as `REPLCONF ACK` tells them.
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// The arguments of the command that was just found at the beginning of `buffer`.
    pub fn arguments<'a>(&'a self, buffer: &'a [u8]) -> Arguments<'a> {
        self.parser.arguments(buffer)
    }

    /// How many bytes of `buffer` are done with, and what was found in them. With neither, more
    /// must come first.
    ///
    /// # Errors
    /// When the stream cannot be read: the connection is of no use.
    pub fn next(&mut self, buffer: &[u8]) -> Result<(usize, Option<Event>), ReplicationError> {
        match &self.state {
            State::Answer => self.answer(buffer),
            State::Head => self.head(buffer),
            State::Bytes(left) => {
                let count = (*left).min(buffer.len() as u64);
                let left = left - count;
                self.state = if left == 0 { State::Commands } else { State::Bytes(left) };
                let event = (left == 0).then_some(Event::Commands);
                Ok((count as usize, event))
            }
            State::Until(mark) => match memchr::memmem::find(buffer, mark) {
                Some(at) => {
                    self.state = State::Commands;
                    Ok((at + MARK_BYTES, Some(Event::Commands)))
                }
                None => Ok((buffer.len().saturating_sub(MARK_BYTES - 1), None)),
            },
            State::Commands => match self.parser.parse(buffer) {
                Ok(None) => Ok((0, None)),
                Ok(Some(length)) => {
                    self.offset += length as u64;
                    Ok((length, (!self.parser.is_empty()).then_some(Event::Command)))
                }
                Err(error) => Err(ReplicationError::Command(error)),
            },
        }
    }

    fn answer(&mut self, buffer: &[u8]) -> Result<(usize, Option<Event>), ReplicationError> {
        let Some((line, length)) =
            line(buffer).map_err(|it| ReplicationError::Refused(shown(it.0)))?
        else {
            return Ok((0, None));
        };
        let refused = || ReplicationError::Refused(shown(line));
        let mut words = line.split(|&byte| byte == b' ');
        match (words.next().unwrap_or_default(), words.next(), words.next()) {
            (b"", None, None) => Ok((length, None)), // it is still busy
            (b"+FULLRESYNC", Some(id), Some(offset)) => {
                let offset = str::from_utf8(offset).ok().and_then(|it| it.parse().ok());
                self.offset = offset.ok_or_else(refused)?;
                self.id = id.to_vec();
                self.state = State::Head;
                Ok((length, Some(Event::Snapshot)))
            }
            (b"+CONTINUE", id, None) if !self.id.is_empty() => {
                if let Some(id) = id {
                    self.id = id.to_vec();
                }
                self.state = State::Commands;
                Ok((length, Some(Event::Commands)))
            }
            _ => Err(refused()),
        }
    }

    fn head(&mut self, buffer: &[u8]) -> Result<(usize, Option<Event>), ReplicationError> {
        let Some((line, length)) =
            line(buffer).map_err(|it| ReplicationError::Snapshot(shown(it.0)))?
        else {
            return Ok((0, None));
        };
        let number = || str::from_utf8(line.strip_prefix(b"$")?).ok()?.parse().ok();
        self.state = match line.strip_prefix(b"$EOF:") {
            _ if line.is_empty() => return Ok((length, None)), // it is still busy
            Some(mark) if mark.len() == MARK_BYTES => State::Until(mark.to_vec()),
            Some(_) => return Err(ReplicationError::Snapshot(shown(line))),
            None => State::Bytes(number().ok_or_else(|| ReplicationError::Snapshot(shown(line)))?),
        };
        Ok((length, None))
    }
}

/// Where the stream of a server is, by its answer to `INFO replication`: its name, and the bytes
/// that it has. `None` where it keeps none of them, so that nobody can go on from there.
pub fn place_of_stream(info: &[u8]) -> Option<(&[u8], u64)> {
    let offset = number_of(info, b"master_repl_offset:")?;
    let is_kept = field(info, b"repl_backlog_active:")? == b"1";
    field(info, b"master_replid:").filter(|_| is_kept).map(|id| (id, offset))
}

/// A number of an answer to `INFO`, by its name with the colon.
pub(super) fn number_of(info: &[u8], name: &[u8]) -> Option<u64> {
    str::from_utf8(field(info, name)?).ok()?.parse().ok()
}

fn field<'a>(info: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let lines = payload(info)?.split(|&byte| byte == b'\n');
    let mut found = lines.filter_map(|line| line.trim_ascii_end().strip_prefix(name));
    found.next().filter(|value| !value.is_empty())
}

/// A line that does not end where it must; its beginning.
struct TooLong<'a>(&'a [u8]);

/// The first line, without its end, and its length with that. An empty line may end with `LF`.
fn line(buffer: &[u8]) -> Result<Option<(&[u8], usize)>, TooLong<'_>> {
    let within = &buffer[..buffer.len().min(LINE_BYTES_MAX)];
    match memchr::memchr(b'\n', within) {
        Some(end) => Ok(Some((within[..end].trim_ascii_end(), end + 1))),
        None if within.len() == LINE_BYTES_MAX => Err(TooLong(within)),
        None => Ok(None),
    }
}

/// The beginning of what a peer sent, for an error of one line.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().take(200).map(|it| if it.is_control() { ' ' } else { it }).collect()
}

/// What a transaction has done: the commands before its watermark.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Group {
    /// The value that the watermark was set to.
    pub mark: Vec<u8>,
    /// Commands, one after the other.
    pub commands: Vec<u8>,
    /// How many.
    pub count: u32,
    /// `PUBLISH` and `SPUBLISH`, one after the other: they change no data.
    pub published: Vec<u8>,
    /// There were more bytes than are kept: the commands are not all of them.
    pub is_cut: bool,
    /// The stream did not say of which database its first commands are.
    pub is_unclear: bool,
}

const TOO_MUCH: &str = "ERR it changed more than 64 MiB or 65,536 elements at once, and was undone";
const UNCLEAR: &str = "TRYAGAIN its replication stream did not say of which database it was, and \
    it was undone; ask again";
const DATABASE: &str = "ERR a script has chosen a database that is not served, and was undone";
const FORBIDDEN: &str = "ERR a script has done what scripts may not do here, and was undone";
const OURS: &str = "ERR a script has written keys that begin with 'evenkeel:', and was undone";

impl Group {
    /// The places of the keys that it has changed ([`databases::place`]); so many databases are
    /// served.
    ///
    /// # Errors
    /// What a client is told whose command must not have done that.
    pub fn keys(&self, databases: u8) -> Result<Vec<Box<[u8]>>, &'static str> {
        if self.is_cut {
            return Err(TOO_MUCH);
        }
        if self.is_unclear {
            return Err(UNCLEAR);
        }
        // What these limits allow is read back from a log, too.
        let (mut parser, mut rest) = (RequestParser::default(), &self.commands[..]);
        let mut found: Vec<Box<[u8]>> = Vec::new();
        let mut database = 0;
        while !rest.is_empty() {
            let Ok(Some(length)) = parser.parse(rest) else { return Err(TOO_MUCH) };
            let arguments = parser.arguments(rest);
            let name = arguments.get(0).unwrap_or_default();
            let is_served = |at: usize| {
                let number = arguments.get(at).and_then(databases::number);
                number.filter(|number| *number < databases).ok_or(DATABASE)
            };
            let command = commands::known(name).filter(|it| it.keys != Keys::None);
            match command.filter(|command| commands::keys(command, arguments).is_ok()) {
                Some(command) => {
                    if let Some(at) = databases::target_argument(command, arguments) {
                        is_served(at)?;
                    }
                    let places = databases::places(database, command, arguments);
                    found.extend(places.into_iter().map(|place| Box::from(&*place)));
                }
                None if name.eq_ignore_ascii_case(b"select") => database = is_served(1)?,
                None => return Err(FORBIDDEN),
            }
            rest = &rest[length..];
            parser.reset();
        }
        let is_ours = found.iter().any(|place| databases::key(place).starts_with(RESERVED));
        if is_ours { Err(OURS) } else { Ok(found) }
    }
}

/// Puts the commands of a stream together.
#[derive(Debug)]
pub struct Groups {
    bytes_max: usize,
    /// Within `MULTI` and `EXEC`.
    open: Option<Group>,
    /// The last command of it set the watermark.
    is_marked: bool,
    /// The database that the next command is of, once that is known: a stream that is read from
    /// somewhere does not say it.
    database: Option<Vec<u8>>,
}

impl Groups {
    /// Keeps at most so many bytes of a group.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, open: None, is_marked: false, database: None }
    }

    /// Takes the next command, which has these bytes; the group that it ends.
    pub fn take(&mut self, arguments: Arguments<'_>, bytes: &[u8]) -> Option<Group> {
        let name = arguments.get(0).unwrap_or_default();
        let is = |word: &str| name.eq_ignore_ascii_case(word.as_bytes());
        if is("multi") {
            let mut group = Group::default();
            if let Some(database) = self.database.as_ref().filter(|it| *it != b"0") {
                // It was chosen before, as Redis does for the first command of a transaction.
                let mut select = Vec::new();
                super::encode::command(&mut select, &[b"SELECT", database]);
                push(&mut group, &select, self.bytes_max);
            }
            self.open = Some(group);
            self.is_marked = false;
            return None;
        }
        if is("exec") {
            let group = self.open.take();
            return group.filter(|_| std::mem::take(&mut self.is_marked));
        }
        if is("select") {
            let database = arguments.get(1).unwrap_or_default();
            match (self.database.replace(database.to_vec()), &mut self.open) {
                (Some(before), _) if before == database => return None,
                (None, Some(group)) if group.count > 0 => group.is_unclear = true,
                (None, _) if database == b"0" => return None,
                _ => {}
            }
        }
        let mark = arguments.get(2).filter(|_| is("set") && arguments.get(1) == Some(WATERMARK));
        if mark.is_some() && self.database.is_none() {
            self.database = Some(b"0".to_vec()); // ours are in no other one
        }
        let Some(group) = &mut self.open else {
            let mark = mark.filter(|_| arguments.len() == 3)?;
            return Some(Group { mark: mark.to_vec(), ..Group::default() });
        };
        if std::mem::take(&mut self.is_marked) {
            // It was not the last: whoever wrote it was no watermark of ours.
            let mut command = Vec::new();
            super::encode::command(&mut command, &[b"SET", WATERMARK, &group.mark]);
            push(group, &command, self.bytes_max);
        }
        if let Some(mark) = mark {
            group.mark = mark.to_vec();
            self.is_marked = true;
        } else if is("publish") || is("spublish") {
            if group.published.len() + bytes.len() > self.bytes_max {
                group.is_cut = true;
                group.published = Vec::new();
            } else {
                group.published.extend_from_slice(bytes);
            }
        } else {
            push(group, bytes, self.bytes_max);
        }
        None
    }
}

fn push(group: &mut Group, command: &[u8], bytes_max: usize) {
    group.count += 1;
    if group.is_cut || group.commands.len() + command.len() > bytes_max {
        group.is_cut = true;
        group.commands = Vec::new();
    } else {
        group.commands.extend_from_slice(command);
    }
}
