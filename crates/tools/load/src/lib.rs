//! Open-loop load, on HTTP here and on Cassandra in `cassandra`: requests leave when the plan says,
//! whatever became of those before.
//!
//! *Signal.* Latency counts from the moment a request was **due**, not from the moment it could be
//! sent. A generator that waits for answers, or starts its clock when a connection is free, asks
//! least while the server is slowest and so reports the stall of a second as one slow request
//! instead of a second of them ("coordinated omission", Tene 2013; wrk2). The latency from the
//! actual sending is recorded beside it, so that the difference can be seen.
//!
//! *Statistic.* Quantiles from an HDR histogram, within 0.1 %; means only beside them. A request
//! not answered within the timeout counts with a latency of the timeout, and failures not at all:
//! a quantile near the share of timeouts says "at least", and `failed` must be read first.
//!
//! *When it misleads.* When the generator itself is late: each request notes how late it was
//! (`send_lag`), and [`Report::doubt`] says so. The scheduler of a shared machine does this first.
//! Above the capacity of the server there is no steady state: latency grows with the duration.
//! Closing a connection does not take a timed-out request back from the server, which may go on
//! working on it. A new connection is opened in front of a request and its cost counts.
//!
//! One thread does it all (tens of thousands of requests per second): it spends its time in the
//! kernel's TCP, and one clock and one queue keep the order of requests plain. For more, run
//! several and [`Latencies::merge`] what they recorded.

pub mod profile;

mod arrivals;
mod cassandra;
mod connection;
mod error;
mod expect;
mod pacer;
mod plan;
mod rate;
mod report;
mod slot;
mod tally;
mod target;
#[cfg(test)]
mod tests;
mod trace;
mod trace_options;
mod trace_row;
#[cfg(test)]
mod trace_tests;
mod world;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use evenkeel_core::Instant;
use tokio::sync::watch;

pub use arrivals::{Arrivals, Schedule, Spacing};
pub use cassandra::parameters::CassandraParameters;
pub use cassandra::{
    CassandraLoad, CassandraTarget, PASSWORD_VARIABLE, Popularity, RecordSize, Workload,
};
pub use error::LoadError;
pub use evenkeel_cql::Version;
pub use expect::{Expectation, Mismatch};
pub use plan::Plan;
pub use rate::RATE_MAX;
pub use report::{LatencyFigures, OperationReport, Outcome, Parameters, Report, Statuses};
pub use tally::{FailureCount, LATENCY_MAX, Latencies};
pub use target::{Facts, Keys, Target, Template};
pub use trace::{LINE_BYTES_MAX, ROWS_MAX, Segment, Trace};
pub use trace_options::{Scale, TraceOptions, TraceStart, Values};

use pacer::Pacer;
use report::Spent;
use tally::Tally;
use world::{Counts, Next, World};

use evenkeel_runtime::accept::worker_runtime;
use evenkeel_runtime::clock::{Clock, thread_cpu};

/// The longest busy wait before a request is due.
pub const SPIN_MAX: Duration = Duration::from_micros(200);

/// How often progress is told.
const PROGRESS_PERIOD: Duration = Duration::from_millis(200);

/// A load: what is asked, when, and within which bounds.
#[derive(Debug)]
pub struct Load {
    /// What is asked for.
    pub target: Target,
    /// When that is due.
    pub plan: Plan,
    /// What responses must be.
    pub expectation: Expectation,
    /// The most connections open at once; at least 1.
    pub connections_max: usize,
    /// The most requests that wait for a connection; those beyond fail at once.
    pub queue_max: usize,
}

/// How a running load is doing.
#[derive(Clone, PartialEq, Debug)]
pub struct Progress {
    /// Time since the start.
    pub elapsed: Duration,
    /// When requests end, if they do by time.
    pub end: Option<Duration>,
    /// Requests that became due.
    pub due: u64,
    /// Served so far.
    pub served: u64,
    /// Failed so far.
    pub failed: u64,
    /// Timed out so far.
    pub timeouts: u64,
    /// Requests sent and not answered.
    pub in_flight: usize,
    /// Requests waiting for a connection.
    pub waiting: usize,
    /// Connections open or being opened.
    pub connections: usize,
    /// Served and timed-out requests since the progress told before.
    pub recent: u64,
    /// Median latency of those, in milliseconds.
    pub recent_p50_ms: Option<f64>,
    /// 99th percentile of those, in milliseconds.
    pub recent_p99_ms: Option<f64>,
}

/// Ends a load before its time; clones end the same load.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<watch::Sender<bool>>);

impl Load {
    /// A load with usual bounds: 1,000 connections, 100,000 waiting requests, any response.
    pub fn new(target: Target, plan: impl Into<Plan>) -> Self {
        Self {
            target,
            plan: plan.into(),
            expectation: Expectation::Any,
            connections_max: 1_000,
            queue_max: 100_000,
        }
    }

    /// The parameters as resolved, for the report.
    pub fn parameters(&self) -> Parameters {
        Parameters::of(self)
    }

    /// Carries the load out and returns when every request is decided or `stop` was called; what
    /// was measured until then is in the outcome either way.
    ///
    /// The load runs on a thread of its own. `on_progress` is called on this one, about five
    /// times a second, and may be slow: progress is skipped, requests are not delayed.
    ///
    /// # Errors
    /// When a bound is out of range, the host has no address, or the system gives no thread, timer
    /// or runtime. Failing requests are no error, even when all of them fail.
    pub fn run(
        self,
        stop: &Stop,
        on_progress: impl FnMut(&Progress),
    ) -> Result<Outcome, LoadError> {
        self.check()?;
        on_thread(stop, on_progress, move |stop, progress| drive_to_end(self, stop, &progress))
    }

    fn check(&self) -> Result<(), LoadError> {
        self.plan.check()?;
        if self.connections_max == 0 {
            return outside("connections", &self.connections_max, "at least 1");
        }
        Ok(())
    }
}

fn outside(
    name: &'static str,
    came: &dyn std::fmt::Debug,
    expected: &str,
) -> Result<(), LoadError> {
    Err(LoadError::setting(name, format!("{came:?}"), expected))
}

impl Stop {
    /// A switch for one load, not used yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the load; harmless when it has ended.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    /// Whether it was used.
    pub fn is_stopped(&self) -> bool {
        *self.0.borrow()
    }
}

/// Runs a load on a thread of its own and tells its progress on this one.
fn on_thread(
    stop: &Stop,
    mut on_progress: impl FnMut(&Progress),
    run: impl FnOnce(watch::Receiver<bool>, SyncSender<Progress>) -> Result<Outcome, LoadError>
    + Send
    + 'static,
) -> Result<Outcome, LoadError> {
    let (sender, receiver): (_, Receiver<Progress>) = sync_channel(1);
    let stop = stop.0.subscribe();
    let thread = thread::Builder::new()
        .name("load".into())
        .spawn(move || run(stop, sender))
        .map_err(|error| LoadError::system("start a thread", error))?;
    while let Ok(progress) = receiver.recv() {
        on_progress(&progress);
    }
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The thread of a load, from its runtime to the outcome.
fn drive_to_end(
    load: Load,
    stop: watch::Receiver<bool>,
    progress: &SyncSender<Progress>,
) -> Result<Outcome, LoadError> {
    let runtime = worker_runtime().map_err(|error| LoadError::system("start a runtime", error))?;
    let cpu_before = thread_cpu();
    let world = runtime.block_on(async {
        let addresses = resolve(load.target.authority()).await?;
        let pacer = Pacer::new().map_err(|error| LoadError::system("make a timer", error))?;
        let world = Rc::new(World::new(load, addresses, pacer, connection::open)?);
        tokio::task::spawn_local(obey(Rc::clone(&world), stop));
        tokio::task::spawn_local(tell(Rc::clone(&world), progress.clone()));
        drive(&world).await;
        Ok(world)
    })?;
    let cpu = thread_cpu().saturating_sub(cpu_before);
    Ok(outcome(&world, cpu))
}

/// The loop of the generator: do what is due, sleep until something is.
async fn drive(world: &Rc<World>) {
    loop {
        match world.pump(world.now()) {
            Next::Done => return,
            Next::Again => tokio::task::yield_now().await,
            Next::At(at) => sleep_until(&world.clock, &world.pacer, at, world.load.plan.spin).await,
        }
    }
}

/// Sleeps until `spin` before a moment, unless it is woken up, and waits busily for the rest;
/// answers are read meanwhile.
async fn sleep_until(clock: &Clock, pacer: &Pacer, at: Instant, spin: Duration) {
    if at.since(clock.now()) > spin {
        let early = Instant::ZERO + at.since(Instant::ZERO + spin);
        pacer.sleep_until(clock.std_instant(early)).await;
    }
    if spin.is_zero() || at.since(clock.now()) > spin {
        return;
    }
    while clock.now() < at {
        tokio::task::yield_now().await;
    }
}

/// A load under way, on whatever protocol.
trait Running {
    /// Ends it; what is in flight stays undecided.
    fn cancel(&self);

    /// How it is doing; begins the recent latencies anew.
    fn progress(&self) -> Progress;
}

async fn resolve(authority: &str) -> Result<Vec<std::net::SocketAddr>, LoadError> {
    let problem = |problem: String| LoadError::Resolve { authority: authority.into(), problem };
    let found = tokio::net::lookup_host(authority).await;
    let addresses = found.map_err(|error| problem(error.to_string()))?.collect::<Vec<_>>();
    if addresses.is_empty() {
        return Err(problem("the name is known and has none".into()));
    }
    Ok(addresses)
}

/// Cancels the load when it is told to stop.
async fn obey(world: Rc<impl Running>, mut stop: watch::Receiver<bool>) {
    // An error means that nobody is left who could say stop.
    if stop.wait_for(|stopped| *stopped).await.is_ok() {
        world.cancel();
    }
}

async fn tell(world: Rc<impl Running>, listener: SyncSender<Progress>) {
    loop {
        tokio::time::sleep(PROGRESS_PERIOD).await;
        // Full: the listener is busy with earlier progress. Gone: it wants none.
        let _ = listener.try_send(world.progress());
    }
}

impl Running for World {
    fn cancel(&self) {
        World::cancel(self);
    }

    fn progress(&self) -> Progress {
        let (elapsed, end) = (self.now().since(Instant::ZERO), self.load.plan.end());
        self.look(|counts, tally| Progress::of(elapsed, end, counts, tally))
    }
}

impl Progress {
    fn of(elapsed: Duration, end: Option<Duration>, counts: &Counts, tally: &mut Tally) -> Self {
        let progress = Self {
            elapsed,
            end,
            due: counts.due,
            served: tally.served,
            failed: tally.failed,
            timeouts: tally.timeouts,
            in_flight: counts.in_flight,
            waiting: counts.waiting,
            connections: counts.connections,
            recent: tally.recent.count(),
            recent_p50_ms: tally.recent.quantile_ms(0.5),
            recent_p99_ms: tally.recent.quantile_ms(0.99),
        };
        tally.recent.clear();
        progress
    }
}

fn outcome(world: &World, cpu: Duration) -> Outcome {
    let wall = world.now().since(Instant::ZERO);
    let spent = Spent { wall, cpu, cancelled: world.is_cancelled() };
    world.look(|counts, tally| {
        let due = counts.due - counts.due_warm_up;
        Outcome::new(&world.load.plan, due, std::mem::take(tally), &spent)
    })
}
