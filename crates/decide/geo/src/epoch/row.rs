//! What one site tells the others once per epoch: integers only, so that every site computes with
//! the same numbers to the last bit.
//!
//! **Signal**: requests counted at the origin as if all were served in full, and facts that do not
//! depend on what the plan before did: capacity, distances, versions. Measured work, utilisation
//! and latency of served requests are missing on purpose: a planner fed with them fights the dimmer
//! (joint study, section 4: F1, F4 and F5). Violations are there to be compared with what the
//! curves predict, and for nothing else.

use core::fmt;

use crate::learnt::{FLOOR_PPM_MAX, LEARNT_PPM, Learnt};
use evenkeel_core::units::Rate;

/// The largest number of sites that can agree: one bit each in a [`SiteSet`].
pub const SITES_MAX: usize = 64;
/// The shares of probes, in parts per million, up to which a [`Path`] tells the residual delay; the
/// last one is all that are not beyond.
pub const RESIDUAL_SHARES_PPM: [u32; 6] = [500_000, 750_000, 900_000, 990_000, 999_000, PPM];
/// Bins of residual delay, of 0.1 ms each: 0 is none at all, the others count as their upper end.
pub const RESIDUAL_BINS: u16 = 4_096;
/// The largest rate, in requests per 1,000 s: a thousand million requests per second.
pub const RATE_MAX: u64 = 1_000_000_000_000;
/// The longest delay, in microseconds: a minute.
pub const DELAY_US_MAX: u32 = 60_000_000;
/// The largest count of requests in an epoch, or waiting.
pub const COUNT_MAX: u64 = 1_000_000_000_000;

const PPM: u32 = 1_000_000;

/// A site (data centre): its place in the list of sites, which is the same everywhere.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SiteId(u8);

impl SiteId {
    /// The site with this index, below [`SITES_MAX`].
    ///
    /// # Panics
    /// When the index is too large: the list of sites is checked where it is read.
    #[inline]
    pub const fn new(index: usize) -> Self {
        assert!(index < SITES_MAX, "a site's index is below SITES_MAX");
        Self(index as u8)
    }

    /// The index of the site.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A set of sites.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SiteSet(u64);

impl SiteSet {
    /// No site.
    pub const EMPTY: Self = Self(0);

    /// The first `sites` sites.
    pub const fn first(sites: usize) -> Self {
        Self(if sites >= SITES_MAX { u64::MAX } else { (1 << sites) - 1 })
    }

    /// The set with these bits: bit 0 is site 0.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The set as bits: bit 0 is site 0.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Whether the site is in it.
    #[inline]
    pub const fn contains(self, site: SiteId) -> bool {
        self.0 >> site.0 & 1 == 1
    }

    /// Puts a site in.
    #[inline]
    pub const fn insert(&mut self, site: SiteId) {
        self.0 |= 1 << site.0;
    }

    /// Takes a site out.
    #[inline]
    pub const fn remove(&mut self, site: SiteId) {
        self.0 &= !(1 << site.0);
    }

    /// How many sites are in it.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether no site is in it.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The sites in it, in order.
    pub fn iter(self) -> impl Iterator<Item = SiteId> {
        (0..SITES_MAX).map(SiteId::new).filter(move |site| self.contains(*site))
    }
}

impl FromIterator<SiteId> for SiteSet {
    fn from_iter<I: IntoIterator<Item = SiteId>>(sites: I) -> Self {
        let mut set = Self::EMPTY;
        sites.into_iter().for_each(|site| set.insert(site));
        set
    }
}

impl fmt::Debug for SiteSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(SiteId::index)).finish()
    }
}

/// How far another site is, as measured by probes: the base round trip, and what comes on top.
///
/// The distribution on top is told by six of its quantiles, which are seven bytes instead of a few
/// hundred. Everyone plans with what is told, the teller too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// Base round trip in microseconds, 1 to [`DELAY_US_MAX`].
    pub base_rtt_us: u32,
    /// Round trip beyond the base, in bins of 0.1 ms, that [`RESIDUAL_SHARES_PPM`] of all probes do
    /// not exceed; never decreasing, below [`RESIDUAL_BINS`].
    pub residual_bins: [u16; RESIDUAL_SHARES_PPM.len()],
    /// Probes beyond all bins, or lost, in parts per million.
    pub beyond_ppm: u32,
}

impl Path {
    /// The path of a base round trip and a histogram of what comes on top: parts per million in
    /// bins of 0.1 ms, which with those beyond all bins are a million.
    pub fn summary(base_rtt_us: u32, bins_ppm: &[u32], beyond_ppm: u32) -> Self {
        let within_ppm = PPM.saturating_sub(beyond_ppm);
        let residual_bins = RESIDUAL_SHARES_PPM.map(|share_ppm| {
            let mut below_ppm = 0;
            let reaches = |ppm: &u32| {
                below_ppm += ppm;
                below_ppm >= share_ppm.min(within_ppm)
            };
            bins_ppm.iter().position(reaches).unwrap_or_default() as u16
        });
        Self { base_rtt_us, residual_bins, beyond_ppm }
    }

    /// The histogram again, as far as it is told: between two quantiles all bins have as much.
    /// Together with `beyond_ppm` a million.
    pub fn residual_ppm(&self) -> Vec<u32> {
        let last = self.residual_bins[RESIDUAL_SHARES_PPM.len() - 1];
        let mut bins_ppm = vec![0; usize::from(last) + 1];
        // The base is a minimum: few probes meet it, and none is believed to where none is told.
        let (mut next_bin, mut told_ppm) = (1, 0);
        for (bin, share_ppm) in self.residual_bins.into_iter().zip(RESIDUAL_SHARES_PPM) {
            let bin = usize::from(bin);
            let more_ppm = u64::from(share_ppm.min(PPM - self.beyond_ppm) - told_ppm);
            told_ppm += more_ppm as u32;
            // A quantile in the bin of the one before it adds to that bin.
            let first = next_bin.min(bin);
            let width = (bin + 1 - first) as u64;
            for (place, ppm) in (0..width).zip(&mut bins_ppm[first..=bin]) {
                let up_to = |place: u64| more_ppm * place / width;
                *ppm += (up_to(place + 1) - up_to(place)) as u32;
            }
            next_bin = bin + 1;
        }
        bins_ppm
    }

    /// An upper bound of the delay in one direction, in microseconds: the whole round trip that one
    /// probe in a thousand exceeds. Half of it would be a guess: without equal clocks nobody can
    /// say how a round trip divides, but no part is longer than the whole.
    pub const fn one_way_us_max(&self) -> u64 {
        self.base_rtt_us as u64 + self.residual_bins[4] as u64 * 100
    }

    fn check(&self) -> Result<(), OutsideOfRange> {
        within("base round trip (us)", self.base_rtt_us.into(), 1, DELAY_US_MAX.into())?;
        let mut least = 0;
        for bin in self.residual_bins.map(u64::from) {
            within("residual delay (0.1 ms)", bin, least, u64::from(RESIDUAL_BINS) - 1)?;
            least = bin;
        }
        within("probes beyond (ppm)", self.beyond_ppm.into(), 0, PPM.into())
    }
}

/// What a site measured, for one epoch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// Requests that came to the site from its users, per 1,000 s (so that a small service has
    /// digits too), whoever served them and with whatever content; at most [`RATE_MAX`]. See
    /// [`per_1000_s`].
    pub demand_per_1000_s: u64,
    /// Full requests the site's replicas can serve, per 1,000 s; 0: no replica is there.
    pub capacity_per_1000_s: u64,
    /// Requests of earlier epochs that still wait; at most [`COUNT_MAX`].
    pub backlog_requests: u64,
    /// Share of writes among the requests, in parts per million.
    pub writes_ppm: u32,
    /// Requests of the site's users that ended in the last epoch; at most [`COUNT_MAX`].
    pub ended_requests: u64,
    /// Of these, the ones that missed the objective.
    pub violations: u64,
    /// Version of the site's own curves; equal versions of a site are equal tables.
    pub curve_version: u32,
    /// How those curves differ from their profile by now.
    pub learnt: Learnt,
    /// By site, requests of this site's users that it served in time, per 1,000 s: the most of the
    /// last hour or so, this site among them. Nobody is sent far more than was seen to be served.
    pub in_time_per_1000_s: Vec<u64>,
    /// By site, how far it is; `None` when no probe came back. The entry of the site itself is not
    /// sent.
    pub paths: Vec<Option<Path>>,
}

impl Report {
    /// The report of a site without users, replicas or neighbours.
    pub fn empty(sites: usize) -> Self {
        Self {
            demand_per_1000_s: 0,
            capacity_per_1000_s: 0,
            backlog_requests: 0,
            writes_ppm: 0,
            ended_requests: 0,
            violations: 0,
            curve_version: 0,
            learnt: Learnt::AS_PROFILED,
            in_time_per_1000_s: vec![0; sites],
            paths: vec![None; sites],
        }
    }

    /// Checks every number against its range.
    ///
    /// # Errors
    /// With the first number that is outside.
    pub fn check(&self) -> Result<(), OutsideOfRange> {
        within("demand (requests per 1,000 s)", self.demand_per_1000_s, 0, RATE_MAX)?;
        within("capacity (requests per 1,000 s)", self.capacity_per_1000_s, 0, RATE_MAX)?;
        within("backlog (requests)", self.backlog_requests, 0, COUNT_MAX)?;
        within("share of writes (ppm)", self.writes_ppm.into(), 0, PPM.into())?;
        within("ended requests", self.ended_requests, 0, COUNT_MAX)?;
        within("violations", self.violations, 0, self.ended_requests)?;
        let (least, most) = (u64::from(*LEARNT_PPM.start()), u64::from(*LEARNT_PPM.end()));
        within("scale of the curves (ppm)", self.learnt.scale_ppm.into(), least, most)?;
        within("odds of the curves (ppm)", self.learnt.odds_ppm.into(), least, most)?;
        let floor = u64::from(self.learnt.floor_ppm);
        within("floor of the curves (ppm)", floor, 0, FLOOR_PPM_MAX.into())?;
        let sites = self.paths.len() as u64;
        within("sites that served", self.in_time_per_1000_s.len() as u64, sites, sites)?;
        for in_time in &self.in_time_per_1000_s {
            within("served in time (requests per 1,000 s)", *in_time, 0, RATE_MAX)?;
        }
        self.paths.iter().flatten().try_for_each(Path::check)
    }
}

/// A measured rate in the unit of reports, rounded; at most [`RATE_MAX`]. That it is neither
/// negative nor NaN, [`Rate::new`] has seen to.
pub fn per_1000_s(rate: Rate) -> u64 {
    ((rate.value() * 1_000.0).round() as u64).min(RATE_MAX)
}

/// What a site computed in one epoch, as two hashes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnswerHashes {
    /// Hash of the snapshot it computed from.
    pub inputs: u64,
    /// Hash of the plan it came to.
    pub plan: u64,
}

/// The row of one site for one epoch, as it travels.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// Whose row it is.
    pub site: SiteId,
    /// The epoch it is for: the plan of that epoch is made from it.
    pub epoch: u64,
    /// Fingerprint of all that must be set alike: list of sites, period, objective, quantum.
    pub settings: u32,
    /// The sites whose rows for the epoch before it had in time.
    pub received: SiteSet,
    /// What it computed one and two epochs before.
    pub answers: [Option<AnswerHashes>; 2],
    /// What it measured.
    pub report: Report,
}

/// A number outside its range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what}: {came} is outside of {least} to {most}")]
pub struct OutsideOfRange {
    /// What the number is, and its unit.
    pub what: &'static str,
    /// The number.
    pub came: u64,
    /// The smallest one expected.
    pub least: u64,
    /// The largest one expected.
    pub most: u64,
}

impl OutsideOfRange {
    /// Checks that a number is where it is expected.
    ///
    /// # Errors
    /// When it is not.
    pub const fn check(what: &'static str, came: u64, least: u64, most: u64) -> Result<(), Self> {
        if least <= came && came <= most { Ok(()) } else { Err(Self { what, came, least, most }) }
    }
}

pub(super) fn within(
    what: &'static str,
    came: u64,
    least: u64,
    most: u64,
) -> Result<(), OutsideOfRange> {
    OutsideOfRange::check(what, came, least, most)
}
