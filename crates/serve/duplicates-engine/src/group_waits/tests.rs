//! Consumers that wait, with duplicates that answer when they are told to.

use evenkeel_ordered::{ConnectionKind, Dropped};
use evenkeel_stores::resp::encode;
use evenkeel_stores::resp::replication::Group;

use super::super::types::ClientId;
use super::super::world::World;

const ORDERED: ConnectionKind = ConnectionKind::Ordered;
const FOUND: &str = "%1\r\n$1\r\ns\r\n*0\r\n";

fn reads(consumer: &str) -> Vec<&str> {
    vec!["XREADGROUP", "GROUP", "g", consumer, "BLOCK", "0", "STREAMS", "s", ">"]
}

fn waits(world: &mut World, consumer: &str) -> ClientId {
    let id = world.client();
    assert!(world.tell(id, &reads(consumer)));
    id
}

/// Who executes the try that is under way, the consumer that it is of, and its watermark. The
/// stream of the executor is followed.
fn under_way(world: &mut World) -> Option<(usize, String, String)> {
    world.fetch();
    {
        let mut inner = world.engine.borrow();
        for (server, connection) in inner.take_wanted_streams() {
            inner.stream_opened(server, connection);
        }
    }
    let servers = world.holds.len();
    let of = |asked: Vec<String>| {
        let read = asked.iter().find_map(|it| it.strip_prefix("XREADGROUP GROUP g "))?;
        let mark = asked.iter().find_map(|it| it.strip_prefix("SET evenkeel:watermark ahead"))?;
        Some((read.split(' ').next()?.to_owned(), format!("ahead{mark}")))
    };
    (0..servers).find_map(|server| {
        let (consumer, mark) = of(world.asked(server, ORDERED))?;
        Some((server, consumer, mark))
    })
}

/// The executor says this, and these are its effects; the others do them.
fn done(world: &mut World, of: (usize, &str), reply: &str, effects: &[&[&str]]) {
    done_and_counted(world, of, (reply, "*0\r\n"), effects);
}

fn done_and_counted(
    world: &mut World,
    (server, mark): (usize, &str),
    (reply, counted): (&str, &str),
    effects: &[&[&str]],
) {
    loop {
        let asked = world.asked(server, ORDERED);
        match (asked[0].as_str(), asked.get(1).and_then(|it| it.split(' ').next())) {
            ("MULTI", Some("XREADGROUP" | "EVAL")) => break,
            ("MULTI", _) => {
                for reply in ["+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "*2\r\n:1\r\n+OK\r\n"] {
                    world.say(server, ORDERED, reply); // what came before
                }
            }
            _ => drop(world.say(server, ORDERED, "+OK\r\n")), // a watermark
        }
    }
    // Of a delivery it is asked how many entries the group has read by then.
    let asked = world.asked(server, ORDERED);
    let count = asked.iter().position(|it| it == "EXEC").expect("it is asked as one") - 1;
    let counted = if count == 3 { counted } else { "" };
    let last = format!("*{count}\r\n{reply}{counted}+OK\r\n");
    world.say(server, ORDERED, "+OK\r\n");
    (0..count).for_each(|_| drop(world.say(server, ORDERED, "+QUEUED\r\n")));
    world.say(server, ORDERED, &last);
    let mut commands = Vec::new();
    for effect in effects {
        let words: Vec<&[u8]> = effect.iter().map(|it| it.as_bytes()).collect();
        encode::command(&mut commands, &words);
    }
    let (mark, count) = (mark.as_bytes().to_vec(), effects.len() as u32);
    let mut inner = world.engine.borrow();
    let connection = inner.servers[server].connection;
    inner.effects_came(server, connection, Group { mark, commands, count, ..Group::default() });
}

const CLAIMED: [&str; 5] = ["XCLAIM", "s", "g", "c", "0"];

fn finds_nothing(world: &mut World, consumer: &str) {
    let (server, who, mark) = under_way(world).expect("a try");
    assert_eq!(who, consumer);
    done(world, (server, &mark), "_\r\n", &[]);
}

fn finds(world: &mut World, consumer: &str) {
    let (server, who, mark) = under_way(world).expect("a try");
    assert_eq!(who, consumer);
    done(world, (server, &mark), FOUND, &[&CLAIMED]);
}

#[test]
fn the_others_are_told_how_many_entries_a_group_has_read() {
    const COUNTED: &str = "*1\r\n%3\r\n$4\r\nname\r\n$1\r\ng\r\n$17\r\nlast-delivered-id\r\n\
        $3\r\n1-1\r\n$12\r\nentries-read\r\n:5\r\n";
    let mut world = World::start(2, |_| {});
    let id = world.client();
    assert!(world.tell(id, &["XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">"]));
    let (server, _, mark) = under_way(&mut world).expect("it is done by one");
    done_and_counted(&mut world, (server, &mark), (FOUND, COUNTED), &[&CLAIMED]);
    assert_eq!(world.heard(id), "*1\r\n*2\r\n$1\r\ns\r\n*0\r\n", "its own answer alone");
    let other = world.asked(1 - server, ORDERED);
    let expected = ["MULTI", "XCLAIM s g c 0", "XGROUP SETID s g 1-1 ENTRIESREAD 5"];
    assert_eq!(other[..3], expected);
}

fn fill(world: &mut World) {
    let id = world.client();
    assert!(world.tell(id, &["XADD", "s", "1-1", "a", "b"]));
}

#[test]
fn who_waits_first_is_tried_and_then_the_next_until_nothing_is_found() {
    let mut world = World::start(2, |_| {});
    let first = waits(&mut world, "first");
    finds_nothing(&mut world, "first");
    let second = waits(&mut world, "second");
    finds_nothing(&mut world, "second");
    let third = waits(&mut world, "third");
    finds_nothing(&mut world, "third");
    assert_eq!(under_way(&mut world), None, "nothing was added");
    fill(&mut world);
    finds(&mut world, "first");
    assert_eq!(world.heard(first), "*1\r\n*2\r\n$1\r\ns\r\n*0\r\n");
    finds_nothing(&mut world, "second");
    assert_eq!(under_way(&mut world), None, "nobody finds more");
    assert_eq!(world.heard(second) + &world.heard(third), "");
    fill(&mut world);
    finds(&mut world, "second");
    assert!(!world.heard(second).is_empty());
}

#[test]
fn who_leaves_before_its_try_gets_nothing_and_the_next_one_does() {
    let mut world = World::start(2, |_| {});
    let first = waits(&mut world, "first");
    finds_nothing(&mut world, "first");
    let second = waits(&mut world, "second");
    finds_nothing(&mut world, "second");
    // The try of the first is noted and cannot begin: a script is done.
    let script = world.client();
    fill(&mut world);
    assert!(world.tell(script, &["EVAL", "script", "1", "s"]));
    world.engine.borrow().dismiss(first);
    let (server, mark) = {
        world.fetch();
        let ahead = world.engine.borrow().effects.ahead_in(0).expect("the script runs");
        let asked = world.asked(ahead, ORDERED);
        let mark = asked.iter().find_map(|it| it.strip_prefix("SET evenkeel:watermark ahead"));
        (ahead, format!("ahead{}", mark.unwrap()))
    };
    done(&mut world, (server, &mark), ":1\r\n", &[]);
    finds(&mut world, "second");
    assert!(!world.heard(second).is_empty());
}

#[test]
fn a_group_that_is_gone_is_told_to_who_waits_and_to_who_comes() {
    let mut world = World::start(2, |_| {});
    let waiting = waits(&mut world, "a");
    finds_nothing(&mut world, "a");
    let other = world.client();
    assert!(world.tell(other, &["XGROUP", "DESTROY", "s", "g"]));
    let (server, _, mark) = under_way(&mut world).expect("a try");
    done(&mut world, (server, &mark), "-NOGROUP No such key 's'\r\n", &[]);
    let gone = "-NOGROUP the consumer group this client was blocked on no longer exists\r\n";
    assert_eq!(world.heard(waiting), gone);
    let late = waits(&mut world, "b");
    let (server, _, mark) = under_way(&mut world).expect("a try");
    done(&mut world, (server, &mark), "-NOGROUP No such key 's'\r\n", &[]);
    assert_eq!(world.heard(late), "-NOGROUP No such key 's'\r\n");
}

/// All who wait for its key, also in other groups, each in Redis's words.
#[test]
fn whoever_waits_for_a_stream_is_told_how_it_went() {
    let no_group = "-NOGROUP No such key 's'\r\n";
    let other_type = "-WRONGTYPE Operation against a key\r\n";
    let group_gone = "-NOGROUP the consumer group this client was blocked on no longer exists\r\n";
    let stream_gone = "-UNBLOCKED the stream key no longer exists\r\n";
    let cases: [(&[&str], &str, &str); 8] = [
        (&["DEL", "s"], no_group, stream_gone),
        (&["SET", "s", "1"], other_type, stream_gone),
        (&["ZUNIONSTORE", "s", "1", "z"], other_type, stream_gone),
        (&["RENAME", "s", "other"], no_group, stream_gone),
        (&["FLUSHALL"], no_group, stream_gone),
        (&["FLUSHDB"], no_group, stream_gone),
        (&["RENAME", "other", "s"], no_group, group_gone),
        (&["XGROUP", "DESTROY", "s", "g"], no_group, group_gone),
    ];
    for (write, found, told) in cases {
        let mut world = World::start(2, |_| {});
        let waiting = ["a", "b", "c"].map(|name| {
            let id = waits(&mut world, name);
            finds_nothing(&mut world, name);
            id
        });
        let other = world.client();
        assert!(world.tell(other, write));
        for _ in waiting {
            let (server, _, mark) = under_way(&mut world).expect("a try");
            done(&mut world, (server, &mark), found, &[]);
        }
        assert_eq!(waiting.map(|id| world.heard(id)), [told; 3], "{write:?}");
        assert_eq!(under_way(&mut world), None, "nobody waits");
    }
}

/// Its first try comes behind what removes the stream, and it came before.
#[test]
fn a_stream_that_goes_before_the_first_try_is_gone_too() {
    for (write, told) in [
        (&["DEL", "s"][..], "-UNBLOCKED the stream key no longer exists\r\n"),
        (&["XGROUP", "DESTROY", "s", "g"], "-NOGROUP No such key 's'\r\n"),
    ] {
        let mut world = World::start(2, |_| {});
        let waiting = waits(&mut world, "a");
        let other = world.client();
        assert!(world.tell(other, write));
        let (server, _, mark) = under_way(&mut world).expect("a try");
        done(&mut world, (server, &mark), "-NOGROUP No such key 's'\r\n", &[]);
        assert_eq!(world.heard(waiting), told, "{write:?}");
    }
}

#[test]
fn what_leaves_a_stream_as_it_is_tries_nobody() {
    let mut world = World::start(2, |_| {});
    let waiting = waits(&mut world, "a");
    finds_nothing(&mut world, "a");
    let writes: [&[&str]; 4] = [
        &["XACK", "s", "g", "1-1"],
        &["XDEL", "s", "1-1"],
        &["XTRIM", "s", "MAXLEN", "5"],
        &["SET", "other", "1"],
    ];
    for write in writes {
        let other = world.client();
        assert!(world.tell(other, write));
        assert_eq!(under_way(&mut world), None, "{write:?}");
    }
    assert_eq!(world.heard(waiting), "");
}

#[test]
fn a_try_that_is_lost_is_done_by_another_and_its_time_may_be_over_meanwhile() {
    let mut world = World::start(3, |_| {});
    let waiting = waits(&mut world, "a");
    let (first, ..) = under_way(&mut world).expect("a try");
    world.lose(first, Dropped::Lost);
    let (second, ..) = under_way(&mut world).expect("it is done by another");
    assert_ne!(first, second);
    let killer = world.client();
    let number = world.engine.borrow().client(waiting).unwrap().number().to_string();
    assert!(world.tell(killer, &["CLIENT", "UNBLOCK", &number]));
    assert_eq!(world.heard(waiting), "", "it is under way");
    finds_nothing(&mut world, "a");
    assert_eq!(world.heard(waiting), "*-1\r\n");
    assert!(world.would_take(waiting), "it waits no more");
}

/// Its try waits until a script has its stream: nothing is under way, so it may leave.
#[test]
fn who_leaves_before_its_first_try_begins_is_seen_to() {
    let mut world = World::start(3, |_| {});
    let script = world.client();
    assert!(world.tell(script, &["EVAL", "script", "1", "s"]));
    let id = waits(&mut world, "one");
    world.engine.borrow().flush();
    assert!(world.engine.borrow().client(id).unwrap().is_idle, "its end is looked for");
    world.engine.borrow().dismiss(id);
    assert_eq!(world.engine.borrow().waiting.idle(), 0);
    assert_eq!(under_way(&mut world), None);
}
