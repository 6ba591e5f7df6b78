//! `cargo xtask bench http --idle N`: what a kept connection costs while nothing happens on it, and
//! whether many of them make others slower.
//!
//! Each proxy runs twice. One has a few connections, the other one holds `N`; every connection has
//! had a request. Signals: the resident memory of the second, per connection beyond the few; and
//! how long an answer takes on an idle connection of either, one request at a time, in turns. The
//! comparison is the difference within a round, summarised by its median with a distribution-free
//! interval. What the kernel holds for a socket is not counted: it is the same for all.
//!
//! A process may have so many connections as it may open files (`ulimit -n`), HAProxy half as many.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::Options;
use super::latency::{Latency, difference};
use super::proxies::Proxy;
use crate::bench::process::{Server, Workbench};
use crate::bench::{order, statistics};

/// Of the instance that is otherwise idle.
const FEW: usize = 100;
/// Requests of one measurement, each on another connection.
const REQUESTS: usize = 1000;
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: bench\r\n\r\n";
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Measures proxies one after the other, with two of `ports` for each; the table.
pub(super) fn run(
    bench: &Workbench,
    proxies: &[&'static Proxy],
    (backends, ports): (&[u16], &[u16]),
    count: usize,
    options: &Options,
) -> Result<String> {
    let mut text = format!(
        "{count} idle connections: {} rounds x {REQUESTS} requests one after the other, {} B \
         bodies, one worker each\n\n{:<10} {:>12} {:>22} {:>22} {:>26} {:>26}\n",
        options.rounds,
        options.bytes,
        "proxy",
        "B/connection",
        format!("p50 us, {FEW} | {count}"),
        format!("p99 us, {FEW} | {count}"),
        "p50 more (95 %)",
        "p99 more (95 %)",
    );
    for (proxy, ports) in proxies.iter().zip(ports.chunks(2)) {
        eprintln!("{}", proxy.name);
        let found = measure(bench, proxy, (backends, ports), count, options)
            .with_context(|| format!("{count} connections of {}", proxy.name))?;
        text.push_str(&row(proxy.name, &found));
    }
    text.push_str("\ndifferences are medians over rounds; an interval that holds 0 is a tie\n");
    Ok(text)
}

/// What was found of a proxy.
struct Found {
    bytes_per_connection: f64,
    /// With few connections and with many, round by round.
    latencies: [Vec<Latency>; 2],
}

fn measure(
    bench: &Workbench,
    proxy: &Proxy,
    (backends, ports): (&[u16], &[u16]),
    count: usize,
    options: &Options,
) -> Result<Found> {
    let binary = options.binary.as_deref();
    let start = |port| proxy.start(bench, port, backends, binary);
    let mut servers = [start(ports[0])?, start(ports[1])?];
    let few = Clients::connect(&servers[0], FEW, options.bytes)?;
    let mut many = Clients::connect(&servers[1], FEW, options.bytes)?;
    let before = servers[1].memory_kib()?;
    many.add(&servers[1], count - FEW)?;
    let grown_kib = servers[1].memory_kib()?.saturating_sub(before);
    let mut found = Found {
        bytes_per_connection: grown_kib as f64 * 1024.0 / (count - FEW) as f64,
        latencies: [Vec::new(), Vec::new()],
    };
    let mut both = [few, many];
    for round in 0..options.rounds {
        for index in order(round, both.len()) {
            let latency = both[index].ask_in_turn()?;
            found.latencies[index].push(latency);
            servers[index].check_alive()?;
        }
    }
    Ok(found)
}

fn row(name: &str, found: &Found) -> String {
    let mut text = format!("{name:<10} {:>12.0}", found.bytes_per_connection);
    let (mut figures, mut differences) = (String::new(), String::new());
    for of in [|it: &Latency| it.p50, |it: &Latency| it.p99] {
        let [few, many] = [0, 1].map(|it| found.latencies[it].iter().map(of).collect::<Vec<_>>());
        let more: Vec<f64> = many.iter().zip(&few).map(|(many, few)| many - few).collect();
        let [few, many] = [few, many].map(|each| statistics::median(&each));
        let _ = write!(figures, " {:>22}", format!("{few:.1} | {many:.1}"));
        let _ = write!(differences, " {:>26}", difference(&more));
    }
    text.push_str(&figures);
    text.push_str(&differences);
    text.push('\n');
    text
}

/// Connections to one server, all of which have had an answer.
struct Clients {
    connections: Vec<TcpStream>,
    /// Who is asked next.
    next: usize,
    body_bytes: usize,
    buffer: Vec<u8>,
}

impl Clients {
    fn connect(server: &Server, count: usize, body_bytes: usize) -> Result<Self> {
        let (connections, buffer) = (Vec::new(), vec![0; 64 << 10]);
        let mut clients = Self { connections, next: 0, body_bytes, buffer };
        clients.add(server, count)?;
        Ok(clients)
    }

    fn add(&mut self, server: &Server, count: usize) -> Result<()> {
        for _ in 0..count {
            let number = self.connections.len() + 1;
            let stream = TcpStream::connect(("127.0.0.1", server.port()));
            let stream = stream.with_context(|| {
                format!("connection {number}; a process may open as many files as `ulimit -n` says")
            })?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(ANSWER_LIMIT))?;
            self.connections.push(stream);
            self.ask(number - 1).with_context(|| format!("the first request of {number}"))?;
        }
        Ok(())
    }

    /// Asks connections one after the other, far apart, each of which was idle for long.
    fn ask_in_turn(&mut self) -> Result<Latency> {
        let mut us = Vec::with_capacity(REQUESTS);
        let step = self.connections.len() / FEW + 1;
        for _ in 0..REQUESTS {
            self.next = (self.next + step) % self.connections.len();
            us.push(self.ask(self.next)?.as_secs_f64() * 1e6);
        }
        us.sort_by(f64::total_cmp);
        Ok(Latency { p50: us[REQUESTS / 2], p99: us[REQUESTS * 99 / 100] })
    }

    /// How long an answer takes.
    fn ask(&mut self, index: usize) -> Result<Duration> {
        let stream = &mut self.connections[index];
        let start = Instant::now();
        stream.write_all(REQUEST)?;
        let mut length = 0;
        loop {
            let count = stream.read(&mut self.buffer[length..]).context("no answer")?;
            length += count;
            let answer = &self.buffer[..length];
            let is_good = answer.starts_with(b"HTTP/1.1 200") || length < 12;
            if count == 0 || !is_good {
                bail!("got `{}`, expected 200", String::from_utf8_lossy(answer).trim());
            }
            let head = answer.windows(4).position(|it| it == b"\r\n\r\n");
            if head.is_some_and(|head| length == head + 4 + self.body_bytes) {
                return Ok(start.elapsed());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_medians_and_differences_within_rounds() {
        let latency = |p50| Latency { p50, p99: 2.0 * p50 };
        // The machine slows down round by round.
        let of =
            |more: f64| (0..6).map(|it| latency(100.0 + 10.0 * f64::from(it) + more)).collect();
        let found = Found { bytes_per_connection: 2999.6, latencies: [of(0.0), of(5.0)] };
        let words: Vec<String> =
            row("evenkeel", &found).split_whitespace().map(str::to_owned).collect();
        let expected = "evenkeel 3000 125.0 | 130.0 250.0 | 260.0 +5.0 (+5.0 to +5.0) +10.0 \
                        (+10.0 to +10.0)";
        assert_eq!(words.join(" "), expected);
    }
}
