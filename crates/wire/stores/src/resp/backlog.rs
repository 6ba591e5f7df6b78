//! The backlog of a server as a log: which writes came between which watermarks.
//!
//! A server that keeps its replication stream for a while ([`super::replication`]) can tell it from
//! any place that is the end of a command. In it every write that must not be repeated comes with
//! its watermark, in one transaction or directly behind it, and writes that may be repeated have
//! one behind the last of each batch. So what lies between two watermarks is one write of a log,
//! with the number of the second: who is at the first, or between the two, gets all of it.
//!
//! What lies before the first watermark is not known whole, and what lies before the server was
//! filled is of no use to anybody.

use std::collections::VecDeque;

use super::databases;
use super::request::Arguments;
use crate::store::keys::{AHEAD, EPOCH, WATERMARK};

/// What a server has done between two watermarks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    /// Epoch and sequence of the second one.
    pub mark: (u64, u64),
    /// Commands, one after the other, from database 0 on.
    pub commands: Vec<u8>,
}

/// A part of the order of writes, as one server tells it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Line {
    /// The watermark that it begins with; `None` before there was one.
    pub base: Option<(u64, u64)>,
    /// The watermarks that each epoch begins and ends with here: epoch, first, last; ascending.
    pub epochs: Vec<(u64, u64, u64)>,
    /// What was done, in its order.
    pub batches: VecDeque<Batch>,
    /// What came behind the last watermark.
    pub tail: Vec<u8>,
}

impl Line {
    /// The last watermark.
    pub fn last(&self) -> Option<(u64, u64)> {
        self.epochs.last().map(|&(epoch, _, last)| (epoch, last))
    }

    /// What came behind the last watermark has this number.
    pub fn number_tail(&mut self, mark: (u64, u64)) {
        let commands = in_databases(std::mem::take(&mut self.tail));
        self.batches.push_back(Batch { mark, commands });
        self.passes(mark);
    }

    fn passes(&mut self, (epoch, sequence): (u64, u64)) {
        match self.epochs.last_mut() {
            Some(latest) if latest.0 == epoch => latest.2 = sequence,
            _ => self.epochs.push((epoch, sequence, sequence)),
        }
    }
}

/// Puts the commands of a stream together.
#[derive(Debug)]
pub struct LineBuilder {
    bytes_max: usize,
    bytes: usize,
    line: Line,
    /// The database that the next command is of.
    database: Vec<u8>,
}

impl LineBuilder {
    /// Keeps about so many bytes of commands: the latest.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, bytes: 0, line: Line::default(), database: b"0".to_vec() }
    }

    /// What has come.
    pub fn finish(self) -> Line {
        self.line
    }

    /// Takes the next command, which has these bytes.
    pub fn take(&mut self, arguments: Arguments<'_>, bytes: &[u8]) {
        let name = arguments.get(0).unwrap_or_default();
        let is = |word: &str| name.eq_ignore_ascii_case(word.as_bytes());
        let is_passed_over =
            ["multi", "exec", "ping", "replconf", "publish", "spublish"].into_iter().any(is);
        if is_passed_over {
            return;
        }
        if is("select") {
            let database = arguments.get(1).unwrap_or_default();
            if self.database == database {
                return;
            }
            self.database = database.to_vec();
        } else if is("set") || is("mset") {
            let value = |wanted: &[u8]| {
                let mut keys = (1..arguments.len()).step_by(2);
                let at = keys.find(|&at| arguments.get(at) == Some(wanted))?;
                arguments.get(at + 1)
            };
            match value(WATERMARK) {
                Some(mark) => return self.marked(mark),
                None if value(EPOCH).is_some() => return,
                None => {}
            }
        }
        // Nobody knows what came before the first one.
        if self.line.base.is_some() {
            self.line.tail.extend_from_slice(bytes);
        }
    }

    fn marked(&mut self, mark: &[u8]) {
        self.database = b"0".to_vec(); // ours are in no other one
        if mark.starts_with(AHEAD) {
            return; // its number comes next
        }
        match position(mark) {
            Some(at) if self.line.last().is_none_or(|last| last <= at && last.1 <= at.1) => {
                let commands = std::mem::take(&mut self.line.tail);
                self.line.base.get_or_insert(at);
                self.line.passes(at);
                if !commands.is_empty() {
                    self.push(at, commands);
                }
            }
            // It was filled, or set back by others.
            position => {
                (self.line, self.bytes) = (Line::default(), 0);
                if let Some(at) = position {
                    self.line.base = Some(at);
                    self.line.passes(at);
                }
            }
        }
    }

    /// The same number may be told again, at a reconnection or in a new term. What the server did
    /// meanwhile nobody sent it (it removed an expired key), and a number is given once.
    fn push(&mut self, mark: (u64, u64), mut commands: Vec<u8>) {
        let batches = &mut self.line.batches;
        let mut mark = mark;
        if batches.back().is_some_and(|last| last.mark.1 == mark.1)
            && let Some(same) = batches.pop_back()
        {
            self.bytes -= same.commands.len();
            mark = same.mark;
            commands = [same.commands, commands].concat();
        } else if self.line.base.is_some_and(|base| base.1 == mark.1) {
            return; // whoever is there does it too
        }
        let commands = in_databases(commands);
        self.bytes += commands.len();
        batches.push_back(Batch { mark, commands });
        while self.bytes > self.bytes_max
            && let Some(oldest) = self.line.batches.pop_front()
        {
            self.bytes -= oldest.commands.len();
            self.line.base = Some(oldest.mark);
            let (epoch, sequence) = oldest.mark;
            self.line.epochs.retain(|it| it.0 >= epoch);
            if let Some(first) = self.line.epochs.first_mut().filter(|it| it.0 == epoch) {
                first.1 = sequence;
            }
        }
    }
}

/// A record that concerns other databases says so at its beginning.
fn in_databases(commands: Vec<u8>) -> Vec<u8> {
    if databases::highest(&commands) == 0 || databases::is_elsewhere(&commands) {
        return commands;
    }
    let mut said = Vec::new();
    databases::write_select(&mut said, 0);
    said.extend_from_slice(&commands);
    said
}

/// `EPOCH SEQUENCE`
fn position(mark: &[u8]) -> Option<(u64, u64)> {
    let (epoch, sequence) = str::from_utf8(mark).ok()?.split_once(' ')?;
    Some((epoch.parse().ok()?, sequence.parse().ok()?))
}

/// Whether what came behind its watermark at one server is what came there at the one whose line
/// this is: then it has done nothing that the others will not.
///
/// `after`: the line's commands behind that watermark, piece by piece.
pub fn is_beginning<'a>(tail: &[u8], after: impl IntoIterator<Item = &'a [u8]>) -> bool {
    let mut rest = tail;
    for piece in after {
        if rest.is_empty() {
            break;
        }
        let common = rest.len().min(piece.len());
        if rest[..common] != piece[..common] {
            return false;
        }
        rest = &rest[common..];
    }
    rest.is_empty()
}

/// Places in the stream of a server where a command ends, so that one can read on from there.
///
/// A server tells what it has kept from any byte on, and the oldest of it is the middle of a
/// command. So whoever writes to it notes where it is, now and then.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Landmarks {
    /// The name of the stream.
    pub id: Vec<u8>,
    /// Bytes of the stream up to each, ascending.
    pub offsets: Vec<u64>,
}

/// Landmarks that are kept of one server, at most.
const LANDMARKS_MAX: u64 = 16;

impl Landmarks {
    /// `ID OFFSET…`; `None` of anything else.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut words = str::from_utf8(text).ok()?.split_ascii_whitespace();
        let id = words.next()?.as_bytes().to_vec();
        let offsets: Option<Vec<u64>> = words.map(|word| word.parse().ok()).collect();
        let offsets = offsets.filter(|offsets| offsets.is_sorted())?;
        Some(Self { id, offsets })
    }

    /// As [`Landmarks::parse`] reads it.
    pub fn text(&self) -> Vec<u8> {
        let mut text = self.id.clone();
        for offset in &self.offsets {
            text.extend_from_slice(format!(" {offset}").as_bytes());
        }
        text
    }

    /// The stream is there now. Those that it does not reach back to are of no use any more, nor
    /// those of another stream.
    pub fn note(&mut self, stream: &StreamPlace) {
        if self.id != stream.id {
            *self = Self { id: stream.id.clone(), offsets: Vec::new() };
        }
        let (first, now) = (stream.first_kept, stream.offset);
        self.offsets.retain(|&offset| offset + 1 >= first && offset <= now);
        let before = self.offsets.iter().rev().nth(1);
        if before.is_some_and(|before| now - before < stream.kept_bytes_max / LANDMARKS_MAX) {
            self.offsets.pop(); // the one before it is near enough
        }
        if self.offsets.last() != Some(&now) {
            self.offsets.push(now);
        }
    }
}

/// Where the stream of a server is, and how much of it is kept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StreamPlace {
    /// Its name.
    pub id: Vec<u8>,
    /// The bytes that it has.
    pub offset: u64,
    /// The first byte that is kept.
    pub first_kept: u64,
    /// Bytes that are kept, at most.
    pub kept_bytes_max: u64,
}

impl StreamPlace {
    /// By the answer to `INFO replication`; `None` where nothing is kept.
    pub fn of(info: &[u8]) -> Option<Self> {
        let (id, offset) = super::replication::place_of_stream(info)?;
        let number = |name: &[u8]| super::replication::number_of(info, name);
        Some(Self {
            id: id.to_vec(),
            offset,
            first_kept: number(b"repl_backlog_first_byte_offset:")?,
            kept_bytes_max: number(b"repl_backlog_size:")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::encode;
    use super::super::request::{Limits, RequestParser};
    use super::*;

    /// The line of a whole stream.
    fn line_of(mut stream: &[u8], bytes_max: usize) -> Line {
        let mut parser = RequestParser::new(Limits::MAX);
        let mut builder = LineBuilder::new(bytes_max);
        while let Ok(Some(length)) = parser.parse(stream) {
            if !parser.is_empty() {
                builder.take(parser.arguments(stream), &stream[..length]);
            }
            stream = &stream[length..];
            parser.reset();
        }
        builder.finish()
    }

    fn command(out: &mut Vec<u8>, line: &str) {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        encode::command(out, &words);
    }

    fn bytes(lines: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        lines.iter().for_each(|line| command(&mut out, line));
        out
    }

    /// `SET evenkeel:watermark` has a value of two words.
    fn stream(lines: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        for line in lines {
            match line.strip_prefix("MARK ") {
                Some(mark) => encode::command(&mut out, &[b"SET", WATERMARK, mark.as_bytes()]),
                None => command(&mut out, line),
            }
        }
        out
    }

    fn line(lines: &[&str]) -> Line {
        line_of(&stream(lines), 1 << 20)
    }

    fn batches(line: &Line) -> Vec<((u64, u64), Vec<u8>)> {
        line.batches.iter().map(|it| (it.mark, it.commands.clone())).collect()
    }

    #[test]
    fn what_lies_between_two_watermarks_is_one_write() {
        let line = line(&[
            "SET lost 1",
            "MARK 3 40",
            "PING",
            "SET a 1",
            "SET b 2",
            "MARK 3 42",
            "MULTI",
            "INCR n",
            "MARK 3 43",
            "EXEC",
            "MARK 5 43",
            "DEL a",
            "MARK 5 50",
            "SET c 3",
        ]);
        assert_eq!((line.base, line.last()), (Some((3, 40)), Some((5, 50))));
        assert_eq!(line.epochs, [(3, 40, 43), (5, 43, 50)]);
        let expected = [
            ((3, 42), bytes(&["SET a 1", "SET b 2"])),
            ((3, 43), bytes(&["INCR n"])),
            ((5, 50), bytes(&["DEL a"])),
        ];
        assert_eq!(batches(&line), expected);
        assert_eq!(line.tail, bytes(&["SET c 3"]));
    }

    /// At a reconnection, in a new term, and where a script is begun with; Redis removes a key.
    #[test]
    fn a_number_that_is_told_again_is_given_once() {
        let line = line(&[
            "MARK 3 40",
            "DEL expired",
            "MARK 3 40",
            "SET a 1",
            "MARK 3 41",
            "DEL b",
            "MARK 3 41",
            "SELECT 7",
            "DEL c",
            "SELECT 0",
            "MARK 5 41",
            "SET d 1",
            "MARK 5 42",
        ]);
        assert_eq!((line.base, line.last()), (Some((3, 40)), Some((5, 42))));
        let same = ["SELECT 0", "SET a 1", "DEL b", "SELECT 7", "DEL c", "SELECT 0"];
        let expected = [((3, 41), bytes(&same)), ((5, 42), bytes(&["SET d 1"]))];
        assert_eq!(batches(&line), expected);
        // Of a later term, and fewer: others have set it back.
        let back = self::line(&["MARK 3 40", "SET a 1", "MARK 3 41", "SET b 1", "MARK 5 40"]);
        assert_eq!((back.base, back.batches.len()), (Some((5, 40)), 0));
    }

    /// One that was ahead of the log: its number comes behind what it did.
    #[test]
    fn what_was_done_ahead_of_its_number_has_the_number_that_follows() {
        let line = line(&[
            "MARK 3 40",
            "MULTI",
            "INCR n",
            "MARK ahead 3 1",
            "EXEC",
            "MARK 3 41",
            "SET a 1",
            "MARK 3 42",
        ]);
        let expected = [((3, 41), bytes(&["INCR n"])), ((3, 42), bytes(&["SET a 1"]))];
        assert_eq!(batches(&line), expected);
    }

    #[test]
    fn what_came_before_a_server_was_filled_is_no_part_of_it() {
        let line = line(&[
            "MARK 3 40",
            "SET a 1",
            "MARK 3 41",
            "MULTI",
            "FLUSHALL",
            "MARK filling",
            "EXEC",
            "SET evenkeel:epoch x",
            "RESTORE a 0 x",
            "MARK 3 60",
            "INCR n",
            "MARK 3 61",
        ]);
        assert_eq!((line.base, line.epochs.clone()), (Some((3, 60)), vec![(3, 60, 61)]));
        assert_eq!(batches(&line), [((3, 61), bytes(&["INCR n"]))]);
        assert!(line_of(&stream(&["MARK 3 40", "MARK filling"]), 99).base.is_none());
        // Others have set it back.
        let back = self::line(&["MARK 3 40", "SET a 1", "MARK 3 41", "MARK 2 9", "SET b 1"]);
        assert_eq!((back.base, back.last()), (Some((2, 9)), Some((2, 9))));
        assert_eq!(back.tail, bytes(&["SET b 1"]));
    }

    #[test]
    fn who_is_emptied_by_a_client_is_signed_behind_it() {
        let mut all = stream(&["MARK 3 40", "MULTI", "FLUSHALL"]);
        encode::command(&mut all, &[b"MSET", EPOCH, b"3 00ff cart", WATERMARK, b"3 41"]);
        all.extend(stream(&["EXEC", "SET a 1", "MARK 3 42"]));
        let line = line_of(&all, 1 << 20);
        let expected = [((3, 41), bytes(&["FLUSHALL"])), ((3, 42), bytes(&["SET a 1"]))];
        assert_eq!(batches(&line), expected);
    }

    #[test]
    fn a_write_of_another_database_says_so_at_its_beginning() {
        let line = line(&[
            "SELECT 0",
            "MARK 3 40",
            "SET a 1",
            "SELECT 7",
            "SET b 2",
            "SELECT 0",
            "MARK 3 41",
            "SELECT 7",
            "SET c 3",
            "SELECT 0",
            "MARK 3 42",
        ]);
        let expected = [
            ((3, 41), bytes(&["SELECT 0", "SET a 1", "SELECT 7", "SET b 2", "SELECT 0"])),
            ((3, 42), bytes(&["SELECT 7", "SET c 3", "SELECT 0"])),
        ];
        assert_eq!(batches(&line), expected);
    }

    #[test]
    fn the_latest_are_kept_of_a_long_stream() {
        let lines: Vec<String> =
            (41..=140).flat_map(|n| [format!("SET k {n:060}"), format!("MARK 3 {n}")]).collect();
        let mut all = stream(&["MARK 2 40"]);
        all.extend(stream(&lines.iter().map(String::as_str).collect::<Vec<_>>()));
        let line = line_of(&all, 1_000);
        let held: usize = line.batches.iter().map(|it| it.commands.len()).sum();
        assert!(held <= 1_000 && held > 800, "{held}");
        let first = line.batches[0].mark.1;
        assert_eq!(line.base, Some((3, first - 1)), "who is there lacks what is held");
        assert_eq!(line.epochs, [(3, first - 1, 140)]);
    }

    #[test]
    fn a_tail_is_known_by_what_the_other_has_done() {
        let after: [&[u8]; 2] = [b"abc", b"def"];
        for (tail, is_known) in
            [("", true), ("ab", true), ("abc", true), ("abcde", true), ("abcdef", true)]
                .into_iter()
                .chain([("x", false), ("abx", false), ("abcx", false), ("abcdefg", false)])
        {
            assert_eq!(is_beginning(tail.as_bytes(), after), is_known, "{tail}");
        }
    }

    #[test]
    fn landmarks_are_few_and_of_one_stream() {
        let place = |id: &str, offset, first_kept| StreamPlace {
            id: id.into(),
            offset,
            first_kept,
            kept_bytes_max: 1_600,
        };
        let mut landmarks = Landmarks::default();
        for offset in (0..5_000).step_by(7) {
            landmarks.note(&place("a", offset, 1.max(offset.saturating_sub(1_600))));
            assert_eq!(landmarks.offsets.last(), Some(&offset));
            assert!(landmarks.offsets.len() <= 18, "{landmarks:?}");
        }
        let oldest = landmarks.offsets[0];
        assert!((3_400..3_600).contains(&oldest), "it reaches back as far as the stream: {oldest}");
        assert_eq!(Landmarks::parse(&landmarks.text()), Some(landmarks.clone()));
        landmarks.note(&place("b", 10, 1));
        assert_eq!(landmarks, Landmarks { id: b"b".to_vec(), offsets: vec![10] });
        for text in [&b""[..], b"id 5 x", b"id 7 5", b"\xff 1"] {
            assert_eq!(Landmarks::parse(text), None, "{text:?}");
        }
    }
}
