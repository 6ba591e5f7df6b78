//! `MULTI`, `WATCH`: a transaction is of one group, that of its first key or of what is watched.
//!
//! Until a key tells the group, what is queued waits here, and is answered `QUEUED`; if the group
//! refuses any of it, `EXEC` does nothing.

use super::super::backend::{Kind, Owed};
use super::super::said::Said;
use super::Client;
use super::taking::{Asked, HOME, NO_MONITOR, NO_TRACKING, Place};
use evenkeel_stores::resp::commands::{Class, Local, refusals};
use evenkeel_stores::resp::encode;
use evenkeel_stores::resp::locate::CROSSING;

const ABORTED: &str = "EXECABORT Transaction discarded because of previous errors.";
const SAID_WITHIN: &str = "ERR a service of several groups of partitions takes AUTH, HELLO, \
    SELECT, CLIENT SETNAME and their like for all groups, not within MULTI: send it before MULTI \
    or after EXEC";

/// Between MULTI and EXEC.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    /// Whose it is, once that is known.
    pub(super) group: Option<usize>,
    /// What that group is to be told then.
    queued: Vec<Vec<u8>>,
    queued_bytes: usize,
    pub(super) is_spoiled: bool,
}

impl Transaction {
    /// Bytes of commands that wait to be told.
    pub(super) const fn bytes(&self) -> usize {
        self.queued_bytes
    }
}

impl Client {
    pub(super) fn multi(&mut self, asked: &Asked<'_>) -> bool {
        let transaction = Transaction { group: self.watches, ..Transaction::default() };
        match self.watches {
            Some(group) => self.forward(group, Kind::Within, asked),
            None => self.is_denied(asked) || self.ok(),
        };
        self.transaction = Some(transaction);
        true
    }

    pub(super) fn watch(&mut self, asked: &Asked<'_>) -> bool {
        match self.place_of_command(asked) {
            Err(text) => self.refuse(text),
            Ok(Place::In(group)) if self.watches.is_none_or(|watched| watched == group) => {
                let kind = if self.watches.is_some() { Kind::Within } else { Kind::Begins };
                self.watches = Some(group);
                self.forward(group, kind, asked)
            }
            Ok(_) => self.refuse(CROSSING.0),
        }
    }

    /// A command between MULTI and EXEC.
    pub(super) fn take_within(&mut self, asked: &Asked<'_>) -> bool {
        let local = match asked.class {
            Class::Local(local) => Some(local),
            _ => None,
        };
        match local {
            Some(Local::Exec) => return self.exec(asked),
            Some(Local::Discard) => return self.discard(asked),
            Some(Local::Multi) => {
                self.tell(|out, _| encode::error(out, "ERR MULTI calls can not be nested"));
                return true; // as with Redis, this does not spoil it
            }
            Some(local) if Said::is_of(asked.command, local, asked.arguments) => {
                return self.refuse(SAID_WITHIN);
            }
            Some(Local::Monitor) => return self.refuse(NO_MONITOR),
            Some(Local::Client) if asked.tracks() => return self.refuse(NO_TRACKING),
            _ if asked.is_of_all() => return self.refuse(refusals::WHOLE_IN_MULTI),
            _ => {}
        }
        let place = match self.place_of_command(asked) {
            Ok(place) => place,
            Err(text) => return self.refuse(text),
        };
        let Some(transaction) = &mut self.transaction else { return true };
        match (transaction.group, place) {
            (None, Place::In(group)) => {
                self.begin_at(group);
                self.forward(group, Kind::Within, asked)
            }
            (None, Place::Nowhere) => {
                if self.is_denied(asked) {
                    return true;
                }
                if let Some(transaction) = &mut self.transaction {
                    transaction.queued_bytes += asked.bytes.len();
                    transaction.queued.push(asked.bytes.to_vec());
                }
                self.tell(|out, _| encode::simple(out, "QUEUED"));
                true
            }
            (Some(group), Place::Nowhere) => self.forward(group, Kind::Within, asked),
            (Some(group), Place::In(its)) if group == its => {
                self.forward(group, Kind::Within, asked)
            }
            (_, Place::In(_) | Place::Several) => self.refuse(CROSSING.0),
        }
    }

    /// The transaction is this group's, which is told what has been queued.
    fn begin_at(&mut self, group: usize) {
        let Some(transaction) = &mut self.transaction else { return };
        transaction.group = Some(group);
        transaction.queued_bytes = 0;
        let queued = std::mem::take(&mut transaction.queued);
        self.send(group, Owed::new(None, b"MULTI\r\n", Kind::Begins));
        for bytes in queued {
            self.send(group, Owed::new(None, &bytes, Kind::Within));
        }
    }

    fn exec(&mut self, asked: &Asked<'_>) -> bool {
        let Some(known) = self.transaction.as_ref().map(|it| (it.group, it.is_spoiled)) else {
            return true;
        };
        let told = match known {
            (Some(group), true) => {
                // A command that lacks its arguments spoils it there, whatever its user may do.
                self.send(group, Owed::new(None, b"GET\r\n", Kind::Within));
                self.forward(group, Kind::Within, asked)
            }
            (None, true) => self.refuse(ABORTED),
            (Some(group), false) => self.forward(group, Kind::Within, asked),
            (None, false) => {
                self.begin_at(HOME);
                self.forward(HOME, Kind::Within, asked)
            }
        };
        (self.transaction, self.watches) = (None, None);
        told
    }

    fn discard(&mut self, asked: &Asked<'_>) -> bool {
        let group = self.transaction.take().and_then(|transaction| transaction.group);
        self.watches = None;
        match group {
            Some(group) => self.forward(group, Kind::Within, asked),
            None => self.ok(),
        }
    }
}
