//! How many replicas a request of Cassandra waits for, and of which data centre.

use core::fmt;

/// A consistency level, with the number it has in the native protocol (section 3, `[consistency]`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Consistency {
    /// Writes only: a hint is enough.
    Any = 0x00,
    /// One replica.
    One = 0x01,
    /// Two replicas.
    Two = 0x02,
    /// Three replicas.
    Three = 0x03,
    /// More than half of all replicas.
    Quorum = 0x04,
    /// Every replica.
    All = 0x05,
    /// More than half of the replicas in the coordinator's data centre.
    LocalQuorum = 0x06,
    /// More than half of the replicas in each data centre.
    EachQuorum = 0x07,
    /// A Paxos quorum over all data centres.
    Serial = 0x08,
    /// A Paxos quorum in the coordinator's data centre.
    LocalSerial = 0x09,
    /// One replica in the coordinator's data centre.
    LocalOne = 0x0A,
}

impl Consistency {
    /// Every level, by its number.
    const ALL: [(Self, &str); 11] = [
        (Self::Any, "ANY"),
        (Self::One, "ONE"),
        (Self::Two, "TWO"),
        (Self::Three, "THREE"),
        (Self::Quorum, "QUORUM"),
        (Self::All, "ALL"),
        (Self::LocalQuorum, "LOCAL_QUORUM"),
        (Self::EachQuorum, "EACH_QUORUM"),
        (Self::Serial, "SERIAL"),
        (Self::LocalSerial, "LOCAL_SERIAL"),
        (Self::LocalOne, "LOCAL_ONE"),
    ];

    /// The level with this number; `None` when there is none.
    pub fn of(number: u16) -> Option<Self> {
        Self::ALL.get(usize::from(number)).map(|&(level, _)| level)
    }

    /// The name that CQL and drivers use.
    pub const fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Whether it is a level of conditional requests (Paxos).
    pub const fn is_serial(self) -> bool {
        matches!(self, Self::Serial | Self::LocalSerial)
    }

    /// Whether its replicas are those of the coordinator's data centre: another coordinator would
    /// ask others.
    pub const fn is_local(self) -> bool {
        matches!(self, Self::LocalOne | Self::LocalQuorum | Self::LocalSerial)
    }
}

impl fmt::Display for Consistency {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
