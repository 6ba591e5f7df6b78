//! Questions about servers, with duplicates that answer when they are told to.

use std::time::Duration;

use evenkeel_ordered::ConnectionKind::{Free, Ordered};
use evenkeel_ordered::Dropped;

use super::super::world::World;
use super::PATIENCE;

const QUEUED: &str = "+QUEUED\r\n";

/// Who was asked something on its free connection.
fn asked(world: &mut World) -> Vec<usize> {
    let servers = 0..world.holds.len();
    servers.filter(|&server| world.waiting(server)[1] > 0).collect()
}

fn late(world: &World) {
    world.pass(PATIENCE);
    world.engine.borrow().end_late_questions();
}

#[test]
fn a_question_goes_to_another_when_its_duplicate_dies() {
    let mut world = World::start(3, |_| {});
    let client = world.client();
    assert!(world.tell(client, &["LOLWUT"]));
    let first = asked(&mut world);
    assert_eq!(first.len(), 1);
    world.lose(first[0], Dropped::Lost);
    let second = asked(&mut world);
    assert!(second.len() == 1 && second != first);
    assert_eq!(world.heard(client), "");
    assert_eq!(world.say(second[0], Free, "$2\r\nhi\r\n"), ["LOLWUT"]);
    assert_eq!(world.heard(client), "$2\r\nhi\r\n");
    // Commands behind it keep their order, and what it cannot do drops nobody.
    world.tell(client, &["SLOWLOG", "LEN"]);
    world.tell(client, &["PING"]);
    assert_eq!(world.heard(client), "");
    world.say(second[0], Free, "-NOPERM no\r\n");
    assert_eq!(world.heard(client), "-NOPERM no\r\n+PONG\r\n");
    world.lose(second[0], Dropped::Lost);
    let third = 3 - first[0] - second[0];
    world.tell(client, &["LOLWUT"]);
    world.lose(third, Dropped::Lost);
    assert!(world.heard(client).starts_with("-UNAVAILABLE no duplicate"));
    world.tell(client, &["LOLWUT"]);
    assert!(world.heard(client).starts_with("-UNAVAILABLE no duplicate"), "at once");
}

#[test]
fn nobody_waits_for_a_duplicate_that_stands_still() {
    let mut world = World::start(2, |_| {});
    let client = world.client();
    for (words, expected) in [
        (&["INFO"][..], "redis_version:7.0.0"),
        (&["COMMAND", "COUNT"], ":"),
        (&["COMMAND", "INFO", "get", "nosuch"], "*2\r\n*10\r\n$3\r\nget\r\n:2\r\n*1\r\n+readonly"),
        (&["CONFIG", "GET", "save"], "-UNAVAILABLE no duplicate has answered"),
        (&["CONFIG", "SET", "slowlog-max-len", "5"], "-UNAVAILABLE no duplicate has answered"),
    ] {
        world.tell(client, words);
        assert_eq!(world.heard(client), "", "{words:?}");
        late(&world);
        let came = world.heard(client);
        assert!(came.contains(expected), "{words:?}: {came}");
    }
    // What comes too late is for nobody.
    for server in [0, 1] {
        while world.waiting(server)[1] > 0 {
            world.say(server, Free, "+OK\r\n");
        }
    }
    assert_eq!(world.heard(client), "");
    assert!(world.engine.borrow().questions.is_empty());
}

#[test]
fn a_client_that_leaves_is_told_nothing() {
    let mut world = World::start(2, |_| {});
    let (gone, other) = (world.client(), world.client());
    world.tell(gone, &["LOLWUT"]);
    world.tell(gone, &["MULTI"]);
    world.tell(gone, &["LOLWUT"]);
    world.tell(gone, &["SET", "a", "1"]);
    world.tell(gone, &["EXEC"]);
    world.engine.borrow().dismiss(gone);
    for server in asked(&mut world) {
        while world.waiting(server)[1] > 0 {
            world.say(server, Free, "$2\r\nhi\r\n");
        }
    }
    assert_eq!(world.waiting(0)[0] + world.waiting(1)[0], 0, "its transaction is not sent");
    world.tell(other, &["PING"]);
    assert_eq!(world.heard(other), "+PONG\r\n");
}

#[test]
fn what_is_said_of_commands_is_asked_once() {
    let mut world = World::start(1, |_| {});
    let client = world.client();
    world.tell(client, &["COMMAND", "LIST"]);
    world.say(0, Free, "*2\r\n$3\r\nget\r\n$5\r\ndebug\r\n");
    assert_eq!(world.heard(client), "*1\r\n$3\r\nget\r\n");
    world.tell(client, &["COMMAND", "LIST"]);
    assert_eq!(world.heard(client), "*1\r\n$3\r\nget\r\n", "at once");
    world.lose(0, Dropped::Lost);
    world.reach(0);
    world.tell(client, &["COMMAND", "LIST"]);
    assert_eq!(world.heard(client), "", "it may be another version");
}

#[test]
fn settings_reach_those_that_come_back() {
    let mut world = World::start(3, |_| {});
    let client = world.client();
    let set = ["CONFIG", "SET", "Slowlog-Max-Len", "7"];
    world.lose(2, Dropped::Lost);
    world.tell(client, &set);
    assert_eq!(asked(&mut world), [0, 1]);
    let again = ["CONFIG", "SET", "slowlog-max-len", "7"];
    assert_eq!(world.say(0, Free, "+OK\r\n"), again);
    // One dies before it answers, and one is live again before the client is told.
    world.reach(2);
    world.lose(1, Dropped::Lost);
    assert_eq!(world.heard(client), "+OK\r\n");
    assert_eq!(world.say(2, Free, "+OK\r\n"), again);
    world.reach(1);
    assert_eq!(world.say(1, Free, "+OK\r\n"), again);
    // What one refuses is not kept.
    world.tell(client, &["CONFIG", "SET", "slowlog-max-len", "x"]);
    for server in 0..3 {
        world.say(server, Free, "-ERR CONFIG SET failed\r\n");
    }
    assert_eq!(world.heard(client), "-ERR CONFIG SET failed\r\n");
    world.lose(0, Dropped::Lost);
    world.reach(0);
    assert_eq!(world.say(0, Free, "+OK\r\n"), again);
    world.tell(client, &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    assert!(world.heard(client).starts_with("-ERR CONFIG SET failed"));
    assert_eq!(asked(&mut world), [0; 0]);
}

#[test]
fn within_multi_what_needs_no_duplicate_stands_in_its_place() {
    let mut world = World::start(1, |_| {});
    let client = world.client();
    let expect = |world: &mut World, words: &[&str], expected: &str| {
        world.tell(client, words);
        assert_eq!(world.heard(client), expected, "{words:?}");
    };
    expect(&mut world, &["MULTI"], "+OK\r\n");
    expect(&mut world, &["PING"], QUEUED);
    expect(&mut world, &["MULTI"], "-ERR MULTI calls can not be nested\r\n");
    expect(&mut world, &["CLIENT", "SETNAME", "x"], QUEUED);
    expect(&mut world, &["CLIENT", "GETNAME"], QUEUED);
    expect(&mut world, &["SELECT", "99"], QUEUED);
    let answers = "*4\r\n+PONG\r\n+OK\r\n$1\r\nx\r\n-ERR DB index is out of range\r\n";
    expect(&mut world, &["EXEC"], answers);
    assert_eq!(world.waiting(0), [0, 0], "nothing is sent");
    // Beside commands on keys, of which one is asked before.
    for words in [&["MULTI"][..], &["ECHO", "a"], &["SET", "k", "1"], &["LOLWUT"], &["PING"]] {
        world.tell(client, words);
    }
    world.heard(client);
    world.tell(client, &["EXEC"]);
    assert!(!world.would_take(client), "the client is held meanwhile");
    assert_eq!(world.waiting(0), [0, 1]);
    world.say(0, Free, "$2\r\nhi\r\n");
    assert_eq!(world.heard(client), "");
    for (word, reply) in
        [("MULTI", "+OK\r\n"), ("SET", QUEUED), ("SET", QUEUED), ("EXEC", "*2\r\n+OK\r\n+OK\r\n")]
    {
        assert_eq!(world.say(0, Ordered, reply)[0], word);
    }
    let answers = "*4\r\n$1\r\na\r\n+OK\r\n$2\r\nhi\r\n+PONG\r\n";
    assert_eq!(world.heard(client), answers);
    // Its duplicate dies, or stands still: EXEC goes on without the answer.
    for dies in [true, false] {
        for words in [&["MULTI"][..], &["LOLWUT"], &["PING"], &["EXEC"]] {
            world.tell(client, words);
        }
        match dies {
            true => world.lose(0, Dropped::Lost),
            false => late(&world),
        }
        let came = world.heard(client);
        assert!(came.contains("*2\r\n-UNAVAILABLE no duplicate") && came.ends_with("+PONG\r\n"));
        if dies {
            world.reach(0);
        }
    }
}

#[test]
fn answers_that_are_not_wanted_are_not_sent() {
    let mut world = World::start(1, |_| {});
    let client = world.client();
    for words in [
        &["CLIENT", "REPLY", "SKIP"][..],
        &["LOLWUT"],
        &["ECHO", "a"],
        &["CLIENT", "REPLY", "OFF"],
        &["ECHO", "b"],
        &["CLIENT", "REPLY", "SKIP"],
        &["SET", "k", "1"],
        &["CLIENT", "REPLY", "ON"],
        &["GET", "k"],
    ] {
        world.tell(client, words);
    }
    assert_eq!(world.heard(client), "", "the first is not answered yet");
    world.say(0, Free, "$2\r\nhi\r\n");
    world.serve_all();
    assert_eq!(world.heard(client), "$1\r\na\r\n+OK\r\n$1\r\n1\r\n");
}

#[test]
fn a_client_is_ended_by_another() {
    let mut world = World::start(1, |_| {});
    let (killer, idle, busy) = (world.client(), world.client(), world.client());
    world.tell(busy, &["SET", "k", "1"]);
    let number = busy.number().to_string();
    world.tell(killer, &["CLIENT", "KILL", "ID", &number]);
    assert_eq!(world.heard(killer), ":1\r\n");
    assert!(world.engine.borrow().client(busy).is_none());
    world.serve_all(); // what it asked for goes on without it
    world.tell(killer, &["GET", "k"]);
    world.serve_all();
    assert_eq!(world.heard(killer), "$1\r\n1\r\n");
    world.tell(killer, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no"]);
    assert_eq!(world.heard(killer), ":2\r\n");
    let mut inner = world.engine.borrow();
    assert!(inner.client(idle).is_none() && inner.client(killer).unwrap().is_ending);
}

#[test]
fn a_transaction_asks_servers_so_much_and_no_more() {
    let mut world = World::start(1, |_| {});
    let client = world.client();
    world.tell(client, &["MULTI"]);
    for _ in 0..64 {
        world.tell(client, &["SLOWLOG", "RESET"]);
    }
    assert!(!world.heard(client).contains("-ERR"));
    world.tell(client, &["SLOWLOG", "RESET"]);
    assert!(world.heard(client).starts_with("-ERR a transaction may have 64 commands"));
    world.tell(client, &["EXEC"]);
    assert!(world.heard(client).starts_with("-EXECABORT"));
    assert_eq!(world.waiting(0), [0, 0], "nobody was asked");
}

/// Two partitions of two. A write in parts is the client's, and so is the one before the last.
#[test]
fn wait_counts_the_writes_of_all_partitions() {
    let mut world = World::start(4, |config| {
        let targets = config.partitions.remove(0);
        config.partitions = targets.chunks(2).map(<[_]>::to_vec).collect();
    });
    let client = world.client();
    world.tell(client, &["MSET", "a", "1", "b", "2"]);
    for server in [0, 2, 3] {
        world.say(server, Ordered, "+OK\r\n"); // of each partition one, and of one both
    }
    assert_eq!(world.heard(client), "+OK\r\n");
    world.tell(client, &["WAIT", "1", "0"]);
    assert!(!world.would_take(client), "one partition has it once");
    world.say(1, Ordered, "+OK\r\n");
    world.engine.borrow().look_at_wait_list();
    assert_eq!(world.heard(client), ":1\r\n");
}

#[test]
fn wait_counts_who_has_the_write() {
    let mut world = World::start(3, |_| {});
    let client = world.client();
    world.tell(client, &["SET", "k", "1"]);
    world.serve(0, Ordered);
    assert_eq!(world.heard(client), "+OK\r\n");
    world.tell(client, &["WAIT", "0", "0"]);
    assert_eq!(world.heard(client), ":0\r\n", "one stands for the master");
    world.tell(client, &["WAIT", "1", "0"]);
    assert!(!world.would_take(client));
    world.serve(1, Ordered);
    assert_eq!(world.heard(client), ":1\r\n");
    // The third is gone, and comes back with it.
    world.tell(client, &["WAIT", "2", "500"]);
    world.lose(2, Dropped::Lost);
    world.pass(Duration::from_millis(499));
    world.engine.borrow().look_at_wait_list();
    assert_eq!(world.heard(client), "");
    world.pass(Duration::from_millis(1));
    world.engine.borrow().look_at_wait_list();
    assert_eq!(world.heard(client), ":1\r\n");
    world.tell(client, &["WAIT", "2", "0"]);
    world.reach(2);
    world.engine.borrow().look_at_wait_list();
    assert_eq!(world.heard(client), ":2\r\n");
    for (words, text) in [
        (["WAIT", "x", "0"], "-ERR value is not an integer or out of range\r\n"),
        (["WAIT", "1", "-1"], "-ERR timeout is negative\r\n"),
        (["WAIT", "1", "x"], "-ERR timeout is not an integer or out of range\r\n"),
    ] {
        world.tell(client, &words);
        assert_eq!(world.heard(client), text);
    }
    world.tell(client, &["MULTI"]);
    world.tell(client, &["WAIT", "9", "0"]);
    world.tell(client, &["EXEC"]);
    assert_eq!(world.heard(client), "+OK\r\n+QUEUED\r\n*1\r\n:2\r\n", "nobody waits within MULTI");
}

/// A write drops a duplicate, which ends the question that another client's `EXEC` is held for:
/// that one's place is behind, or an `EXEC` could commit although what it watches has changed.
#[test]
fn a_transaction_that_was_held_gets_no_place_within_another_write() {
    let mut world = World::start(2, |config| config.members.owed_max = 4);
    let (held, watching, writing) = (world.client(), world.client(), world.client());
    world.tell(watching, &["WATCH", "b"]);
    let asked = (0..2).find(|&server| !world.asked(server, Ordered).is_empty()).unwrap();
    world.say(asked, Ordered, ":-1\r\n");
    for words in
        [&["MULTI"][..], &["CONFIG", "SET", "slowlog-max-len", "5"], &["SET", "b", "2"], &["EXEC"]]
    {
        world.tell(held, words);
    }
    world.say(1, Free, "+OK\r\n");
    for n in ["1", "2", "3"] {
        world.tell(writing, &["SET", "a", n]);
        world.say(1, Ordered, "+OK\r\n");
    }
    assert!(!world.would_take(held), "its question is open");
    for words in [&["MULTI"][..], &["SET", "c", "3"], &["EXEC"]] {
        world.tell(watching, words);
    }
    let asked = world.asked(1, Ordered);
    let place = |text: &str| asked.iter().position(|it| it == text);
    let places = (place("SET c 3"), place("SET b 2"));
    assert!(matches!(places, (Some(ours), Some(theirs)) if ours < theirs), "{asked:?}");
}
