//! Where the requests of one client go: home, away, by a plan, or by a peer's shares.

use evenkeel_core::{Instant, Rng};
use evenkeel_geo::epoch::{SiteId, SiteSet};
use evenkeel_geo::split::{SplitConfig, SplitWindow, Splitter};

use crate::redirect::Mode;

/// Chooses the data centre for each request of one client.
#[derive(Debug)]
pub(crate) enum Spread {
    /// Always this one.
    To(usize),
    /// The replica policy chooses among all.
    Everywhere,
    /// By a plan: core's own.
    Planned(Box<Splitter>),
    /// By shares, each request for itself.
    Shares(Vec<f64>),
}

impl Spread {
    /// How a client of site `home` begins.
    pub(crate) fn new(mode: Mode, home: usize, sites: usize, seed: u64) -> Self {
        match mode {
            Mode::Local | Mode::Failover => Self::To(home),
            Mode::Away => Self::To((home + 1) % sites),
            Mode::Everywhere => Self::Everywhere,
            Mode::Waterfall | Mode::Headroom => {
                let share = |site| if site == home { 1.0 } else { 0.0 };
                Self::Shares((0..sites).map(share).collect())
            }
            _ => {
                let (home, config) = (SiteId::new(home), SplitConfig::default());
                Self::Planned(Box::new(Splitter::new(home, sites, config, seed)))
            }
        }
    }

    /// Where a request goes; `None`: the replica policy says.
    #[inline]
    pub(crate) fn choose(&mut self, now: Instant, usable: SiteSet, rng: &mut Rng) -> Option<usize> {
        match self {
            Self::To(site) => Some(*site),
            Self::Everywhere => None,
            Self::Planned(splitter) => Some(splitter.choose(now, usable).to.index()),
            Self::Shares(shares) => {
                let mut left = rng.unit();
                let chosen = shares.iter().position(|share| {
                    left -= share;
                    left < 0.0
                });
                Some(chosen.unwrap_or(shares.len() - 1))
            }
        }
    }

    /// What its splitter counted, if it has one.
    pub(crate) fn window(&mut self) -> Option<SplitWindow> {
        match self {
            Self::Planned(splitter) => Some(splitter.window()),
            _ => None,
        }
    }
}
