//! What a proxy and its agents would record of a run: a row for each copy, from where copies begin
//! and end.

use evenkeel_core::request::{Attempt, Kind};
use evenkeel_core::time::nanos;
use evenkeel_core::{Duration, Instant, ReplicaId, Rng};
use evenkeel_twin::rows::{Day, End, Row, Served, Why};

use crate::scenario::{Scenario, Spelling};
use crate::server::JobId;
use crate::workload::{Arrival, luck};
use crate::world::{World, make_clients};

/// The luck by which a request is sent to two replicas, and to which.
const PAIRED: u32 = 16;
/// Windows of a run that explore.
const WINDOWS: usize = 10;

/// What is recorded of a run, and what is done for the sake of the record.
#[derive(Clone, Debug)]
pub struct RecordConfig {
    /// Clients from this one on are recorded by nobody.
    pub clients: usize,
    /// Another policy, and the windows in which it decides.
    pub explore: Option<(String, Vec<(Instant, Instant)>)>,
    /// Share of requests that are sent to two replicas: 0 to 1.
    pub pairs: f64,
    /// Other coin flips of the dispatchers, in the same world.
    pub coins: u64,
}

impl Default for RecordConfig {
    fn default() -> Self {
        Self { clients: usize::MAX, explore: None, pairs: 0.0, coins: 0 }
    }
}

/// Windows that explore: one at a random time in each tenth of a run of this length, together this
/// share of it.
pub fn windows(length_s: f64, share: f64, seed: u64) -> Vec<(Instant, Instant)> {
    let mut rng = Rng::stream(seed, "windows that explore");
    let part_s = length_s / WINDOWS as f64;
    let window = |number: usize| {
        let from_s = part_s * (number as f64 + rng.unit() * (1.0 - share));
        let to_s = from_s + part_s * share;
        (Instant::from_secs_f64(from_s), Instant::from_secs_f64(to_s))
    };
    (0..WINDOWS).map(window).collect()
}

#[derive(Debug)]
pub(super) struct Recording {
    config: RecordConfig,
    day: Day,
    last: Instant,
    /// The first of the clients that explore.
    explorers: u32,
}

/// Runs a scenario with one of its policies and gives what was recorded of it.
///
/// # Panics
/// As [`run`](super::run) does; and when the scenario has sites, tiers or fewer clients than
/// workers of a process and an exploration is asked for: those have clients of their own.
pub fn record(scenario: &Scenario, policy: &str, seed: u64, config: RecordConfig) -> Day {
    let mut whole = Day::default();
    let take = |day: &mut Day| whole = core::mem::take(day);
    record_parts(scenario, policy, seed, config, usize::MAX, take);
    whole
}

/// The same part by part: whenever nothing is on its way and so many rows are there, these are
/// taken, and may be changed. The gap of the first row of a part is the time from the start of the
/// run; strangers are those of the run so far.
///
/// # Panics
/// As [`record`].
pub fn record_parts(
    scenario: &Scenario,
    policy: &str,
    seed: u64,
    config: RecordConfig,
    rows_of_part: usize,
    mut take: impl FnMut(&mut Day),
) {
    let mut world = World::new(scenario, policy, seed);
    let explorers = world.clients.len() as u32;
    if config.coins != 0 {
        world.clients = make_clients(scenario, Spelling::of(policy), &world.truth, !config.coins);
    }
    if let Some((policy, _)) = &config.explore {
        assert!(scenario.geography.is_none() && scenario.tiers.is_empty(), "one site, one tier");
        let explorers = make_clients(scenario, Spelling::of(policy), &world.truth, seed ^ u64::MAX);
        world.clients.extend(explorers);
    }
    let strangers = vec![0; scenario.cluster.servers];
    // Nearly all rows are those of first copies; to grow by and by would copy them again.
    let rows = (scenario.workload.requests as usize / 16 * 17).min(rows_of_part);
    let rows = Vec::with_capacity(rows);
    let day = Day { rows, strangers, ..Day::default() };
    let recording = Recording { config, day, last: Instant::ZERO, explorers };
    world.recording = Some(Box::new(recording));
    world.begin();
    while world.go_on() {
        if world.calls.is_empty()
            && world.jobs.is_empty()
            && let Some(recording) = &mut world.recording
            && recording.day.rows.len() >= rows_of_part
        {
            take(&mut recording.day);
            recording.day.rows.clear();
            recording.last = Instant::ZERO;
        }
    }
    if let Some(mut recording) = world.recording.take() {
        take(&mut recording.day);
    }
    world.check_end();
}

impl Recording {
    fn is_seen(&self, client: u32) -> bool {
        ((client % self.explorers) as usize) < self.config.clients
    }

    fn explores(&self, now: Instant) -> bool {
        let windows = self.config.explore.as_ref().map(|(_, windows)| windows);
        windows.is_some_and(|all| all.iter().any(|(from, to)| (*from..*to).contains(&now)))
    }
}

impl World<'_> {
    /// Gives a request to another policy, in the windows that explore it.
    #[inline]
    pub(super) fn divert(&mut self, arrival: &mut Arrival) {
        let Some(recording) = &self.recording else { return };
        if arrival.explores || recording.explores(self.now) {
            arrival.explores = true;
            arrival.client += recording.explorers;
        }
    }

    /// Sends the same request to a second replica too, if it is one of the pairs.
    #[inline]
    pub(super) fn send_pair(&mut self, slot: usize, chosen: ReplicaId) {
        let Some(recording) = &self.recording else { return };
        let (share, open) = (recording.config.pairs, &self.calls[slot]);
        let (id, client, arrival) = (open.id, open.client, open.arrival);
        let draw = |kind| luck(arrival.work_seed, 0, kind);
        let members = self.scenario.cluster.replication_factor;
        if share == 0.0 || draw(PAIRED) >= share || members < 2 || arrival.everywhere {
            return;
        }
        let member = |place: usize| (arrival.group as usize + place) % self.servers.len();
        let others = (0..members).map(member).filter(|member| *member != chosen.index());
        let place = (draw(PAIRED + 1) * (members - 1) as f64) as usize;
        let Some(other) = others.clone().nth(place).or_else(|| others.clone().next()) else {
            return;
        };
        let dispatcher = &mut self.clients[client as usize].dispatcher;
        let mirror = dispatcher.mirror(self.now, id, ReplicaId::new(other));
        self.launch(slot, mirror);
    }

    /// A copy is sent.
    #[inline]
    pub(super) fn begin_row(&mut self, slot: usize, attempt: &Attempt) -> Option<(u32, Instant)> {
        let recording = self.recording.as_mut()?;
        let open = &self.calls[slot];
        if !recording.is_seen(open.client) {
            return None;
        }
        let day = &mut recording.day;
        day.rows.push(Row {
            request: open.number,
            gap_ns: self.now.nanos_since(recording.last),
            after_ns: self.now.nanos_since(open.arrived_at),
            latency_ns: 0,
            client: (open.client % recording.explorers) as u16,
            replica: attempt.replica().index() as u16,
            group: open.arrival.group as u16,
            policy: u8::from(open.arrival.explores),
            size: 0,
            why: match attempt.kind() {
                Kind::First => Why::First,
                Kind::Retry => Why::Retry,
                Kind::Hedge => Why::Hedge,
                Kind::Moved => Why::Moved,
                Kind::Mirror => Why::Pair,
            },
            end: End::Cancelled,
            served: None,
        });
        recording.last = self.now;
        Some((day.rows.len() as u32 - 1, self.now))
    }

    /// A copy ends at its client.
    #[inline]
    pub(super) fn end_row(&mut self, row: Option<(u32, Instant)>, end: End) {
        let (Some(recording), Some((row, sent_at))) = (&mut self.recording, row) else { return };
        let row = &mut recording.day.rows[row as usize];
        (row.latency_ns, row.end) = (self.now.nanos_since(sent_at), end);
    }

    /// A copy is at its replica, beside so many others.
    #[inline]
    pub(super) fn reach_row(&mut self, id: JobId, queue: u32) {
        let Some(recording) = &mut self.recording else { return };
        let job = &self.jobs[id as usize];
        if let Some((row, _)) = job.row {
            let served = Served { wait_ns: 0, service_ns: 0, queue, is_full: true };
            recording.day.rows[row as usize].served = Some(served);
        } else if !recording.is_seen(job.client) {
            recording.day.strangers[job.server as usize] += 1;
        }
    }

    /// A copy leaves its replica: it was served, or is taken off.
    #[inline]
    pub(super) fn serve_row(&mut self, id: JobId) {
        let Some(recording) = &mut self.recording else { return };
        let job = &self.jobs[id as usize];
        let Some((row, _)) = job.row else { return };
        let Some(served) = &mut recording.day.rows[row as usize].served else { return };
        let starts = if job.sent_at == Instant::ZERO { self.now } else { job.sent_at };
        let waited: Duration = starts.min(self.now).since(job.entered_at);
        served.wait_ns = nanos(waited);
        served.service_ns = self.now.nanos_since(starts);
        served.is_full = job.is_full || self.scenario.dimmer.is_none();
    }
}
