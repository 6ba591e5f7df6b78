//! The fields of a head (RFC 9110, 5), in the bytes in which they came.
//!
//! A proxy looks at few fields and passes on all: here they stay where they were read, and a list
//! says where each one is. What is added is written behind, as it will leave. So most of a head is
//! copied once, when it is sent.

use std::borrow::Borrow;
use std::fmt;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};

/// Lines that are likely to be added to a head.
const ROOM: usize = 6;
/// Bytes that are likely to be added.
const OURS_BYTES: usize = 256;
/// As long as a name may be, as in the crate `http`.
const NAME_BYTES_MAX: usize = u16::MAX as usize;

/// The fields of a head, in their order. A name may be there more than once, in any case.
#[derive(Clone, Default)]
pub struct Fields {
    /// What the head came in.
    came: Bytes,
    /// What was added, each line as it will be sent.
    ours: Vec<u8>,
    lines: Vec<Line>,
    /// How the names of lines begin, also of those that were removed.
    beginnings: Beginnings,
}

/// A set of first letters of names, with whether the names' lengths are even: what is not in it is
/// not looked for.
#[derive(Clone, Copy, Default)]
struct Beginnings(u64);

impl Beginnings {
    const fn of(name: &[u8]) -> u64 {
        match name {
            [first, ..] => 1 << ((*first & 31) << 1 | name.len() as u8 & 1),
            [] => 0,
        }
    }

    const fn add(&mut self, name: &[u8]) {
        self.0 |= Self::of(name);
    }

    const fn have(self, name: &[u8]) -> bool {
        self.0 & Self::of(name) != 0
    }
}

/// Where a line is: both parts of it in what came, or in what was added.
#[derive(Clone, Copy)]
struct Line {
    name: u32,
    value: u32,
    value_len: u32,
    name_len: u16,
    role: Role,
    flags: u8,
}

/// The line is in what was added.
const IS_OURS: u8 = 1;
/// It is written as it is to be sent, with `: ` and the end of a line.
const IS_PLAIN: u8 = 2;
/// HTTP/2 is not to keep it for later.
const IS_SENSITIVE: u8 = 4;

impl Line {
    const fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Where it ends, with the end of its line, if it is plain.
    const fn end(&self) -> usize {
        (self.value + self.value_len) as usize + 2
    }
}

/// What a field is to whoever passes a message on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Role {
    Connection,
    ContentLength,
    Date,
    Expect,
    Host,
    /// `Keep-Alive` and `Proxy-Connection`, which HTTP/2 forbids.
    KeepAlive,
    /// Any other `Proxy-*`: of one hop.
    Proxy,
    Te,
    Trailer,
    TransferEncoding,
    Upgrade,
    Other,
}

impl Role {
    /// Of a name in any case.
    fn of(name: &[u8]) -> Self {
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted.as_bytes());
        let Some(first) = name.first() else { return Self::Other };
        match (first.to_ascii_lowercase(), name.len()) {
            (b'c', 10) if is("connection") => Self::Connection,
            (b'c', 14) if is("content-length") => Self::ContentLength,
            (b'd', 4) if is("date") => Self::Date,
            (b'e', 6) if is("expect") => Self::Expect,
            (b'h', 4) if is("host") => Self::Host,
            (b'k', 10) if is("keep-alive") => Self::KeepAlive,
            (b'p', 16) if is("proxy-connection") => Self::KeepAlive,
            (b'p', 6..) if name[..6].eq_ignore_ascii_case(b"proxy-") => Self::Proxy,
            (b't', 2) if is("te") => Self::Te,
            (b't', 7) if is("trailer") => Self::Trailer,
            (b't', 17) if is("transfer-encoding") => Self::TransferEncoding,
            (b'u', 7) if is("upgrade") => Self::Upgrade,
            _ => Self::Other,
        }
    }
}

impl Fields {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// None yet, of a head that came in these bytes, with so many lines.
    pub(crate) fn of_head(came: Bytes, lines: usize) -> Self {
        assert!(u32::try_from(came.len()).is_ok(), "heads have limits");
        let lines = Vec::with_capacity(lines + ROOM);
        Self { came, ours: Vec::new(), lines, beginnings: Beginnings::default() }
    }

    /// Takes up a line of the head, of which this is the name and this the value, both as a parser
    /// found them. Nothing, if the name is too long.
    pub(crate) fn take_up(&mut self, name: &[u8], value: &[u8]) -> Option<Role> {
        let start = name.as_ptr().addr() - self.came.as_ptr().addr();
        let name_end = start + name.len();
        // Of nothing a parser may say that it is anywhere.
        let value_at = match value {
            [] => name_end,
            value => value.as_ptr().addr() - self.came.as_ptr().addr(),
        };
        let end = value_at + value.len();
        let is_plain = value_at == name_end + 2
            && self.came[name_end..value_at] == *b": "
            && self.came.get(end..end + 2) == Some(b"\r\n");
        let role = Role::of(name);
        self.beginnings.add(name);
        self.lines.push(Line {
            name: start as u32,
            value: value_at as u32,
            value_len: value.len() as u32,
            name_len: u16::try_from(name.len()).ok()?,
            role,
            flags: if is_plain { IS_PLAIN } else { 0 },
        });
        Some(role)
    }

    /// Forgets the line that was taken up last.
    pub(crate) fn take_back(&mut self) {
        self.lines.pop();
    }

    /// How many lines there are.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// All lines.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (FieldName<'_>, FieldValue<'_>)> {
        self.lines.iter().map(|line| (FieldName(self.name(line)), self.value(line)))
    }

    /// All lines, by what they are.
    pub(crate) fn roles(&self) -> impl DoubleEndedIterator<Item = Field<'_>> {
        self.lines.iter().map(|line| Field { line, fields: self })
    }

    /// The values of what has this role.
    pub(crate) fn with_role(&self, role: Role) -> impl DoubleEndedIterator<Item = FieldValue<'_>> {
        self.roles().filter(move |field| field.role() == role).map(Field::value)
    }

    /// The names of all lines.
    pub fn names(&self) -> impl DoubleEndedIterator<Item = FieldName<'_>> {
        self.lines.iter().map(|line| FieldName(self.name(line)))
    }

    /// The value of the first line of this name.
    #[inline]
    pub fn get(&self, name: impl AsRef<str>) -> Option<FieldValue<'_>> {
        let at = self.find(name.as_ref())?;
        Some(self.value(&self.lines[at]))
    }

    /// The values of all lines of this name.
    pub fn get_all<'a, N: AsRef<str> + 'a>(
        &'a self,
        name: N,
    ) -> impl DoubleEndedIterator<Item = FieldValue<'a>> {
        let may_be_there = self.beginnings.have(name.as_ref().as_bytes());
        let lines = if may_be_there { &self.lines[..] } else { &[] };
        let is_it = move |line: &&Line| self.is(line, name.as_ref());
        lines.iter().filter(is_it).map(|line| self.value(line))
    }

    /// The value of the only line of this name.
    ///
    /// # Errors
    /// When there is more than one.
    pub fn get_only(&self, name: impl AsRef<str>) -> Result<Option<FieldValue<'_>>, Repeated> {
        let name = name.as_ref();
        if !self.beginnings.have(name.as_bytes()) {
            return Ok(None);
        }
        let mut found = self.lines.iter().filter(|line| self.is(line, name));
        let first = found.next();
        match found.next() {
            None => Ok(first.map(|line| self.value(line))),
            Some(_) => Err(Repeated),
        }
    }

    /// Whether there is a line of this name.
    #[inline]
    pub fn contains(&self, name: impl AsRef<str>) -> bool {
        self.find(name.as_ref()).is_some()
    }

    /// Whether there is a line whose name begins so, with at least one letter.
    #[inline]
    pub fn contains_prefix(&self, prefix: &str) -> bool {
        let first = prefix.as_bytes().first().map_or(0, |first| 3 << ((first & 31) << 1));
        self.beginnings.0 & first != 0 && self.names().any(|name| name.starts_with(prefix))
    }

    /// Adds a line.
    pub fn append<'a>(&mut self, name: impl Borrow<HeaderName>, value: impl Into<FieldValue<'a>>) {
        let line = self.write_line(name.borrow(), value.into());
        self.lines.push(line);
    }

    /// Puts a line in the place of the first one of its name, and removes all others of it.
    pub fn insert<'a>(&mut self, name: impl Borrow<HeaderName>, value: impl Into<FieldValue<'a>>) {
        let name = name.borrow();
        let line = self.write_line(name, value.into());
        match self.find(name.as_str()) {
            None => self.lines.push(line),
            Some(first) => {
                self.lines[first] = line;
                self.remove_from(first + 1, name.as_str());
            }
        }
    }

    /// Removes all lines of this name; whether there were any.
    #[inline]
    pub fn remove(&mut self, name: impl AsRef<str>) -> bool {
        let Some(first) = self.find(name.as_ref()) else { return false };
        self.remove_from(first, name.as_ref());
        true
    }

    /// Removes all lines of this name; the value of the first one.
    pub fn take(&mut self, name: impl AsRef<str>) -> Option<HeaderValue> {
        let first = self.get(name.as_ref())?.to_value();
        self.remove(name);
        Some(first)
    }

    /// Removes all lines of this name; the value of the only one.
    ///
    /// # Errors
    /// When there was more than one.
    pub fn take_only(&mut self, name: impl AsRef<str>) -> Result<Option<HeaderValue>, Repeated> {
        let only = self.get_only(name.as_ref()).map(|only| only.map(FieldValue::to_value));
        if !matches!(only, Ok(None)) {
            self.remove(name);
        }
        only
    }

    /// Removes all lines whose name is this one to CGI and WSGI, where all that is no letter or
    /// digit becomes the same underscore.
    pub fn remove_like(&mut self, name: &HeaderName) {
        let length = name.as_str().len();
        let is_like = |line: &Line| {
            usize::from(line.name_len) == length && FieldName(self.name(line)).is_like(name)
        };
        if self.lines.iter().any(is_like) {
            self.retain(|other| !other.is_like(name));
        }
    }

    /// Removes all lines but those that are wanted.
    pub fn retain(&mut self, mut is_wanted: impl FnMut(FieldName<'_>) -> bool) {
        let Self { came, ours, lines, .. } = self;
        lines.retain(|line| is_wanted(FieldName(name_in(came, ours, line))));
    }

    /// Removes all lines but those whose role is wanted.
    pub(crate) fn retain_roles(&mut self, is_wanted: impl Fn(Role) -> bool) {
        self.lines.retain(|line| is_wanted(line.role));
    }

    /// Appends all lines that are wanted, as they are sent.
    pub(crate) fn write<'a>(
        &'a self,
        bytes: &mut Vec<u8>,
        mut is_wanted: impl FnMut(Field<'a>) -> bool,
    ) {
        // Lines that follow each other where they are leave together.
        let (mut of_ours, mut run) = (false, 0..0);
        for line in &self.lines {
            if !is_wanted(Field { line, fields: self }) {
                continue;
            }
            let start = line.name as usize;
            if line.is(IS_PLAIN) && line.is(IS_OURS) == of_ours && start == run.end {
                run.end = line.end();
                continue;
            }
            bytes.extend_from_slice(&self.bytes(of_ours)[run]);
            run = 0..0;
            if line.is(IS_PLAIN) {
                (of_ours, run) = (line.is(IS_OURS), start..line.end());
            } else {
                write_line(bytes, self.name(line), self.value(line).bytes);
            }
        }
        bytes.extend_from_slice(&self.bytes(of_ours)[run]);
    }

    /// The same in the form of the crate `http`.
    pub fn to_map(&self) -> HeaderMap {
        // Of one name there may be more lines than a map can have names.
        let mut map = HeaderMap::with_capacity(self.len().min(128));
        for line in &self.lines {
            let name = self.name(line);
            // Of a stream a name may have a `"`, which only the other table of the crate knows.
            let name = HeaderName::from_bytes(name).or_else(|_| HeaderName::from_lowercase(name));
            let name = name.expect("it was checked");
            let value = match line.is(IS_OURS) {
                true => self.value(line).to_value(),
                false => {
                    let value = self.came.slice_ref(self.value(line).bytes);
                    HeaderValue::from_maybe_shared(value).expect("it was checked")
                }
            };
            map.append(name, value);
        }
        map
    }

    fn bytes(&self, of_ours: bool) -> &[u8] {
        if of_ours { &self.ours } else { &self.came }
    }

    fn name(&self, line: &Line) -> &[u8] {
        name_in(&self.came, &self.ours, line)
    }

    fn value(&self, line: &Line) -> FieldValue<'_> {
        let start = line.value as usize;
        let value = &self.bytes(line.is(IS_OURS))[start..start + line.value_len as usize];
        FieldValue { bytes: value, is_sensitive: line.is(IS_SENSITIVE) }
    }

    fn is(&self, line: &Line, name: &str) -> bool {
        usize::from(line.name_len) == name.len()
            && self.name(line).eq_ignore_ascii_case(name.as_bytes())
    }

    #[inline]
    fn find(&self, name: &str) -> Option<usize> {
        if !self.beginnings.have(name.as_bytes()) {
            return None;
        }
        self.lines.iter().position(|line| self.is(line, name))
    }

    fn remove_from(&mut self, first: usize, name: &str) {
        let Self { came, ours, lines, .. } = self;
        let mut at = 0;
        lines.retain(|line| {
            at += 1;
            at <= first || !name_in(came, ours, line).eq_ignore_ascii_case(name.as_bytes())
        });
    }

    fn write_line(&mut self, name: &HeaderName, value: FieldValue<'_>) -> Line {
        if self.ours.capacity() == 0 {
            self.ours.reserve(OURS_BYTES);
        }
        let start = self.ours.len();
        let name = name.as_str().as_bytes();
        write_line(&mut self.ours, name, value.bytes);
        self.beginnings.add(name);
        assert!(u32::try_from(self.ours.len()).is_ok(), "heads have limits");
        assert!(name.len() <= NAME_BYTES_MAX, "names have a limit");
        let sensitive = if value.is_sensitive { IS_SENSITIVE } else { 0 };
        Line {
            name: start as u32,
            value: (start + name.len() + 2) as u32,
            value_len: value.bytes.len() as u32,
            name_len: name.len() as u16,
            role: Role::of(name),
            flags: IS_OURS | IS_PLAIN | sensitive,
        }
    }
}

fn name_in<'a>(came: &'a [u8], ours: &'a [u8], line: &Line) -> &'a [u8] {
    let bytes = if line.is(IS_OURS) { ours } else { came };
    &bytes[line.name as usize..][..usize::from(line.name_len)]
}

/// Appends one line of a head or of trailers.
pub(crate) fn write_line(bytes: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    bytes.extend_from_slice(name);
    bytes.extend_from_slice(b": ");
    bytes.extend_from_slice(value);
    bytes.extend_from_slice(b"\r\n");
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The same lines in the same order, in whatever case their names are.
impl PartialEq for Fields {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().zip(other.iter()).all(|(one, other)| one == other)
    }
}

impl Eq for Fields {}

impl From<&HeaderMap> for Fields {
    fn from(map: &HeaderMap) -> Self {
        let mut fields = Self::new();
        fields.lines.reserve(map.len() + ROOM);
        map.iter().for_each(|(name, value)| fields.append(name, value));
        fields
    }
}

impl FromIterator<(HeaderName, HeaderValue)> for Fields {
    fn from_iter<I: IntoIterator<Item = (HeaderName, HeaderValue)>>(lines: I) -> Self {
        let mut fields = Self::new();
        lines.into_iter().for_each(|(name, value)| fields.append(name, &value));
        fields
    }
}

/// A line.
#[derive(Clone, Copy)]
pub(crate) struct Field<'a> {
    line: &'a Line,
    fields: &'a Fields,
}

impl<'a> Field<'a> {
    /// What it is.
    pub(crate) const fn role(self) -> Role {
        self.line.role
    }

    /// What it says.
    pub(crate) fn value(self) -> FieldValue<'a> {
        self.fields.value(self.line)
    }
}

/// A field that may be there once is there more often.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repeated;

/// The name of a field, in the case in which it came. Case makes no difference to what is asked.
#[derive(Clone, Copy)]
pub struct FieldName<'a>(&'a [u8]);

impl<'a> FieldName<'a> {
    /// As it came.
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// Whether CGI and WSGI take it for this one.
    fn is_like(self, name: &HeaderName) -> bool {
        let is_alike = |(came, ours): (&u8, &u8)| {
            came.eq_ignore_ascii_case(ours)
                || (!ours.is_ascii_alphanumeric() && !came.is_ascii_alphanumeric())
        };
        let ours = name.as_str().as_bytes();
        self.0.len() == ours.len() && self.0.iter().zip(ours).all(is_alike)
    }

    /// Whether it begins so.
    pub fn starts_with(self, prefix: &str) -> bool {
        self.0.get(..prefix.len()).is_some_and(|it| it.eq_ignore_ascii_case(prefix.as_bytes()))
    }
}

impl PartialEq for FieldName<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(other.0)
    }
}

impl PartialEq<str> for FieldName<'_> {
    fn eq(&self, other: &str) -> bool {
        self.0.eq_ignore_ascii_case(other.as_bytes())
    }
}

impl PartialEq<HeaderName> for FieldName<'_> {
    fn eq(&self, other: &HeaderName) -> bool {
        *self == *other.as_str()
    }
}

impl fmt::Display for FieldName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&String::from_utf8_lossy(self.0), f)
    }
}

impl fmt::Debug for FieldName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&String::from_utf8_lossy(self.0), f)
    }
}

/// The value of a field: visible bytes, spaces, tabs, and bytes that are no ASCII.
#[derive(Clone, Copy)]
pub struct FieldValue<'a> {
    bytes: &'a [u8],
    is_sensitive: bool,
}

impl<'a> FieldValue<'a> {
    /// These bytes, if they may be a value.
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let is_bad = |byte: u8| (byte < b' ' && byte != b'\t') || byte == 0x7f;
        // Without a way out, so that many bytes are looked at in one step.
        let has_bad = bytes.iter().fold(false, |bad, byte| bad | is_bad(*byte));
        (!has_bad).then_some(Self { bytes, is_sensitive: false })
    }

    /// The same, which HTTP/2 is not to keep for later, nor logs to show.
    pub const fn sensitive(self) -> Self {
        Self { is_sensitive: true, ..self }
    }

    /// As it came.
    pub const fn as_bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// As text, if it is visible ASCII, spaces and tabs.
    pub fn to_str(self) -> Option<&'a str> {
        let is_text = |byte: &u8| matches!(byte, b'\t' | b' '..=b'~');
        self.bytes.iter().all(is_text).then(|| str::from_utf8(self.bytes).ok())?
    }

    /// A copy of it.
    pub fn to_value(self) -> HeaderValue {
        let mut value = HeaderValue::from_bytes(self.bytes).expect("it was checked");
        value.set_sensitive(self.is_sensitive);
        value
    }

    /// Whether it is empty.
    pub const fn is_empty(self) -> bool {
        self.bytes.is_empty()
    }
}

impl<'a> From<&'a HeaderValue> for FieldValue<'a> {
    fn from(value: &'a HeaderValue) -> Self {
        Self { bytes: value.as_bytes(), is_sensitive: value.is_sensitive() }
    }
}

impl PartialEq for FieldValue<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl PartialEq<HeaderValue> for FieldValue<'_> {
    fn eq(&self, other: &HeaderValue) -> bool {
        self.bytes == other.as_bytes()
    }
}

impl PartialEq<&str> for FieldValue<'_> {
    fn eq(&self, other: &&str) -> bool {
        self.bytes == other.as_bytes()
    }
}

impl fmt::Debug for FieldValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_sensitive {
            true => f.write_str("Sensitive"),
            false => fmt::Debug::fmt(&String::from_utf8_lossy(self.bytes), f),
        }
    }
}

#[cfg(test)]
mod tests;
