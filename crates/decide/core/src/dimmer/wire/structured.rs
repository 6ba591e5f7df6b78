//! The bare items and keys of RFC 9651, read as far as decisions need them: Booleans by value, all
//! others only to know where they end and that they are well-formed (section 4.2.3 to 4.2.10).

use super::Malformed;

/// Reads from left to right and never back.
pub(super) struct Reader<'a> {
    value: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(value: &'a [u8]) -> Self {
        Self { value, at: 0 }
    }

    /// Bytes read.
    pub(super) const fn at(&self) -> usize {
        self.at
    }

    /// What follows the `;` of a parameter: spaces, a key, and perhaps a value. `None` is a value
    /// that is no Boolean.
    pub(super) fn parameter(&mut self) -> Result<(&'a [u8], Option<bool>), Malformed> {
        self.skip_spaces();
        let begin = self.at;
        if !self.peek().is_some_and(begins_a_key) {
            return Err(self.expected("a part's name in small letters"));
        }
        self.skip_while(continues_a_key);
        let key = &self.value[begin..self.at];
        let value = if self.take(b'=') { self.bare_item()? } else { Some(true) };
        Ok((key, value))
    }

    pub(super) fn boolean(&mut self) -> Result<bool, Malformed> {
        let boolean = match self.value[self.at..] {
            [b'?', b'0', ..] => false,
            [b'?', b'1', ..] => true,
            _ => return Err(self.expected("`?1` or `?0`")),
        };
        self.at += 2;
        Ok(boolean)
    }

    pub(super) fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    pub(super) fn skip_spaces(&mut self) {
        self.skip_while(|byte| byte == b' ');
    }

    pub(super) const fn expected(&self, expected: &'static str) -> Malformed {
        Malformed { at: self.at, expected }
    }

    fn bare_item(&mut self) -> Result<Option<bool>, Malformed> {
        match self.peek() {
            Some(b'?') => return self.boolean().map(Some),
            Some(b'"') => self.string()?,
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b'*' | b'a'..=b'z' | b'A'..=b'Z') => self.skip_while(continues_a_token),
            Some(b':') => self.bytes()?,
            Some(b'@') => self.date()?,
            Some(b'%') => self.display_string()?,
            _ => return Err(self.expected("`?1` or `?0`")),
        }
        Ok(None)
    }

    fn string(&mut self) -> Result<(), Malformed> {
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') if matches!(self.peek_after(1), Some(b'"' | b'\\')) => self.at += 2,
                Some(b' '..=b'~') if self.peek() != Some(b'\\') => self.at += 1,
                _ => return Err(self.expected("the rest of a string and its `\"`")),
            }
        }
        self.at += 1;
        Ok(())
    }

    fn number(&mut self) -> Result<(), Malformed> {
        let whole = self.integer()?;
        if !self.take(b'.') {
            return if whole <= 15 { Ok(()) } else { Err(self.expected("15 digits at most")) };
        }
        match self.digits() {
            1..=3 if whole <= 12 => Ok(()),
            _ => Err(self.expected("a decimal with 12 digits before its point and 1 to 3 after")),
        }
    }

    fn date(&mut self) -> Result<(), Malformed> {
        self.at += 1;
        match self.integer()? {
            1..=15 if self.peek() != Some(b'.') => Ok(()),
            _ => Err(self.expected("a date in whole seconds")),
        }
    }

    /// Returns how many digits there are, which is one or more.
    fn integer(&mut self) -> Result<usize, Malformed> {
        self.take(b'-');
        match self.digits() {
            0 => Err(self.expected("a digit")),
            digits => Ok(digits),
        }
    }

    fn digits(&mut self) -> usize {
        let begin = self.at;
        self.skip_while(|byte| byte.is_ascii_digit());
        self.at - begin
    }

    fn bytes(&mut self) -> Result<(), Malformed> {
        self.at += 1;
        self.skip_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'));
        let _ = self.take(b'=') && self.take(b'='); // padding may be missing
        if self.take(b':') { Ok(()) } else { Err(self.expected("base64 and its `:`")) }
    }

    fn display_string(&mut self) -> Result<(), Malformed> {
        self.at += 1;
        if !self.take(b'"') {
            return Err(self.expected("a `\"` after `%`"));
        }
        let begin = self.at;
        let mut text = Vec::new();
        while !self.take(b'"') {
            text.push(self.display_byte()?);
        }
        match str::from_utf8(&text) {
            Ok(_) => Ok(()),
            Err(_) => Err(Malformed { at: begin, expected: "UTF-8 in a display string" }),
        }
    }

    fn display_byte(&mut self) -> Result<u8, Malformed> {
        let (byte, long) = match self.value[self.at..] {
            [b'%', high, low, ..] => (hex(high).zip(hex(low)).map(|(h, l)| h << 4 | l), 3),
            [b'%', ..] => (None, 0),
            [byte @ b' '..=b'~', ..] => (Some(byte), 1),
            _ => (None, 0),
        };
        let byte = byte.ok_or(self.expected("the rest of a display string and its `\"`"))?;
        self.at += long;
        Ok(byte)
    }

    fn peek(&self) -> Option<u8> {
        self.peek_after(0)
    }

    fn peek_after(&self, bytes: usize) -> Option<u8> {
        self.value.get(self.at + bytes).copied()
    }

    fn skip_while(&mut self, is_skipped: impl Fn(u8) -> bool) {
        while self.peek().is_some_and(&is_skipped) {
            self.at += 1;
        }
    }
}

pub(super) const fn begins_a_key(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte == b'*'
}

pub(super) const fn continues_a_key(byte: u8) -> bool {
    begins_a_key(byte) || byte.is_ascii_digit() || matches!(byte, b'_' | b'-' | b'.')
}

/// RFC 9110's token letters, `:` and `/`.
fn continues_a_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte)
}

/// The value of a hexadecimal digit; capital letters are none in a display string.
const fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}
