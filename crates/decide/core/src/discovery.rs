//! What to believe of those who tell where replicas are: a DNS server, a file, Kubernetes.
//!
//! **Signal**: the answers of one source, in their order. **Why not each answer as it comes**: DNS
//! servers fail, lie and flap more often than fleets vanish. Who took each answer at its word would
//! turn a second's fault of a DNS server into an outage of the service. So an answer that adds is
//! believed at once, and one that takes away is asked for proof:
//!
//! - no answer (timeout, SERVFAIL) says nothing of the replicas: all stay, and the source is stale;
//! - "nobody" (NXDOMAIN, no address) counts after [`EMPTY_ANSWERS`] in a row that span
//!   [`EMPTY_GRACE`]; while they would leave nobody at all and somebody checks the replicas'
//!   health, never: the checks know better who is there;
//! - of an answer that lacks more than half of the replicas, those leave that the answer before it
//!   lacked too.
//!
//! A file was written by somebody who meant it: it is obeyed at once, an empty list too. Kubernetes
//! counts its pods itself: who leaves leaves at once, but "nobody" takes the same proof as by DNS,
//! since one wrong readiness probe makes all pods unready together.
//!
//! **Misleads**: a service that is gone gets requests for half a minute more, and a move of all
//! replicas by DNS takes two answers. **Recovery**: one whole answer.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::Instant;

/// Answers "nobody" in a row before they may be obeyed.
pub const EMPTY_ANSWERS: u32 = 3;

/// Time that these answers must span.
pub const EMPTY_GRACE: Duration = Duration::from_secs(30);

/// Whole answers in a row before the log calls a source well again that was not: one that flaps is
/// told of once.
pub const WELL_AFTER: u32 = 3;

/// What a source said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<T> {
    /// These, and nobody else.
    Whole(BTreeSet<T>),
    /// These, and perhaps others: some part of the answer is missing.
    Partial(BTreeSet<T>),
    /// There is nobody.
    Empty,
    /// Nothing of use.
    Failed,
}

crate::named! {
    /// How a source stands.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Standing {
        /// It has said nothing yet.
        Unknown = "unknown",
        /// Its last answer was whole.
        Well = "well",
        /// It gives no whole answer: what it said before stays.
        Failing = "failing",
        /// It says that there is nobody, and what it said before stays.
        Empty = "empty",
        /// It has said for long enough that there is nobody: nobody it is.
        Gone = "gone",
    }
}

/// What an answer changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Learnt {
    /// Whether the source has other members now.
    pub is_changed: bool,
    /// How the source stands, if that is worth a line in the log.
    pub told: Option<Standing>,
    /// Whether the next answer is wanted soon, since it may confirm this one.
    pub is_unconfirmed: bool,
}

/// Answers by kind, since the source is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerCounts {
    /// [`Answer::Whole`]
    pub whole: u64,
    /// [`Answer::Partial`]
    pub partial: u64,
    /// [`Answer::Empty`]
    pub empty: u64,
    /// [`Answer::Failed`]
    pub failed: u64,
}

/// A source of replicas and what is believed of it.
#[derive(Clone, Debug)]
pub struct Source<T> {
    /// Whether members leave at the first answer that lacks them.
    is_obeyed_at_once: bool,
    /// Whether a whole answer may be empty.
    may_be_empty: bool,
    members: BTreeSet<T>,
    /// Members that the last answer lacked and that stayed all the same.
    missing: BTreeSet<T>,
    /// How many answers in a row said that there is nobody, and since when.
    empty: (u32, Instant),
    standing: Standing,
    told: Standing,
    /// Whole answers in a row.
    well: u32,
    whole_at: Option<Instant>,
    counts: AnswerCounts,
}

impl<T: Ord + Clone> Source<T> {
    /// One that has said nothing yet and may be wrong: DNS.
    pub fn doubted() -> Self {
        Self {
            is_obeyed_at_once: false,
            may_be_empty: false,
            members: BTreeSet::new(),
            missing: BTreeSet::new(),
            empty: (0, Instant::ZERO),
            standing: Standing::Unknown,
            told: Standing::Unknown,
            well: 0,
            whole_at: None,
            counts: AnswerCounts::default(),
        }
    }

    /// One that has said nothing yet and means what it says: a file.
    pub fn obeyed() -> Self {
        Self { is_obeyed_at_once: true, may_be_empty: true, ..Self::doubted() }
    }

    /// One that has said nothing yet and knows who leaves, but may be wrong of all: Kubernetes.
    pub fn counted() -> Self {
        Self { is_obeyed_at_once: true, ..Self::doubted() }
    }

    /// Who is there.
    pub const fn members(&self) -> &BTreeSet<T> {
        &self.members
    }

    /// How it stands.
    pub const fn standing(&self) -> Standing {
        self.standing
    }

    /// When its last whole answer came; `None` before the first.
    pub const fn whole_at(&self) -> Option<Instant> {
        self.whole_at
    }

    /// Its answers so far.
    pub const fn counts(&self) -> AnswerCounts {
        self.counts
    }

    /// Takes an answer in. `may_empty` says whether it may take the last member.
    pub fn learn(&mut self, now: Instant, answer: Answer<T>, may_empty: bool) -> Learnt {
        let before = self.members.clone();
        let is_empty =
            !self.may_be_empty && matches!(&answer, Answer::Whole(who) if who.is_empty());
        let answer = if is_empty { Answer::Empty } else { answer };
        if answer != Answer::Empty {
            self.empty.0 = 0;
        }
        match answer {
            Answer::Whole(who) => {
                self.counts.whole += 1;
                self.whole_at = Some(now);
                self.standing = Standing::Well;
                self.take(who);
            }
            Answer::Partial(who) => {
                self.counts.partial += 1;
                self.members.extend(who);
                self.standing = Standing::Failing;
            }
            Answer::Failed => {
                self.counts.failed += 1;
                self.standing = Standing::Failing;
            }
            Answer::Empty => {
                self.counts.empty += 1;
                self.hear_empty(now, may_empty);
            }
        }
        let told = self.tell(before.is_empty());
        Learnt {
            is_changed: before != self.members,
            told,
            is_unconfirmed: !self.missing.is_empty(),
        }
    }

    fn take(&mut self, who: BTreeSet<T>) {
        let missing: BTreeSet<T> = self.members.difference(&who).cloned().collect();
        let is_most = missing.len() * 2 > self.members.len();
        let leave: BTreeSet<T> = match is_most && !self.is_obeyed_at_once {
            true => missing.intersection(&self.missing).cloned().collect(),
            false => missing.clone(),
        };
        self.members.extend(who);
        self.members.retain(|member| !leave.contains(member));
        self.missing = missing.difference(&leave).cloned().collect();
    }

    fn hear_empty(&mut self, now: Instant, may_empty: bool) {
        let (count, since) = self.empty;
        self.empty = if count == 0 { (1, now) } else { (count.saturating_add(1), since) };
        let (count, since) = self.empty;
        let is_proven = count >= EMPTY_ANSWERS && now.since(since) >= EMPTY_GRACE;
        if is_proven && (may_empty || self.members.is_empty()) {
            self.members.clear();
            self.missing.clear();
            self.standing = Standing::Gone;
        } else if self.standing != Standing::Gone {
            self.standing = Standing::Empty;
        }
    }

    /// How it stands, where that is news: trouble once, until it has been over for a while.
    fn tell(&mut self, had_nobody: bool) -> Option<Standing> {
        let is_well = self.standing == Standing::Well;
        self.well = if is_well { self.well.saturating_add(1) } else { 0 };
        let is_in_order = matches!(self.told, Standing::Unknown | Standing::Well);
        let is_news = match self.standing {
            Standing::Unknown => false,
            Standing::Well => !is_in_order && (had_nobody || self.well >= WELL_AFTER),
            Standing::Failing | Standing::Empty => is_in_order,
            Standing::Gone => self.told != Standing::Gone,
        };
        if is_news || (is_well && is_in_order) {
            self.told = self.standing;
        }
        is_news.then_some(self.standing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whole(who: &[u8]) -> Answer<u8> {
        Answer::Whole(who.iter().copied().collect())
    }

    fn members(source: &Source<u8>) -> Vec<u8> {
        source.members().iter().copied().collect()
    }

    /// A story: at a second, an answer; then who is there and what is told.
    fn follow(source: &mut Source<u8>, at: u64, answer: Answer<u8>) -> (Vec<u8>, Option<Standing>) {
        let learnt = source.learn(Instant::from_millis(at * 1_000), answer, true);
        (members(source), learnt.told)
    }

    #[test]
    fn no_answer_changes_nothing_and_is_told_once_until_all_is_well_for_a_while() {
        let mut source = Source::doubted();
        assert_eq!(follow(&mut source, 0, whole(&[1, 2])), (vec![1, 2], None));
        assert_eq!(follow(&mut source, 1, Answer::Failed), (vec![1, 2], Some(Standing::Failing)));
        for at in 2..100 {
            // It flaps, and says anything that is no answer.
            let answers = [Answer::Failed, whole(&[1, 2]), Answer::Empty, whole(&[1, 2])];
            let answer = answers[at as usize % 4].clone();
            assert_eq!(follow(&mut source, at, answer), (vec![1, 2], None), "{at}");
        }
        assert_eq!(source.whole_at(), Some(Instant::from_millis(99_000)));
        assert_eq!(follow(&mut source, 101, whole(&[1, 2])).1, None);
        assert_eq!(follow(&mut source, 102, whole(&[1, 2])).1, Some(Standing::Well));
        assert_eq!(follow(&mut source, 103, Answer::Failed).1, Some(Standing::Failing));
        let counts = AnswerCounts { whole: 52, partial: 0, empty: 25, failed: 26 };
        assert_eq!(source.counts(), counts);
    }

    #[test]
    fn nobody_is_believed_after_three_in_a_row_and_half_a_minute() {
        let mut source = Source::doubted();
        follow(&mut source, 0, whole(&[1, 2]));
        assert_eq!(follow(&mut source, 10, Answer::Empty), (vec![1, 2], Some(Standing::Empty)));
        assert_eq!(follow(&mut source, 11, whole(&[])), (vec![1, 2], None));
        assert_eq!(follow(&mut source, 39, Answer::Empty), (vec![1, 2], None), "too soon");
        assert_eq!(follow(&mut source, 40, Answer::Empty), (vec![], Some(Standing::Gone)));
        assert_eq!(follow(&mut source, 99, Answer::Empty), (vec![], None));
        assert_eq!(follow(&mut source, 100, whole(&[3])), (vec![3], Some(Standing::Well)));
        // Two are too few, however long they take, and no answer is not "nobody".
        follow(&mut source, 110, Answer::Empty);
        assert_eq!(follow(&mut source, 200, Answer::Empty).0, [3]);
        follow(&mut source, 201, Answer::Failed);
        follow(&mut source, 240, Answer::Empty);
        assert_eq!(follow(&mut source, 241, Answer::Empty).0, [3], "the row begins anew");
    }

    #[test]
    fn the_last_members_stay_while_somebody_checks_them() {
        let mut source = Source::doubted();
        source.learn(Instant::ZERO, whole(&[1]), false);
        for second in 1..100 {
            let at = Instant::from_millis(second * 1_000);
            source.learn(at, Answer::Empty, false);
            assert_eq!((members(&source), source.standing()), (vec![1], Standing::Empty));
        }
        source.learn(Instant::from_millis(100_000), Answer::Empty, true);
        assert_eq!((members(&source), source.standing()), (vec![], Standing::Gone));
    }

    #[test]
    fn most_leave_only_when_two_answers_in_a_row_lack_them() {
        let mut source = Source::doubted();
        follow(&mut source, 0, whole(&[1, 2, 3, 4]));
        assert_eq!(follow(&mut source, 1, whole(&[1, 2])).0, [1, 2], "half leaves at once");
        follow(&mut source, 2, whole(&[1, 2, 3, 4]));
        let learnt = source.learn(Instant::from_millis(3_000), whole(&[1, 9]), true);
        assert!(learnt.is_changed && learnt.is_unconfirmed);
        assert_eq!(members(&source), [1, 2, 3, 4, 9], "who is new is there at once");
        follow(&mut source, 4, whole(&[1, 2, 3, 4, 9]));
        follow(&mut source, 5, whole(&[1, 9]));
        assert_eq!(follow(&mut source, 6, whole(&[1, 9])).0, [1, 9]);
        assert_eq!(follow(&mut source, 7, whole(&[8])).0, [1, 8, 9]);
        assert_eq!(follow(&mut source, 8, whole(&[8])).0, [8], "a move of all takes two");
    }

    #[test]
    fn a_file_is_obeyed_at_once_and_a_partial_answer_takes_nobody_away() {
        let mut source = Source::obeyed();
        assert_eq!(follow(&mut source, 0, Answer::Failed), (vec![], Some(Standing::Failing)));
        assert_eq!(follow(&mut source, 1, whole(&[1, 2])), (vec![1, 2], Some(Standing::Well)));
        assert_eq!(follow(&mut source, 2, Answer::Failed).0, [1, 2]);
        let partial = Answer::Partial([7].into());
        assert_eq!(follow(&mut source, 3, partial), (vec![1, 2, 7], None));
        assert_eq!(follow(&mut source, 4, whole(&[])).0, []);
    }

    #[test]
    fn kubernetes_is_obeyed_at_once_but_that_nobody_is_ready_takes_proof() {
        let mut source = Source::counted();
        follow(&mut source, 0, whole(&[1, 2, 3, 4, 5]));
        assert_eq!(follow(&mut source, 1, whole(&[9])).0, [9], "all move at once");
        assert_eq!(follow(&mut source, 2, Answer::Empty), (vec![9], Some(Standing::Empty)));
        follow(&mut source, 12, whole(&[]));
        assert_eq!(follow(&mut source, 32, Answer::Empty), (vec![], Some(Standing::Gone)));
    }

    fn answers() -> impl Strategy<Value = Answer<u8>> {
        let who = || prop::collection::btree_set(0..6_u8, 0..5);
        prop_oneof![
            who().prop_map(Answer::Whole),
            who().prop_map(Answer::Partial),
            Just(Answer::Empty),
            Just(Answer::Failed),
        ]
    }

    proptest! {
        #[test]
        fn nobody_leaves_without_proof_and_trouble_is_told_once(
            history in prop::collection::vec((answers(), 0..20_u64), 1..60),
        ) {
            let (mut source, mut now) = (Source::doubted(), Instant::ZERO);
            let mut empty: Vec<Instant> = Vec::new();
            let mut lacked: Option<BTreeSet<u8>> = None;
            let mut is_in_trouble = false;
            for (answer, seconds) in history {
                now += Duration::from_secs(seconds);
                let before = source.members().clone();
                let learnt = source.learn(now, answer.clone(), true);
                let after = source.members().clone();
                prop_assert_eq!(learnt.is_changed, before != after);
                let left: BTreeSet<u8> = before.difference(&after).copied().collect();
                let said = match &answer {
                    Answer::Whole(who) if who.is_empty() => None,
                    Answer::Whole(who) => Some(who.clone()),
                    Answer::Partial(who) => {
                        prop_assert!(left.is_empty() && who.is_subset(&after));
                        Some(BTreeSet::new())
                    }
                    Answer::Failed => Some(BTreeSet::new()),
                    Answer::Empty => None,
                };
                match (&said, &answer) {
                    (None, _) => {
                        empty.push(now);
                        let is_proven = empty.len() >= 3
                            && now.since(empty[0]) >= EMPTY_GRACE;
                        prop_assert_eq!(after.is_empty(), is_proven || before.is_empty());
                        if !is_proven { prop_assert_eq!(&before, &after); }
                    }
                    (Some(who), Answer::Whole(_)) => {
                        empty.clear();
                        prop_assert!(who.is_subset(&after), "who is named is there");
                        let missing: BTreeSet<u8> = before.difference(who).copied().collect();
                        if missing.len() * 2 <= before.len() {
                            prop_assert_eq!(&after, who);
                        } else if let Some(lacked) = &lacked {
                            prop_assert!(left.is_subset(lacked), "two answers lack who leaves");
                        } else {
                            prop_assert!(left.is_empty());
                        }
                        lacked = Some(missing);
                    }
                    (Some(_), _) => empty.clear(),
                }
                match learnt.told {
                    Some(Standing::Well) => {
                        prop_assert!(is_in_trouble);
                        is_in_trouble = false;
                    }
                    Some(Standing::Gone) => is_in_trouble = true,
                    Some(_) => {
                        prop_assert!(!is_in_trouble, "once");
                        is_in_trouble = true;
                    }
                    None => {}
                }
            }
        }
    }
}
