//! Shops as processes of their own, which a scenario kills and starts again.
//!
//! No shop outlives the demo: dropping [`Shops`] kills them, and each ends by itself when its
//! standard input does, which happens however this process dies.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use evenkeel_sim::fault::{Fault, Target, What};
use evenkeel_sim::scenario::Replica;

use super::shop::Program;

/// How long a shop may take to listen.
const START_MAX: Duration = Duration::from_secs(10);

/// What shops are like.
#[derive(Clone, Debug)]
pub(super) struct ShopsConfig {
    /// What they run.
    pub(super) program: Program,
    /// Their catalogue.
    pub(super) database: PathBuf,
    /// Where they listen, by shop.
    pub(super) addresses: Vec<SocketAddr>,
    /// By shop: database threads, and speed relative to the others.
    pub(super) replicas: Vec<Replica>,
    /// By request: what its full and its lean page take at a speed of 1.
    pub(super) costs: Vec<[Duration; 2]>,
}

/// Running shops. Dropping it kills them.
#[derive(Debug)]
pub(super) struct Shops(Arc<Places>);

/// The thread that kills shops and starts them again as planned. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Plan {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
}

#[derive(Debug)]
struct Places {
    config: ShopsConfig,
    children: Vec<Mutex<Option<Child>>>,
}

/// The item that a request asks for, by its number from 0: every tenth, from 1, so that the pages
/// are of all sorts of items. The load's path for it is `/item/{n}1`.
const fn item_of(request: usize) -> usize {
    10 * request + 1
}

/// Items of a catalogue that has one for each request.
pub(super) fn items_for(requests: u64) -> anyhow::Result<u32> {
    let items = requests.saturating_mul(10).max(ITEMS_MIN.into());
    anyhow::ensure!(
        items <= ITEMS_MAX.into(),
        "workload: {requests} requests; a demo of shops has an item for each, and at most {}",
        ITEMS_MAX / 10
    );
    Ok(items as u32)
}

const ITEMS_MIN: u32 = 30_000;
const ITEMS_MAX: u32 = 1_000_000;

/// Database threads of a shop: with one for each core nobody shares.
pub(super) fn threads(replica: &Replica) -> u32 {
    replica.workers.unwrap_or(replica.cores)
}

impl Shops {
    /// Starts the shops and waits until they listen.
    pub(super) fn start(config: ShopsConfig) -> anyhow::Result<Self> {
        let children = config.addresses.iter().map(|_| Mutex::new(None)).collect();
        let shops = Self(Arc::new(Places { config, children }));
        shops.0.write_costs()?;
        (0..shops.0.children.len()).try_for_each(|number| shops.0.start(number))?;
        Ok(shops)
    }

    /// By shop, whether it lives.
    pub(super) fn alive(&self) -> Vec<bool> {
        (0..self.0.children.len()).map(|number| self.0.child(number).is_some()).collect()
    }

    /// Carries out the crashes and restores of a scenario that begins now.
    pub(super) fn follow(&self, faults: &[Fault]) -> io::Result<Plan> {
        let mut events: Vec<Fault> = faults.to_vec();
        events.sort_by_key(|fault| fault.at);
        let (places, stop) = (Arc::clone(&self.0), Arc::<AtomicBool>::default());
        let stopping = Arc::clone(&stop);
        let began = Instant::now();
        let body = move || places.follow(&events, began, &stopping);
        let thread = std::thread::Builder::new().name("faults".to_owned()).spawn(body)?;
        Ok(Plan { stop, thread: Some(thread) })
    }
}

impl Plan {
    /// Ends it, whatever is still to come.
    pub(super) fn end(mut self) -> anyhow::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it is taken once, here or in drop");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // something else went wrong already
        }
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        (0..self.children.len()).for_each(|number| self.kill(number));
    }
}

impl Places {
    fn start(&self, number: usize) -> anyhow::Result<()> {
        let config = &self.config;
        let replica = config.replicas[number];
        let mut command = config.program.command();
        command.args(["--until-stdin-ends", "--database"]).arg(&config.database);
        command.arg("--listen").arg(config.addresses[number].to_string());
        command.arg("--workers").arg(threads(&replica).to_string());
        command.arg("--costs").arg(self.costs_of(number));
        let errors = self.words_of(number);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(std::fs::File::create(&errors)?);
        // A group of its own: Ctrl-C is for the demo, which then ends its shops.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command.spawn().context("cannot start a shop")?;
        *self.child(number) = Some(child);
        self.wait_until_listening(number, &errors)
    }

    /// Writes down what each request costs in each shop.
    fn write_costs(&self) -> anyhow::Result<()> {
        use std::fmt::Write as _;
        for (number, replica) in self.config.replicas.iter().enumerate() {
            let mut lines = String::new();
            for (request, [full, lean]) in self.config.costs.iter().enumerate() {
                let micros = |time: &Duration| time.div_f64(replica.speed).as_micros();
                let (full, lean) = (micros(full), micros(lean));
                writeln!(lines, "{} {full} {lean}", item_of(request))?;
            }
            std::fs::write(self.costs_of(number), lines).context("cannot write what pages cost")?;
        }
        Ok(())
    }

    fn costs_of(&self, number: usize) -> PathBuf {
        self.config.database.with_file_name(format!("shop-{number}.costs"))
    }

    /// Where a shop's words of failure go.
    fn words_of(&self, number: usize) -> PathBuf {
        self.config.database.with_file_name(format!("shop-{number}.log"))
    }

    fn wait_until_listening(&self, number: usize, errors: &Path) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let listens = TcpStream::connect(self.config.addresses[number]).is_ok();
            let ended = self.child(number).as_mut().map_or(Ok(None), Child::try_wait)?;
            if ended.is_some() || began.elapsed() > START_MAX {
                self.kill(number);
                let words = std::fs::read_to_string(errors).unwrap_or_default();
                anyhow::bail!("shop {number} did not start: {}", words.trim());
            }
            if listens {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn follow(&self, events: &[Fault], began: Instant, stop: &AtomicBool) -> anyhow::Result<()> {
        for event in events {
            while began.elapsed() < event.at {
                if stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            let Target::Server(number) = event.target else { continue };
            match event.what {
                What::Crash => self.kill(number),
                What::Restore if self.child(number).is_none() => self.start(number)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// SIGKILL.
    fn kill(&self, number: usize) {
        if let Some(mut child) = self.child(number).take() {
            let _ = child.kill(); // it may have ended by itself
            let _ = child.wait();
        }
    }

    fn child(&self, number: usize) -> MutexGuard<'_, Option<Child>> {
        self.children[number].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
