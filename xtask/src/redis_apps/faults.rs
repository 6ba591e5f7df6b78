//! Which fault comes when: a sequence that its seed determines.
//!
//! A fault begins only after the effects of the one before are over (all duplicates are live), so
//! that a majority is there at any time: what is lost with a majority of emptied duplicates, no
//! service can have. A plain Redis is one server: what kills one of three, or the front, kills it
//! too, for as long, but it is never wiped.

use std::fmt;
use std::time::Duration;

/// What happens to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// `kill -9` of a duplicate, which starts again with its data.
    Kill(usize),
    /// The same, and its data are gone.
    Wipe(usize),
    /// `SIGSTOP` of a duplicate, and `SIGCONT`.
    Pause(usize),
    /// `kill -9` of the process that leads.
    KillFront,
    /// `SIGSTOP` of the process that leads, for longer or shorter than its lease.
    PauseFront,
}

/// A fault with its times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Planned {
    /// How long nothing happens before.
    pub(super) after: Duration,
    pub(super) fault: Fault,
    pub(super) lasts: Duration,
}

impl fmt::Display for Planned {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?} for {:?}", self.fault, self.lasts)
    }
}

/// The faults of a run.
pub(super) struct Schedule {
    state: u64,
}

impl Schedule {
    pub(super) const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// SplitMix64 (Steele, Lea, Flood 2014)
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn between(&mut self, from_ms: u64, to_ms: u64) -> Duration {
        Duration::from_millis(from_ms + self.next() % (to_ms - from_ms))
    }

    pub(super) fn next_fault(&mut self) -> Planned {
        let after = self.between(2_000, 8_000);
        let which = (self.next() % 3) as usize;
        let (fault, lasts) = match self.next() % 8 {
            0 | 1 => (Fault::Kill(which), self.between(100, 5_000)),
            2 => (Fault::Wipe(which), self.between(100, 3_000)),
            3 | 4 => (Fault::Pause(which), self.between(200, 5_000)),
            5 | 6 => (Fault::KillFront, self.between(100, 3_000)),
            _ => (Fault::PauseFront, self.between(500, 5_000)),
        };
        Planned { after, fault, lasts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_has_its_faults_and_every_kind_comes() {
        let of = |seed: u64| {
            let mut schedule = Schedule::new(seed);
            (0..200).map(|_| schedule.next_fault()).collect::<Vec<_>>()
        };
        assert_eq!(of(3), of(3));
        assert_ne!(of(3), of(4));
        let kinds = [Fault::KillFront, Fault::PauseFront, Fault::Kill(0), Fault::Wipe(2)];
        for kind in kinds.into_iter().chain((0..3).map(Fault::Pause)) {
            assert!(of(3).iter().any(|it| it.fault == kind), "{kind:?}");
        }
    }
}
