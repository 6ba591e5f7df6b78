//! What tells of one server of Redis, told of a service: who watches it, how often what failed, and
//! what others are told while a script runs for too long.

use evenkeel_testkit::redis::Reply;
use evenkeel_testkit::wait::{PATIENCE, block_until};

use super::beside::{self, Raw};
use super::ok;
use super::world::World;

#[test]
fn errors_are_counted_and_functions_that_write_nothing_are_reads_as_with_redis() {
    const LIBRARY: &str = "#!lua name=%l\nredis.register_function{function_name='%r',\
        callback=function(k)return{redis.call('GET',k[1])}end,flags={'no-writes'}}\
        redis.register_function('%w',function(k)return{redis.call('INCR',k[1])}end)";
    let Some(world) = World::start("oneserver", 3, |_| {}) else { return };
    beside::compare(
        &world,
        &[
            &[
                "a: CONFIG RESETSTAT",
                "a: SET %k x",
                "a: INCR %k",
                "a: LPUSH %k 1",
                "a: NOSUCH",
                "a: EVAL return{err='MINE'..string.char(32)..'x'} 0",
                "a: EVAL return{err='ALONE'} 0",
                "a: MULTI",
                "a: INCR %k",
                "a: EXEC",
                "a: MULTI",
                "a: NOSUCH",
                "a: EXEC",
                "a: INFO errorstats",
                "a: CONFIG RESETSTAT",
                "a: INFO errorstats",
            ],
            &["a: CONFIG SET daemonize yes", "a: MONITOR x", "a: FCALL nothing 0"],
        ],
    );
    let mut client = world.client();
    let library = LIBRARY.replace('%', "one");
    assert_eq!(client.ask(&["FUNCTION", "LOAD", &library]), Reply::bulk("onel"));
    assert_eq!(client.ask(&["SET", "k", "1"]), ok());
    let read = Reply::Array(vec![Reply::bulk("1")]);
    assert_eq!(client.ask(&["FCALL", "oner", "1", "k"]), read);
    assert_eq!(world.client().ask(&["CLIENT", "PAUSE", "60000", "WRITE"]), ok());
    assert_eq!(client.ask(&["FCALL", "oner", "1", "k"]), read, "it is not kept back");
    assert_eq!(world.client().ask(&["CLIENT", "UNPAUSE"]), ok());
    let written = Reply::Array(vec![Reply::Integer(2)]);
    assert_eq!(client.ask(&["FCALL", "onew", "1", "k"]), written);
    let changed = library.replace("'GET'", "'TYPE'");
    assert_eq!(client.ask(&["FUNCTION", "LOAD", "REPLACE", &changed]), Reply::bulk("onel"));
    let typed = Reply::Array(vec![Reply::Simple("string".to_owned())]);
    assert_eq!(client.ask(&["FCALL", "oner", "1", "k"]), typed, "it is the new one");
}

#[test]
fn who_monitors_sees_what_clients_ask_for_and_what_scripts_write() {
    let Some(world) = World::start("monitor", 2, |_| {}) else { return };
    let mut watching = Raw::connect(world.address, "2");
    assert_eq!(watching.ask(&["MONITOR"]), b"+OK\r\n");
    let mut client = world.client();
    client.ask(&["AUTH", "default", "secret"]);
    client.ask(&["SET", "k", "a b\n"]);
    client.ask(&["EVAL", "return redis.call('INCR', KEYS[1])", "1", "n"]);
    let local = client.local();
    for expected in [
        format!("[0 {local}] \"AUTH\" \"(redacted)\" \"(redacted)\"\r\n"),
        format!("[0 {local}] \"SET\" \"k\" \"a b\\n\"\r\n"),
        format!("[0 {local}] \"EVAL\" \"return redis.call('INCR', KEYS[1])\" \"1\" \"n\"\r\n"),
        "[0 lua] \"INCR\" \"n\"\r\n".to_owned(),
    ] {
        let line = String::from_utf8(watching.read()).unwrap();
        assert!(line.starts_with('+') && line.ends_with(&expected), "{line}, {expected}");
    }
}

/// A script that does not end: others are told, it is ended, and nothing of theirs was done.
#[test]
fn others_are_told_that_a_script_runs_for_too_long_until_it_is_killed() {
    let Some(world) = World::start("busy", 3, |_| {}) else { return };
    let mut client = world.client();
    assert_eq!(client.ask(&["CONFIG", "SET", "busy-reply-threshold", "10"]), ok());
    assert_eq!(client.ask(&["SET", "k", "1"]), ok());
    let mut endless = world.client();
    endless.tell(&["EVAL", "while true do end", "0"]);
    let is_busy = |reply: &Reply| matches!(reply, Reply::Error(text) if text.starts_with("BUSY "));
    block_until("it is said", || is_busy(&world.client().ask(&["PING"])));
    assert!(is_busy(&client.ask(&["INCR", "k"])));
    assert_eq!(client.ask(&["GET", "k"]), Reply::bulk("1"), "others answer reads");
    assert_eq!(client.ask(&["SCRIPT", "KILL"]), ok());
    assert!(matches!(endless.read(), Reply::Error(text) if text.contains("killed by user")));
    assert_eq!(client.ask(&["PING"]), Reply::Simple("PONG".to_owned()));
    assert_eq!(client.ask(&["INCR", "k"]), Reply::Integer(2));
    world.wait_live(3, PATIENCE);
    world.settle();
    assert_eq!(world.states().len(), 1, "all hold the same: {:?}", world.states());
}
