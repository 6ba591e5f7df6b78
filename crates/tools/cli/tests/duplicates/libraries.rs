//! Libraries of Redis in other languages: programs beside this file that do what clients do, and
//! then count without end while processes go.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use evenkeel_testkit::redis::{Client, Reply};
use evenkeel_testkit::story::skipped;
use evenkeel_testkit::wait::{PATIENCE, block_for, block_until as until};

/// How lines begin that say that nothing is wrong.
const WORDS: [&str; 7] = ["did", "ready", "ok", "error", "heard", "popped", "waited"];

/// What shows that a program is served: acknowledged commands, messages, pops.
const PROGRESS: [&str; 3] = ["ok", "heard", "popped"];

/// A program that counts by one library.
pub(crate) struct Load {
    pub(crate) name: &'static str,
    child: Child,
    stdin: Option<ChildStdin>,
    said: Arc<Mutex<Vec<String>>>,
    /// Whether it also tells what it hears and pops.
    tells: bool,
}

impl Load {
    fn start(
        (name, how): (&'static str, How),
        command: &mut Command,
        doors: &[SocketAddr],
    ) -> Self {
        command.args(doors.iter().map(SocketAddr::to_string));
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.unwrap_or_else(|error| panic!("{name}: {command:?}: {error}"));
        let (said, out) = (Arc::<Mutex<Vec<String>>>::default(), child.stdout.take().unwrap());
        let heard = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                heard.lock().unwrap().push(line);
            }
            heard.lock().unwrap().push("over: it has ended".to_owned()); // why is above, on stderr
        });
        let stdin = child.stdin.take();
        Self { name, child, stdin, said, tells: how != How::Cluster }
    }

    fn has_said(&self, line: &str) -> bool {
        self.said.lock().unwrap().iter().any(|said| said == line)
    }

    pub(crate) fn acknowledged(&self) -> usize {
        self.count("ok")
    }

    /// How many lines begin with this word.
    pub(crate) fn count(&self, word: &str) -> usize {
        self.said.lock().unwrap().iter().filter(|line| first(line) == word).count()
    }

    fn progress(&self) -> [usize; 3] {
        PROGRESS.map(|word| self.count(word))
    }

    /// Waits until it has done its steps: dozens of them, on a busy machine.
    pub(crate) fn wait_ready(&self) {
        let begun = Instant::now();
        while !self.has_said("ready") {
            let said = self.said.lock().unwrap().clone();
            let wrong = said.iter().find(|line| !WORDS.contains(&first(line)));
            assert!(wrong.is_none(), "{}: {said:?}", self.name);
            assert!(begun.elapsed() < 4 * PATIENCE, "{}: not ready: {said:?}", self.name);
            std::thread::sleep(Duration::from_millis(10));
        }
        println!("{}: {} steps done", self.name, self.count("did"));
    }

    /// Commands that failed, in the library's words.
    pub(crate) fn failed(&self) -> Vec<String> {
        let said = self.said.lock().unwrap();
        said.iter().filter(|it| it.starts_with("error ")).cloned().collect()
    }

    /// Lets it finish what it does.
    pub(crate) fn end(&mut self) {
        drop(self.stdin.take());
        until("it ends", || self.has_said("done"));
    }

    /// What was acknowledged is there; `get` reads a key.
    pub(crate) fn check_lost(&self, mut get: impl FnMut(&str) -> Reply) {
        for (key, highest) in self.highest() {
            let value = get(&key);
            let value: i64 = value.text().unwrap_or_default().parse().unwrap_or(0);
            assert!(value >= highest, "{key} is {value}, {highest} was acknowledged");
        }
    }

    /// The highest value that was acknowledged of each key.
    fn highest(&self) -> BTreeMap<String, i64> {
        let mut highest = BTreeMap::new();
        for line in self.said.lock().unwrap().iter().filter(|line| line.starts_with("ok ")) {
            let mut words = line.split(' ').skip(1);
            let (Some(key), Some(value)) = (words.next(), words.next()) else { continue };
            let value: i64 = value.parse().unwrap();
            let known = highest.entry(key.to_owned()).or_insert(value);
            *known = value.max(*known);
        }
        highest
    }
}

fn first(line: &str) -> &str {
    line.split(' ').next().unwrap_or_default()
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How programs find their server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Cluster,
    Plain,
    Sentinel,
}

/// Where `cargo xtask redis-clients` put the libraries; `None`, said aloud, without it.
pub(crate) fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os("EVENKEEL_REDIS_CLIENTS").map(PathBuf::from);
    if folder.is_none() {
        skipped("EVENKEEL_REDIS_CLIENTS is not set (cargo xtask redis-clients)");
    }
    folder
}

const LIBRARIES: [&str; 6] = ["redis-py", "go-redis", "ioredis", "node-redis", "jedis", "lettuce"];

/// The program of a library, and what must be there for it. `None` where there is no such program.
fn program(folder: &Path, name: &str, how: How) -> Option<(Command, PathBuf)> {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/duplicates/clients");
    let is_cluster = how == How::Cluster;
    let of = |cluster: &'static str, plain: &'static str| if is_cluster { cluster } else { plain };
    let (mut command, needs) = match name {
        "redis-py" => {
            let python = folder.join("python/bin/python");
            let mut command = Command::new(&python);
            command.arg(scripts.join(of("cluster.py", "plain.py")));
            (command, python)
        }
        "go-redis" => {
            let go = folder.join("go/bin").join(of("cluster", "plain"));
            (Command::new(&go), go)
        }
        "ioredis" | "node-redis" => {
            let script = match (name, how) {
                ("ioredis", How::Cluster) => "cluster.mjs",
                ("ioredis", _) => "ioredis.mjs",
                (_, How::Cluster) => return None,
                _ => "node_redis.mjs",
            };
            let modules = folder.join("node/node_modules");
            let mut command = Command::new("node");
            command.arg(scripts.join(script)).env("EVENKEEL_NODE_MODULES", &modules);
            (command, modules)
        }
        _ => {
            let java = folder.join("java");
            let path = format!("{0}/classes:{0}/jars/*", java.display());
            let mut command = Command::new("java");
            command.args(["-Xmx128m", "-cp", &path, of("Cluster", "Plain"), name]);
            (command, java)
        }
    };
    match how {
        How::Cluster => &mut command,
        How::Plain => command.arg("plain"),
        How::Sentinel => command.arg("sentinel"),
    };
    Some((command, needs))
}

/// The libraries that are there, below a folder that `cargo xtask redis-clients` fills.
pub(crate) fn loads(
    folder: &Path,
    how: How,
    addresses: &[SocketAddr],
    words: &[(&str, &str)],
) -> Vec<Load> {
    let mut loads = Vec::new();
    for name in LIBRARIES {
        let Some((mut command, needs)) = program(folder, name, how) else { continue };
        if !needs.exists() {
            skipped(&format!("{name}: no {needs:?}"));
            continue;
        }
        command.envs(words.iter().copied());
        loads.push(Load::start((name, how), &mut command, addresses));
    }
    loads
}

/// What the key is, at whoever leads by then: on a busy machine a lease may end without anybody's
/// doing, and connections with it. `at` sends on to who has the key, if it does not.
pub(crate) fn value(mut at: SocketAddr, key: &str) -> Reply {
    block_for(&format!("{key} is told"), || {
        let mut client = Client::try_connect(at, Duration::from_secs(2)).ok()?;
        match client.try_ask(&["GET", key]).ok()? {
            Reply::Error(text) => {
                at = text.strip_prefix("MOVED ")?.rsplit(' ').next()?.parse().ok()?;
                None
            }
            said => Some(said),
        }
    })
}

/// How long each library took until its commands were acknowledged again, and its messages and
/// pops came.
pub(crate) fn wait_served(loads: &[Load], since: Instant, what: &str, most: Duration) {
    let before: Vec<[usize; 3]> = loads.iter().map(Load::progress).collect();
    let mut served = vec![[false; 3]; loads.len()];
    while served.iter().any(|it| it.contains(&false)) {
        for ((load, before), served) in loads.iter().zip(&before).zip(&mut served) {
            let now = load.progress();
            for (n, served) in served.iter_mut().enumerate() {
                let wanted = if load.tells || n == 0 { [10, 1, 1][n] } else { 0 };
                if !*served && now[n] >= before[n] + wanted {
                    *served = true;
                    if wanted > 0 {
                        let word = PROGRESS[n];
                        println!("{what}: {}: {word} after {:?}", load.name, since.elapsed());
                    }
                }
            }
        }
        let late = || {
            let late = loads.iter().zip(&served).filter(|(_, served)| served.contains(&false));
            let late =
                late.map(|(load, it)| (load.name, it, load.said.lock().unwrap().last().cloned()));
            format!("{:?}", late.collect::<Vec<_>>())
        };
        assert!(since.elapsed() < most, "{what}: {}", late());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// How many commands of each failed so far.
pub(crate) fn failures(loads: &[Load]) -> Vec<usize> {
    loads.iter().map(|load| load.failed().len()).collect()
}

/// What failed of each since then, said aloud.
pub(crate) fn told(
    what: &str,
    loads: &[Load],
    before: &[usize],
) -> Vec<(&'static str, Vec<String>)> {
    let since = |(load, before): (&Load, &usize)| (load.name, load.failed().split_off(*before));
    let all: Vec<_> = loads.iter().zip(before).map(since).collect();
    for (name, failed) in &all {
        println!("{what}: {name}: {} failed {:?}", failed.len(), failed.last());
    }
    all
}
