//! Where the keys of a command are, as things are now ([`Location`] says what follows from it).

use evenkeel_ordered::Phase;

use super::Inner;
use super::types::{ErrorReply, ParsedCommand};
use evenkeel_stores::resp::commands::{self, Command, Keys};
use evenkeel_stores::resp::databases;
use evenkeel_stores::resp::hash::slot;
use evenkeel_stores::resp::locate::Location;

impl Inner {
    /// Which of these places are not of this partition, or of another group.
    pub(super) fn strays<'p>(&self, partition: usize, places: &[&'p [u8]]) -> Vec<&'p [u8]> {
        let (group, is_alone) = (self.config.group, self.map.partitions() == 1);
        if is_alone && group.is_whole() {
            return Vec::new();
        }
        let (first, last) = group.slots();
        let is_here = |place: &[u8]| {
            (first..=last).contains(&slot(databases::key(place)))
                && (is_alone || self.partition_of(place) == partition)
        };
        places.iter().copied().filter(|place| !is_here(place)).collect()
    }

    /// Where all keys of a command are.
    ///
    /// # Errors
    /// What the client is told when they are in several partitions, or when a key is ours.
    pub(super) fn locate(
        &self,
        command: &Command,
        parsed: ParsedCommand<'_>,
    ) -> Result<Location, ErrorReply> {
        let keys = commands::keys(command, parsed.arguments())?;
        let mut location = self.locate_keys(keys.map(|index| parsed.argument(index)))?;
        if command.keys == Keys::Script && self.map.partitions() == 1 {
            location = location.or_else(|| Location::whole(&self.map, 0)); // it may use any key
        }
        location.ok_or_else(|| {
            let text = format!("'{}' without a key: nobody knows its partition", command.name);
            ErrorReply::new("ERR", text)
        })
    }

    /// The same of these keys; `None` where there are none.
    ///
    /// # Errors
    /// As [`Inner::locate`].
    pub(super) fn locate_keys<'k>(
        &self,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> Result<Option<Location>, ErrorReply> {
        let moving = self.moving.as_ref().filter(|it| it.phase() != Phase::Forgetting);
        Ok(Location::of(&self.map, moving.map(|it| it.moving.shard()), keys)?)
    }

    /// The shard of a command that writes; of its first key, where it has more in this partition.
    ///
    /// # Errors
    /// As [`Inner::locate`], and where it has several shards, one of which moves.
    pub(super) fn shard_of(
        &self,
        command: &Command,
        parsed: ParsedCommand<'_>,
    ) -> Result<usize, ErrorReply> {
        Ok(self.locate(command, parsed)?.shard_to_write()?)
    }

    /// Whether a partition takes a write now.
    ///
    /// # Errors
    /// What the client is told.
    pub(super) fn can_write(&self, partition: usize) -> Result<(), ErrorReply> {
        let cannot = |why: String| Err(ErrorReply::new("UNAVAILABLE", why));
        if let Some(failure) = &self.failure {
            return cannot(failure.clone());
        }
        if !self.leads() {
            return cannot(self.why_deposed());
        }
        match self.members.takers(partition) {
            Ok(_) => Ok(()),
            Err(refused) => cannot(refused.to_string()),
        }
    }

    /// The error of a command that only Redis does for us, where the store is another.
    pub(super) fn lacks(&self, name: &[u8]) -> Option<String> {
        let store = self.connectors.first()?.store_in_between()?;
        Some(format!("ERR store '{store}' has no command '{}'", String::from_utf8_lossy(name)))
    }
}
