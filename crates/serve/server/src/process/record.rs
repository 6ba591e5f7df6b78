//! `[record]`: the thread that writes days, and what a reload changes of it.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use evenkeel_core::request::copies::Windows;
use evenkeel_record::counts::RecordCounts;
use evenkeel_record::recorder::{self, RecordControl, Recorder};
use evenkeel_record::writer::RecordWriter;
use evenkeel_runtime::clock::Clock;
use evenkeel_runtime::component::{Component, Job, Place, ReloadError, Surface};
use evenkeel_runtime::metrics::{Metric, Scrape, gauge};
use serde_json::json;

use crate::config::RecordConfig;

/// The days that a process records.
pub(super) struct Days {
    control: RecordControl,
    recorder: Recorder,
    writer: Option<RecordWriter>,
    clock: Clock,
    runs_with: Arc<Mutex<Option<RecordConfig>>>,
}

impl Days {
    /// What dispatchers are given, and the part that writes.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub(super) fn open(
        config: Option<&RecordConfig>,
        clock: Clock,
    ) -> io::Result<(Recorder, Self)> {
        make(config)?;
        let (recorder, control, writer) = recorder::open(config);
        let runs_with = Arc::new(Mutex::new(config.cloned()));
        let writer = Some(writer);
        Ok((recorder.clone(), Self { control, recorder, writer, clock, runs_with }))
    }
}

fn make(config: Option<&RecordConfig>) -> io::Result<()> {
    let Some(RecordConfig { directory, .. }) = config else { return Ok(()) };
    std::fs::create_dir_all(directory).map_err(|error| {
        let words = format!("record.directory: {}: {error}", directory.display());
        io::Error::new(error.kind(), words)
    })
}

impl Component for Days {
    type Config = Option<RecordConfig>;
    type Staged = Arc<Option<RecordConfig>>;

    fn jobs(&mut self) -> Vec<Job> {
        let clock = self.clock;
        let job = |writer: RecordWriter| {
            Job::new(Place::Own("record".to_owned()), move |stop| async move {
                writer.run(clock, stop).await;
                Ok(())
            })
        };
        self.writer.take().map(job).into_iter().collect()
    }

    fn surface(&mut self) -> Surface {
        let (counts, runs_with) = (Arc::clone(self.control.counts()), Arc::clone(&self.runs_with));
        let (recorder, clock) = (self.recorder.clone(), self.clock);
        let is_exploring = Arc::new(move || {
            let config = runs_with.lock().unwrap_or_else(PoisonError::into_inner);
            config.as_ref().map(|config| exploring(config, &recorder, clock))
        });
        let (shown, told) = (Arc::clone(&counts), Arc::clone(&is_exploring));
        let runs_with = Arc::clone(&self.runs_with);
        let mut surface = Surface::of_metrics(move |scrape: &mut Scrape| {
            scrape.single(&RecordCounts::METRICS, &*counts);
            if let Some(is_exploring) = is_exploring() {
                scrape.single(&EXPLORING, &is_exploring);
            }
        });
        surface.status.push((
            "record",
            Box::new(move |_| {
                let config = runs_with.lock().unwrap_or_else(PoisonError::into_inner).clone();
                config.map_or("null".to_owned(), |config| {
                    status(&config, &shown, told() == Some(true))
                })
            }),
        ));
        surface
    }

    fn stage(&mut self, next: Arc<Option<RecordConfig>>) -> Result<Self::Staged, ReloadError> {
        make(next.as_ref().as_ref()).map_err(ReloadError::Unusable)?;
        Ok(next)
    }

    fn apply(&mut self, next: Self::Staged) {
        self.control.set(next.as_ref().as_ref());
        *self.runs_with.lock().unwrap_or_else(PoisonError::into_inner) = (*next).clone();
    }
}

fn exploring(config: &RecordConfig, recorder: &Recorder, clock: Clock) -> bool {
    let windows: Windows = recorder.windows(config.explore);
    windows.look(clock.now()).0
}

const EXPLORING: [Metric<bool>; 1] = [gauge(
    "evenkeel_record_exploring",
    "Whether another policy than the configured one decides in this minute; absent where nothing \
     is recorded.",
    |is| u64::from(*is).into(),
)];

/// What `/api/v1/status` has of the recording.
pub(crate) fn status(config: &RecordConfig, counts: &RecordCounts, is_exploring: bool) -> String {
    let get = |of: &std::sync::atomic::AtomicU64| of.load(std::sync::atomic::Ordering::Relaxed);
    let (windows, dropped) = (get(&counts.windows), get(&counts.windows_dropped));
    json!({
        "explore": config.explore.value(),
        "is_exploring": is_exploring,
        "pairs": config.pairs.value(),
        "pairs_sent": get(&counts.pairs),
        "rows": get(&counts.rows),
        "bytes": get(&counts.bytes),
        "windows": windows,
        "windows_dropped": dropped,
        "rows_lost": get(&counts.overload) + get(&counts.disk) + get(&counts.late),
        "failures": get(&counts.failures),
    })
    .to_string()
}
