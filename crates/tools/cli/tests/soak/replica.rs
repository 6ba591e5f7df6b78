//! A replica: so many requests at once, each for a while, answered with bytes that are known
//! from the path. In other modes it breaks or stalls some answers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use evenkeel_core::Rng;
use evenkeel_testkit::program::Program;
use socket2::SockRef;

const SLOTS: u32 = 2;
const SERVICE_MEAN: Duration = Duration::from_millis(20);
/// Requests per second that one can do.
pub(crate) const CAPACITY: f64 = SLOTS as f64 / 0.020;
/// The share of answers that something befalls in a mode.
const SHARE: f64 = 0.3;
const ADDRESS: &str = "EVENKEEL_SOAK_REPLICA";

/// What befalls an answer. Before it has begun:
pub(crate) const RESET: &str = "reset";
pub(crate) const HEAD_AND_END: &str = "head-and-end";
pub(crate) const HEAD_AND_STALL: &str = "head-and-stall";
/// After it has begun:
pub(crate) const BREAK: &str = "break";
pub(crate) const BREAK_BY_RESET: &str = "break-by-reset";
pub(crate) const STALL: &str = "stall";
pub(crate) const WELL: &str = "well";
pub(crate) const MODES: [&str; 7] =
    [RESET, HEAD_AND_END, HEAD_AND_STALL, BREAK, BREAK_BY_RESET, STALL, WELL];

/// The bytes of a path `/number/size`.
pub(crate) fn body(number: u64, size: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

/// Starts a replica as a process of its own.
pub(crate) fn start(address: SocketAddr) -> Program {
    let this = std::env::current_exe().unwrap();
    let arguments = ["replica::process", "--exact", "--ignored", "--nocapture"];
    let mut command = Command::new(this);
    command.args(arguments).env(ADDRESS, address.to_string());
    command.stdout(std::process::Stdio::null());
    let mut program = Program::start(&mut command);
    program.wait_listening(address);
    program
}

#[test]
#[ignore = "a process of the soak test, which starts it"]
fn process() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let listener = TcpListener::bind(address).unwrap();
    let replica = Arc::new(Replica {
        mode: Mutex::new(WELL),
        free: (Mutex::new(SLOTS), Condvar::new()),
        rng: Mutex::new(Rng::seeded(u64::from(std::process::id()))),
    });
    for stream in listener.incoming() {
        let (stream, replica) = (stream.unwrap(), Arc::clone(&replica));
        // What fails is a connection; its other end finds out.
        std::thread::spawn(move || replica.serve(&stream));
    }
}

struct Replica {
    mode: Mutex<&'static str>,
    /// Free slots.
    free: (Mutex<u32>, Condvar),
    rng: Mutex<Rng>,
}

impl Replica {
    /// Serves a connection to its end.
    fn serve(&self, stream: &TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream);
        loop {
            let (mut line, mut length) = (String::new(), 0);
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
            while line.trim() != "" {
                line.clear();
                reader.read_line(&mut line)?;
                let (name, value) = line.split_once(':').unwrap_or_default();
                if name.eq_ignore_ascii_case("content-length") {
                    length = value.trim().parse().unwrap_or_default();
                }
            }
            let mut uploaded = vec![0; length];
            reader.read_exact(&mut uploaded)?;
            let mut parts = path.trim_start_matches('/').split('/');
            let (first, second) = (parts.next().unwrap_or_default(), parts.next());
            if let Some(mode) = MODES.iter().find(|mode| **mode == first) {
                *self.mode.lock().unwrap() = mode;
                return (&*stream).write_all(b"HTTP/1.1 204 OK\r\nconnection: close\r\n\r\n");
            }
            let number: u64 = first.parse().unwrap_or_default();
            let size: usize = second.unwrap_or_default().parse().unwrap_or_default();
            if length > 0 && uploaded != body(number, size) {
                let head = "HTTP/1.1 400 Wrong bytes\r\ncontent-length: 0\r\n\r\n";
                (&*stream).write_all(head.as_bytes())?;
            } else if !self.answer(stream, number, size)? {
                return Ok(());
            }
        }
    }

    fn work(&self) {
        let time = SERVICE_MEAN.mul_f64(self.rng.lock().unwrap().exponential());
        let (free, changed) = &self.free;
        *changed.wait_while(free.lock().unwrap(), |free| *free == 0).unwrap() -= 1;
        std::thread::sleep(time);
        *free.lock().unwrap() += 1;
        changed.notify_one();
    }

    /// Answers; false when the connection is over with it.
    fn answer(&self, stream: &TcpStream, number: u64, size: usize) -> std::io::Result<bool> {
        self.work();
        let is_struck = self.rng.lock().unwrap().unit() < SHARE;
        let mode = if is_struck { *self.mode.lock().unwrap() } else { WELL };
        if mode == RESET {
            SockRef::from(stream).set_linger(Some(Duration::ZERO))?;
            return Ok(false);
        }
        let bytes = body(number, size);
        let is_chunked = number.is_multiple_of(2) && size > 0;
        let framing = match is_chunked {
            true => "transfer-encoding: chunked".to_owned(),
            false => format!("content-length: {size}"),
        };
        let mut answer = format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n").into_bytes();
        let head_ends = answer.len();
        for chunk in bytes.chunks(10_000) {
            if is_chunked {
                answer.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            }
            answer.extend_from_slice(chunk);
            if is_chunked {
                answer.extend_from_slice(b"\r\n");
            }
        }
        if is_chunked {
            answer.extend_from_slice(b"0\r\n\r\n");
        }
        let half = head_ends + (answer.len() - head_ends) / 2;
        let sent = match mode {
            WELL => answer.len(),
            // Of a body without a length the head alone has begun the answer.
            HEAD_AND_END | HEAD_AND_STALL if !is_chunked => head_ends,
            _ => half,
        };
        let mut stream = stream;
        stream.write_all(&answer[..sent])?;
        if sent == answer.len() {
            return Ok(true);
        }
        if [STALL, HEAD_AND_STALL].contains(&mode) {
            let _ = stream.read(&mut [0]); // until somebody is tired of it
        } else if mode == BREAK_BY_RESET {
            SockRef::from(stream).set_linger(Some(Duration::ZERO))?;
        }
        Ok(false)
    }
}
