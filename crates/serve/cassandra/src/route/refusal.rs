//! What a client is told when no node answered.
//!
//! The code decides what its driver does next. Where nothing reached a node it is `OVERLOADED`:
//! drivers may try another coordinator, whatever the request. Where a write may have been done it
//! is `WRITE_TIMEOUT`, the one error that drivers take for "nobody knows" and repeat only what
//! they were told is idempotent; some repeat everything after `OVERLOADED` or `SERVER_ERROR`.

use evenkeel_core::request::ring::Consistency;
use evenkeel_core::request::ring::Replication;
use evenkeel_core::request::{Failure, Refusal};
use evenkeel_cql::Opcode;

use super::Route;
use crate::front::{Asked, Refusal as ClientRefusal, Request};
use evenkeel_cql::client::SendError;
use evenkeel_proxy::site_setup::HOME;

impl Route {
    /// The error for a request that was refused; `error` is why its last attempt failed.
    pub(crate) fn refusal(
        &self,
        refusal: Refusal,
        request: &Request,
        error: Option<&SendError>,
    ) -> ClientRefusal {
        let why = |words: &str| match error {
            Some(error) => format!("{words}: {error}"),
            None => words.to_owned(),
        };
        match refusal {
            Refusal::NoReplica => self.nobody(),
            Refusal::BacklogFull => {
                ClientRefusal::overloaded("too many requests wait for a sending rate")
            }
            Refusal::Failed(Failure::Unsent) => {
                ClientRefusal::overloaded(why("no replica could be reached, nothing was sent"))
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
    fn unknown(&self, request: &Request, words: String) -> ClientRefusal {
        let what = &request.what;
        let required = self.required(what);
        if !what.is_write {
            return ClientRefusal::read_timeout(what.consistency, required, words);
        }
        let kind = match (what.is_conditional, request.ask.opcode) {
            (true, _) => "CAS",
            (false, Opcode::Batch) => "BATCH",
            (false, _) => "SIMPLE",
        };
        ClientRefusal::write_timeout(
            what.consistency,
            required,
            kind,
            request.dialect.version,
            words,
        )
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
