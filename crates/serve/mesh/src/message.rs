//! What a follower and the controller of its site tell each other, as bytes.
//!
//! ```text
//! hello  = version run workers sites objective writes     run = 8 bytes, hashes 4; others varints
//! counts = workers sites *worker window lanes returned foreign inflow waiting ended
//! worker = at arrived writes sent-home            at = 0, or 1 + microseconds on its own clock
//! window = writes-kept no-plan stale              of all workers together
//! lanes  = *(sent over-cap unhealthy rescued ended missed)                       one per site
//! ended  = 0 / 1 epoch over arrived writes writes-kept no-plan stale
//!          *(sent over-cap unhealthy rescued)
//! told   = epoch origin demand sites *rate *spare good-for inflow settings hedges parts *part
//! inflow = 0 / thousandths                        how many times as many requests come
//! hedges = 8 bytes, a bit for each site
//! ```
//!
//! Varints are LEB128. What a number may be is checked by who uses it; here, that there are as many
//! as there must be, and nothing behind them.

use std::time::Duration;

use evenkeel_core::Instant;
use evenkeel_core::dimmer::Inflow;
use evenkeel_core::time::nanos;
use evenkeel_core::units::Probability;
use evenkeel_geo::epoch::{SITES_MAX, SiteId, SiteSet};
use evenkeel_geo::split::{DestinationCounts, PlanRow, SplitWindow};

use evenkeel_geo::demand::{SiteTally, SplitTally};
use evenkeel_geo::traffic::Ended;

/// Workers of all followers of a site together.
pub(super) const WORKERS_MAX: usize = 1_024;

const VERSION: u8 = 3;
/// A part of the caps is told in this.
const WHOLE: f64 = u32::MAX as f64;
/// A factor is told in parts of this.
const THOUSAND: f64 = 1e3;

/// The first words of a follower.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hello {
    /// A random number that its process has drawn: another one is another process, which counts
    /// from the beginning.
    pub(super) run: u64,
    /// How many workers it may speak of.
    pub(super) workers: usize,
    /// Hash of the names of the sites, in their order.
    pub(super) sites: u32,
    /// Hash of its objective.
    pub(super) objective: u32,
    /// Hash of whether its writes stay.
    pub(super) writes: u32,
}

/// What one worker of a follower counted since it began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct WorkerCounts {
    /// When it handed that up, on its own clock.
    pub(super) at: Option<Instant>,
    pub(super) arrived: u64,
    pub(super) writes: u64,
    pub(super) sent_home: u64,
}

/// What a follower counted since it began.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Counts {
    pub(super) workers: Vec<WorkerCounts>,
    /// Of all workers together.
    pub(super) window: SplitWindow,
    pub(super) by_site: Vec<SiteTally>,
    pub(super) returned: SiteTally,
    pub(super) foreign: SiteTally,
    pub(super) inflow: u64,
    /// Calls that wait now.
    pub(super) waiting: u64,
    /// The last epoch that is over.
    pub(super) ended: Option<Ended>,
}

/// What the controller tells a follower for an epoch.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct PlanPart {
    pub(super) row: PlanRow,
    pub(super) spare_per_1000_s: Vec<u64>,
    /// Until when the plan is believed, on the clock of who has this; on the wire it is how long
    /// from then.
    pub(super) good_until: Instant,
    /// Fingerprint of what is set alike at all sites.
    pub(super) settings: u32,
    /// Where requests may be hedged.
    pub(super) hedges: SiteSet,
    /// What the plan brings the site; on the wire without its epoch, which is that of the row.
    pub(super) inflow: Option<Inflow>,
    /// By worker of the follower.
    pub(super) parts: Vec<Probability>,
}

impl Hello {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend(self.run.to_le_bytes());
        put(&mut bytes, self.workers as u64);
        bytes.extend(self.sites.to_le_bytes());
        bytes.extend(self.objective.to_le_bytes());
        bytes.extend(self.writes.to_le_bytes());
        bytes
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader { rest: bytes };
        if reader.fixed("a version")? != [VERSION] {
            return Err("version 3 (does it run another release?)");
        }
        let hello = Self {
            run: u64::from_le_bytes(reader.fixed("a run")?),
            workers: reader.number("workers")? as usize,
            sites: u32::from_le_bytes(reader.fixed("a hash of the sites")?),
            objective: u32::from_le_bytes(reader.fixed("a hash of the objective")?),
            writes: u32::from_le_bytes(reader.fixed("a hash of writes_stay")?),
        };
        reader.end()?;
        if !(1..=WORKERS_MAX).contains(&hello.workers) {
            return Err("1 to 1024 workers");
        }
        Ok(hello)
    }
}

impl Counts {
    /// What a process with these counts tells. `home` is its site.
    pub(super) fn of(tally: &SplitTally, ended: Option<Ended>, home: usize) -> Self {
        let mut window = SplitWindow::empty(tally.by_site.len());
        tally.workers.iter().for_each(|worker| window.merge(worker));
        let worker = |(place, worker): (usize, &SplitWindow)| WorkerCounts {
            at: tally.counted_at.get(place).copied().flatten(),
            arrived: worker.arrived,
            writes: worker.writes,
            sent_home: worker.by_site.get(home).map_or(0, |destination| destination.sent),
        };
        Self {
            workers: tally.workers.iter().enumerate().map(worker).collect(),
            window,
            by_site: tally.by_site.clone(),
            returned: tally.returned,
            foreign: tally.foreign,
            inflow: tally.inflow,
            waiting: tally.waiting,
            ended,
        }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(128);
        let all = &mut bytes;
        puts(all, [self.workers.len() as u64, self.by_site.len() as u64]);
        for worker in &self.workers {
            let since = |at: Instant| at.since(Instant::ZERO);
            put(all, worker.at.map_or(0, |at| 1 + nanos(since(at)) / 1_000));
            puts(all, [worker.arrived, worker.writes, worker.sent_home]);
        }
        puts(all, [self.window.writes_kept, self.window.no_plan, self.window.stale]);
        for (destination, tally) in self.window.by_site.iter().zip(&self.by_site) {
            puts(all, of_destination(destination));
            puts(all, [tally.ended, tally.missed]);
        }
        for tally in [self.returned, self.foreign] {
            puts(all, [tally.ended, tally.missed]);
        }
        puts(all, [self.inflow, self.waiting, self.ended.is_some().into()]);
        if let Some(Ended { epoch, over, window }) = &self.ended {
            puts(all, [*epoch, nanos(*over) / 1_000]);
            puts(all, [window.arrived, window.writes, window.writes_kept]);
            puts(all, [window.no_plan, window.stale]);
            window.by_site.iter().for_each(|destination| puts(all, of_destination(destination)));
        }
        bytes
    }

    pub(super) fn read(bytes: &[u8], sites: usize) -> Result<Self, Malformed> {
        let mut reader = Reader { rest: bytes };
        let workers = reader.number("workers")?;
        if workers > WORKERS_MAX as u64 {
            return Err("at most 1024 workers");
        }
        if reader.number("sites")? != sites as u64 {
            return Err("counts for as many sites as there are");
        }
        let workers: Vec<_> =
            (0..workers).map(|_| reader.worker()).collect::<Result<_, Malformed>>()?;
        let mut window = SplitWindow::empty(sites);
        window.arrived = sum(&workers, |worker| worker.arrived);
        window.writes = sum(&workers, |worker| worker.writes);
        window.writes_kept = reader.number("writes that stayed")?;
        (window.no_plan, window.stale) = (reader.number("local")?, reader.number("local")?);
        let mut by_site = Vec::with_capacity(sites);
        for destination in &mut window.by_site {
            *destination = reader.destination()?;
            by_site.push(reader.tally()?);
        }
        let (returned, foreign) = (reader.tally()?, reader.tally()?);
        let (inflow, waiting) = (reader.number("inflow")?, reader.number("waiting")?);
        let ended = match reader.number("a flag")? {
            0 => None,
            1 => Some(reader.ended(sites)?),
            _ => return Err("0 or 1"),
        };
        reader.end()?;
        Ok(Self { workers, window, by_site, returned, foreign, inflow, waiting, ended })
    }

    /// Every count that never falls while a process runs.
    pub(super) fn growing(&self) -> impl Iterator<Item = u64> {
        let destination = |destination: &DestinationCounts| of_destination(destination);
        let tally = |tally: &SiteTally| [tally.ended, tally.missed];
        let tallies = self.by_site.iter().chain([&self.returned, &self.foreign]).flat_map(tally);
        let window = [self.window.writes_kept, self.window.no_plan, self.window.stale, self.inflow];
        let workers = |worker: &WorkerCounts| [worker.arrived, worker.writes, worker.sent_home];
        let fixed = window
            .into_iter()
            .chain(tallies)
            .chain(self.window.by_site.iter().flat_map(destination));
        // Workers last: there may be more of them than before.
        fixed.chain(self.workers.iter().flat_map(workers)).collect::<Vec<_>>().into_iter()
    }
}

impl PlanPart {
    /// It as bytes that are sent when it is good for so long.
    pub(super) fn bytes(&self, good_for: Duration) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64);
        let Self { row, spare_per_1000_s, settings, hedges, inflow, parts, .. } = self;
        puts(&mut bytes, [row.epoch, row.origin.index() as u64, row.demand_per_1000_s]);
        put(&mut bytes, row.rates_per_1000_s.len() as u64);
        row.rates_per_1000_s.iter().for_each(|rate| put(&mut bytes, *rate));
        let spare = |site: usize| spare_per_1000_s.get(site).copied().unwrap_or(0);
        (0..row.rates_per_1000_s.len()).for_each(|site| put(&mut bytes, spare(site)));
        put(&mut bytes, nanos(good_for) / 1_000);
        put(&mut bytes, inflow.map_or(0, |inflow| (inflow.factor() * THOUSAND).round() as u64));
        bytes.extend(settings.to_le_bytes());
        bytes.extend(hedges.bits().to_le_bytes());
        put(&mut bytes, parts.len() as u64);
        // Rounded down: together they are never more than the whole.
        let part = |part: &Probability| ((part.value() * WHOLE) as u32).to_le_bytes();
        bytes.extend(parts.iter().flat_map(part));
        bytes
    }

    /// Reads what came at this moment.
    pub(super) fn read(now: Instant, bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader { rest: bytes };
        let (epoch, origin) = (reader.number("an epoch")?, reader.number("an origin")?);
        let demand_per_1000_s = reader.number("a demand")?;
        let sites = reader.number("sites")?;
        if !(1..=SITES_MAX as u64).contains(&sites) || origin >= sites {
            return Err("1 to 64 sites, and an origin among them");
        }
        let mut numbers = |what| (0..sites).map(|_| reader.number(what)).collect();
        let rates_per_1000_s: Result<Vec<u64>, Malformed> = numbers("a rate");
        let spare_per_1000_s: Result<Vec<u64>, Malformed> = numbers("what may be spared");
        let origin = SiteId::new(origin as usize);
        let row = PlanRow { epoch, origin, demand_per_1000_s, rates_per_1000_s: rates_per_1000_s? };
        let good_until = now + Duration::from_micros(reader.number("how long it is good")?);
        let inflow = reader.inflow(epoch)?;
        let settings = u32::from_le_bytes(reader.fixed("a fingerprint")?);
        let hedges = SiteSet::from_bits(u64::from_le_bytes(reader.fixed("where to hedge")?));
        let workers = reader.number("parts")?;
        if workers > WORKERS_MAX as u64 {
            return Err("at most 1024 parts");
        }
        let mut part = || {
            let part = u32::from_le_bytes(reader.fixed("a part")?);
            Ok(Probability::clamped(f64::from(part) / WHOLE))
        };
        let parts = (0..workers).map(|_| part()).collect::<Result<_, Malformed>>()?;
        reader.end()?;
        let spare_per_1000_s = spare_per_1000_s?;
        Ok(Self { row, spare_per_1000_s, good_until, settings, hedges, inflow, parts })
    }
}

/// What was expected instead.
pub(super) type Malformed = &'static str;

const fn of_destination(destination: &DestinationCounts) -> [u64; 4] {
    [destination.sent, destination.over_cap, destination.unhealthy, destination.failed_over]
}

fn sum(workers: &[WorkerCounts], of: fn(&WorkerCounts) -> u64) -> u64 {
    workers.iter().map(of).fold(0, u64::saturating_add)
}

fn puts<const N: usize>(bytes: &mut Vec<u8>, numbers: [u64; N]) {
    numbers.into_iter().for_each(|number| put(bytes, number));
}

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Counts beyond this are of no process that lives long enough; sums of them stay in 64 bits.
const NUMBER_MAX: u64 = 1 << 52;

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn fixed<const N: usize>(&mut self, expected: Malformed) -> Result<[u8; N], Malformed> {
        let (fixed, rest) = self.rest.split_first_chunk::<N>().ok_or(expected)?;
        self.rest = rest;
        Ok(*fixed)
    }

    fn number(&mut self, expected: Malformed) -> Result<u64, Malformed> {
        let mut number = 0;
        for shift in (0..56).step_by(7) {
            let [byte] = self.fixed(expected)?;
            number |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                let is_possible = number <= NUMBER_MAX;
                return if is_possible { Ok(number) } else { Err("a number below 2^52") };
            }
        }
        Err("a number below 2^52")
    }

    fn worker(&mut self) -> Result<WorkerCounts, Malformed> {
        let at = self.number("when a worker counted")?.checked_sub(1);
        let at = at.map(|us| Instant::ZERO + Duration::from_micros(us));
        Ok(WorkerCounts {
            at,
            arrived: self.number("requests that came")?,
            writes: self.number("writes")?,
            sent_home: self.number("requests that stayed")?,
        })
    }

    fn destination(&mut self) -> Result<DestinationCounts, Malformed> {
        Ok(DestinationCounts {
            sent: self.number("sent")?,
            over_cap: self.number("over the cap")?,
            unhealthy: self.number("unhealthy")?,
            failed_over: self.number("rescued")?,
        })
    }

    fn inflow(&mut self, epoch: u64) -> Result<Option<Inflow>, Malformed> {
        const EXPECTED: Malformed = "0, or a factor of an eighth to eight";
        let factor = match self.number(EXPECTED)? {
            0 => return Ok(None),
            thousandths => thousandths as f64 / THOUSAND,
        };
        if !Inflow::FACTORS.contains(&factor) {
            return Err(EXPECTED);
        }
        Ok(Inflow::new(epoch, factor))
    }

    fn tally(&mut self) -> Result<SiteTally, Malformed> {
        Ok(SiteTally { ended: self.number("ended")?, missed: self.number("missed")? })
    }

    fn ended(&mut self, sites: usize) -> Result<Ended, Malformed> {
        let (epoch, over) = (self.number("an epoch")?, self.number("how long it was")?);
        let mut window = SplitWindow::empty(sites);
        window.arrived = self.number("requests that came")?;
        window.writes = self.number("writes")?;
        window.writes_kept = self.number("writes that stayed")?;
        (window.no_plan, window.stale) = (self.number("local")?, self.number("local")?);
        for destination in &mut window.by_site {
            *destination = self.destination()?;
        }
        Ok(Ended { epoch, over: Duration::from_micros(over), window })
    }

    fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err("the end") }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn window(numbers: &[u64]) -> SplitWindow {
        let mut window = SplitWindow::empty(2);
        [window.arrived, window.writes, window.writes_kept, window.no_plan, window.stale] =
            numbers[..5].try_into().unwrap();
        for (destination, at) in window.by_site.iter_mut().zip([5, 9]) {
            [
                destination.sent,
                destination.over_cap,
                destination.unhealthy,
                destination.failed_over,
            ] = numbers[at..at + 4].try_into().unwrap();
        }
        window
    }

    proptest! {
        #[test]
        fn counts_are_read_as_they_were_written_and_nothing_shorter_or_longer_is(
            numbers in vec(0..1_u64 << 40, 13),
            workers in vec((any::<bool>(), 0..1_u64 << 40), 0..20),
            is_ended in any::<bool>(),
        ) {
            let worker = |(is_known, number): &(bool, u64)| {
                let at = Instant::ZERO + Duration::from_micros(*number);
                let mut window = SplitWindow::empty(2);
                (window.arrived, window.writes) = (*number, number / 3);
                window.by_site[1].sent = number / 2;
                (window, is_known.then_some(at))
            };
            let (workers, counted_at) = workers.iter().map(worker).unzip();
            let tally = |at: usize| SiteTally { ended: numbers[at], missed: numbers[at] / 2 };
            let counted = SplitTally {
                workers,
                counted_at,
                by_site: vec![tally(0), tally(1)],
                returned: tally(2),
                foreign: tally(3),
                inflow: numbers[4],
                waiting: numbers[5],
            };
            let over = Duration::from_millis(2_500);
            let ended = is_ended.then(|| Ended { epoch: 7, over, window: window(&numbers) });
            let counts = Counts::of(&counted, ended, 1);
            let bytes = counts.bytes();
            prop_assert_eq!(Counts::read(&bytes, 2), Ok(counts));
            prop_assert!(Counts::read(&bytes[..bytes.len() - 1], 2).is_err());
            prop_assert!(Counts::read(&[&bytes[..], &[0]].concat(), 2).is_err());
            prop_assert!(Counts::read(&bytes, 3).is_err());
        }

        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes in vec(any::<u8>(), 0..200)) {
            let _ = Hello::read(&bytes);
            let _ = Counts::read(&bytes, 2);
            if let Ok(told) = PlanPart::read(Instant::ZERO, &bytes) {
                prop_assert!(told.parts.len() <= WORKERS_MAX);
            }
        }

        #[test]
        fn what_is_told_keeps_its_parts_within_the_whole(
            arrived in vec(0..1_000_u64, 1..200), rates in vec(0..1_u64 << 40, 1..64),
            hedges in any::<u64>(), thousandths in 0_u32..10_000,
        ) {
            let parts = evenkeel_geo::split::parts(&arrived);
            let origin = SiteId::new(rates.len() - 1);
            let row =
                PlanRow { epoch: 9, origin, demand_per_1000_s: 5, rates_per_1000_s: rates.clone() };
            let (now, good_for) = (Instant::from_millis(77), Duration::from_millis(4_999));
            let good_until = now + good_for;
            let hedges = SiteSet::from_bits(hedges);
            let inflow = Inflow::new(9, f64::from(thousandths) / THOUSAND);
            let inflow = inflow.filter(|_| thousandths % 3 > 0);
            let told = PlanPart {
                row,
                spare_per_1000_s: rates,
                good_until,
                settings: 7,
                hedges,
                inflow,
                parts,
            };
            let read = PlanPart::read(now, &told.bytes(good_for)).unwrap();
            let sum: f64 = read.parts.iter().map(|part| part.value()).sum();
            prop_assert!(sum <= 1.0 + 1e-12 && sum > 1.0 - 1e-6, "{}", sum);
            prop_assert_eq!(PlanPart { parts: told.parts.clone(), ..read }, told);
        }
    }

    #[test]
    fn a_factor_that_cannot_be_is_malformed() {
        let row = PlanRow {
            epoch: 9,
            origin: SiteId::new(0),
            demand_per_1000_s: 5,
            rates_per_1000_s: vec![5],
        };
        let told = PlanPart {
            row,
            spare_per_1000_s: vec![0],
            good_until: Instant::ZERO,
            settings: 7,
            hedges: SiteSet::EMPTY,
            inflow: None,
            parts: Vec::new(),
        };
        let mut bytes = told.bytes(Duration::ZERO);
        // Epoch, origin, demand, sites, rate, what may be spared, how long good: a byte each.
        assert_eq!(std::mem::replace(&mut bytes[7], 124), 0);
        assert!(PlanPart::read(Instant::ZERO, &bytes).unwrap_err().contains("an eighth"));
        bytes[7] = 125;
        let read = PlanPart::read(Instant::ZERO, &bytes).unwrap();
        assert_eq!(read.inflow, Inflow::new(9, 0.125));
    }

    #[test]
    fn the_first_words_are_checked() {
        let hello = Hello { run: 3, workers: 2, sites: 1, objective: 9, writes: 4 };
        assert_eq!(Hello::read(&hello.bytes()), Ok(hello));
        for workers in [0, WORKERS_MAX + 1] {
            assert!(Hello::read(&Hello { workers, ..hello }.bytes()).is_err());
        }
        assert!(Hello::read(&[1; 22]).is_err(), "of another release");
    }
}
