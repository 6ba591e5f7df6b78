//! Where in the order of writes a server is, and whether that order is ours.
//!
//! A sequencer that takes over begins an epoch. Two sequencers may have given the same number to
//! different writes (the old one's last, which never reached the new one), so a number alone does
//! not say what a server has lived through: the epoch in which it was given does. A server is on
//! our line when its last write was given in an epoch of ours, before that epoch ended; every other
//! has writes we do not know and is copied anew.

/// The term of one sequencer; each later one is higher.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Epoch(pub u64);

/// The place of a write in the order of its service: 1 is the first, 0 before all.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Sequence(pub u64);

impl Sequence {
    /// The next place.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A write, named so that no other history has one of the same name: a server's watermark, a
/// session's token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Position {
    /// When the number was given.
    pub epoch: Epoch,
    /// The number.
    pub sequence: Sequence,
}

impl Position {
    /// Epoch and sequence, as they are written down.
    pub const fn numbers(self) -> (u64, u64) {
        (self.epoch.0, self.sequence.0)
    }
}

/// A part of the order of writes as one server of a partition has lived through it, by its own
/// words: from this watermark to that, both given in the same epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stretch {
    /// Of that server.
    pub partition: usize,
    /// In which the numbers were given.
    pub epoch: Epoch,
    /// The first watermark of the epoch that is told.
    pub first: Sequence,
    /// The last.
    pub last: Sequence,
}

/// The writes we know of: which epochs they were given in, and from where on the log holds them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct History {
    /// Epochs with the first sequence given in each, ascending in both.
    epochs: Vec<(Epoch, Sequence)>,
    /// The first write the log still holds.
    held_from: Sequence,
    last: Sequence,
    /// The write at which a whole state begins that the log has too.
    state: Option<Sequence>,
    /// What is known of terms before this one, and the epoch of this one, where no log told it.
    told: Option<(Epoch, Vec<Stretch>)>,
}

/// What a server needs before it can be live.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rejoin {
    /// The writes of the log after this one.
    Replay {
        /// The last it has.
        after: Sequence,
    },
    /// Nothing: it is the first, and what it holds is what the service begins with; see
    /// [`History::adopt`].
    Adopt,
    /// To be emptied and given every key.
    Copy,
    /// Nobody is live to copy from: to be emptied and given the whole log, which begins with a
    /// state.
    Restore,
    /// A copy, but nobody is live to copy from yet.
    Wait,
    /// Help: it holds data that did not come through this service.
    Stranger,
}

impl History {
    /// What a log holds: its epochs with their first sequences, the first sequence it still has
    /// and the last (zero in an empty log).
    ///
    /// `None` when these are not ascending.
    pub fn of_log(
        epochs: Vec<(Epoch, Sequence)>,
        held_from: Sequence,
        last: Sequence,
    ) -> Option<Self> {
        let is_ascending =
            epochs.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
        let history = Self { epochs, held_from, last, ..Self::default() };
        (is_ascending && held_from <= last.next()).then_some(history)
    }

    /// No log: the history goes on from the furthest server's watermark.
    pub fn from_watermark(furthest: Position) -> Self {
        let held_from = furthest.sequence.next();
        let last = furthest.sequence;
        Self { epochs: vec![(furthest.epoch, last)], held_from, last, ..Self::default() }
    }

    /// No log but what servers tell of the writes behind some watermark of theirs, one of each
    /// partition: the history goes on from the furthest one's, in the epoch of that, and the log
    /// is given what they tell. Of partitions that tell nothing only that watermark is known.
    /// Stretches of that epoch are what was numbered in it already.
    pub fn from_streams(furthest: Position, mut stretches: Vec<Stretch>) -> Self {
        stretches.sort_by_key(|stretch| (stretch.epoch, stretch.first));
        let mut history = Self::from_watermark(furthest);
        let (term, last) = (furthest.epoch, furthest.sequence);
        let numbered = stretches.iter().find(|stretch| stretch.epoch == term);
        let since = numbered.map_or(last, |stretch| stretch.first);
        stretches.retain(|stretch| stretch.epoch < term);
        let begins = stretches.iter().map(|stretch| stretch.first).min().unwrap_or(last);
        // Somebody may lack what came before: it is no history from the very beginning.
        history.held_from = begins.next().max(Sequence(2)).min(last.next());
        history.epochs.clear();
        for stretch in &stretches {
            let before = history.epochs.last().copied();
            if before.is_none_or(|(epoch, _)| epoch < stretch.epoch) {
                let first = before.map_or(stretch.first, |(_, first)| first.max(stretch.first));
                history.epochs.push((stretch.epoch, first.min(since)));
            }
        }
        history.epochs.push((term, since));
        history.told = Some((term, stretches));
        history
    }

    /// The watermark of a server of a partition, as this history names that place; `None` where it
    /// is not known what a server that has it has lived through. Where a log tells the history, its
    /// epochs tell that ([`History::is_ours`]).
    pub fn renamed(&self, partition: usize, watermark: Position) -> Option<Position> {
        let Some((term, stretches)) = &self.told else { return Some(watermark) };
        if watermark.epoch >= *term {
            return Some(watermark);
        }
        let is_within = |it: &Stretch| {
            it.partition == partition
                && it.epoch == watermark.epoch
                && (it.first..=it.last).contains(&watermark.sequence)
        };
        let is_told = stretches.iter().any(is_within);
        is_told.then(|| self.position(watermark.sequence))
    }

    /// Whether a watermark was given in a term before this one, of which no log tells.
    pub fn is_of_earlier_term(&self, watermark: Position) -> bool {
        self.told.as_ref().is_some_and(|(term, _)| watermark.epoch < *term)
    }

    /// The last write.
    pub fn last(&self) -> Position {
        let epoch = self.epochs.last().map_or(Epoch(0), |&(epoch, _)| epoch);
        Position { epoch, sequence: self.last }
    }

    /// The name of a write of ours: with the epoch it was given in, which is what a watermark must
    /// say. With today's epoch a server that is still replaying would look further than one that
    /// has more, and would be chosen when the log is lost.
    pub fn position(&self, sequence: Sequence) -> Position {
        let later = self.epochs.partition_point(|&(_, first)| first <= sequence);
        let of = self.epochs.get(later.saturating_sub(1));
        Position { epoch: of.map_or(Epoch(0), |&(epoch, _)| epoch), sequence }
    }

    /// The first write the log still holds.
    pub const fn held_from(&self) -> Sequence {
        self.held_from
    }

    /// A new sequencer: `epoch` must be above every epoch that was ever seen.
    ///
    /// # Panics
    /// When it is not above our own: two histories would share a name.
    pub fn begin_epoch(&mut self, epoch: Epoch) {
        assert!(epoch > self.last().epoch || self.epochs.is_empty(), "epochs ascend");
        self.epochs.push((epoch, self.last.next()));
    }

    /// The next write; it is in the log from now on.
    #[inline]
    pub fn advance(&mut self) -> Position {
        self.last = self.last.next();
        self.last()
    }

    /// The writes after this one are not in the log after all, and nobody was sent them.
    pub fn rewind(&mut self, last: Sequence) {
        self.last = self.last.min(last);
    }

    /// What a server held before the first write is sequence 1, which no log holds: so nobody is
    /// ever filled from the log as if the service had begun empty.
    ///
    /// # Panics
    /// When there was a write already.
    pub fn adopt(&mut self) -> Position {
        assert_eq!(self.last, Sequence(0), "data is adopted before the first write");
        self.held_from = Sequence(2);
        self.advance()
    }

    /// The log has a whole state, whose recording began at this write and has ended: with it every
    /// key can be had although what came before may be forgotten.
    pub fn record_state(&mut self, began: Sequence) {
        self.state = Some(began);
    }

    /// The log had to drop a part of that state, whatever writes it still holds.
    pub fn forget_state(&mut self) {
        self.state = None;
    }

    /// Whether the log alone tells what every key holds.
    pub fn is_whole(&self) -> bool {
        self.held_from <= Sequence(1)
            || self.state.is_some_and(|began| self.held_from <= began.next())
    }

    /// The log has forgotten what came before this write.
    pub fn forget_before(&mut self, sequence: Sequence) {
        self.held_from = self.held_from.max(sequence.min(self.last.next()));
    }

    /// Whether the server that has this watermark has lived through our writes and no others.
    pub fn is_ours(&self, watermark: Position) -> bool {
        let next = self.epochs.partition_point(|&(epoch, _)| epoch <= watermark.epoch);
        let Some(&(epoch, _)) = next.checked_sub(1).and_then(|at| self.epochs.get(at)) else {
            return watermark.sequence == Sequence(0);
        };
        let end = match self.epochs.get(next) {
            Some(&(_, first_of_next)) => Sequence(first_of_next.0.saturating_sub(1)),
            None => self.last,
        };
        watermark.sequence <= end && (epoch == watermark.epoch || watermark.sequence.0 == 0)
    }

    /// What a server needs. `watermark` is what it says it has, `None` when it says nothing;
    /// `holds_data` whether it has any key; `has_source` whether a live server could be copied.
    pub fn rejoin(
        &self,
        watermark: Option<Position>,
        holds_data: bool,
        has_source: bool,
    ) -> Rejoin {
        let copied = match has_source {
            true => Rejoin::Copy,
            false if self.is_whole() => Rejoin::Restore,
            false => Rejoin::Wait,
        };
        match watermark {
            Some(watermark) => {
                // Of one that is not ours, such as that of a server whose filling was broken off,
                // the number means nothing, and may have no next one.
                let is_held = || watermark.sequence.next() >= self.held_from;
                if self.is_ours(watermark) && is_held() {
                    Rejoin::Replay { after: watermark.sequence }
                } else {
                    copied
                }
            }
            // The first start: what the first server holds is what the service begins with.
            None if holds_data && self.last == Sequence(0) && !has_source => Rejoin::Adopt,
            None if holds_data => Rejoin::Stranger,
            // Where all have lost everything one is restored, and the others are filled from it: a
            // deadline may pass between two that do all writes again.
            None if self.held_from <= Sequence(1) && (has_source || self.last == Sequence(0)) => {
                Rejoin::Replay { after: Sequence(0) }
            }
            None => copied,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn stretch(partition: usize, epoch: u64, first: u64, last: u64) -> Stretch {
        Stretch { partition, epoch: Epoch(epoch), first: Sequence(first), last: Sequence(last) }
    }

    #[test]
    fn who_is_on_a_stretch_that_is_told_is_ours_and_nobody_else_of_an_earlier_term() {
        // Partition 1 tells nothing of epoch 4 behind 95, and 100 was another's.
        let told = vec![
            stretch(0, 3, 40, 90),
            stretch(0, 4, 90, 100),
            stretch(1, 4, 90, 95),
            stretch(1, 5, 100, 100),
        ];
        let history = History::from_streams(at(9, 100), told);
        assert_eq!((history.last(), history.held_from()), (at(9, 100), Sequence(41)));
        assert!(!history.is_whole());
        let replayed = |partition, watermark| {
            let renamed = history.renamed(partition, watermark)?;
            match history.rejoin(Some(renamed), true, true) {
                Rejoin::Replay { after } => Some(after.0),
                other => panic!("{watermark:?}: {other:?}"),
            }
        };
        for (partition, watermark, expected) in [
            (0, at(3, 40), Some(40)),
            (0, at(3, 90), Some(90)),
            (0, at(4, 90), Some(90)),
            (0, at(4, 100), Some(100)),
            (1, at(4, 95), Some(95)),
            (1, at(5, 100), Some(100)),
            (1, at(9, 100), Some(100)),
            // Not told: before, behind, of another partition, of an epoch between.
            (0, at(3, 39), None),
            (0, at(3, 91), None),
            (1, at(4, 96), None),
            (1, at(3, 60), None),
            (0, at(2, 60), None),
            (0, at(5, 100), None),
        ] {
            assert_eq!(replayed(partition, watermark), expected, "{partition} {watermark:?}");
        }
        // In this term the order goes on as ever, and the log forgets.
        let mut history = history;
        assert_eq!(history.advance(), at(9, 101));
        assert!(history.is_ours(at(9, 101)) && !history.is_ours(at(9, 102)));
        assert!(history.is_of_earlier_term(at(5, 100)) && !history.is_of_earlier_term(at(9, 1)));
        history.forget_before(Sequence(80));
        let renamed = history.renamed(0, at(3, 60)).unwrap();
        assert_eq!(history.rejoin(Some(renamed), true, true), Rejoin::Copy);
    }

    #[test]
    fn where_nothing_is_told_it_is_as_with_the_furthest_alone() {
        let history = History::from_streams(at(9, 100), Vec::new());
        assert_eq!(history.renamed(0, at(9, 100)), Some(at(9, 100)));
        assert_eq!(history.renamed(0, at(8, 100)), None);
        assert_eq!(history.held_from(), Sequence(101));
        assert_eq!(History::from_watermark(at(9, 100)).renamed(0, at(8, 7)), Some(at(8, 7)));
        // A service that was never written to.
        let new = History::from_streams(at(2, 0), vec![stretch(0, 0, 0, 0)]);
        assert_eq!((new.last(), new.held_from()), (at(2, 0), Sequence(1)));
    }

    fn at(epoch: u64, sequence: u64) -> Position {
        Position { epoch: Epoch(epoch), sequence: Sequence(sequence) }
    }

    /// Epoch 1 gave 1 to 10, epoch 3 gave 11 to 20; the log holds from 6.
    fn history() -> History {
        let epochs = vec![(Epoch(1), Sequence(1)), (Epoch(3), Sequence(11))];
        History::of_log(epochs, Sequence(6), Sequence(20)).unwrap()
    }

    #[test]
    fn a_server_with_writes_that_were_never_ours_is_not_on_our_line() {
        let history = history();
        for (watermark, is_ours) in [
            (at(1, 10), true),
            (at(1, 11), false), // the old sequencer gave it, we gave 11 to another write
            (at(2, 5), false),  // a term we never heard of
            (at(3, 20), true),
            (at(3, 21), false),
            (at(4, 1), false),
        ] {
            assert_eq!(history.is_ours(watermark), is_ours, "{watermark:?}");
        }
    }

    #[test]
    fn a_write_is_named_by_the_epoch_it_was_given_in() {
        let history = history();
        for (sequence, epoch) in [(1, 1), (10, 1), (11, 3), (20, 3)] {
            let position = history.position(Sequence(sequence));
            assert_eq!(position, at(epoch, sequence));
            assert!(history.is_ours(position));
        }
        let mut idle = History::from_watermark(at(4, 100));
        idle.begin_epoch(Epoch(5));
        assert_eq!(idle.position(Sequence(100)), at(4, 100), "5 has given nothing yet");
    }

    #[test]
    fn what_comes_back_gets_the_log_or_a_copy() {
        let history = history();
        let replay = |after| Rejoin::Replay { after: Sequence(after) };
        assert_eq!(history.rejoin(Some(at(1, 7)), true, true), replay(7));
        assert_eq!(history.rejoin(Some(at(1, 5)), true, true), replay(5));
        assert_eq!(history.rejoin(Some(at(1, 4)), true, true), Rejoin::Copy, "6 needs 5 before it");
        assert_eq!(history.rejoin(Some(at(1, 12)), true, false), Rejoin::Wait);
        assert_eq!(history.rejoin(Some(at(u64::MAX, u64::MAX)), true, true), Rejoin::Copy);
        assert_eq!(history.rejoin(None, false, true), Rejoin::Copy);
        assert_eq!(history.rejoin(None, false, false), Rejoin::Wait);
        assert_eq!(history.rejoin(None, true, true), Rejoin::Stranger);
    }

    #[test]
    fn the_last_one_is_restored_from_a_log_that_has_a_state() {
        let mut history = history();
        assert!(!history.is_whole());
        history.record_state(Sequence(8));
        assert!(history.is_whole());
        assert_eq!(history.rejoin(Some(at(1, 4)), true, false), Rejoin::Restore);
        assert_eq!(history.rejoin(None, false, false), Rejoin::Restore);
        assert_eq!(history.rejoin(None, false, true), Rejoin::Copy, "a live one is quicker");
        history.forget_before(Sequence(9));
        assert!(history.is_whole());
        history.forget_before(Sequence(10));
        assert!(!history.is_whole(), "9 came after the state began, and may be in no record of it");
        assert_eq!(history.rejoin(None, false, false), Rejoin::Wait);
    }

    #[test]
    fn a_state_of_which_a_part_is_gone_restores_nobody() {
        // Nothing was written while it was recorded: the writes held say nothing of its records.
        let mut history = history();
        history.record_state(Sequence(8));
        history.forget_before(Sequence(9));
        assert_eq!(history.rejoin(None, false, false), Rejoin::Restore);
        history.forget_state();
        assert_eq!(history.held_from(), Sequence(9));
        assert!(!history.is_whole());
        assert_eq!(history.rejoin(None, false, false), Rejoin::Wait);
        assert_eq!(history.rejoin(Some(at(1, 7)), true, false), Rejoin::Wait);
        history.record_state(Sequence(20));
        assert!(history.is_whole(), "the next one");
    }

    #[test]
    fn an_empty_server_is_filled_from_a_log_that_reaches_back_to_the_first_write() {
        let whole = History::of_log(vec![(Epoch(1), Sequence(1))], Sequence(1), Sequence(9));
        let whole = whole.unwrap();
        let all = Rejoin::Replay { after: Sequence(0) };
        assert_eq!(whole.rejoin(None, false, true), all);
        assert_eq!(whole.rejoin(None, false, false), Rejoin::Restore, "one, before the others");
        assert_eq!(whole.rejoin(None, true, false), Rejoin::Stranger);
    }

    #[test]
    fn the_first_start_adopts_what_the_first_server_holds() {
        let fresh = History::of_log(Vec::new(), Sequence(1), Sequence(0)).unwrap();
        assert_eq!(fresh.rejoin(None, true, false), Rejoin::Adopt);
        let nothing_yet = Rejoin::Replay { after: Sequence(0) };
        assert_eq!(fresh.rejoin(None, false, true), nothing_yet);
        assert_eq!(fresh.rejoin(None, true, true), Rejoin::Stranger, "two sets of data");
        let mut adopted = fresh;
        adopted.begin_epoch(Epoch(1));
        assert_eq!(adopted.adopt(), at(1, 1));
        assert_eq!(adopted.rejoin(None, false, false), Rejoin::Wait, "the log has not all of it");
        let nothing = Rejoin::Replay { after: Sequence(1) };
        assert_eq!(adopted.rejoin(Some(at(1, 1)), true, false), nothing);
    }

    #[test]
    fn without_a_log_the_furthest_server_is_the_history() {
        let mut history = History::from_watermark(at(4, 100));
        history.begin_epoch(Epoch(5));
        assert_eq!(history.advance(), at(5, 101));
        let after = Rejoin::Replay { after: Sequence(100) };
        assert_eq!(history.rejoin(Some(at(4, 100)), true, false), after);
        assert_eq!(history.rejoin(Some(at(4, 99)), true, true), Rejoin::Copy);
        assert_eq!(history.rejoin(Some(at(4, 101)), true, true), Rejoin::Copy, "it was not chosen");
    }
}
