//! What QUERY and EXECUTE (and the end of BATCH) say about how they are to be done.

use bytes::BufMut;

use super::super::envelope::Version;
use super::super::error::{Malformed, Problem};
use super::super::read::{Reader, Value};
use super::super::write;
use evenkeel_core::request::ring::Consistency;

/// The flags of parameters: which of them there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueryFlags(pub u32);

impl QueryFlags {
    /// Values are bound.
    pub const VALUES: u32 = 0x01;
    /// The answer's rows come without metadata.
    pub const SKIP_METADATA: u32 = 0x02;
    /// At most so many rows at once.
    pub const PAGE_SIZE: u32 = 0x04;
    /// Where the page before ended.
    pub const PAGING_STATE: u32 = 0x08;
    /// The consistency of a conditional write's condition.
    pub const SERIAL_CONSISTENCY: u32 = 0x10;
    /// When it is written, as the client says.
    pub const TIMESTAMP: u32 = 0x20;
    /// The values have names.
    pub const NAMES: u32 = 0x40;
    /// The keyspace of tables that name none (v5).
    pub const KEYSPACE: u32 = 0x80;
    /// What time the request takes it to be (v5).
    pub const NOW_IN_SECONDS: u32 = 0x100;

    const fn known(version: Version) -> u32 {
        match version {
            Version::V4 => 0x7F,
            Version::V5 => 0x1FF,
        }
    }

    /// Whether this bit is set.
    pub const fn has(self, bit: u32) -> bool {
        self.0 & bit != 0
    }
}

/// What is bound to a statement's variables: a checked slice of the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Values<'a> {
    bytes: &'a [u8],
    count: u16,
    has_names: bool,
    /// Whether they are written when there are none: some drivers do.
    is_written: bool,
}

/// Values that are bound here.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bound {
    bytes: Vec<u8>,
    count: u16,
}

impl Bound {
    /// No values.
    pub fn new() -> Self {
        Self::default()
    }

    /// The next value.
    ///
    /// # Panics
    /// When it is 2 GiB or longer, or the 65,536th.
    pub fn push(&mut self, value: Value<'_>) -> &mut Self {
        self.count = self.count.checked_add(1).expect("a statement has fewer variables");
        write::value(&mut self.bytes, value);
        self
    }

    /// As what they are bound.
    pub fn values(&self) -> Values<'_> {
        let is_written = self.count > 0;
        Values { bytes: &self.bytes, count: self.count, has_names: false, is_written }
    }
}

impl<'a> Values<'a> {
    /// Reads a count and as many values, with or without names.
    ///
    /// # Errors
    /// They are not all there.
    pub fn read(reader: &mut Reader<'a>, has_names: bool) -> Result<Self, Malformed> {
        let count = reader.short("number of values")?;
        let start = reader.position();
        for _ in 0..count {
            if has_names {
                reader.string("name of a value")?;
            }
            reader.value("value")?;
        }
        Ok(Self { bytes: reader.since(start), count, has_names, is_written: true })
    }

    pub(super) fn write(self, out: &mut impl BufMut) {
        out.put_u16(self.count);
        out.put_slice(self.bytes);
    }

    /// How many.
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether they have names.
    pub const fn has_names(&self) -> bool {
        self.has_names
    }

    /// Each with its name.
    pub fn iter(&self) -> impl Iterator<Item = (Option<&'a str>, Value<'a>)> + use<'a> {
        let (mut reader, has_names) = (Reader::new(self.bytes), self.has_names);
        (0..self.count).map_while(move |_| {
            let name = if has_names { Some(reader.string("").ok()?) } else { None };
            Some((name, reader.value("").ok()?))
        })
    }

    /// The value at this place, from 0.
    pub fn at(&self, index: usize) -> Option<Value<'a>> {
        self.iter().nth(index).map(|(_, value)| value)
    }

    /// The value of this name; the last one, if several have it.
    pub fn named(&self, name: &str) -> Option<Value<'a>> {
        self.iter().filter(|&(other, _)| other == Some(name)).last().map(|(_, value)| value)
    }
}

/// How a request is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueryParameters<'a> {
    /// How many replicas are waited for.
    pub consistency: Consistency,
    /// What is bound; empty and none are the same.
    pub values: Values<'a>,
    /// Whether rows come without metadata.
    pub skip_metadata: bool,
    /// At most so many rows at once.
    pub page_size: Option<i32>,
    /// Where the page before ended.
    pub paging_state: Option<&'a [u8]>,
    /// The consistency of the condition.
    pub serial_consistency: Option<Consistency>,
    /// When it is written, microseconds since 1970.
    pub timestamp: Option<i64>,
    /// The keyspace of tables that name none (v5).
    pub keyspace: Option<&'a str>,
    /// What time the request takes it to be, seconds since 1970 (v5).
    pub now_in_seconds: Option<i32>,
}

impl<'a> QueryParameters<'a> {
    /// Parameters that say nothing else than how many replicas are waited for.
    pub fn new(consistency: Consistency) -> Self {
        Self {
            consistency,
            values: Values::default(),
            skip_metadata: false,
            page_size: None,
            paging_state: None,
            serial_consistency: None,
            timestamp: None,
            keyspace: None,
            now_in_seconds: None,
        }
    }

    /// Reads parameters.
    ///
    /// # Errors
    /// They are not all there, or have flags without meaning.
    pub fn read(reader: &mut Reader<'a>, version: Version) -> Result<Self, Malformed> {
        let mut parameters = Self::new(reader.consistency("consistency")?);
        let at = reader.position();
        let flags = QueryFlags(match version {
            Version::V4 => u32::from(reader.byte("flags of the parameters")?),
            Version::V5 => reader.int("flags of the parameters")?.cast_unsigned(),
        });
        if flags.0 & !QueryFlags::known(version) != 0 {
            let problem = Problem::Unknown(flags.0);
            return Err(Malformed { what: "flags of the parameters", at, problem });
        }
        parameters.skip_metadata = flags.has(QueryFlags::SKIP_METADATA);
        if flags.has(QueryFlags::VALUES) {
            parameters.values = Values::read(reader, flags.has(QueryFlags::NAMES))?;
        }
        if flags.has(QueryFlags::PAGE_SIZE) {
            parameters.page_size = Some(reader.int("page size")?);
        }
        if flags.has(QueryFlags::PAGING_STATE) {
            parameters.paging_state = reader.bytes("paging state")?;
        }
        if flags.has(QueryFlags::SERIAL_CONSISTENCY) {
            parameters.serial_consistency = Some(reader.consistency("serial consistency")?);
        }
        if flags.has(QueryFlags::TIMESTAMP) {
            parameters.timestamp = Some(reader.long("timestamp")?);
        }
        if flags.has(QueryFlags::KEYSPACE) {
            parameters.keyspace = Some(reader.string("keyspace")?);
        }
        if flags.has(QueryFlags::NOW_IN_SECONDS) {
            parameters.now_in_seconds = Some(reader.int("now in seconds")?);
        }
        Ok(parameters)
    }

    /// The flags that these parameters have.
    pub fn flags(&self) -> QueryFlags {
        let bits = [
            (QueryFlags::VALUES, self.values.is_written),
            (QueryFlags::SKIP_METADATA, self.skip_metadata),
            (QueryFlags::PAGE_SIZE, self.page_size.is_some()),
            (QueryFlags::PAGING_STATE, self.paging_state.is_some()),
            (QueryFlags::SERIAL_CONSISTENCY, self.serial_consistency.is_some()),
            (QueryFlags::TIMESTAMP, self.timestamp.is_some()),
            (QueryFlags::NAMES, self.values.has_names()),
            (QueryFlags::KEYSPACE, self.keyspace.is_some()),
            (QueryFlags::NOW_IN_SECONDS, self.now_in_seconds.is_some()),
        ];
        QueryFlags(bits.into_iter().filter(|&(_, is_set)| is_set).map(|(bit, _)| bit).sum())
    }

    /// Writes parameters. v4 has no room for the keyspace and the time.
    ///
    /// # Panics
    /// When the paging state is 2 GiB or longer, or the keyspace longer than 65,535 bytes.
    pub fn write(&self, version: Version, out: &mut impl BufMut) {
        write::consistency(out, self.consistency);
        let flags = QueryFlags(self.flags().0 & QueryFlags::known(version));
        match version {
            Version::V4 => out.put_u8(flags.0 as u8),
            Version::V5 => out.put_u32(flags.0),
        }
        if flags.has(QueryFlags::VALUES) {
            self.values.write(out);
        }
        if let Some(page_size) = self.page_size {
            out.put_i32(page_size);
        }
        if let Some(state) = self.paging_state {
            write::bytes(out, Some(state));
        }
        if let Some(level) = self.serial_consistency {
            write::consistency(out, level);
        }
        if let Some(timestamp) = self.timestamp {
            out.put_i64(timestamp);
        }
        if version < Version::V5 {
            return;
        }
        if let Some(keyspace) = self.keyspace {
            write::string(out, keyspace);
        }
        if let Some(now) = self.now_in_seconds {
            out.put_i32(now);
        }
    }
}
