//! What somebody asked a service to change while it runs, and what became of it.
//!
//! One change at a time: a shard to another partition, a duplicate or a partition more or less. It
//! is judged when it comes, by what can be known then; whatever goes wrong later is told in
//! [`MovesState`].

use std::rc::Rc;
use std::time::Duration;

use evenkeel_core::Instant;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::rejected::ChangeRejected;

/// One change, as `POST /api/v1/duplicates/NAME/moves` takes it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ChangeRequest {
    /// A shard goes to another partition.
    MoveShard {
        /// Which.
        shard: usize,
        /// The number of the partition.
        to: usize,
    },
    /// A partition gets another duplicate, which must be empty.
    AddDuplicate {
        /// The number of the partition.
        partition: usize,
        /// As in `partitions` of the configuration; not of embedded stores.
        #[serde(default)]
        address: Option<String>,
    },
    /// A partition loses a duplicate.
    RemoveDuplicate {
        /// The number of the partition.
        partition: usize,
        /// As `/api/v1/duplicates` has it.
        address: String,
    },
    /// A partition is opened, which holds nothing yet.
    AddPartition {
        /// Its duplicates, which must be empty.
        #[serde(default)]
        addresses: Vec<String>,
        /// How many, of embedded stores.
        #[serde(default)]
        duplicates: Option<usize>,
        /// A shard that moves there at once.
        #[serde(default)]
        shard: Option<usize>,
    },
    /// A partition that holds no shard is closed. Its number is not given again.
    RemovePartition {
        /// Its number.
        partition: usize,
    },
    /// The move under way is given up, while the source is still the owner.
    Abandon {},
}

impl ChangeRequest {
    /// Reads the body of a request: one of the changes, or the short form of the first,
    /// `{"shard": 3, "to": 1}`.
    ///
    /// # Errors
    /// When it is none: [`ChangeRejected::Unreadable`].
    pub fn read(body: &[u8]) -> Result<Self, ChangeRejected> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Short {
            shard: usize,
            to: usize,
        }
        if let Ok(Short { shard, to }) = serde_json::from_slice(body) {
            return Ok(Self::MoveShard { shard, to });
        }
        serde_json::from_slice(body).map_err(|error| {
            let came = String::from_utf8_lossy(body).chars().take(100).collect();
            ChangeRejected::Unreadable { came, error: error.to_string() }
        })
    }

    /// Duplicates that it brings, as far as they have addresses.
    pub fn new_places(&self) -> &[String] {
        match self {
            Self::AddDuplicate { address, .. } => address.as_slice(),
            Self::AddPartition { addresses, .. } => addresses,
            _ => &[],
        }
    }

    /// In words.
    pub fn describe(&self) -> String {
        match self {
            Self::MoveShard { shard, to } => format!("shard {shard} to partition {to}"),
            Self::AddDuplicate { partition, address } => match address {
                Some(address) => format!("{address} as another duplicate of partition {partition}"),
                None => format!("another duplicate of partition {partition}"),
            },
            Self::RemoveDuplicate { partition, address } => {
                format!("partition {partition} without {address}")
            }
            Self::AddPartition { addresses, .. } if !addresses.is_empty() => {
                format!("a new partition of {}", addresses.join(", "))
            }
            Self::AddPartition { .. } => "a new partition".to_owned(),
            Self::RemovePartition { partition } => format!("partition {partition} is closed"),
            Self::Abandon {} => "the move is given up".to_owned(),
        }
    }
}

/// How changes of a service stand.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct MovesState {
    /// What is under way.
    pub now: Option<MoveState>,
    /// What ended last.
    pub last: Option<EndedState>,
    /// Changes that came to their end.
    pub done: u64,
    /// Changes that were given up for good.
    pub failed: u64,
    /// Times that a move had to begin again.
    pub begun_again: u64,
    /// Keys that went to another partition.
    pub keys: u64,
    /// Shards that have moved away while keys of theirs may be left.
    pub left: usize,
    /// The version of the layout.
    pub layout: u64,
    /// By shard: the partition that holds it.
    pub owners: Vec<u16>,
}

/// A change under way.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct MoveState {
    /// In words.
    pub what: String,
    /// `waiting`, `clearing`, `copying`, `mirroring`, `handing over`, `forgetting` or `changing`.
    pub phase: &'static str,
    /// Keys that were copied.
    pub copied_keys: usize,
    /// Times that it was begun.
    pub attempts: u32,
    /// Why it had to begin again, or waits.
    pub error: Option<String>,
    /// Since it was asked for.
    pub lasts_ms: u64,
}

/// A change that ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct EndedState {
    /// In words.
    pub what: String,
    /// Why it was given up; `None` = it is done.
    pub error: Option<String>,
    /// From being asked for to its end.
    pub lasted_ms: u64,
}

/// What a service knows of its changes.
#[derive(Debug, Default)]
pub struct Changes {
    /// One may have come.
    pub came: Rc<Notify>,
    /// Taken and not ended.
    pub now: Option<Taken>,
    /// What became of the last one.
    pub last: Option<EndedState>,
    /// How many were carried out.
    pub done: u64,
    /// How many were given up.
    pub failed: u64,
    /// How often one was begun again.
    pub begun_again: u64,
    /// Why a move was given up, or what is waited for.
    pub error: Option<String>,
    /// Somebody wants the one under way to end.
    pub is_unwanted: bool,
    /// A partition that lost its last shard, since this process began.
    pub emptied: Option<usize>,
}

/// A change under way.
#[derive(Debug)]
pub struct Taken {
    /// What was asked for.
    pub change: ChangeRequest,
    /// When.
    pub since: Instant,
    /// How often it was begun.
    pub attempts: u32,
}

impl Changes {
    /// One was asked for, and none is under way.
    pub fn take(&mut self, change: ChangeRequest, now: Instant) {
        self.came.notify_one();
        tracing::info!(change = change.describe(), "a change was requested");
        self.now = Some(Taken { change, since: now, attempts: 0 });
        (self.error, self.is_unwanted) = (None, false);
    }

    /// The change under way was carried out, or given up for this reason.
    pub fn end(&mut self, now: Instant, error: Option<String>) {
        let Some(taken) = self.now.take() else { return };
        let (what, lasted) = (taken.change.describe(), now.since(taken.since));
        match &error {
            None => {
                self.done += 1;
                tracing::info!(what, ?lasted, "a change was carried out");
            }
            Some(why) => {
                self.failed += 1;
                tracing::warn!(what, why, "a change was given up");
            }
        }
        let lasted_ms = millis(lasted);
        self.last = Some(EndedState { what, error, lasted_ms });
        (self.error, self.is_unwanted) = (None, false);
    }
}

/// Whole milliseconds.
pub fn millis(lasted: Duration) -> u64 {
    u64::try_from(lasted.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_or_it_is_said_what_was_expected() {
        let read = |text: &str| ChangeRequest::read(text.as_bytes());
        let moved = ChangeRequest::MoveShard { shard: 3, to: 1 };
        assert_eq!(read("{\"shard\": 3, \"to\": 1}"), Ok(moved.clone()));
        assert_eq!(read("{\"move_shard\": {\"shard\": 3, \"to\": 1}}"), Ok(moved));
        let added = read("{\"add_duplicate\": {\"partition\": 0, \"address\": \"a:1\"}}");
        let address = Some("a:1".to_owned());
        assert_eq!(added, Ok(ChangeRequest::AddDuplicate { partition: 0, address }));
        assert_eq!(read("{\"abandon\": {}}"), Ok(ChangeRequest::Abandon {}));
        for text in ["", "{}", "{\"shard\": -1, \"to\": 0}", "{\"shard\": 1}", "[1]"] {
            assert!(read(text).unwrap_err().to_string().contains("expected such as"), "{text}");
        }
    }
}
