//! What the front does itself (`watch.rs`, `waiting.rs`, `channels.rs`), and what these share.
//!
//! Some of their commands begin with a question to one live duplicate, behind all writes
//! sent before ([`Inquiry`]); its client is held until the answer is there, and if the duplicate
//! goes away, another one is asked.

use evenkeel_ordered::{ConnectionKind, Consistency, ServerSet};

use super::Inner;
use super::types::{Asked, ClientId, Inquiry, Owed, ParsedCommand};
use evenkeel_stores::resp::commands::{Class, Local};
use evenkeel_stores::resp::hash::slot;
use evenkeel_stores::resp::{databases, encode};

impl Inner {
    /// Asks one live duplicate of the key's partition.
    pub(super) fn inquire(&mut self, inquiry: Box<Inquiry>) {
        let Some(client) = self.client(inquiry.client) else { return };
        let session = client.session;
        let partition = self.partition_of(&inquiry.key);
        let eligible = match self.members.eligible(partition, Consistency::Strong, session) {
            Ok(eligible) => eligible,
            Err(refused) => {
                let mut error = Vec::new();
                encode::error(&mut error, &format!("UNAVAILABLE {refused}"));
                return self.inquiry_failed(&inquiry, &error);
            }
        };
        let told = match inquiry.asked {
            Asked::Expiry { told, .. } => told,
            Asked::Deadline | Asked::LastId(_) => ServerSet::EMPTY,
        };
        let others = eligible.from.without(told);
        let least = others.iter().min_by_key(|&server| self.members.owed(server));
        let Some(server) = least else {
            if let Asked::Expiry { look, .. } = inquiry.asked {
                self.expiry_gone(&inquiry, look);
            }
            return;
        };
        let (database, key) = databases::at(&inquiry.key);
        let mut question = Vec::new();
        let words: &[&[u8]] = match inquiry.asked {
            Asked::Deadline | Asked::Expiry { .. } => &[b"PEXPIRETIME", key],
            Asked::LastId(_) => &[b"XINFO", b"STREAM", key],
        };
        encode::command(&mut question, words);
        let place = (server, ConnectionKind::Ordered, database);
        self.ask_in(place, Owed::Inquiry { inquiry }, |out| out.append(&mut question));
        self.schedule();
    }

    pub(super) fn inquiry_answered(&mut self, server: usize, inquiry: &Inquiry, reply: &[u8]) {
        self.members.answered(self.now, server, None);
        match inquiry.asked {
            Asked::Deadline => self.deadline_answered(inquiry, reply),
            Asked::Expiry { look, told } => {
                self.expiry_known(server, inquiry, (look, told), reply);
            }
            Asked::LastId(at) => self.last_id_known(inquiry, at, reply),
        }
    }

    fn inquiry_failed(&mut self, inquiry: &Inquiry, error: &[u8]) {
        match inquiry.asked {
            Asked::Deadline => self.watch_failed(inquiry, error),
            Asked::Expiry { look, .. } => self.expiry_unknown(inquiry, look),
            Asked::LastId(_) => self.last_id_unknown(inquiry, error),
        }
    }

    /// Of a key or its place.
    pub(super) fn partition_of(&self, place: &[u8]) -> usize {
        self.map.partition(self.map.shard(slot(databases::key(place))))
    }

    /// Other stores do not have what the front does itself for Redis; whether the client was told.
    pub(super) fn refuses_front(
        &mut self,
        id: ClientId,
        class: Class,
        parsed: ParsedCommand<'_>,
    ) -> bool {
        let is_front = match class {
            Class::Waits(_) => true,
            Class::Local(Local::Watch | Local::Unwatch | Local::Pubsub) => true,
            Class::Local(local) => {
                matches!(local, Local::Subscribe(_) | Local::Unsubscribe(_) | Local::Publish(_))
            }
            _ => false,
        };
        let lacks = if is_front { self.lacks(parsed.argument(0)) } else { None };
        if let Some(lacks) = &lacks {
            self.refuse(id, lacks);
        }
        lacks.is_some()
    }
}
