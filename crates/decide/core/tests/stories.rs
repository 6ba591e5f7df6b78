//! Stories: what operators complain about in every balancer, told step by step for every policy.

#[path = "common/policies.rs"]
mod policies;
#[path = "common/world.rs"]
#[allow(dead_code, reason = "each test file tells its stories with a part of the world")]
mod world;

use std::ops::Range;

use evenkeel_core::Instant;
use evenkeel_core::fleet::Health;
use evenkeel_core::request::redundancy::{Hedge, HedgeConfig};
use evenkeel_core::request::{Failure, Kind};
use world::{Behaviour, World, secs};

const SLOW: Behaviour = Behaviour::Serves { mean_ms: 200.0 };
const WELL: Behaviour = Behaviour::Serves { mean_ms: 10.0 };

fn from(start: f64, end: f64) -> Range<Instant> {
    secs(start)..secs(end)
}

/// Whether the policy looks at nothing that tells a slow or hanging replica from a good one.
fn is_blind(policy: &str) -> bool {
    // Weights follow dimmers alone, and nobody tells one in these stories.
    ["random", "round-robin", "weighted-dimmer"].contains(&policy) || policy.contains("ranking=off")
}

/// Published queue offsets follow what is in flight, cut off to whole requests, and ties go to the
/// first of the group: with few in flight, the last of the group is left with scraps.
fn leaves_scraps_to_the_last(policy: &str) -> bool {
    ["pibh-2014-03", "pibh-2014-07", "pibh-printed"].contains(&policy)
}

/// Cassandra's rule keeps to the first of the group until it looks bad.
fn is_snitch(policy: &str) -> bool {
    policy.starts_with("dynamic-snitch")
}

#[test]
fn a_replica_that_fails_at_once_is_no_sinkhole_and_clears_its_name() {
    for policy in policies::all() {
        for failure in [Failure::ErrorReply, Failure::Unsent] {
            let mut world = World::new(policy, 3, 1);
            world.run_until(secs(5.0));
            // The first of the group: the one that a policy with an order likes best.
            world.replica_does(0, Behaviour::Fails { after_ms: 0.1, failure });
            world.run_until(secs(30.0));
            let (early, late) = (world.share(0, from(5.0, 10.0)), world.share(0, from(10.0, 30.0)));
            println!(
                "sinkhole {policy} {failure:?}: {:.2} % then {:.2} %",
                early * 1e2,
                late * 1e2
            );
            assert!(early < 0.02 && late < 0.02, "{policy}: {early} then {late}");

            world.replica_does(0, WELL);
            world.run_until(secs(40.0));
            let replica = evenkeel_core::ReplicaId::new(0);
            let share = world.dispatcher.fleet().replica(replica).failure_share(secs(40.0));
            assert!(share < 0.2, "{policy}: still suspect, {share}");
            let tried = world.share(0, from(30.0, 40.0));
            assert!(tried > late, "{policy}: well again, and tried in {tried} of requests");
            if !is_snitch(policy) {
                let regained = world.share(0, from(39.0, 40.0));
                assert!(regained > 0.2, "{policy}: {regained} of a fair third");
            }
        }
    }
}

#[test]
fn errors_of_a_sinkhole_that_may_be_retried_reach_no_caller() {
    for policy in policies::all() {
        for failure in [Failure::Broken, Failure::Unavailable] {
            let mut world = World::new(policy, 3, 1);
            world.run_until(secs(5.0));
            world.replica_does(2, Behaviour::Fails { after_ms: 0.1, failure });
            world.run_until(secs(15.0));
            assert_eq!(world.wrong(from(5.0, 15.0)), 0, "{policy}: retries are allowed");
        }
    }
}

#[test]
fn a_replica_that_breaks_every_body_is_left_alone_and_clears_its_name() {
    for policy in policies::all() {
        let mut world = World::new(policy, 3, 1);
        world.run_until(secs(5.0));
        // Its heads are the fastest of all, and its bodies are all that can tell.
        world.replica_does(0, Behaviour::Breaks { mean_ms: 1.0, body_ms: 2.0 });
        world.run_until(secs(30.0));
        let (early, late) = (world.share(0, from(5.0, 10.0)), world.share(0, from(10.0, 30.0)));
        println!("broken bodies {policy}: {:.2} % then {:.2} %", early * 1e2, late * 1e2);
        assert!(early < 0.05 && late < 0.005, "{policy}: {early} then {late}");
        let counted = world.dispatcher.window().replicas[0];
        assert!(counted.broken_bodies >= 5 && counted.ejections >= 4, "{policy}: {counted:?}");
        assert_eq!(counted.failed, counted.broken_bodies, "{policy}");

        world.replica_does(0, WELL);
        world.run_until(secs(40.0));
        assert!(world.share(0, from(30.0, 40.0)) > late, "{policy}: well again, and not tried");
        if !is_snitch(policy) {
            let regained = world.share(0, from(39.0, 40.0));
            assert!(regained > 0.2, "{policy}: {regained} of a fair third");
        }
    }
}

#[test]
fn a_replica_that_hangs_is_left_alone_after_the_first_timeouts() {
    for policy in policies::all() {
        let mut world = World::new(policy, 3, 2);
        world.run_until(secs(5.0));
        world.replica_does(0, Behaviour::Hangs);
        world.run_until(secs(25.0));
        let late = world.share(0, from(10.0, 25.0));
        assert!(late < 0.005, "{policy}: {late}");
        let early = world.share(0, from(5.0, 6.0));
        // Facts of the moment (own requests in flight) tell before the first timeout does.
        let sees_in_flight = !is_blind(policy) && !is_snitch(policy) && !policy.contains("tau_ms");
        assert!(!sees_in_flight || early < 0.1, "{policy}: {early} before the first timeout");
    }
}

/// Also those that were sent to it at the very moment, and without hedges.
#[test]
fn who_waits_at_a_replica_that_hangs_is_answered_by_another_in_time() {
    for policy in policies::all() {
        let mut world = World::new(policy, 5, 2);
        world.run_until(secs(5.0));
        world.replica_does(0, Behaviour::Hangs);
        world.run_until(secs(25.0));
        // Held back by a policy of rates: 100 ms at most, for each of two copies.
        let slowest_ms = world.latencies_ms(from(4.9, 24.0)).into_iter().fold(0.0, f64::max);
        println!("hanging, {policy}: {slowest_ms:.0} ms, {:?}", world.dispatcher.window().rescues);
        assert!(slowest_ms < 700.0, "{policy}: {slowest_ms} ms");
        assert_eq!(world.wrong(from(0.0, 24.0)), 0, "{policy}");
    }
}

/// What they have in common stands still, and nobody is better.
#[test]
fn where_all_hang_together_nothing_is_asked_twice() {
    // Where only the first of the group is asked, nothing speaks against the others.
    for policy in policies::all().into_iter().filter(|policy| !is_snitch(policy)) {
        let mut world = World::new(policy, 3, 2);
        world.run_until(secs(5.0));
        (0..3).for_each(|slot| world.replica_does(slot, Behaviour::Hangs));
        world.run_until(secs(5.9));
        let rescues = world.dispatcher.window().rescues;
        assert!(rescues <= 3, "{policy}: {rescues} of about 270 requests");
    }
}

#[test]
fn a_slow_replica_nobody_knows_yet_is_neither_flooded_nor_ignored() {
    for policy in policies::all() {
        let mut world = World::new(policy, 3, 3);
        world.replica_does(2, Behaviour::Serves { mean_ms: 100.0 });
        world.run_until(secs(5.0));
        assert!(world.share(2, from(0.0, 1.0)) > 0.0, "{policy}: ignored");
        let flood = world.share(2, from(0.0, 0.5));
        assert!(flood < 0.45, "{policy}: {flood} of the first requests");
    }
}

#[test]
fn the_share_of_a_replica_that_joins_grows() {
    for policy in policies::all() {
        let mut world = World::new(policy, 3, 4);
        world.run_until(secs(5.0));
        let new = world.join();
        // The driver's own rule spares a new replica for a minute.
        let end = if policy == "driver-default" { 80.0 } else { 35.0 };
        world.run_until(secs(end));
        let share = |start, end| world.share(new, from(start, end));
        let (first, middle, last) = (share(5.0, 6.0), share(7.0, 11.0), share(end - 10.0, end));
        assert!(first < 0.125, "{policy}: {first} of a fair quarter at once");
        assert!(share(5.0, 9.0) > 0.0, "{policy}: ignored");
        if !is_snitch(policy) {
            assert!(first < middle && middle < last, "{policy}: {first} {middle} {last}");
            let fair = if leaves_scraps_to_the_last(policy) { 0.02..0.35 } else { 0.15..0.35 };
            assert!(fair.contains(&last), "{policy}: {last} of a fair quarter");
        }
    }
}

#[test]
fn a_replica_that_comes_back_starts_slowly() {
    let mut world = World::new("c3", 3, 5);
    world.run_until(secs(5.0));
    world.health(1, Health::Down);
    world.run_until(secs(10.0));
    world.health(1, Health::Up);
    world.run_until(secs(30.0));
    assert_eq!(world.share(1, from(5.0, 10.0)), 0.0);
    let (first, last) = (world.share(1, from(10.0, 11.0)), world.share(1, from(22.0, 30.0)));
    assert!(0.0 < first && first < 0.15 && last > 0.25, "{first} {last}");
}

/// Seconds after which a replica that was slow once must have been tried again, and the share of
/// read repair without which the policy promises nothing.
fn revisits_within(policy: &str) -> (f64, f64) {
    match policy {
        // Samples are forgotten every ten minutes, and until then nothing new is learnt.
        "dynamic-snitch" => (610.0, 0.0),
        "dynamic-snitch:badness=0,reset_min=0.05" => (10.0, 0.0),
        // From a peak of a second to the 10 ms of the others takes ln 100 time constants of 10 s.
        "peak-ewma" => (60.0, 0.0),
        // The papers' C3 never forgets: it counts on read repair to visit every replica.
        "c3-paper" | "c3-absim" | "c3-cassandra" => (10.0, 0.1),
        policy if policy.starts_with("c3") => (60.0, 0.0),
        _ => (2.0, 0.0),
    }
}

#[test]
fn a_replica_that_was_slow_once_is_tried_again() {
    for policy in policies::all() {
        let (bound, read_repair) = revisits_within(policy);
        // Little traffic: with more of it, what is in flight at the others leads there sooner.
        let mut world = World::new(policy, 3, 6).with_rate(30.0).with_read_repair(read_repair);
        world.run_until(secs(5.0));
        world.replica_does(0, SLOW);
        world.run_until(secs(15.0));
        world.replica_does(0, WELL);
        world.run_until(secs(17.0 + bound));
        let tried = world.share(0, from(17.0, 17.0 + bound));
        assert!(tried > 0.0, "{policy}: not once in {bound} s");
    }
}

#[test]
fn every_replica_is_used_under_steady_traffic() {
    for policy in policies::all().into_iter().filter(|policy| !is_snitch(policy)) {
        let mut world = World::new(policy, 3, 7);
        world.run_until(secs(20.0));
        for second in 1..20 {
            let span = || from(f64::from(second), f64::from(second + 1));
            for slot in 0..3 {
                assert!(world.share(slot, span()) > 0.05, "{policy}: {slot} in second {second}");
            }
        }
    }
}

#[test]
fn rate_control_holds_a_burst_and_lets_every_call_go() {
    for policy in ["c3:rate_control=on", "c3-paper", "c3-absim", "c3-cassandra"] {
        let mut world = World::new(policy, 3, 8).with_rate(3_000.0);
        world.run_until(secs(0.5));
        let held_at_most = world.dispatcher.window().held;
        world.set_rate(20.0);
        world.run_until(secs(60.0));
        assert!(held_at_most > 100, "{policy}: {held_at_most} held");
        assert_eq!(world.dispatcher.held(), 0, "{policy}");
        assert!(world.latencies_ms(from(55.0, 59.0)).iter().all(|&ms| ms < 500.0), "{policy}");
    }
}

#[test]
fn rate_control_does_not_throttle_a_trickle() {
    for policy in ["c3:rate_control=on", "c3-paper"] {
        for rate_per_s in [0.2, 2.0, 20.0] {
            let mut world = World::new(policy, 3, 9).with_rate(rate_per_s);
            world.run_until(secs(2_000.0 / rate_per_s));
            assert_eq!(world.dispatcher.window().refused, 0, "{policy}");
            let latencies_ms = world.latencies_ms(secs(0.0)..Instant::FAR);
            let late = latencies_ms.iter().filter(|&&ms| ms > 500.0).count();
            assert!(late * 100 < latencies_ms.len(), "{policy} at {rate_per_s}/s: {late} late");
        }
    }
}

#[test]
fn hedges_cut_the_tail_within_their_budget() {
    let run = |hedge: Option<HedgeConfig>| {
        let mut world = World::new("round-robin", 3, 10);
        if let Some(config) = hedge {
            world = world.with_redundancy(Hedge::new(config));
        }
        world.replica_does(2, Behaviour::Serves { mean_ms: 30.0 });
        world.run_until(secs(60.0));
        let mut latencies_ms = world.latencies_ms(from(10.0, 58.0));
        latencies_ms.sort_by(f64::total_cmp);
        let p99_ms = latencies_ms[latencies_ms.len() * 99 / 100];
        let hedges = world.sent.iter().filter(|sent| sent.kind == Kind::Hedge).count();
        (p99_ms, hedges, world.dispatcher.window().opened)
    };
    let ((alone_ms, none, _), (hedged_ms, hedges, opened)) =
        (run(None), run(Some(HedgeConfig { budget_share: 0.1, ..HedgeConfig::default() })));
    assert_eq!(none, 0);
    assert!(hedges > 300 && hedges as f64 <= 0.1 * opened as f64 + 10.0, "{hedges} of {opened}");
    assert!(hedged_ms < 0.8 * alone_ms, "{hedged_ms} with hedges, {alone_ms} without");
}

#[test]
fn copies_given_up_do_not_make_a_replica_that_stands_still_look_idle() {
    for policy in ["least-outstanding", "two-choices", "c3"] {
        let config = HedgeConfig { budget_share: 1.0, ..HedgeConfig::default() };
        let mut world = World::new(policy, 3, 12).with_redundancy(Hedge::new(config));
        world.run_until(secs(10.0));
        world.replica_does(0, Behaviour::Hangs);
        world.run_until(secs(12.0));
        // Every copy there is given up some 50 ms later, when another has answered.
        let share = world.share(0, from(10.1, 12.0));
        assert!(share < 0.1, "{policy}: {share} of the requests still go there");
        // And it is asked again now and then, so that it can clear its name.
        world.replica_does(0, WELL);
        world.run_until(secs(30.0));
        let regained = world.share(0, from(25.0, 30.0));
        assert!(regained > 0.25, "{policy}: {regained} of a fair third");
    }
}

#[test]
fn a_hedge_does_not_turn_a_slow_answer_into_an_error() {
    let mut world = World::new("round-robin", 2, 11)
        .with_rate(100.0)
        .with_redundancy(Hedge::new(HedgeConfig::default()));
    world.run_until(secs(10.0));
    // Every second answer of the second replica's hedges would be an error without distrust and
    // without waiting for the better copy.
    world.replica_does(1, Behaviour::Fails { after_ms: 0.1, failure: Failure::ErrorReply });
    world.run_until(secs(40.0));
    let hedges = |sent: &&world::Sent| sent.kind == Kind::Hedge && sent.at > secs(10.0);
    let to_sinkhole = world.sent.iter().filter(hedges).filter(|sent| sent.slot == 1).count();
    let first = |sent: &&world::Sent| sent.kind == Kind::First && sent.at > secs(10.0);
    let firsts = world.sent.iter().filter(first).filter(|sent| sent.slot == 1).count();
    assert!(world.wrong(from(10.0, 40.0)) <= firsts, "only first copies may fail a call");
    assert!(to_sinkhole < 10, "{to_sinkhole} hedges went where everything fails");
}

/// Six seconds in which all replicas refuse or hang: meanwhile nobody waits for long, and a second
/// later all is as before.
fn comes_through_an_outage(policy: &str, replicas: usize, rate_per_s: f64) {
    let refuses = Behaviour::Fails { after_ms: 0.1, failure: Failure::Unsent };
    for outage in [refuses, Behaviour::Hangs] {
        let mut world = World::new(policy, replicas, 13).with_rate(rate_per_s);
        world.run_until(secs(4.0));
        (0..replicas).for_each(|slot| world.replica_does(slot, outage));
        world.run_until(secs(10.0));
        (0..replicas).for_each(|slot| world.replica_does(slot, WELL));
        world.run_until(secs(15.0));
        let told = format!("{policy}: {replicas} replicas, {rate_per_s}/s, {outage:?}");
        let slowest = |span| world.latencies_ms(span).into_iter().fold(0.0, f64::max);
        // An attempt, its retry, and what a policy may hold each of them back.
        let (meanwhile_ms, after_ms) = (slowest(from(4.0, 10.0)), slowest(from(11.0, 14.0)));
        assert!(meanwhile_ms <= 2_200.0, "{told}: waited {meanwhile_ms:.0} ms");
        assert_eq!(world.wrong(from(11.0, 15.0)), 0, "{told}");
        assert!(after_ms < 500.0 && world.dispatcher.held() == 0, "{told}: {after_ms:.0} ms");
    }
}

#[test]
fn every_policy_comes_through_an_outage() {
    for policy in policies::all() {
        comes_through_an_outage(policy, 1, 5.0);
        comes_through_an_outage(policy, 3, 100.0);
    }
    for policy in ["c3:rate_control=on", "c3-paper", "c3-absim", "c3-cassandra"] {
        comes_through_an_outage(policy, 1, 200.0);
        comes_through_an_outage(policy, 2, 400.0);
    }
    comes_through_an_outage("c3-absim", 1_000, 100.0);
}

/// Nearly every attempt there is overtaken and cancelled: those that succeed are the quick ones.
#[test]
fn a_replica_that_loses_to_hedges_is_seen_to_be_slow_and_gets_little() {
    for policy in ["c3", "peak-ewma", "least-outstanding"] {
        let config = HedgeConfig { budget_share: 1.0, ..HedgeConfig::default() };
        let mut world = World::new(policy, 3, 14).with_redundancy(Hedge::new(config));
        world.run_until(secs(10.0));
        world.replica_does(0, Behaviour::Serves { mean_ms: 90.0 });
        world.run_until(secs(20.0));
        let _ = world.dispatcher.window();
        world.run_until(secs(80.0));
        let counted = world.dispatcher.window().replicas;
        let mean_us = |slot: usize| counted[slot].mean_latency_us().expect("attempts ended");
        assert!(mean_us(0) > 3.0 * mean_us(1), "{policy}: {counted:?}");
        let share = world.share(0, from(20.0, 80.0));
        assert!(share < 0.15, "{policy}: {share} of a fair third");
    }
}
