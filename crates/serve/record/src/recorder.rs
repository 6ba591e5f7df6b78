//! Who records: dispatchers are given the ends of lanes, and a thread writes what comes out.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use evenkeel_core::request::copies::{CopySink, Windows};
use evenkeel_core::units::Probability;
use tokio::sync::watch;

use crate::config::RecordConfig;
use crate::counts::RecordCounts;
use crate::lane::Lane;
use crate::writer::RecordWriter;

/// Replicas of which one upstream has days.
#[derive(Clone, Debug, PartialEq)]
pub struct Stream {
    /// Its folder: that of its table, such as `upstream.shop`.
    pub name: String,
    /// The policy of its rows, as scenarios spell it (`c3+hedge`), then that which is tried out.
    pub policies: Vec<String>,
    /// Share of its requests that are sent to two replicas.
    pub pairs: f64,
    /// Replicas it has as it begins; more may follow.
    pub replicas: usize,
}

/// A lane whose writer does not know it yet.
#[derive(Debug)]
pub(crate) struct NewLane {
    pub(crate) stream: Arc<Stream>,
    pub(crate) client: u16,
    pub(crate) lane: Lane,
}

/// For those that have dispatchers.
#[derive(Clone, Debug)]
pub struct Recorder {
    lanes: Arc<Mutex<Vec<NewLane>>>,
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
    (Recorder { lanes, seed }, RecordControl { config, counts }, writer)
}

impl Recorder {
    /// What a dispatcher of a stream tells copies; `client` is its number among those of the
    /// stream.
    pub fn sink(&self, stream: &Arc<Stream>, client: u16) -> Box<dyn CopySink> {
        let lane = Lane::new();
        let sink = lane.sink();
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.push(NewLane { stream: Arc::clone(stream), client, lane });
        Box::new(sink)
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
