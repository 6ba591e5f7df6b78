//! What a client is told when no node answered.
//!
//! The code decides what its driver does next. Where nothing reached a node it is `OVERLOADED`:
//! drivers may try another coordinator, whatever the request. Where a write may have been done it
//! is `WRITE_TIMEOUT`, the one error that drivers take for "nobody knows" and repeat only what
//! they were told is idempotent; some repeat everything after `OVERLOADED` or `SERVER_ERROR`.

use evenkeel_core::request::ring::Replication;
use evenkeel_core::request::{Failure, Refusal};
use evenkeel_cql::{Consistency, Opcode};

use super::Route;
use crate::calls::HOME;
use crate::cassandra::front::{Asked, Refusal as Told, Request};
use crate::cassandra::node::SendError;

impl Route {
    /// The error for a request that was refused; `error` is why its last attempt failed.
    pub(crate) fn refusal(
        &self,
        refusal: Refusal,
        request: &Request,
        error: Option<&SendError>,
    ) -> Told {
        let why = |words: &str| match error {
            Some(error) => format!("{words}: {error}"),
            None => words.to_owned(),
        };
        match refusal {
            Refusal::NoReplica => self.nobody(),
            Refusal::BacklogFull => Told::overloaded("too many requests wait for a sending rate"),
            Refusal::Failed(Failure::Unsent) => {
                Told::overloaded(why("no replica could be reached, nothing was sent"))
            }
            Refusal::Failed(Failure::TimedOut) => {
                let limit = self.config.timeouts.total;
                self.unknown(request, why(&format!("no replica answered in time ({limit:?})")))
            }
            Refusal::Failed(Failure::Broken | Failure::ErrorReply | Failure::Unavailable) => {
                self.unknown(request, why("the connection broke before the answer came"))
            }
        }
    }

    /// What was asked for may have been done, or not.
    fn unknown(&self, request: &Request, words: String) -> Told {
        let what = &request.what;
        let required = self.required(what);
        if !what.is_write {
            return Told::read_timeout(what.consistency, required, words);
        }
        let kind = match (what.is_conditional, request.ask.opcode) {
            (true, _) => "CAS",
            (false, Opcode::Batch) => "BATCH",
            (false, _) => "SIMPLE",
        };
        Told::write_timeout(what.consistency, required, kind, request.dialect.version, words)
    }

    /// How many replicas a request waits for; 1 where its keyspace is not known.
    fn required(&self, what: &Asked) -> u32 {
        let members = self.members.borrow();
        let keyspace = what.keyspace.as_deref().unwrap_or_default();
        let home = &members.datacenters[HOME].name;
        let (all, here) = match members.cluster.keyspaces.get(keyspace) {
            Some(Replication::Simple { replicas }) => (*replicas, *replicas),
            Some(Replication::NetworkTopology(datacenters)) => {
                (datacenters.values().sum(), datacenters.get(home).copied().unwrap_or(1))
            }
            Some(Replication::Local | Replication::Everywhere) | None => (1, 1),
        };
        let required = match what.consistency {
            Consistency::Any | Consistency::One | Consistency::LocalOne => 1,
            Consistency::Two => 2,
            Consistency::Three => 3,
            Consistency::All => all,
            Consistency::Quorum | Consistency::EachQuorum | Consistency::Serial => all / 2 + 1,
            Consistency::LocalQuorum | Consistency::LocalSerial => here / 2 + 1,
        };
        u32::try_from(required).unwrap_or(u32::MAX)
    }
}
