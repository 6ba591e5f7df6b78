//! `[log]`: the thread that writes the access log, and what a reload changes of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::config::LogConfig;
use evenkeel_proxy::requests::access::{self, Access, AccessControl, AccessCounts, AccessWriter};
use evenkeel_runtime::component::{Component, Job, Place, ReloadError, Surface};
use evenkeel_runtime::metrics::{Metric, Scrape, counter, counter_by};

/// The access log of a process.
pub(super) struct AccessLog {
    runs_with: LogConfig,
    control: AccessControl,
    writer: Option<AccessWriter>,
}

impl AccessLog {
    /// What workers write to, and the part that writes it down.
    pub(super) fn open(config: &LogConfig) -> (Access, Self) {
        let (access, control, writer) = access::open(config.access.as_ref());
        (access, Self { runs_with: config.clone(), control, writer: Some(writer) })
    }
}

impl Component for AccessLog {
    type Config = LogConfig;
    type Staged = Arc<LogConfig>;

    fn jobs(&mut self) -> Vec<Job> {
        let job = |writer: AccessWriter| {
            Job::new(Place::Own("access-log".to_owned()), move |stop| async move {
                drop(stop); // it ends with the workers: requests in the drain have lines, too
                writer.run().await;
                Ok(())
            })
        };
        self.writer.take().map(job).into_iter().collect()
    }

    fn surface(&mut self) -> Surface {
        let counts = Arc::clone(self.control.counts());
        Surface::of_metrics(move |scrape: &mut Scrape| scrape.single(&COUNTED, &*counts))
    }

    fn stage(&mut self, next: Arc<LogConfig>) -> Result<Arc<LogConfig>, ReloadError> {
        match next.format == self.runs_with.format {
            true => Ok(next),
            false => Err(ReloadError::needs_restart("log.format")),
        }
    }

    fn apply(&mut self, next: Arc<LogConfig>) {
        self.control.set(next.access.as_ref());
        self.runs_with = LogConfig::clone(&next);
    }
}

const COUNTED: [Metric<AccessCounts>; 2] = [
    counter("evenkeel_access_log_lines_total", "Lines of the access log.", |it| {
        count(&it.written).into()
    }),
    counter_by(
        "evenkeel_access_log_dropped_total",
        "Lines of the access log that were lost: the queue of the writer was full (queue), or \
         they could not be written (write).",
        "reason",
        |it| vec![("queue", count(&it.queue_full).into()), ("write", count(&it.failed).into())],
    ),
];

fn count(of: &AtomicU64) -> u64 {
    of.load(Ordering::Relaxed)
}
