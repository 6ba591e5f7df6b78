//! What is asked of the table: YCSB's core workloads.
//!
//! The table, the names of its records and the share of updates are those of YCSB (Cooper et al.,
//! SoCC 2010), so a table that either of them filled can be loaded by the other. Two things differ:
//! Zipf ranks are drawn among the records there are (YCSB: among 10 billion, taken modulo), and no
//! record is added while the load runs.

use evenkeel_core::Rng;
use rand_distr::{Distribution as _, Zipf};

use super::super::LoadError;
use super::super::target::Bits;

/// The columns that YCSB's records have beside their key.
pub(super) const FIELDS: usize = 10;
/// YCSB's Zipf exponent.
const YCSB_SKEW: f64 = 0.99;
/// The longest record, bytes: far above what Cassandra likes.
const RECORD_BYTES_MAX: usize = 8 << 20;

/// How much is read and how much updated.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Workload {
    /// The share of requests that read a record whole; the others write one of its fields. 0 to 1.
    pub read_share: f64,
}

/// Which records are asked for how often.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Popularity {
    /// Zipf with this exponent over the records in a scattered order (YCSB: *scrambled zipfian*).
    Zipfian(f64),
    /// All equally often.
    Uniform,
    /// Zipf with this exponent over the records from the newest to the oldest.
    Latest(f64),
}

/// How long records are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordSize {
    /// Bytes of the ten fields together; of skewed sizes the most.
    pub bytes: usize,
    /// Whether the lengths of fields are drawn from a Zipf distribution that favours short ones,
    /// as in C3's evaluation (NSDI'15, with at most 2 KB), instead of all being equal.
    pub is_skewed: bool,
}

impl Workload {
    /// Half reads, half updates: a store of sessions.
    pub const A: Self = Self { read_share: 0.5 };
    /// 95 % reads: tags of photographs.
    pub const B: Self = Self { read_share: 0.95 };
    /// Reads only: a cache of profiles.
    pub const C: Self = Self { read_share: 1.0 };

    /// The workload of this letter, `a`, `b` or `c`, in either case.
    pub fn named(letter: &str) -> Option<Self> {
        match letter {
            "a" | "A" => Some(Self::A),
            "b" | "B" => Some(Self::B),
            "c" | "C" => Some(Self::C),
            _ => None,
        }
    }

    pub(super) fn check(self) -> Result<(), LoadError> {
        if (0.0..=1.0).contains(&self.read_share) {
            return Ok(());
        }
        Err(LoadError::setting("read share", self.read_share, "a share from 0 to 1"))
    }
}

impl Popularity {
    /// The distribution of this name: `zipfian`, `uniform` or `latest`, with YCSB's exponent.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "zipfian" => Some(Self::Zipfian(YCSB_SKEW)),
            "uniform" => Some(Self::Uniform),
            "latest" => Some(Self::Latest(YCSB_SKEW)),
            _ => None,
        }
    }

    /// One word for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zipfian(_) => "zipfian",
            Self::Uniform => "uniform",
            Self::Latest(_) => "latest",
        }
    }
}

impl Default for RecordSize {
    /// YCSB's: ten fields of 100 bytes.
    fn default() -> Self {
        Self { bytes: 1_000, is_skewed: false }
    }
}

/// One request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    Read {
        record: u64,
    },
    /// Writes a field anew.
    Update {
        record: u64,
        field: usize,
    },
}

impl Operation {
    pub(super) fn record(self) -> u64 {
        match self {
            Self::Read { record } | Self::Update { record, .. } => record,
        }
    }
}

/// Draws the requests of a load, in the order they are due.
pub(super) struct Draw {
    workload: Workload,
    records: u64,
    popularity: Popularity,
    ranks: Option<Zipf<f64>>,
    rng: Rng,
}

impl Draw {
    pub(super) fn new(
        workload: Workload,
        records: u64,
        popularity: Popularity,
        seed: u64,
    ) -> Result<Self, LoadError> {
        workload.check()?;
        if records == 0 {
            return Err(LoadError::setting("records", 0, "at least one record"));
        }
        let ranks = match popularity {
            Popularity::Uniform => None,
            Popularity::Zipfian(skew) | Popularity::Latest(skew) => {
                let expected = "a Zipf exponent of 0 (uniform) or more";
                let problem = |_| LoadError::setting("skew", skew, expected);
                Some(Zipf::new(records as f64, skew).map_err(problem)?)
            }
        };
        Ok(Self { workload, records, popularity, ranks, rng: Rng::stream(seed, "operations") })
    }

    pub(super) fn next(&mut self) -> Operation {
        let record = self.record();
        if self.rng.unit() < self.workload.read_share {
            return Operation::Read { record };
        }
        Operation::Update { record, field: self.rng.below(FIELDS) }
    }

    fn record(&mut self) -> u64 {
        let Some(ranks) = &self.ranks else {
            return self.rng.below(usize::try_from(self.records).unwrap_or(usize::MAX)) as u64;
        };
        // Ranks are 1..=records; the first is the most frequent.
        let rank = (ranks.sample(&mut Bits(&mut self.rng)) as u64 - 1).min(self.records - 1);
        match self.popularity {
            Popularity::Latest(_) => self.records - 1 - rank,
            Popularity::Zipfian(_) | Popularity::Uniform => scattered(rank) % self.records,
        }
    }
}

/// The key of a record, as YCSB names it (hashed insert order).
pub(super) fn key(record: u64) -> String {
    format!("user{}", scattered(record))
}

/// YCSB's hash of a number: FNV-1a over its bytes, lowest first, as a positive 64-bit number.
fn scattered(number: u64) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    for byte in number.to_le_bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
    }
    hash.cast_signed().unsigned_abs()
}

/// Makes the values of fields: printable, and without a pattern that compresses.
pub(super) struct Values {
    size: RecordSize,
    lengths: Option<Zipf<f64>>,
    text: Vec<u8>,
    rng: Rng,
}

impl Values {
    pub(super) fn new(size: RecordSize, seed: u64) -> Result<Self, LoadError> {
        if !(FIELDS..=RECORD_BYTES_MAX).contains(&size.bytes) {
            let expected = format!("bytes from {FIELDS} to {RECORD_BYTES_MAX}");
            return Err(LoadError::setting("record bytes", size.bytes, expected));
        }
        let field_max = size.bytes / FIELDS;
        let lengths = size.is_skewed.then(|| Zipf::new(field_max as f64, YCSB_SKEW));
        let lengths = lengths.transpose().expect("there is at least one length, and 0.99 > 0");
        let mut rng = Rng::stream(seed, "values");
        let text = (0..2 * field_max).map(|_| b' ' + rng.below(95) as u8).collect();
        Ok(Self { size, lengths, text, rng })
    }

    /// The next value.
    pub(super) fn next(&mut self) -> &[u8] {
        let field_max = self.size.bytes / FIELDS;
        let length = match &self.lengths {
            None => field_max,
            Some(lengths) => (lengths.sample(&mut Bits(&mut self.rng)) as usize).min(field_max),
        };
        let start = self.rng.below(self.text.len() - length + 1);
        &self.text[start..start + length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(workload: Workload, popularity: Popularity, records: u64) -> Vec<Operation> {
        let mut draw = Draw::new(workload, records, popularity, 7).unwrap();
        (0..20_000).map(|_| draw.next()).collect()
    }

    #[test]
    fn keys_are_those_of_ycsb() {
        // Utils.fnvhash64 of YCSB 0.17 gives these for 0 and 1.
        assert_eq!(key(0), "user6284781860667377211");
        assert_eq!(key(1), "user8517097267634966620");
    }

    #[test]
    fn workloads_mix_reads_and_updates() {
        let reads = |workload| {
            let drawn = draws(workload, Popularity::Uniform, 100);
            let reads = drawn.iter().filter(|one| matches!(one, Operation::Read { .. }));
            reads.count() as f64 / drawn.len() as f64
        };
        // 20,000 draws: the standard error of a half is 0.0035; four of them.
        assert!((reads(Workload::A) - 0.5).abs() < 0.015);
        assert!((reads(Workload::B) - 0.95).abs() < 0.007);
        assert_eq!(reads(Workload::C), 1.0);
        assert_eq!(Workload::named("B"), Some(Workload::B));
        assert_eq!(Workload::named("d"), None);
        let updates = draws(Workload { read_share: 0.0 }, Popularity::Uniform, 100);
        for field in 0..FIELDS {
            assert!(updates.iter().any(|one| matches!(one, Operation::Update { field: f, .. }
                if *f == field)));
        }
    }

    #[test]
    fn popular_records_are_as_popular_as_they_should_be() {
        let records = 1_000;
        let share = |popularity, record: u64| {
            let drawn = draws(Workload::C, popularity, records);
            let hits = drawn.iter().filter(|one| one.record() == record);
            assert!(drawn.iter().all(|one| one.record() < records));
            hits.count() as f64 / drawn.len() as f64
        };
        // Rank 1 of Zipf 0.99 over 1,000 has 1 / H = 13.0 % (sum of i^-0.99 is 7.72).
        let first = 1.0 / (1..=records).map(|i| (i as f64).powf(-0.99)).sum::<f64>();
        assert!((share(Popularity::Latest(0.99), records - 1) - first).abs() < 0.01);
        assert!(share(Popularity::Zipfian(0.99), scattered(0) % records) > first - 0.01);
        assert!(share(Popularity::Uniform, 0) < 0.003);
    }

    #[test]
    fn fields_have_the_length_that_is_asked_for() {
        let lengths = |bytes, is_skewed| {
            let mut values = Values::new(RecordSize { bytes, is_skewed }, 1).unwrap();
            (0..5_000).map(|_| values.next().len()).collect::<Vec<_>>()
        };
        assert!(lengths(1_000, false).iter().all(|length| *length == 100));
        let skewed = lengths(2_000, true);
        assert!(skewed.iter().all(|length| (1..=200).contains(length)));
        let short = skewed.iter().filter(|length| **length <= 20).count();
        // Σ i^-0.99 for 1..=20 over 1..=200 is 0.61.
        assert!((2_800..3_300).contains(&short), "{short}");
        assert!(Values::new(RecordSize { bytes: 9, is_skewed: false }, 1).is_err());
        assert!(draws(Workload::A, Popularity::Uniform, 1).iter().all(|one| one.record() == 0));
    }
}
