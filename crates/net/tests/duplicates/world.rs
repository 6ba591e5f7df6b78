//! Real Redis servers, and one service before them.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_core::request::ordered::{Consistency, MembersConfig};
use evenkeel_net::clock::Clock;
use evenkeel_net::duplicates::client::Entrance;
use evenkeel_net::duplicates::layout::MapPlace;
use evenkeel_net::duplicates::log::LogSettings;
use evenkeel_net::duplicates::orders::{NotTaken, Order};
use evenkeel_net::duplicates::{Control, DuplicatesConfig, DuplicatesState, Service, Target};
use evenkeel_net::http::engine::worker_runtime;
use evenkeel_net::resp::request::Limits;
use tokio::sync::watch;

use super::client::{Client, Reply};

const REDIS: &str = "/usr/bin/redis-server";

pub struct Redis {
    pub address: SocketAddr,
    directory: PathBuf,
    child: Option<Child>,
}

impl Redis {
    fn new(directory: PathBuf) -> Self {
        std::fs::create_dir_all(&directory).unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut redis = Self { address, directory, child: None };
        redis.start();
        redis
    }

    pub fn start(&mut self) {
        let child = Command::new(REDIS)
            .args(["--port", &self.address.port().to_string(), "--bind", "127.0.0.1"])
            .args(["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""])
            .arg("--dir")
            .arg(&self.directory)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        self.child = Some(child);
        let begun = Instant::now();
        while std::net::TcpStream::connect(self.address).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(10), "redis does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// What it had on disk is gone.
    pub fn wipe(&self) {
        std::fs::remove_dir_all(&self.directory).unwrap();
        std::fs::create_dir_all(&self.directory).unwrap();
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// Its number in the system.
    pub fn process(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

struct Running {
    stop: watch::Sender<bool>,
    thread: Option<std::thread::JoinHandle<std::io::Result<()>>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join().unwrap();
            if !std::thread::panicking() {
                ended.unwrap();
            }
        }
    }
}

fn place(name: &str) -> PathBuf {
    let id = std::process::id();
    let directory = std::env::temp_dir().join(format!("evenkeel-duplicates-{name}-{id}"));
    let _ = std::fs::remove_dir_all(&directory);
    directory
}

fn config(name: &str, partitions: Vec<Vec<Target>>, directory: &Path) -> DuplicatesConfig {
    DuplicatesConfig {
        name: name.to_owned(),
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        partitions,
        shards: 16,
        consistency: Consistency::default(),
        read_copies: 64,
        members: MembersConfig::default(),
        log_directory: directory.join("log"),
        map: MapPlace::File(directory.join("layout")),
        spares: Vec::new(),
        log: LogSettings::default(),
        password: None,
        limits: Limits::default(),
        clients_max: 1_000,
        idle_max: None,
        etcd: None,
        manager: None,
    }
}

pub struct World {
    pub redises: Vec<Redis>,
    pub address: SocketAddr,
    config: DuplicatesConfig,
    state: Option<watch::Receiver<Arc<DuplicatesState>>>,
    pub entrance: Option<Entrance>,
    control: Option<Control>,
    running: Option<Running>,
    directory: PathBuf,
    /// Duplicates that must be live before a test goes on.
    pub expected: usize,
}

impl World {
    /// One partition of so many duplicates. `None`, said aloud, where Redis is not installed.
    pub fn start(
        name: &str,
        duplicates: usize,
        change: impl FnOnce(&mut DuplicatesConfig),
    ) -> Option<Self> {
        Self::with_spares(name, duplicates, 0, change)
    }

    /// Further servers that are no duplicates yet.
    pub fn with_spares(
        name: &str,
        duplicates: usize,
        spares: usize,
        change: impl FnOnce(&mut DuplicatesConfig),
    ) -> Option<Self> {
        if !Path::new(REDIS).exists() {
            println!("SKIPPED: {REDIS} is missing (apt-get install redis-server)");
            return None;
        }
        let directory = place(name);
        let redises: Vec<Redis> = (0..duplicates + spares)
            .map(|n| Redis::new(directory.join(format!("redis-{n}"))))
            .collect();
        let target = |redis: &Redis| Target::Tcp { address: redis.address, password: None };
        let partitions = vec![redises[..duplicates].iter().map(target).collect()];
        let mut config = config(name, partitions, &directory);
        config.spares = redises[duplicates..].iter().map(target).collect();
        Some(Self::run(redises, duplicates, config, directory, change))
    }

    /// Duplicates that somebody else keeps; begins when so many are live.
    pub fn over(
        name: &str,
        partitions: Vec<Vec<Target>>,
        expected: usize,
        change: impl FnOnce(&mut DuplicatesConfig),
    ) -> Self {
        let directory = place(name);
        let config = config(name, partitions, &directory);
        Self::run(Vec::new(), expected, config, directory, change)
    }

    fn run(
        redises: Vec<Redis>,
        expected: usize,
        mut config: DuplicatesConfig,
        directory: PathBuf,
        change: impl FnOnce(&mut DuplicatesConfig),
    ) -> Self {
        change(&mut config);
        let address = config.listen;
        let (state, running) = (None, None);
        let (entrance, control) = (None, None);
        let mut world = Self {
            redises,
            address,
            config,
            state,
            entrance,
            control,
            running,
            directory,
            expected,
        };
        world.restart();
        world
    }

    /// Ends the front.
    pub fn stop(&mut self) {
        self.running = None;
    }

    /// Starts the front, after ending the one that runs.
    pub fn restart(&mut self) {
        self.running = None;
        let service = Service::open(&self.config).unwrap();
        self.address = service.address().unwrap();
        self.state = Some(service.state());
        self.entrance = Some(service.entrance());
        self.control = Some(service.control());
        let (stop, stopping) = watch::channel(false);
        let thread = std::thread::spawn(move || {
            worker_runtime()?.block_on(service.run(Clock::start(), async move {
                let mut stopping = stopping;
                let _ = stopping.wait_for(|stop| *stop).await;
            }))
        });
        self.running = Some(Running { stop, thread: Some(thread) });
        self.wait_live(self.expected, Duration::from_secs(20));
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// What the service says of itself.
    pub fn state(&self) -> Arc<DuplicatesState> {
        Arc::clone(&self.state.as_ref().unwrap().borrow())
    }

    /// Gives an order and waits for its end; else why it was not taken, or was given up.
    pub fn order(&self, order: Order) -> Result<(), String> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let taken = runtime.block_on(self.control.as_ref().unwrap().order(order));
        let before = taken.map_err(|why| match why {
            NotTaken::Busy(why) | NotTaken::Impossible(why) => why,
        })?;
        let begun = Instant::now();
        loop {
            std::thread::sleep(Duration::from_millis(10));
            let now = self.state();
            if now.moves.done + now.moves.failed > before.done + before.failed {
                let last = now.moves.last.as_ref().unwrap();
                return last.trouble.clone().map_or(Ok(()), Err);
            }
            assert!(begun.elapsed() < Duration::from_secs(40), "it does not end: {now:#?}");
        }
    }

    /// Who holds each shard, once that is told.
    pub fn owners(&self) -> Vec<u16> {
        let begun = Instant::now();
        loop {
            let owners = self.state().moves.owners.clone();
            if !owners.is_empty() {
                return owners;
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "nobody tells who holds what");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Duplicates that are live, as the front says.
    pub fn live(&self) -> usize {
        let Reply::Bulk(info) = self.client().ask(&["INFO"]) else { panic!("no INFO") };
        String::from_utf8(info).unwrap().matches("standing=live").count()
    }

    pub fn wait_live(&self, count: usize, patience: Duration) {
        let begun = Instant::now();
        while self.live() < count {
            if begun.elapsed() > patience {
                let Reply::Bulk(info) = self.client().ask(&["INFO"]) else { panic!("no INFO") };
                let info = String::from_utf8(info).unwrap();
                panic!("{count} duplicates are not live after {patience:?}:\n{info}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until nobody owes an answer.
    pub fn settle(&self) {
        let begun = Instant::now();
        loop {
            let Reply::Bulk(info) = self.client().ask(&["INFO"]) else { panic!("no INFO") };
            let info = String::from_utf8(info).unwrap();
            let duplicates = info.lines().filter(|line| line.starts_with("duplicate"));
            if duplicates.clone().count() > 0 && duplicates.clone().all(|it| it.ends_with("owes=0"))
            {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "never settled: {info}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What the duplicates hold, each different state once.
    pub fn states(&self) -> BTreeSet<Vec<(Vec<u8>, Reply)>> {
        self.redises.iter().map(|redis| state(&mut redis.client())).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.running = None;
        self.redises.clear();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Every key with its value and when it expires, in order.
fn state(client: &mut Client) -> Vec<(Vec<u8>, Reply)> {
    let Reply::Array(keys) = client.ask(&["KEYS", "*"]) else { panic!("no KEYS") };
    let mut keys: Vec<Vec<u8>> = keys
        .into_iter()
        .filter_map(|key| match key {
            Reply::Bulk(key) if !key.starts_with(b"evenkeel:") => Some(key),
            _ => None,
        })
        .collect();
    keys.sort();
    let value = |key: Vec<u8>| {
        let name = String::from_utf8(key.clone()).unwrap();
        let value = match client.ask(&["TYPE", &name]) {
            Reply::Simple(kind) if kind == "string" => client.ask(&["GET", &name]),
            Reply::Simple(kind) if kind == "list" => client.ask(&["LRANGE", &name, "0", "-1"]),
            Reply::Simple(kind) if kind == "hash" => {
                let Reply::Array(all) = client.ask(&["HGETALL", &name]) else { panic!("no hash") };
                let mut pairs: Vec<[Reply; 2]> =
                    all.chunks(2).map(|pair| [pair[0].clone(), pair[1].clone()]).collect();
                pairs.sort();
                Reply::Array(pairs.into_iter().flatten().collect())
            }
            other => panic!("{name} is {other:?}"),
        };
        let expires = client.ask(&["PEXPIRETIME", &name]);
        (key, Reply::Array(vec![value, expires]))
    };
    keys.into_iter().map(value).collect()
}
