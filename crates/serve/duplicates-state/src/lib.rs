//! What a service of duplicates counts, and what it tells of itself.
//!
//! | room | what it is |
//! |---|---|
//! | [`DuplicatesState`] and what is in it | what `/api/v1/duplicates`, the dashboard and tests read |
//! | [`counts`], [`error_counts`] | what is counted, of answers and of errors |
//! | [`about`] | a client's connection, for `CLIENT LIST` |

pub mod about;
pub mod counts;
pub mod error_counts;

use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::Health;
use evenkeel_core::distribution::{Distribution as _, Recorder};
use evenkeel_core::units::Probability;
use evenkeel_ordered::Dropped;
use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

use counts::ServerCounts;
pub use evenkeel_duplicates_config::changes::{EndedState, MoveState, MovesState};
pub use evenkeel_manager::{Advice, NightAdvice, OutliersAdvice, PolicyAdvice};
use evenkeel_proxy::metrics::Balanced;
use evenkeel_proxy::upstream_state::UpstreamStats;
use evenkeel_proxy::view::ReplicaView;

/// The role of a service while another process leads.
pub const STANDS_BY: &str = "stands by";

/// One service.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DuplicatesState {
    /// Its name in the configuration.
    pub name: String,
    /// Where clients connect.
    pub address: String,
    /// What reads see unless a session says otherwise.
    pub consistency: &'static str,
    /// When writes are acknowledged.
    pub acknowledge: &'static str,
    /// `alone`, `leads`, or `stands by` while another process leads.
    pub role: &'static str,
    /// Who leads, as far as it is known: this process, or another one.
    pub leader: Option<String>,
    /// For how long this process counts, in seconds: since it leads.
    pub counted_s: f64,
    /// The term of this process.
    pub term: u64,
    /// The last write.
    pub sequence: u64,
    /// Parts that keys are dealt to.
    pub shards: usize,
    /// Why no write is taken; while it stands by, who leads.
    pub failure: Option<String>,
    /// Connections of clients.
    pub clients: u64,
    /// Writes and reads that were answered, as clients saw them.
    pub writes: AccessState,
    /// Reads that were answered.
    pub reads: AccessState,
    /// Commands answered with an error of ours.
    pub refused: u64,
    /// Writes whose clients were told that nobody knows yet.
    pub uncertain_writes: u64,
    /// Reads whose duplicates went away.
    pub lost_reads: u64,
    /// Clients that did not read the messages that they subscribed to.
    pub subscribers_cut_off: u64,
    /// Writes that duplicates answered differently, and keys and duplicates that were found to
    /// differ from the others.
    pub disagreements: u64,
    /// Keys that were compared between duplicates.
    pub compared_keys: u64,
    /// Keys that were used at their deadline, and removed from all duplicates at one place.
    pub expired_keys: u64,
    /// Keys that differ, and no majority tells who is right.
    pub undecided_keys: usize,
    /// The log.
    pub log: LogState,
    /// The duplicates of each partition.
    pub partitions: Vec<PartitionState>,
    /// Shards that move, duplicates and partitions that come and go.
    pub moves: MovesState,
    /// What the manager says, where an objective is given.
    pub advice: Option<Advice>,
    /// How reads that one answer is enough for are balanced; in `/metrics` only.
    #[serde(skip)]
    pub reads_balance: Arc<ReadBalance>,
}

/// How reads are balanced between duplicates, as any upstream's requests are.
#[derive(Debug, Default)]
pub struct ReadBalance {
    /// The policy, as it is written.
    pub policy: String,
    /// What was counted since the service began, and how things stand.
    pub stats: UpstreamStats,
    /// The duplicates: slot, address, and whether they may be asked.
    pub replicas: Vec<(usize, String, Health)>,
}

impl DuplicatesState {
    /// How its reads are balanced, for the metrics that upstreams have.
    pub fn balanced(&self) -> Balanced<'_> {
        let balance = &self.reads_balance;
        let view = |(slot, address, health): &(usize, String, Health)| ReplicaView {
            address: address.clone(),
            health: *health,
            state: balance.stats.replica(*slot),
            counted: balance.stats.total.replicas.get(*slot).copied().unwrap_or_default(),
        };
        Balanced {
            label: ("service", &self.name),
            policy: &balance.policy,
            stats: &balance.stats,
            replicas: balance.replicas.iter().map(view).collect(),
        }
    }
}

/// Accesses of one kind. It is shown with how many there were, and their median, 99th and 99.9th
/// percentile from the command to enough answers (`null` without any), which are looked up only
/// then: a state is made ten times a second.
#[derive(Debug, Clone, Default)]
pub struct AccessState {
    /// All of them.
    pub latencies: Arc<Recorder>,
}

impl Serialize for AccessState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let quantile = |p: f64| {
            let at = self.latencies.quantile(Probability::clamped(p));
            (!self.latencies.is_empty()).then(|| millis(at))
        };
        let mut shown = serializer.serialize_struct("AccessState", 4)?;
        shown.serialize_field("count", &self.latencies.count())?;
        shown.serialize_field("p50_ms", &quantile(0.5))?;
        shown.serialize_field("p99_ms", &quantile(0.99))?;
        shown.serialize_field("p999_ms", &quantile(0.999))?;
        shown.end()
    }
}

/// The log of a service.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LogState {
    /// Its length.
    pub bytes: u64,
    /// The first write it still has.
    pub first_sequence: u64,
    /// It cannot be written: the disk is full, most of the time.
    pub failed: bool,
}

/// One partition.
#[derive(Debug, Clone, Default, Serialize)]
pub struct PartitionState {
    /// How many shards it holds.
    pub shards: usize,
    /// The last write of it since this process leads; 0 before the first one.
    pub sequence: u64,
    /// Writes as clients saw them: with all duplicates together.
    pub writes: AccessState,
    /// Reads that were answered.
    pub reads: AccessState,
    /// Copies of a write that went to duplicates, on average; `None` without any. Those of moves
    /// and of duplicates that are brought up to date are not counted.
    pub copies_per_write: Option<f64>,
    /// Copies of a read that went to duplicates.
    pub copies_per_read: Option<f64>,
    /// What differed between its duplicates, and what became of that.
    pub differences: DifferencesState,
    /// Its duplicates.
    pub duplicates: Vec<DuplicateState>,
}

/// What differed between duplicates of a partition, since this process leads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DifferencesState {
    /// Writes answered differently, and keys and duplicates found to differ.
    pub found: u64,
    /// Keys that differ, and no majority tells who is right.
    pub undecided: usize,
    /// Duplicates that differed and were filled again from another one.
    pub mended_by_copy: u64,
    /// Those that were filled again from the log.
    pub mended_by_log: u64,
}

/// One duplicate.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DuplicateState {
    /// Where it is.
    pub address: String,
    /// `disconnected`, `catching-up` or `in-sync`.
    pub state: &'static str,
    /// It is being added: no acknowledgement needs it yet, and nobody reads from it.
    pub is_joining: bool,
    /// The last write it has answered.
    pub applied: u64,
    /// Writes it lags behind the last one of its partition, at most: numbers count the writes of
    /// all partitions.
    pub behind: u64,
    /// How long the oldest command that it has not answered waits for it; `None`: there is none,
    /// or it is away.
    pub behind_ms: Option<f64>,
    /// Answers it owes.
    pub pending: usize,
    /// Why it is not live.
    pub error: Option<String>,
    /// What it holds differed from what the others hold: it is not read from until it is filled
    /// again.
    pub quarantine: Option<String>,
    /// Keys it was given, while it is being filled.
    pub filled_keys: Option<usize>,
    /// Times it was dropped, by reason.
    pub dropped: DropsState,
    /// Its own answers, first or not.
    pub answers: AccessState,
}

/// Why a duplicate was dropped, and how often.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct DropsState {
    /// Its connection broke.
    pub lost: u64,
    /// It owed an answer for too long.
    pub silent: u64,
    /// It owed too many answers.
    pub full: u64,
    /// It could not do what others can.
    pub failed: u64,
    /// What it holds differed from what the others hold.
    pub diverged: u64,
}

impl AccessState {
    /// A copy of what was counted.
    pub fn of(latencies: &Recorder) -> Self {
        Self { latencies: Arc::new(latencies.clone()) }
    }
}

/// As it is shown: in milliseconds, to a microsecond.
pub fn millis(latency: Duration) -> f64 {
    (latency.as_secs_f64() * 1e6).round() / 1e3
}

impl DropsState {
    /// Of what was counted.
    pub fn of(counts: &ServerCounts) -> Self {
        let count = |why: Dropped| counts.drops[why as usize];
        Self {
            lost: count(Dropped::Lost),
            silent: count(Dropped::Silent),
            full: count(Dropped::Full),
            failed: count(Dropped::Failed),
            diverged: count(Dropped::Diverged),
        }
    }
}
