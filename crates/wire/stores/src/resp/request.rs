//! Where a client's command ends, and what its arguments are.
//!
//! Clients send arrays of bulk strings; people at a terminal send lines (inline commands). Both are
//! found by [`RequestParser::parse`] in a buffer that begins with the first byte of a command. The
//! parser keeps places, not bytes: an argument is looked up in the buffer, so nothing is copied.
//! Inline commands are the exception, because their quotes have to be undone.
//!
//! **Resuming.** After `Ok(None)` the same parser is given the same bytes and more; what was
//! understood is not read again, neither the arguments that are complete nor the part of a long
//! argument that came. After `Ok(Some(length))` the arguments can be asked for until `parse` is
//! called again, for the bytes after `length`.
//!
//! **Memory.** A vector of places, which grows with arguments that *came*: a client that announces
//! a million arguments and sends none has cost nothing. What it grew to in one huge command is
//! given back at the next. As many arguments as Redis takes are allowed, so what bounds them is the
//! length of the command, and before that what all clients may hold together: whoever keeps the
//! buffer counts it and [`RequestParser::place_bytes`].

use super::inline;
use super::{Number, ProtocolError, number};

/// How large a command may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes of one argument; Redis's own default is 512 MiB (`proto-max-bulk-len`).
    pub argument_bytes_max: usize,
    /// Arguments of one command, its name included; as many as Redis takes.
    pub arguments_max: usize,
    /// Bytes of an inline command (Redis: 64 KiB).
    pub inline_bytes_max: usize,
    /// Bytes of one command with all that stands between its arguments.
    pub command_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            argument_bytes_max: 512 << 20,
            arguments_max: i32::MAX as usize,
            inline_bytes_max: 64 << 10,
            command_bytes_max: 1 << 30,
        }
    }
}

impl Limits {
    /// For commands that were taken before.
    pub const MAX: Self = Self {
        argument_bytes_max: usize::MAX >> 2,
        arguments_max: usize::MAX >> 2,
        inline_bytes_max: 64 << 10,
        command_bytes_max: usize::MAX >> 1,
    };

    /// What a client may send before it has said its password, as Redis: ten arguments of 16 KiB.
    pub fn unauthenticated() -> Self {
        Self { argument_bytes_max: 16_384, arguments_max: 10, ..Self::default() }
    }
}

/// Places that are kept from one command to the next (16 bytes each).
const PLACES_KEPT: usize = 1024;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Nothing of a command was read.
    Start,
    /// Within an array of this many arguments.
    Array(usize),
    /// Within a line, which does not end in the first so many bytes.
    Inline(usize),
    /// The arguments are those of a whole command of so many bytes.
    Done(usize),
}

/// Finds commands in what a client sends; one per connection.
#[derive(Debug)]
pub struct RequestParser {
    limits: Limits,
    state: State,
    /// The first byte that was not understood yet.
    at: usize,
    /// The length of the argument whose bytes are waited for.
    pending: Option<usize>,
    /// Where arguments begin and end: in the buffer, or in `inline`.
    places: Vec<(usize, usize)>,
    /// The arguments of an inline command, one after the other.
    inline: Vec<u8>,
    is_inline: bool,
}

impl Default for RequestParser {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl RequestParser {
    /// A parser that has read nothing.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            state: State::Start,
            at: 0,
            pending: None,
            places: Vec::new(),
            inline: Vec::new(),
            is_inline: false,
        }
    }

    /// Other limits from here on, such as after a client said its password.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// The length in bytes of the command that `buffer` begins with; `None` while it is not whole.
    ///
    /// **A length with no arguments** ([`is_empty`](Self::is_empty)) is an empty line or an empty
    /// array: it is to be consumed and gets no reply.
    ///
    /// # Errors
    /// When the bytes are no command or larger than the limits. Nobody knows where the next command
    /// begins, so the connection is to be closed after the error is written.
    #[inline]
    pub fn parse(&mut self, buffer: &[u8]) -> Result<Option<usize>, ProtocolError> {
        if let State::Done(_) = self.state {
            self.begin();
        }
        if self.state == State::Start {
            match buffer.first() {
                None => return Ok(None),
                Some(b'*') => match number(buffer, 1) {
                    Number::Unfinished => return Ok(None),
                    Number::Malformed => return Err(ProtocolError::InvalidMultibulkLength),
                    Number::Whole(count, next) => {
                        // Redis takes any count below one for an empty command.
                        let count = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
                        if count > self.limits.arguments_max {
                            return Err(ProtocolError::InvalidMultibulkLength);
                        }
                        self.state = State::Array(count);
                        self.at = next;
                    }
                },
                Some(_) => self.state = State::Inline(0),
            }
        }
        match self.state {
            State::Array(count) => self.parse_array(buffer, count),
            State::Inline(searched) => self.parse_line(buffer, searched),
            State::Start | State::Done(_) => Ok(None),
        }
    }

    /// Forgets a command that was not whole: for another connection, or another buffer.
    pub fn reset(&mut self) {
        self.begin();
    }

    fn begin(&mut self) {
        self.state = State::Start;
        self.at = 0;
        self.pending = None;
        self.places.clear();
        self.places.shrink_to(PLACES_KEPT);
        self.is_inline = false;
        if !self.inline.is_empty() {
            self.inline = Vec::new(); // people type seldom: nothing is kept for them
        }
    }

    #[inline]
    fn parse_array(&mut self, buffer: &[u8], count: usize) -> Result<Option<usize>, ProtocolError> {
        while self.places.len() < count {
            let length = match self.pending {
                Some(length) => length,
                None => match self.read_length(buffer)? {
                    Some(length) => length,
                    None => return Ok(None),
                },
            };
            let end = self.at + length;
            let Some(ending) = buffer.get(end..end + 2) else {
                self.pending = Some(length);
                return Ok(None);
            };
            if ending != b"\r\n" {
                return Err(ProtocolError::UnendedBulk);
            }
            self.pending = None;
            self.places.push((self.at, end));
            self.at = end + 2;
        }
        self.state = State::Done(self.at);
        Ok(Some(self.at))
    }

    /// `$5` and its line ending: the length of the argument that begins here.
    #[inline]
    fn read_length(&mut self, buffer: &[u8]) -> Result<Option<usize>, ProtocolError> {
        match buffer.get(self.at) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(&came) => return Err(ProtocolError::ExpectedDollar(came)),
        }
        match number(buffer, self.at + 1) {
            Number::Unfinished => Ok(None),
            Number::Malformed => Err(ProtocolError::InvalidBulkLength),
            Number::Whole(length, next) => {
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                if length > self.limits.argument_bytes_max {
                    return Err(ProtocolError::InvalidBulkLength);
                }
                if next + length > self.limits.command_bytes_max {
                    return Err(ProtocolError::TooBigRequest);
                }
                self.at = next;
                Ok(Some(length))
            }
        }
    }

    #[cold]
    fn parse_line(
        &mut self,
        buffer: &[u8],
        searched: usize,
    ) -> Result<Option<usize>, ProtocolError> {
        let unread = buffer.get(searched..).unwrap_or_default();
        let end = memchr::memchr(b'\n', unread).map(|found| searched + found);
        if end.unwrap_or(buffer.len()) > self.limits.inline_bytes_max {
            return Err(ProtocolError::TooBigInline);
        }
        let Some(end) = end else {
            self.state = State::Inline(buffer.len());
            return Ok(None);
        };
        let line = &buffer[..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        inline::split(line, &mut self.inline, &mut self.places)?;
        if self.places.len() > self.limits.arguments_max {
            return Err(ProtocolError::InvalidMultibulkLength);
        }
        self.is_inline = true;
        self.state = State::Done(end + 1);
        Ok(Some(end + 1))
    }

    /// How many arguments the command has, its name included.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Memory for where arguments begin and end.
    pub fn place_bytes(&self) -> usize {
        self.places.capacity() * size_of::<(usize, usize)>()
    }

    /// Whether there is nothing to do: an empty line or array.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether the command came as a line.
    pub fn is_inline(&self) -> bool {
        self.is_inline
    }

    /// The arguments of the whole command that `parse` found in this buffer.
    #[inline]
    pub fn arguments<'a>(&'a self, buffer: &'a [u8]) -> Arguments<'a> {
        let bytes = if self.is_inline { &self.inline } else { buffer };
        Arguments { bytes, places: &self.places }
    }

    /// One argument; the name of the command is the first (0).
    ///
    /// # Panics
    /// When the command has fewer arguments, or this is not the buffer it was found in.
    #[inline]
    pub fn argument<'a>(&'a self, buffer: &'a [u8], index: usize) -> &'a [u8] {
        self.arguments(buffer).at(index)
    }

    /// Writes the whole command as an array of bulk strings.
    ///
    /// # Panics
    /// When no whole command was found, or this is not the buffer it was found in.
    pub fn write_canonical(&self, buffer: &[u8], out: &mut Vec<u8>) {
        let State::Done(length) = self.state else { panic!("a command that is not whole") };
        if self.is_inline {
            self.arguments(buffer).write(out);
        } else {
            out.extend_from_slice(&buffer[..length]); // arrays can be written in one way only
        }
    }
}

/// The arguments of one command, its name first.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a> {
    bytes: &'a [u8],
    places: &'a [(usize, usize)],
}

impl<'a> Arguments<'a> {
    /// How many there are, the name included.
    pub fn len(self) -> usize {
        self.places.len()
    }

    /// Whether there is not even a name.
    pub fn is_empty(self) -> bool {
        self.places.is_empty()
    }

    /// One of them; 0 is the name of the command.
    ///
    /// # Panics
    /// When there are fewer.
    #[inline]
    pub fn at(self, index: usize) -> &'a [u8] {
        let (start, end) = self.places[index];
        &self.bytes[start..end]
    }

    /// One of them, if there are so many.
    #[inline]
    pub fn get(self, index: usize) -> Option<&'a [u8]> {
        self.places.get(index).map(|&(start, end)| &self.bytes[start..end])
    }

    /// All of them in order.
    pub fn iter(self) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone {
        self.places.iter().map(move |&(start, end)| &self.bytes[start..end])
    }

    /// Whether one of them is this word, in upper or lower case.
    #[inline]
    pub fn is(self, index: usize, word: &str) -> bool {
        self.get(index).is_some_and(|came| came.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// Writes them as an array of bulk strings.
    pub fn write(self, out: &mut Vec<u8>) {
        super::encode::array(out, self.len());
        for argument in self.iter() {
            super::encode::bulk(out, argument);
        }
    }
}
