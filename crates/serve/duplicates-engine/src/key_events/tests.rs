//! Who is asked for key events, who waits for them, and which are told as what.

use evenkeel_ordered::{ConnectionKind, Dropped};

use super::super::types::ClientId;
use super::super::world::World;
use super::*;
use evenkeel_stores::resp::encode;
use evenkeel_stores::resp::replication::Group;

const ORDERED: ConnectionKind = ConnectionKind::Ordered;
const NOW: i64 = 1_000_000;

/// What tasks do: sources that are wanted are open.
fn open_sources(world: &World, value: &[u8]) -> Vec<usize> {
    let mut inner = world.engine.borrow();
    let wanted = inner.take_wanted_sources();
    for &(server, serial) in &wanted {
        inner.source_opened(server, serial, value);
    }
    wanted.into_iter().map(|(server, _)| server).collect()
}

/// Which choice a source is; 0 = none.
fn serial(world: &World, server: usize) -> u64 {
    let inner = world.engine.borrow();
    let mut sources = inner.key_events.sources.values();
    sources.find(|source| source.server == server).map_or(0, |source| source.serial)
}

fn says(world: &World, server: usize, channel: &str, text: &str) {
    let serial = serial(world, server);
    let (channel, text) = (channel.as_bytes(), text.as_bytes());
    world.engine.borrow().key_event_came(server, serial, channel, text);
}

fn listener(world: &mut World, pattern: &str, value: &[u8]) -> (ClientId, usize) {
    let id = world.client();
    assert!(!world.tell(id, &["PSUBSCRIBE", pattern]), "it waits for a source");
    let sources = open_sources(world, value);
    assert_eq!(sources.len(), 1);
    assert!(world.would_take(id) && world.tell(id, &["PSUBSCRIBE", pattern]));
    assert!(world.heard(id).contains("psubscribe"));
    (id, sources[0])
}

fn message(channel: &str, text: &str) -> String {
    let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
    format!("*4\r\n{}{}{}{}", bulk("pmessage"), bulk("*"), bulk(channel), bulk(text))
}

#[test]
fn one_duplicate_is_asked_and_keys_of_ours_are_not_told() {
    let mut world = World::start(2, |_| {});
    let (id, source) = listener(&mut world, "*", b"KA");
    says(&world, source, "__keyspace@0__:a", "set");
    says(&world, source, "__keyspace@0__:evenkeel:watermark", "set");
    says(&world, source, "__keyevent@0__:set", "evenkeel:watermark");
    says(&world, 1 - source, "__keyspace@0__:a", "set"); // nobody asked it
    says(&world, source, "news", "of somebody's own");
    assert_eq!(world.heard(id), message("__keyspace@0__:a", "set"));
    let other = world.client();
    assert!(world.tell(other, &["SUBSCRIBE", "news"]), "it wants no events");
    assert!(world.tell(other, &["SUBSCRIBE", "__keyevent@0__:set"]), "there is a source");
}

#[test]
fn another_takes_over_and_nobody_waits_for_who_does_not_answer() {
    let mut world = World::start(2, |_| {});
    let (id, source) = listener(&mut world, "*", b"KA");
    world.lose(source, Dropped::Lost);
    says(&world, source, "__keyspace@0__:a", "set"); // it is not one any more
    assert_eq!(open_sources(&world, b"KA"), [1 - source]);
    says(&world, 1 - source, "__keyspace@0__:b", "set");
    assert_eq!(world.heard(id), message("__keyspace@0__:b", "set"));
    let serial = serial(&world, 1 - source);
    world.engine.borrow().source_failed(1 - source, serial, "NOPERM");
    let waiting = world.client();
    assert!(!world.tell(waiting, &["PSUBSCRIBE", "*"]));
    assert!(world.engine.borrow().take_wanted_sources().is_empty(), "not at once again");
    world.pass(PATIENCE.max(AGAIN_AFTER));
    world.engine.borrow().look_at_key_events();
    assert!(world.tell(waiting, &["PSUBSCRIBE", "*"]), "it has been too long");
    assert_eq!(open_sources(&world, b"KA"), [1 - source]);
}

/// What a duplicate does ahead of the log may be undone.
#[test]
fn what_a_script_did_is_told_once_it_is_logged_and_never_if_it_is_undone() {
    for is_lost in [false, true] {
        let mut world = World::start(3, |_| {});
        let (id, source) = listener(&mut world, "*", b"KA");
        let client = world.client();
        assert!(world.tell(client, &["EVAL", "return redis.call('SET',KEYS[1],1)", "1", "k"]));
        let wanted = world.engine.borrow().take_wanted_streams();
        for (server, connection) in wanted {
            world.engine.borrow().stream_opened(server, connection);
        }
        let asked = world.asked(source, ORDERED);
        let mark = asked.iter().find_map(|it| it.strip_prefix("SET evenkeel:watermark "));
        let mark = mark.expect("who tells events executes").as_bytes().to_vec();
        says(&world, source, "__keyspace@0__:k", "set");
        assert_eq!(world.heard(id), "");
        if is_lost {
            world.lose(source, Dropped::Lost);
            world.engine.borrow().tell_key_events();
            assert_eq!(world.heard(id), "", "another does it, and tells it");
            continue;
        }
        for reply in ["+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "*2\r\n+OK\r\n+OK\r\n"] {
            world.say(source, ORDERED, reply);
        }
        let mut commands = Vec::new();
        encode::command(&mut commands, &[b"SET", b"k", b"1"]);
        let group = Group { mark, commands, count: 1, ..Group::default() };
        let mut inner = world.engine.borrow();
        let connection = inner.servers[source].connection;
        inner.effects_came(source, connection, group);
        inner.tell_key_events(); // as at the end of a turn
        drop(inner);
        assert_eq!(world.heard(id), message("__keyspace@0__:k", "set"));
    }
}

/// A partition that a shard moves to has its keys before it serves them.
#[test]
fn each_partition_has_a_source_that_tells_of_its_own_keys() {
    let mut world = World::start(2, |config| {
        let targets = config.partitions.remove(0);
        config.partitions = targets.chunks(1).map(<[_]>::to_vec).collect();
    });
    let id = world.client();
    assert!(!world.tell(id, &["PSUBSCRIBE", "*"]));
    assert_eq!(open_sources(&world, b"KA"), [0, 1]);
    assert!(world.tell(id, &["PSUBSCRIBE", "*"]));
    world.heard(id);
    let own = world.engine.borrow().partition_of(b"k");
    says(&world, 1 - own, "__keyspace@0__:k", "restore");
    assert_eq!(world.heard(id), "");
    says(&world, own, "__keyspace@0__:k", "set");
    assert_eq!(world.heard(id), message("__keyspace@0__:k", "set"));
}

#[test]
fn without_a_source_a_subscription_is_confirmed_after_a_while() {
    let mut world = World::start(1, |_| {});
    let id = world.client();
    assert!(!world.tell(id, &["SUBSCRIBE", "__keyevent@0__:expired"]));
    world.pass(PATIENCE - Duration::from_millis(1));
    world.engine.borrow().look_at_key_events();
    assert!(!world.would_take(id));
    world.pass(Duration::from_millis(1));
    world.engine.borrow().look_at_key_events();
    assert!(world.would_take(id) && world.tell(id, &["SUBSCRIBE", "__keyevent@0__:expired"]));
}

#[test]
fn sources_are_left_when_nobody_listens() {
    let mut world = World::start(1, |_| {});
    let (id, source) = listener(&mut world, "*", b"KA");
    let first = serial(&world, source);
    world.pass(UNUSED_MAX);
    world.engine.borrow().look_at_key_events();
    assert!(world.engine.borrow().is_source(source, first));
    assert!(world.tell(id, &["PUNSUBSCRIBE", "*"]));
    world.engine.borrow().look_at_key_events();
    assert!(!world.engine.borrow().is_source(source, first));
}

/// Who followed the duplicate before it was left is still there, and says the same.
#[test]
fn who_follows_an_earlier_choice_of_the_same_duplicate_is_not_heard() {
    let mut world = World::start(1, |_| {});
    let (id, source) = listener(&mut world, "*", b"KA");
    let first = serial(&world, source);
    world.pass(UNUSED_MAX);
    assert!(world.tell(id, &["PUNSUBSCRIBE", "*"]));
    world.engine.borrow().look_at_key_events();
    world.heard(id);
    let (other, source) = listener(&mut world, "*", b"KA");
    assert!(!world.engine.borrow().is_source(source, first));
    world.engine.borrow().key_event_came(source, first, b"__keyspace@0__:a", b"set");
    says(&world, source, "__keyspace@0__:a", "set");
    assert_eq!(world.heard(other), message("__keyspace@0__:a", "set"), "once");
}

/// The last listener leaves while another one waits for a source that was lost.
#[test]
fn who_waits_when_sources_are_left_is_not_forgotten() {
    let mut world = World::start(1, |_| {});
    let (id, source) = listener(&mut world, "*", b"KA");
    world.pass(UNUSED_MAX);
    let first = serial(&world, source);
    world.engine.borrow().source_failed(source, first, "gone");
    let waiting = world.client();
    assert!(!world.tell(waiting, &["PSUBSCRIBE", "*"]));
    assert!(world.tell(id, &["PUNSUBSCRIBE", "*"]));
    world.engine.borrow().look_at_key_events();
    world.pass(UNUSED_MAX);
    world.engine.borrow().look_at_key_events();
    assert!(world.would_take(waiting));
    assert!(!world.engine.borrow().key_events.is_waiting());
}

/// A key that expired for all but the source, whose clock is behind: it is removed there by us.
#[test]
fn who_waits_for_expired_gets_it_also_where_our_removal_was_first() {
    const K: &str = "__keyspace@0__:k";
    // What is told, whether the source removed the key, and whether its event comes first.
    for (value, removes, is_first, expected) in [
        (&b"KA"[..], true, false, vec![message(K, "expired")]),
        (b"KA", true, true, vec![message(K, "expired")]),
        (b"Kx", true, false, vec![message(K, "expired")]),
        (b"Kg", true, false, vec![]),
        (b"Ex", true, false, vec![message("__keyevent@0__:expired", "k")]),
        (b"KA", false, false, vec![message(K, "del")]),
        (b"KA", false, true, vec![message(K, "del")]),
    ] {
        let mut world = World::start(2, |_| {});
        world.engine.borrow().expiry.unix_ms = || NOW;
        let (id, source) = listener(&mut world, "*", value);
        let nobody = world.client();
        world.engine.borrow().remove_expired(nobody, b"k");
        let told = Told::read(value);
        let comes = told.generic && told.of_keys;
        if is_first && comes {
            says(&world, source, K, "del");
            assert_eq!(world.heard(id), "", "whose it is is not known");
        }
        let reply = if removes { ":1\r\n" } else { ":0\r\n" };
        assert_eq!(world.say(1 - source, ORDERED, ":1\r\n"), ["DEL", "k"]);
        assert_eq!(world.say(source, ORDERED, reply), ["DEL", "k"]);
        if !is_first && comes {
            says(&world, source, K, "del");
        }
        assert_eq!(world.heard(id), expected.concat(), "{value:?} {removes} {is_first}");
        if comes {
            says(&world, source, K, "del"); // a later one is somebody's
            assert_eq!(world.heard(id), message(K, "del"));
        }
    }
}
