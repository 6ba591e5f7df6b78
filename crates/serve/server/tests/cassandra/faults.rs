//! A node is killed under load: what may be sent twice never fails, and what may not is never sent
//! twice. While it is dead, and another one too, Evenkeel serves what a node serves.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use evenkeel_core::request::ring::Consistency;
use evenkeel_cql::response::Error;
use evenkeel_cql::{ErrorCode, Opcode, Version};

use crate::pairs::Pair;
use crate::proxy::Proxy;
use evenkeel_testkit::cassandra::client::{Client, message, reported};
use evenkeel_testkit::cassandra::{self, Cluster, Disturbed};

const KEYSPACE: &str = "faults";

/// How long the load runs before and after the kill.
const PHASE: Duration = Duration::from_secs(2);

/// Every node has some of them.
const PAIR_KEYS: i32 = 6;

/// The keys of the counters.
const COUNTERS: u64 = 8;

fn prepare(cluster: &Cluster) {
    let mut client = Client::connect(cluster.address(0), Version::V4, None).unwrap();
    for statement in [
        format!("DROP KEYSPACE IF EXISTS {KEYSPACE}"),
        format!(
            "CREATE KEYSPACE {KEYSPACE} WITH replication = \
             {{'class': 'NetworkTopologyStrategy', 'east': 2, 'west': 1}}"
        ),
        format!("CREATE TABLE {KEYSPACE}.counts (k int PRIMARY KEY, n counter)"),
        format!(
            "CREATE TABLE {KEYSPACE}.plain (k int PRIMARY KEY, v int) \
             WITH speculative_retry = 'NEVER'"
        ),
    ] {
        client.change(&statement);
    }
}

/// What became of increments.
#[derive(Default)]
struct Increments {
    applied: AtomicU64,
    /// Nobody knows whether they were applied.
    unknown: AtomicU64,
}

impl Increments {
    /// Increments counters one after the other, on a new connection whenever one breaks.
    fn run(&self, proxy: &Proxy, version: Version, ends: &AtomicBool) {
        let mut client = None;
        for turn in 0.. {
            if ends.load(Ordering::Relaxed) {
                return;
            }
            let Some(open) = client.as_mut() else {
                client = Client::connect(proxy.address(), version, None).ok();
                continue;
            };
            let key = turn % COUNTERS;
            let text = format!("UPDATE {KEYSPACE}.counts SET n = n + 1 WHERE k = {key}");
            match open.query(&text, Consistency::Quorum) {
                Ok(answer) if answer.opcode == Opcode::Result => {
                    self.applied.fetch_add(1, Ordering::Relaxed);
                }
                Ok(answer) => {
                    let code = Error::read(message(&answer), version).unwrap().code;
                    // Cassandra refuses these before it applies anything.
                    if !matches!(code, ErrorCode::Unavailable | ErrorCode::Overloaded) {
                        self.unknown.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Err(_) => {
                    self.unknown.fetch_add(1, Ordering::Relaxed);
                    client = None;
                }
            }
        }
    }
}

/// Reads and writes that may be sent twice; the first failure ends it.
fn idempotent(proxy: &Proxy, version: Version, ends: &AtomicBool) -> Result<u64, String> {
    let mut client = Client::connect(proxy.address(), version, None).unwrap();
    let mut done = 0;
    for turn in 0.. {
        if ends.load(Ordering::Relaxed) {
            break;
        }
        let key = turn % 64;
        let text = match turn % 3 {
            0 => format!(
                "INSERT INTO {KEYSPACE}.plain (k, v) VALUES ({key}, {turn}) USING TIMESTAMP {}",
                turn + 1
            ),
            _ => format!("SELECT v FROM {KEYSPACE}.plain WHERE k = {key}"),
        };
        let answer = client.query(&text, Consistency::LocalOne);
        let answer = answer.map_err(|error| format!("{text}: {error} after {done}"))?;
        if answer.opcode != Opcode::Result {
            return Err(format!("{text}: {} after {done}", reported(&answer)));
        }
        done += 1;
    }
    Ok(done)
}

/// With one node alive, then two: how many statements the node refuses.
fn what_a_node_serves_is_served(
    cluster: &Cluster,
    disturbed: &Disturbed<'_>,
    pair: &mut Pair,
) -> [usize; 2] {
    let began = std::time::Instant::now();
    disturbed.kill(2);
    let alone = pair.compare(cluster, &[0]);
    disturbed.restart(1);
    let both = pair.compare(cluster, &[0, 1]);
    disturbed.restart(2);
    let took = began.elapsed();
    eprintln!("a node served and refused {alone:?} alone, {both:?} as one of two, in {took:?}");
    [alone.1, both.1]
}

#[test]
fn a_killed_node_fails_nothing_that_may_be_sent_twice_and_doubles_nothing_that_may_not() {
    let Some(cluster) = cassandra::shared(crate::spec) else { return };
    let disturbed = cluster.disturb();
    prepare(cluster);
    let proxy = Proxy::start(cluster, "hedge = {}");
    let mut pair = Pair::new(cluster, 0, &proxy, PAIR_KEYS);
    let (_, refused) = pair.compare(cluster, &[0, 1, 2]); // at levels beyond the replicas
    let (increments, ends) = (Increments::default(), AtomicBool::new(false));
    let (proxy, increments, ends) = (&proxy, &increments, &ends);
    let outcomes: Vec<Result<u64, String>> = std::thread::scope(|threads| {
        let mut running = Vec::new();
        for version in [Version::V4, Version::V5] {
            for _ in 0..2 {
                threads.spawn(move || increments.run(proxy, version, ends));
                running.push(threads.spawn(move || idempotent(proxy, version, ends)));
            }
        }
        std::thread::sleep(PHASE);
        disturbed.kill(1);
        std::thread::sleep(PHASE);
        ends.store(true, Ordering::Relaxed);
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let [alone, both] = what_a_node_serves_is_served(cluster, &disturbed, &mut pair);
    assert!(alone > both && both > refused, "{alone}, {both} and {refused} refused");
    let done: Vec<u64> =
        outcomes.into_iter().map(|one| one.unwrap_or_else(|why| panic!("{why}"))).collect();
    let mut client = Client::connect(cluster.address(0), Version::V4, None).unwrap();
    let mut counted = 0;
    for key in 0..COUNTERS {
        let text = format!("SELECT n FROM {KEYSPACE}.counts WHERE k = {key}");
        let answer = client.query(&text, Consistency::All).unwrap();
        let rows = cassandra::client::rows_of(&answer);
        let bytes = rows[0][0].clone().expect("a counter");
        counted += u64::try_from(i64::from_be_bytes(bytes.try_into().unwrap())).unwrap();
    }
    let applied = increments.applied.load(Ordering::Relaxed);
    let most = applied + increments.unknown.load(Ordering::Relaxed);
    eprintln!("{applied} to {most} increments, {counted} counted; {done:?} idempotent statements");
    assert!(counted >= applied, "{counted} counted, {applied} were answered");
    assert!(counted <= most, "{counted} counted, at most {most} were asked for");
    assert!(applied > 100 && done.iter().all(|one| *one > 100), "{applied}, {done:?}");
}
