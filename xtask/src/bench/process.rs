//! Servers as child processes: ports, start, readiness, CPU time, and a certain end.
//!
//! Every server and the load generator are plain children of this process, in its session. The
//! end comes from [`Server`]'s drop, from the terminal (Ctrl-C reaches all of them), or, when this
//! process is killed, from the kernel: `setpriv --pdeathsig` (util-linux) asks it to.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::workspace;

const START_LIMIT: Duration = Duration::from_secs(60); // callgrind takes its time
const STOP_LIMIT: Duration = Duration::from_secs(3);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A folder for configurations and logs, and ports that are free.
pub(crate) struct Workbench {
    folder: PathBuf,
    ports: Vec<u16>,
}

impl Workbench {
    /// For the benchmark called `name`.
    pub(crate) fn create(name: &str, port_count: usize) -> Result<Self> {
        let name = format!("bench-{name}-{}", std::process::id());
        let folder = workspace::target().join("xtask").join(name);
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {folder:?}"))?;
        Ok(Self { folder, ports: free_ports(port_count)? })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// Writes a file for a server and returns its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {path:?}"))?;
        Ok(path)
    }
}

impl Drop for Workbench {
    fn drop(&mut self) {
        // A folder left behind lies under target/ and harms nobody.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Where ports are looked for: below those that the system gives to whoever connects, and above
/// those of tests, so that what is free now still is when a server is started, also anew.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Ports where nobody listens. No other call gets one of them, of this process or of another while
/// this one lives.
pub(crate) fn free_ports(count: usize) -> Result<Vec<u16>> {
    static OURS: Mutex<Vec<File>> = Mutex::new(Vec::new());
    let folder = std::env::temp_dir().join("evenkeel-ports");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {folder:?}"))?;
    let (many, mut all) = (PORTS.len(), Vec::new());
    let first = std::process::id() as usize % 100 * (many / 100);
    for port in (0..many).filter_map(|tried| PORTS.clone().nth((first + tried) % many)) {
        if all.len() == count {
            break;
        }
        let Some(file) = lock(&folder.join(port.to_string()))? else { continue };
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            OURS.lock().unwrap_or_else(PoisonError::into_inner).push(file);
            all.push(port);
        }
    }
    if all.len() < count {
        bail!("{count} free ports are needed, 127.0.0.1 has {} from {PORTS:?}", all.len());
    }
    Ok(all)
}

/// Has a file for this process alone, as long as it is open; `None` where another one has it.
pub(crate) fn lock(path: &Path) -> Result<Option<File>> {
    let file = File::options().create(true).append(true).open(path);
    let file = file.with_context(|| format!("cannot open {path:?}"))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot lock {path:?}")),
    }
}

/// A command for a child that ends when this process does.
pub(crate) fn child(program: &Path) -> Command {
    let mut command = match workspace::find_program("setpriv") {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "TERM"]).arg(program);
            command
        }
        None => Command::new(program),
    };
    command.stdin(Stdio::null());
    command
}

/// A child that runs as soon as it can, as on a machine of its own: before all that is not such a
/// child. `nice` alone does not do that: who is running keeps the processor until its slice ends
/// (EEVDF), and the way with more processes waits more often. Where it is not allowed, `nice` goes
/// as far as it may.
pub(crate) fn first_child(program: &Path) -> Command {
    static FIRST: LazyLock<(&str, [&str; 2])> = LazyLock::new(|| {
        let real_time = ("chrt", ["--rr", "1"]);
        let mut tried = Command::new(real_time.0);
        let tried = tried.args(real_time.1).arg("true").stderr(Stdio::null()).status();
        if tried.is_ok_and(|status| status.success()) { real_time } else { ("nice", ["-n", "-10"]) }
    });
    let mut command = child(Path::new(FIRST.0));
    command.args(FIRST.1).arg(program);
    command
}

/// All that a program says about its version.
pub(crate) fn version_of(name: &str, program: &Path, flag: &str) -> Result<String> {
    let output = Command::new(program).arg(flag).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot ask {name} for its version"))?;
    Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

/// What `127.0.0.1:port` answers to a GET of `path`, head and body.
pub(crate) fn get(port: u16, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let head =
        format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// A server that listens; stopped when dropped.
pub(crate) struct Server {
    name: String,
    port: u16,
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts `program` and waits until it accepts connections on `port`.
    ///
    /// # Errors
    /// When it cannot be started, ends early, or does not listen in time; with its own words.
    pub(crate) fn start(
        bench: &Workbench,
        name: &str,
        port: u16,
        program: &Path,
        arguments: &[&str],
    ) -> Result<Self> {
        let mut command = child(program);
        Self::of(bench, name, port, command.args(arguments))
    }

    /// As [`Self::start`], of a command.
    pub(crate) fn of(
        bench: &Workbench,
        name: &str,
        port: u16,
        command: &mut Command,
    ) -> Result<Self> {
        let log = bench.folder().join(format!("{name}.log"));
        let output = File::create(&log).with_context(|| format!("cannot create {log:?}"))?;
        let child = command
            .current_dir(bench.folder())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("{name} ({command:?}) could not be started"))?;
        let mut server = Self { name: name.to_owned(), port, child, log };
        server.wait_until_listening()?;
        Ok(server)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Its process, where nothing was started by it.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    fn wait_until_listening(&mut self) -> Result<()> {
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            self.check_alive()?;
            if start.elapsed() > START_LIMIT {
                let name = &self.name;
                bail!("{name} does not listen on port {} after {START_LIMIT:?}", self.port);
            }
            sleep(POLL_INTERVAL);
        }
        // Another program may have taken the port in between.
        self.check_alive()
    }

    /// # Errors
    /// When the process has ended; with what it wrote.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            let words = std::fs::read_to_string(&self.log).unwrap_or_default();
            bail!("{} ended by itself ({status}) and said: {}", self.name, words.trim());
        }
        Ok(())
    }

    /// CPU time, in nanoseconds, spent so far by all living threads of the process and of its
    /// descendants. Threads that ended are no longer counted, so a server must keep its threads.
    ///
    /// # Errors
    /// When the process is gone or the kernel keeps no scheduler statistics.
    pub(crate) fn cpu_ns(&self) -> Result<u64> {
        let processes = family(self.child.id());
        processes.iter().try_fold(0, |sum, process| Ok(sum + process_cpu_ns(*process)?))
    }

    /// Resident memory of the process and of its descendants, in KiB.
    ///
    /// # Errors
    /// When the process is gone.
    pub(crate) fn memory_kib(&self) -> Result<u64> {
        family(self.child.id()).into_iter().try_fold(0, |sum, process| {
            let path = format!("/proc/{process}/status");
            let text = std::fs::read_to_string(&path).with_context(|| format!("no {path}"))?;
            let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            let size = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
            Ok(sum + size.with_context(|| format!("{path}: no VmRSS"))?)
        })
    }
}

impl Drop for Server {
    /// A polite end first: a master process that is killed leaves its workers behind.
    fn drop(&mut self) {
        let family = family(self.child.id());
        signal("TERM", self.child.id());
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && start.elapsed() < STOP_LIMIT {
            sleep(POLL_INTERVAL);
        }
        // Both fail when the process is gone, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
        for process in &family[1..] {
            end_orphan(*process, self.child.id());
        }
    }
}

/// Ends a former descendant that outlived its master by more than a moment.
fn end_orphan(process: u32, master: u32) {
    let start = Instant::now();
    while start.elapsed() < STOP_LIMIT {
        if !Path::new(&format!("/proc/{process}")).exists() || process == master {
            return;
        }
        sleep(POLL_INTERVAL);
    }
    signal("KILL", process);
}

/// Sends a signal by way of the shell: the standard library can only kill.
fn signal(name: &str, process: u32) {
    let command = format!("kill -{name} {process} 2>/dev/null");
    // Failure means that the process is gone.
    let _ = Command::new("sh").args(["-c", &command]).stdin(Stdio::null()).status();
}

/// `process` first, then its descendants.
fn family(process: u32) -> Vec<u32> {
    let mut family = vec![process];
    let mut next = 0;
    while next < family.len() {
        family.extend(children(family[next]));
        next += 1;
    }
    family
}

fn children(process: u32) -> Vec<u32> {
    let lists = threads(process).into_iter().filter_map(|thread| {
        std::fs::read_to_string(format!("/proc/{process}/task/{thread}/children")).ok()
    });
    lists.flat_map(|list| numbers(&list)).collect()
}

fn threads(process: u32) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{process}/task")) else {
        return Vec::new();
    };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

fn process_cpu_ns(process: u32) -> Result<u64> {
    let mut sum = 0;
    for thread in threads(process) {
        let path = format!("/proc/{process}/task/{thread}/schedstat");
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("{path}: the kernel keeps no scheduler statistics"))?;
        let first = text.split_whitespace().next().and_then(|word| word.parse::<u64>().ok());
        sum += first.with_context(|| format!("{path}: got `{text}`, expected nanoseconds"))?;
    }
    Ok(sum)
}

fn numbers(text: &str) -> Vec<u32> {
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_differ() {
        let mut ports = free_ports(20).unwrap();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 20);
    }

    #[test]
    fn a_port_that_was_given_is_given_to_nobody_else() {
        let mut given = free_ports(5).unwrap(); // nobody listens there
        given.extend(free_ports(5).unwrap());
        given.sort_unstable();
        given.dedup();
        assert_eq!(given.len(), 10);
        let file = std::env::temp_dir().join("evenkeel-ports").join(given[0].to_string());
        assert!(lock(&file).unwrap().is_none(), "another process finds it taken");
    }

    #[test]
    fn cpu_time_is_that_of_the_work_done() {
        // A child: the threads of this process are other tests, which end when they like.
        let mut child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let before = process_cpu_ns(child.id()).unwrap();
        let start = Instant::now();
        let mut spent = 0;
        // A busy machine may take long to give it this much.
        while spent <= 5_000_000 && start.elapsed() < Duration::from_secs(5) {
            sleep(POLL_INTERVAL);
            spent = process_cpu_ns(child.id()).unwrap() - before;
        }
        let wall = start.elapsed();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(spent > 5_000_000, "{spent} ns in {wall:?}");
        assert!(spent <= wall.as_nanos() as u64 + 20_000_000, "{spent} ns in {wall:?}: one thread");
    }

    #[test]
    fn a_family_is_a_process_and_its_descendants() {
        let mut child = Command::new("sh").args(["-c", "sleep 5 & wait"]).spawn().unwrap();
        let start = Instant::now();
        while family(child.id()).len() < 2 && start.elapsed() < Duration::from_secs(5) {
            sleep(POLL_INTERVAL);
        }
        let family = family(child.id());
        assert_eq!(family[0], child.id());
        assert_eq!(family.len(), 2, "{family:?}");
        signal("KILL", family[1]);
        child.wait().unwrap();
    }

    #[test]
    fn a_server_that_ends_is_an_error_with_its_own_words() {
        let bench = Workbench::create("test", 1).unwrap();
        let shell = workspace::find_program("sh").unwrap();
        let arguments = ["-c", "echo the config is wrong; exit 3"];
        let outcome = Server::start(&bench, "test", bench.ports()[0], &shell, &arguments);
        let error = outcome.err().unwrap().to_string();
        assert!(error.contains("the config is wrong") && error.contains("3"), "{error}");
    }
}
