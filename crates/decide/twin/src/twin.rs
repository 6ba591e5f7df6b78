//! The world of a day, as it is rebuilt.

use thiserror::Error;

use crate::content::Content;
use crate::pauses::Pause;
use crate::speeds::Speeds;
use crate::visits::Network;
use crate::works::Works;

/// Fewer answers are no day.
pub(crate) const ANSWERS_MIN: usize = 1_000;
/// A week and a day, s.
pub(crate) const DAY_MAX_S: u64 = 8 * 86_400;

/// A number with its standard error.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// The number.
    pub value: f64,
    /// Its standard error.
    pub error: f64,
}

/// A request of the day.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Request {
    /// When it arrived, ns from the start of the day.
    pub at_ns: u64,
    /// The dispatcher at which it arrived.
    pub client: u16,
    /// Its replica group.
    pub group: u16,
    /// Which policy decided: 0 is that of the day.
    pub policy: u8,
    /// Where its first copy's work stands among all: a normal score.
    pub score: f32,
    /// How long it took on that day, ns; 0 if it was not answered.
    pub latency_ns: u64,
}

/// The world of a day, rebuilt.
#[derive(Clone, PartialEq, Debug)]
pub struct Twin {
    /// The requests in the order of their arrival.
    pub requests: Vec<Request>,
    /// Requests that each replica serves at once.
    pub slots: u32,
    /// Share of copies that left before they could have begun in so many slots.
    pub early: f64,
    /// Whether agents saw what came to the replicas: without them nobody reports their load.
    pub has_agents: bool,
    /// Whether replicas work on what is given up; `None` where the rows do not tell.
    pub works_on: Option<bool>,
    /// By how much longer works take that begin in a crowd, as a logarithm: near 0 in slots, more
    /// where all share the replica's cores.
    pub crowding: Estimate,
    /// The pauses of each replica.
    pub pauses: Vec<Vec<Pause>>,
    /// The share of pauses that struck all replicas at once.
    pub pauses_shared: f64,
    /// Speeds of the replicas.
    pub speeds: Speeds,
    /// The law of works.
    pub works: Works,
    /// What is left out and what that saves; `None` where everything was served in full.
    pub content: Option<Content>,
    /// Correlation of the scores of two copies of a request; `None` without pairs.
    pub correlation: Option<Estimate>,
    /// What lies between client and replicas.
    pub network: Network,
    /// Share of what agents served that nobody recorded.
    pub unseen: f64,
    /// Share of windows that were lost to overload.
    pub dropped: f64,
}

/// Why a day cannot be rebuilt.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum RebuildError {
    /// Too few answers.
    #[error("got {0} answered copies, expected at least {ANSWERS_MIN}: record longer")]
    TooShort(usize),
    /// Longer than any day: a gap between rows is wrong.
    #[error("got a day of {0} s, expected at most {DAY_MAX_S}: are gaps between rows in ns?")]
    TooLong(u64),
}

impl Twin {
    /// When the last request arrived, ns from the start of the day.
    pub fn length_ns(&self) -> u64 {
        self.requests.last().map_or(0, |request| request.at_ns)
    }
}
