//! `[traces]`: the thread that exports spans, and what a reload changes of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

use evenkeel_proxy::requests::traces::{self, TraceCounts, Traces, TracesControl};
use evenkeel_runtime::component::{Component, Job, Place, ReloadError, Surface};
use evenkeel_runtime::metrics::{Metric, Scrape, counter, counter_by};
use evenkeel_traces::config::TracesConfig;
use evenkeel_traces::exporter::{Exporter, Target};

/// The export of traces of a process.
pub(super) struct TraceExport {
    control: TracesControl,
    target: watch::Sender<Option<Target>>,
    exporter: Option<Exporter>,
}

impl TraceExport {
    /// What workers push to, and the part that delivers.
    ///
    /// # Errors
    /// When a file of `tls` cannot be used.
    pub(super) fn open(config: Option<&TracesConfig>) -> std::io::Result<(Traces, Self)> {
        let (traces, control, finished) = traces::open(config.map(|config| config.sampling));
        let (target, receiver) = watch::channel(target(config)?);
        let counts = Arc::clone(control.counts());
        let exporter = Some(Exporter { finished, target: receiver, counts });
        Ok((traces, Self { control, target, exporter }))
    }
}

fn target(config: Option<&TracesConfig>) -> std::io::Result<Option<Target>> {
    let target =
        |config: &TracesConfig| Ok(Target { config: config.clone(), tls: config.load_tls()? });
    config.map(target).transpose()
}

impl Component for TraceExport {
    type Config = Option<TracesConfig>;
    type Staged = Option<Target>;

    fn jobs(&mut self) -> Vec<Job> {
        let job = |exporter: Exporter| {
            Job::new(Place::Own("traces".to_owned()), move |stop| async move {
                exporter.run(stop).await;
                Ok(())
            })
        };
        self.exporter.take().map(job).into_iter().collect()
    }

    fn surface(&mut self) -> Surface {
        let counts = Arc::clone(self.control.counts());
        Surface::of_metrics(move |scrape: &mut Scrape| scrape.single(&COUNTED, &*counts))
    }

    fn stage(&mut self, next: Arc<Option<TracesConfig>>) -> Result<Option<Target>, ReloadError> {
        target(next.as_ref().as_ref()).map_err(ReloadError::Unusable)
    }

    fn apply(&mut self, next: Option<Target>) {
        let sampling = next.as_ref().map(|target| target.config.sampling);
        self.target.send_replace(next);
        self.control.set(sampling);
    }
}

const COUNTED: [Metric<TraceCounts>; 3] = [
    counter("evenkeel_traces_spans_exported_total", "Spans that the collector took.", |it| {
        count(&it.exported).into()
    }),
    counter_by(
        "evenkeel_traces_spans_dropped_total",
        "Spans that were lost: the queue of the exporter was full (queue), the collector refused \
         them (rejected), or it could not be reached for a minute or at the end (undelivered).",
        "reason",
        |it| {
            vec![
                ("queue", count(&it.queue_full).into()),
                ("rejected", count(&it.rejected).into()),
                ("undelivered", count(&it.undelivered).into()),
            ]
        },
    ),
    counter(
        "evenkeel_traces_export_failures_total",
        "Requests to the collector that failed; most of them are made again.",
        |it| count(&it.failures).into(),
    ),
];

fn count(of: &AtomicU64) -> u64 {
    of.load(Ordering::Relaxed)
}
