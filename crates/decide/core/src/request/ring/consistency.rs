//! How many replicas a request of Cassandra waits for, and of which data centre.

use core::fmt;

crate::named! {
    /// A consistency level, with the number it has in the native protocol (section 3,
    /// `[consistency]`).
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(u16)]
    pub enum Consistency {
        /// Writes only: a hint is enough.
        Any = "ANY" as 0x00,
        /// One replica.
        One = "ONE" as 0x01,
        /// Two replicas.
        Two = "TWO" as 0x02,
        /// Three replicas.
        Three = "THREE" as 0x03,
        /// More than half of all replicas.
        Quorum = "QUORUM" as 0x04,
        /// Every replica.
        All = "ALL" as 0x05,
        /// More than half of the replicas in the coordinator's data centre.
        LocalQuorum = "LOCAL_QUORUM" as 0x06,
        /// More than half of the replicas in each data centre.
        EachQuorum = "EACH_QUORUM" as 0x07,
        /// A Paxos quorum over all data centres.
        Serial = "SERIAL" as 0x08,
        /// A Paxos quorum in the coordinator's data centre.
        LocalSerial = "LOCAL_SERIAL" as 0x09,
        /// One replica in the coordinator's data centre.
        LocalOne = "LOCAL_ONE" as 0x0A,
    }
}

impl Consistency {
    /// The level with this number; `None` when there is none.
    pub fn of(number: u16) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
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
