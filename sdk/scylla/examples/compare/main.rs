//! The driver's default policy, the adaptive one without copies and with, and the driver through a
//! proxy, in turns in one process, with the same requests at the same times and the same pauses.
//!
//! ```text
//! cargo run --release -p evenkeel-scylla --features driver --example compare -- \
//!     node=127.0.0.1:9042 proxy=127.0.0.1:9142 rate=500 seconds=20 updates=0.05 pause=PID,PID
//! ```
//!
//! Requests come whether earlier ones are answered or not (open loop) and their latency counts from
//! when they should have been sent. The first round warms up and is not counted. A process that is
//! paused gets SIGSTOP for 50 to 200 ms about once a second; interrupted in such a moment, it stays
//! stopped until `kill -CONT`. With `commands=yes` turns are asked for on standard input
//! (`commands.rs`); `cargo xtask bench cassandra` measures so.

mod commands;
mod flags;
mod load;
mod ways;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use evenkeel_core::Rng;
use rustix::process::{Pid, Signal, kill_process};

use flags::Flags;
use load::{Taken, quantile, take_turn};
use ways::Way;

type Problem = Box<dyn std::error::Error + Send + Sync>;

/// Pauses processes at the same times in every turn of a round.
fn pause(processes: &[Pid], seed: u64, is_over: &AtomicBool) {
    let mut rng = Rng::seeded(seed);
    while !is_over.load(Relaxed) {
        std::thread::sleep(Duration::from_millis(500 + rng.below(1_000) as u64));
        let length = Duration::from_millis(50 + rng.below(151) as u64);
        let process = processes[rng.below(processes.len())];
        let _ = kill_process(process, Signal::STOP);
        std::thread::sleep(length);
        let _ = kill_process(process, Signal::CONT);
    }
}

/// All turns of one way.
#[derive(Default)]
struct Sum {
    latencies_us: Vec<u64>,
    errors: u64,
    elapsed: Duration,
    cpu: Duration,
}

impl Sum {
    fn add(&mut self, taken: Taken) {
        self.latencies_us.extend(taken.latencies_us.into_iter().flatten());
        self.errors += taken.errors;
        self.elapsed += taken.elapsed;
        self.cpu += taken.cpu;
    }

    fn quantile_ms(&self, share: f64) -> f64 {
        quantile(&self.latencies_us, share).map_or(f64::NAN, |us| us as f64 / 1_000.0)
    }
}

async fn take_disturbed_turn(way: &Way, flags: &Flags, round: usize) -> Result<Taken, Problem> {
    let seed = flags.seed.wrapping_mul(1_000).wrapping_add(round as u64);
    let is_over = Arc::new(AtomicBool::new(false));
    let processes: Vec<_> = flags.pause.iter().filter_map(|&id| Pid::from_raw(id)).collect();
    let pauser = (!processes.is_empty()).then(|| {
        let is_over = Arc::clone(&is_over);
        std::thread::spawn(move || pause(&processes, seed, &is_over))
    });
    let taken = take_turn(&way.asking, &Flags { seed, ..flags.clone() }).await;
    is_over.store(true, Relaxed);
    if let Some(pauser) = pauser {
        tokio::task::spawn_blocking(move || pauser.join()).await?.expect("it does not panic");
    }
    taken
}

fn report(ways: &[Way], sums: &mut [Sum]) {
    println!(
        "way                    answered/s   p50 ms   p99 ms p99.9 ms   errors  CPU us/request"
    );
    for (way, sum) in ways.iter().zip(&mut *sums) {
        sum.latencies_us.sort_unstable();
        let answered = sum.latencies_us.len() as f64;
        println!(
            "{:<22} {:>10.1} {:>8.3} {:>8.3} {:>8.3} {:>8} {:>15.1}",
            way.name,
            answered / sum.elapsed.as_secs_f64(),
            sum.quantile_ms(0.5),
            sum.quantile_ms(0.99),
            sum.quantile_ms(0.999),
            sum.errors,
            sum.cpu.as_secs_f64() * 1e6 / answered,
        );
    }
    for (way, sum) in ways.iter().zip(&*sums).skip(1) {
        let ratio = |share| sum.quantile_ms(share) / sums[0].quantile_ms(share);
        let (name, first) = (&way.name, &ways[0].name);
        println!("{name}: {:.2} of {first}'s p50, {:.2} of its p99.9", ratio(0.5), ratio(0.999));
    }
}

/// What the adaptive policies counted.
fn tell_counts(ways: &[Way]) {
    for way in ways {
        let Some(policy) = &way.policy else { continue };
        let state = way.asking.session.get_cluster_state();
        let nodes = state.get_nodes_info().iter();
        let left: u32 = nodes.map(|node| policy.in_flight(node.host_id.as_u128())).sum();
        eprintln!("{}: {:?}, {left} left in flight", way.name, policy.counts());
    }
}

async fn compare(flags: &Flags) -> Result<(), Problem> {
    ways::fill(flags).await?;
    let mut ways = Vec::new();
    for name in flags.ways() {
        ways.push(Way::new(&name, flags).await?);
    }
    if flags.commands {
        commands::obey(&ways, flags).await?;
    } else {
        let mut sums: Vec<Sum> = ways.iter().map(|_| Sum::default()).collect();
        for round in 0..=flags.rounds {
            for turn in 0..ways.len() {
                let place = (turn + round) % ways.len(); // none is always first
                let taken = take_disturbed_turn(&ways[place], flags, round).await?;
                if round > 0 {
                    sums[place].add(taken);
                }
            }
        }
        report(&ways, &mut sums);
    }
    tell_counts(&ways);
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    let compared = match Flags::read(std::env::args().skip(1)) {
        Ok(flags) => compare(&flags).await,
        Err(problem) => Err(problem),
    };
    match compared {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("compare: {problem}");
            ExitCode::FAILURE
        }
    }
}
