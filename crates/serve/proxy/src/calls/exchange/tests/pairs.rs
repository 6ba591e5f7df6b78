//! Requests that go to two replicas, for the record.

use std::sync::{Arc, Mutex};

use evenkeel_core::request::copies::{CopyEnd, CopyRecord, CopySink};

use super::*;
use crate::calls::CopyRecording;

#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<Vec<CopyRecord>>>);

impl CopySink for Kept {
    fn copy_ended(&mut self, copy: &CopyRecord) {
        self.0.lock().unwrap().push(*copy);
    }
}

impl Kept {
    /// Why each copy was sent, where, how it ended and after how long, in the order of their ends.
    fn told(&self) -> Vec<(Kind, usize, CopyEnd, u64)> {
        let kept = self.0.lock().unwrap();
        let of = |it: &CopyRecord| (it.kind, it.replica.index(), it.end, it.latency_ns / 1_000_000);
        kept.iter().map(of).collect()
    }
}

/// A stage on which every request that may be is one of a pair.
fn paired(acts: &[Act]) -> (Rc<Stage>, Kept) {
    let (stage, kept) = (Stage::new(acts), Kept::default());
    let sink = Box::new(kept.clone());
    let recording = CopyRecording { sink, pairs: Probability::ONE, explore: None };
    stage.calls.record_copies(Some(recording));
    (stage, kept)
}

#[test]
fn the_client_is_given_the_answer_of_the_first_copy_and_the_second_is_awaited_too() {
    story(|| async {
        let acts = [Act::Says(7, Manner::Well), Act::Says(3, Manner::Error)];
        let (stage, kept) = paired(&acts);
        assert_eq!(stage.ask::<false>(ALWAYS).await, Manner::Well);
        assert_eq!(stage.now_ms(), 7, "the second one answered before, and nobody took it");
        let window = stage.counted().0;
        assert_eq!((window.answered, window.hedges, window.retries), (1, 0, 0));
        let told = kept.told();
        assert_eq!(told.len(), 2);
        assert!(told[0].1 > 0 && (told[0].0, told[0].3) == (Kind::Mirror, 3), "{told:?}");
        assert_eq!(told[0].2, CopyEnd::Failed);
        assert_eq!(told[1], (Kind::First, 0, CopyEnd::Answered, 7));
    });
}

#[test]
fn the_second_copy_of_a_pair_that_hangs_ends_with_its_time_limit_and_nobody_waits_for_it() {
    story(|| async {
        let (stage, kept) = paired(&[Act::Says(7, Manner::Well), Act::Hangs]);
        assert_eq!(stage.ask::<false>(ALWAYS).await, Manner::Well);
        assert_eq!((stage.now_ms(), stage.in_flight()), (7, 1));
        pass(TIMEOUTS.attempt).await;
        stage.counted();
        let told = kept.told();
        assert_eq!(told[0], (Kind::First, 0, CopyEnd::Answered, 7));
        assert_eq!((told[1].0, told[1].2, told[1].3), (Kind::Mirror, CopyEnd::Failed, 100));
    });
}

/// Where a loser cannot be given up, as in CQL, all are awaited.
#[test]
fn every_other_second_copy_is_given_up_when_the_first_one_has_answered() {
    story(|| async {
        let act = |ms| Act::Says(ms, Manner::Well);
        let (stage, kept) = paired(&[act(7), act(9), act(7), act(9), act(9), act(4)]);
        for _ in 0..3 {
            assert_eq!(stage.ask::<false>(ALWAYS).await, Manner::Well);
            pass(ms(20)).await;
        }
        assert_eq!((stage.in_flight(), stage.at_work.get()), (0, 0));
        let of_pairs = |kept: &Kept| -> Vec<_> {
            let pairs = kept.told().into_iter().filter(|it| it.0 == Kind::Mirror);
            pairs.map(|it| (it.2, it.3)).collect()
        };
        let expected = [(CopyEnd::Answered, 9), (CopyEnd::Cancelled, 7), (CopyEnd::Answered, 4)];
        assert_eq!(of_pairs(&kept), expected);
        let (stage, kept) = paired(&[act(7), act(9), act(7), act(9)]);
        for _ in 0..2 {
            assert_eq!(stage.ask::<true>(ALWAYS).await, Manner::Well);
            pass(ms(20)).await;
        }
        assert_eq!(of_pairs(&kept), [(CopyEnd::Answered, 9); 2]);
    });
}

#[test]
fn a_write_is_sent_once_even_if_it_may_be_hedged() {
    story(|| async {
        let (stage, kept) = paired(&[Act::Says(7, Manner::Well)]);
        let write = Ask { is_write: true, ..ALWAYS };
        assert_eq!(stage.ask::<false>(write).await, Manner::Well);
        stage.counted();
        assert_eq!(kept.told(), [(Kind::First, 0, CopyEnd::Answered, 7)]);
        assert_eq!(stage.sent_to.borrow().len(), 1);
    });
}

#[test]
fn losers_and_requests_whose_client_leaves_have_their_rows_and_off_is_off() {
    story(|| async {
        let acts = [
            Act::Hangs,
            Act::Says(5, Manner::Well), // the hedge, after 10 ms
            Act::Hangs,
        ];
        let (stage, kept) = (Stage::new(&acts), Kept::default());
        let sink = Box::new(kept.clone());
        let none = Probability::clamped(0.0);
        stage.calls.record_copies(Some(CopyRecording { sink, pairs: none, explore: None }));
        assert_eq!(stage.ask::<false>(ALWAYS).await, Manner::Well);
        let abandoned = stage.begin::<false>(ALWAYS, Record::default());
        let left = tokio::time::timeout(ms(4), abandoned).await;
        assert!(left.is_err(), "the client has gone");
        stage.counted();
        assert_eq!(
            kept.told(),
            [
                (Kind::Hedge, 1, CopyEnd::Answered, 5),
                (Kind::First, 0, CopyEnd::Cancelled, 15),
                (Kind::First, 0, CopyEnd::Cancelled, 4),
            ]
        );
        stage.calls.record_copies(None);
        stage.acts.borrow_mut().push_back(Act::Says(1, Manner::Well));
        assert_eq!(stage.ask::<false>(ALWAYS).await, Manner::Well);
        assert_eq!(kept.told().len(), 3);
    });
}

#[test]
fn a_loser_whose_replica_works_on_has_its_own_time_as_in_cql() {
    story(|| async {
        let acts = [Act::Says(30, Manner::Well), Act::Says(5, Manner::Well)];
        let (stage, kept) = (Stage::new(&acts), Kept::default());
        let (sink, none) = (Box::new(kept.clone()), Probability::clamped(0.0));
        stage.calls.record_copies(Some(CopyRecording { sink, pairs: none, explore: None }));
        assert_eq!(stage.ask::<true>(ALWAYS).await, Manner::Well);
        assert_eq!(stage.now_ms(), 15);
        pass(ms(20)).await;
        stage.counted();
        let expected =
            [(Kind::Hedge, 1, CopyEnd::Answered, 5), (Kind::First, 0, CopyEnd::Answered, 30)];
        assert_eq!(kept.told(), expected);
    });
}
