//! What stories between sockets share: limits, an address where nobody is, a thread for a service,
//! and a time after which a story hangs.

use std::fmt;
#[cfg(target_os = "linux")]
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
#[cfg(target_os = "linux")]
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use evenkeel_runtime::accept::{Stop, StopSignal, worker_runtime};
use evenkeel_runtime::limits::{BodyLimits, Engine, Http2, ServerLimits, UpstreamLimits};

/// A millisecond.
pub const MS: Duration = Duration::from_millis(1);

/// Limits of a server that no story reaches unless it means to.
pub const LIMITS: ServerLimits = ServerLimits {
    head_bytes_max: 64 * 1024,
    body_bytes_max: 1 << 30,
    connections_max: 1_000,
    head: Duration::from_secs(10),
    idle: Duration::from_secs(60),
    write: Duration::from_secs(30),
    connection_age: Duration::MAX,
    drain: Duration::from_secs(1),
    engine: Engine::Hyper,
};

/// The same of connections to a replica.
pub const UPSTREAM: UpstreamLimits = UpstreamLimits {
    connect: Duration::from_secs(1),
    connections_max: 1_000,
    idle_connections_max: 1_000,
    idle: Duration::from_secs(30),
    head_bytes_max: 64 * 1024,
    body: BodyLimits::DEFAULT,
    http2: Http2::Auto,
    engine: Engine::Hyper,
};

/// Tells a story on a worker of its own, within a time that no story needs.
///
/// # Panics
/// When the story hangs.
pub fn story(reported: impl Future<Output = ()>) {
    story_within(Duration::from_secs(40), reported);
}

/// The same, for stories of real servers.
///
/// # Panics
/// When the story hangs.
pub fn story_within(limit: Duration, reported: impl Future<Output = ()>) {
    worker_runtime().expect("a runtime").block_on(async {
        tokio::time::timeout(limit, reported).await.expect("the story hangs");
    });
}

/// The same, where it is possible; else says aloud what is missing on this machine.
///
/// # Panics
/// When the story hangs.
pub fn possible_story(
    possible: Result<(), Missing>,
    limit: Duration,
    reported: impl AsyncFnOnce(),
) {
    match possible {
        Ok(()) => story_within(limit, reported()),
        Err(missing) => skipped(&missing),
    }
}

/// What this machine lacks for a test, with how to get it.
#[derive(Clone, Debug)]
pub struct Missing(String);

impl From<String> for Missing {
    fn from(words: String) -> Self {
        Self(words)
    }
}

impl From<&str> for Missing {
    fn from(words: &str) -> Self {
        Self(words.to_owned())
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

/// Says aloud that tests are skipped: past the capture of a passing test's output.
pub fn skipped(missing: &(impl fmt::Display + ?Sized)) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "SKIPPED: {missing}");
}

/// An address where nobody listens, for now.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn nobody() -> SocketAddr {
    let [address] = free_addresses();
    address
}

/// Where addresses are looked for: below the ports that the system gives to whoever connects, so
/// that what is free now still is when the server that is told of it begins.
const PORTS: std::ops::Range<u16> = 10_000..20_000;

/// Different addresses where nobody listens, for servers that are told their ports. No other call
/// gets one of them, of this process or of another while this one lives: a server that is killed
/// and started anew finds its port free.
///
/// # Panics
/// When there are none.
#[must_use]
pub fn free_addresses<const N: usize>() -> [SocketAddr; N] {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    let count = u32::from(PORTS.end - PORTS.start);
    let first = std::process::id() % 100 * (count / 100);
    let next = || {
        let tried = TRIED.fetch_add(1, Ordering::Relaxed);
        assert!(tried < 10 * count, "no free port from {} to {}", PORTS.start, PORTS.end);
        let port = PORTS.start + ((first + tried) % count) as u16;
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    };
    let is_free =
        |address: &SocketAddr| is_ours(address.port()) && TcpListener::bind(address).is_ok();
    [(); N].map(|()| std::iter::repeat_with(next).find(is_free).expect("without an end"))
}

/// Whether no other test has this port. The lock of its file ends with this process.
#[cfg(target_os = "linux")]
fn is_ours(port: u16) -> bool {
    use rustix::fs::{FlockOperation, flock};

    static OURS: Mutex<Vec<File>> = Mutex::new(Vec::new());
    let folder = std::env::temp_dir().join("evenkeel-ports");
    std::fs::create_dir_all(&folder).expect("a folder for temporary files");
    let file = File::options().create(true).append(true).open(folder.join(port.to_string()));
    let file = file.expect("a file in it");
    let is_ours = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
    if is_ours {
        OURS.lock().expect("nobody panics with it").push(file);
    }
    is_ours
}

#[cfg(not(target_os = "linux"))]
const fn is_ours(_port: u16) -> bool {
    true
}

/// A service on a thread of its own, which ends when this is dropped. A service that failed fails
/// the test.
#[derive(Debug)]
pub struct Running {
    stop: Option<Stop>,
    thread: Option<std::thread::JoinHandle<std::io::Result<()>>>,
}

impl Running {
    /// Starts it in a worker runtime of its thread.
    ///
    /// # Panics
    /// When there is no thread to be had.
    pub fn start<S, F>(service: S) -> Self
    where
        S: FnOnce(StopSignal) -> F + Send + 'static,
        F: Future<Output = std::io::Result<()>>,
    {
        let stop = Stop::new();
        let signal = stop.signal();
        let body = move || worker_runtime()?.block_on(service(signal));
        let thread = std::thread::spawn(body);
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !std::thread::panicking() {
                ended.expect("the service does not panic").expect("the service does not fail");
            }
        }
    }
}
