//! `cargo xtask bench expiry`: what it costs that keys expire alike at all duplicates, and what is
//! wrong without, by four ways: the shipped one (the front removes a key when a command uses it
//! behind its deadline), and three that were left.
//!
//! 1. *Streams*: each duplicate expires keys by itself; a reader of all their replication streams
//!    finds what differs. Here the readers only read: comparing and mending would come on top.
//! 2. *Import mode* (Valkey): no duplicate removes anything, the front sends a `DEL` for every key.
//!    What the front would pay for that is measured with `DEL`s of the client.
//! 3. *Replicas*: the duplicates are replicas of the front, which waits for their offsets in place
//!    of answers. Here a small master feeds three, beside the same bytes with answers.
//!
//! CPU is of processes, in turns within a round, by the median ratio within a round; the client's
//! is not in it. It says nothing of answers, which the third way does not have: with it each read,
//! and each write whose answer matters, is one more command at one duplicate.

mod deadlines;
mod duplicates;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};

use super::load::command;
use super::report::values;
use crate::bench::process::{Server, Workbench};
use crate::bench::statistics::{interval, median};
use crate::bench::{ROUNDS_MIN, file, load_average, number, order};
use crate::{UsageError, needs, workspace};
use duplicates::{DUPLICATES, Lane, Master, Stream, front, own_cpu_ns, server};

const USAGE: &str = "\
usage: cargo xtask bench expiry [OPTIONS]

  --rounds N       rounds, each measuring every way once; at least 6, default 9
  --commands N     commands of one measurement; default 40000
  --valkey PATH    a valkey-server (8.1 or later) for import mode; without it that is left out of
                   the keys that differ
  --binary PATH    the evenkeel to measure; default is to build target/dist/evenkeel

example: cargo xtask bench expiry --rounds 12 --valkey /usr/bin/valkey-server";

/// Keys that are written in turn.
const KEYS: u64 = 20_000;
/// Later than this many other keys an expired one is used: more than their time to live.
const LAG: u64 = 2_000;
const SHORT_MS: u64 = 20;
const LONG_MS: u64 = 3_600_000;
/// Sent before answers are read.
const CYCLES_AT_ONCE: u64 = 8;
/// Of a client, for each key.
const COMMANDS_OF_CYCLE: u64 = 4;
const WRITES_AT_ONCE: u64 = 32;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// No deadline comes.
    Far,
    /// Deadlines come, and nobody uses a key behind its own.
    Unused,
    /// Each key is used behind its deadline: the front removes it first.
    Used,
    /// As [`Self::Far`], while readers get the streams of all.
    Streams,
    /// As [`Self::Far`], and each key is removed.
    Dels,
}

const WAYS: [(Way, &str); 5] = [
    (Way::Far, "deadlines far away"),
    (Way::Unused, "shipped, keys not used later"),
    (Way::Used, "shipped, every key used later"),
    (Way::Streams, "1 streams: deadlines far away"),
    (Way::Dels, "2 a DEL for every key"),
];

/// CPU in µs.
#[derive(Clone, Copy, Default)]
struct Cost {
    /// Of the front, or of who feeds.
    front: f64,
    /// Of all duplicates together.
    stores: f64,
    readers: f64,
}

impl Cost {
    fn sum(&self) -> f64 {
        self.front + self.stores + self.readers
    }
}

struct Options {
    rounds: usize,
    commands: u64,
    valkey: Option<PathBuf>,
    binary: Option<PathBuf>,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self, UsageError> {
        let mut options = Self { rounds: 9, commands: 40_000, valkey: None, binary: None };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let value = words.next().copied().unwrap_or_default();
            match *word {
                "--rounds" => options.rounds = number(word, value, ROUNDS_MIN as u64, 1000)?,
                "--commands" => options.commands = number(word, value, 10_000, 10_000_000)?,
                "--valkey" => options.valkey = Some(file(word, value)?),
                "--binary" => options.binary = Some(file(word, value)?),
                _ => return Err(UsageError::new(format!("unknown option `{word}`\n\n{USAGE}"))),
            }
        }
        Ok(options)
    }
}

/// Measures and prints the tables.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    if matches!(words, ["--help" | "-h"]) {
        println!("{USAGE}");
        return Ok(());
    }
    let options = Options::parse(words)?;
    let binary = if let Some(binary) = &options.binary {
        binary.clone()
    } else {
        workspace::build_dist()?;
        workspace::dist_binary()
    };
    let load = load_average();
    let redis = needs::require("redis-server")?;
    let bench = Workbench::create("expiry", 3 * DUPLICATES + 1)?;
    let start = |place: usize| -> Result<Vec<Server>> {
        let ports = &bench.ports()[place * DUPLICATES..][..DUPLICATES];
        ports.iter().map(|port| server(&bench, *port, &redis, &[], None)).collect()
    };
    let (behind, lanes, replicas) = (start(0)?, start(1)?, start(2)?);
    let front = front(&bench, &binary, bench.ports()[3 * DUPLICATES], &behind)?;
    let mut lanes = (connected(&lanes)?, lanes);
    let mut replicas = (Master::of(&replicas)?, replicas);
    let mut through = WAYS.map(|_| Vec::new());
    let mut fed = [Vec::new(), Vec::new()];
    for round in 0..options.rounds {
        eprintln!("round {} of {}", round + 1, options.rounds);
        for index in order(round, WAYS.len()) {
            let (way, name) = WAYS[index];
            let cost = through_front(way, &front, &behind, options.commands);
            through[index].push(cost.with_context(|| name)?);
        }
        for index in order(round, fed.len()) {
            let cost = match index {
                0 => feed(&lanes.1, options.commands, |bytes| answered(&mut lanes.0, bytes)),
                _ => feed(&replicas.1, options.commands, |bytes| replicas.0.applied(bytes)),
            };
            fed[index].push(cost?);
        }
    }
    let through = WAYS.iter().map(|(_, name)| *name).zip(through).collect::<Vec<_>>();
    let [answers, stream] = fed;
    let fed = [("with answers", answers), ("3 as a replica, offsets alone", stream)];
    println!("load average {load}, {} rounds\n", options.rounds);
    println!("CPU in us for each command of the client, front with {DUPLICATES} duplicates");
    println!("{}", table(&through));
    println!("CPU in us for each write, {DUPLICATES} duplicates and who feeds them, no front");
    println!("{}", table(&fed));
    println!("{}", deadlines::differing(&binary, &redis, options.valkey.as_deref())?);
    Ok(())
}

fn table(rows: &[(&str, Vec<Cost>)]) -> String {
    let head = ["front", "stores", "readers", "sum / first"];
    let mut text =
        format!("{:<31} {:>7} {:>7} {:>7} {:>18}\n", "", head[0], head[1], head[2], head[3]);
    for (name, rounds) in rows {
        let part = |part: fn(&Cost) -> f64| median(&values(rounds, part));
        let (front, stores) = (part(|it| it.front), part(|it| it.stores));
        let readers = part(|it| it.readers);
        let ratios = rounds.iter().zip(&rows[0].1).map(|(own, first)| own.sum() / first.sum());
        let ratios = interval(&ratios.collect::<Vec<_>>(), 2);
        let _ = writeln!(text, "{name:<31} {front:>7.2} {stores:>7.2} {readers:>7.2} {ratios:>18}");
    }
    text
}

fn cpu_of(servers: &[Server]) -> Result<u64> {
    servers.iter().try_fold(0, |sum, server| Ok(sum + server.cpu_ns()?))
}

fn through_front(way: Way, front: &Server, stores: &[Server], commands: u64) -> Result<Cost> {
    let mut client = Lane::to(front.port())?;
    client.send(command(&["FLUSHALL"]).as_bytes())?;
    client.answers(1)?;
    let streams = stores.iter().filter(|_| way == Way::Streams);
    let streams = streams.map(|store| Stream::of(store.port())).collect::<Result<Vec<_>>>()?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let follow = |stream: Stream| scope.spawn(|| stream.follow(&is_over));
        let readers: Vec<_> = streams.into_iter().map(follow).collect();
        let before = (front.cpu_ns()?, cpu_of(stores)?);
        let asked = ask(&mut client, way, commands);
        let after = (front.cpu_ns()?, cpu_of(stores)?);
        is_over.store(true, Ordering::Relaxed);
        let mut of_readers = 0;
        for reader in readers {
            of_readers += reader.join().expect("it does not panic")?;
        }
        asked?;
        let each = |ns: u64| ns as f64 / 1e3 / commands as f64;
        let (front, stores) = (each(after.0 - before.0), each(after.1 - before.1));
        Ok(Cost { front, stores, readers: each(of_readers) })
    })
}

/// A client that writes keys with deadlines, and uses earlier ones.
fn ask(client: &mut Lane, way: Way, commands: u64) -> Result<()> {
    let ttl = if matches!(way, Way::Unused | Way::Used) { SHORT_MS } else { LONG_MS }.to_string();
    let lag = if matches!(way, Way::Used | Way::Dels) { LAG } else { 1 };
    let name = |cycle: u64| format!("due:{}", cycle % KEYS);
    let value = "x".repeat(100);
    let cycles: Vec<u64> = (0..commands / COMMANDS_OF_CYCLE).collect();
    for some in cycles.chunks(CYCLES_AT_ONCE as usize) {
        let mut text = String::new();
        let mut count = 0;
        for &cycle in some {
            let (new, old) = (name(cycle), name(cycle + KEYS - lag));
            text += &command(&["SET", &new, &value, "PX", &ttl]);
            text += &command(&["APPEND", &new, "x"]);
            if way == Way::Dels {
                text += &command(&["DEL", &old]);
                count += 1;
            }
            text += &command(&["GET", &old]);
            text += &command(&["APPEND", &old, "x"]);
            count += COMMANDS_OF_CYCLE;
        }
        client.send(text.as_bytes())?;
        client.answers(count)?;
    }
    Ok(())
}

/// The same writes to all duplicates, some at once, each time until they have them.
fn feed(
    stores: &[Server],
    writes: u64,
    mut until_done: impl FnMut(&[u8]) -> Result<()>,
) -> Result<Cost> {
    let before = (own_cpu_ns()?, cpu_of(stores)?);
    let value = "x".repeat(100);
    for first in (0..writes).step_by(WRITES_AT_ONCE as usize) {
        let mut text = String::new();
        for write in first..first + WRITES_AT_ONCE {
            let key = format!("due:{}", write % KEYS);
            text += &command(&["SET", &key, &value, "PXAT", "4102444800000"]);
        }
        until_done(text.as_bytes())?;
    }
    let after = (own_cpu_ns()?, cpu_of(stores)?);
    let each = |ns: u64| ns as f64 / 1e3 / writes as f64;
    let (front, stores) = (each(after.0 - before.0), each(after.1 - before.1));
    Ok(Cost { front, stores, readers: 0.0 })
}

fn connected(servers: &[Server]) -> Result<Vec<Lane>> {
    servers.iter().map(|server| Lane::to(server.port())).collect()
}

fn answered(lanes: &mut [Lane], bytes: &[u8]) -> Result<()> {
    lanes.iter_mut().try_for_each(|lane| lane.send(bytes))?;
    lanes.iter_mut().try_for_each(|lane| lane.answers(WRITES_AT_ONCE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_sums_within_each_round() {
        let rounds = |front: f64| {
            let cost = |n: u32| Cost { front: f64::from(n) * front, stores: 0.0, readers: 0.0 };
            (1..7).map(cost).collect::<Vec<_>>()
        };
        let text = table(&[("a", rounds(2.0)), ("b", rounds(3.0))]);
        assert!(text.contains("1.00 (1.00-1.00)") && text.contains("1.50 (1.50-1.50)"), "{text}");
    }

    #[test]
    fn wrong_options_say_what_came() {
        let error = Options::parse(&["--valkey", "/no/such"]).err().map(|it| it.to_string());
        assert_eq!(error.unwrap(), "--valkey: got `/no/such`, expected the path of a program");
    }
}
