//! Clients that are paused, with duplicates that answer when they are told to.

use std::time::Duration;

use evenkeel_core::Instant;
use evenkeel_ordered::ConnectionKind::Ordered;

use super::super::types::ClientId;
use super::super::world::World;
use evenkeel_duplicates_config::access::Secret;
use evenkeel_stores::resp::encode;
use evenkeel_stores::resp::replication::Group;

const OK: &str = "+OK\r\n";
const QUEUED: &str = "+QUEUED\r\n";

/// Says the same again, as a socket does whose client is no longer held.
fn again(world: &mut World, id: ClientId, words: &[&str]) {
    assert!(world.would_take(id), "{words:?} is held");
    assert!(world.tell(id, words), "{words:?} is not taken");
}

fn is_paused(world: &World) -> bool {
    world.engine.borrow().pause.keeps_writes()
}

#[test]
fn a_write_that_is_kept_back_has_no_place_and_is_done_once_when_the_pause_is_over() {
    for ends_by_time in [true, false] {
        let mut world = World::start(2, |_| {});
        let [operator, writer, reader] = [(); 3].map(|()| world.client());
        world.tell(operator, &["CLIENT", "PAUSE", "1000", "WRITE"]);
        assert_eq!(world.heard(operator), OK);
        assert!(!world.tell(writer, &["SET", "k", "1"]), "it is kept back");
        assert!(!world.would_take(writer));
        assert!(world.tell(reader, &["GET", "k"]), "a read is not");
        world.serve_all();
        assert_eq!(world.heard(reader), "$-1\r\n");
        world.pass(Duration::from_millis(999));
        world.engine.borrow().end_pause_if_over();
        assert!(!world.would_take(writer) && world.heard(writer).is_empty());
        if ends_by_time {
            world.pass(Duration::from_millis(1));
            world.engine.borrow().end_pause_if_over();
        } else {
            world.tell(operator, &["CLIENT", "UNPAUSE"]);
            assert_eq!(world.heard(operator), OK);
        }
        again(&mut world, writer, &["SET", "k", "1"]);
        world.serve_all();
        assert_eq!(world.heard(writer), OK);
        assert_eq!(world.engine.borrow().history.last().sequence.0, 1);
        assert!(world.holds.iter().all(|holds| holds[&b"k"[..]] == 1));
    }
}

#[test]
fn pauses_add_up_to_the_most_and_the_last() {
    let mut world = World::start(1, |_| {});
    let [operator, other] = [(); 2].map(|()| world.client());
    world.tell(operator, &["CLIENT", "PAUSE", "2000", "WRITE"]);
    world.tell(operator, &["CLIENT", "PAUSE", "1000", "ALL"]);
    assert_eq!(world.heard(operator), format!("{OK}{OK}"));
    world.pass(Duration::from_millis(1_999));
    world.engine.borrow().end_pause_if_over();
    assert!(!world.tell(other, &["PING"]), "everything is kept back until the last of the times");
    world.pass(Duration::from_millis(1));
    world.engine.borrow().end_pause_if_over();
    again(&mut world, other, &["PING"]);
}

#[test]
fn who_comes_while_everything_is_kept_back_can_say_who_it_is_and_end_the_pause() {
    let secret = Secret::Text("secret".to_owned());
    let mut world = World::start(1, |config| config.access.password = Some(secret));
    let [operator, other, stranger] = [(); 3].map(|()| world.client());
    world.tell(operator, &["AUTH", "secret"]);
    world.tell(operator, &["CLIENT", "PAUSE", "1000"]);
    world.tell(stranger, &["PING"]);
    assert!(world.heard(stranger).starts_with("-NOAUTH"), "it is told at once");
    assert!(world.tell(other, &["AUTH", "secret"]));
    assert!(!world.tell(other, &["PING"]));
    let third = world.client();
    world.tell(third, &["HELLO", "3", "AUTH", "default", "secret"]);
    assert!(world.tell(third, &["CLIENT", "UNPAUSE"]));
    again(&mut world, other, &["PING"]);
}

#[test]
fn who_leaves_while_it_is_kept_back_has_asked_for_nothing() {
    let mut world = World::start(1, |_| {});
    let [operator, writer] = [(); 2].map(|()| world.client());
    world.tell(operator, &["CLIENT", "PAUSE", "1000", "WRITE"]);
    assert!(!world.tell(writer, &["SET", "k", "1"]));
    assert_eq!(world.engine.borrow().pause.held(), 1);
    world.engine.borrow().dismiss(writer);
    assert_eq!(world.engine.borrow().pause.held(), 0, "nothing of it is kept");
    world.tell(operator, &["CLIENT", "UNPAUSE"]);
    assert_eq!(world.engine.borrow().history.last().sequence.0, 0);
}

#[test]
fn a_process_that_ends_refuses_what_it_keeps_back_and_does_nothing_of_it() {
    let mut world = World::start(1, |_| {});
    let [operator, held, late] = [(); 3].map(|()| world.client());
    world.tell(operator, &["CLIENT", "PAUSE", "1000", "WRITE"]);
    assert!(!world.tell(held, &["SET", "k", "1"]));
    for id in [held, late] {
        world.engine.borrow().leave_pause(id);
        again(&mut world, id, &["SET", "k", "1"]);
        let heard = world.heard(id);
        assert!(heard.starts_with("-UNAVAILABLE"), "{heard}");
    }
    assert_eq!(world.engine.borrow().history.last().sequence.0, 0);
}

#[test]
fn a_leader_that_is_deposed_pauses_nobody_and_writes_nothing() {
    let mut world = World::start(1, |_| {});
    world.engine.borrow().strong.lease_until = Some(Instant::from_millis(500));
    let [operator, writer] = [(); 2].map(|()| world.client());
    world.tell(operator, &["CLIENT", "PAUSE", "1000", "WRITE"]);
    assert!(!world.tell(writer, &["SET", "k", "1"]));
    world.pass(Duration::from_millis(500));
    world.engine.borrow().end_pause_if_over();
    assert!(!is_paused(&world));
    again(&mut world, writer, &["SET", "k", "1"]);
    let heard = world.heard(writer);
    assert!(heard.starts_with("-UNAVAILABLE"), "{heard}");
}

/// A lease until 500 ms, for whose renewal clients wait for a second; it is 500 ms by now.
fn late(world: &mut World) {
    let mut inner = world.engine.borrow();
    inner.strong.lease_until = Some(Instant::from_millis(500));
    inner.strong.lease_patience = Some(Duration::from_secs(1));
    drop(inner);
    world.pass(Duration::from_millis(500));
}

#[test]
fn what_only_a_leader_may_do_waits_for_a_lease_that_is_late() {
    let mut world = World::start(1, |_| {});
    let [waiting, writer, reader, strong, cluster] = [(); 5].map(|()| world.client());
    world.tell(waiting, &["BLPOP", "l", "0"]);
    for reply in [OK, QUEUED, QUEUED, "*2\r\n_\r\n+OK\r\n"] {
        world.say(0, Ordered, reply);
    }
    world.tell(strong, &["EK.SESSION", "strong"]);
    world.engine.borrow().client(cluster).unwrap().is_of_cluster = true;
    late(&mut world);
    assert!(!world.tell(writer, &["SET", "k", "1"]));
    assert!(!world.tell(strong, &["GET", "k"]), "what it reads may be over");
    assert!(world.tell(reader, &["GET", "k"]));
    assert!(world.tell(cluster, &["SET", "k", "1"]) && world.heard(cluster).starts_with('-'));
    world.engine.borrow().look_after_waiters();
    world.pass(Duration::from_millis(999));
    world.engine.borrow().end_pause_if_over();
    assert!(!world.would_take(writer) && !world.would_take(strong));
    assert_eq!(world.heard(waiting), "", "it goes on waiting");
    world.engine.borrow().strong.lease_until = Some(Instant::from_millis(60_000));
    world.engine.borrow().end_pause_if_over();
    assert!(!is_paused(&world));
    again(&mut world, writer, &["SET", "k", "1"]);
    again(&mut world, strong, &["GET", "k"]);
    assert_eq!(world.engine.borrow().history.last().sequence.0, 2, "the pop, and the write");
}

/// Whoever is first to see that the lease is there again is not the one that waits for it.
#[test]
fn a_lease_that_another_client_finds_renewed_lets_those_go_on_who_wait() {
    let mut world = World::start(1, |_| {});
    let [held, next] = [(); 2].map(|()| world.client());
    late(&mut world);
    assert!(!world.tell(held, &["SET", "k", "1"]));
    world.engine.borrow().strong.lease_until = Some(Instant::from_millis(60_000));
    assert!(world.tell(next, &["SET", "k", "2"]));
    world.engine.borrow().end_pause_if_over();
    again(&mut world, held, &["SET", "k", "1"]);
}

#[test]
fn reads_of_a_transaction_wait_for_a_late_lease_too() {
    let mut world = World::start(1, |_| {});
    let client = world.client();
    for words in [&["MULTI"][..], &["GET", "k"]] {
        assert!(world.tell(client, words));
    }
    late(&mut world);
    assert!(!world.tell(client, &["EXEC"]));
}

#[test]
fn who_waits_for_a_lease_is_told_when_it_does_not_come() {
    let mut world = World::start(1, |_| {});
    let writer = world.client();
    late(&mut world);
    assert!(!world.tell(writer, &["SET", "k", "1"]));
    let look = world.engine.borrow().pause.deadline();
    assert_eq!(look, Some(Instant::from_millis(550)), "it is looked at soon");
    world.pass(Duration::from_secs(1));
    world.engine.borrow().end_pause_if_over();
    for _ in 0..2 {
        again(&mut world, writer, &["SET", "k", "1"]); // and nobody waits again
        let heard = world.heard(writer);
        assert!(heard.starts_with("-UNAVAILABLE"), "{heard}");
    }
    assert_eq!(world.engine.borrow().pause.deadline(), None);
    assert_eq!(world.engine.borrow().history.last().sequence.0, 0);
}

/// As when a Redis dies: libraries connect anew and try again.
#[test]
fn whose_leader_ends_while_its_lease_is_late_is_cut_off_without_an_answer() {
    let mut world = World::start(1, |_| {});
    let [held, late_client] = [(); 2].map(|()| world.client());
    late(&mut world);
    assert!(!world.tell(held, &["SET", "k", "1"]));
    for id in [held, late_client] {
        world.engine.borrow().leave_pause(id);
    }
    assert!(world.engine.borrow().client(held).unwrap().is_ending);
    assert_eq!(world.heard(held), "");
    again(&mut world, late_client, &["SET", "k", "1"]);
    assert!(world.heard(late_client).starts_with("-UNAVAILABLE"), "it asked a process that ends");
}

/// Its first try finds nothing, although the key is filled by now: it is to be tried again.
#[test]
fn a_pop_that_is_to_be_repeated_waits_for_the_end_of_the_pause() {
    let mut world = World::start(1, |_| {});
    let [operator, popping, pushing] = [(); 3].map(|()| world.client());
    world.tell(popping, &["BLPOP", "k", "0"]);
    world.tell(pushing, &["RPUSH", "k", "x"]);
    world.tell(operator, &["CLIENT", "PAUSE", "1000", "WRITE"]);
    for (command, reply) in [("BLPOP", "_\r\n"), ("RPUSH", ":1\r\n")] {
        assert_eq!(world.say(0, Ordered, OK), ["MULTI"]);
        assert_eq!(world.say(0, Ordered, QUEUED)[0], command);
        world.say(0, Ordered, QUEUED);
        world.say(0, Ordered, &format!("*2\r\n{reply}+OK\r\n"));
    }
    world.engine.borrow().try_again();
    assert!(world.asked(0, Ordered).is_empty(), "it is not tried now");
    world.tell(operator, &["CLIENT", "UNPAUSE"]);
    world.engine.borrow().try_again();
    assert!(world.asked(0, Ordered).contains(&"BLPOP k 0".to_owned()));
}

#[test]
fn a_transaction_that_pauses_is_done_whole_and_one_that_writes_waits_at_exec() {
    let mut world = World::start(1, |_| {});
    let [operator, reading, writing] = [(); 3].map(|()| world.client());
    for words in [&["MULTI"][..], &["SET", "a", "1"]] {
        world.tell(writing, words);
    }
    for words in
        [&["MULTI"][..], &["CLIENT", "PAUSE", "1000", "WRITE"], &["SET", "b", "1"], &["EXEC"]]
    {
        world.tell(operator, words);
    }
    assert!(is_paused(&world));
    assert_eq!(world.engine.borrow().history.last().sequence.0, 1, "its own write has its place");
    for words in [&["MULTI"][..], &["PING"]] {
        world.tell(reading, words);
    }
    assert!(world.tell(reading, &["EXEC"]), "it writes nothing");
    assert!(!world.tell(writing, &["EXEC"]));
    world.engine.borrow().end_pause();
    again(&mut world, writing, &["EXEC"]);
    assert_eq!(world.engine.borrow().history.last().sequence.0, 2);
}

/// What had begun before the pause fills a key: it is done, and who waits for that key is not.
#[test]
fn who_waits_is_not_served_while_writes_are_kept_back() {
    let mut world = World::start(2, |_| {});
    let [waiting, script, operator] = [(); 3].map(|()| world.client());
    world.tell(waiting, &["BLPOP", "l", "0"]);
    for server in 0..2 {
        for reply in [OK, QUEUED, QUEUED, "*2\r\n_\r\n+OK\r\n"] {
            world.say(server, Ordered, reply);
        }
    }
    assert!(world.tell(script, &["EVAL", "script", "1", "l"]));
    world.tell(operator, &["CLIENT", "PAUSE", "1000", "WRITE"]);
    let (executor, connection) = world.engine.borrow().take_wanted_streams()[0];
    world.engine.borrow().stream_opened(executor, connection);
    // The first is of its mark, which comes before the first attempt on a stream.
    for reply in [OK, OK, QUEUED, QUEUED, "*2\r\n:1\r\n+OK\r\n"] {
        world.say(executor, Ordered, reply);
    }
    let mut commands = Vec::new();
    encode::command(&mut commands, &[b"RPUSH", b"l", b"x"]);
    let mark = b"ahead 1 1".to_vec();
    let group = Group { mark, commands, count: 1, ..Group::default() };
    world.engine.borrow().effects_came(executor, connection, group);
    let last = |world: &World| world.engine.borrow().history.last().sequence.0;
    world.engine.borrow().flush();
    assert_eq!(last(&world), 2, "the try of the pop, and the script");
    world.tell(operator, &["CLIENT", "UNPAUSE"]);
    world.engine.borrow().flush();
    assert_eq!(last(&world), 3, "now it is served");
}

#[test]
fn a_transaction_that_publishes_waits_at_exec() {
    let mut world = World::start(1, |_| {});
    let [operator, client] = [(); 2].map(|()| world.client());
    world.tell(operator, &["CLIENT", "PAUSE", "1000", "WRITE"]);
    for words in [&["MULTI"][..], &["PUBLISH", "c", "x"]] {
        assert!(world.tell(client, words));
    }
    assert!(!world.tell(client, &["EXEC"]));
}
