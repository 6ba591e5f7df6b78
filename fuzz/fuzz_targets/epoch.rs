//! Any bytes as the row of another site; and as a driver's operations on an exchange that gets such
//! rows, rows that are right but for a few bytes, and a clock that jumps.
//!
//! Promise: a row in its one form or an error, never a panic; every row that comes is counted once;
//! epochs are planned in their order, unless the clock was set back; the driver comes to wait.

#![no_main]

use evenkeel_core::{Duration, Instant};
use evenkeel_geo::epoch::{
    AnswerHashes, Counts, EpochConfig, EpochSync, Path, Report, Row, SiteId, SiteSet, Step, wire,
};
use libfuzzer_sys::fuzz_target;

const SITES: usize = 3;
const PERIOD_NS: u64 = 2_500_000_000;
const START_NS: u64 = 716_000_000 * PERIOD_NS;

fuzz_target!(|data: &[u8]| {
    read(data);
    live(data);
});

fn read(data: &[u8]) {
    match wire::decode(data) {
        Ok(row) => assert_eq!(wire::encode(&row).expect("it was read"), data, "it has one form"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// What a driver keeps.
struct Life {
    sync: EpochSync,
    now: Instant,
    unix_ns: u64,
    received: u64,
    /// Steps of the clock, and the epoch planned last.
    planned: Option<(u64, u64)>,
}

fn live(data: &[u8]) {
    let config = EpochConfig::new(SiteId::new(0), SITES);
    let sync = EpochSync::new(config).expect("the default is in its ranges");
    let (now, unix_ns) = (Instant::ZERO, START_NS);
    let mut life = Life { sync, now, unix_ns, received: 0, planned: None };
    let (moments, rest) = data.as_chunks::<4>();
    for moment in moments.iter().take(512) {
        life.live(*moment, rest);
        life.check();
    }
}

impl Life {
    fn live(&mut self, [what, which, how, at]: [u8; 4], rest: &[u8]) {
        match what % 8 {
            0..=2 => self.advance(1 << (how % 36)),
            3 => self.unix_ns = self.unix_ns.wrapping_add_signed(jump(how)).max(1),
            4 => self.receive(which, rest),
            _ => self.receive(which, &self.row(which, how, at)),
        }
        self.step();
    }

    fn advance(&mut self, nanos: u64) {
        self.now += Duration::from_nanos(nanos);
        self.unix_ns = self.unix_ns.saturating_add(nanos);
    }

    /// A row of a peer that is right, or nearly so.
    fn row(&self, which: u8, how: u8, at: u8) -> Vec<u8> {
        let epoch = self.sync.epoch().unwrap_or(0) + 1;
        let answer = AnswerHashes { inputs: how.into(), plan: at.into() };
        let path = Path { base_rtt_us: 900, residual_bins: [how.into(); 6], beyond_ppm: 7 };
        let row = Row {
            site: SiteId::new(usize::from(which) % SITES),
            epoch: (epoch + u64::from(how % 4)).saturating_sub(1),
            settings: 0,
            received: SiteSet::from_bits((at % 8).into()),
            answers: [Some(answer), None],
            report: Report {
                demand_per_1000_s: at.into(),
                paths: (0..SITES).map(|_| Some(path)).collect(),
                ..Report::empty(SITES)
            },
        };
        let mut bytes = wire::encode(&row).expect("its numbers are in their ranges");
        if how >= 192 {
            let place = usize::from(at) % bytes.len();
            bytes[place] ^= how;
        }
        bytes
    }

    fn receive(&mut self, which: u8, bytes: &[u8]) {
        let peer = SiteId::new(usize::from(which) % (SITES + 1));
        self.received += 1;
        let _ = self.sync.receive(self.now, self.unix_ns, peer, bytes);
    }

    fn step(&mut self) {
        for _ in 0..4 {
            match self.sync.step(self.now, self.unix_ns) {
                Step::Wait { until } => return assert!(until >= self.now),
                Step::Publish { epoch } => {
                    let report = Report::empty(SITES);
                    let bytes = self.sync.publish(self.now, self.unix_ns, epoch, report);
                    assert!(wire::decode(&bytes.expect("it is its turn")).is_ok());
                }
                Step::Plan(snapshot) => {
                    let planned = (self.sync.counts().clock_steps, snapshot.epoch);
                    assert!(self.planned < Some(planned), "epochs are planned in their order");
                    self.planned = Some(planned);
                    let inputs = snapshot.hash();
                    let answer = AnswerHashes { inputs, plan: snapshot.members().bits() };
                    self.sync.answered(snapshot.epoch, answer);
                }
            }
        }
        panic!("it never waits");
    }

    fn check(&mut self) {
        let Counts { in_time, late, again, rejected, .. } = self.sync.counts();
        let counted = in_time + late + again + rejected.iter().sum::<u64>();
        assert_eq!(counted, self.received, "every row is counted once");
        assert!(self.sync.take_alarms().len() <= 256);
    }
}

/// A step of the wall clock: milliseconds to years, both ways.
fn jump(how: u8) -> i64 {
    let size = 1_i64 << (20 + how % 36);
    if how >= 128 { size } else { -size }
}
