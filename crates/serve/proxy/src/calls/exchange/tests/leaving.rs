//! Requests that another site does not answer: which of them come home, and when.

use super::*;

const SILENCE: Duration = Duration::from_millis(20);
const ONCE: Ask = Ask { replay: Replay::IfUnsent, ..ALWAYS };
const WELL: Act = Act::Says(3, Manner::Well);

/// All goes to the one replica of the other site, which is silent after [`SILENCE`] and has
/// answered so many requests after 3 ms.
async fn away(answered: usize, acts: &[Act]) -> Rc<Stage> {
    let acts: Vec<Act> = [WELL].repeat(answered).into_iter().chain(acts.iter().copied()).collect();
    let stage = Stage::new(&acts);
    let safeguards = Safeguards { silence_min: SILENCE, ..Safeguards::default() };
    let config = DispatcherConfig { safeguards, ..DispatcherConfig::default() };
    let selector = Box::new(InOrder { hold_until: Instant::ZERO });
    *stage.calls.dispatcher(AWAY) = Dispatcher::new(Fleet::single_group(3), selector, config);
    let health = vec![Health::Up, Health::Draining, Health::Draining];
    let plan = RoutePlan { version: 1, health, ..RoutePlan::single_group(3) };
    stage.calls.adopt(AWAY, &plan);
    stage.direct_away(1_000);
    for _ in 0..answered {
        assert_eq!(stage.ask::<false>(ALWAYS).await, Manner::Well);
    }
    stage
}

/// What one request came to, and when.
type Asked = tokio::task::JoinHandle<(Manner, u128)>;

fn ask<const LEAVES: bool>(stage: &Rc<Stage>, ask: Ask) -> Asked {
    let stage = Rc::clone(stage);
    tokio::task::spawn_local(async move { (stage.ask::<LEAVES>(ask).await, stage.now_ms()) })
}

#[test]
fn all_that_may_be_sent_again_comes_home_when_the_site_falls_silent() {
    async fn fall_silent<const LEAVES: bool>() -> Rc<Stage> {
        let acts = [Act::Hangs, Act::Hangs, Act::Hangs, WELL, WELL];
        let stage = away(1, &acts).await;
        let mut asked = Vec::new();
        for one in [ALWAYS, ONCE, ALWAYS] {
            asked.push(ask::<LEAVES>(&stage, one));
            pass(ms(5)).await;
        }
        let [first, bound, last] = asked.try_into().unwrap();
        // The first left at 3 ms, and home answers at once.
        assert_eq!(first.await.unwrap(), (Manner::Well, 3 + 20 + 3));
        assert_eq!(last.await.unwrap(), (Manner::Well, 3 + 20 + 3));
        let refusal = Manner::Refusal(Refusal::Failed(Failure::TimedOut));
        assert_eq!(bound.await.unwrap(), (refusal, 3 + 5 + 100), "it may have been done");
        assert_eq!(*stage.sent_to.borrow(), [AWAY, AWAY, AWAY, AWAY, HOME, HOME]);
        stage
    }
    story(|| async {
        let stage = fall_silent::<false>().await;
        assert_eq!(stage.in_flight(), 0);
        let (window, split) = stage.counted();
        let counted = (window.opened, window.answered, window.refused, window.abandoned);
        assert_eq!(counted, (4, 3, 1, 0), "each is one request");
        assert_eq!((split.by_site[AWAY].fallbacks, split.returned.ended), (2, 2));
    });
    story(|| async {
        let stage = fall_silent::<true>().await;
        assert_eq!(stage.in_flight(), 3, "its replica works on them, for all we know");
    });
}

#[test]
fn nothing_goes_to_a_silent_site_but_one_request_on_trial() {
    story(|| async {
        let hangs = Act::Hangs;
        let acts = [hangs, WELL, hangs, WELL, WELL, WELL, WELL, WELL, WELL];
        let stage = away(1, &acts).await;
        let places = |asked: Vec<usize>| {
            assert_eq!(std::mem::take(&mut *stage.sent_to.borrow_mut()), asked);
        };
        places(vec![AWAY]);
        assert_eq!(stage.ask::<false>(ALWAYS).await, Manner::Well);
        places(vec![AWAY, HOME]);
        let trial = ask::<false>(&stage, ALWAYS);
        pass(ms(1)).await;
        assert_eq!(stage.ask::<false>(ALWAYS).await, Manner::Well);
        assert_eq!(trial.await.unwrap().0, Manner::Well);
        places(vec![AWAY, HOME, HOME]);
        assert_eq!(stage.ask::<false>(ALWAYS).await, Manner::Well);
        places(vec![HOME]);
        pass(Duration::from_secs(1)).await; // the next trial is answered
        for _ in 0..2 {
            assert_eq!(stage.ask::<false>(ALWAYS).await, Manner::Well);
        }
        places(vec![AWAY, AWAY]);
    });
}

#[test]
fn a_request_comes_home_when_home_can_just_keep_the_objective() {
    story(|| async {
        // One of 3 ms at home, where 50 ms are the objective; ten away, so that one is not silent.
        let slow = Act::Says(400, Manner::Well);
        let stage = Stage::new(&[WELL, WELL, slow, slow, WELL]);
        assert_eq!(stage.ask::<false>(ALWAYS).await, Manner::Well);
        stage.direct_away(1_000);
        assert_eq!(stage.ask::<false>(ALWAYS).await, Manner::Well);
        let began = stage.now_ms();
        assert_eq!(stage.ask::<false>(ALWAYS).await, Manner::Well);
        assert_eq!(stage.now_ms() - began, 50, "47 ms away, 3 at home");
        assert_eq!(stage.sent_to.borrow()[2..], [AWAY, AWAY, HOME], "with its hedge");
        let split = stage.counted().1;
        assert_eq!((split.by_site[HOME].tally.missed, split.returned.missed), (0, 0));
    });
}

#[test]
fn who_cannot_be_served_at_home_waits_for_the_other_site() {
    story(|| async {
        let stage = away(1, &[Act::Says(70, Manner::Well)]).await;
        stage.drain(HOME);
        assert_eq!(stage.ask::<false>(ALWAYS).await, Manner::Well);
        assert_eq!((stage.now_ms(), &**stage.sent_to.borrow()), (73, &[AWAY, AWAY][..]));
    });
}
