//! ERROR: why a request failed (section 9 of the specification).

use core::fmt;
use std::net::IpAddr;

use bytes::BufMut;

use super::super::envelope::Version;
use super::super::error::{ErrorCode, Malformed, Problem};
use super::super::read::Reader;
use super::super::write;
use evenkeel_core::request::ring::Consistency;

/// ERROR, with the fields its code has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error<'a> {
    /// What kind of failure.
    pub code: ErrorCode,
    /// In words.
    pub message: &'a str,
    /// What the code has more.
    pub fields: Fields<'a>,
}

/// What an ERROR has beside its message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fields<'a> {
    /// Nothing.
    None,
    /// Of [`ErrorCode::Unavailable`].
    Unavailable {
        /// The level that was asked for.
        consistency: Consistency,
        /// Replicas that are needed.
        required: i32,
        /// Replicas that are up.
        alive: i32,
    },
    /// Of [`ErrorCode::WriteTimeout`].
    WriteTimeout {
        /// How far it came.
        answered: Answered,
        /// What was written, e.g. `SIMPLE`.
        write_type: &'a str,
        /// How often other conditional writes came between (v5, `CAS` only).
        contentions: Option<u16>,
    },
    /// Of [`ErrorCode::ReadTimeout`].
    ReadTimeout {
        /// How far it came.
        answered: Answered,
        /// Whether the replica that was asked for data answered.
        is_data_present: bool,
    },
    /// Of [`ErrorCode::ReadFailure`].
    ReadFailure {
        /// How far it came.
        answered: Answered,
        /// Which replicas failed.
        failures: Failures,
        /// Whether the replica that was asked for data answered.
        is_data_present: bool,
    },
    /// Of [`ErrorCode::WriteFailure`].
    WriteFailure {
        /// How far it came.
        answered: Answered,
        /// Which replicas failed.
        failures: Failures,
        /// What was written, e.g. `SIMPLE`.
        write_type: &'a str,
    },
    /// Of [`ErrorCode::FunctionFailure`].
    FunctionFailure {
        /// Where the function is.
        keyspace: &'a str,
        /// Its name.
        function: &'a str,
        /// The types of its arguments.
        argument_types: Vec<&'a str>,
    },
    /// Of [`ErrorCode::CasWriteUnknown`].
    CasWriteUnknown(Answered),
    /// Of [`ErrorCode::AlreadyExists`].
    AlreadyExists {
        /// The keyspace.
        keyspace: &'a str,
        /// The table; empty when the keyspace exists.
        table: &'a str,
    },
    /// Of [`ErrorCode::Unprepared`].
    Unprepared {
        /// The number that is not known.
        id: &'a [u8],
    },
}

/// How far a request came before it failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answered {
    /// The level that was asked for.
    pub consistency: Consistency,
    /// Replicas that answered.
    pub received: i32,
    /// Replicas that were waited for.
    pub required: i32,
}

/// Which replicas failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failures {
    /// So many (v4).
    Count(i32),
    /// These, each with the number of a reason (v5).
    Reasons(Vec<(IpAddr, u16)>),
}

impl<'a> Error<'a> {
    /// An ERROR without fields.
    pub const fn new(code: ErrorCode, message: &'a str) -> Self {
        Self { code, message, fields: Fields::None }
    }

    /// Reads the message of an ERROR.
    ///
    /// # Errors
    /// It is not one, or has a code without meaning: see [`Error::code_of`].
    pub fn read(message: &'a [u8], version: Version) -> Result<Self, Malformed> {
        let mut reader = Reader::new(message);
        let number = reader.int("error code")?.cast_unsigned();
        let problem = Problem::Unknown(number);
        let code = ErrorCode::of(number).ok_or(Malformed { what: "error code", at: 0, problem })?;
        let message = reader.string("message of an error")?;
        let fields = Fields::read(&mut reader, code, version)?;
        Ok(Self { code, message, fields })
    }

    /// The number of an ERROR's code, without reading the rest.
    ///
    /// # Errors
    /// It is not all there.
    pub fn code_of(message: &[u8]) -> Result<u32, Malformed> {
        Reader::new(message).int("error code").map(i32::cast_unsigned)
    }

    /// Writes the message of an ERROR. Fields must be those of the code.
    ///
    /// # Panics
    /// When a text of the fields is longer than 65,535 bytes; the message is cut.
    pub fn write(&self, version: Version, out: &mut impl BufMut) {
        out.put_u32(self.code.number());
        write::string_cut(out, self.message);
        self.fields.write(version, out);
    }
}

impl<'a> Fields<'a> {
    fn read(reader: &mut Reader<'a>, code: ErrorCode, version: Version) -> Result<Self, Malformed> {
        Ok(match code {
            ErrorCode::Unavailable => Self::Unavailable {
                consistency: reader.consistency("consistency")?,
                required: reader.int("replicas required")?,
                alive: reader.int("replicas alive")?,
            },
            ErrorCode::WriteTimeout => Self::read_write_timeout(reader, version)?,
            ErrorCode::ReadTimeout => Self::ReadTimeout {
                answered: Answered::read(reader)?,
                is_data_present: reader.byte("presence of data")? != 0,
            },
            ErrorCode::ReadFailure => Self::ReadFailure {
                answered: Answered::read(reader)?,
                failures: Failures::read(reader, version)?,
                is_data_present: reader.byte("presence of data")? != 0,
            },
            ErrorCode::WriteFailure => Self::WriteFailure {
                answered: Answered::read(reader)?,
                failures: Failures::read(reader, version)?,
                write_type: reader.string("type of write")?,
            },
            ErrorCode::FunctionFailure => Self::FunctionFailure {
                keyspace: reader.string("keyspace")?,
                function: reader.string("function")?,
                argument_types: reader.string_list("types of arguments")?,
            },
            ErrorCode::CasWriteUnknown => Self::CasWriteUnknown(Answered::read(reader)?),
            ErrorCode::AlreadyExists => Self::AlreadyExists {
                keyspace: reader.string("keyspace")?,
                table: reader.string("table")?,
            },
            ErrorCode::Unprepared => {
                Self::Unprepared { id: reader.short_bytes("id of the prepared statement")? }
            }
            _ => Self::None,
        })
    }

    fn read_write_timeout(reader: &mut Reader<'a>, version: Version) -> Result<Self, Malformed> {
        let answered = Answered::read(reader)?;
        let write_type = reader.string("type of write")?;
        // The specification forgets them; Cassandra sends them.
        let has_contentions =
            version >= Version::V5 && write_type == "CAS" && !reader.rest().is_empty();
        let contentions = if has_contentions { Some(reader.short("contentions")?) } else { None };
        Ok(Self::WriteTimeout { answered, write_type, contentions })
    }

    fn write(&self, version: Version, out: &mut impl BufMut) {
        match self {
            Self::None => {}
            Self::Unavailable { consistency, required, alive } => {
                write::consistency(out, *consistency);
                out.put_i32(*required);
                out.put_i32(*alive);
            }
            Self::WriteTimeout { answered, write_type, contentions } => {
                answered.write(out);
                write::string(out, write_type);
                if let Some(contentions) = contentions
                    && version >= Version::V5
                {
                    out.put_u16(*contentions);
                }
            }
            Self::ReadTimeout { answered, is_data_present } => {
                answered.write(out);
                out.put_u8(u8::from(*is_data_present));
            }
            Self::ReadFailure { answered, failures, is_data_present } => {
                answered.write(out);
                failures.write(version, out);
                out.put_u8(u8::from(*is_data_present));
            }
            Self::WriteFailure { answered, failures, write_type } => {
                answered.write(out);
                failures.write(version, out);
                write::string(out, write_type);
            }
            Self::FunctionFailure { keyspace, function, argument_types } => {
                write::string(out, keyspace);
                write::string(out, function);
                write::string_list(out, argument_types);
            }
            Self::CasWriteUnknown(answered) => answered.write(out),
            Self::AlreadyExists { keyspace, table } => {
                write::string(out, keyspace);
                write::string(out, table);
            }
            Self::Unprepared { id } => write::short_bytes(out, id),
        }
    }
}

impl Answered {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            consistency: reader.consistency("consistency")?,
            received: reader.int("replicas that answered")?,
            required: reader.int("replicas waited for")?,
        })
    }

    fn write(self, out: &mut impl BufMut) {
        write::consistency(out, self.consistency);
        out.put_i32(self.received);
        out.put_i32(self.required);
    }
}

impl Failures {
    /// How many replicas failed.
    pub fn count(&self) -> usize {
        match self {
            Self::Count(count) => usize::try_from(*count).unwrap_or(0),
            Self::Reasons(reasons) => reasons.len(),
        }
    }

    fn read(reader: &mut Reader<'_>, version: Version) -> Result<Self, Malformed> {
        if version == Version::V4 {
            return reader.int("failures").map(Self::Count);
        }
        // Each takes seven bytes of what came: the list is no longer than that allows.
        let count = reader.count("failures")?;
        let one = |_| Ok((reader.address("replica")?, reader.short("reason")?));
        (0..count).map(one).collect::<Result<_, _>>().map(Self::Reasons)
    }

    fn write(&self, version: Version, out: &mut impl BufMut) {
        let count = i32::try_from(self.count()).expect("there are fewer replicas");
        match (self, version) {
            (Self::Reasons(reasons), Version::V5) => {
                out.put_i32(count);
                for &(replica, reason) in reasons {
                    write::address(out, replica);
                    out.put_u16(reason);
                }
            }
            (Self::Count(count), Version::V4) => out.put_i32(*count),
            (Self::Reasons(_), Version::V4) => out.put_i32(count),
            // Which replicas is not known.
            (Self::Count(_), Version::V5) => out.put_i32(0),
        }
    }
}

impl fmt::Display for Error<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({:#06x}): {}", self.code, self.code.number(), self.message)
    }
}
