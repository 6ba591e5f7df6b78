//! Keys at their deadlines, at a time of day of our own, with duplicates that answer when they are
//! told to.

use std::cell::Cell;

use evenkeel_ordered::ConnectionKind::Ordered;
use evenkeel_ordered::{Deadlines, Judgement};

use super::super::types::ClientId;
use super::super::world::World;
use evenkeel_store_link::expiry::key_of;
use evenkeel_stores::resp::{databases, encode};

/// Where the time of day begins.
const BEGIN: i64 = 4_000_000_000_000;
/// A deadline of ten seconds later.
const DEADLINE: &str = "4000000010000";
const OK: &str = "+OK\r\n";
const QUEUED: &str = "+QUEUED\r\n";

mod asking;

thread_local! {
    static NOW: Cell<i64> = const { Cell::new(BEGIN) };
}

fn at(ms: i64) {
    NOW.set(BEGIN + ms);
}

fn world(servers: usize, partition: usize) -> World {
    at(0);
    let world = World::start(servers, |config| {
        let targets = config.partitions.remove(0);
        config.partitions = targets.chunks(partition).map(<[_]>::to_vec).collect();
    });
    world.engine.borrow().expiry.unix_ms = || NOW.get();
    world
}

/// A client in this database, which has been told so.
fn client(world: &mut World, database: &str) -> ClientId {
    let id = world.client();
    assert!(world.tell(id, &["SELECT", database]));
    assert_eq!(world.heard(id), OK);
    id
}

fn set(world: &mut World, id: ClientId, key: &str) {
    assert!(world.tell(id, &["SET", key, "5", "PXAT", DEADLINE]));
}

/// What a duplicate was sent since, without what goes around each group.
fn sent(world: &mut World, server: usize) -> Vec<String> {
    let mut all = world.asked(server, Ordered);
    world.sent[server][Ordered as usize].clear();
    all.retain(|it| {
        let ours = ["MULTI", "EXEC", "SET evenkeel:"];
        !ours.iter().any(|word| it.starts_with(word))
    });
    all
}

/// A duplicate does a group, and answers `EXEC` so.
fn answer_group(world: &mut World, server: usize, exec: &str) {
    let mut first = OK;
    while world.asked(server, Ordered).first().is_some_and(|it| it != "EXEC") {
        world.say(server, Ordered, first);
        first = QUEUED;
    }
    world.say(server, Ordered, exec);
}

fn judged(world: &World, database: u8, key: &str) -> Judgement {
    let place = databases::place(database, key.as_bytes());
    world.engine.borrow().expiry.deadlines.before_write(key_of(&place), NOW.get())
}

#[test]
fn a_key_is_removed_in_its_database_and_its_deadline_said_again_there() {
    let mut world = world(1, 1);
    let (here, elsewhere) = (client(&mut world, "0"), client(&mut world, "3"));
    set(&mut world, elsewhere, "k");
    sent(&mut world, 0);
    at(9_500);
    assert!(world.tell(here, &["INCR", "k"]), "that of database 0 has no deadline");
    assert_eq!(sent(&mut world, 0), ["INCR k"]);
    assert!(world.tell(elsewhere, &["SETNX", "k", "1"]));
    let again = format!("PEXPIREAT k {DEADLINE} NX");
    assert_eq!(sent(&mut world, 0), ["SELECT 3", "SETNX k 1", &again, "SELECT 0"]);
    at(10_000);
    assert!(world.tell(here, &["INCR", "k"]));
    assert!(world.tell(elsewhere, &["INCR", "k"]));
    let removed = ["INCR k", "SELECT 3", "DEL k", "SELECT 0", "SELECT 3", "INCR k", "SELECT 0"];
    assert_eq!(sent(&mut world, 0), removed);
    assert_eq!(world.engine.borrow().counts.expired, 1);
}

#[test]
fn keys_of_a_transaction_are_those_of_the_databases_that_it_chooses() {
    let mut world = world(1, 1);
    let (elsewhere, id) = (client(&mut world, "3"), client(&mut world, "0"));
    set(&mut world, elsewhere, "k");
    sent(&mut world, 0);
    at(10_000);
    for words in [&["MULTI"][..], &["INCR", "k"], &["SELECT", "3"], &["INCR", "k"], &["EXEC"]] {
        assert!(world.tell(id, words), "{words:?}");
    }
    let sent = sent(&mut world, 0);
    let (removed, done) = sent.split_at(3);
    assert_eq!(removed, ["SELECT 3", "DEL k", "SELECT 0"]);
    assert_eq!(done, ["SELECT 0", "INCR k", "SELECT 3", "INCR k", "SELECT 0"]);
}

#[test]
fn a_database_that_is_emptied_forgets_its_deadlines_and_no_others() {
    let mut world = world(1, 1);
    for database in ["0", "3"] {
        let id = client(&mut world, database);
        set(&mut world, id, "k");
    }
    let id = client(&mut world, "3");
    assert!(world.tell(id, &["FLUSHDB"]));
    at(10_000);
    assert_eq!([0, 3].map(|it| judged(&world, it, "k")), [Judgement::Remove, Judgement::Leave]);
}

#[test]
fn a_key_takes_its_deadline_to_another_database() {
    let moves: [&[&str]; 2] = [&["MOVE", "k", "3"], &["COPY", "k", "k", "DB", "3"]];
    for words in moves {
        let mut world = world(1, 1);
        let (here, elsewhere) = (client(&mut world, "0"), client(&mut world, "3"));
        set(&mut world, here, "k");
        assert!(world.tell(here, words));
        sent(&mut world, 0);
        at(10_000);
        assert!(!world.tell(elsewhere, &["INCR", "k"]), "it may not have been taken along");
        assert_eq!(sent(&mut world, 0), ["SELECT 3", "PEXPIRETIME k", "SELECT 0"]);
    }
}

#[test]
fn who_is_asked_for_a_deadline_says_that_of_the_database() {
    let mut world = world(1, 1);
    let (here, elsewhere) = (client(&mut world, "0"), client(&mut world, "3"));
    set(&mut world, here, "k");
    assert!(world.tell(here, &["MOVE", "k", "3"]));
    sent(&mut world, 0);
    world.lose(0, evenkeel_ordered::Dropped::Lost);
    world.reach(0); // what it owes is not of interest
    at(10_000);
    assert!(!world.tell(elsewhere, &["INCR", "k"]));
    let replies = [OK.to_owned(), format!(":{DEADLINE}\r\n"), OK.to_owned()];
    replies.iter().for_each(|reply| drop(world.say(0, Ordered, reply)));
    assert!(world.would_take(elsewhere));
    assert!(world.tell(elsewhere, &["INCR", "k"]));
    let removed = ["SELECT 3", "DEL k", "SELECT 0", "SELECT 3", "INCR k", "SELECT 0"];
    assert_eq!(sent(&mut world, 0), removed);
}

#[test]
fn all_databases_are_listed() {
    let mut world = world(1, 1);
    {
        let mut inner = world.engine.borrow();
        inner.expiry.deadlines = Deadlines::default();
        inner.uses_database(2);
    }
    let mut listed = Vec::new();
    while !world.engine.borrow().expiry.deadlines.is_complete() {
        world.engine.borrow().list_keys_of_all();
        while let Some(asked) = world.asked(0, Ordered).first().cloned() {
            let reply = match asked.split(' ').next() {
                Some("SCAN") => "*2\r\n$1\r\n0\r\n*2\r\n$1\r\nk\r\n$5\r\nother\r\n".to_owned(),
                Some("PEXPIRETIME") if asked.ends_with('k') => format!(":{DEADLINE}\r\n"),
                Some("PEXPIRETIME") => ":-1\r\n".to_owned(),
                _ => OK.to_owned(),
            };
            world.say(0, Ordered, &reply);
            listed.push(asked);
        }
    }
    let of_one = ["SCAN 0 COUNT 100", "PEXPIRETIME k", "PEXPIRETIME other"].map(str::to_owned);
    let of_other = |n: u8| {
        let [scan, first, second] = of_one.clone();
        let [choose, back] = [format!("SELECT {n}"), "SELECT 0".to_owned()];
        [choose.clone(), scan, back.clone(), choose, first, second, back]
    };
    assert_eq!(listed, [&of_one[..], &of_other(1), &of_other(2)].concat());
    at(10_000);
    for database in [0, 1, 2] {
        assert_eq!(judged(&world, database, "k"), Judgement::Ask, "of {database}");
        assert_eq!(judged(&world, database, "other"), Judgement::Leave, "of {database}");
    }
}

#[test]
fn where_who_is_asked_for_a_deadline_cannot_say_it_another_is_asked() {
    for is_lost in [true, false] {
        let mut world = world(2, 2);
        let id = client(&mut world, "3");
        set(&mut world, id, "k");
        assert!(world.tell(id, &["RENAME", "k", "l"]));
        for server in [0, 1] {
            sent(&mut world, server);
            world.lose(server, evenkeel_ordered::Dropped::Lost);
            world.reach(server);
        }
        at(10_000);
        assert!(!world.tell(id, &["INCR", "l"]));
        let question = ["SELECT 3", "PEXPIRETIME l", "SELECT 0"];
        let is_asked = |world: &mut World, server| world.asked(server, Ordered) == question;
        let [asked, other] = if is_asked(&mut world, 0) { [0, 1] } else { [1, 0] };
        assert!(is_asked(&mut world, asked) && !is_asked(&mut world, other));
        if is_lost {
            world.lose(asked, evenkeel_ordered::Dropped::Silent);
        } else {
            world.say(asked, Ordered, OK);
            world.say(asked, Ordered, "-ERR internal\r\n");
            assert!(world.would_take(id), "its command is looked at again");
            assert!(!world.tell(id, &["INCR", "l"]));
        }
        assert!(is_asked(&mut world, other), "{:?}", world.asked(other, Ordered));
    }
}

/// Its deadline passes while the stream of who is to do it is asked for: nothing is done, and so
/// nobody has to be filled anew.
#[test]
fn a_watched_key_that_expires_before_a_script_ends_its_transaction() {
    let mut world = world(2, 2);
    let id = client(&mut world, "3");
    set(&mut world, id, "k");
    for server in [0, 1] {
        answer_group(&mut world, server, "*4\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n");
    }
    assert!(world.tell(id, &["WATCH", "k"]));
    let asked = usize::from(world.asked(0, Ordered).is_empty());
    let replies = [OK, ":4000000010000\r\n", OK];
    replies.iter().for_each(|reply| drop(world.say(asked, Ordered, reply)));
    let script = ["EVAL", "return redis.call('INCR', KEYS[1])", "1", "k"];
    for words in [&["MULTI"][..], &script, &["EXEC"]] {
        assert!(world.tell(id, words));
    }
    assert_eq!(world.heard(id), [OK, OK, OK, QUEUED].concat());
    at(10_000);
    let wanted = world.engine.borrow().take_wanted_streams();
    assert_eq!(wanted.len(), 1);
    wanted.iter().for_each(|&(server, it)| world.engine.borrow().stream_opened(server, it));
    for server in [0, 1] {
        assert_eq!(sent(&mut world, server), ["SELECT 3", "DEL k", "SELECT 0"]);
    }
    assert_eq!(world.heard(id), "*-1\r\n");
    assert_eq!(world.engine.borrow().members.live(0).len(), 2);
}

/// A shard moves, and where it goes to is too late for a write: the key goes at both.
#[test]
fn a_move_goes_on_where_one_partition_was_too_late() {
    for replies in [[":1\r\n:1\r\n", ":6\r\n:0\r\n"], [":7\r\n:0\r\n", ":6\r\n:0\r\n"]] {
        let mut world = world(2, 1);
        let id = client(&mut world, "0");
        set(&mut world, id, "k");
        let own = world.engine.borrow().partition_of(b"k");
        {
            let mut inner = world.engine.borrow();
            let shard = inner.map.shard(evenkeel_stores::resp::hash::slot(b"k"));
            inner.begin_move(shard, 1 - own);
            inner.copy_shard_from(own);
            inner.moving.as_mut().unwrap().moving.enumerated();
            inner.advance_move();
        }
        sent(&mut world, own);
        for server in [0, 1] {
            world.lose(server, evenkeel_ordered::Dropped::Lost);
            world.reach(server);
        }
        at(9_500);
        assert!(world.tell(id, &["INCR", "k"]));
        let is_equal = replies[0].starts_with(":1");
        for (server, reply) in [1 - own, own].into_iter().zip(replies) {
            answer_group(&mut world, server, &format!("*3\r\n{reply}+OK\r\n"));
        }
        assert_eq!(world.engine.borrow().moving.is_some(), is_equal, "{replies:?}");
    }
}

/// Who has the last copy answers that it is out of memory: what the key was before it still is.
#[test]
fn a_write_that_is_refused_sets_no_deadline() {
    for database in ["0", "3"] {
        let mut world = world(1, 1);
        let id = client(&mut world, database);
        set(&mut world, id, "k");
        let refusal = "-OOM command not allowed\r\n";
        if database == "0" {
            world.say(0, Ordered, refusal);
        } else {
            for reply in [OK, QUEUED, refusal, QUEUED, QUEUED] {
                world.say(0, Ordered, reply);
            }
            world.say(0, Ordered, "-EXECABORT Transaction discarded\r\n");
        }
        assert_eq!(world.heard(id), refusal);
        at(10_000);
        assert_eq!(judged(&world, database.parse().unwrap(), "k"), Judgement::Ask);
    }
}

/// Who pauses clients relies on it that nothing is written.
#[test]
fn nothing_is_removed_for_a_read_while_clients_are_paused() {
    let mut world = world(2, 2);
    let (operator, reader) = (client(&mut world, "0"), client(&mut world, "0"));
    set(&mut world, operator, "k");
    world.serve_all();
    assert!(world.tell(operator, &["CLIENT", "PAUSE", "1000", "WRITE"]));
    at(10_000);
    let before = world.engine.borrow().history.last();
    assert!(world.tell(reader, &["GET", "k"]));
    assert_eq!(world.engine.borrow().history.last(), before);
    assert!(world.tell(operator, &["CLIENT", "UNPAUSE"]));
    assert!(world.tell(reader, &["GET", "k"]));
    assert_eq!(sent(&mut world, 1), ["DEL k"]);
}

/// The same where the pause comes between the question and its answer.
#[test]
fn nothing_is_removed_by_an_answer_while_clients_are_paused() {
    let mut world = world(1, 1);
    let (operator, reader) = (client(&mut world, "0"), client(&mut world, "0"));
    set(&mut world, operator, "k");
    assert!(world.tell(operator, &["RENAME", "k", "l"]));
    sent(&mut world, 0);
    world.lose(0, evenkeel_ordered::Dropped::Lost);
    world.reach(0);
    at(10_000);
    assert!(!world.tell(reader, &["GET", "l"]));
    assert!(world.tell(operator, &["CLIENT", "PAUSE", "1000", "WRITE"]));
    let before = world.engine.borrow().history.last();
    world.say(0, Ordered, &format!(":{DEADLINE}\r\n"));
    assert_eq!(world.engine.borrow().history.last(), before);
    assert!(world.would_take(reader) && world.tell(reader, &["GET", "l"]), "it is read as it is");
}

/// A shard that has moved is removed where it was: its keys live on elsewhere.
#[test]
fn what_is_removed_from_another_partition_keeps_its_deadline() {
    let mut world = world(4, 2);
    let id = client(&mut world, "0");
    set(&mut world, id, "k");
    at(10_000);
    let (own, shard) = {
        let inner = world.engine.borrow();
        let own = inner.partition_of(b"k");
        (own, inner.map.shard(evenkeel_stores::resp::hash::slot(b"k")))
    };
    world.engine.borrow().remove_keys(1 - own, shard, &[b"k"]).unwrap();
    assert_eq!(judged(&world, 0, "k"), Judgement::Remove);
    world.engine.borrow().remove_keys(own, shard, &[b"k"]).unwrap();
    assert_eq!(judged(&world, 0, "k"), Judgement::Leave);
}

#[test]
fn what_was_too_late_is_done_again() {
    for database in ["0", "3"] {
        let mut world = world(1, 1);
        let id = client(&mut world, database);
        set(&mut world, id, "k");
        let is_elsewhere = database == "3";
        let group = |inner: &str, count: u32| match is_elsewhere {
            true => format!("*{}\r\n+OK\r\n{inner}+OK\r\n+OK\r\n", count + 3),
            false => format!("*{}\r\n{inner}+OK\r\n", count + 1),
        };
        // A SET with a deadline in database 0 may be repeated, and is no group.
        match is_elsewhere {
            true => answer_group(&mut world, 0, &group(OK, 1)),
            false => drop(world.say(0, Ordered, OK)),
        }
        assert_eq!(world.heard(id), OK);
        at(9_500);
        assert!(world.tell(id, &["INCR", "k"]));
        at(10_000);
        answer_group(&mut world, 0, &group(":1\r\n:1\r\n", 2));
        assert_eq!(world.heard(id), "", "a new key, which is gone");
        match is_elsewhere {
            true => answer_group(&mut world, 0, &group(":0\r\n", 1)),
            false => assert_eq!(world.say(0, Ordered, ":0\r\n"), ["DEL", "k"]),
        }
        assert_eq!(world.heard(id), "", "nobody asked for that");
        answer_group(&mut world, 0, &group(":1\r\n", 1));
        assert_eq!(world.heard(id), ":1\r\n");
    }
}

/// What its client has sent behind it has its place already.
#[test]
fn what_was_too_late_is_told_where_its_client_has_sent_something_since() {
    let mut world = world(1, 1);
    let id = client(&mut world, "0");
    set(&mut world, id, "k");
    world.say(0, Ordered, OK);
    at(9_500);
    assert!(world.tell(id, &["INCR", "k"]));
    assert!(world.tell(id, &["SET", "other", "1"]));
    at(10_000);
    answer_group(&mut world, 0, "*3\r\n:1\r\n:1\r\n+OK\r\n");
    world.say(0, Ordered, OK);
    let heard = world.heard(id);
    assert!(heard.starts_with("+OK\r\n-UNAVAILABLE the key expired"), "{heard}");
    assert!(heard.ends_with("\r\n+OK\r\n"), "{heard}");
    assert_eq!(world.asked(0, Ordered), [""; 0], "nothing is done again");
}

/// A client that has gone asks for nothing.
#[test]
fn what_was_too_late_is_left_where_its_client_has_gone() {
    let mut world = world(1, 1);
    let id = client(&mut world, "0");
    set(&mut world, id, "k");
    world.say(0, Ordered, OK);
    at(9_500);
    assert!(world.tell(id, &["INCR", "k"]));
    at(10_000);
    world.engine.borrow().dismiss(id);
    answer_group(&mut world, 0, "*3\r\n:1\r\n:1\r\n+OK\r\n");
    assert_eq!(world.asked(0, Ordered), [""; 0]);
}

#[test]
fn effects_say_the_deadline_again_in_the_database_of_their_key() {
    let mut world = world(1, 1);
    let id = client(&mut world, "3");
    set(&mut world, id, "k");
    at(9_500);
    let mut group = evenkeel_stores::resp::replication::Group::default();
    databases::write_within(&mut group.commands, 3, |out| encode::command(out, &[b"INCR", b"k"]));
    encode::command(&mut group.commands, &[b"INCR", b"k"]);
    group.count = 4;
    world.engine.borrow().restate_effects(&mut group);
    let text = String::from_utf8(group.commands).unwrap();
    assert_eq!(text.matches("PEXPIREAT").count(), 1, "{text}");
    assert!(text.ends_with("NX\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n"), "{text}");
    assert_eq!(group.count, 7);
}
