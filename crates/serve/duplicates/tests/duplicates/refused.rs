//! One duplicate refuses writes that the others do, and takes the next ones: whatever its watermark
//! says, it lacks them.

use evenkeel_ordered::Acknowledge;
use evenkeel_testkit::redis::{Client, Reply, encoded};
use evenkeel_testkit::wait::{PATIENCE, block_until};

use super::world::World;
use super::{bulk, ok};

/// The duplicate that refuses.
const ODD: usize = 2;

fn world(name: &str) -> Option<World> {
    World::start(name, 3, |config| config.members.acknowledge = Acknowledge::Majority)
}

/// Sends these in the same bytes, so that they share a watermark; all are acknowledged.
fn written(client: &mut Client, commands: &[&[&str]]) {
    client.send(&commands.iter().flat_map(|it| encoded(it)).collect::<Vec<u8>>());
    for command in commands {
        let answer = client.read();
        assert!(!matches!(answer, Reply::Error(_)), "{command:?}: {answer:?}");
    }
}

/// The key is at the two that did not refuse it.
fn is_at_a_majority(world: &World, key: &str) {
    let holds = |n: usize| world.redises[n].client().ask(&["EXISTS", key]) == Reply::Integer(1);
    block_until("both have it", || holds(0) && holds(1));
}

/// All three are live, and equal, with this key.
fn is_mended(world: &World, key: &str) {
    let mut odd = world.redises[ODD].client();
    block_until(&format!("{key} is there"), || odd.ask(&["EXISTS", key]) == Reply::Integer(1));
    world.wait_live(3, PATIENCE);
    world.settle();
    assert_eq!(world.states().len(), 1, "duplicates differ");
}

/// What a server tells of itself in `INFO`.
fn told(redis: &mut Client, section: &str, name: &str) -> String {
    let info = redis.ask(&["INFO", section]);
    let mut lines = info.text().unwrap().lines();
    let of = |line: &str| line.strip_prefix(name)?.strip_prefix(':').map(str::to_owned);
    lines.find_map(of).unwrap_or_else(|| panic!("no {name} in {info:?}"))
}

#[test]
fn who_may_not_do_a_write_any_more_gets_it_by_a_copy() {
    let Some(world) = world("refused-right") else { return };
    let (mut client, mut odd) = (world.client(), world.redises[ODD].client());
    written(&mut client, &[&["SET", "before", "1"]]);
    assert_eq!(odd.ask(&["ACL", "SETUSER", "default", "-hset", "-incr"]), ok());
    // The watermark behind it is a SET, which is still permitted.
    written(&mut client, &[&["HSET", "h", "f", "1"], &["SET", "behind", "1"]]);
    is_at_a_majority(&world, "h");
    is_mended(&world, "h");
    // As it is in the transaction of a write that must not be repeated.
    written(&mut client, &[&["INCR", "n"], &["SET", "behind", "2"]]);
    is_at_a_majority(&world, "n");
    is_mended(&world, "n");
}

#[test]
fn who_had_no_memory_for_a_write_is_not_believed_by_the_next_process_either() {
    let Some(mut world) = world("refused-memory") else { return };
    let (mut client, mut odd) = (world.client(), world.redises[ODD].client());
    written(&mut client, &[&["SET", "large", &"x".repeat(300_000)]]);
    world.settle();
    let used: u64 = told(&mut odd, "memory", "used_memory").parse().unwrap();
    assert_eq!(odd.ask(&["CONFIG", "SET", "maxmemory", &(used - 100_000).to_string()]), ok());
    // There is memory again when the watermark comes.
    written(&mut client, &[&["SET", "lacked", "1"], &["DEL", "large"]]);
    assert_eq!(odd.ask(&["CONFIG", "SET", "maxmemory", "1"]), ok());
    is_at_a_majority(&world, "lacked");
    block_until("it is no history any more", || {
        let watermark = odd.ask(&["GET", "evenkeel:watermark"]);
        let epoch = odd.ask(&["EXISTS", "evenkeel:epoch"]);
        watermark == bulk("filling") || epoch == Reply::Integer(0)
    });
    world.expected = 2;
    world.restart();
    assert_eq!(odd.ask(&["CONFIG", "SET", "maxmemory", "0"]), ok());
    is_mended(&world, "lacked");
}

/// Also the watermark is refused, so the log has what it lacks.
#[test]
fn who_takes_nothing_for_a_while_gets_it_afterwards() {
    let Some(world) = world("refused-all") else { return };
    let (mut client, mut odd) = (world.client(), world.redises[ODD].client());
    let set = |name: &'static str, value: &'static str| ["CONFIG", "SET", name, value];
    for (name, refuses, takes) in [
        ("memory", set("maxmemory", "1"), set("maxmemory", "0")),
        ("replicas", set("min-replicas-to-write", "1"), set("min-replicas-to-write", "0")),
    ] {
        assert_eq!(odd.ask(&refuses), ok());
        written(&mut client, &[&["SET", name, "1"], &["INCR", "n"], &["SET", "behind", name]]);
        is_at_a_majority(&world, name);
        block_until("it is away", || world.live() == 2);
        assert_eq!(odd.ask(&takes), ok());
        is_mended(&world, name);
    }
    // It cannot save, since its folder is gone.
    assert_eq!(odd.ask(&set("save", "3600 1")), ok());
    let Reply::Array(folder) = odd.ask(&["CONFIG", "GET", "dir"]) else { panic!("no folder") };
    std::fs::remove_dir_all(folder[1].text().unwrap()).unwrap();
    odd.ask(&["BGSAVE"]);
    block_until("it could not save", || {
        told(&mut odd, "persistence", "rdb_last_bgsave_status") == "err"
    });
    written(&mut client, &[&["SET", "saved", "1"], &["INCR", "n"]]);
    is_at_a_majority(&world, "saved");
    block_until("it is away", || world.live() == 2);
    assert_eq!(odd.ask(&set("stop-writes-on-bgsave-error", "no")), ok());
    is_mended(&world, "saved");
    assert_eq!(client.ask(&["GET", "n"]), bulk("3"));
}

/// The script of somebody else ends while writes are on their way.
#[test]
fn who_was_busy_with_a_script_of_others_lacks_nothing_in_the_end() {
    let Some(world) = world("refused-busy") else { return };
    let (mut client, mut odd) = (world.client(), world.redises[ODD].client());
    assert_eq!(odd.ask(&["CONFIG", "SET", "busy-reply-threshold", "1"]), ok());
    for round in 0..5 {
        let mut running = world.redises[ODD].client();
        running.tell(&["EVAL", "while true do end", "0"]);
        let is_busy = |answer: &Reply| matches!(answer, Reply::Error(it) if it.starts_with("BUSY"));
        block_until("it is busy", || is_busy(&odd.ask(&["PING"])));
        for n in 0..200 {
            client.tell(&["SET", &format!("k{n}"), &round.to_string()]);
            if n == 100 {
                assert_eq!(odd.ask(&["SCRIPT", "KILL"]), ok());
            }
        }
        for n in 0..200 {
            assert_eq!(client.read(), ok(), "k{n} in round {round}");
        }
        written(&mut client, &[&["SET", &format!("end{round}"), "1"]]);
        is_mended(&world, &format!("end{round}"));
    }
}
