//! A running load: what is due is sent, in a task of its own.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use evenkeel_core::Instant;
use tokio::sync::watch;

use super::super::arrivals::Agenda;
use super::super::pacer::Pacer;
use super::super::report::{OperationReport, Spent};
use super::super::tally::{Reply, Tally};
use super::super::world::Counts;
use super::super::{LoadError, Outcome, Progress, Running, obey, sleep_until, tell};
use super::CassandraLoad;
use super::session::{Session, Statements, read, words};
use super::workload::{Draw, Operation, Values};
use evenkeel_cql::client::Ask;
use evenkeel_runtime::accept::worker_runtime;
use evenkeel_runtime::clock::{Clock, thread_cpu};

/// The most requests taken from the agenda before connections get a turn.
const BATCH: usize = 256;

/// Everything the tasks of a load share.
struct World {
    load: CassandraLoad,
    session: Session,
    statements: Statements,
    clock: Clock,
    pacer: Pacer,
    cancelled: Cell<bool>,
    state: RefCell<State>,
}

struct State {
    agenda: Agenda,
    draw: Draw,
    values: Values,
    due: u64,
    /// Those of them that do not count.
    due_warm_up: u64,
    in_flight: usize,
    tally: Tally,
    /// The same of reads and of updates.
    operations: [Tally; 2],
    /// What became of those that do not count; nobody looks at it.
    tally_warm_up: Tally,
}

/// A request on its way.
struct Job {
    operation: Operation,
    due: Instant,
    ask: Ask,
}

/// The thread of a load, from its runtime to the outcome.
pub(super) fn drive_to_end(
    load: CassandraLoad,
    stop: watch::Receiver<bool>,
    progress: &SyncSender<Progress>,
) -> Result<Outcome, LoadError> {
    let runtime = worker_runtime().map_err(|error| LoadError::system("start a runtime", error))?;
    runtime.block_on(async {
        let world = Rc::new(World::open(load).await?);
        let cpu_before = thread_cpu();
        tokio::task::spawn_local(obey(Rc::clone(&world), stop));
        tokio::task::spawn_local(tell(Rc::clone(&world), progress.clone()));
        world.drive().await;
        Ok(world.outcome(thread_cpu().saturating_sub(cpu_before)))
    })
}

impl World {
    async fn open(load: CassandraLoad) -> Result<Self, LoadError> {
        let session = Session::open(&load).await?;
        let statements = session.statements().await?;
        let pacer = Pacer::new().map_err(|error| LoadError::system("make a timer", error))?;
        let plan = &load.plan;
        let state = State {
            agenda: plan.agenda(),
            draw: Draw::new(load.workload, load.records, load.popularity, plan.seed)?,
            values: Values::new(load.size, plan.seed)?,
            due: 0,
            due_warm_up: 0,
            in_flight: 0,
            tally: plan.tally(),
            operations: [plan.tally(), plan.tally()],
            tally_warm_up: Tally::default(),
        };
        let (clock, cancelled, state) = (Clock::start(), Cell::new(false), RefCell::new(state));
        Ok(Self { load, session, statements, clock, pacer, cancelled, state })
    }

    /// Does what is due and sleeps until something is, until all is decided.
    async fn drive(self: &Rc<Self>) {
        while !self.cancelled.get() {
            self.send_due();
            let (due, in_flight) = {
                let mut state = self.state.borrow_mut();
                (state.agenda.due(), state.in_flight)
            };
            match due {
                Some(at) if at <= self.clock.now() => tokio::task::yield_now().await,
                Some(at) => sleep_until(&self.clock, &self.pacer, at, self.load.plan.spin).await,
                None if in_flight == 0 => return,
                // The last answer wakes us up.
                None => self.pacer.sleep_until(self.clock.std_instant(Instant::FAR)).await,
            }
        }
    }

    fn send_due(self: &Rc<Self>) {
        let now = self.clock.now();
        let counted_from = self.load.plan.counted_from();
        for _ in 0..BATCH {
            let mut state = self.state.borrow_mut();
            let Some(due) = state.agenda.take(now) else { return };
            let state = &mut *state;
            let operation = state.draw.next();
            state.due += 1;
            state.due_warm_up += u64::from(due < counted_from);
            if state.in_flight >= self.load.in_flight_max {
                state.note(counted_from, due, operation, Tally::dropped);
                continue;
            }
            state.in_flight += 1;
            let ask = self.session.request(&self.statements, operation, &mut state.values);
            let job = Job { operation, due, ask };
            tokio::task::spawn_local(Rc::clone(self).carry_out(job));
        }
    }

    /// One request from its sending to its end.
    async fn carry_out(self: Rc<Self>, job: Job) {
        let Job { operation, due, ask } = job;
        let sent = self.clock.now();
        let deadline = self.clock.std_instant(due + self.load.plan.timeout);
        let answer = tokio::time::timeout_at(deadline.into(), self.session.ask(ask)).await;
        let now = self.clock.now();
        let mut state = self.state.borrow_mut();
        state.in_flight -= 1;
        let counted_from = self.load.plan.counted_from();
        state.note(counted_from, due, operation, |tally| {
            tally.send_lag.record(sent.since(due));
            let answer = match &answer {
                Err(_) => return tally.timed_out(self.load.plan.timeout),
                Ok(Err(error)) => return tally.failed_because(&error.to_string()),
                Ok(Ok(answer)) => answer,
            };
            let missing = "no such record (is the table filled? --fill does)";
            let is_read = matches!(operation, Operation::Read { .. });
            match read(answer, self.load.version) {
                Ok(given) if is_read && given.rows == Some(0) => tally.failed_because(missing),
                Ok(_) => {
                    let bytes = answer.body.len() as u64;
                    let reply = Reply { status: 200, bytes, optional: false, mismatch: None };
                    tally.answered(now.since(due), now.since(sent), reply);
                }
                Err(error) => tally.failed_because(&words(&error)),
            }
        });
        if state.in_flight == 0 {
            self.pacer.wake();
        }
    }

    fn outcome(&self, cpu: Duration) -> Outcome {
        let wall = self.clock.now().since(Instant::ZERO);
        let spent = Spent { wall, cpu, cancelled: self.cancelled.get() };
        let mut state = self.state.borrow_mut();
        let mut tally = std::mem::take(&mut state.tally);
        tally.connections_opened = self.session.connections_opened();
        let due = state.due - state.due_warm_up;
        let names = ["read", "update"].into_iter().zip(&state.operations);
        let operations = names.filter(|(_, tally)| tally.decided() > 0);
        let operations = operations.map(|(name, tally)| OperationReport::new(name, tally));
        let operations = operations.collect();
        let mut outcome = Outcome::new(&self.load.plan, due, tally, &spent);
        outcome.report.operations = operations;
        outcome
    }
}

impl State {
    /// Notes what became of a request, with all and with those of its kind.
    fn note(
        &mut self,
        counted_from: Instant,
        due: Instant,
        operation: Operation,
        note: impl Fn(&mut Tally),
    ) {
        if due < counted_from {
            return note(&mut self.tally_warm_up);
        }
        note(&mut self.tally);
        let is_update = matches!(operation, Operation::Update { .. });
        note(&mut self.operations[usize::from(is_update)]);
    }
}

impl Running for World {
    fn cancel(&self) {
        self.cancelled.set(true);
        self.pacer.wake();
    }

    fn progress(&self) -> Progress {
        let mut state = self.state.borrow_mut();
        let State { due, due_warm_up, in_flight, ref mut tally, .. } = *state;
        let connections = self.session.connections();
        let counts = Counts { due, due_warm_up, in_flight, waiting: 0, connections };
        let elapsed = self.clock.now().since(Instant::ZERO);
        Progress::of(elapsed, self.load.plan.end(), &counts, tally)
    }
}
