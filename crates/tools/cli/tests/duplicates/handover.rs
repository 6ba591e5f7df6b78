//! The moment in which either of two partitions may be the owner of a shard, drawn out.

use std::time::{Duration, Instant};

use evenkeel_testkit::redis::Reply;
use evenkeel_testkit::wait::block_until as until;

use super::leadership::Etcd;
use super::outcome::Outcome;
use super::world::{World, relay};

/// Of two shards it is in the first.
const KEY: &str = "k3";
/// How long etcd takes for a request, about.
const STORED_IN: Duration = Duration::from_millis(300);

fn is_handing_over(world: &World) -> bool {
    world.front.admin.moves().unwrap()["now"]["phase"] == "handing over"
}

fn begin(world: &World) {
    let set = world.front.client().ask(&["SET", KEY, "1"]);
    assert_eq!(set, Reply::Simple("OK".to_owned()));
    until("it is told who holds what", || {
        world.front.admin.moves().unwrap()["owners"] == serde_json::json!([0, 1])
    });
    let (status, said) = world.front.admin.order("{\"shard\": 0, \"to\": 1}").unwrap();
    assert_eq!(status, 202, "{said}");
    let begun = Instant::now();
    while !is_handing_over(world) {
        let moves = world.front.admin.moves().unwrap();
        assert!(begun.elapsed().as_secs() < 20, "{moves}\n{}", world.front.journal());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn end(world: &World, holds: &str) {
    world.front.admin.wait_moved();
    let owners = world.front.admin.moves().unwrap()["owners"].clone();
    assert_eq!(owners, serde_json::json!([1, 1]), "{}", world.front.journal());
    let value = world.front.client().ask(&["GET", KEY]);
    assert_eq!(value, Reply::bulk(holds));
    world.front.settle(2);
    world.converged_in(&world.partitions);
}

/// Two partitions of one, and a map that takes a while to be stored.
fn world(name: &str, change: impl FnOnce(&World)) -> Option<(World, Etcd)> {
    let etcd = Etcd::start(name)?;
    let way = relay(etcd.address, STORED_IN / 2).to_string();
    let settings = etcd.settings.replace(&etcd.address.to_string(), &way);
    let settings = settings.replace("\"2s\"", "\"6s\"");
    let settings = format!("shards = 2\nlog_sync = \"never\"\n{settings}");
    let mut world = World::of(name, &settings, &[1, 1], 0)?;
    change(&world);
    world.front.start();
    until("it leads", || world.front.has_role("leads"));
    world.front.wait_live(2);
    Some((world, etcd))
}

/// The target takes its time: whoever writes meanwhile is told when *it* has it.
pub(crate) fn both_must_have_a_write() {
    const AWAY: Duration = Duration::from_millis(100);
    let slow = |world: &World| {
        let target = world.redises[1].address;
        world.front.replace_in_config(target, relay(target, AWAY));
    };
    let Some((world, _etcd)) = world("both", slow) else { return };
    begin(&world);
    let mut client = world.front.client();
    let begun = Instant::now();
    let set = client.ask(&["SET", KEY, "2"]);
    assert_eq!(set, Reply::Simple("OK".to_owned()));
    let lasted = begun.elapsed();
    assert!(lasted > 2 * AWAY - AWAY / 4, "only the source can have it after {lasted:?}");
    end(&world, "2");
}

/// The map is on its way to etcd and the target dies: nobody knows who will be the owner, and no
/// write that the target has not is acknowledged.
pub(crate) fn nothing_is_acknowledged_without_the_target() {
    let Some((mut world, _etcd)) = world("storing", |_| {}) else { return };
    begin(&world);
    world.redises[1].program.kill();
    until("that is noticed", || world.front.live() == 1);
    let written = Outcome::of(world.front.client().try_ask(&["SET", KEY, "2"]));
    println!("written while the map was on its way: {written:?}");
    world.redises[1].start();
    world.front.wait_live(2);
    let holds = match &written {
        Outcome::Refused(why) => {
            assert!(why.contains("none of 1 duplicates is live"), "{why}");
            "1"
        }
        Outcome::Uncertain | Outcome::Done(Reply::Simple(_)) => "2",
        other => panic!("{other:?}"),
    };
    end(&world, holds);
}
