//! How a service stands now.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::distribution::Recorder;
use evenkeel_duplicates_state::counts::Counts;
use evenkeel_duplicates_state::{
    AccessState, DifferencesState, DropsState, DuplicateState, DuplicatesState, LogState,
    PartitionState, millis,
};
use evenkeel_ordered::Sequence;

use super::Inner;
use super::types::Owed;

impl Inner {
    /// How everything stands now.
    pub fn state(&mut self) -> DuplicatesState {
        let reads_balance = Arc::new(self.read_balance());
        let Counts { clients, refused, uncertain_writes, lost_reads, .. } = self.counts;
        let disagreements = self.counts.disagreements();
        let last = self.history.last();
        let partitions = (0..self.map.partitions()).map(|number| self.partition(number)).collect();
        DuplicatesState {
            name: self.config.name.clone(),
            address: self.config.listen.to_string(),
            consistency: self.config.consistency.name(),
            acknowledge: self.members.acknowledge().name(),
            role: if self.leadership.is_some() { "leads" } else { "alone" },
            leader: Some(self.config.listen.to_string()).filter(|_| self.leads()),
            counted_s: self.now.since(self.counts.since).as_secs_f64(),
            term: last.epoch.0,
            sequence: last.sequence.0,
            shards: self.map.shards(),
            failure: self.failure.clone().or_else(|| (!self.leads()).then(|| self.why_deposed())),
            clients,
            writes: AccessState::of(&self.counts.wrote()),
            reads: AccessState::of(&self.counts.reads()),
            refused,
            uncertain_writes,
            lost_reads,
            subscribers_cut_off: self.counts.subscribers_cut_off,
            disagreements,
            compared_keys: self.counts.compared,
            expired_keys: self.counts.expired,
            undecided_keys: self.undecided_keys(),
            log: LogState {
                bytes: self.log.bytes(),
                first_sequence: self.log.first_sequence(),
                failed: self.failure.is_some(),
            },
            partitions,
            moves: self.moves_state(),
            advice: self.manager.as_ref().and_then(|manager| manager.advice().cloned()),
            reads_balance,
        }
    }

    fn partition(&mut self, number: usize) -> PartitionState {
        let servers = self.members.configured(number);
        let undecided = self.undecided_of(number);
        let counts = self.counts.of(number);
        let last = counts.last;
        let each = |copies: u64, of: &Recorder| {
            (!of.is_empty()).then(|| copies as f64 / of.count() as f64)
        };
        PartitionState {
            shards: self.map.shards_of(number).count(),
            sequence: last.0,
            writes: AccessState::of(&counts.wrote),
            reads: AccessState::of(&counts.reads),
            copies_per_write: each(counts.write_copies, &counts.wrote),
            copies_per_read: each(counts.read_copies, &counts.reads),
            differences: DifferencesState {
                found: counts.found,
                undecided,
                mended_by_copy: counts.copied_again,
                mended_by_log: counts.restored_again,
            },
            duplicates: servers.iter().map(|server| self.duplicate(server, last)).collect(),
        }
    }

    /// How long the oldest command waits that a live duplicate has not answered.
    fn oldest_owed(&self, server: usize) -> Option<Duration> {
        let state = &self.servers[server];
        let opened = |owed: &Owed| match owed {
            Owed::Access { call } | Owed::Group { call, .. } => {
                self.calls.get(*call).map(|call| call.opened)
            }
            Owed::Read { attempt } => Some(attempt.sent_at()),
            _ => None,
        };
        let lanes = [&state.ordered, &state.free];
        let first = lanes.into_iter().filter_map(|lane| lane.all_owed().find_map(opened)).min();
        first.map(|opened| self.now.since(opened))
    }

    fn duplicate(&self, server: usize, last: Sequence) -> DuplicateState {
        let (state, counts) = (&self.servers[server], &self.counts.servers[server]);
        DuplicateState {
            address: self.connectors[server].to_string(),
            state: self.members.state(server).name(),
            is_joining: self.members.is_joining(server),
            applied: self.members.applied(server).0,
            behind: last.0.saturating_sub(self.members.applied(server).0),
            behind_ms: self.oldest_owed(server).map(millis),
            pending: self.members.owed(server),
            error: state.error.clone(),
            quarantine: state.quarantine.clone(),
            filled_keys: state.bootstrap.as_ref().map(|bootstrap| bootstrap.copying.copied()),
            dropped: DropsState::of(counts),
            answers: AccessState::of(&counts.answers),
        }
    }
}
