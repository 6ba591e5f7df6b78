//! `--stumbles`: what reads last while one Redis stands still now and then, by who is asked: the
//! only duplicate, all at once, one that the policy chooses, or one and a hedge.
//!
//! An open loop at a rate that one Redis serves easily, since a closed one would ask less while it
//! waits. A read that is due while its connection still waits counts from when it was due. The
//! Redis stands still inside (`DEBUG SLEEP`): its connections stay open, its clients know nothing.
//!
//! What the machine does to all of them at any time (a thread that waits for a core) is most of the
//! 99.9th percentile of all reads. So reads that were sent while the Redis stood still are looked
//! at alone: of a tenth of the reads the 99th percentile, which only they could make worse.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::Options;
use super::load::{KEYS, command, name, value_reply};
use super::report::values;
use super::subjects::{Running, STUMBLING, Subject, start_all};
use crate::bench::process::Workbench;
use crate::bench::statistics::{self, interval, spread};
use crate::bench::{list, load_average, order, quoted};

/// What the others are compared with.
const REFERENCE: &str = "all-of-3";
const CONNECTIONS: u32 = 16;
/// Reads per second, over all connections.
const RATE: u32 = 2_000;
/// A tenth of the time: beyond what the 99th percentile hides.
const STANDS_STILL: &str = "0.025";
const EVERY: Duration = Duration::from_millis(250);
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// One round of one subject.
struct Round {
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    /// The 99th percentile of reads that were sent while the Redis stood still.
    still_p99_us: f64,
    /// Of the proxy, for each read.
    cpu_us: f64,
    /// Of its Redis servers together, for each read.
    store_cpu_us: f64,
    /// Reads that came to its Redis servers together, for each read.
    copies: f64,
}

type Series = Vec<(&'static str, Vec<Round>)>;

/// Measures all in turns; the table, or a JSON document.
pub(super) fn run(options: &Options, binary: &Path) -> Result<String> {
    let load = load_average();
    let bench = Workbench::create("redis", STUMBLING.iter().map(Subject::port_count).sum())?;
    let mut running = start_all(STUMBLING.iter(), &bench, binary)?;
    let mut series: Series = running.iter().map(|it| (it.subject.name, Vec::new())).collect();
    for round in 0..options.rounds {
        eprintln!("round {} of {}", round + 1, options.rounds);
        for index in order(round, running.len()) {
            let one = &mut running[index];
            let measured = measure(one, Duration::from_secs(options.seconds));
            let measured = measured.with_context(|| format!("reads of {}", one.subject.name))?;
            series[index].1.push(measured);
        }
    }
    Ok(if options.json { json(&series) } else { table(options, &load, &series) })
}

fn measure(one: &mut Running, lasting: Duration) -> Result<Round> {
    let (port, stores) = (one.port(), one.store_ports());
    let (before, is_over) = (one.cpu_ns()?, AtomicBool::new(false));
    let reads_before = reads_of(&stores)?;
    let (reads, stills) = std::thread::scope(|scope| {
        let stumbling = scope.spawn(|| stumble(stores[0], &is_over));
        let read = |number| scope.spawn(move || read(port, number, lasting));
        let reading: Vec<_> = (0..CONNECTIONS).map(read).collect();
        let mut all = Vec::new();
        for one in reading {
            all.extend(one.join().expect("it does not panic")?);
        }
        is_over.store(true, Ordering::Relaxed);
        anyhow::Ok((all, stumbling.join().expect("it does not panic")?))
    })?;
    one.check_alive()?;
    let after = one.cpu_ns()?;
    let copies = reads_of(&stores)? - reads_before;
    let count = reads.len();
    ensure!(count >= 1_000, "{count} reads are too few for a 99.9th percentile");
    let is_still =
        |sent: Instant| stills.iter().any(|(from, until)| (from..until).contains(&&sent));
    let still = sorted(reads.iter().filter(|(sent, _)| is_still(*sent)));
    ensure!(still.len() >= 100, "{} reads in stalls are too few for a percentile", still.len());
    let all = sorted(reads.iter());
    let each = |before: u64, after: u64| (after - before) as f64 / 1e3 / count as f64;
    Ok(Round {
        p50_us: quantile_us(&all, 0.50),
        p99_us: quantile_us(&all, 0.99),
        p999_us: quantile_us(&all, 0.999),
        still_p99_us: quantile_us(&still, 0.99),
        cpu_us: each(before.proxy, after.proxy),
        store_cpu_us: each(before.stores, after.stores),
        copies: copies as f64 / count as f64,
    })
}

/// Latencies in nanoseconds.
fn sorted<'a>(reads: impl Iterator<Item = &'a (Instant, u64)>) -> Vec<u64> {
    let mut latencies_ns: Vec<u64> = reads.map(|(_, ns)| *ns).collect();
    latencies_ns.sort_unstable();
    latencies_ns
}

fn quantile_us(sorted_ns: &[u64], share: f64) -> f64 {
    sorted_ns[((sorted_ns.len() - 1) as f64 * share) as usize] as f64 / 1e3
}

/// `GET`s that these have carried out since they were started, together.
fn reads_of(stores: &[u16]) -> Result<u64> {
    let mut sum = 0;
    for port in stores {
        let mut stream = TcpStream::connect(("127.0.0.1", *port))?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        stream.write_all(command(&["INFO", "commandstats"]).as_bytes())?;
        stream.write_all(command(&["QUIT"]).as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text).context("INFO was not answered")?;
        sum += reads_in(&text).with_context(|| format!("no count of GET in: {text}"))?;
    }
    Ok(sum)
}

/// As `INFO commandstats` has it: `cmdstat_get:calls=7,usec=…`; without the line there were none.
fn reads_in(text: &str) -> Option<u64> {
    match text.split_once("cmdstat_get:calls=") {
        Some((_, rest)) => rest.split(',').next()?.parse().ok(),
        None => text.contains("# Commandstats").then_some(0),
    }
}

/// Has a Redis stand still, again and again; when it did.
fn stumble(port: u16, is_over: &AtomicBool) -> Result<Vec<(Instant, Instant)>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    let (mut answer, mut stills) = ([0; 5], Vec::new());
    while !is_over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        stream.write_all(command(&["DEBUG", "SLEEP", STANDS_STILL]).as_bytes())?;
        stream.read_exact(&mut answer).context("DEBUG SLEEP was not answered")?;
        ensure!(answer == *b"+OK\r\n", "DEBUG SLEEP: {}", String::from_utf8_lossy(&answer));
        stills.push((begun, Instant::now()));
        std::thread::sleep(EVERY.saturating_sub(begun.elapsed()));
    }
    Ok(stills)
}

/// The reads of one connection: when each was sent, and its latency in nanoseconds.
fn read(port: u16, number: u32, lasting: Duration) -> Result<Vec<(Instant, u64)>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    let period = Duration::from_secs(1) * CONNECTIONS / RATE;
    let count = lasting.as_nanos() / period.as_nanos();
    let mut answer = vec![0; value_reply().len()];
    let (mut reads, mut due) = (Vec::new(), Instant::now() + period * number / CONNECTIONS);
    for read in 0..count as u64 {
        let early = due.saturating_duration_since(Instant::now());
        std::thread::sleep(early);
        // Who slept too long was not kept from asking by an answer.
        let since = if early.is_zero() { due } else { Instant::now() };
        let key = name((read * u64::from(CONNECTIONS) + u64::from(number)) * 7_919 % KEYS);
        stream.write_all(command(&["GET", &key]).as_bytes())?;
        stream.read_exact(&mut answer).context("no whole answer")?;
        ensure!(answer[0] == b'$', "an error: {}", String::from_utf8_lossy(&answer));
        reads.push((since, since.elapsed().as_nanos() as u64));
        due += period;
    }
    Ok(reads)
}

fn table(options: &Options, load: &str, series: &Series) -> String {
    let mut text = format!(
        "Reads while one Redis stands still {STANDS_STILL} s in every {EVERY:?}: {} rounds x {} s, \
         {RATE}/s over {CONNECTIONS} connections, load average {load}\n\n\
         {:<9} {:>7} {:>7} {:>8} {:>20} {:>10} {:>17} {:>7} {:>20} {:>9}\n",
        options.rounds,
        options.seconds,
        "",
        "p50 us",
        "p99 us",
        "p99.9 us",
        format!("/ {REFERENCE}"),
        "p99 still",
        format!("/ {REFERENCE}"),
        "copies",
        "CPU us/read (min-max)",
        "Redis CPU"
    );
    let of_reference = series.iter().find(|(name, _)| *name == REFERENCE);
    for (name, rounds) in series {
        let median = |value| statistics::median(&values(rounds, value));
        let ratios = |value: fn(&Round) -> f64| {
            let others = of_reference.iter().flat_map(|(_, others)| rounds.iter().zip(others));
            let ratios = others.map(|(own, other)| value(own) / value(other));
            interval(&ratios.collect::<Vec<_>>(), 2)
        };
        let _ = writeln!(
            text,
            "{name:<9} {:>7.0} {:>7.0} {:>8.0} {:>20} {:>10.0} {:>17} {:>7.3} {:>20} {:>9.2}",
            median(|it| it.p50_us),
            median(|it| it.p99_us),
            median(|it| it.p999_us),
            ratios(|it| it.p999_us),
            median(|it| it.still_p99_us),
            ratios(|it| it.still_p99_us),
            median(|it| it.copies),
            spread(&values(rounds, |it| it.cpu_us)),
            median(|it| it.store_cpu_us),
        );
    }
    text.push_str("\nstill: reads that were sent while the Redis stood still\n");
    text.push_str("ratios: median over rounds of the ratio within a round (95 % interval)\n");
    text
}

fn json(series: &Series) -> String {
    let of_one = |(name, rounds): &(&str, Vec<Round>)| {
        format!(
            "{{\"subject\":{},\"p50_us\":{},\"p99_us\":{},\"p999_us\":{},\
             \"still_p99_us\":{},\
             \"copies_per_read\":{},\"cpu_us_per_read\":{},\"store_cpu_us_per_read\":{}}}",
            quoted(name),
            list(&values(rounds, |it| it.p50_us)),
            list(&values(rounds, |it| it.p99_us)),
            list(&values(rounds, |it| it.p999_us)),
            list(&values(rounds, |it| it.still_p99_us)),
            list(&values(rounds, |it| it.copies)),
            list(&values(rounds, |it| it.cpu_us)),
            list(&values(rounds, |it| it.store_cpu_us))
        )
    };
    let series: Vec<String> = series.iter().map(of_one).collect();
    format!("{{\"benchmark\":\"redis-stumbles\",\"subjects\":[{}]}}", series.join(","))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn ratios_are_taken_within_each_round() {
        let rounds = |slower: f64| {
            let round = |n: u32| Round {
                p50_us: slower,
                p99_us: slower,
                p999_us: f64::from(n) * slower,
                still_p99_us: f64::from(n) * slower * slower,
                cpu_us: 2.0,
                store_cpu_us: 1.0,
                copies: 1.0,
            };
            (10..16).map(round).collect::<Vec<_>>()
        };
        let series = vec![("one", rounds(3.0)), (REFERENCE, rounds(1.5))];
        let words = ["--stumbles", "--rounds", "6"];
        let text = table(&Options::parse(&words).unwrap(), "0", &series);
        assert!(text.contains("2.00 (2.00-2.00)") && text.contains("4.00 (4.00-4.00)"), "{text}");
        assert!(text.contains("1.00 (1.00-1.00)"), "{text}");
        assert!(json(&series).contains("\"p999_us\":[30.0000,33.0000,"));
    }

    #[test]
    fn reads_are_those_that_redis_counts() {
        // As redis-server 7.0.15 says it.
        let text = "$172\r\n# Commandstats\r\ncmdstat_set:calls=2,usec=9,usec_per_call=4.50,\
                    rejected_calls=0,failed_calls=0\r\ncmdstat_get:calls=71,usec=100,\
                    usec_per_call=1.41,rejected_calls=0,failed_calls=0\r\n+OK\r\n";
        assert_eq!(reads_in(text), Some(71));
        assert_eq!(reads_in("# Commandstats\r\n"), Some(0));
        assert_eq!(reads_in("-LOADING"), None);
    }

    /// An answer that comes late makes all reads late that were due meanwhile.
    #[test]
    fn a_read_counts_from_when_it_was_due() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut bytes, mut answered) = ([0; 64], 0);
            while stream.read(&mut bytes).unwrap() > 0 {
                if answered == 2 {
                    std::thread::sleep(Duration::from_millis(80));
                }
                answered += 1;
                stream.write_all(value_reply().as_bytes()).unwrap();
            }
        });
        let reads = read(port, 0, Duration::from_millis(160)).unwrap();
        assert_eq!(reads.len(), 20, "one every 8 ms");
        let late = reads.iter().filter(|(_, ns)| *ns > 20_000_000).count();
        assert!(late >= 6, "{reads:?}");
        server.join().unwrap();
    }
}
