//! What is asked for, of whom, and what comes of the answers.

use evenkeel_ordered::ConnectionKind::Ordered;
use evenkeel_ordered::{Deadlines, Judgement};

use super::super::super::world::World;
use super::{DEADLINE, OK, answer_group, at, client, judged, sent, set, world};

/// A front that has just begun: nothing is known of any key.
fn cold(servers: usize) -> World {
    let world = world(servers, servers);
    world.engine.borrow().expiry.deadlines = Deadlines::default();
    world
}

/// What is asked of each, if anything.
fn questions(world: &mut World) -> Vec<(usize, String)> {
    let mut all = Vec::new();
    for server in 0..world.sent.len() {
        all.extend(world.asked(server, Ordered).into_iter().map(|it| (server, it)));
    }
    all
}

#[test]
fn who_has_lost_a_key_is_not_believed_alone() {
    let mut world = cold(2);
    let id = client(&mut world, "0");
    assert!(!world.tell(id, &["INCR", "k"]));
    let first = questions(&mut world);
    assert_eq!(first.len(), 1);
    let asked = first[0].0;
    world.say(asked, Ordered, ":-2\r\n");
    assert!(!world.would_take(id), "the other one is asked too");
    assert_eq!(questions(&mut world), [(1 - asked, "PEXPIRETIME k".to_owned())]);
    world.say(1 - asked, Ordered, ":-1\r\n");
    assert!(world.tell(id, &["INCR", "k"]));
    assert_eq!(sent(&mut world, 0), ["INCR k"], "what the others have is not removed");
}

#[test]
fn a_key_that_nobody_has_is_not_removed() {
    let mut world = cold(2);
    let id = client(&mut world, "0");
    assert!(!world.tell(id, &["INCR", "k"]));
    for _ in 0..2 {
        let asked = questions(&mut world)[0].0;
        world.say(asked, Ordered, ":-2\r\n");
    }
    assert!(world.tell(id, &["INCR", "k"]));
    assert_eq!(sent(&mut world, 0), ["INCR k"]);
    assert_eq!(world.engine.borrow().counts.expired, 0);
}

#[test]
fn a_key_that_has_expired_at_one_only_is_removed_from_all() {
    let mut world = cold(2);
    let id = client(&mut world, "0");
    at(10_000);
    assert!(!world.tell(id, &["INCR", "k"]));
    let asked = questions(&mut world)[0].0;
    world.say(asked, Ordered, ":-2\r\n");
    world.say(1 - asked, Ordered, &format!(":{DEADLINE}\r\n"));
    assert!(world.tell(id, &["INCR", "k"]));
    for server in [0, 1] {
        assert_eq!(sent(&mut world, server), ["DEL k", "INCR k"]);
    }
}

/// The answer to the first question is not one to all of them, nor to what comes later.
#[test]
fn a_command_waits_for_all_of_its_keys_and_no_other_command_for_them() {
    let mut world = cold(1);
    let id = client(&mut world, "0");
    assert!(!world.tell(id, &["MSETNX", "a", "1", "b", "1"]));
    assert_eq!(questions(&mut world).len(), 2);
    world.say(0, Ordered, ":-1\r\n");
    assert!(!world.would_take(id));
    world.say(0, Ordered, ":-1\r\n");
    assert!(world.tell(id, &["MSETNX", "a", "1", "b", "1"]));
    assert_eq!(sent(&mut world, 0), ["MSETNX a 1 b 1"]);
}

#[test]
fn a_key_that_is_named_often_is_asked_for_once() {
    let mut world = cold(1);
    let id = client(&mut world, "0");
    assert!(world.tell(id, &["MULTI"]));
    for _ in 0..1_000 {
        assert!(world.tell(id, &["INCR", "k"]));
    }
    assert!(!world.tell(id, &["EXEC"]));
    assert_eq!(questions(&mut world), [(0, "PEXPIRETIME k".to_owned())]);
}

#[test]
fn many_keys_are_asked_for_some_at_a_time() {
    let mut world = cold(1);
    let id = client(&mut world, "0");
    assert!(world.tell(id, &["MULTI"]));
    for n in 0..600 {
        assert!(world.tell(id, &["INCR", &format!("k{n}")]));
    }
    let mut rounds = Vec::new();
    while !world.tell(id, &["EXEC"]) {
        let asked = questions(&mut world).len();
        rounds.push(asked);
        for _ in 0..asked {
            world.say(0, Ordered, ":-1\r\n");
        }
        assert!(rounds.len() < 9, "{rounds:?}");
    }
    assert_eq!(rounds, [256, 256, 88]);
}

/// Its key was written by another before it is done again.
#[test]
fn what_was_too_late_does_not_remove_what_others_wrote_since() {
    let mut world = world(1, 1);
    let (late, other) = (client(&mut world, "0"), client(&mut world, "0"));
    set(&mut world, late, "k");
    world.say(0, Ordered, OK);
    world.heard(late);
    at(9_800);
    assert!(world.tell(late, &["INCR", "k"]));
    at(10_020);
    assert!(world.tell(other, &["SET", "k", "7"]));
    answer_group(&mut world, 0, "*3\r\n:1\r\n:1\r\n+OK\r\n");
    world.say(0, Ordered, OK);
    assert_eq!(world.heard(other), OK);
    assert_eq!(sent(&mut world, 0), ["INCR k"], "no removal");
}

/// A deadline that the log did not take is none.
#[test]
fn what_was_not_written_sets_no_deadline() {
    let mut world = world(1, 1);
    let id = client(&mut world, "0");
    set(&mut world, id, "k");
    assert_eq!(judged(&world, 0, "k"), Judgement::Leave);
    world.engine.borrow().forget_deadlines();
    at(10_000);
    assert_eq!(judged(&world, 0, "k"), Judgement::Ask);
}

/// What a client waits for is popped behind what has expired.
#[test]
fn the_target_of_a_pop_that_waited_is_removed_first() {
    let mut world = world(1, 1);
    let (waiting, other) = (client(&mut world, "0"), client(&mut world, "0"));
    set(&mut world, other, "to");
    world.say(0, Ordered, OK);
    assert!(world.tell(waiting, &["BLMOVE", "from", "to", "LEFT", "LEFT", "0"]));
    answer_group(&mut world, 0, "*2\r\n_\r\n+OK\r\n");
    sent(&mut world, 0);
    at(10_000);
    assert!(world.tell(other, &["LPUSH", "from", "x"]));
    assert_eq!(sent(&mut world, 0), ["LPUSH from x", "DEL to", "BLMOVE from to LEFT LEFT 0"]);
}

#[test]
fn what_a_sort_stores_and_what_a_scan_reads_is_looked_at() {
    let sort: &[&str] = &["SORT", "k", "BY", "w_*", "STORE", "to"];
    for words in [sort, &["HSCAN", "k", "0"]] {
        let mut world = world(1, 1);
        let id = client(&mut world, "0");
        set(&mut world, id, "k");
        world.say(0, Ordered, OK);
        sent(&mut world, 0);
        at(10_000);
        world.tell(id, words);
        assert_eq!(sent(&mut world, 0).first().map(String::as_str), Some("DEL k"), "{words:?}");
    }
}
