//! Real Redis servers, and fronts that are processes of their own, so that they can be killed and
//! stopped.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::http;
use evenkeel_testkit::program::Program;
use evenkeel_testkit::redis::{self, Client, Redis, State, contents};
use evenkeel_testkit::story::{nobody, skipped};
use evenkeel_testkit::wait::{PATIENCE, block_until as until};

use crate::common::PROGRAM;

/// `evenkeel run` before them.
pub(crate) struct Front {
    pub(crate) address: SocketAddr,
    pub(crate) admin: Admin,
    config: PathBuf,
    pub(crate) directory: PathBuf,
    journal: PathBuf,
    /// Further variables of its environment.
    pub(crate) environment: Vec<(String, PathBuf)>,
    pub(crate) process: Program,
}

impl Front {
    pub(crate) fn start(&mut self) {
        let journal = File::options().create(true).append(true).open(&self.journal).unwrap();
        self.process = Program::start(
            Command::new(PROGRAM)
                .args(["run", "--log", "info"])
                .arg(&self.config)
                .envs(self.environment.iter().map(|(name, value)| (name, value)))
                .stdout(journal.try_clone().unwrap())
                .stderr(journal),
        );
        until("the front listens", || {
            assert!(!self.process.has_ended(), "the front ended:\n{}", self.journal());
            TcpStream::connect(self.address).is_ok()
        });
    }

    /// Starts it where it must refuse to run; what it said.
    pub(crate) fn started_in_vain(&mut self) -> String {
        let output =
            Command::new("timeout").args(["5", PROGRAM, "run"]).arg(&self.config).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "it runs: {output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// It reaches this server by another way.
    pub(crate) fn replace_in_config(&self, server: SocketAddr, by: SocketAddr) {
        self.replace_words(&server.to_string(), &by.to_string());
    }

    /// Its configuration says this instead of that.
    pub(crate) fn replace_words(&self, words: &str, by: &str) {
        let text = std::fs::read_to_string(&self.config).unwrap();
        assert!(text.contains(words), "{words:?} is nowhere in {text}");
        std::fs::write(&self.config, text.replace(words, by)).unwrap();
    }

    /// What it said, for people.
    pub(crate) fn journal(&self) -> String {
        std::fs::read_to_string(&self.journal).unwrap_or_default()
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address)
    }

    pub(crate) fn info(&self) -> String {
        let asked = Client::try_connect(self.address, PATIENCE);
        let info = asked.and_then(|mut client| client.try_ask(&["INFO"]));
        info.ok().and_then(|info| info.text().map(str::to_owned)).unwrap_or_default()
    }

    pub(crate) fn live(&self) -> usize {
        self.info().matches("state=in-sync").count()
    }

    pub(crate) fn wait_live(&self, count: usize) {
        let begun = Instant::now();
        while self.live() < count {
            if begun.elapsed() > PATIENCE {
                panic!("{count} are not live:\n{}\n{}", self.info(), self.journal());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until all are live and nobody owes an answer.
    pub(crate) fn settle(&self, count: usize) {
        self.wait_live(count);
        until("all is answered", || self.info().matches("pending=0").count() == count);
    }

    /// What part it has: `alone`, `leads` or `stands by`.
    pub(crate) fn has_role(&self, role: &str) -> bool {
        self.api().contains(&format!("\"role\":\"{role}\""))
    }

    /// `/api/v1/duplicates`, as text.
    pub(crate) fn api(&self) -> String {
        http::try_get(self.admin.0, "/api/v1/duplicates").unwrap_or_default()
    }

    /// Writes that duplicates answered differently, as the API has it.
    pub(crate) fn disagreements(&self) -> u64 {
        std::thread::sleep(Duration::from_millis(250)); // it is told ten times a second
        let answer = self.api();
        let (_, rest) = answer.split_once("\"disagreements\":").expect(&answer);
        let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
        digits.parse().expect(&answer)
    }
}

/// Where a front is administered.
#[derive(Clone, Copy)]
pub(crate) struct Admin(pub(crate) SocketAddr);

impl Admin {
    /// Gives an order; the status and what was said. `None` while the front is away.
    pub(crate) fn order(&self, json: &str) -> Option<(u16, String)> {
        let answer = http::try_post(self.0, "/api/v1/duplicates/chaos/moves", json).ok()?;
        let status = answer.split(' ').nth(1)?.parse().ok()?;
        Some((status, answer.split_once("\r\n\r\n")?.1.to_owned()))
    }

    /// How changes stand.
    pub(crate) fn moves(&self) -> Option<serde_json::Value> {
        let answer = http::try_get(self.0, "/api/v1/duplicates/chaos/moves").ok()?;
        serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
    }

    /// Waits until no change is under way and nothing is left where shards were.
    pub(crate) fn wait_moved(&self) {
        until("moves end", || {
            std::thread::sleep(Duration::from_millis(120)); // it is told ten times a second
            self.moves().is_some_and(|it| it["now"].is_null() && it["left"] == 0)
        });
    }
}

pub(crate) struct World {
    pub(crate) redises: Vec<Redis>,
    pub(crate) partitions: Vec<Vec<SocketAddr>>,
    pub(crate) front: Front,
    settings: String,
    folder: Folder,
}

impl World {
    /// Three duplicates and a front with these further lines of its table. `None`, said aloud,
    /// where Redis is not installed.
    pub(crate) fn start(name: &str, settings: &str) -> Option<Self> {
        let mut world = Self::of(name, settings, &[3], 0)?;
        world.front.start();
        world.front.wait_live(3);
        Some(world)
    }

    /// So many duplicates of each partition, and further servers that are none; not started.
    pub(crate) fn of(
        name: &str,
        settings: &str,
        partitions: &[usize],
        spares: usize,
    ) -> Option<Self> {
        if let Err(missing) = redis::possible() {
            skipped(&missing);
            return None;
        }
        let folder = Folder::new(&format!("chaos-{name}"));
        let count = partitions.iter().sum::<usize>();
        let redises: Vec<Redis> =
            (0..count + spares).map(|n| Redis::new(folder.file(&format!("redis-{n}")))).collect();
        let mut rest = &redises[..];
        let of = |&count: &usize| {
            let (these, others) = rest.split_at(count);
            rest = others;
            these.iter().map(|redis| redis.address).collect()
        };
        let partitions: Vec<Vec<SocketAddr>> = partitions.iter().map(of).collect();
        let front = describe(&folder, "one", &partitions, settings);
        let settings = settings.to_owned();
        Some(Self { redises, partitions, front, settings, folder })
    }

    /// Another front before the same duplicates, with its own log, not started.
    pub(crate) fn other_front(&self, name: &str) -> Front {
        describe(&self.folder, name, &self.partitions, &self.settings)
    }

    /// All duplicates hold the same: what they hold.
    pub(crate) fn converged(&self) -> State {
        self.converged_or(|| self.front.journal())
    }

    /// The same; otherwise this is said besides.
    pub(crate) fn converged_or(&self, journals: impl FnOnce() -> String) -> State {
        let states: Vec<State> = self.redises.iter().map(|it| contents(&mut it.client())).collect();
        if let Err(why) = equal(&states) {
            panic!("{why}\n{}", journals());
        }
        states.into_iter().next().unwrap()
    }

    /// All duplicates of a partition hold the same, and no key is in two: what all hold together.
    pub(crate) fn converged_in(&self, partitions: &[Vec<SocketAddr>]) -> State {
        let mut all = State::new();
        for addresses in partitions {
            let states: Vec<State> =
                addresses.iter().map(|&address| contents(&mut Client::connect(address))).collect();
            if let Err(why) = equal(&states) {
                panic!("{why}\n{}", self.front.journal());
            }
            for (key, value) in states.into_iter().next().unwrap_or_default() {
                let twice = all.insert(key.clone(), value);
                assert!(twice.is_none(), "{key} is in two partitions\n{}", self.front.journal());
            }
        }
        all
    }
}

fn describe(folder: &Folder, name: &str, partitions: &[Vec<SocketAddr>], settings: &str) -> Front {
    let (address, admin) = (nobody(), nobody());
    let directory = folder.file(&format!("{name}-log"));
    let lists: Vec<Vec<String>> =
        partitions.iter().map(|it| it.iter().map(SocketAddr::to_string).collect()).collect();
    let text = format!(
        "[admin]\naddress = \"{admin}\"\n\n[duplicates.chaos]\nlisten = \"{address}\"\n\
         directory = \"{}\"\nstore = \"redis\"\npartitions = {lists:?}\n{settings}\n",
        directory.display(),
    );
    let config = folder.file(&format!("{name}.toml"));
    std::fs::write(&config, text).unwrap();
    let journal = folder.file(&format!("{name}.txt"));
    let (admin, environment, process) = (Admin(admin), Vec::new(), Program::default());
    Front { address, admin, config, directory, journal, environment, process }
}

/// Whether all are the same; otherwise the first keys that differ.
pub(crate) fn equal(states: &[State]) -> Result<(), String> {
    let mut differences = Vec::new();
    let keys: std::collections::BTreeSet<&String> = states.iter().flat_map(State::keys).collect();
    for key in keys {
        let values: Vec<_> = states.iter().map(|state| state.get(key)).collect();
        if values.windows(2).any(|pair| pair[0] != pair[1]) {
            differences.push(format!("{key}: {values:?}"));
        }
    }
    if differences.is_empty() {
        return Ok(());
    }
    let count = differences.len();
    differences.truncate(5);
    Err(format!("{count} keys differ between duplicates:\n{}", differences.join("\n")))
}

/// A way to a server that takes so long in each direction, for as long as the test runs.
pub(crate) fn relay(server: SocketAddr, delay: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            // One that is not there yet: the client's connection ends, as it would without this.
            let Ok(server) = TcpStream::connect(server) else { continue };
            for (mut from, mut to) in [
                (client.try_clone().unwrap(), server.try_clone().unwrap()),
                (server.try_clone().unwrap(), client.try_clone().unwrap()),
            ] {
                std::thread::spawn(move || {
                    let mut buffer = [0; 65_536];
                    while let Ok(count @ 1..) = from.read(&mut buffer) {
                        std::thread::sleep(delay);
                        if to.write_all(&buffer[..count]).is_err() {
                            break;
                        }
                    }
                    let _ = to.shutdown(std::net::Shutdown::Both); // it may be gone
                });
            }
        }
    });
    address
}
