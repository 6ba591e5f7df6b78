//! Clients: requests at a rate that nothing slows down, each on a connection of its thread, and
//! every byte of the answers is compared.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::replica::body;

const THREADS: usize = 128;
/// Examples of each kind that are kept.
const KEPT: usize = 20;

/// What became of the requests.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) sent: u64,
    pub(crate) whole: u64,
    /// Answers that broke off after their first byte of body, or after a head without a length.
    pub(crate) broken: u64,
    /// Requests whose answer had not begun.
    pub(crate) failed: Vec<String>,
    /// Answers with other bytes than they should have.
    pub(crate) wrong: Vec<String>,
    pub(crate) slowest: Duration,
    pub(crate) over_1_s: u64,
}

/// How an answer ended.
enum End {
    Whole,
    Broken,
    Failed(String),
    Wrong(String),
}

struct Plan {
    door: SocketAddr,
    rate: f64,
    began: Instant,
    lasting: Duration,
    next: AtomicU64,
}

pub(crate) struct Clients(Vec<JoinHandle<Tally>>);

impl Clients {
    pub(crate) fn start(door: SocketAddr, rate: f64, lasting: Duration) -> Self {
        let (began, next) = (Instant::now(), AtomicU64::new(0));
        let plan = Arc::new(Plan { door, rate, began, lasting, next });
        let start = |_| {
            let plan = Arc::clone(&plan);
            std::thread::spawn(move || plan.follow())
        };
        Self((0..THREADS).map(start).collect())
    }

    pub(crate) fn join(self) -> Tally {
        let mut all = Tally::default();
        for thread in self.0 {
            let tally = thread.join().unwrap();
            all.sent += tally.sent;
            all.whole += tally.whole;
            all.broken += tally.broken;
            all.over_1_s += tally.over_1_s;
            all.slowest = all.slowest.max(tally.slowest);
            all.failed.extend(tally.failed);
            all.wrong.extend(tally.wrong);
        }
        all
    }
}

impl Plan {
    fn follow(&self) -> Tally {
        let (mut tally, mut connection) = (Tally::default(), None);
        loop {
            let number = self.next.fetch_add(1, Relaxed);
            let due = Duration::from_secs_f64(number as f64 / self.rate);
            if due >= self.lasting {
                return tally;
            }
            std::thread::sleep((self.began + due).saturating_duration_since(Instant::now()));
            tally.sent += 1;
            let sent_at = Instant::now();
            let end = self.ask(&mut connection, number);
            let took = sent_at.elapsed();
            match end {
                End::Whole => {
                    tally.whole += 1;
                    tally.slowest = tally.slowest.max(took);
                    tally.over_1_s += u64::from(took > Duration::from_secs(1));
                    continue;
                }
                End::Broken => tally.broken += 1,
                End::Failed(why) => keep(&mut tally.failed, number, (sent_at - self.began, why)),
                End::Wrong(why) => keep(&mut tally.wrong, number, (sent_at - self.began, why)),
            }
            connection = None;
        }
    }

    fn ask(&self, connection: &mut Option<BufReader<TcpStream>>, number: u64) -> End {
        let size = size(number);
        let reader = match connection {
            Some(reader) => reader,
            None => match TcpStream::connect(self.door) {
                Ok(stream) => connection.insert(BufReader::new(stream)),
                Err(error) => return End::Failed(format!("no connection: {error}")),
            },
        };
        let expected = body(number, size);
        // One in eight brings a body that is kept for retries.
        let is_put = number.is_multiple_of(8) && size <= 60_000;
        let (method, upload) = if is_put { ("PUT", &*expected) } else { ("GET", &[][..]) };
        let head = format!(
            "{method} /{number}/{size} HTTP/1.1\r\nhost: soak\r\ncontent-length: {}\r\n\r\n",
            upload.len()
        );
        let request = [head.as_bytes(), upload].concat();
        if let Err(error) = reader.get_mut().write_all(&request) {
            return End::Failed(format!("not sent: {error}"));
        }
        let framing = match read_head(reader) {
            Ok(framing) => framing,
            Err(error) => return End::Failed(error.to_string()),
        };
        let mut bytes = Vec::new();
        let ended = read_body(reader, framing, &mut bytes);
        match ended {
            _ if !expected.starts_with(&bytes) => End::Wrong(format!("at {} bytes", bytes.len())),
            Ok(()) if bytes.len() < size => End::Wrong(format!("whole with {}", bytes.len())),
            Ok(()) => End::Whole,
            Err(error) if bytes.is_empty() && framing.is_some() => {
                End::Failed(format!("after its head: {error}"))
            }
            Err(_) => End::Broken,
        }
    }
}

/// Mostly small, some of a few hundred kilobytes, some empty.
const fn size(number: u64) -> usize {
    match number % 50 {
        0 => 0,
        1..=3 => 200_000 + (number % 1_000) as usize,
        4..=12 => 20_000 + (number % 5_000) as usize,
        n => 100 + n as usize,
    }
}

fn keep(examples: &mut Vec<String>, number: u64, (at, why): (Duration, String)) {
    if examples.len() < KEPT {
        examples.push(format!("{number} at {at:.1?}: {why}"));
    }
}

/// The length of the body; `None` when it comes in chunks.
fn read_head(reader: &mut BufReader<TcpStream>) -> io::Result<Option<usize>> {
    let (mut status, mut length) = (String::new(), None);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(io::Error::other(format!("closed, after {status:?}")));
        }
        let line = line.trim();
        if status.is_empty() {
            line.clone_into(&mut status);
        } else if line.is_empty() {
            break;
        } else if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok();
        }
    }
    if status.contains(" 200 ") { Ok(length) } else { Err(io::Error::other(status)) }
}

fn read_body(
    reader: &mut BufReader<TcpStream>,
    length: Option<usize>,
    into: &mut Vec<u8>,
) -> io::Result<()> {
    let Some(length) = length else { return read_chunks(reader, into) };
    read_some(reader, length, into)
}

fn read_chunks(reader: &mut BufReader<TcpStream>, into: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let length = usize::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
        read_some(reader, length, into)?;
        reader.read_exact(&mut [0; 2])?;
        if length == 0 {
            return Ok(());
        }
    }
}

/// Reads so many bytes; what came before an end is kept.
fn read_some(
    reader: &mut BufReader<TcpStream>,
    length: usize,
    into: &mut Vec<u8>,
) -> io::Result<()> {
    let read = reader.take(length as u64).read_to_end(into)?;
    if read < length { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}
