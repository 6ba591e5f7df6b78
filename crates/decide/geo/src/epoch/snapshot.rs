//! What a site plans one epoch from: the rows of those who were heard.

use super::row::{Report, Row, SiteId, SiteSet};
use super::wire;

evenkeel_core::named! {
    /// Where a site stands in a snapshot.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum SiteLiveness {
        /// Its row for this epoch came in time: a member.
        Fresh = "fresh",
        /// Its row for this epoch is missing, the one before counts for it: still a member.
        Held = "held",
        /// It was silent for two epochs or more. It receives nothing, and sends nothing either: its
        /// plan is stale by now, so that it serves its users itself. What they asked for last is
        /// known to people, but the plan does not go by it: after a partition each side remembers
        /// another row, and sides that plan from different rows do not agree.
        Down = "down",
        /// It was not heard since this site began.
        Unheard = "unheard",
    }
}

impl SiteLiveness {
    /// Whether the plan counts on it.
    pub const fn is_member(self) -> bool {
        matches!(self, Self::Fresh | Self::Held)
    }
}

/// One site in a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SiteEntry {
    /// Where it stands.
    pub liveness: SiteLiveness,
    /// The last row that came from it.
    pub last: Option<Row>,
}

/// The input of one epoch's plan. Sites with the same rows have the same [`Snapshot::bytes`],
/// whatever order the rows came in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// The epoch whose plan is made from it.
    pub epoch: u64,
    /// By site.
    pub sites: Vec<SiteEntry>,
}

impl Snapshot {
    /// Whether every site's row came in time.
    pub fn is_complete(&self) -> bool {
        self.sites.iter().all(|entry| entry.liveness == SiteLiveness::Fresh)
    }

    /// The sites the plan counts on: they send and receive, all others do neither.
    pub fn members(&self) -> SiteSet {
        self.sites(SiteLiveness::is_member)
    }

    /// The sites whose rows came in time.
    pub fn fresh(&self) -> SiteSet {
        self.sites(|liveness| liveness == SiteLiveness::Fresh)
    }

    /// What the plan goes by for a site; `None` for those that are no members.
    pub fn report(&self, site: SiteId) -> Option<&Report> {
        self.member_row(site.index()).map(|row| &row.report)
    }

    /// The demand last known of a site, member or not, for people: requests per 1,000 s.
    #[cfg(test)]
    pub fn last_demand_per_1000_s(&self, site: SiteId) -> Option<u64> {
        let last = self.sites.get(site.index())?.last.as_ref()?;
        Some(last.report.demand_per_1000_s)
    }

    /// The longest delay in one direction between two members, in microseconds (an upper bound,
    /// see [`super::Path::one_way_us_max`]); `None` when none is known.
    pub fn one_way_us_max(&self) -> Option<u64> {
        let members = self.members();
        let paths = members.iter().filter_map(|site| self.report(site)).flat_map(|report| {
            members.iter().filter_map(|to| report.paths.get(to.index()).copied().flatten())
        });
        paths.map(|path| path.one_way_us_max()).max()
    }

    /// All that the plan may go by, in one canonical form.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16 + self.sites.len() * 200);
        bytes.extend(self.epoch.to_le_bytes());
        bytes.push(self.sites.len() as u8);
        for (index, entry) in self.sites.iter().enumerate() {
            bytes.push(match entry.liveness {
                SiteLiveness::Fresh => 2,
                SiteLiveness::Held => 1,
                // Whether a silent site was ever heard makes no difference to the plan.
                SiteLiveness::Down | SiteLiveness::Unheard => 0,
            });
            if let Some(row) = self.member_row(index) {
                let row = wire::encode(row).expect("a row that was accepted can be written");
                bytes.extend((row.len() as u16).to_le_bytes());
                bytes.extend(row);
            }
        }
        bytes
    }

    /// Hash of [`Snapshot::bytes`].
    pub fn hash(&self) -> u64 {
        let mut hash = StableHash::default();
        hash.bytes(&self.bytes());
        hash.finish()
    }

    fn member_row(&self, index: usize) -> Option<&Row> {
        let entry = self.sites.get(index).filter(|entry| entry.liveness.is_member())?;
        entry.last.as_ref()
    }

    fn sites(&self, is_in: impl Fn(SiteLiveness) -> bool) -> SiteSet {
        let places = self.sites.iter().enumerate().filter(|(_, entry)| is_in(entry.liveness));
        places.map(|(index, _)| SiteId::new(index)).collect()
    }
}

/// A hash that is the same on every machine and in every release: 64-bit FNV-1a, spread at the end.
///
/// Against mistakes, not against malice: peers are authenticated.
#[derive(Clone, Debug)]
pub struct StableHash(u64);

impl Default for StableHash {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl StableHash {
    /// Adds bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// Adds a number, as eight bytes.
    pub fn number(&mut self, number: u64) {
        self.bytes(&number.to_le_bytes());
    }

    /// The hash of all that was added.
    pub const fn finish(&self) -> u64 {
        // The finaliser of SplitMix64: FNV alone leaves the upper bits of short inputs alike.
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Hash of a plan: the rates of all origins to all destinations, row by row, in whole units of
/// `unit_per_1000_s`.
pub fn plan_hash<'a, R>(epoch: u64, unit_per_1000_s: u64, rates: R) -> u64
where
    R: IntoIterator<Item = &'a [u32]>,
{
    let mut hash = StableHash::default();
    hash.number(epoch);
    hash.number(unit_per_1000_s);
    for row in rates {
        hash.number(row.len() as u64);
        row.iter().for_each(|rate| hash.number(u64::from(*rate)));
    }
    hash.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv_is_what_its_authors_say() {
        // Vectors of draft-eastlake-fnv (FNV-1a, 64 bits), before the finaliser.
        for (text, expected) in [
            ("", 0xcbf2_9ce4_8422_2325_u64),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ] {
            let mut hash = StableHash::default();
            hash.bytes(text.as_bytes());
            assert_eq!(hash.0, expected, "{text}");
        }
    }

    #[test]
    fn every_rate_its_place_and_the_epoch_are_in_the_hash_of_a_plan() {
        let rates: [&[u32]; 2] = [&[5, 1], &[0, 7]];
        let plans: [(u64, u64, [&[u32]; 2]); 6] = [
            (3, 100, rates),
            (4, 100, rates),
            (3, 101, rates),
            (3, 100, [&[1, 5], &[0, 7]]),
            (3, 100, [&[5, 1], &[7, 0]]),
            (3, 100, [&[5, 1, 0], &[7]]),
        ];
        let mut hashes = plans.map(|(epoch, unit, rates)| plan_hash(epoch, unit, rates));
        assert_eq!(hashes[0], plan_hash(3, 100, rates));
        hashes.sort_unstable();
        assert!(hashes.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
