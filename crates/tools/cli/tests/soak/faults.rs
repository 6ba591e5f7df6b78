//! What befalls replicas, by a seeded plan: at least two of five are well at any time.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use evenkeel_core::Rng;
use evenkeel_testkit::http;
use evenkeel_testkit::program::Program;

use crate::replica::{self, WELL};

const ILL_MAX: usize = 3;
const KILL: &str = "kill -9";
const HANG: &str = "SIGSTOP";
const KINDS: [&str; 8] = [
    KILL,
    HANG,
    replica::RESET,
    replica::HEAD_AND_END,
    replica::HEAD_AND_STALL,
    replica::BREAK,
    replica::BREAK_BY_RESET,
    replica::STALL,
];

struct Replica {
    address: SocketAddr,
    program: Program,
    /// What it suffers from, and until when.
    ill: Option<(&'static str, Instant)>,
}

impl Replica {
    fn fall_ill(&mut self, kind: &'static str, until: Instant) {
        self.ill = Some((kind, until));
        match kind {
            KILL => self.program.kill(),
            HANG => self.program.signal("-STOP"),
            mode => self.set_mode(mode),
        }
    }

    fn recover(&mut self) {
        match self.ill.take() {
            Some((KILL, _)) => self.program = replica::start(self.address),
            Some((HANG, _)) => self.program.signal("-CONT"),
            Some(_) => self.set_mode(WELL),
            None => {}
        }
    }

    fn set_mode(&self, mode: &str) {
        let answer = http::get(self.address, &format!("/{mode}"));
        assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    }
}

/// The replicas and their fate.
pub(crate) struct Faults {
    replicas: Vec<Replica>,
    rng: Rng,
    happened: BTreeMap<&'static str, u32>,
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.happened.iter().try_for_each(|(kind, count)| write!(f, "{kind}: {count}  "))
    }
}

impl Faults {
    pub(crate) fn start(addresses: &[SocketAddr], seed: u64) -> Self {
        let new = |&address: &SocketAddr| {
            let program = replica::start(address);
            Replica { address, program, ill: None }
        };
        let replicas = addresses.iter().map(new).collect();
        Self { replicas, rng: Rng::seeded(seed), happened: BTreeMap::new() }
    }

    /// Lets things happen for so long, and looks at the memory of a process meanwhile.
    pub(crate) fn befall(&mut self, lasting: Duration, process: u32) -> Memory {
        let began = Instant::now();
        let mut memory = Memory::default();
        let mut next = began + Duration::from_secs(1);
        while began.elapsed() < lasting {
            std::thread::sleep(Duration::from_millis(100));
            let now = Instant::now();
            memory.look(process);
            let is_over = |it: &&mut Replica| it.ill.is_some_and(|(_, until)| until <= now);
            self.replicas.iter_mut().filter(is_over).for_each(Replica::recover);
            if next <= now {
                self.strike(now);
                next = now + Duration::from_secs_f64(0.2 + 0.8 * self.rng.unit());
            }
        }
        self.replicas.iter_mut().for_each(Replica::recover);
        memory
    }

    /// Something befalls somebody who is well.
    fn strike(&mut self, now: Instant) {
        let ill = self.replicas.iter().filter(|it| it.ill.is_some()).count();
        // Drawn whether or not it happens: the plan is the seed's alone.
        let kind = KINDS[self.rng.below(KINDS.len())];
        let chosen = self.rng.below(self.replicas.len() - ill);
        let lasts_s = (0.1 + 1.5 * self.rng.exponential()).min(5.0);
        if ill >= ILL_MAX {
            return;
        }
        let mut well = self.replicas.iter_mut().filter(|it| it.ill.is_none());
        let replica = well.nth(chosen).expect("two are well");
        replica.fall_ill(kind, now + Duration::from_secs_f64(lasts_s));
        *self.happened.entry(kind).or_default() += 1;
    }
}

/// What a process has of memory, as time goes by.
#[derive(Default)]
pub(crate) struct Memory(Vec<f64>);

impl Memory {
    /// `statm` counts pages of 4 KiB.
    fn look(&mut self, process: u32) {
        let Ok(pages) = std::fs::read_to_string(format!("/proc/{process}/statm")) else { return };
        let resident: f64 = pages.split(' ').nth(1).unwrap().parse().unwrap();
        self.0.push(resident * 4.0);
    }

    /// By which share it grew from the second quarter of the time to the last, and the highest, in
    /// KiB. It swings by a tenth, with the number of connections; a slope over minutes is of those.
    pub(crate) fn judge(&self) -> (f64, f64) {
        let quarter = self.0.len() / 4;
        let mean = |from: usize| {
            let part = &self.0[from * quarter..(from + 1) * quarter];
            part.iter().sum::<f64>() / part.len().max(1) as f64
        };
        (mean(3) / mean(1) - 1.0, self.0.iter().copied().fold(0.0, f64::max))
    }
}
