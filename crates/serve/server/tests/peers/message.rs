//! Messages as they are on the wire, read without any engine: what is compared must not be read by
//! what it compares.

use std::io::Read as _;
use std::net::TcpStream;

/// A request or a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    /// The first line.
    pub(super) start: String,
    pub(super) fields: Vec<(String, String)>,
    pub(super) framing: Framing,
    pub(super) body: Vec<u8>,
    pub(super) trailers: Vec<String>,
    /// Whether it came to its end.
    pub(super) is_whole: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    None,
    Length(usize),
    Chunks,
    UntilClose,
}

/// Which message is read: that says whether there is a body without a word on it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Request,
    Response,
    ResponseToHead,
}

impl Message {
    /// A word of the first line.
    pub(super) fn word(&self, number: usize) -> &str {
        self.start.split(' ').nth(number).unwrap_or_default()
    }

    /// The values of a field.
    pub(super) fn values(&self, name: &str) -> impl Iterator<Item = &str> {
        let named = self.fields.iter().filter(move |field| field.0.eq_ignore_ascii_case(name));
        named.map(|field| &*field.1)
    }

    fn framing(&self, kind: Kind) -> Framing {
        let is_bare = kind == Kind::ResponseToHead
            || kind == Kind::Response
                && (self.word(1).starts_with('1') || ["204", "304"].contains(&self.word(1)));
        if is_bare {
            return Framing::None;
        }
        if self.values("transfer-encoding").next().is_some() {
            return Framing::Chunks;
        }
        let length = self.values("content-length").next().and_then(|length| length.parse().ok());
        match (length, kind) {
            (Some(length), _) => Framing::Length(length),
            (None, Kind::Request) => Framing::None,
            (None, _) => Framing::UntilClose,
        }
    }
}

/// A connection from which messages are read.
pub(super) struct Reader<S> {
    pub(super) source: S,
    read: Vec<u8>,
}

/// Where bytes come from.
pub(super) trait Source {
    /// More of them, nothing at the end.
    fn more(&mut self) -> Vec<u8>;
}

impl Source for &TcpStream {
    fn more(&mut self) -> Vec<u8> {
        let mut buffer = [0; 4096];
        let count = self.read(&mut buffer).unwrap_or(0); // a reset is an end
        buffer[..count].to_vec()
    }
}

/// Nothing more than what there is.
impl Source for () {
    fn more(&mut self) -> Vec<u8> {
        Vec::new()
    }
}

impl<S: Source> Reader<S> {
    pub(super) fn new(source: S, read: Vec<u8>) -> Self {
        Self { source, read }
    }

    /// The next message; `None` at an end before its head.
    pub(super) fn message(&mut self, kind: Kind) -> Option<Message> {
        let start = self.line()?;
        let (fields, body, trailers) = (Vec::new(), Vec::new(), Vec::new());
        let framing = Framing::None;
        let mut message = Message { start, fields, framing, body, trailers, is_whole: false };
        loop {
            let Some(line) = self.line() else { return Some(message) };
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').unwrap_or((&line, "no field"));
            message.fields.push((name.to_owned(), value.trim().to_owned()));
        }
        message.framing = message.framing(kind);
        message.is_whole = match message.framing {
            Framing::None => true,
            Framing::Length(length) => self.exactly(length, &mut message.body),
            Framing::Chunks => self.chunks(&mut message).is_some(),
            Framing::UntilClose => {
                self.exactly(usize::MAX, &mut message.body);
                true
            }
        };
        Some(message)
    }

    /// What was read and belongs to no message yet.
    pub(super) fn rest(&self) -> &[u8] {
        &self.read
    }

    fn chunks(&mut self, message: &mut Message) -> Option<()> {
        loop {
            let line = self.line()?;
            let digits = line.split(';').next().unwrap_or_default();
            let size = usize::from_str_radix(digits.trim_end(), 16).ok()?;
            if size == 0 {
                break;
            }
            let is_whole = self.exactly(size, &mut message.body);
            if !is_whole || !self.line()?.is_empty() {
                return None;
            }
        }
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Some(());
            }
            message.trailers.push(line);
        }
    }

    /// A line without its end.
    fn line(&mut self) -> Option<String> {
        let mut searched = 0;
        loop {
            let end = self.read[searched..].iter().position(|byte| *byte == b'\n');
            if let Some(end) = end.map(|end| searched + end) {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                let line = line.strip_suffix(b"\r\n").unwrap_or(&line);
                return Some(line.iter().map(|byte| char::from(*byte)).collect());
            }
            searched = self.read.len();
            if !self.fill() {
                return None;
            }
        }
    }

    /// Appends so many bytes, or those that come; whether that is all.
    fn exactly(&mut self, count: usize, to: &mut Vec<u8>) -> bool {
        let mut left = count;
        loop {
            let here = left.min(self.read.len());
            to.extend(self.read.drain(..here));
            left -= here;
            if left == 0 {
                return true;
            }
            if !self.fill() {
                return false;
            }
        }
    }

    fn fill(&mut self) -> bool {
        let more = self.source.more();
        self.read.extend_from_slice(&more);
        !more.is_empty()
    }
}
