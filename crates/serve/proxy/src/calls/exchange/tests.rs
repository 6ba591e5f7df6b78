//! Exchanges over a protocol that is a script, in virtual time: what is sent when, what becomes of
//! losers, and that nothing stays in flight whenever a client leaves.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::pending;
use std::time::Duration;

use evenkeel_core::plan::RoutePlan;
use evenkeel_core::request::redundancy::Redundancy;
use evenkeel_core::request::safeguards::Safeguards;
use evenkeel_core::request::select::{Candidates, Choice, Selector};
use evenkeel_core::request::{Dispatcher, DispatcherConfig, Kind};
use evenkeel_core::units::Probability;
use evenkeel_core::window::RequestWindow;
use evenkeel_core::{Fleet, Health, Instant, ReplicaId, Rng};
use evenkeel_geo::epoch::{SiteId, SiteSet};
use evenkeel_geo::split::PlanRow;
use evenkeel_settings::{Node, Table};
use tokio::runtime::LocalOptions;

use super::*;
use crate::calls::observer::Observer;
use crate::calls::{DispatcherSeed, WHOLE};
use crate::config::{SiteSetup, UpstreamConfig};
use crate::site_setup::Constraints;
use crate::upstream_state::SplitReport;
use evenkeel_geo::traffic::{Directive, SplitSetup};
use evenkeel_runtime::clock::Clock;

mod leaving;
mod pairs;

const HEDGE_AFTER: Duration = Duration::from_millis(10);
const TIMEOUTS: Timeouts =
    Timeouts { attempt: Duration::from_millis(100), total: Duration::from_millis(250) };
/// Longer than everything in these stories.
const LONG: Duration = Duration::from_secs(5);

const AWAY: usize = 1;

/// The script, whose losers are cancelled or left behind.
struct Script<const LEAVES: bool>;

/// What one worker has of an upstream: what becomes of attempts, in the order of their sending.
struct Stage {
    calls: Rc<Calls>,
    acts: RefCell<VecDeque<Act>>,
    /// Where attempts went, by data centre.
    sent_to: RefCell<Vec<usize>>,
    /// Attempts that are worked on.
    at_work: Cell<usize>,
}

/// What becomes of an attempt, and after how many milliseconds.
#[derive(Clone, Copy)]
enum Act {
    Says(u64, Manner),
    Fails(u64, Wrong),
    Hangs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Manner {
    Well,
    /// Its body follows the head.
    Streams,
    Error,
    Unavailable,
    /// No answer of a replica, but of the proxy.
    Refusal(Refusal),
    ClientAtFault,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wrong {
    Unsent,
    Broken,
    Client,
}

impl Display for Wrong {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self:?}")
    }
}

/// An answer, with its tail as long as its body is on the way.
struct Reply {
    manner: Manner,
    tail: Option<Tail>,
}

struct Ask {
    replay: Replay,
    is_write: bool,
    is_client_late: bool,
    /// Whether it is marked as one that leaves for another site.
    is_away: bool,
}

const ALWAYS: Ask =
    Ask { replay: Replay::Always, is_write: false, is_client_late: false, is_away: false };

/// Counts an attempt as long as somebody works on it.
struct AtWork(Rc<Stage>);

impl AtWork {
    fn begin(stage: &Rc<Stage>) -> Self {
        stage.at_work.set(stage.at_work.get() + 1);
        Self(Rc::clone(stage))
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.at_work.set(self.0.at_work.get() - 1);
    }
}

impl<const LEAVES: bool> Protocol for Script<LEAVES> {
    type Upstream = Stage;
    type Request = Ask;
    type Answer = Reply;
    type Error = Wrong;

    const LOSER: Loser = if LEAVES { Loser::Detach } else { Loser::Cancel };

    fn name(_: &Stage) -> &str {
        "stage"
    }

    fn calls(stage: &Stage) -> &Rc<Calls> {
        &stage.calls
    }

    fn timeouts(_: &Stage) -> Timeouts {
        TIMEOUTS
    }

    fn replay(ask: &Ask) -> Replay {
        ask.replay
    }

    fn may_pair(ask: &Ask) -> bool {
        !ask.is_write
    }

    fn group(_: &Stage, _: usize, _: &Ask) -> GroupId {
        WHOLE
    }

    fn send(
        stage: &Rc<Stage>,
        attempt: &OpenAttempt,
        ask: &mut Ask,
    ) -> impl Future<Output = Result<Reply, Wrong>> + 'static {
        assert_eq!(ask.is_away, attempt.datacenter() == AWAY, "as the request is marked");
        stage.sent_to.borrow_mut().push(attempt.datacenter());
        let act = stage.acts.borrow_mut().pop_front().expect("the script has an act for it");
        let working = AtWork::begin(stage);
        async move {
            let _working = working;
            let after = |ms| tokio::time::sleep(Duration::from_millis(ms));
            match act {
                Act::Says(ms, manner) => {
                    after(ms).await;
                    Ok(Reply { manner, tail: None })
                }
                Act::Fails(ms, wrong) => {
                    after(ms).await;
                    Err(wrong)
                }
                Act::Hangs => pending().await,
            }
        }
    }

    fn learn(_: &Stage, _: &OpenAttempt, answer: &mut Result<Reply, Wrong>) -> Outcome {
        match answer.as_ref().map(|reported| reported.manner) {
            Ok(Manner::Error) => Outcome::Failed(Failure::ErrorReply),
            Ok(Manner::Unavailable) => Outcome::Failed(Failure::Unavailable),
            Ok(_) => Outcome::Replied(None),
            Err(Wrong::Unsent) => Outcome::Failed(Failure::Unsent),
            Err(Wrong::Broken) => Outcome::Failed(Failure::Broken),
            Err(Wrong::Client) => Outcome::Cancelled,
        }
    }

    fn take_back(_: &mut Ask, error: Wrong) -> Result<(), Reply> {
        let reported = Reply { manner: Manner::ClientAtFault, tail: None };
        if error == Wrong::Client { Err(reported) } else { Ok(()) }
    }

    fn client_is_late(ask: &Ask) -> Option<Reply> {
        ask.is_client_late.then_some(Reply { manner: Manner::ClientAtFault, tail: None })
    }

    fn is_unavailable(reported: &Reply) -> bool {
        reported.manner == Manner::Unavailable
    }

    fn is_failure(reported: &Reply) -> bool {
        !matches!(reported.manner, Manner::Well | Manner::Streams)
    }

    fn reroute(_: &Stage, ask: &mut Ask, choice: &SiteChoice) {
        ask.is_away = choice.is_away();
    }

    fn refuse(_: &Stage, refusal: Refusal, _: &Ask) -> Reply {
        Reply { manner: Manner::Refusal(refusal), tail: None }
    }

    fn is_whole(reported: &Reply) -> bool {
        reported.manner != Manner::Streams
    }

    fn attach(reported: Reply, _: Ask, tail: Tail) -> Reply {
        Reply { tail: Some(tail), ..reported }
    }
}

/// The first candidate; holds everything back before this moment.
#[derive(Debug)]
struct InOrder {
    hold_until: Instant,
}

impl Selector for InOrder {
    fn name(&self) -> &'static str {
        "in-order"
    }

    fn select(&mut self, now: Instant, from: Candidates<'_>, _: &mut Rng) -> Choice {
        if now < self.hold_until {
            return Choice::Hold { until: self.hold_until };
        }
        Choice::Send(from.ids[0])
    }
}

/// One copy after a fixed time; the real hedge needs a hundred answers first.
#[derive(Debug)]
struct OneCopy;

impl Redundancy for OneCopy {
    fn copy_due(&mut self, copies_sent: usize) -> Option<Duration> {
        (copies_sent == 1).then_some(HEDGE_AFTER)
    }

    fn permits_copy(&mut self, _: Instant) -> bool {
        true
    }
}

impl Stage {
    /// Three replicas in each of two data centres, between which requests are split.
    fn new(acts: &[Act]) -> Rc<Self> {
        let node =
            Node::parse("policy = 'round-robin'\nreplicas = ['127.0.0.1:81']\n", "test.toml");
        let read = |table: &mut Table<'_>| UpstreamConfig::read("web", table, false).0;
        let mut config = node.and_then(|node| node.read(read)).unwrap();
        let sites = SplitSetup {
            home: SiteId::new(0),
            names: vec!["home".to_owned(), "away".to_owned()],
            objective: Duration::from_millis(50),
            writes_stay: false,
            bound_stay: false,
        };
        config.split = Some(SiteSetup { sites, places: vec![Some(0), Some(1)] });
        let seed = DispatcherSeed { clients: 1, seed: 1, can_ask: false };
        let calls = Calls::new(&config, &[3, 3], Clock::virtual_time(), seed).unwrap();
        let stage = Rc::new(Self {
            calls,
            acts: RefCell::new(acts.iter().copied().collect()),
            sent_to: RefCell::default(),
            at_work: Cell::default(),
        });
        stage.direct_away(0);
        stage.play(Instant::ZERO);
        tokio::task::spawn_local(Rc::clone(&stage.calls).keep_time());
        stage
    }

    /// Replicas are tried in order from this moment on; a copy leaves after [`HEDGE_AFTER`].
    fn play(&self, hold_until: Instant) {
        for datacenter in [HOME, AWAY] {
            // A script says how long it holds.
            let safeguards = Safeguards { hold_max: Duration::MAX, ..Safeguards::default() };
            let (fleet, config) = (
                Fleet::single_group(3),
                DispatcherConfig { safeguards, ..DispatcherConfig::default() },
            );
            let dispatcher = Dispatcher::new(fleet, Box::new(InOrder { hold_until }), config);
            *self.calls.dispatcher(datacenter) = dispatcher.with_redundancy(Box::new(OneCopy));
        }
    }

    /// So many of 1,000 requests per second go to the other site.
    fn direct_away(&self, rate: u64) {
        self.direct(rate, SiteSet::first(2));
    }

    /// The same by a plan that has requests hedged at these sites only.
    fn direct(&self, rate: u64, hedges: SiteSet) {
        let row = PlanRow {
            epoch: rate + 1,
            origin: SiteId::new(0),
            demand_per_1000_s: 1_000_000,
            rates_per_1000_s: vec![(1_000 - rate) * 1_000, rate * 1_000],
        };
        let (parts, good_until) = (vec![Probability::ONE], Instant::FAR);
        let spare_per_1000_s = Vec::new();
        let inflow = None;
        let plan = Directive { row, parts, good_until, spare_per_1000_s, hedges, inflow };
        self.calls.direct(0, &plan);
    }

    /// From now on no replica of this data centre may be used.
    fn drain(&self, datacenter: usize) {
        let health = vec![Health::Draining; 3];
        self.calls
            .adopt(datacenter, &RoutePlan { version: 1, health, ..RoutePlan::single_group(3) });
    }

    fn in_flight(&self) -> u64 {
        [HOME, AWAY].map(|place| self.calls.dispatcher(place).fleet().in_flight()).iter().sum()
    }

    /// Asks, at the site that the plan says.
    async fn ask<const LEAVES: bool>(self: &Rc<Self>, ask: Ask) -> Manner {
        let reported = self.begin::<LEAVES>(ask, Record::default()).await;
        assert!(reported.tail.is_none(), "all of it is there");
        reported.manner
    }

    fn begin<const LEAVES: bool>(
        self: &Rc<Self>,
        mut ask: Ask,
        record: Record,
    ) -> impl Future<Output = Reply> + use<LEAVES> {
        let choice = SiteChoice::depart(&self.calls, Constraints::of_write(false, false));
        ask.is_away = choice.as_ref().is_some_and(SiteChoice::is_away);
        self.calls.tick();
        Exchange::<Script<LEAVES>>::open(Rc::clone(self), ask, choice, record).run()
    }

    fn now_ms(&self) -> u128 {
        self.calls.tick().since(Instant::ZERO).as_millis()
    }

    /// What both data centres counted, once nothing is left of anything.
    fn counted(&self) -> (RequestWindow, SplitReport) {
        assert_eq!((self.in_flight(), self.at_work.get()), (0, 0), "something is left");
        let observed = self.calls.observe(Vec::new());
        assert_eq!(observed.held, 0);
        let window = observed.window;
        assert_eq!(window.opened, window.answered + window.refused + window.abandoned);
        for replica in &window.replicas {
            let ended = replica.succeeded + replica.failed + replica.cancelled;
            assert_eq!(replica.sent, ended, "one outcome each: {window:?}");
        }
        (window, observed.split.unwrap())
    }

    /// Outcomes of all attempts: succeeded, failed, broken bodies, cancelled.
    fn outcomes(&self) -> [u64; 4] {
        let replicas = self.counted().0.replicas;
        replicas.iter().fold([0; 4], |sum, it| {
            let of_one = [it.succeeded, it.failed, it.broken_bodies, it.cancelled];
            std::array::from_fn(|place| sum[place] + of_one[place])
        })
    }
}

/// Tells a story in virtual time.
fn story<F: Future<Output = ()>>(reported: impl FnOnce() -> F) {
    // Paused from the beginning, so that timers are exact to the millisecond.
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build_local(LocalOptions::default());
    runtime.unwrap().block_on(reported());
}

async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Notes what happens, and when.
struct Notes(Rc<RefCell<Vec<(u128, Event)>>>);

impl Observer for Notes {
    fn event(&mut self, at: Instant, event: Event) {
        self.0.borrow_mut().push((at.since(Instant::ZERO).as_millis(), event));
    }
}

fn sent(replica: usize, kind: Kind) -> Event {
    Event::Sent { datacenter: HOME, replica: ReplicaId::new(replica), kind }
}

const REPLIED: Outcome = Outcome::Replied(None);

#[test]
fn a_whole_answer_ends_with_its_head() {
    story(|| async {
        let stage = Stage::new(&[Act::Says(7, Manner::Well)]);
        let notes = Rc::<RefCell<Vec<_>>>::default();
        let record = Record::to(Notes(Rc::clone(&notes)));
        let reported = stage.begin::<false>(ALWAYS, record).await;
        assert!(reported.tail.is_none() && stage.now_ms() == 7);
        let (window, split) = stage.counted();
        assert_eq!((window.answered, split.by_site[HOME].tally.ended), (1, 1));
        assert_eq!(
            *notes.borrow(),
            [
                (0, sent(0, Kind::First)),
                (7, Event::Learnt { copy: 0, outcome: REPLIED }),
                (7, Event::Answered { copy: 0 }),
                (7, Event::Ended(BodyEnd::Complete)),
            ]
        );
    });
}

#[test]
fn a_body_settles_its_attempt_and_its_site_at_its_end() {
    // What the body comes to, what the attempt is counted as, and whether the site missed.
    let ends = [
        (Some(BodyEnd::Complete), [1, 0, 0, 0], 0),
        (Some(BodyEnd::UpstreamBroke), [0, 1, 1, 0], 1),
        (Some(BodyEnd::TimedOut), [0, 1, 1, 0], 1),
        (None, [1, 0, 0, 0], 0),
    ];
    for (end, outcomes, missed) in ends {
        story(|| async move {
            let stage = Stage::new(&[Act::Says(7, Manner::Streams)]);
            let notes = Rc::<RefCell<Vec<_>>>::default();
            let reported = stage.begin::<false>(ALWAYS, Record::to(Notes(Rc::clone(&notes)))).await;
            pass(LONG).await;
            let observed = stage.calls.observe(Vec::new());
            assert_eq!((observed.window.answered, stage.in_flight()), (1, 1), "the body streams");
            let split = observed.split.unwrap();
            assert_eq!(
                (split.by_site[HOME].latency.count(), split.by_site[HOME].tally.ended),
                (1, 0)
            );
            let tail = reported.tail.unwrap();
            match end {
                Some(end) => tail.end(end),
                None => drop(tail), // the client has gone
            }
            let observed = stage.calls.observe(Vec::new());
            let counts = &observed.split.unwrap().by_site[HOME];
            assert_eq!(
                (counts.tally.ended, counts.tally.missed, counts.latency.count()),
                (1, missed, 0)
            );
            let first = observed.window.replicas[0];
            let counted = [first.succeeded, first.failed, first.broken_bodies, first.cancelled];
            assert_eq!((counted, stage.in_flight()), (outcomes, 0), "{end:?}");
            let last = Event::Ended(end.unwrap_or(BodyEnd::ClientGone));
            assert_eq!(notes.borrow().last(), Some(&(7 + LONG.as_millis(), last)));
        });
    }
}

#[test]
fn who_breaks_every_body_is_ejected() {
    story(|| async {
        let stage = Stage::new(&[Act::Says(1, Manner::Streams); 6]);
        for number in 0..6 {
            let reported = stage.begin::<false>(ALWAYS, Record::default()).await;
            reported.tail.unwrap().end(BodyEnd::UpstreamBroke);
            let one = ReplicaId::new(0);
            let until = stage.calls.dispatcher(HOME).fleet().replica(one).ejected_until();
            assert_eq!(until > stage.calls.read_at(), number >= 4, "after {number} and one more");
            pass(LONG).await; // its share of failures fades
        }
        assert_eq!(stage.outcomes(), [0, 6, 6, 0]);
    });
}

#[test]
fn a_hedge_overtakes_and_the_loser_is_cancelled_or_left_behind() {
    async fn overtake<const LEAVES: bool>() -> Rc<Stage> {
        let acts = [Act::Says(60, Manner::Well), Act::Says(5, Manner::Well)];
        let stage = Stage::new(&acts);
        assert_eq!(stage.ask::<LEAVES>(ALWAYS).await, Manner::Well);
        assert_eq!(stage.now_ms(), 15);
        stage
    }
    story(|| async {
        let stage = overtake::<false>().await;
        assert_eq!(stage.outcomes(), [1, 0, 0, 1], "the first is gone at once");
    });
    story(|| async {
        let stage = overtake::<true>().await;
        assert_eq!((stage.in_flight(), stage.at_work.get()), (1, 1), "its replica works on it");
        pass(ms(60)).await;
        let (window, _) = stage.counted();
        let latencies: Vec<u64> = window.replicas.iter().map(|it| it.latency_us_sum).collect();
        assert_eq!(latencies[..2], [60_000, 5_000], "it is learnt from when it answers");
        assert_eq!((window.answered, window.hedges_won), (1, 1));
    });
}

#[test]
fn a_plan_keeps_hedges_back_where_copies_cost_more_than_they_save() {
    for (hedged, ends_ms, copies) in [(vec![0, 1], 15, 1), (vec![1], 60, 0)] {
        story(move || async move {
            let stage = Stage::new(&[Act::Says(60, Manner::Well), Act::Says(5, Manner::Well)]);
            stage.direct(1, hedged.into_iter().map(SiteId::new).collect());
            assert_eq!(stage.ask::<false>(ALWAYS).await, Manner::Well);
            assert_eq!((stage.now_ms(), stage.counted().0.hedges), (ends_ms, copies));
        });
    }
}

#[test]
fn a_late_attempt_is_tried_elsewhere() {
    async fn late<const LEAVES: bool>(first: Act) -> Rc<Stage> {
        let hedge = Act::Fails(1, Wrong::Broken);
        let stage = Stage::new(&[first, hedge, Act::Says(5, Manner::Well)]);
        assert_eq!(stage.ask::<LEAVES>(ALWAYS).await, Manner::Well);
        assert_eq!(stage.now_ms(), 105);
        stage
    }
    story(|| async {
        assert_eq!(late::<false>(Act::Hangs).await.outcomes(), [1, 2, 0, 0]);
    });
    story(|| async {
        let stage = late::<true>(Act::Says(150, Manner::Well)).await;
        assert_eq!(stage.in_flight(), 1, "its replica works on it, although it has failed");
        pass(ms(60)).await;
        assert_eq!(stage.outcomes(), [1, 2, 0, 0]);
    });
}

#[test]
fn a_request_that_takes_too_long_altogether_is_refused() {
    async fn wait<const LEAVES: bool>() -> Rc<Stage> {
        let slow = Act::Says(300, Manner::Well);
        let stage = Stage::new(&[slow; 3]);
        let once = Ask { replay: Replay::AfterFailure, ..ALWAYS };
        let reported = stage.ask::<LEAVES>(once).await;
        assert_eq!(reported, Manner::Refusal(Refusal::Failed(Failure::TimedOut)));
        stage
    }
    story(|| async {
        let stage = wait::<false>().await;
        assert_eq!(stage.now_ms(), 200, "two attempts, and one retry is allowed");
        let (window, split) = stage.counted();
        assert_eq!((window.refused, window.retries), (1, 1));
        assert_eq!((split.by_site[HOME].tally.ended, split.by_site[HOME].tally.missed), (1, 1));
    });
    story(|| async {
        let stage = wait::<true>().await;
        assert_eq!(stage.in_flight(), 2);
        pass(LONG).await;
        assert_eq!(stage.outcomes(), [0, 2, 0, 0]);
    });
    // Its turn comes so late that its attempt has less time than others.
    story(|| async {
        let stage = Stage::new(&[Act::Hangs; 2]);
        stage.play(Instant::ZERO + ms(200));
        let reported = stage.ask::<false>(ALWAYS).await;
        assert_eq!(reported, Manner::Refusal(Refusal::Failed(Failure::TimedOut)));
        assert_eq!((stage.now_ms(), stage.outcomes()), (250, [0, 2, 0, 0]));
    });
    // Held for longer than it may take.
    story(|| async {
        let stage = Stage::new(&[]);
        stage.play(Instant::ZERO + LONG);
        let reported = stage.ask::<false>(ALWAYS).await;
        assert_eq!(reported, Manner::Refusal(Refusal::Failed(Failure::TimedOut)));
        let window = stage.counted().0;
        assert_eq!((stage.now_ms(), window.refused, window.abandoned), (250, 1, 0));
    });
}

#[test]
fn what_fails_is_sent_again_as_often_as_it_may() {
    let broken = Act::Fails(2, Wrong::Broken);
    let unsent = Act::Fails(2, Wrong::Unsent);
    let well = Act::Says(3, Manner::Well);
    let failed = |failure| Manner::Refusal(Refusal::Failed(failure));
    let once = || Ask { replay: Replay::IfUnsent, ..ALWAYS };
    let stories: [(Ask, &[Act], Manner); 6] = [
        (ALWAYS, &[broken, well], Manner::Well),
        (ALWAYS, &[broken, unsent], failed(Failure::Unsent)),
        (once(), &[unsent, well], Manner::Well),
        (once(), &[broken], failed(Failure::Broken)),
        (once(), &[Act::Says(1, Manner::Error)], Manner::Error),
        // The last of those who could not serve is believed.
        (ALWAYS, &[Act::Says(1, Manner::Unavailable); 2], Manner::Unavailable),
    ];
    for (ask, acts, expected) in stories {
        story(|| async move {
            let stage = Stage::new(acts);
            assert_eq!(stage.ask::<false>(ask).await, expected);
            assert!(stage.acts.borrow().is_empty(), "all of it was played");
            stage.counted();
        });
    }
}

#[test]
fn an_error_waits_for_a_better_answer_and_then_its_body_is_dropped() {
    story(|| async {
        let acts = [Act::Says(20, Manner::Error), Act::Says(15, Manner::Streams)];
        let stage = Stage::new(&acts);
        let reported = stage.begin::<false>(ALWAYS, Record::default()).await;
        assert_eq!((reported.manner, stage.now_ms(), stage.in_flight()), (Manner::Streams, 25, 1));
        drop(reported);
        assert_eq!(stage.outcomes(), [1, 1, 0, 0]);
    });
}

#[test]
fn a_client_at_fault_is_told_and_nobody_is_blamed() {
    story(|| async {
        let stage = Stage::new(&[Act::Fails(5, Wrong::Client)]);
        let once = Ask { replay: Replay::IfUnsent, ..ALWAYS };
        assert_eq!(stage.ask::<false>(once).await, Manner::ClientAtFault);
        assert_eq!((stage.now_ms(), stage.outcomes()), (5, [0, 0, 0, 1]));
    });
    story(|| async {
        let stage = Stage::new(&[Act::Hangs]);
        let late = Ask { replay: Replay::IfUnsent, is_client_late: true, ..ALWAYS };
        assert_eq!(stage.ask::<false>(late).await, Manner::ClientAtFault);
        assert_eq!(stage.now_ms(), 100);
        let (window, split) = stage.counted();
        assert_eq!(window.replicas[0].cancelled, 1);
        assert_eq!(split.by_site[HOME].tally.ended, 0, "of no site does it say anything");
    });
}

#[test]
fn what_another_site_does_not_serve_comes_home() {
    async fn away(acts: &[Act], is_drained: bool) -> (Rc<Stage>, Manner) {
        let stage = Stage::new(acts);
        stage.direct_away(1_000);
        if is_drained {
            stage.drain(AWAY);
        }
        let reported = stage.ask::<false>(ALWAYS).await;
        (stage, reported)
    }
    let unavailable = Act::Says(2, Manner::Unavailable);
    let well = Act::Says(3, Manner::Well);
    let stories: [(&[Act], &[usize]); 2] = [
        (&[unavailable, unavailable, well], &[AWAY, AWAY, HOME]),
        (&[Act::Fails(1, Wrong::Broken), Act::Fails(1, Wrong::Unsent), well], &[AWAY, AWAY, HOME]),
    ];
    for (acts, places) in stories {
        story(|| async move {
            let (stage, reported) = away(acts, false).await;
            assert_eq!((reported, &**stage.sent_to.borrow()), (Manner::Well, places));
            let (window, split) = stage.counted();
            assert_eq!((window.opened, window.answered), (1, 1), "it is one request");
            assert_eq!((split.by_site[AWAY].fallbacks, split.by_site[HOME].tally.ended), (1, 1));
            assert_eq!(split.returned.ended, 1);
        });
    }
    story(|| async {
        let (stage, reported) = away(&[Act::Says(3, Manner::Well)], false).await;
        assert_eq!((reported, &**stage.sent_to.borrow()), (Manner::Well, &[AWAY][..]));
        assert_eq!(stage.counted().1.by_site[AWAY].tally.ended, 1);
    });
    // Nobody there may be used: no plan sends it there.
    story(|| async {
        let (stage, reported) = away(&[Act::Says(3, Manner::Well)], true).await;
        assert_eq!((reported, &**stage.sent_to.borrow()), (Manner::Well, &[HOME][..]));
        stage.counted();
    });
}

#[test]
fn nobody_to_ask_is_a_refusal() {
    story(|| async {
        let stage = Stage::new(&[]);
        stage.drain(HOME);
        stage.drain(AWAY);
        assert_eq!(stage.ask::<false>(ALWAYS).await, Manner::Refusal(Refusal::NoReplica));
        let (window, split) = stage.counted();
        assert_eq!((window.refused, split.by_site[HOME].tally.missed), (1, 1));
    });
}

#[test]
fn a_held_request_has_its_turn() {
    story(|| async {
        let stage = Stage::new(&[Act::Says(4, Manner::Well); 2]);
        stage.play(Instant::ZERO + ms(40));
        let other = Rc::clone(&stage);
        let other = tokio::task::spawn_local(async move { other.ask::<false>(ALWAYS).await });
        assert_eq!(stage.ask::<false>(ALWAYS).await, Manner::Well);
        assert_eq!(other.await.unwrap(), Manner::Well);
        let took = stage.now_ms();
        assert!((44..60).contains(&took), "{took} ms");
        assert_eq!(stage.counted().0.held, 2);
    });
}

/// One request with all that can happen to it: held, hedged, late, retried, at another site, with
/// a body. Its client leaves after so many milliseconds.
async fn leave_after<const LEAVES: bool>(leaves: Duration, is_away: bool) -> bool {
    let stage = Stage::new(&[
        Act::Says(180, Manner::Well),
        Act::Fails(30, Wrong::Broken),
        Act::Says(20, Manner::Unavailable),
        Act::Says(400, Manner::Well),
        Act::Says(10, Manner::Streams),
    ]);
    stage.play(Instant::ZERO + ms(20));
    stage.direct_away(if is_away { 1_000 } else { 0 });
    let client = async {
        let reported = stage.begin::<LEAVES>(ALWAYS, Record::default()).await;
        pass(ms(50)).await; // its body
        reported.tail.into_iter().for_each(|tail| tail.end(BodyEnd::Complete));
    };
    let has_left = tokio::time::timeout(leaves, client).await.is_err();
    if !LEAVES {
        assert_eq!((stage.in_flight(), stage.at_work.get()), (0, 0), "after {leaves:?}");
    }
    pass(LONG).await;
    let (window, split) = stage.counted();
    assert_eq!(window.opened, 1, "after {leaves:?}");
    let ended: u64 = split.by_site.iter().map(|counts| counts.tally.ended).sum();
    // Before the objective has passed nobody knows what would have become of it.
    assert_eq!(ended, u64::from(leaves > ms(50)), "after {leaves:?}");
    has_left
}

#[test]
fn wherever_a_client_leaves_nothing_stays_in_flight() {
    for is_away in [false, true] {
        let mut left = 0;
        for leaves in (0..400).step_by(3).map(ms) {
            story(|| async move {
                leave_after::<true>(leaves, is_away).await;
            });
            let has_left = Cell::new(false);
            story(|| async { has_left.set(leave_after::<false>(leaves, is_away).await) });
            left += usize::from(has_left.get());
        }
        assert!((50..134).contains(&left), "{left} of 134 left in the middle");
    }
}
