//! Reports of a node without an agent: its own tables, asked now and then.
//!
//! **Signal**: of that very node (4.0 and later), `system_views.thread_pools`: tasks that wait and
//! tasks that run in the stages that requests go through. A request waits for a thread of the
//! native transport first, and its reads and writes wait for those of their stage: waiting is the
//! sum, in service are the reads and writes that run. **Service time** from
//! `system_views.local_read_latency` and `local_write_latency`: the medians of the tables, each
//! weighted by how many of its reads and writes ended since the look before; they are measured
//! around the storage itself, without waiting for a thread. (Little's law over the thread pools
//! would need no second table, and at low load is mostly noise: the pools are seen empty.) **When
//! it misleads**: it is as old as the interval and knows nothing of what happened between two
//! polls, so a policy should trust it less than an agent's report of this very moment; the medians
//! forget slowly (Cassandra's histograms decay over minutes). Other nodes' reads and writes count
//! too, which is right: they wait in the same line. **Cold start**: no report before the first
//! table has a median. **Source**: C3 (NSDI'15) section 3.1 for what is reported.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use evenkeel_core::{Feedback, Instant, time};
use evenkeel_cql::{Envelope, value};
use tokio::time::MissedTickBehavior;

use crate::system_table::{SystemTable, SystemTableError};
use evenkeel_cql::client::{Dialect, NodeLimits, SendError, Single};
use evenkeel_runtime::clock::Clock;

const POOLS: &str = "SELECT * FROM system_views.thread_pools";
const LATENCIES: [&str; 2] = [
    "SELECT * FROM system_views.local_read_latency",
    "SELECT * FROM system_views.local_write_latency",
];
/// Medians move slowly and have a row for each table: they are read with every so-many-th poll.
const POLLS_PER_MEDIAN: u32 = 10;
/// Stages in which a request's reads and writes run.
const SERVING: [&str; 4] =
    ["ReadStage", "MutationStage", "CounterMutationStage", "ViewMutationStage"];
/// Where a request waits before them.
const ENTRANCE: &str = "Native-Transport-Requests";
/// The pause after a failure; it doubles up to the second number.
const BACKOFF: std::ops::Range<Duration> = Duration::from_millis(200)..Duration::from_secs(5);

/// One look at a node's thread pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Look {
    waiting: u32,
    running: u32,
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
    let mut medians = Medians::default();
    loop {
        for _ in 0..POLLS_PER_MEDIAN {
            ticks.tick().await;
            let answer = link.query(POOLS).await?;
            let look = read(&answer).map_err(|error| link.nonsense(error.to_string()))?;
            if medians.service_time.is_none() {
                break;
            }
            tell(look.report(medians.service_time, clock.now()));
        }
        for (index, query) in LATENCIES.into_iter().enumerate() {
            let answer = link.query(query).await?;
            let taken = medians.take(index, &answer);
            taken.map_err(|error| link.nonsense(error.to_string()))?;
        }
        medians.end_look();
        went_well();
    }
}

impl Look {
    fn report(self, service_time: Option<Duration>, now: Instant) -> Option<Feedback> {
        Some(Feedback {
            concurrency: (self.at_once > 0).then_some(self.at_once),
            reported_at: Some(now),
            ..Feedback::measured(self.waiting, self.running, service_time?)
        })
    }
}

/// How long reads and writes take at the storage, from look to look.
#[derive(Debug, Default)]
struct Medians {
    /// Reads and writes of each table at the last look, by keyspace and name.
    counts: [BTreeMap<(String, String), u64>; 2],
    weighted_ms: f64,
    weight: f64,
    service_time: Option<Duration>,
}

impl Medians {
    /// Takes a table of latencies in: the answer to one of [`LATENCIES`].
    fn take(&mut self, of: usize, answer: &Envelope) -> Result<(), SystemTableError> {
        let table = SystemTable::of(LATENCIES[of], answer)?;
        let (keyspace, name) = (table.place("keyspace_name")?, table.place("table_name")?);
        let count = table.place("count")?;
        let median = match table.rows.position("50th_ms") {
            Some(median) => median,
            None => table.place("p50th_ms")?,
        };
        let earlier = std::mem::take(&mut self.counts[of]);
        for row in table.rows.iter() {
            let text = |place| row.at(place).and_then(value::text).map(str::to_owned);
            let (Some(keyspace), Some(name)) = (text(keyspace), text(name)) else { continue };
            let Some(median_ms) = row.at(median).and_then(value::double) else { continue };
            let count = row.at(count).and_then(value::bigint).unwrap_or(0);
            let count = u64::try_from(count).unwrap_or(0);
            let of_table = (keyspace, name);
            let before = earlier.get(&of_table).copied().unwrap_or(0);
            self.counts[of].insert(of_table, count);
            // A node that began again counts from zero.
            let ended = count.checked_sub(before).unwrap_or(count) as f64;
            if median_ms.is_finite() && median_ms > 0.0 {
                self.weighted_ms += ended * median_ms;
                self.weight += ended;
            }
        }
        Ok(())
    }

    /// Both tables are in. Where nothing ended, what was known stays known.
    fn end_look(&mut self) {
        if self.weight > 0.0 {
            self.service_time = Some(time::from_millis_f64(self.weighted_ms / self.weight));
        }
        (self.weighted_ms, self.weight) = (0.0, 0.0);
    }
}

fn read(answer: &Envelope) -> Result<Look, SystemTableError> {
    let table = SystemTable::of(POOLS, answer)?;
    let name = table.place("name")?;
    let (active, pending) = (table.place("active_tasks")?, table.place("pending_tasks")?);
    let limit = table.rows.position("active_tasks_limit");
    let mut look = Look::default();
    for row in table.rows.iter() {
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
            look.running = look.running.saturating_add(count(active));
            look.at_once = look.at_once.saturating_add(limit.map_or(0, count));
        }
    }
    Ok(look)
}

#[cfg(test)]
mod tests {
    use evenkeel_cql::rows::Writer;
    use evenkeel_cql::types::Type;
    use evenkeel_cql::{Opcode, Version};

    use super::*;
    use crate::system_table::SystemTableErrorKind as Kind;

    fn answer(pools: &[(&str, i32, i32)]) -> Envelope {
        let columns = [
            ("name", Type::Text),
            ("active_tasks", Type::Int),
            ("active_tasks_limit", Type::Int),
            ("pending_tasks", Type::Int),
        ];
        let mut writer = Writer::new("system_views", "thread_pools", &columns);
        for &(name, active, pending) in pools {
            writer
                .value(Some(name.as_bytes()))
                .value(Some(&active.to_be_bytes()))
                .value(Some(&32_i32.to_be_bytes()))
                .value(Some(&pending.to_be_bytes()))
                .end_row();
        }
        Envelope::new(Version::V4, 0, Opcode::Result, writer.finish().freeze())
    }

    fn latencies(tables: &[(&str, i64, f64)]) -> Envelope {
        let columns = [
            ("keyspace_name", Type::Text),
            ("table_name", Type::Text),
            ("count", Type::Bigint),
            ("p50th_ms", Type::Double),
        ];
        let mut writer = Writer::new("system_views", "local_read_latency", &columns);
        for &(name, count, median_ms) in tables {
            writer
                .value(Some(b"shop"))
                .value(Some(name.as_bytes()))
                .value(Some(&count.to_be_bytes()))
                .value(Some(&median_ms.to_be_bytes()))
                .end_row();
        }
        Envelope::new(Version::V4, 0, Opcode::Result, writer.finish().freeze())
    }

    #[test]
    fn waiting_is_at_the_entrance_and_in_the_stages_and_running_in_the_stages() {
        let pools = [
            ("Native-Transport-Requests", 100, 5),
            ("ReadStage", 3, 2),
            ("MutationStage", 4, 1),
            ("CompactionExecutor", 50, 50),
        ];
        let look = read(&answer(&pools)).unwrap();
        assert_eq!(look, Look { waiting: 8, running: 7, at_once: 64 });
        assert_eq!(look.report(None, Instant::ZERO), None, "nothing was measured");
        let report = look.report(Some(Duration::from_millis(2)), Instant::ZERO).unwrap();
        assert_eq!((report.queue_length, report.in_service), (8, 7));
    }

    #[test]
    fn the_service_time_is_the_median_of_what_ended_since_the_last_look() {
        let mut medians = Medians::default();
        let mut look = |reads: &[(&str, i64, f64)], writes: &[(&str, i64, f64)]| {
            medians.take(0, &latencies(reads)).unwrap();
            medians.take(1, &latencies(writes)).unwrap();
            medians.end_look();
            medians.service_time
        };
        assert_eq!(look(&[("a", 0, 0.0)], &[]), None);
        let ms = Duration::from_millis;
        assert_eq!(look(&[("a", 30, 4.0)], &[("a", 10, 8.0)]), Some(ms(5)));
        // Nothing ended: what was known stays known.
        assert_eq!(look(&[("a", 30, 4.0)], &[("a", 10, 8.0)]), Some(ms(5)));
        // 20 reads of another table and no more of the first.
        assert_eq!(look(&[("a", 30, 4.0), ("b", 20, 1.0)], &[("a", 10, 8.0)]), Some(ms(1)));
        // It was started again: its counts begin at zero.
        assert_eq!(look(&[("a", 5, 3.0)], &[]), Some(ms(3)));
        assert_eq!(look(&[("a", 9, f64::NAN)], &[("a", 11, -1.0)]), Some(ms(3)), "nonsense");
    }

    #[test]
    fn what_is_no_table_of_thread_pools_is_an_error() {
        let error = Envelope { opcode: Opcode::Error, ..answer(&[]) };
        let reported = read(&error).unwrap_err().to_string();
        assert!(reported.starts_with(POOLS) && reported.contains("4.0"), "{reported}");
        let error = read(&latencies(&[])).unwrap_err();
        assert_eq!((error.column, error.kind), (Some("name"), Kind::NoColumn));
        let error = Medians::default().take(0, &answer(&[])).unwrap_err();
        assert_eq!(error.to_string(), format!("{}: no column keyspace_name", LATENCIES[0]));
    }
}
