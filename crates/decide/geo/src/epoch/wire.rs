//! A row as bytes, and back.
//!
//! ```text
//! row     = magic version site sites epoch settings heard answers report *served *path
//! magic   = %xE7           version = %x03           site, sites = one byte each
//! epoch, heard = varint    settings = 4 bytes
//! answers = flags [16 bytes] [16 bytes]     inputs, plan: of one epoch ago (flag 1), of two (2)
//! report  = 9 varints, in the order of the fields of `Report`
//! served  = varint                          one per site, in order
//! path    = %x00 / base 6increment beyond   varints; one per other site, in order
//! ```
//!
//! Varints are LEB128 in their shortest form, fixed numbers are little-endian. There is one
//! encoding of each row and the decoder accepts nothing else, so that rows are equal exactly when
//! their bytes are. Numbers cannot be negative or NaN here: they are read as what they are not, and
//! refused by their range. Framing, and who the sender is, are the channel's business.

use super::row::{
    AnswerHashes, OutsideOfRange, Path, RESIDUAL_BINS, RESIDUAL_SHARES_PPM, Report, Row, SITES_MAX,
    SiteId, SiteSet, within,
};
use crate::learnt::Learnt;

/// More than the longest row there can be, in bytes.
pub const ROW_BYTES_MAX: usize = 2_048;

const MAGIC: u8 = 0xE7;
const VERSION: u8 = 4;

/// The row as bytes: at most [`ROW_BYTES_MAX`].
///
/// # Errors
/// When a number is outside of its range, or there are not as many paths as sites allow.
pub fn encode(row: &Row) -> Result<Vec<u8>, OutsideOfRange> {
    check(row)?;
    let Row { site, epoch, settings, received, answers, report } = row;
    let mut bytes = Vec::with_capacity(256);
    bytes.extend([MAGIC, VERSION, site.index() as u8, report.paths.len() as u8]);
    put(&mut bytes, *epoch);
    bytes.extend(settings.to_le_bytes());
    put(&mut bytes, received.bits());
    bytes.push(u8::from(answers[0].is_some()) | u8::from(answers[1].is_some()) << 1);
    for answer in answers.iter().flatten() {
        bytes.extend(answer.inputs.to_le_bytes());
        bytes.extend(answer.plan.to_le_bytes());
    }
    for number in numbers(report) {
        put(&mut bytes, number);
    }
    report.in_time_per_1000_s.iter().for_each(|in_time| put(&mut bytes, *in_time));
    for (index, path) in report.paths.iter().enumerate() {
        if index != site.index() {
            put_path(&mut bytes, path.as_ref());
        }
    }
    Ok(bytes)
}

/// Reads a row.
///
/// # Errors
/// When the bytes are not a row of this version, whole and in its one form, with every number in
/// its range.
pub fn decode(bytes: &[u8]) -> Result<Row, Unreadable> {
    if bytes.len() > ROW_BYTES_MAX {
        return Err(Unreadable::Oversized { bytes: bytes.len() });
    }
    let mut reader = Reader { bytes, at: 0 };
    if reader.byte("the mark of a row, 0xE7")? != MAGIC {
        return Err(Unreadable::Malformed { at: 0, expected: "the mark of a row, 0xE7" });
    }
    let version = reader.byte("a version")?;
    if version != VERSION {
        return Err(Unreadable::Version { came: version });
    }
    let site = u64::from(reader.byte("a site")?);
    let sites = u64::from(reader.byte("a number of sites")?);
    within("number of sites", sites, 1, SITES_MAX as u64)?;
    within("site", site, 0, sites - 1)?;
    let site = SiteId::new(site as usize);
    let row = Row {
        site,
        epoch: reader.number()?,
        settings: u32::from_le_bytes(reader.fixed("a fingerprint of the settings")?),
        received: SiteSet::from_bits(reader.number()?),
        answers: reader.answers()?,
        report: reader.report(site, sites as usize)?,
    };
    if reader.at < bytes.len() {
        return Err(reader.expected("the end"));
    }
    check(&row)?;
    Ok(row)
}

/// Why bytes are not a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unreadable {
    /// There are more of them than any row has.
    #[error(
        "{bytes} bytes are no row, at most {ROW_BYTES_MAX} were expected (is the peer another \
         service?)"
    )]
    Oversized {
        /// As many.
        bytes: usize,
    },
    /// Another version of the encoding: the sender is older or newer.
    #[error(
        "a row of version {came}, version {VERSION} was expected (does the peer run another \
         release?)"
    )]
    Version {
        /// That one.
        came: u8,
    },
    /// They stop making sense.
    #[error("no row: expected {expected} at byte {at} (is the peer another service?)")]
    Malformed {
        /// At this byte, from 0.
        at: usize,
        /// What was expected there.
        expected: &'static str,
    },
    /// A number is not possible.
    #[error("no row: {0} (is the peer broken?)")]
    Range(OutsideOfRange),
}

impl From<OutsideOfRange> for Unreadable {
    fn from(error: OutsideOfRange) -> Self {
        Self::Range(error)
    }
}

fn check(row: &Row) -> Result<(), OutsideOfRange> {
    let sites = row.report.paths.len();
    within("number of sites", sites as u64, 1, SITES_MAX as u64)?;
    within("site", row.site.index() as u64, 0, sites as u64 - 1)?;
    within("heard sites (bits)", row.received.bits(), 0, SiteSet::first(sites).bits())?;
    row.report.check()
}

fn numbers(report: &Report) -> [u64; 10] {
    [
        report.demand_per_1000_s,
        report.capacity_per_1000_s,
        report.backlog_requests,
        report.writes_ppm.into(),
        report.ended_requests,
        report.violations,
        report.curve_version.into(),
        report.learnt.scale_ppm.into(),
        report.learnt.odds_ppm.into(),
        report.learnt.floor_ppm.into(),
    ]
}

fn put_path(bytes: &mut Vec<u8>, path: Option<&Path>) {
    let Some(path) = path else { return put(bytes, 0) };
    put(bytes, path.base_rtt_us.into());
    let mut before = 0;
    for bin in path.residual_bins {
        put(bytes, u64::from(bin - before));
        before = bin;
    }
    put(bytes, path.beyond_ppm.into());
}

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn expected(&self, expected: &'static str) -> Unreadable {
        Unreadable::Malformed { at: self.at, expected }
    }

    fn byte(&mut self, expected: &'static str) -> Result<u8, Unreadable> {
        let byte = *self.bytes.get(self.at).ok_or_else(|| self.expected(expected))?;
        self.at += 1;
        Ok(byte)
    }

    fn fixed<const N: usize>(&mut self, expected: &'static str) -> Result<[u8; N], Unreadable> {
        let rest = self.bytes[self.at..].first_chunk();
        let fixed = *rest.ok_or_else(|| self.expected(expected))?;
        self.at += N;
        Ok(fixed)
    }

    /// A varint in its shortest form, of 64 bits at most.
    fn number(&mut self) -> Result<u64, Unreadable> {
        let begin = self.at;
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte("a number")?;
            number |= u64::from(byte & 0x7F) << shift;
            let is_last = byte < 0x80;
            if (is_last && byte == 0 && shift > 0) || (shift == 63 && byte > 1) {
                let expected = "a number of 64 bits in its shortest form";
                return Err(Unreadable::Malformed { at: begin, expected });
            }
            if is_last {
                return Ok(number);
            }
            shift += 7;
        }
    }

    fn number_u32(&mut self, what: &'static str) -> Result<u32, Unreadable> {
        let number = self.number()?;
        within(what, number, 0, u32::MAX.into())?;
        Ok(number as u32)
    }

    fn answers(&mut self) -> Result<[Option<AnswerHashes>; 2], Unreadable> {
        let flags = self.byte("flags of answers")?;
        within("flags of answers", flags.into(), 0, 3)?;
        Ok([self.answer(flags & 1 != 0)?, self.answer(flags & 2 != 0)?])
    }

    fn answer(&mut self, is_there: bool) -> Result<Option<AnswerHashes>, Unreadable> {
        if !is_there {
            return Ok(None);
        }
        let inputs = u64::from_le_bytes(self.fixed("a hash of the inputs")?);
        let plan = u64::from_le_bytes(self.fixed("a hash of the plan")?);
        Ok(Some(AnswerHashes { inputs, plan }))
    }

    fn report(&mut self, site: SiteId, sites: usize) -> Result<Report, Unreadable> {
        Ok(Report {
            demand_per_1000_s: self.number()?,
            capacity_per_1000_s: self.number()?,
            backlog_requests: self.number()?,
            writes_ppm: self.number_u32("share of writes (ppm)")?,
            ended_requests: self.number()?,
            violations: self.number()?,
            curve_version: self.number_u32("version of the curves")?,
            learnt: Learnt {
                scale_ppm: self.number_u32("scale of the curves (ppm)")?,
                odds_ppm: self.number_u32("odds of the curves (ppm)")?,
                floor_ppm: self.number_u32("floor of the curves (ppm)")?,
            },
            in_time_per_1000_s: (0..sites).map(|_| self.number()).collect::<Result<_, _>>()?,
            paths: (0..sites)
                .map(|index| if index == site.index() { Ok(None) } else { self.path() })
                .collect::<Result<_, _>>()?,
        })
    }

    fn path(&mut self) -> Result<Option<Path>, Unreadable> {
        let base_rtt_us = self.number_u32("base round trip (us)")?;
        if base_rtt_us == 0 {
            return Ok(None);
        }
        let mut residual_bins = [0; RESIDUAL_SHARES_PPM.len()];
        let mut before = 0;
        for bin in &mut residual_bins {
            before += u64::from(self.number_u32("residual delay (0.1 ms)")?);
            within("residual delay (0.1 ms)", before, 0, u64::from(RESIDUAL_BINS) - 1)?;
            *bin = before as u16;
        }
        let beyond_ppm = self.number_u32("probes beyond (ppm)")?;
        Ok(Some(Path { base_rtt_us, residual_bins, beyond_ppm }))
    }
}
