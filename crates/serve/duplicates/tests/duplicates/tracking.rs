//! `CLIENT TRACKING`: beside a Redis, every message in its place; and where a duplicate differs.

use evenkeel_ordered::Acknowledge;

use super::beside;
use super::world::World;

/// One whose duplicates all have what is acknowledged: no answer may lack anything.
fn world(name: &str) -> Option<World> {
    World::start(name, 3, |config| config.members.acknowledge = Acknowledge::All)
}

#[test]
fn what_is_wrong_is_said_as_redis_does() {
    let Some(world) = world("tracking-words") else { return };
    beside::compare(
        &world,
        &[
            &[
                "a: CLIENT TRACKING",
                "a: CLIENT TRACKING MAYBE",
                "a: CLIENT TRACKING ON FOO",
                "a: CLIENT TRACKING OFF FOO",
                "a: CLIENT TRACKING ON REDIRECT",
                "a: CLIENT TRACKING ON REDIRECT x",
                "a: CLIENT TRACKING ON REDIRECT 0",
                "a: CLIENT TRACKING ON REDIRECT 99999",
                "a: CLIENT TRACKING ON REDIRECT @b REDIRECT @b",
                "a: CLIENT TRACKING ON PREFIX %a",
                "a: CLIENT TRACKING ON BCAST OPTIN",
                "a: CLIENT TRACKING ON BCAST OPTOUT",
                "a: CLIENT TRACKING ON OPTIN OPTOUT",
                "a: CLIENT TRACKING ON BCAST PREFIX %a PREFIX %ab",
                "a: CLIENT CACHING YES",
                "a: CLIENT CACHING",
                "a: CLIENT GETREDIR",
                "a: CLIENT GETREDIR x",
                "a: CLIENT TRACKINGINFO",
                "a: CLIENT TRACKINGINFO x",
            ],
            &[
                "a: CLIENT TRACKING ON",
                "a: CLIENT TRACKINGINFO",
                "a: CLIENT GETREDIR",
                "a: CLIENT TRACKING ON BCAST",
                "a: CLIENT CACHING YES",
                "a: CLIENT CACHING NO",
                "a: CLIENT CACHING MAYBE",
                "a: CLIENT TRACKING ON OPTIN NOLOOP",
                "a: CLIENT TRACKING ON OPTOUT",
                "a: CLIENT CACHING YES",
                "a: CLIENT TRACKINGINFO",
                "a: GET %k",
                "a: CLIENT TRACKINGINFO",
                "a: CLIENT CACHING YES",
                "a: MULTI",
                "a: GET %k",
                "a: EXEC",
                "a: CLIENT TRACKINGINFO",
                "a: RESET",
            ],
            &[
                "a: CLIENT TRACKING ON BCAST PREFIX %b PREFIX %a",
                "a: CLIENT TRACKING ON BCAST PREFIX %ab",
                "a: CLIENT TRACKING ON BCAST PREFIX %c REDIRECT @b",
                "a: CLIENT TRACKINGINFO",
                "a: CLIENT GETREDIR",
                "a: CLIENT TRACKING ON",
                "a: CLIENT TRACKING OFF",
                "a: CLIENT TRACKING OFF",
                "a: CLIENT TRACKINGINFO",
                "a: CLIENT TRACKING ON OPTOUT",
                "a: CLIENT CACHING NO",
                "a: CLIENT TRACKINGINFO",
                "a: PING",
                "a: CLIENT TRACKINGINFO",
            ],
            &[
                "a: CONFIG SET tracking-table-max-keys x",
                "a: CONFIG SET tracking-table-max-keys -1",
                "a: CONFIG SET timeout 0 tracking-table-max-keys 7 timeout 0",
                "a: CONFIG SET tracking-table-max-keys 7",
                "a: CONFIG GET tracking-table-max-keys",
                "a: CONFIG SET tracking-table-max-keys 1000000",
            ],
        ],
    );
}

#[test]
fn messages_come_where_those_of_redis_come() {
    let Some(world) = world("tracking") else { return };
    beside::compare_in(
        &world,
        "3",
        &[
            &["a: CLIENT TRACKING ON", "a: GET %k", "b: SET %k 1", "a?", "b: SET %k 2", "a: PING"],
            &["a: CLIENT TRACKING ON", "a: MGET %k %l", "b: MSET %l 1 %k 2", "a?", "a?", "a: PING"],
            &["a: CLIENT TRACKING ON", "a: SET %k 1", "b: SET %k 2", "a: PING"],
            // Its own writes, behind their answers.
            &["a: CLIENT TRACKING ON", "a: GET %k", "a: SET %k 1", "a?", "a: SET %k 2", "a: PING"],
            &[
                "a: CLIENT TRACKING ON",
                "a: GET %k",
                "a: MULTI",
                "a: SET %k 1",
                "a: HSET %h f v",
                "a: EXEC",
                "a?",
                "a: PING",
            ],
            &[
                "a: CLIENT TRACKING ON",
                "a: MULTI",
                "a: GET %k",
                "a: GET %l",
                "a: EXEC",
                "b: SET %l 1",
                "a?",
                "b: SET %k 1",
                "a?",
            ],
            &["a: HSET %h f v", "a: CLIENT TRACKING ON", "a: HGET %h f", "a: HDEL %h f", "a?"],
            &["a: CLIENT TRACKING ON NOLOOP", "a: GET %k", "a: SET %k 1", "a: PING"],
            &["a: CLIENT TRACKING ON NOLOOP", "a: GET %k", "b: SET %k 1", "a?", "a: PING"],
        ],
    );
}

#[test]
fn reads_are_noted_that_redis_notes() {
    let Some(world) = world("tracking-reads") else { return };
    beside::compare_in(
        &world,
        "3",
        &[
            &[
                "a: CLIENT TRACKING ON OPTIN",
                "a: GET %k",
                "a: CLIENT CACHING YES",
                "a: GET %l",
                "a: GET %m",
                "b: MSET %k 1 %l 1 %m 1",
                "a?",
                "a: PING",
            ],
            &[
                "a: CLIENT TRACKING ON OPTIN",
                "a: CLIENT CACHING YES",
                "a: MULTI",
                "a: GET %k",
                "a: GET %l",
                "a: EXEC",
                "a: GET %m",
                "b: MSET %k 1 %l 1 %m 1",
                "a?",
                "a?",
                "a: PING",
            ],
            &[
                "a: CLIENT TRACKING ON OPTOUT",
                "a: CLIENT CACHING NO",
                "a: GET %k",
                "a: GET %l",
                "b: MSET %k 1 %l 1",
                "a?",
                "a: PING",
            ],
            // What is refused was the next command too.
            &[
                "a: CLIENT TRACKING ON OPTOUT",
                "a: CLIENT CACHING NO",
                "a: GET",
                "a: GET %k",
                "a: CLIENT CACHING NO",
                "a: NONSENSE",
                "a: GET %l",
                "b: SET %k 1",
                "a?",
                "b: SET %l 1",
                "a?",
                "a: PING",
            ],
            &[
                "a: CLIENT TRACKING ON OPTIN",
                "a: CLIENT CACHING YES",
                "a: MULTI",
                "a: GET",
                "a: EXEC",
                "a: GET %k",
                "b: SET %k 1",
                "a: PING",
            ],
            &[
                "a: CLIENT TRACKING ON",
                "a: SADD %s x",
                "a: SSCAN %s 0 COUNT 100",
                "b: SADD %s y",
                "a?",
                "a: LRANGE %l 0 -1",
                "b: RPUSH %l z",
                "a?",
                "a: XREAD STREAMS %x 0",
                "b: XADD %x 1-1 f v",
                "a?",
                "a: PING",
            ],
        ],
    );
}

#[test]
fn removal_expiry_and_scripts_are_told_as_by_redis() {
    let Some(world) = world("tracking-removal") else { return };
    beside::compare_in(
        &world,
        "3",
        &[
            &[
                "a: CLIENT TRACKING ON",
                "b: SET %k 1 PX 100",
                "a: GET %k",
                "a?",
                "a: PING",
                "a: GET %k",
            ],
            &["a: CLIENT TRACKING ON", "b: SET %k 1", "a: GET %k", "b: PEXPIRE %k 100", "a?"],
            &["a: CLIENT TRACKING ON", "b: SET %k 1", "a: GET %k", "b: UNLINK %k", "a?", "a: PING"],
            &["b: SET %k 1", "a: CLIENT TRACKING ON", "a: GET %l", "b: RENAME %k %l", "a?"],
            // Scripts.
            &[
                "a: CLIENT TRACKING ON",
                "a: EVAL return(redis.call('get',KEYS[1])) 1 %k",
                "b: SET %k 1",
                "a?",
                "a: EVAL_RO return(redis.call('get',KEYS[1])) 1 %k",
                "b: EVAL redis.call('set',KEYS[1],2) 1 %k",
                "a?",
                "a: PING",
            ],
            &[
                "a: CLIENT TRACKING ON NOLOOP",
                "a: GET %k",
                "a: EVAL return(redis.call('set',KEYS[1],'2')) 1 %k",
                "a: PING",
            ],
        ],
    );
}

#[test]
fn prefixes_and_emptying_are_told_as_by_redis() {
    let Some(world) = world("tracking-prefixes") else { return };
    beside::compare_in(
        &world,
        "3",
        &[
            &[
                "a: CLIENT TRACKING ON BCAST PREFIX %a PREFIX %b",
                "b: SET %c 1",
                "b: SET %a1 1",
                "a?",
                "b: MSET %a1 1 %a2 2 %c 3",
                "a?",
                "b: SET %b 1",
                "a?",
                "a: PING",
            ],
            &["a: CLIENT TRACKING ON BCAST PREFIX %", "a: SET %k 1", "a?", "a: PING"],
            &[
                "a: CLIENT TRACKING ON BCAST PREFIX %a PREFIX %b",
                "a: MULTI",
                "a: SET %a1 1",
                "a: SET %b1 1",
                "a: SET %a2 1",
                "a: EXEC",
                "a?",
                "a?",
                "a: PING",
            ],
            &["a: CLIENT TRACKING ON BCAST NOLOOP PREFIX %", "a: SET %k 1", "b: SET %l 1", "a?"],
            &["a: CLIENT TRACKING ON BCAST PREFIX %", "b: SET %k 1 PX 100", "a?", "a?", "a: PING"],
            &[
                "a: GET %k",
                "a: CLIENT TRACKING ON",
                "a: GET %k",
                "a: CLIENT TRACKING OFF",
                "a: CLIENT TRACKING ON BCAST PREFIX %x",
                "b: SET %k 1",
                "a: PING",
            ],
            &[
                "a: CLIENT TRACKING ON",
                "c: CLIENT TRACKING ON BCAST NOLOOP PREFIX %",
                "a: GET %k",
                "b: FLUSHALL",
                "a?",
                "c?",
                "b: SET %k 1",
                "c?",
                "a: PING",
            ],
            &["a: CLIENT TRACKING ON NOLOOP", "a: FLUSHDB", "a?", "a: PING"],
            &[
                "a: CLIENT TRACKING ON",
                "a: GET %k",
                "b: MULTI",
                "b: FLUSHALL",
                "b: EXEC",
                "a?",
                "a: PING",
            ],
            &["b: SELECT 3", "a: CLIENT TRACKING ON", "a: GET %k", "b: SET %k 1", "a?", "a: PING"],
        ],
    );
}

#[test]
fn other_connections_are_told_as_by_redis() {
    let Some(world) = world("tracking-redirect") else { return };
    beside::compare(
        &world,
        &[
            &[
                "b: SUBSCRIBE __redis__:invalidate",
                "a: CLIENT TRACKING ON REDIRECT 99999",
                "a: PING",
            ],
            &[
                "a: CLIENT TRACKING ON REDIRECT @b",
                "b: SUBSCRIBE __redis__:invalidate",
                "a: GET %k",
                "a: CLIENT GETREDIR",
                "c: SET %k 1",
                "b?",
                "a: GET %k",
                "a: SET %k 2",
                "b?",
                "a: CLIENT TRACKING OFF",
                "a: GET %k",
                "c: SET %k 1",
                "b: PING",
            ],
            // Whoever is told is gone.
            &[
                "a: CLIENT TRACKING ON REDIRECT @b",
                "a: GET %k",
                "c: CLIENT KILL ID @b",
                "c: CLIENT KILL ID @b",
                "a: CLIENT TRACKINGINFO",
            ],
        ],
    );
    beside::compare_in(
        &world,
        "3",
        &[
            &[
                "a: CLIENT TRACKING ON REDIRECT @b",
                "a: GET %x",
                "c: CLIENT KILL ID @b",
                "c: SET %x 1",
                "a?",
                "a: CLIENT TRACKINGINFO",
                "a: CLIENT TRACKING ON",
                "a: CLIENT TRACKINGINFO",
            ],
            &[
                "a: CLIENT TRACKING ON REDIRECT @b",
                "c: CLIENT TRACKING ON REDIRECT @b",
                "a: GET %x",
                "c: GET %y",
                "d: SET %x 1",
                "b?",
                "d: SET %y 1",
                "b?",
                "b: PING",
            ],
        ],
    );
    beside::compare_in(
        &world,
        "2",
        &[
            // A client of RESP2 cannot be told on its own connection.
            &["a: CLIENT TRACKING ON", "a: GET %x", "b: SET %x 1", "a: PING"],
            &[
                "a: CLIENT TRACKING ON REDIRECT @b",
                "b: SUBSCRIBE __redis__:invalidate",
                "a: GET %x",
                "c: FLUSHALL",
                "b?",
            ],
        ],
    );
}
