//! Duplicates that are nodes of Redis Cluster: what clients see, and what becomes of slots.

use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::redis::{Client, Redis, Reply, encoded};
use evenkeel_testkit::wait::{PATIENCE, block_until};
use evenkeel_wal::LogPlace;

use super::kinds::is_told;
use super::world::World;
use super::{bulk, ok};

/// The node that something happens to.
const ODD: usize = 2;
/// The slot of `foo`, and that of `evenkeel:watermark`.
const FOO: &str = "12182";
const WATERMARK: &str = "910";
const CROSSSLOT: &str = "CROSSSLOT Keys in request don't hash to the same slot";

fn queued() -> Reply {
    Reply::Simple("QUEUED".to_owned())
}

fn is_error(answer: &Reply, begins: &str) {
    assert!(matches!(answer, Reply::Error(text) if text.starts_with(begins)), "{answer:?}");
}

/// Sends these in the same bytes; all are acknowledged.
fn written(client: &mut Client, commands: &[&[&str]]) {
    client.send(&commands.iter().flat_map(|it| encoded(it)).collect::<Vec<u8>>());
    for command in commands {
        let answer = client.read();
        assert!(!matches!(answer, Reply::Error(_)), "{command:?}: {answer:?}");
    }
}

/// All are live, and hold the same.
fn is_mended(world: &World) {
    world.wait_live(world.expected, 2 * PATIENCE);
    world.settle();
    assert_eq!(world.states().len(), 1, "duplicates differ");
}

fn said(client: &mut Client, line: &str) -> Reply {
    client.ask(&line.split(' ').collect::<Vec<_>>())
}

/// Another node of a node's cluster, without slots.
fn other_node(folder: &Folder, node: &Redis) -> Redis {
    let other = Redis::node(folder.file("other"));
    let mut client = other.client();
    // It would be a replica as soon as it hears that its last slot is another one's.
    assert_eq!(said(&mut client, "CONFIG SET cluster-allow-replica-migration no"), ok());
    assert_eq!(said(&mut client, "CLUSTER RESET HARD"), ok());
    assert_eq!(said(&mut client, &format!("CLUSTER MEET 127.0.0.1 {}", node.address.port())), ok());
    block_until("both know of all slots", || {
        let about = said(&mut client, "CLUSTER INFO");
        let about = about.text().expect("a text");
        about.contains("cluster_state:ok") && about.contains("cluster_known_nodes:2")
    });
    let mut known = node.client();
    block_until("the node knows the other", || {
        said(&mut known, "CLUSTER INFO").text().is_some_and(|it| it.contains("known_nodes:2"))
    });
    other
}

fn id(client: &mut Client) -> String {
    said(client, "CLUSTER MYID").text().expect("a name").to_owned()
}

/// Gives a slot without keys to another node of the cluster.
fn give_slot(slot: &str, from: &Redis, to: &Redis) {
    let (mut from, mut to) = (from.client(), to.client());
    let (source, target) = (id(&mut from), id(&mut to));
    for (node, words) in
        [(&mut to, format!("IMPORTING {source}")), (&mut from, format!("MIGRATING {target}"))]
    {
        assert_eq!(said(node, &format!("CLUSTER SETSLOT {slot} {words}")), ok());
    }
    for node in [&mut to, &mut from] {
        assert_eq!(said(node, &format!("CLUSTER SETSLOT {slot} NODE {target}")), ok());
    }
}

#[test]
fn nodes_of_redis_cluster_are_duplicates_as_plain_servers_are() {
    let Some(world) = World::of_nodes("nodes-plain", 3, |_| {}) else { return };
    let mut client = world.client();
    assert_eq!(said(&mut client, "SET a 1"), ok());
    assert_eq!(said(&mut client, "INCRBY a 41"), Reply::Integer(42));
    assert_eq!(said(&mut client, "LPUSH l x y"), Reply::Integer(2));
    assert_eq!(said(&mut client, "SADD s x y"), Reply::Integer(2));
    assert!(matches!(said(&mut client, "SPOP s"), Reply::Bulk(_)));
    assert!(matches!(said(&mut client, "XADD x * f 1"), Reply::Bulk(_)));
    assert_eq!(said(&mut client, "SET e 1 EX 100"), ok());
    assert_eq!(said(&mut client, "APPEND e 2"), Reply::Integer(2));
    assert_eq!(said(&mut client, "MULTI"), ok());
    for line in ["INCR {a}n", "SET {a}m 2", "GET {a}m"] {
        assert_eq!(said(&mut client, line), queued());
    }
    let all = Reply::Array(vec![Reply::Integer(1), ok(), bulk("2")]);
    assert_eq!(said(&mut client, "EXEC"), all);
    let counts = "return redis.call('INCR', KEYS[1])";
    assert_eq!(client.ask(&["EVAL", counts, "1", "by-script"]), Reply::Integer(1));
    assert_eq!(said(&mut client, "LPOP l"), bulk("y"));
    assert_eq!(said(&mut client, "BLPOP l 1"), Reply::Array(vec![bulk("l"), bulk("x")]));
    is_mended(&world);
    assert_eq!(said(&mut client, "FLUSHALL"), ok());
    assert_eq!(said(&mut client, "INCR a"), Reply::Integer(1));
    is_mended(&world);
    let state = world.state_now();
    assert_eq!(state.disagreements, 0, "{state:?}");
}

/// A script without a first line of flags may write keys of several slots at one node; the others
/// get what it did in one transaction.
#[test]
fn what_a_script_did_in_several_slots_is_at_every_node() {
    let Some(world) = World::of_nodes("nodes-slots", 3, |_| {}) else { return };
    let mut client = world.client();
    let script = "for n = 1, 20 do redis.call('INCR', 'k' .. n) redis.call('LPUSH', 'l' .. n, n) \
                  end return redis.call('INCR', 'count')";
    for n in 1..=5 {
        assert_eq!(client.ask(&["EVAL", script, "0"]), Reply::Integer(n));
    }
    is_mended(&world);
    assert_eq!(world.redises[0].client().ask(&["GET", "k20"]), bulk("5"));
    let strict = format!("#!lua\n{script}");
    is_error(&client.ask(&["EVAL", &strict, "0"]), "ERR Script attempted to access keys that do");
    is_mended(&world);
    assert_eq!(world.live(), 3);
}

#[test]
fn keys_of_several_slots_are_refused_together_and_cost_no_node() {
    let Some(world) = World::of_nodes("nodes-crossing", 3, |_| {}) else { return };
    let mut client = world.client();
    assert_eq!(said(&mut client, "SET a 1"), ok());
    for line in [
        "MGET a b",
        "MSET a 2 b 2",
        "DEL a b",
        "EXISTS a b",
        "RENAME a b",
        "SUNIONSTORE a b c",
        "EVAL return 2 a b",
        "WATCH a b",
        "BLPOP a b 1",
        "SINTERCARD 2 a b",
    ] {
        assert_eq!(said(&mut client, line), Reply::Error(CROSSSLOT.to_owned()), "{line}");
    }
    assert_eq!(said(&mut client, "MULTI"), ok());
    assert_eq!(said(&mut client, "SET a 2"), queued());
    assert_eq!(said(&mut client, "SET b 2"), queued());
    assert_eq!(said(&mut client, "EXEC"), Reply::Error(CROSSSLOT.to_owned()));
    is_error(&said(&mut client, "EXEC"), "ERR EXEC without MULTI");
    assert_eq!(said(&mut client, "MSET {a}1 1 {a}2 2"), ok());
    assert_eq!(said(&mut client, "MGET {a}1 {a}2"), Reply::Array(vec![bulk("1"), bulk("2")]));
    is_error(&said(&mut client, "SELECT 1"), "ERR");
    assert_eq!(said(&mut client, "GET a"), bulk("1"));
    assert_eq!(world.live(), 3, "{}", world.info());
    is_mended(&world);
}

/// Killed, stopped, wiped: as of plain servers, no increment is lost or done twice.
#[test]
fn nodes_that_are_killed_stopped_or_wiped_are_brought_up_to_date() {
    let Some(mut world) = World::of_nodes("nodes-away", 3, |_| {}) else { return };
    let mut client = world.client();
    let mut count = 0;
    let mut counted = |client: &mut Client| {
        for _ in 0..200 {
            count += 1;
            let line = format!("INCR k{}", count % 7);
            assert_eq!(said(client, &line), Reply::Integer((count - 1) / 7 + 1), "{count}");
        }
    };
    // `k0` begins with the seventh.
    for n in 1..=6 {
        assert_eq!(said(&mut client, &format!("SET k{n} 0")), ok());
    }
    counted(&mut client);
    world.redises[ODD].kill();
    counted(&mut client);
    world.redises[ODD].start();
    is_mended(&world);
    world.redises[ODD].program.signal("-STOP");
    counted(&mut client);
    world.redises[ODD].program.signal("-CONT");
    is_mended(&world);
    world.redises[ODD].kill();
    world.redises[ODD].wipe();
    counted(&mut client);
    world.redises[ODD].start();
    is_told(&world, ODD, "has 0 of the 16384 slots");
    world.redises[ODD].take_all_slots();
    is_mended(&world);
    counted(&mut client);
    is_mended(&world);
}

/// Its client is told to go elsewhere by the node alone: nobody follows that past the service.
#[test]
fn a_slot_that_is_moved_away_costs_its_node_and_no_write() {
    let Some(world) = World::of_nodes("nodes-moved", 3, |_| {}) else { return };
    let folder = Folder::new("duplicates-nodes-moved-other");
    let other = other_node(&folder, &world.redises[ODD]);
    let mut client = world.client();
    written(&mut client, &[&["INCR", "b"], &["SET", "a", "0"], &["INCR", "b"]]);
    world.settle();
    give_slot(FOO, &world.redises[ODD], &other);
    written(
        &mut client,
        &[&["INCR", "foo"], &["INCR", "b"], &["SET", "a", "1"], &["INCR", "b"], &["GET", "foo"]],
    );
    is_told(&world, ODD, "has 16383 of the 16384 slots");
    is_told(&world, ODD, &format!("{} has slots as well", other.address));
    let (mut odd, mut elsewhere) = (world.redises[ODD].client(), other.client());
    block_until("it is no history any more", || odd.ask(&["GET", "evenkeel:epoch"]) == Reply::Null);
    assert_eq!(elsewhere.ask(&["DBSIZE"]), Reply::Integer(0), "nobody wrote past the service");
    give_slot(FOO, &other, &world.redises[ODD]);
    is_mended(&world);
    assert_eq!(odd.ask(&["GET", "foo"]), bulk("1"));
    assert_eq!(odd.ask(&["GET", "b"]), bulk("4"));
    assert_eq!(said(&mut client, "INCR b"), Reply::Integer(5));
    is_mended(&world);
}

/// What it did has no watermark then; were it done again from the log, counters would be too high.
#[test]
fn a_node_that_lost_the_slot_of_its_watermark_does_nothing_twice() {
    let Some(world) = World::of_nodes("nodes-mark", 3, |_| {}) else { return };
    let (mut client, mut odd) = (world.client(), world.redises[ODD].client());
    assert_eq!(said(&mut odd, "CONFIG SET cluster-require-full-coverage no"), ok());
    for round in 1..=3 {
        assert_eq!(said(&mut client, "INCR b"), Reply::Integer(22 * round - 21));
        world.settle();
        assert_eq!(said(&mut odd, &format!("CLUSTER DELSLOTS {WATERMARK}")), ok());
        written(&mut client, &[&["INCR", "b"][..]].repeat(21));
        is_told(&world, ODD, "has 16383 of the 16384 slots");
        assert_eq!(said(&mut odd, &format!("CLUSTER ADDSLOTS {WATERMARK}")), ok());
        is_mended(&world);
        assert_eq!(odd.ask(&["GET", "b"]), bulk(&(22 * round).to_string()));
    }
}

#[test]
fn a_node_whose_cluster_is_down_comes_back_when_that_is_up() {
    let Some(world) = World::of_nodes("nodes-down", 3, |_| {}) else { return };
    let (mut client, mut odd) = (world.client(), world.redises[ODD].client());
    written(&mut client, &[&["INCR", "b"], &["SET", "a", "0"]]);
    assert_eq!(said(&mut odd, &format!("CLUSTER DELSLOTS {FOO}")), ok());
    block_until("its cluster is down", || {
        said(&mut odd, "CLUSTER INFO").text().is_some_and(|it| it.contains("cluster_state:fail"))
    });
    written(&mut client, &[&["INCR", "b"], &["SET", "a", "1"], &["GET", "a"], &["INCR", "foo"]]);
    is_told(&world, ODD, "slots");
    assert_eq!(said(&mut odd, &format!("CLUSTER ADDSLOTS {FOO}")), ok());
    is_mended(&world);
    assert_eq!(odd.ask(&["GET", "b"]), bulk("2"));
}

#[test]
fn a_client_of_the_last_node_is_told_that_its_slot_is_gone_and_not_where_it_went() {
    let Some(world) = World::of_nodes("nodes-last", 1, |_| {}) else { return };
    let folder = Folder::new("duplicates-nodes-last-other");
    let other = other_node(&folder, &world.redises[0]);
    let mut client = world.client();
    assert_eq!(said(&mut client, "INCR b"), Reply::Integer(1));
    give_slot(FOO, &world.redises[0], &other);
    for line in ["INCR foo", "SET foo 7", "GET foo"] {
        is_error(&said(&mut client, line), "CLUSTERDOWN the duplicate does not serve this slot");
    }
    assert_eq!(said(&mut client, "INCR b"), Reply::Integer(2), "it goes on with the others");
    give_slot(FOO, &other, &world.redises[0]);
    block_until("it is served again", || said(&mut client, "GET foo") == Reply::Null);
    assert_eq!(said(&mut client, "INCR foo"), Reply::Integer(1));
}

/// Nobody else could tell what it has: it is told its watermark until it takes it.
#[test]
fn the_last_node_that_lost_the_slot_of_its_watermark_does_nothing_twice_either() {
    let Some(mut world) = World::of_nodes("nodes-last-mark", 1, |_| {}) else { return };
    let (mut client, mut direct) = (world.client(), world.redises[0].client());
    assert_eq!(said(&mut direct, "CONFIG SET cluster-require-full-coverage no"), ok());
    assert_eq!(said(&mut client, "INCR b"), Reply::Integer(1));
    world.settle();
    let before = direct.ask(&["GET", "evenkeel:watermark"]);
    assert_eq!(said(&mut direct, &format!("CLUSTER DELSLOTS {WATERMARK}")), ok());
    for n in 2..=20 {
        assert_eq!(said(&mut client, "INCR b"), Reply::Integer(n));
        assert_eq!(said(&mut client, "SET a 1"), ok());
    }
    assert_eq!(world.live(), 1);
    assert_eq!(said(&mut direct, &format!("CLUSTER ADDSLOTS {WATERMARK}")), ok());
    block_until("it has taken its watermark", || {
        let now = direct.ask(&["GET", "evenkeel:watermark"]);
        matches!(now, Reply::Bulk(_)) && now != before
    });
    world.restart();
    assert_eq!(said(&mut world.client(), "INCR b"), Reply::Integer(21));
}

#[test]
fn a_node_that_a_replica_may_replace_is_taken_once_none_may() {
    let Some(world) = World::of_nodes("nodes-replica", 3, |_| {}) else { return };
    let folder = Folder::new("duplicates-nodes-replica-other");
    let replica = other_node(&folder, &world.redises[ODD]);
    let (mut client, mut odd) = (world.client(), world.redises[ODD].client());
    assert_eq!(said(&mut client, "INCR b"), Reply::Integer(1));
    let name = id(&mut odd);
    let mut second = replica.client();
    assert_eq!(said(&mut second, &format!("CLUSTER REPLICATE {name}")), ok());
    block_until("it knows its replica", || {
        said(&mut odd, "CLUSTER NODES").text().is_some_and(|it| it.contains("slave"))
    });
    assert!(matches!(said(&mut odd, "CLIENT KILL TYPE normal SKIPME yes"), Reply::Integer(_)));
    is_told(&world, ODD, "expected cluster-replica-no-failover yes");
    assert_eq!(said(&mut client, "INCR b"), Reply::Integer(2));
    assert_eq!(said(&mut second, "CONFIG SET cluster-replica-no-failover yes"), ok());
    is_mended(&world);
    assert_eq!(said(&mut client, "INCR b"), Reply::Integer(3));
}

#[test]
fn a_server_that_is_no_node_is_told_so_and_the_only_shard_of_a_cluster_is_adopted() {
    let Some(mut world) = World::of_nodes("nodes-adopted", 1, |_| {}) else { return };
    world.stop();
    world.redises[0].kill();
    world.redises[0].wipe();
    let cluster = std::mem::take(&mut world.redises[0].arguments);
    world.redises[0].start();
    world.remove_files();
    world.expected = 0;
    world.restart();
    is_told(&world, 0, "expected cluster-enabled yes");
    world.redises[0].kill();
    world.redises[0].wipe();
    world.redises[0].arguments = cluster;
    world.redises[0].start();
    is_told(&world, 0, "has 0 of the 16384 slots");
    world.stop();
    world.redises[0].take_all_slots();
    let mut direct = world.redises[0].client();
    for n in 0..100 {
        assert_eq!(said(&mut direct, &format!("SET k{n} {n}")), ok());
    }
    world.expected = 1;
    world.restart();
    let mut client = world.client();
    assert_eq!(said(&mut client, "INCR k99"), Reply::Integer(100));
    assert_eq!(said(&mut client, "DBSIZE"), Reply::Integer(100));
}

/// Marks of groups are in the nodes' streams as those of plain servers are.
#[test]
fn a_front_that_keeps_no_log_follows_another_by_the_streams_of_nodes() {
    let in_memory = |config: &mut evenkeel_duplicates::DuplicatesConfig| {
        config.log.place = LogPlace::Memory;
    };
    let Some(mut world) = World::of_nodes("nodes-memory", 3, in_memory) else { return };
    let script = "redis.call('INCR', 'x') return redis.call('INCR', 'y')";
    for round in 1..=3 {
        let mut client = world.client();
        for n in 1..=50 {
            let count = (round - 1) * 50 + n;
            assert_eq!(said(&mut client, "INCR b"), Reply::Integer(count));
            assert_eq!(said(&mut client, &format!("SET a {count}")), ok());
        }
        assert_eq!(client.ask(&["EVAL", script, "0"]), Reply::Integer(round));
        world.restart();
        is_mended(&world);
    }
    assert_eq!(said(&mut world.client(), "GET b"), bulk("150"));
    for redis in &world.redises {
        let done = redis.client().ask(&["INFO", "commandstats"]);
        let done = done.text().expect("a text");
        assert!(!done.contains("cmdstat_restore"), "it was filled anew: {done}");
    }
}

/// Keys leave a partition many at a time.
#[test]
fn shards_move_between_partitions_of_nodes() {
    let dealt = |config: &mut evenkeel_duplicates::DuplicatesConfig| {
        let all = config.partitions.remove(0);
        config.partitions = all.chunks(2).map(<[_]>::to_vec).collect();
        config.shards = 4;
    };
    let Some(world) = World::of_nodes("nodes-shards", 4, dealt) else { return };
    let mut client = world.client();
    for n in 0..400 {
        assert_eq!(said(&mut client, &format!("SET k{n} {n}")), ok());
    }
    let order = |shard, to| evenkeel_duplicates::changes::ChangeRequest::MoveShard { shard, to };
    let shard = world.owners().iter().position(|owner| *owner == 0).expect("one of the first");
    assert_eq!(world.request_change(order(shard, 1)), Ok(()));
    for n in 0..400 {
        assert_eq!(said(&mut client, &format!("GET k{n}")), bulk(&n.to_string()));
    }
    block_until("nothing is left where it was", || {
        let count = |n: usize| match world.redises[n].client().ask(&["DBSIZE"]) {
            Reply::Integer(count) => count,
            other => panic!("{other:?}"),
        };
        count(0) + count(2) == 400 + 4 && world.live() == 4
    });
}
