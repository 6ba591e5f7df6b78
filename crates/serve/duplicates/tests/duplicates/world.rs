//! Real Redis servers, and one service before them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_duplicates::changes::ChangeRequest;
use evenkeel_duplicates::client::SessionOpener;
use evenkeel_duplicates::{
    Control, DuplicatesConfig, DuplicatesState, RedisAccess, Service, Target,
};
use evenkeel_runtime::clock::Clock;
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::redis::{self, Client, Redis, State, contents};
use evenkeel_testkit::story::{Running, skipped};
use evenkeel_testkit::wait::{
    PATIENCE, block_for, block_for_within, block_until, block_until_within,
};
use tokio::sync::watch;

use super::config::config;

pub struct World {
    pub redises: Vec<Redis>,
    pub address: SocketAddr,
    config: DuplicatesConfig,
    state: Option<watch::Receiver<Arc<DuplicatesState>>>,
    pub opener: Option<SessionOpener>,
    control: Option<Control>,
    running: Option<Running>,
    /// Where the kernel tells of the service's thread.
    pub thread: PathBuf,
    /// Duplicates that must be live before a test goes on.
    pub expected: usize,
    /// Goes last.
    _directory: Folder,
}

/// Opens a service. A server that another test of this process starts at this very moment holds all
/// files, and their locks, until it is executed.
fn open(config: &DuplicatesConfig) -> Service {
    let begun = Instant::now();
    loop {
        match Service::open(config) {
            Ok(service) => return service,
            Err(error) if error.to_string().contains("is locked by") => {
                assert!(begun.elapsed() < PATIENCE, "{error}");
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => panic!("{error}"),
        }
    }
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
        Self::of(name, (duplicates, spares), (Redis::new, RedisAccess::default()), change)
    }

    /// The same of nodes of Redis Cluster, each with all slots of its own.
    pub fn of_nodes(
        name: &str,
        duplicates: usize,
        change: impl FnOnce(&mut DuplicatesConfig),
    ) -> Option<Self> {
        let access = RedisAccess { is_cluster: true, ..RedisAccess::default() };
        Self::of(name, (duplicates, 0), (Redis::node, access), change)
    }

    fn of(
        name: &str,
        (duplicates, spares): (usize, usize),
        (make, access): (fn(PathBuf) -> Redis, RedisAccess),
        change: impl FnOnce(&mut DuplicatesConfig),
    ) -> Option<Self> {
        if let Err(missing) = redis::possible() {
            skipped(&missing);
            return None;
        }
        let directory = Folder::new(&format!("duplicates-{name}"));
        let redises: Vec<Redis> =
            (0..duplicates + spares).map(|n| make(directory.file(&format!("redis-{n}")))).collect();
        let access = Arc::new(access);
        let target = |redis: &Redis| Target::Tcp {
            address: redis.address.into(),
            access: Arc::clone(&access),
        };
        let partitions = vec![redises[..duplicates].iter().map(target).collect()];
        let mut config = config(name, partitions, directory.path());
        config.spares = redises[duplicates..].iter().map(target).collect();
        Some(Self::run(redises, duplicates, config, directory, change))
    }

    /// So many partitions of so many duplicates; those of a partition follow one another.
    pub fn of_partitions(
        name: &str,
        partitions: usize,
        duplicates: usize,
        change: impl FnOnce(&mut DuplicatesConfig),
    ) -> Option<Self> {
        Self::start(name, partitions * duplicates, |config| {
            let targets = config.partitions.remove(0);
            config.partitions = targets.chunks(duplicates).map(<[Target]>::to_vec).collect();
            change(config);
        })
    }

    /// Duplicates that somebody else keeps; begins when so many are live.
    pub fn over(
        name: &str,
        partitions: Vec<Vec<Target>>,
        expected: usize,
        change: impl FnOnce(&mut DuplicatesConfig),
    ) -> Self {
        let directory = Folder::new(&format!("duplicates-{name}"));
        let config = config(name, partitions, directory.path());
        Self::run(Vec::new(), expected, config, directory, change)
    }

    fn run(
        redises: Vec<Redis>,
        expected: usize,
        mut config: DuplicatesConfig,
        directory: Folder,
        change: impl FnOnce(&mut DuplicatesConfig),
    ) -> Self {
        change(&mut config);
        let address = config.listen;
        let (state, running) = (None, None);
        let (opener, control) = (None, None);
        let mut world = Self {
            redises,
            address,
            config,
            state,
            opener,
            control,
            running,
            thread: PathBuf::new(),
            expected,
            _directory: directory,
        };
        world.restart();
        world
    }

    /// Ends the front.
    pub fn stop(&mut self) {
        self.running = None;
    }

    /// What the front kept, which does not run, is gone.
    pub fn remove_files(&self) {
        std::fs::remove_dir_all(&self.config.log_directory).unwrap();
    }

    /// Starts the front, after ending the one that runs.
    pub fn restart(&mut self) {
        self.running = None;
        let service = open(&self.config);
        self.address = service.address();
        self.state = Some(service.state());
        self.opener = Some(service.opener());
        self.control = Some(service.control());
        let (tell, reported) = std::sync::mpsc::channel();
        self.running = Some(Running::start(move |signal| {
            let _ = tell.send(std::fs::read_link("/proc/thread-self")); // not there on a Mac
            service.run(Clock::start(), signal)
        }));
        self.thread = Path::new("/proc").join(reported.recv().unwrap().unwrap_or_default());
        self.wait_live(self.expected, 2 * PATIENCE);
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// What the service says of itself.
    pub fn state(&self) -> Arc<DuplicatesState> {
        Arc::clone(&self.state.as_ref().unwrap().borrow())
    }

    /// The same, after all that has been asked so far: what is told next but one.
    pub fn state_now(&self) -> Arc<DuplicatesState> {
        let mut reported = self.state.clone().unwrap();
        for _ in 0..2 {
            reported.mark_unchanged();
            self.client().ask(&["GET", "nothing"]); // without anything new nothing is told
            block_until("it tells how it is", || reported.has_changed().unwrap());
        }
        self.state()
    }

    /// Gives an order and waits for its end; else why it was not taken, or was given up.
    pub fn request_change(&self, order: ChangeRequest) -> Result<(), String> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let taken = runtime.block_on(self.control.as_ref().unwrap().request_change(order));
        let before = taken.map_err(|why| why.to_string())?;
        let what = format!("the end after {before:?}");
        block_for_within(2 * PATIENCE, &what, || {
            let now = self.state();
            let has_ended = now.moves.done + now.moves.failed > before.done + before.failed;
            has_ended.then(|| now.moves.last.as_ref().unwrap().error.clone().map_or(Ok(()), Err))
        })
    }

    /// Who holds each shard, once that is told.
    pub fn owners(&self) -> Vec<u16> {
        block_for("somebody tells who holds what", || {
            let owners = self.state().moves.owners.clone();
            (!owners.is_empty()).then_some(owners)
        })
    }

    /// Duplicates that are live, as the front says.
    pub fn live(&self) -> usize {
        self.info().matches("state=in-sync").count()
    }

    pub fn info(&self) -> String {
        self.client().ask(&["INFO"]).text().expect("a text").to_owned()
    }

    pub fn wait_live(&self, count: usize, patience: Duration) {
        block_until_within(patience, &format!("{count} duplicates live"), || {
            let info = self.info();
            println!("{info}"); // shown where it fails
            info.matches("state=in-sync").count() >= count
        });
    }

    /// Waits until nobody owes an answer.
    pub fn settle(&self) {
        block_until("all have answered", || {
            let info = self.info();
            let mut duplicates =
                info.lines().filter(|line| line.starts_with("duplicate")).peekable();
            duplicates.peek().is_some() && duplicates.all(|it| it.ends_with("pending=0"))
        });
    }

    /// What the duplicates hold, each different state once.
    pub fn states(&self) -> BTreeSet<State> {
        self.redises.iter().map(|redis| contents(&mut redis.client())).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // The front goes before what is behind it.
        self.running = None;
        self.redises.clear();
    }
}
