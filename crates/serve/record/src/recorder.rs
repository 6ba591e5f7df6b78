//! Who records: dispatchers are given the ends of lanes, and a thread writes what comes out.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use evenkeel_core::request::copies::{CopySink, ServedSink, Windows};
use evenkeel_core::units::Probability;
use tokio::sync::watch;

use crate::config::RecordConfig;
use crate::counts::RecordCounts;
use crate::lane::{Lane, LaneSink, NewLane, Stream, Teller};
use crate::writer::RecordWriter;

/// For those that have dispatchers.
#[derive(Clone, Debug)]
pub struct Recorder {
    lanes: Arc<Mutex<Vec<NewLane>>>,
    serials: Arc<AtomicU32>,
    seed: u64,
}

/// To change where days are recorded.
#[derive(Debug)]
pub struct RecordControl {
    config: watch::Sender<Option<Arc<RecordConfig>>>,
    counts: Arc<RecordCounts>,
}

/// The three ends. Nothing is written with `None`.
pub fn open(config: Option<&RecordConfig>) -> (Recorder, RecordControl, RecordWriter) {
    let (config, configs) = watch::channel(config.cloned().map(Arc::new));
    let (lanes, counts) = (Arc::<Mutex<Vec<NewLane>>>::default(), Arc::<RecordCounts>::default());
    let seed = RandomState::new().build_hasher().finish();
    let writer = RecordWriter::new(Arc::clone(&lanes), configs, Arc::clone(&counts));
    // An agent sees the numbers of other processes, too, and of those before this one.
    let serials = Arc::new(AtomicU32::new(seed as u32));
    (Recorder { lanes, serials, seed }, RecordControl { config, counts }, writer)
}

impl Recorder {
    /// What a dispatcher of a stream tells copies; `client` is its number among those of the
    /// stream.
    pub fn sink(&self, stream: &Arc<Stream>, client: u16) -> Box<dyn CopySink> {
        Box::new(self.open(stream, client))
    }

    /// What an agent tells; its stream is its own.
    pub fn served_sink(&self, stream: &Arc<Stream>) -> Box<dyn ServedSink> {
        Box::new(self.open(stream, 0))
    }

    fn open(&self, stream: &Arc<Stream>, client: u16) -> LaneSink {
        let lane = Lane::new();
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let of = Teller { client, serial: self.serials.fetch_add(1, Ordering::Relaxed) };
        let sink = lane.sink(of);
        lanes.push(NewLane { stream: Arc::clone(stream), of, lane });
        sink
    }

    /// The windows of another policy, the same for all dispatchers of this process, and others
    /// after its next start.
    pub const fn windows(&self, share: Probability) -> Windows {
        Windows { share, seed: self.seed }
    }
}

impl RecordControl {
    /// Follows this configuration from now on.
    pub fn set(&self, config: Option<&RecordConfig>) {
        self.config.send_replace(config.cloned().map(Arc::new));
    }

    /// What is counted.
    pub const fn counts(&self) -> &Arc<RecordCounts> {
        &self.counts
    }
}
