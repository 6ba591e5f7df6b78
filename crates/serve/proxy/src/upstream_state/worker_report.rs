//! What a worker hands up of one upstream.

use std::time::Duration;

use evenkeel_core::Instant;
use evenkeel_core::request::redundancy::HedgeStats;
use evenkeel_core::request::safeguards::Distrust;
use evenkeel_core::units::Dimmer;
use evenkeel_core::window::RequestWindow;

use super::SplitReport;

/// How one upstream stands with one worker.
#[derive(Debug)]
pub struct WorkerReport {
    /// What was counted since the last observation.
    pub window: RequestWindow,
    /// Each replica, by slot.
    pub replicas: Vec<ReplicaState>,
    /// Calls held for a sending rate.
    pub held: usize,
    /// How its hedges stand; `None` where there are none.
    pub hedge: Option<HedgeStats>,
    /// What answers said of brownout since the last observation.
    pub seen: BrownoutSeen,
    /// Reads and writes of our own users that came since the last observation.
    pub operations: [u64; 2],
    /// Responses to clients by class of status, 1xx first, since the last observation.
    pub responses: [u64; 5],
    /// Copies of other upstreams' requests since the last observation: sent, and left out.
    pub mirrored: [u64; 2],
    /// What became of questions to replicas since the last observation.
    pub probes: ProbeCounts,
    /// What became of the requests of our own users; `None` where all of them stay at home.
    pub split: Option<SplitReport>,
}

/// What the answers of an upstream's replicas said of brownout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BrownoutSeen {
    /// Answers that said they had all their optional content.
    pub full: u64,
    /// Answers that said something was left out.
    pub reduced: u64,
    /// Answers and probes with a dimmer that must not be believed.
    pub dimmers_invalid: u64,
}

impl BrownoutSeen {
    /// Adds what was seen elsewhere or later.
    pub const fn merge(&mut self, other: &Self) {
        self.full += other.full;
        self.reduced += other.reduced;
        self.dimmers_invalid += other.dimmers_invalid;
    }
}

/// Questions to the agents of an upstream's replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeCounts {
    /// As requests.
    pub http: ProbeResults,
    /// In datagrams.
    pub udp: ProbeResults,
    /// Datagrams that answer no question that waits: too late, or come twice.
    pub unexpected: u64,
    /// Datagrams that are no answer of the agent asked.
    pub invalid: u64,
    /// Notices of requests that wait at their replica.
    pub notices: u64,
}

/// How questions ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeResults {
    /// With an answer.
    pub answered: u64,
    /// Without one.
    pub unanswered: u64,
    /// As nobody there knows questions.
    pub unknown: u64,
}

impl ProbeCounts {
    /// Adds what was counted elsewhere or later.
    pub const fn merge(&mut self, other: &Self) {
        self.http.merge(&other.http);
        self.udp.merge(&other.udp);
        self.unexpected += other.unexpected;
        self.invalid += other.invalid;
        self.notices += other.notices;
    }
}

impl ProbeResults {
    const fn merge(&mut self, other: &Self) {
        self.answered += other.answered;
        self.unanswered += other.unanswered;
        self.unknown += other.unknown;
    }
}

/// How one replica stands with one worker.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplicaState {
    /// Attempts in flight.
    pub in_flight: u32,
    /// Connections open.
    pub connections: usize,
    /// Share of recent failures.
    pub failure_share: f64,
    /// Whether it is ejected for failing.
    pub is_ejected: bool,
    /// Why it gets no requests while others may; `None` = nothing speaks against it.
    pub distrust: Option<Distrust>,
    /// What the policy thinks it costs, in the policy's unit; lower is better.
    pub cost: Option<f64>,
    /// Its own last report: requests waiting there.
    pub queue_length: Option<u32>,
    /// Its own last report: service time.
    pub service_time: Option<Duration>,
    /// The dimmer it told, and when; `None` when that is too long ago to be true.
    pub dimmer: Option<(Dimmer, Instant)>,
}
