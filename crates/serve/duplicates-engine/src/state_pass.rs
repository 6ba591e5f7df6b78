//! A state of everything goes into the log, so that what is older may be forgotten and the log
//! alone can bring back a service whose duplicates are all gone.
//!
//! The log is filled as a server would be ([`Copying`]): each key is asked for on a source's
//! ordered connection and so is what it was after an exact write; later writes to it are in the log
//! anyway, and those that came while it was on its way are written again *behind* its state, since
//! the state, which is older, is recorded after them. Whoever reads the log from its beginning
//! therefore ends with every key as it is, whatever it made of writes whose beginnings are
//! forgotten.

use evenkeel_ordered::{Copying, Hash, Sequence, Treatment};

use super::Inner;
use super::bootstrap::{as_given, restoring};
use super::types::{Copy, CopyTarget, Write};
use evenkeel_stores::resp::databases;
use evenkeel_stores::resp::hash::slot;
use evenkeel_wal::RecordKind;

/// One partition's turn in the writing of a state.
#[derive(Debug)]
pub struct StatePass {
    /// Rises with every turn: what was asked for in an earlier one is forgotten.
    pub number: u64,
    /// The partition whose keys are written.
    pub partition: usize,
    /// The duplicate that they come from.
    pub source: usize,
    /// Which keys have come, and which are awaited.
    pub copying: Copying,
    /// The source was lost: the state is not whole.
    pub is_broken: bool,
}

impl Inner {
    /// Begins with a partition; `None` when nobody is live to ask.
    pub fn begin_pass(&mut self, partition: usize) -> Option<usize> {
        let live = self.members.live(partition);
        let able = live.iter().filter(|&server| !self.effects.is_executor(server));
        let source = able.min_by_key(|&server| self.members.owed(server))?;
        self.serial += 1;
        self.state_pass = Some(StatePass {
            number: self.serial,
            partition,
            source,
            copying: Copying::new(),
            is_broken: false,
        });
        Some(source)
    }

    /// The source was seen to have this key.
    pub fn seen_in_pass(&mut self, key: &[u8], hash: Hash) {
        // Its last page may come when it is gone already.
        let Some(pass) = self.state_pass.as_mut().filter(|pass| !pass.is_broken) else { return };
        let (source, to) = (pass.source, CopyTarget::Log(pass.number));
        if pass.copying.seen(hash) {
            self.ask_for(source, to, key, hash);
        }
    }

    /// A write was sent to the live ones: what of it the state needs.
    pub(super) fn tell_pass(&mut self, partition: usize, write: &Write<'_>) {
        let Some(pass) = &mut self.state_pass else { return };
        if pass.partition != partition || pass.is_broken {
            return;
        }
        let (source, to) = (pass.source, CopyTarget::Log(pass.number));
        let mut group = Vec::new();
        match pass.copying.write(write.keys, as_given(write, &mut group)) {
            Treatment::Send | Treatment::Hold => {}
            Treatment::Ask => {
                for (&hash, &key) in write.keys.iter().zip(write.key_names) {
                    self.ask_for(source, to, key, hash);
                }
            }
        }
    }

    /// A key has come from the source.
    pub(super) fn record(
        &mut self,
        number: u64,
        copy: &Copy,
        dump: Option<&[u8]>,
        expires_ms: i64,
    ) {
        let Some(pass) = &mut self.state_pass else { return };
        if pass.number != number || pass.is_broken {
            return;
        }
        let Some(held) = pass.copying.arrived(copy.hash) else { return };
        let source = pass.source;
        let place = (self.map.shard(slot(databases::key(&copy.key))) as u16, pass.partition as u16);
        let Sequence(last) = self.history.last().sequence;
        let command = restoring(&copy.key, dump, expires_ms);
        for command in std::iter::once(command.as_slice()).chain(held.iter().map(AsRef::as_ref)) {
            if let Err(error) = self.log.append(last, place, RecordKind::State, command) {
                return self.fail(&error);
            }
        }
        self.counts.recorded += 1;
        self.servers[source].wake();
        self.schedule();
    }

    /// The source of the pass is gone.
    pub(super) fn end_pass_from(&mut self, server: usize) {
        if let Some(pass) = &mut self.state_pass
            && pass.source == server
        {
            pass.is_broken = true;
        }
    }

    /// Whether a write to this partition must be told to somebody who is being filled.
    pub(super) fn is_being_copied(&self, partition: usize) -> bool {
        let in_pass = self.state_pass.as_ref().is_some_and(|pass| pass.partition == partition);
        in_pass || !self.bootstrapping(partition).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_ordered::Dropped;

    use super::super::world::World;

    /// Its page of keys may come when it is gone: what it was asked then nobody would answer, and
    /// its next attempt to come back would fail.
    #[test]
    fn a_source_that_is_gone_is_asked_for_nothing() {
        let mut world = World::start(2, |_| {});
        let source = world.engine.borrow().begin_pass(0).expect("both are live");
        world.engine.borrow().seen_in_pass(b"before", 1);
        assert_eq!(world.engine.borrow().members.owed(source), 2, "the value and its expiry");
        world.lose(source, Dropped::Lost);
        world.engine.borrow().seen_in_pass(b"after", 2);
        assert_eq!(world.engine.borrow().members.owed(source), 0);
        world.reach(source);
        assert_eq!(world.waiting(source), [0, 0]);
    }
}
