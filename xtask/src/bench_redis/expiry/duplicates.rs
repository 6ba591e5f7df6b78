//! Servers, connections to them, readers of their streams, and a master that feeds them.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::bench::process::{Server, Workbench, child};
use crate::bench_redis::load::{self, command};
use crate::bench_redis::subjects::evenkeel_config;

pub(super) const DUPLICATES: usize = 3;
const LIMIT: Duration = Duration::from_secs(15);
/// How often a reader tells how far it is, at least.
const TOLD_EVERY: Duration = Duration::from_millis(100);
/// Version 9, the end, and no checksum.
const EMPTY_RDB: &[u8] = b"REDIS0009\xff\0\0\0\0\0\0\0\0";

/// Starts one that keeps nothing; with a clock that is ahead by so many ms, by this library.
pub(super) fn server(
    bench: &Workbench,
    port: u16,
    program: &Path,
    further: &[&str],
    clock: Option<(&Path, i64)>,
) -> Result<Server> {
    let (name, number) = (format!("store-{port}"), port.to_string());
    let mut started = child(program);
    if let Some((library, ms)) = clock {
        started.env("LD_PRELOAD", library).env("CLOCK_AHEAD_MS", ms.to_string());
    }
    let file = format!("{port}.rdb");
    started.args(["--port", &number, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    started.args(["--dbfilename", &file, "--repl-diskless-sync-delay", "0"]).args(further);
    Server::of(bench, &name, port, &mut started)
}

/// A front of these, once it takes a write.
pub(super) fn front(
    bench: &Workbench,
    binary: &Path,
    port: u16,
    stores: &[Server],
) -> Result<Server> {
    let ports: Vec<u16> = stores.iter().map(Server::port).collect();
    let directory = bench.folder().join(format!("log-{port}"));
    let text = evenkeel_config(&directory, &ports, port, ("read-my-own-writes", ""));
    let config = bench.write(&format!("front-{port}.toml"), &text)?;
    let config = config.to_str().context("the path of the target folder is not UTF-8")?;
    let front = Server::start(bench, &format!("front-{port}"), port, binary, &["run", config])?;
    let begun = Instant::now();
    while let Err(error) = load::try_write(port) {
        ensure!(begun.elapsed() < LIMIT, "the front takes no write: {error:#}");
        sleep(Duration::from_millis(50));
    }
    Ok(front)
}

/// CPU time of this thread so far, in nanoseconds.
pub(super) fn own_cpu_ns() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    text.split(' ').next().and_then(|it| it.parse().ok()).context("no scheduler statistics")
}

/// A connection.
pub(super) struct Lane(BufReader<TcpStream>);

impl Lane {
    pub(super) fn to(port: u16) -> Result<Self> {
        Self::of(TcpStream::connect(("127.0.0.1", port))?)
    }

    fn of(stream: TcpStream) -> Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LIMIT))?;
        Ok(Self(BufReader::with_capacity(1 << 16, stream)))
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.0.get_mut().write_all(bytes)?)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(self.0.read_line(&mut line)? > 0, "the connection was closed");
        Ok(line.trim_end().to_owned())
    }

    /// One answer that is no list, without its type; nothing for null.
    pub(super) fn answer(&mut self) -> Result<Option<String>> {
        let line = self.line()?;
        match (line.as_bytes().first(), line.get(1..).unwrap_or_default()) {
            (Some(b'$'), "-1") => Ok(None),
            (Some(b'$'), length) => {
                let mut bytes = vec![0; length.parse::<usize>()? + 2];
                self.0.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Ok(Some(String::from_utf8(bytes)?))
            }
            (Some(b'+' | b':'), text) => Ok(Some(text.to_owned())),
            _ => bail!("expected an answer, got {line:?}"),
        }
    }

    /// Takes so many.
    pub(super) fn answers(&mut self, count: u64) -> Result<()> {
        (0..count).try_for_each(|_| self.answer().map(drop))
    }

    pub(super) fn ask(&mut self, words: &[&str]) -> Result<Option<String>> {
        self.send(command(words).as_bytes())?;
        self.answer()
    }

    /// What a server asks for, as a client does.
    fn request(&mut self) -> Result<Vec<String>> {
        let line = self.line()?;
        let count = line.strip_prefix('*').and_then(|it| it.parse::<usize>().ok());
        let count = count.with_context(|| format!("expected a command, got {line:?}"))?;
        (0..count).map(|_| self.answer()?.context("a word")).collect()
    }
}

/// A reader of what a server does, as a replica gets it.
pub(super) struct Stream(Lane);

impl Stream {
    /// Attached: the data, without which none is had, has come.
    pub(super) fn of(port: u16) -> Result<Self> {
        let mut lane = Lane::to(port)?;
        lane.ask(&["REPLCONF", "capa", "eof"])?;
        lane.ask(&["REPLCONF", "rdb-filter-only", ""])?;
        let answer = lane.ask(&["PSYNC", "?", "-1"])?.unwrap_or_default();
        ensure!(answer.starts_with("FULLRESYNC"), "PSYNC: {answer}");
        let mut head = lane.line()?;
        while head.is_empty() {
            head = lane.line()?; // while its child writes
        }
        let mark = head.strip_prefix("$EOF:").with_context(|| format!("no data but {head:?}"))?;
        let mut data = Vec::new();
        while !data.ends_with(mark.as_bytes()) {
            let mut byte = [0];
            lane.0.read_exact(&mut byte)?;
            data.extend(byte);
        }
        // What is told before its child has ended counts for nothing.
        let (mut client, begun) = (Lane::to(port)?, Instant::now());
        while !client.ask(&["INFO", "replication"])?.unwrap_or_default().contains("state=online") {
            ensure!(begun.elapsed() < LIMIT, "a store does not take a reader");
            lane.send(command(&["REPLCONF", "ACK", "0"]).as_bytes())?;
            sleep(Duration::from_millis(10));
        }
        lane.0.get_mut().set_read_timeout(Some(TOLD_EVERY))?;
        Ok(Self(lane))
    }

    /// Reads until it is over; the CPU time that took, in nanoseconds.
    pub(super) fn follow(mut self, is_over: &AtomicBool) -> Result<u64> {
        let begun = own_cpu_ns()?;
        let (mut offset, mut told) = (self.0.0.buffer().len(), Instant::now());
        let mut bytes = vec![0; 1 << 16];
        let stream = self.0.0.get_mut();
        while !is_over.load(Ordering::Relaxed) {
            match stream.read(&mut bytes) {
                Ok(0) => bail!("a reader was cut off"),
                Ok(count) => offset += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
            if told.elapsed() >= TOLD_EVERY {
                told = Instant::now();
                let words = ["REPLCONF", "ACK", &offset.to_string()];
                stream.write_all(command(&words).as_bytes())?;
            }
        }
        Ok(own_cpu_ns()? - begun)
    }
}

/// What replicas take for their master.
pub(super) struct Master {
    replicas: Vec<Lane>,
    sent: usize,
}

impl Master {
    /// These are its replicas from now on, empty.
    pub(super) fn of(servers: &[Server]) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let number = listener.local_addr()?.port().to_string();
        let attach = |server: &Server| {
            Lane::to(server.port())?.ask(&["REPLICAOF", "127.0.0.1", &number])?;
            let begun = Instant::now();
            let stream = loop {
                match listener.accept() {
                    Ok((stream, _)) => break stream,
                    Err(error) if begun.elapsed() > LIMIT => {
                        bail!("{} does not follow: {error}", server.name())
                    }
                    Err(_) => sleep(Duration::from_millis(10)),
                }
            };
            stream.set_nonblocking(false)?;
            let mut lane = Lane::of(stream)?;
            lane.welcome()?;
            Ok(lane)
        };
        let replicas = servers.iter().map(attach).collect::<Result<_>>()?;
        let mut master = Self { replicas, sent: 0 };
        master.applied(command(&["SELECT", "0"]).as_bytes())?;
        Ok(master)
    }

    /// Sends these commands to all and waits until they have done them.
    pub(super) fn applied(&mut self, bytes: &[u8]) -> Result<()> {
        let question = command(&["REPLCONF", "GETACK", "*"]);
        let bytes = [bytes, question.as_bytes()].concat();
        self.replicas.iter_mut().try_for_each(|it| it.send(&bytes))?;
        // An answer counts what came before the question.
        let wanted = self.sent + bytes.len() - question.len();
        self.sent += bytes.len();
        self.replicas.iter_mut().try_for_each(|replica| {
            loop {
                let words = replica.request()?;
                let offset = words.get(2).and_then(|it| it.parse().ok());
                if offset.is_some_and(|it: usize| it >= wanted) {
                    return Ok(());
                }
            }
        })
    }
}

impl Lane {
    /// Has a replica begin with nothing.
    fn welcome(&mut self) -> Result<()> {
        loop {
            let words = self.request()?;
            match words[0].to_ascii_uppercase().as_str() {
                "PING" => self.send(b"+PONG\r\n")?,
                "PSYNC" => break,
                _ => self.send(b"+OK\r\n")?,
            }
        }
        self.send(format!("+FULLRESYNC {} 0\r\n", "e".repeat(40)).as_bytes())?;
        self.send(format!("${}\r\n", EMPTY_RDB.len()).as_bytes())?;
        self.send(EMPTY_RDB)
    }
}
