//! Duplicates that hold something else than the others: they are found, not read from, and filled
//! again.

use evenkeel_duplicates::DuplicatesConfig;
use evenkeel_ordered::Acknowledge;
use evenkeel_testkit::redis::{Client, Reply, encoded};
use evenkeel_testkit::wait::block_until;

use super::world::World;
use super::{bulk, ok};

const KEYS: usize = 300;

/// So many duplicates with keys.
fn world(name: &str, duplicates: usize, change: fn(&mut DuplicatesConfig)) -> Option<World> {
    let world = World::start(name, duplicates, change)?;
    let mut client = world.client();
    for n in 0..KEYS {
        assert_eq!(client.ask(&["SET", &format!("k{n}"), "right"]), ok());
    }
    world.settle();
    Some(world)
}

/// Times duplicates were found to differ.
fn diverged(world: &World) -> Vec<u64> {
    let state = world.state();
    let first = state.partitions.first(); // it may not have told anything yet
    let duplicates = first.into_iter().flat_map(|it| &it.duplicates);
    duplicates.map(|it| it.dropped.diverged).collect()
}

/// Waits until that was found at the last of three, and nowhere else, and all hold the same.
fn filled_again(world: &World, meanwhile: impl FnMut()) {
    let mut meanwhile = meanwhile;
    block_until("it is found", || {
        meanwhile();
        diverged(world) == [0, 0, 1]
    });
    block_until("it is live again", || {
        meanwhile();
        world.live() == 3
    });
    world.settle();
    assert_eq!(world.states().len(), 1, "duplicates differ");
    assert_eq!(diverged(world), [0, 0, 1], "once, and nobody else");
    block_until("it is told", || {
        let state = world.state();
        state.partitions[0].duplicates.iter().all(|it| it.quarantine.is_none())
            && state.disagreements > 0
    });
}

fn no_check(config: &mut DuplicatesConfig) {
    config.check_rate = 0;
}

/// Found by the epoch that is missing: by the pace of checks, whoever is read from.
#[test]
fn what_was_emptied_is_filled_again_and_no_write_is_lost() {
    let one_copy = |config: &mut DuplicatesConfig| config.read_copies = 1;
    let Some(world) = world("emptied", 3, one_copy) else { return };
    let (mut client, mut written) = (world.client(), 0);
    world.redises[2].client().ask(&["FLUSHALL"]);
    filled_again(&world, || {
        written += 1;
        assert_eq!(client.ask(&["INCR", "n"]), Reply::Integer(written));
    });
    for n in 0..KEYS {
        assert_eq!(client.ask(&["GET", &format!("k{n}")]), bulk("right"));
    }
    let mut third = world.redises[2].client();
    assert_eq!(third.ask(&["GET", "n"]), bulk(&written.to_string()));
}

/// One duplicate answers alone, and is asked right behind the emptying: it says so before its next
/// answer.
#[test]
fn who_was_emptied_never_answers_that_there_is_no_key() {
    let alone = |config: &mut DuplicatesConfig| (config.check_rate, config.read_copies) = (0, 1);
    let Some(world) = world("emptied-read", 3, alone) else { return };
    let mut client = world.client();
    for round in 1..=9 {
        world.redises[round % 3].client().ask(&["FLUSHALL"]);
        let count = Reply::Integer(round as i64);
        assert_eq!(client.ask(&["EVAL", "return redis.call('INCR', KEYS[1])", "1", "n"]), count);
        for n in 0..KEYS {
            assert_eq!(client.ask(&["GET", &format!("k{n}")]), bulk("right"), "round {round}");
        }
        block_until("it is found", || diverged(&world).iter().sum::<u64>() == round as u64);
        block_until("it is live again", || world.live() == 3);
    }
    world.settle();
    assert_eq!(world.states().len(), 1, "duplicates differ");
}

/// A duplicate may not tell any more that somebody empties it.
fn keep_mute(world: &World, server: usize) {
    let (live, mut one) = (world.live(), world.redises[server].client());
    assert_eq!(one.ask(&["ACL", "SETUSER", "default", "-client|tracking"]), ok());
    one.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    block_until("it is away", || world.live() < live);
    block_until("it is live again", || world.live() == live);
}

/// One that may not tell is found by its epoch all the same.
#[test]
fn who_may_not_tell_that_it_was_emptied_is_found_later() {
    let Some(world) = world("emptied-mute", 3, |_| {}) else { return };
    keep_mute(&world, 2);
    world.redises[2].client().ask(&["FLUSHALL"]);
    let mut client = world.client();
    filled_again(&world, || drop(client.ask(&["SET", "k7", "right"])));
}

/// Found by replies to a read that differ: one round later it is not read from any more.
#[test]
fn a_wrong_value_is_found_where_several_are_read() {
    let Some(world) = world("wrong-read", 3, no_check) else { return };
    let mut client = world.client();
    assert_eq!(world.redises[2].client().ask(&["SET", "k7", "wrong"]), ok());
    filled_again(&world, || drop(client.ask(&["GET", "k7"])));
    (0..50).for_each(|_| assert_eq!(client.ask(&["GET", "k7"]), bulk("right")));
}

/// Found although nobody asks for it.
#[test]
fn a_wrong_value_is_found_by_comparing_all_keys() {
    let check = |config: &mut DuplicatesConfig| {
        (config.read_copies, config.check_rate) = (1, 1_000);
    };
    for command in [&["SET", "k7", "wrong"][..], &["DEL", "k7"], &["SET", "more", "1"]] {
        let Some(world) = world("wrong-alone", 3, check) else { return };
        let mut client = world.client();
        world.redises[2].client().ask(command);
        filled_again(&world, || drop(client.ask(&["GET", "k1"])));
    }
}

/// The client gets what a majority replied.
#[test]
fn a_write_that_one_answers_otherwise_is_answered_as_by_the_others() {
    let Some(world) = world("wrong-write", 3, no_check) else { return };
    let mut client = world.client();
    assert_eq!(client.ask(&["INCR", "n"]), Reply::Integer(1));
    world.settle();
    assert_eq!(world.redises[2].client().ask(&["SET", "n", "1000"]), ok());
    let mut n = 1;
    filled_again(&world, || {
        n += 1;
        assert_eq!(client.ask(&["INCR", "n"]), Reply::Integer(n));
    });
}

/// A linearizable read never tells what only one says, whichever that is and whenever it changes.
#[test]
fn a_strong_read_is_what_a_majority_says() {
    let Some(world) = world("wrong-strong", 3, no_check) else { return };
    let (mut client, mut third) = (world.client(), world.redises[2].client());
    assert_eq!(client.ask(&["EK.SESSION", "strong"]), ok());
    for _ in 0..10 {
        assert_eq!(third.ask(&["SET", "k7", "wrong"]), ok());
        (0..50).for_each(|_| assert_eq!(client.ask(&["GET", "k7"]), bulk("right")));
        block_until("it is live again", || world.live() == 3);
    }
    assert!(diverged(&world)[2] > 0);
}

/// Nobody can tell who is right of two; writing the key makes them equal.
#[test]
fn of_two_that_differ_it_is_told_and_none_is_dropped() {
    let Some(world) = world("two", 2, |config| config.check_rate = 1_000) else { return };
    let mut client = world.client();
    assert_eq!(world.redises[1].client().ask(&["SET", "k7", "other"]), ok());
    block_until("it is told", || {
        client.ask(&["GET", "k1"]);
        world.state().undecided_keys == 1
    });
    assert_eq!(diverged(&world), [0, 0]);
    assert_eq!(world.live(), 2);
    assert_eq!(client.ask(&["SET", "k7", "new"]), ok());
    block_until("it is told that they are equal", || {
        client.ask(&["GET", "k1"]);
        world.state().undecided_keys == 0
    });
    // Who was emptied is known also of two.
    world.redises[1].client().ask(&["FLUSHALL"]);
    block_until("it is found", || {
        client.ask(&["GET", "k1"]);
        diverged(&world) == [0, 1]
    });
    block_until("it is live again", || world.live() == 2);
    world.settle();
    assert_eq!(world.states().len(), 1, "duplicates differ");
}

/// The log has everything.
#[test]
fn all_that_were_emptied_are_restored_from_the_log() {
    let one = |config: &mut DuplicatesConfig| config.members.acknowledge = Acknowledge::One;
    for count in [1, 2] {
        let Some(world) = world(&format!("all-{count}"), count, one) else { return };
        let mut client = world.client();
        for redis in &world.redises {
            redis.client().ask(&["FLUSHALL"]);
        }
        block_until("all is there again", || client.ask(&["GET", "k7"]) == bulk("right"));
        block_until("they are live again", || world.live() == count);
        world.settle();
        assert_eq!(world.states().len(), 1, "duplicates differ");
        let mut direct = world.redises[0].client();
        assert_eq!(direct.ask(&["GET", &format!("k{}", KEYS - 1)]), bulk("right"));
    }
}

/// It was emptied, got a watermark by the next write, and nobody who knows of that lives on.
#[test]
fn a_front_that_starts_later_does_not_believe_who_was_emptied() {
    let no_check = |config: &mut DuplicatesConfig| {
        (config.check_rate, config.read_copies) = (0, 1);
    };
    let Some(mut world) = world("later", 3, no_check) else { return };
    world.redises[2].client().ask(&["FLUSHALL"]);
    assert_eq!(world.client().ask(&["SET", "k0", "right"]), ok());
    world.settle();
    world.restart();
    world.settle();
    assert_eq!(world.states().len(), 1, "duplicates differ");
}

/// Passes over keys of all kinds: what is equal is not taken for different, whatever its bytes.
#[test]
fn what_is_equal_is_left_alone() {
    let fast = |config: &mut DuplicatesConfig| config.check_rate = 1_000;
    let Some(world) = world("equal", 3, fast) else { return };
    let mut client = world.client();
    let mut fill = |members: usize| {
        let ask = |client: &mut Client, words: &[&str]| {
            let reply = client.ask(words);
            assert!(!matches!(reply, Reply::Error(_)), "{words:?}: {reply:?}");
        };
        for n in 0..members {
            let member = format!("member{n}");
            ask(&mut client, &["SADD", &format!("set{members}"), &member]);
            ask(&mut client, &["HSET", &format!("hash{members}"), &member, "1"]);
            ask(&mut client, &["ZADD", &format!("sorted{members}"), "1.5", &member]);
            ask(&mut client, &["RPUSH", &format!("list{members}"), &member]);
            ask(&mut client, &["XADD", &format!("stream{members}"), "*", "f", &member]);
            ask(&mut client, &["PFADD", &format!("estimate{members}"), &member]);
            ask(&mut client, &["PFCOUNT", &format!("estimate{members}")]);
            ask(&mut client, &["SMEMBERS", &format!("set{members}")]);
        }
    };
    fill(10);
    fill(700);
    // One that was filled, so that its values have other encodings and other orders.
    world.redises[2].client().ask(&["FLUSHALL"]);
    block_until("it is found", || {
        client.ask(&["GET", "k1"]);
        diverged(&world) == [0, 0, 1]
    });
    block_until("it is live again", || world.live() == 3);
    client.ask(&["SET", "soon", "1", "PX", "3000"]);
    world.redises[1].client().ask(&["DEL", "soon"]);
    let (before, long) = (world.state_now(), "x".repeat(300_000));
    client.ask(&["SET", "long", &long]);
    block_until("all keys are compared some times", || {
        client.ask(&["GET", "k1"]);
        world.state().compared_keys > before.compared_keys + 5 * KEYS as u64
    });
    assert_eq!(diverged(&world), [0, 0, 1], "nobody was taken for odd");
    assert_eq!(world.state_now().disagreements, before.disagreements);
}

/// What comes from one that is emptied meanwhile is no copy: the other one must not be live with
/// it. Where it is told at once, both are restored from the log; otherwise the copy finds it.
#[test]
fn a_copy_of_what_is_emptied_meanwhile_is_none() {
    for tells in [true, false] {
        a_copy_of_what_is_emptied(tells);
    }
}

fn a_copy_of_what_is_emptied(tells: bool) {
    const MANY: usize = 40_000;
    let no_check = |config: &mut DuplicatesConfig| {
        config.check_rate = 0;
        config.members.acknowledge = Acknowledge::One;
    };
    let Some(mut world) = world("source", 2, no_check) else { return };
    let (mut client, value) = (world.client(), "x".repeat(200));
    for first in (0..MANY).step_by(1_000) {
        let keys = first..first + 1_000;
        let text: Vec<u8> =
            keys.clone().flat_map(|n| encoded(&["SET", &format!("m{n}"), &value])).collect();
        client.send(&text);
        keys.for_each(|_| assert_eq!(client.read(), ok()));
    }
    world.settle();
    if !tells {
        keep_mute(&world, 0);
    }
    world.redises[1].kill();
    world.redises[1].wipe();
    block_until("it is away", || world.live() == 1);
    world.redises[1].start();
    world.redises[1].client().ask(&["SET", "evenkeel:watermark", "filling"]);
    let second = || world.state().partitions[0].duplicates[1].clone();
    block_until("it is being filled", || second().filled_keys.is_some_and(|keys| keys > 0));
    world.redises[0].client().ask(&["FLUSHALL"]);
    if tells {
        block_until("both are restored", || world.live() == 2);
        world.settle();
        assert_eq!(world.states().len(), 1, "duplicates differ");
        assert_eq!(client.ask(&["DBSIZE"]), Reply::Integer((KEYS + MANY) as i64));
        return;
    }
    block_until("that is noticed", || {
        assert_eq!(world.live(), 1, "it has a part, and serves it");
        second().error.is_some_and(|why| why.contains("somebody emptied it"))
    });
}
