//! How calls end.

/// How a call ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Served { is_full: bool },
    TimedOut,
    Failed,
}

impl End {
    /// The end of what needs both.
    pub(crate) const fn worse(self, other: Self) -> Self {
        match (self, other) {
            (Self::Failed, _) | (_, Self::Failed) => Self::Failed,
            (Self::TimedOut, _) | (_, Self::TimedOut) => Self::TimedOut,
            (Self::Served { is_full: one }, Self::Served { is_full: two }) => {
                Self::Served { is_full: one && two }
            }
        }
    }
}

/// How calls ended, counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ends {
    pub(crate) served: u64,
    pub(crate) optional: u64,
    pub(crate) timeouts: u64,
    pub(crate) failed: u64,
    pub(crate) violations: u64,
}

impl Ends {
    #[inline]
    pub(crate) fn note(&mut self, end: End, is_violation: bool) {
        match end {
            End::Served { is_full } => {
                self.served += 1;
                self.optional += u64::from(is_full);
            }
            End::TimedOut => self.timeouts += 1,
            End::Failed => self.failed += 1,
        }
        self.violations += u64::from(is_violation);
    }

    pub(crate) const fn all(&self) -> u64 {
        self.served + self.timeouts + self.failed
    }
}
