//! Clients that wait, with duplicates that answer when they are told to.

use evenkeel_leadership::layout::Layout;
use evenkeel_ordered::ConnectionKind::Ordered;

use super::super::world::World;
use evenkeel_stores::resp::hash;

const QUEUED: &str = "+QUEUED\r\n";

/// The duplicate does one group that it was sent, and says this to its command; the command.
fn does(world: &mut World, server: usize, reply: &str) -> Vec<String> {
    assert_eq!(world.say(server, Ordered, "+OK\r\n"), ["MULTI"]);
    let command = world.say(server, Ordered, QUEUED);
    assert_eq!(world.say(server, Ordered, QUEUED)[0], "SET", "its watermark");
    let replies = format!("*2\r\n{reply}+OK\r\n");
    assert_eq!(world.say(server, Ordered, &replies), ["EXEC"]);
    command
}

/// The pop of a client that waits has its place before an `EXEC` that comes behind it: it changes
/// what is watched.
#[test]
fn a_pop_that_is_repeated_comes_before_exec_looks() {
    for is_repeated in [true, false] {
        let mut world = World::start(1, |_| {});
        let (waiting, pushing, watching) = (world.client(), world.client(), world.client());
        if is_repeated {
            world.tell(waiting, &["BLPOP", "k", "0"]);
        }
        world.tell(pushing, &["RPUSH", "k", "x", "y"]); // while the first try is under way
        world.tell(watching, &["WATCH", "k"]);
        if is_repeated {
            assert_eq!(does(&mut world, 0, "_\r\n"), ["BLPOP", "k", "0"]);
        }
        assert_eq!(does(&mut world, 0, ":2\r\n"), ["RPUSH", "k", "x", "y"]);
        world.say(0, Ordered, ":-1\r\n");
        assert_eq!(world.heard(watching), "+OK\r\n");
        for words in [&["MULTI"][..], &["SET", "z", "1"], &["EXEC"]] {
            world.tell(watching, words);
        }
        let asked = world.asked(0, Ordered);
        assert_eq!(asked.contains(&"BLPOP k 0".to_owned()), is_repeated, "{asked:?}");
        let has_committed = asked.iter().any(|it| it == "SET z 1");
        assert_eq!(has_committed, !is_repeated, "{asked:?}");
        let heard = world.heard(watching);
        assert_eq!(heard.ends_with("*-1\r\n"), is_repeated, "{heard}");
    }
}

#[test]
fn who_waits_for_keys_that_are_in_two_partitions_by_now_is_told_so() {
    let mut world = World::start(2, |config| {
        let targets = config.partitions.remove(0);
        config.partitions = targets.chunks(1).map(<[_]>::to_vec).collect();
    });
    let map = world.engine.borrow().map.clone();
    let shard = |key: &str| map.shard(hash::slot(key.as_bytes()));
    let mut keys = ["a", "b", "c", "d", "e", "f", "g", "h"].into_iter();
    let from = keys.find(|key| map.partition(shard(key)) == 0).unwrap();
    let is_beside = |key: &&str| map.partition(shard(key)) == 0 && shard(key) != shard(from);
    let to = keys.find(is_beside).unwrap();
    let (waiting, pushing) = (world.client(), world.client());
    world.tell(waiting, &["BLMOVE", from, to, "LEFT", "RIGHT", "0"]);
    assert_eq!(does(&mut world, 0, "_\r\n")[0], "BLMOVE");
    assert_eq!(world.heard(waiting), "");
    let layout = world.engine.borrow().layout.clone();
    let next = Layout { map: map.moved(shard(to), 1).unwrap(), ..layout };
    world.engine.borrow().adopt_layout(next).unwrap();
    world.tell(pushing, &["RPUSH", from, "x"]);
    let heard = world.heard(waiting);
    assert!(heard.starts_with("-CROSSSLOT"), "{heard}");
    assert_eq!(does(&mut world, 0, ":1\r\n"), ["RPUSH", from, "x"]);
    for server in 0..2 {
        let asked = world.asked(server, Ordered);
        assert!(asked.is_empty(), "{asked:?}");
    }
    assert!(world.would_take(waiting), "it may go on");
}

/// What fails at once took nothing from the list, so there is nothing to pass on: who waits for
/// that list would be told the error of another command.
#[test]
fn a_move_that_fails_at_once_serves_nobody() {
    let mut world = World::start(1, |_| {});
    let (waiting, failing) = (world.client(), world.client());
    world.tell(waiting, &["BLMOVE", "{k}s", "{k}d", "LEFT", "RIGHT", "0"]);
    assert_eq!(does(&mut world, 0, "_\r\n")[0], "BLMOVE");
    world.tell(failing, &["BLMOVE", "{k}s", "{k}d", "LEFT", "RIGHT", "0"]);
    assert_eq!(does(&mut world, 0, "-WRONGTYPE a text\r\n")[0], "BLMOVE");
    assert_eq!(world.heard(failing), "-WRONGTYPE a text\r\n");
    world.engine.borrow().flush();
    let asked = world.asked(0, Ordered);
    assert!(asked.is_empty(), "{asked:?}");
    assert_eq!(world.heard(waiting), "");
}

/// The command came while its stream was one: at Redis it waits, whatever the key is meanwhile.
#[test]
fn who_waits_for_new_entries_goes_on_while_the_key_is_another_one() {
    let mut world = World::start(1, |_| {});
    let (reading, writing) = (world.client(), world.client());
    world.tell(reading, &["XREAD", "BLOCK", "0", "STREAMS", "k", "$"]);
    world.tell(writing, &["SET", "k", "1"]); // before it is known what the last id is
    let last = "%1\r\n$17\r\nlast-generated-id\r\n$5\r\n666-0\r\n";
    assert_eq!(world.say(0, Ordered, last), ["XINFO", "STREAM", "k"]);
    while world.asked(0, Ordered)[0] != "XREAD STREAMS k 666-0" {
        world.say(0, Ordered, "+OK\r\n");
    }
    world.say(0, Ordered, "-WRONGTYPE Operation against a key holding another\r\n");
    assert_eq!(world.heard(reading), "", "it waits");
    world.tell(writing, &["XADD", "k", "667-0", "f", "v"]);
    let asked = world.asked(0, Ordered);
    assert!(asked.contains(&"XREAD STREAMS k 666-0".to_owned()), "{asked:?}");
}
