//! What all connections to one node count together.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use crate::{Envelope, Flags, payload};
use evenkeel_core::Feedback;

use super::FEEDBACK_KEY;
use super::error::End;
use super::limits::NodeLimits;
use super::streams::Arrived;
use crate::client::feedback;

/// After this long without a report of an agent, polled ones are taken.
const AGENT_GONE: Duration = Duration::from_secs(2);

/// What has happened between one worker and one node since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// Connections that could be used.
    pub opened: u64,
    /// Connections that could not be opened.
    pub failed: u64,
    /// Connections that were replaced for their given-up requests.
    pub retired: u64,
    /// Times a silent node was asked for a byte.
    pub heartbeats: u64,
    /// Statements that the node did not know any more and was told again.
    pub prepared_again: u64,
    /// Reports that came with answers.
    pub reports: u64,
    /// Reports that were not believed.
    pub reports_refused: u64,
}

evenkeel_core::named! {
    /// Where the reports of a node come from.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum FeedbackSource {
        /// Nowhere: there are none.
        #[default]
        None = "none",
        /// From an agent beside the node, with every answer.
        Agent = "agent",
        /// From the node's own tables, which are asked now and then.
        Polled = "polled",
    }
}

/// Shared by a node, its pools and their connections.
#[derive(Debug)]
pub(super) struct Ledger {
    address: SocketAddr,
    limits: Rc<NodeLimits>,
    connections: Cell<usize>,
    conversations: Cell<usize>,
    in_flight: Cell<usize>,
    orphans: Cell<usize>,
    counts: Cell<NodeCounts>,
    newest: Cell<Option<Feedback>>,
    source: Cell<FeedbackSource>,
    agent_heard_at: Cell<Option<tokio::time::Instant>>,
}

impl Ledger {
    pub(super) fn new(address: SocketAddr, limits: Rc<NodeLimits>) -> Self {
        Self {
            address,
            limits,
            connections: Cell::default(),
            conversations: Cell::default(),
            in_flight: Cell::default(),
            orphans: Cell::default(),
            counts: Cell::default(),
            newest: Cell::default(),
            source: Cell::default(),
            agent_heard_at: Cell::default(),
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn limits(&self) -> &NodeLimits {
        &self.limits
    }

    /// Requests in flight on one connection; the last number is the heartbeat's.
    pub(super) fn streams_max(&self) -> usize {
        self.limits.streams_max.clamp(1, i16::MAX as usize)
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.get()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.get()
    }

    pub(super) fn orphans(&self) -> usize {
        self.orphans.get()
    }

    pub(super) fn counts(&self) -> NodeCounts {
        self.counts.get()
    }

    pub(super) fn newest(&self) -> (FeedbackSource, Option<Feedback>) {
        (self.source.get(), self.newest.get())
    }

    /// Takes a place for a connection, if there is one.
    pub(super) fn reserve(&self) -> bool {
        let is_free = self.connections.get() < self.limits.connections_in_all_max.max(1);
        self.connections.update(|connections| connections + usize::from(is_free));
        is_free
    }

    /// A connection, or the place for one, is there no more.
    pub(super) fn closed(&self) {
        let connections = self.connections.get();
        assert!(connections > 0, "a connection closes once");
        self.connections.set(connections - 1);
    }

    pub(super) fn conversations(&self) -> usize {
        self.conversations.get()
    }

    /// Takes a place for a conversation, if there is one.
    pub(super) fn begin_conversation(&self) -> bool {
        let is_free = self.conversations.get() < self.limits.conversations_max.max(1);
        self.conversations.update(|conversations| conversations + usize::from(is_free));
        is_free
    }

    /// A conversation, or the place for one, is there no more.
    pub(super) fn end_conversation(&self) {
        let conversations = self.conversations.get();
        assert!(conversations > 0, "a conversation ends once");
        self.conversations.set(conversations - 1);
    }

    pub(super) fn began(&self) {
        self.in_flight.update(|in_flight| in_flight + 1);
    }

    pub(super) fn finished(&self) {
        let in_flight = self.in_flight.get();
        assert!(in_flight > 0, "a request finishes once");
        self.in_flight.set(in_flight - 1);
    }

    pub(super) fn orphaned(&self) {
        self.orphans.update(|orphans| orphans + 1);
    }

    /// So many orphans are answered, or gone with their connection.
    pub(super) fn adopted(&self, count: usize) {
        let orphans = self.orphans.get();
        assert!(count <= orphans, "an orphan is counted once");
        self.orphans.set(orphans - count);
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut NodeCounts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    /// A report came. Those of an agent are fresher than what is asked for now and then.
    pub(super) fn receive_report(&self, source: FeedbackSource, report: Feedback) {
        let now = tokio::time::Instant::now();
        if source == FeedbackSource::Agent {
            self.agent_heard_at.set(Some(now));
        } else if self.agent_heard_at.get().is_some_and(|at| now - at < AGENT_GONE) {
            return;
        }
        self.source.set(source);
        self.newest.set(Some(report));
    }

    /// Takes the report out of an answer, if one is in it and was asked for.
    pub(super) fn take_report(&self, envelope: Envelope) -> Result<Arrived, End> {
        if !self.limits.asks_for_feedback || !envelope.flags.has(Flags::CUSTOM_PAYLOAD) {
            return Ok(Arrived { envelope, feedback: None });
        }
        let parts = payload::split(&envelope)?;
        let Some(bytes) = parts.payload.named(FEEDBACK_KEY) else {
            return Ok(Arrived { envelope, feedback: None });
        };
        let report = feedback::read(bytes);
        match &report {
            Ok(report) => {
                self.count(|counts| counts.reports += 1);
                self.receive_report(FeedbackSource::Agent, *report);
            }
            Err(error) => {
                if self.counts().reports_refused == 0 {
                    tracing::warn!(address = %self.address, %error, "a report is not believed");
                }
                self.count(|counts| counts.reports_refused += 1);
            }
        }
        let envelope = payload::strip(&envelope, FEEDBACK_KEY)?;
        Ok(Arrived { envelope, feedback: report.ok() })
    }
}
