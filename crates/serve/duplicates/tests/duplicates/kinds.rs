//! What a server is, besides its version: a node of a Redis Cluster, a replica; Valkey.

use evenkeel_testkit::redis::Reply;
use evenkeel_testkit::wait::{PATIENCE, block_until};

use super::world::World;
use super::{bulk, ok};

/// What the front says of why a duplicate is none, once it says this.
pub fn is_told(world: &World, duplicate: usize, why: &str) {
    block_until(why, || {
        let state = world.state();
        let error = state.partitions.first().and_then(|it| it.duplicates[duplicate].error.as_ref());
        error.is_some_and(|text| text.contains(why))
    });
}

/// A partition goes on without it, and it is one again on the data that it has.
#[test]
fn a_node_of_a_redis_cluster_is_told_what_to_change_and_goes_on_with_its_data() {
    let Some(mut world) = World::start("clusternode", 3, |_| {}) else { return };
    assert_eq!(world.client().ask(&["SET", "a", "1"]), ok());
    world.settle();
    let count = world.redises[2].client().ask(&["DBSIZE"]);
    world.redises[2].kill();
    world.redises[2].arguments = ["--cluster-enabled", "yes"].map(str::to_owned).to_vec();
    world.redises[2].start();
    is_told(&world, 2, "expected cluster-enabled no");
    assert_eq!(world.redises[2].client().ask(&["DBSIZE"]), count, "nobody has emptied it");
    assert_eq!(world.client().ask(&["INCR", "a"]), Reply::Integer(2));
    world.redises[2].kill();
    world.redises[2].arguments.clear();
    world.redises[2].start();
    world.wait_live(3, PATIENCE);
    world.settle();
    assert_eq!(world.redises[2].client().ask(&["GET", "a"]), bulk("2"));
    assert_eq!(world.states().len(), 1, "duplicates differ");
}

/// The only shard of a Redis Cluster, with slots and data, becomes the only duplicate.
#[test]
fn the_data_of_a_redis_cluster_of_one_shard_is_kept_when_it_becomes_a_duplicate() {
    let Some(mut world) = World::start("onlyshard", 1, |_| {}) else { return };
    world.stop();
    let redis = &mut world.redises[0];
    redis.kill();
    redis.wipe();
    redis.arguments = ["--cluster-enabled", "yes"].map(str::to_owned).to_vec();
    redis.start();
    let mut direct = redis.client();
    assert_eq!(direct.ask(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]), ok());
    block_until("it has all slots", || direct.ask(&["SET", "a", "1"]) == ok());
    world.remove_files();
    world.expected = 0;
    world.restart();
    is_told(&world, 0, "cluster-enabled no");
    world.redises[0].kill();
    world.redises[0].arguments.clear();
    world.redises[0].start();
    world.wait_live(1, PATIENCE);
    assert_eq!(world.client().ask(&["INCR", "a"]), Reply::Integer(2));
}

#[test]
fn a_replica_is_not_taken_until_it_is_a_master() {
    let Some(world) = World::start("replica", 3, |_| {}) else { return };
    assert_eq!(world.client().ask(&["SET", "a", "1"]), ok());
    world.settle();
    let (mut direct, master) = (world.redises[2].client(), world.redises[0].address);
    let (host, port) = (master.ip().to_string(), master.port().to_string());
    assert_eq!(direct.ask(&["REPLICAOF", &host, &port]), ok());
    // Its connections stay; the next write is refused there.
    assert_eq!(world.client().ask(&["INCR", "a"]), Reply::Integer(2));
    is_told(&world, 2, "expected a master");
    assert_eq!(direct.ask(&["REPLICAOF", "NO", "ONE"]), ok());
    world.wait_live(3, PATIENCE);
    world.settle();
    assert_eq!(world.client().ask(&["INCR", "a"]), Reply::Integer(3));
    world.settle();
    assert_eq!(world.states().len(), 1, "duplicates differ");
}

/// Also where the servers are Valkey (`EVENKEEL_REDIS_SERVER`), whose own version is another.
#[test]
fn clients_are_told_the_version_of_redis_that_servers_are_compatible_with() {
    let Some(world) = World::start("version", 1, |_| {}) else { return };
    let version = |about: &Reply| {
        let lines = about.text().unwrap().lines();
        lines.filter_map(|it| it.strip_prefix("redis_version:")).next().unwrap().to_owned()
    };
    let direct = version(&world.redises[0].client().ask(&["INFO", "server"]));
    assert_eq!(version(&world.client().ask(&["INFO", "server"])), direct);
    let Reply::Array(hello) = world.client().ask(&["HELLO", "2"]) else { panic!("no greeting") };
    assert_eq!(hello[..4], [bulk("server"), bulk("redis"), bulk("version"), bulk(&direct)]);
}
