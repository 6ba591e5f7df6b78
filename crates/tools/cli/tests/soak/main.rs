//! Replicas that die, hang and break answers for as long as one likes, before a real
//! `evenkeel run`: nothing that can be saved is lost, no byte is wrong, and no memory is kept.
//!
//! | module | holds |
//! |---|---|
//! | `replica` | a replica, as a process of its own: this binary, started again |
//! | `faults` | what befalls replicas: at most three of five at a time |
//! | `client` | clients that check every byte |
//!
//! `EVENKEEL_SOAK_SECONDS` makes it longer than the twelve seconds of CI; from two minutes on the
//! memory of the proxy is judged too. `EVENKEEL_SOAK_SEED` chooses another course.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod client;
#[path = "../common/mod.rs"]
mod common;
mod faults;
mod replica;

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use client::Clients;
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::http;
use evenkeel_testkit::program::Program;
use evenkeel_testkit::story::free_addresses;
use evenkeel_testkit::wait::block_until;
use faults::Faults;

/// Requests per second: 60 % of what five replicas can do.
const RATE: f64 = 0.6 * 5.0 * replica::CAPACITY;
/// Memory is judged after so long: by then every buffer was needed once.
const MEMORY_FROM: Duration = Duration::from_secs(120);

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// A retry for every other replica: one that was well may fall ill while it has the request. Short
/// limits, so that much can happen.
fn configuration(door: SocketAddr, admin: SocketAddr, replicas: &[SocketAddr]) -> String {
    let replicas: Vec<_> = replicas.iter().map(|it| format!("'{it}'")).collect();
    format!(
        "[process]\nworkers = 2\n[[listen]]\naddress = '{door}'\nupstream = 'web'\n\
         [admin]\naddress = '{admin}'\n\
         [upstream.web]\nreplicas = [{}]\nretries_max = 4\n\
         [upstream.web.timeouts]\nattempt = '3s'\nidle = '1s'\n",
        replicas.join(", ")
    )
}

#[test]
fn replicas_that_die_hang_and_break_cost_no_answer_that_had_not_begun() {
    let seconds = setting("EVENKEEL_SOAK_SECONDS", 12);
    let seed = setting("EVENKEEL_SOAK_SEED", 17);
    let duration = Duration::from_secs(seconds);
    let [door, admin, replicas @ ..] = free_addresses::<7>();
    let folder = Folder::new("soak");
    let file = folder.file("run.toml");
    std::fs::write(&file, configuration(door, admin, &replicas)).unwrap();
    let mut faults = Faults::start(&replicas, seed);
    let log = std::fs::File::create(folder.file("log")).unwrap();
    let run = ["run".as_ref(), file.as_os_str()];
    let proxy = Program::start(Command::new(common::PROGRAM).args(run).stderr(log));
    block_until("the proxy serves", || http::try_get(door, "/0/0").is_ok());

    let clients = Clients::start(door, RATE, duration);
    let memory = faults.befall(duration, proxy.id().unwrap());
    let tally = clients.join();
    println!("{seconds} s, seed {seed}: {tally:?}\n{faults}");
    let count = |name: &str| sum(&http::get(admin, "/metrics"), name);
    block_until("nothing is in flight", || count("evenkeel_in_flight") == 0.0);
    let told = ["retries", "retries_denied", "rescues"].map(|name| {
        let count = count(&format!("evenkeel_{name}_total"));
        println!("{name}: {count}");
        count
    });
    let (grown, highest_kib) = memory.judge();
    println!(
        "memory: {:+.1} % from the second quarter to the last, {highest_kib} KiB",
        1e2 * grown
    );

    assert_eq!(tally.wrong, Vec::<String>::new());
    assert_eq!(tally.failed, Vec::<String>::new(), "whose answers had not begun");
    assert_eq!(tally.sent, tally.whole + tally.broken);
    assert!(tally.broken > 0 && told[0] > 0.0 && told[2] > 0.0, "much has happened");
    if duration >= MEMORY_FROM {
        assert!(grown < 0.15, "memory grows: {grown}");
    }
}

/// The sum of all series of a metric.
fn sum(metrics: &str, name: &str) -> f64 {
    let of_it = |line: &&str| line.starts_with(name) && line[name.len()..].starts_with(['{', ' ']);
    let value = |line: &str| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap();
    metrics.lines().filter(of_it).map(value).sum()
}
