//! Reports of a node without an agent: its own tables, asked now and then.
//!
//! **Signal**: `system_views.thread_pools` of that very node (4.0 and later): tasks that wait and
//! tasks that run in the stages that requests go through. A request waits for a thread of the
//! native transport first, and its reads and writes wait for those of their stage: waiting is the
//! sum, in service are the reads and writes that run. **Service time** by Little's law: the mean
//! number in service over the rate at which they end, both weighted to the last few polls. **When
//! it misleads**: it is as old as the interval and knows nothing of what happened between two
//! polls, so a policy should trust it less than an agent's report of this very moment; other
//! nodes' reads and writes count too (which is right, they wait in the same line). **Cold start**:
//! no report before tasks have ended between two polls. **Source**: C3 (NSDI'15) section 3.1 for
//! what is reported; the tables of Cassandra 5.0.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use evenkeel_core::{Feedback, Instant, time};
use evenkeel_cql::response::Result as Answered;
use evenkeel_cql::{Envelope, Opcode, Version, payload, value};
use tokio::time::MissedTickBehavior;

use super::node::{Dialect, NodeLimits, SendError, Single};
use crate::clock::Clock;

const QUERY: &str = "SELECT * FROM system_views.thread_pools";
/// Stages in which a request's reads and writes run.
const SERVING: [&str; 4] =
    ["ReadStage", "MutationStage", "CounterMutationStage", "ViewMutationStage"];
/// Where a request waits before them.
const ENTRANCE: &str = "Native-Transport-Requests";
/// Weight of a new poll in rate and mean.
const GAIN: f64 = 0.2;
/// The pause after a failure; it doubles up to the second number.
const BACKOFF: std::ops::Range<Duration> = Duration::from_millis(200)..Duration::from_secs(5);

/// One look at a node's thread pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Look {
    waiting: u32,
    running: u32,
    /// Tasks of the serving stages that have ended since the node began.
    ended: u64,
    /// Tasks that these stages run at once.
    at_once: u32,
}

/// Polls a node for ever and tells its reports; `None` when there are none any more.
pub(super) async fn poll(
    address: SocketAddr,
    limits: Rc<NodeLimits>,
    dialect: Dialect,
    (every, clock): (Duration, Clock),
    tell: impl Fn(Option<Feedback>),
) {
    let mut pause = BACKOFF.start;
    loop {
        let Err(error) = follow(address, &limits, &dialect, (every, clock), &tell, || {
            pause = BACKOFF.start;
        })
        .await;
        tracing::debug!(%error, "a node's thread pools cannot be read");
        tell(None);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(BACKOFF.end);
    }
}

/// There is no end but an error.
enum Never {}

async fn follow(
    address: SocketAddr,
    limits: &Rc<NodeLimits>,
    dialect: &Dialect,
    (every, clock): (Duration, Clock),
    tell: impl Fn(Option<Feedback>),
    mut went_well: impl FnMut(),
) -> Result<Never, SendError> {
    let mut link = Single::open(address, limits, dialect).await?;
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut means = Means::default();
    loop {
        ticks.tick().await;
        let answer = link.query(QUERY).await?;
        let look = read(&answer).map_err(|why| link.nonsense(format!("{QUERY}: {why}")))?;
        went_well();
        if let Some(report) = means.after(look, clock.now()) {
            tell(Some(report));
        }
    }
}

/// What is remembered from poll to poll.
#[derive(Debug, Default)]
struct Means {
    last: Option<(Look, Instant)>,
    running: f64,
    /// Tasks that end per millisecond.
    rate: f64,
    service_ms: Option<f64>,
}

impl Means {
    /// Takes a look in; the report of this moment if there is one.
    fn after(&mut self, look: Look, now: Instant) -> Option<Feedback> {
        if let Some((last, at)) = self.last.replace((look, now)) {
            let passed_ms = now.millis_since(at).max(1e-3);
            // A node that began again counts from zero.
            let ended = look.ended.checked_sub(last.ended).unwrap_or(look.ended);
            let running = f64::from(last.running.midpoint(look.running));
            let gain = if self.service_ms.is_some() { GAIN } else { 1.0 };
            self.running += gain * (running - self.running);
            self.rate += gain * (ended as f64 / passed_ms - self.rate);
            if ended > 0 && self.running > 0.0 && self.rate > 0.0 {
                self.service_ms = Some(self.running / self.rate);
            }
        }
        let service_time = time::from_millis_f64(self.service_ms?);
        Some(Feedback {
            concurrency: (look.at_once > 0).then_some(look.at_once),
            reported_at: Some(now),
            ..Feedback::measured(look.waiting, look.running, service_time)
        })
    }
}

fn read(answer: &Envelope) -> Result<Look, String> {
    let message = payload::split(answer).map_err(|error| error.to_string())?.message;
    if answer.opcode != Opcode::Result {
        return Err(format!("{} came, expected RESULT (is it 4.0 or later?)", answer.opcode));
    }
    let rows = match Answered::read(message, Version::V4).map_err(|error| error.to_string())? {
        Answered::Rows(rows) => rows,
        _ => return Err("a RESULT without rows came".to_owned()),
    };
    let place = |name| rows.position(name).ok_or(format!("no column {name}"));
    let (name, active) = (place("name")?, place("active_tasks")?);
    let (pending, completed) = (place("pending_tasks")?, place("completed_tasks")?);
    let limit = rows.position("active_tasks_limit");
    let mut look = Look::default();
    for row in rows.iter() {
        let Some(stage) = row.at(name).and_then(value::text) else { continue };
        let count = |place: usize| {
            let count = row.at(place).and_then(value::int).unwrap_or(0);
            u32::try_from(count).unwrap_or(0)
        };
        let is_serving = SERVING.contains(&stage);
        if is_serving || stage == ENTRANCE {
            look.waiting = look.waiting.saturating_add(count(pending));
        }
        if is_serving {
            let ended = row.at(completed).and_then(value::bigint).unwrap_or(0);
            look.running = look.running.saturating_add(count(active));
            look.ended = look.ended.saturating_add(u64::try_from(ended).unwrap_or(0));
            look.at_once = look.at_once.saturating_add(limit.map_or(0, count));
        }
    }
    Ok(look)
}

#[cfg(test)]
mod tests {
    use evenkeel_cql::rows::Writer;
    use evenkeel_cql::types::Type;

    use super::*;

    fn answer(pools: &[(&str, i32, i32, i64)]) -> Envelope {
        let columns = [
            ("name", Type::Text),
            ("active_tasks", Type::Int),
            ("active_tasks_limit", Type::Int),
            ("completed_tasks", Type::Bigint),
            ("pending_tasks", Type::Int),
        ];
        let mut writer = Writer::new("system_views", "thread_pools", &columns);
        for &(name, active, pending, completed) in pools {
            writer
                .value(Some(name.as_bytes()))
                .value(Some(&active.to_be_bytes()))
                .value(Some(&32_i32.to_be_bytes()))
                .value(Some(&completed.to_be_bytes()))
                .value(Some(&pending.to_be_bytes()))
                .end_row();
        }
        Envelope::new(Version::V4, 0, Opcode::Result, writer.finish().freeze())
    }

    #[test]
    fn waiting_is_at_the_entrance_and_in_the_stages_and_running_in_the_stages() {
        let pools = [
            ("Native-Transport-Requests", 100, 5, 1_000_000),
            ("ReadStage", 3, 2, 700),
            ("MutationStage", 4, 1, 300),
            ("CompactionExecutor", 50, 50, 50),
        ];
        let look = read(&answer(&pools)).unwrap();
        assert_eq!(look, Look { waiting: 8, running: 7, ended: 1_000, at_once: 64 });
    }

    #[test]
    fn the_service_time_is_littles() {
        let mut means = Means::default();
        let look = |ended| Look { waiting: 9, running: 6, ended, at_once: 64 };
        assert_eq!(means.after(look(0), Instant::from_millis(0)), None, "nothing was measured");
        // 6 at once, 2 of which end each millisecond: each takes 3 ms.
        for n in 1..50 {
            let report = means.after(look(200 * n), Instant::from_millis(100 * n)).unwrap();
            assert!(report.service_time.abs_diff(Duration::from_millis(3)).as_nanos() < 1_000);
            assert_eq!((report.queue_length, report.in_service), (9, 6));
        }
        // Idle: what was known stays known.
        let idle = Look { waiting: 0, running: 0, ended: 9_800, at_once: 64 };
        let report = means.after(idle, Instant::from_millis(5_000)).unwrap();
        assert!(report.service_time.abs_diff(Duration::from_millis(3)).as_nanos() < 1_000);
        assert_eq!((report.queue_length, report.in_service), (0, 0));
        // It was started again: its counts begin at zero.
        let again = Look { waiting: 0, running: 1, ended: 5, at_once: 64 };
        assert!(means.after(again, Instant::from_millis(5_100)).is_some());
    }

    #[test]
    fn what_is_no_table_of_thread_pools_is_an_error() {
        let error = Envelope { opcode: Opcode::Error, ..answer(&[]) };
        assert!(read(&error).unwrap_err().contains("4.0"));
        let other = Writer::new("k", "t", &[("a", Type::Int)]).finish().freeze();
        let other = Envelope::new(Version::V4, 0, Opcode::Result, other);
        assert!(read(&other).unwrap_err().contains("no column name"));
    }
}
