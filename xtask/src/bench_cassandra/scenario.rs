//! What is asked for, and what is done to nodes meanwhile.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::NODES;
use super::Options;
use crate::bench::cassandra::Cluster;
use crate::bench::statistics::Draws;

/// How often is written: YCSB's workloads B, A and C, as in C3's evaluation.
#[derive(Debug)]
pub(super) struct Mix {
    pub(super) name: &'static str,
    pub(super) updates: f64,
}

const READ_HEAVY: Mix = Mix { name: "read-heavy", updates: 0.05 };
const UPDATE_HEAVY: Mix = Mix { name: "update-heavy", updates: 0.5 };
const READ_ONLY: Mix = Mix { name: "read-only", updates: 0.0 };
pub(super) const MIXES: [Mix; 3] = [READ_HEAVY, UPDATE_HEAVY, READ_ONLY];

/// What is done to nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disturbance {
    None,
    /// One is stopped for 50 to 200 ms, about once a second.
    Pauses,
    /// One has a share of a processor.
    Quota,
    /// One is told to flush the table, then to compact it.
    Compaction,
}

/// How requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// At random times, at a rate.
    Open,
    /// So, and half as much more from half time on, half of it updates.
    Joining,
    /// From one who waits for each answer.
    Lonely,
    /// From several who wait for each answer.
    Closed,
}

#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) disturbance: Disturbance,
    pub(super) arrival: Arrival,
    /// Where only one makes sense.
    pub(super) mix: Option<&'static Mix>,
}

pub(super) const SCENARIOS: [Scenario; 7] = [
    Scenario {
        name: "lonely",
        about: "nothing is wrong; one client, who waits for each answer",
        disturbance: Disturbance::None,
        arrival: Arrival::Lonely,
        mix: Some(&READ_ONLY),
    },
    Scenario {
        name: "calm",
        about: "nothing is wrong",
        disturbance: Disturbance::None,
        arrival: Arrival::Open,
        mix: None,
    },
    Scenario {
        name: "paused",
        about: "one node, any, is stopped for 50 to 200 ms about once a second",
        disturbance: Disturbance::Pauses,
        arrival: Arrival::Open,
        mix: None,
    },
    Scenario {
        name: "quota",
        about: "one node is throttled by a CPU quota",
        disturbance: Disturbance::Quota,
        arrival: Arrival::Open,
        mix: None,
    },
    Scenario {
        name: "compaction",
        about: "one node flushes and compacts the table (nodetool, which itself takes CPU)",
        disturbance: Disturbance::Compaction,
        arrival: Arrival::Open,
        mix: None,
    },
    Scenario {
        name: "joining",
        about: "half as many requests more from half time on, half of them updates",
        disturbance: Disturbance::None,
        arrival: Arrival::Joining,
        mix: Some(&READ_HEAVY),
    },
    Scenario {
        name: "closed",
        about: "nodes are paused; several clients, who wait for each answer (throughput)",
        disturbance: Disturbance::Pauses,
        arrival: Arrival::Closed,
        mix: None,
    },
];

impl Scenario {
    /// Those of the `chosen` mixes under which it is measured.
    pub(super) fn mixes(&self, chosen: &[&'static Mix]) -> Vec<&'static Mix> {
        self.mix.map_or_else(|| chosen.to_vec(), |mix| vec![mix])
    }

    /// The words of one turn for a generator.
    pub(super) fn turn(&self, mix: &Mix, options: &Options, seed: u64, seconds: u64) -> String {
        let updates = mix.updates;
        let rate = options.rate;
        let arrival = match self.arrival {
            Arrival::Open => format!("rate={rate}"),
            Arrival::Joining => format!("rate={rate} joining={}", rate as f64 / 2.0),
            Arrival::Lonely => "users=1".to_owned(),
            Arrival::Closed => format!("users={}", options.users),
        };
        format!("{arrival} updates={updates} seed={seed} seconds={seconds}")
    }
}

/// What is done to nodes in one turn; the same for all ways of a round.
pub(super) struct Plan {
    pub(super) disturbance: Disturbance,
    pub(super) seed: u64,
    /// The node of those disturbances that have one for the whole turn.
    pub(super) node: usize,
    pub(super) length: Duration,
}

impl Plan {
    pub(super) fn new(scenario: &Scenario, round: usize, seed: u64, seconds: u64) -> Self {
        let length = Duration::from_secs(seconds);
        Self { disturbance: scenario.disturbance, seed, node: round % NODES, length }
    }

    /// Nothing is done.
    pub(super) fn undisturbed(seconds: u64) -> Self {
        let length = Duration::from_secs(seconds);
        Self { disturbance: Disturbance::None, seed: 0, node: 0, length }
    }

    /// Does it while a turn runs. A quota is for who calls this to set.
    pub(super) fn carry_out(&self, cluster: &mut Cluster, is_over: &AtomicBool) -> Result<()> {
        match self.disturbance {
            Disturbance::None | Disturbance::Quota => Ok(()),
            Disturbance::Pauses => self.pause(cluster, is_over),
            Disturbance::Compaction => self.compact(cluster, is_over),
        }
    }

    fn pause(&self, cluster: &mut Cluster, is_over: &AtomicBool) -> Result<()> {
        let mut draws = Draws(self.seed);
        let mut next = Instant::now();
        let last = next + self.length;
        loop {
            let between = Duration::from_millis(500 + draws.below(1_001) as u64);
            let stopped = Duration::from_millis(50 + draws.below(151) as u64);
            let node = draws.below(NODES);
            next += between;
            if next + stopped > last || !wait_until(next, is_over) {
                return Ok(());
            }
            cluster.tell(&format!("pause {node}"))?;
            next += stopped;
            sleep(next.saturating_duration_since(Instant::now()));
            cluster.tell(&format!("resume {node}"))?;
        }
    }

    fn compact(&self, cluster: &mut Cluster, is_over: &AtomicBool) -> Result<()> {
        let (began, node) = (Instant::now(), self.node);
        for (share, verb) in [(0.1, "flush"), (0.4, "compact")] {
            if wait_until(began + self.length.mul_f64(share), is_over) {
                cluster.tell(&format!("nodetool {node} {verb} evenkeel_compare records"))?;
            }
        }
        Ok(())
    }
}

/// Whether the time came before the end.
fn wait_until(at: Instant, is_over: &AtomicBool) -> bool {
    const STEP: Duration = Duration::from_millis(20);
    loop {
        let left = at.saturating_duration_since(Instant::now());
        if is_over.load(Relaxed) {
            return false;
        }
        if left.is_zero() {
            return true;
        }
        sleep(left.min(STEP));
    }
}

#[cfg(test)]
mod tests {
    use super::super::Options;
    use super::*;

    #[test]
    fn turns_say_how_requests_come() {
        let options = Options { rate: 300, users: 16, ..Options::default() };
        let turns = SCENARIOS.iter().map(|scenario| {
            let mix = scenario.mixes(&[&UPDATE_HEAVY])[0];
            scenario.turn(mix, &options, 9, 20)
        });
        let turns: Vec<String> = turns.collect();
        assert_eq!(turns[0], "users=1 updates=0 seed=9 seconds=20");
        assert_eq!(turns[1], "rate=300 updates=0.5 seed=9 seconds=20");
        assert_eq!(turns[5], "rate=300 joining=150 updates=0.05 seed=9 seconds=20");
        assert_eq!(turns[6], "users=16 updates=0.5 seed=9 seconds=20");
    }

    #[test]
    fn whoever_waits_is_told_of_the_end() {
        let is_over = AtomicBool::new(false);
        assert!(wait_until(Instant::now(), &is_over));
        is_over.store(true, Relaxed);
        assert!(!wait_until(Instant::now() + Duration::from_secs(60), &is_over));
    }
}
