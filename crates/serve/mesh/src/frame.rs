//! What travels between two sites, and between the processes of one, as bytes.
//!
//! ```text
//! frame    = length kind body      length of kind and body, 4 bytes, big-endian
//! probe    = %x01 sequence         8 bytes, big-endian
//! echo     = %x02 sequence         that of the probe
//! row      = %x03 row              as in evenkeel_geo::epoch::wire
//! settings = %x04 *hash            what must be set alike, 4 bytes each; once on a connection
//! hello    = %x05 hello            the first of a follower; this and the next as in `message`
//! counts   = %x06 counts           of a follower
//! told     = %x07 told             to a follower: its part of a plan
//! unlike   = %x08 code             to a follower: in what it differs; the last
//! ```
//!
//! A length is believed up to that of the longest row, so that no peer makes us wait for, or keep,
//! more than two kilobytes; of a follower, 32. After bytes that are no frame nothing that follows
//! can be told apart: the connection ends.

use evenkeel_geo::epoch::wire::ROW_BYTES_MAX;

const LENGTH_BYTES: usize = 4;
const SEQUENCE_BYTES: usize = 8;
const PROBE: u8 = 1;
const ECHO: u8 = 2;
const ROW: u8 = 3;
const SETTINGS: u8 = 4;
const HELLO: u8 = 5;
const COUNTS: u8 = 6;
const PLAN_PART: u8 = 7;
const UNLIKE: u8 = 8;

/// The longest frame between sites, in bytes.
pub const FRAME_BYTES_MAX: usize = LENGTH_BYTES + 1 + ROW_BYTES_MAX;
/// The longest frame between the processes of one site, in bytes: 1,024 workers take half of it.
pub const FOLLOWER_FRAME_BYTES_MAX: usize = LENGTH_BYTES + 1 + 32 * 1_024;

/// One message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame<'a> {
    /// To be echoed at once.
    Probe {
        /// Its number on the connection.
        sequence: u64,
    },
    /// The answer to a probe.
    Echo {
        /// The number of the probe.
        sequence: u64,
    },
    /// A site's row for an epoch, not read yet; at most [`ROW_BYTES_MAX`].
    Row(&'a [u8]),
    /// Hashes of what must be set alike at all sites.
    Settings(&'a [u8]),
    /// Who a follower is.
    Hello(&'a [u8]),
    /// What a follower counted.
    Counts(&'a [u8]),
    /// A follower's part of a plan.
    PlanPart(&'a [u8]),
    /// In what a follower differs from its controller.
    Unlike(&'a [u8]),
}

/// Why bytes are no frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Nonsense {
    /// A length above that of any frame.
    #[error(
        "a frame of {bytes} bytes, at most {} were expected (is the peer another service?)",
        FRAME_BYTES_MAX - LENGTH_BYTES
    )]
    Oversized {
        /// That length.
        bytes: u32,
    },
    /// A kind that nobody knows.
    #[error("a frame of kind {came}, 1 to 8 were expected (does the peer run another release?)")]
    Kind {
        /// That kind.
        came: u8,
    },
    /// A length that its kind does not have.
    #[error("a frame of {bytes} bytes, which its kind never has (is the peer broken?)")]
    Length {
        /// That length.
        bytes: u32,
    },
    /// A frame that has no business in this direction, or an echo of no probe.
    #[error("{came}, which was not expected here (is the peer broken?)")]
    Unexpected {
        /// What it is.
        came: &'static str,
    },
}

impl Nonsense {
    /// Every word of [`Nonsense::name`].
    pub const NAMES: [&str; 4] =
        ["frame-oversized", "frame-kind", "frame-length", "frame-unexpected"];

    /// The word for it in metrics.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Oversized { .. } => Self::NAMES[0],
            Self::Kind { .. } => Self::NAMES[1],
            Self::Length { .. } => Self::NAMES[2],
            Self::Unexpected { .. } => Self::NAMES[3],
        }
    }
}

impl Frame<'_> {
    /// What it is, in words.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Probe { .. } => "a probe",
            Self::Echo { .. } => "an echo",
            Self::Row(_) => "a report",
            Self::Settings(_) => "settings",
            Self::Hello(_) => "the hello of a follower",
            Self::Counts(_) => "counts of a follower",
            Self::PlanPart(_) => "a follower's part of a plan",
            Self::Unlike(_) => "a refusal of a follower",
        }
    }

    /// Appends it to bytes that are to be sent.
    ///
    /// # Panics
    /// When it is longer than any frame: no encoder makes such.
    pub fn put(&self, bytes: &mut Vec<u8>) {
        let begin = bytes.len();
        let (kind, body): (u8, &[u8]) = match self {
            Self::Probe { sequence } => (PROBE, &sequence.to_be_bytes()),
            Self::Echo { sequence } => (ECHO, &sequence.to_be_bytes()),
            Self::Row(row) => (ROW, row),
            Self::Settings(hashes) => (SETTINGS, hashes),
            Self::Hello(hello) => (HELLO, hello),
            Self::Counts(counts) => (COUNTS, counts),
            Self::PlanPart(reported) => (PLAN_PART, reported),
            Self::Unlike(code) => (UNLIKE, code),
        };
        bytes.extend((1 + body.len() as u32).to_be_bytes());
        bytes.push(kind);
        bytes.extend(body);
        assert!(bytes.len() - begin <= FOLLOWER_FRAME_BYTES_MAX, "a frame is never that long");
    }

    /// It as bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(LENGTH_BYTES + 1 + SEQUENCE_BYTES);
        self.put(&mut bytes);
        bytes
    }
}

/// The frame between sites that bytes begin with, and its length; `None` when there are too few of
/// them.
///
/// # Errors
/// When no frame begins like this, as early as that can be told.
pub fn decode(bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>, Nonsense> {
    decode_up_to(bytes, FRAME_BYTES_MAX)
}

/// As [`decode`], of a conversation in which no frame is longer than this.
///
/// # Errors
/// As [`decode`].
pub fn decode_up_to(bytes: &[u8], longest: usize) -> Result<Option<(Frame<'_>, usize)>, Nonsense> {
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let length = u32::from_be_bytes(*length);
    let whole = LENGTH_BYTES + length as usize;
    if whole > longest {
        return Err(Nonsense::Oversized { bytes: length });
    }
    if length == 0 {
        return Err(Nonsense::Length { bytes: length });
    }
    let Some(&kind) = rest.first() else { return Ok(None) };
    match kind {
        PROBE | ECHO if length as usize != 1 + SEQUENCE_BYTES => {
            return Err(Nonsense::Length { bytes: length });
        }
        PROBE..=UNLIKE => {}
        came => return Err(Nonsense::Kind { came }),
    }
    let Some(body) = rest.get(1..length as usize) else { return Ok(None) };
    let sequence = || u64::from_be_bytes(*body.first_chunk().expect("its length was checked"));
    let frame = match kind {
        PROBE => Frame::Probe { sequence: sequence() },
        ECHO => Frame::Echo { sequence: sequence() },
        ROW => Frame::Row(body),
        SETTINGS => Frame::Settings(body),
        HELLO => Frame::Hello(body),
        COUNTS => Frame::Counts(body),
        PLAN_PART => Frame::PlanPart(body),
        _ => Frame::Unlike(body),
    };
    Ok(Some((frame, whole)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn frames_are_the_bytes_that_the_format_says() {
        let probe = Frame::Probe { sequence: 0x0102_0304_0506_0708 };
        assert_eq!(probe.bytes(), [0, 0, 0, 9, 1, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(Frame::Echo { sequence: 1 }.bytes(), [0, 0, 0, 9, 2, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(Frame::Row(b"row").bytes(), [0, 0, 0, 4, 3, b'r', b'o', b'w']);
    }

    #[test]
    fn nonsense_is_told_before_more_is_waited_for() {
        let lengths = [u32::MAX, ROW_BYTES_MAX as u32 + 2];
        for bytes in lengths {
            assert_eq!(decode(&bytes.to_be_bytes()), Err(Nonsense::Oversized { bytes }));
        }
        assert_eq!(decode(&[0, 0, 0, 0]), Err(Nonsense::Length { bytes: 0 }));
        assert_eq!(decode(&[0, 0, 0, 9, 9]), Err(Nonsense::Kind { came: 9 }));
        assert_eq!(decode(b"GET / HTTP/1.1\r\n"), Err(Nonsense::Oversized { bytes: 0x4745_5420 }));
        assert_eq!(decode(&[0, 0, 0, 8, 1]), Err(Nonsense::Length { bytes: 8 }));
        assert_eq!(decode(&[0, 0, 0, 10, 2]), Err(Nonsense::Length { bytes: 10 }));
        assert_eq!(decode(&(ROW_BYTES_MAX as u32 + 1).to_be_bytes()), Ok(None));
    }

    fn row() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 0..=ROW_BYTES_MAX)
    }

    proptest! {
        #[test]
        fn what_is_put_is_read_again_wherever_it_is_cut(
            sequence in any::<u64>(), row in row(), cut in any::<prop::sample::Index>(),
        ) {
            for frame in
                [
                    Frame::Probe { sequence }, Frame::Echo { sequence }, Frame::Row(&row),
                    Frame::Settings(&row), Frame::Hello(&row), Frame::Counts(&row),
                    Frame::PlanPart(&row), Frame::Unlike(&row),
                ]
            {
                let mut bytes = frame.bytes();
                prop_assert_eq!(decode(&bytes[..cut.index(bytes.len())]), Ok(None));
                let length = bytes.len();
                bytes.push(7);
                prop_assert_eq!(decode(&bytes), Ok(Some((frame, length))));
            }
        }

        #[test]
        fn any_bytes_are_a_frame_none_yet_or_nonsense(bytes in row()) {
            if let Ok(Some((frame, length))) = decode(&bytes) {
                prop_assert_eq!(frame.bytes(), &bytes[..length]);
            }
        }
    }
}
