//! Real Redis servers, and a client that knows nothing of Evenkeel: RESP2 over a socket.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::program::Program;
use crate::story::{Missing, nobody, skipped};
use crate::wait::{PATIENCE, block_until};

/// Names another program than Debian's: a Valkey, or another version.
const SERVER_VARIABLE: &str = "EVENKEEL_REDIS_SERVER";

/// The program that is the server.
fn server() -> PathBuf {
    std::env::var_os(SERVER_VARIABLE).unwrap_or_else(|| "/usr/bin/redis-server".into()).into()
}

/// Whether Redis is installed.
///
/// # Errors
/// What is missing.
pub fn possible() -> Result<(), Missing> {
    let server = server();
    match server.exists() {
        true => Ok(()),
        false => Err(format!("{server:?} is missing (apt-get install redis-server)").into()),
    }
}

/// A server that keeps what it is told on its disk.
#[derive(Debug)]
pub struct Redis {
    /// Where it listens.
    pub address: SocketAddr,
    directory: PathBuf,
    /// A library that sets its clock, and by how many ms it is ahead.
    clock: Option<(PathBuf, i64)>,
    /// Further arguments, from its next start on.
    pub arguments: Vec<String>,
    /// Further variables of its environment, from its next start on.
    pub environment: Vec<(String, PathBuf)>,
    /// The server itself.
    pub program: Program,
}

/// Builds the library for servers whose clocks are not the machine's ([`Redis::ahead`]). `None`,
/// said aloud, where that is not possible.
///
/// # Panics
/// When the compiler refuses it.
#[must_use]
pub fn clock_library(folder: &Path) -> Option<PathBuf> {
    let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
    std::fs::write(&source, include_str!("clock.c")).expect("the folder can be written");
    let arguments = [OsStr::new("-shared"), OsStr::new("-fPIC"), OsStr::new("-o")];
    let compiler = Command::new("cc").args(arguments).arg(&library).arg(&source).status();
    match compiler {
        Ok(status) if cfg!(target_os = "linux") => {
            assert!(status.success(), "cc refuses {}", source.display());
            Some(library)
        }
        _ => {
            skipped("no clocks of servers: this needs Linux and cc (Debian package gcc)");
            None
        }
    }
}

impl Redis {
    /// Starts one whose files are there.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn new(directory: PathBuf) -> Self {
        std::fs::create_dir_all(&directory).expect("the folder can be made");
        Self::begin(directory, None)
    }

    /// One whose clock is so many ms ahead of the machine's, by this library.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn ahead(directory: PathBuf, library: &Path, ms: i64) -> Self {
        std::fs::create_dir_all(&directory).expect("the folder can be made");
        Self::begin(directory, Some((library.to_path_buf(), ms)))
    }

    /// One that is a Redis Cluster of its own: it has all slots.
    ///
    /// # Panics
    /// When it does not start, or does not get them.
    #[must_use]
    pub fn node(directory: PathBuf) -> Self {
        std::fs::create_dir_all(&directory).expect("the folder can be made");
        let options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"];
        let backlog = ["--repl-backlog-ttl", "0", "--repl-backlog-size", "64mb"];
        let arguments = options.into_iter().chain(backlog).map(str::to_owned).collect();
        let redis = Self::begin_with(directory, None, arguments);
        redis.take_all_slots();
        redis
    }

    /// Gives a node all slots, and waits until its cluster is up.
    ///
    /// # Panics
    /// When another one has them.
    pub fn take_all_slots(&self) {
        let mut client = self.client();
        let taken = client.ask(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
        assert_eq!(taken, Reply::Simple("OK".to_owned()));
        self.wait_cluster();
    }

    /// Waits until a node's cluster is up, which takes it two seconds after each start.
    ///
    /// # Panics
    /// When it is not.
    pub fn wait_cluster(&self) {
        let mut client = self.client();
        block_until("the cluster is up", || {
            let about = client.ask(&["CLUSTER", "INFO"]);
            about.text().is_some_and(|text| text.contains("cluster_state:ok"))
        });
    }

    fn begin(directory: PathBuf, clock: Option<(PathBuf, i64)>) -> Self {
        Self::begin_with(directory, clock, Vec::new())
    }

    fn begin_with(
        directory: PathBuf,
        clock: Option<(PathBuf, i64)>,
        arguments: Vec<String>,
    ) -> Self {
        let (address, program) = (nobody(), Program::default());
        let environment = Vec::new();
        let mut redis = Self { address, directory, clock, arguments, environment, program };
        redis.start();
        redis
    }

    /// Starts it again, on what it has on its disk.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(&mut self) {
        let mut command = Command::new(server());
        if let Some((library, ms)) = &self.clock {
            command.env("LD_PRELOAD", library).env("CLOCK_AHEAD_MS", ms.to_string());
        }
        self.program = Program::start(
            command
                .envs(self.environment.iter().map(|(name, value)| (name, value)))
                .args(["--port", &self.address.port().to_string(), "--bind", "127.0.0.1"])
                .args(["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""])
                .args(["--enable-debug-command", "no"])
                .args(&self.arguments)
                .arg("--dir")
                .arg(&self.directory)
                .stdout(Stdio::null()),
        );
        block_until("redis answers", || {
            assert!(!self.program.has_ended(), "redis ended in {}", self.directory.display());
            let pong = Client::try_connect(self.address, PATIENCE)
                .and_then(|mut client| client.try_ask(&["PING"]));
            pong.is_ok_and(|pong| pong == Reply::Simple("PONG".to_owned()))
        });
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.program.kill();
    }

    /// What it had on disk is gone.
    ///
    /// # Panics
    /// When the folder cannot be emptied.
    pub fn wipe(&self) {
        std::fs::remove_dir_all(&self.directory).expect("the folder can be removed");
        std::fs::create_dir_all(&self.directory).expect("the folder can be made");
    }

    /// A client of its own.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }
}

/// Starts a server that keeps nothing, on a socket in this folder. `None`, said aloud, where Redis
/// is not installed.
///
/// # Panics
/// When it does not start.
#[must_use]
pub fn on_socket(folder: &Path, options: &[&str]) -> Option<(Program, PathBuf)> {
    let mut command = Command::new("redis-server");
    command
        .args(["--port", "0", "--unixsocket", "socket", "--save", "", "--appendonly", "no"])
        .args(options)
        .current_dir(folder)
        .stdout(Stdio::null());
    let Some(server) = Program::start_if_installed(&mut command) else {
        skipped("no redis-server (Debian package redis-server)");
        return None;
    };
    let socket = folder.join("socket");
    block_until("redis listens", || UnixStream::connect(&socket).is_ok());
    Some((server, socket))
}

/// What a server answers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reply {
    /// A word, such as `OK`.
    Simple(String),
    /// A refusal.
    Error(String),
    /// A number.
    Integer(i64),
    /// A value.
    Bulk(Vec<u8>),
    /// No value.
    Null,
    /// Several at once.
    Array(Vec<Self>),
    /// A message that answers nothing (RESP3).
    Push(Vec<Self>),
}

impl Reply {
    /// A value that is a text.
    #[must_use]
    pub fn bulk(text: &str) -> Self {
        Self::Bulk(text.as_bytes().to_vec())
    }

    /// The text of a value; `None` when it is anything else.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Bulk(bytes) => str::from_utf8(bytes).ok(),
            _ => None,
        }
    }
}

/// One connection. What begins with `try` leaves the end of a connection to the caller.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    /// Connects to a server that is there.
    ///
    /// # Panics
    /// When it is not.
    #[must_use]
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address, PATIENCE).unwrap_or_else(|error| panic!("{address}: {error}"))
    }

    /// Connects to a server that may be away; it has so long for each answer.
    ///
    /// # Errors
    /// When it is away.
    pub fn try_connect(address: SocketAddr, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Reads what comes, beside whoever goes on sending.
    ///
    /// # Panics
    /// When the system refuses a copy.
    #[must_use]
    pub fn reader(&self) -> Self {
        let copy = self.stream.get_ref().try_clone().expect("sockets can be copied");
        Self { stream: BufReader::new(copy) }
    }

    /// The address it comes from.
    ///
    /// # Panics
    /// When the connection has ended.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.stream.get_ref().local_addr().expect("it is connected")
    }

    /// Whether the other side has closed, with nothing left to read: libraries look before they use
    /// a connection that was idle.
    ///
    /// # Panics
    /// When the system refuses to change how the socket waits.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        match self.peek() {
            Ok(count) => count == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    /// Whether something has come that is not read.
    ///
    /// # Panics
    /// When the system refuses to change how the socket waits.
    #[must_use]
    pub fn has_come(&self) -> bool {
        !self.stream.buffer().is_empty() || matches!(self.peek(), Ok(1..))
    }

    fn peek(&self) -> io::Result<usize> {
        let stream = self.stream.get_ref();
        stream.set_nonblocking(true).expect("the socket is open");
        let came = stream.peek(&mut [0]);
        stream.set_nonblocking(false).expect("the socket is open");
        came
    }

    /// Sends a command and reads its answer.
    ///
    /// # Panics
    /// When the connection ends.
    #[track_caller]
    pub fn ask(&mut self, command: &[&str]) -> Reply {
        self.try_ask(command).unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }

    /// The same, as it comes.
    ///
    /// # Errors
    /// When the connection ends.
    pub fn try_ask(&mut self, command: &[&str]) -> io::Result<Reply> {
        self.try_send(&encoded(command))?;
        self.try_read()
    }

    /// Sends a command.
    ///
    /// # Panics
    /// When the connection ends.
    #[track_caller]
    pub fn tell(&mut self, command: &[&str]) {
        self.send(&encoded(command));
    }

    /// Sends bytes.
    ///
    /// # Panics
    /// When the connection ends.
    #[track_caller]
    pub fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).unwrap_or_else(|error| panic!("{error}"));
    }

    /// The same, as it comes.
    ///
    /// # Errors
    /// When the connection ends.
    pub fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Sends the same again and again until the other side takes no more; bytes that were taken.
    ///
    /// # Panics
    /// When the system knows no such time.
    pub fn send_until_blocked(&mut self, bytes: &[u8], patience: Duration) -> usize {
        let stream = self.stream.get_mut();
        stream.set_write_timeout(Some(patience)).expect("it is not zero");
        let (begun, mut sent) = (Instant::now(), 0);
        while begun.elapsed() < Duration::from_secs(10) {
            match stream.write(bytes) {
                Ok(count) => sent += count,
                Err(_) => break,
            }
        }
        sent
    }

    /// The next answer.
    ///
    /// # Panics
    /// When the connection ends.
    #[track_caller]
    pub fn read(&mut self) -> Reply {
        self.try_read().unwrap_or_else(|error| panic!("no answer: {error}"))
    }

    /// The same, as it comes.
    ///
    /// # Errors
    /// When the connection ends, also in the middle of a line.
    ///
    /// # Panics
    /// When it is no RESP2, and none of what RESP3 has instead for collections and for nothing.
    pub fn try_read(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 || !line.ends_with("\r\n") {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (tag, text) = line.trim_end().split_at(1);
        let number = || text.parse::<i64>().unwrap_or_else(|_| panic!("what is that? {line:?}"));
        let length = || usize::try_from(number()).expect("a length");
        Ok(match tag {
            "+" => Reply::Simple(text.to_owned()),
            "-" => Reply::Error(text.to_owned()),
            ":" => Reply::Integer(number()),
            "$" | "*" if text == "-1" => Reply::Null,
            "_" => Reply::Null,
            "$" => {
                let mut bytes = vec![0; length() + 2];
                self.stream.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Reply::Bulk(bytes)
            }
            "*" | "~" => Reply::Array(self.items(length())?),
            "%" => Reply::Array(self.items(2 * length())?),
            ">" => Reply::Push(self.items(length())?),
            _ => panic!("what is that? {line:?}"),
        })
    }

    fn items(&mut self, count: usize) -> io::Result<Vec<Reply>> {
        (0..count).map(|_| self.try_read()).collect()
    }

    /// Ends the connection in both directions.
    pub fn close(&self) {
        let _ = self.stream.get_ref().shutdown(Shutdown::Both); // it may have ended
    }

    /// What comes until the other side closes.
    ///
    /// # Panics
    /// When it resets the connection instead.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.stream.read_to_end(&mut bytes).expect("an orderly end");
        bytes
    }

    /// Waits until the other side ends the connection in whatever way.
    pub fn rest_or_reset(&mut self) {
        let _ = self.stream.read_to_end(&mut Vec::new());
    }
}

/// A command as an array of bulk strings.
#[must_use]
pub fn encoded(command: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", command.len());
    for part in command {
        bytes.push_str(&format!("${}\r\n{part}\r\n", part.len()));
    }
    bytes.into_bytes()
}

/// What a server holds: by key, the value and when it expires.
pub type State = BTreeMap<String, (Reply, Reply)>;

/// What a server holds; members of sets and fields of hashes in order. Evenkeel's own keys are left
/// out, and what expires meanwhile.
///
/// # Panics
/// When a key is of a kind that no test writes.
pub fn contents(client: &mut Client) -> State {
    let Reply::Array(keys) = client.ask(&["KEYS", "*"]) else { panic!("no KEYS") };
    let mut all = State::new();
    for key in keys.iter().map(|key| key.text().expect("a key that is a text")) {
        if key.starts_with("evenkeel:") {
            continue;
        }
        let Reply::Simple(kind) = client.ask(&["TYPE", key]) else { panic!("no TYPE") };
        let mut value = match kind.as_str() {
            "string" => client.ask(&["GET", key]),
            "list" => client.ask(&["LRANGE", key, "0", "-1"]),
            "hash" => client.ask(&["HGETALL", key]),
            "set" => client.ask(&["SMEMBERS", key]),
            "stream" => client.ask(&["XRANGE", key, "-", "+"]),
            "zset" => client.ask(&["ZRANGE", key, "0", "-1", "WITHSCORES"]),
            "none" => continue, // it expired between the two
            other => panic!("{key} is a {other}"),
        };
        if let Reply::Array(items) = &mut value {
            match kind.as_str() {
                "set" => items.sort(),
                "hash" => {
                    let mut pairs: Vec<Vec<Reply>> =
                        items.chunks(2).map(<[Reply]>::to_vec).collect();
                    pairs.sort();
                    *items = pairs.concat();
                }
                _ => {}
            }
        }
        let expires = client.ask(&["PEXPIRETIME", key]);
        all.insert(key.to_owned(), (value, expires));
    }
    all
}
