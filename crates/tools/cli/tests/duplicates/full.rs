//! The disk of whoever leads is full.

use std::time::Instant;

use evenkeel_testkit::disk::SmallDisk;
use evenkeel_testkit::http;
use evenkeel_testkit::redis::{Client, Reply};
use evenkeel_testkit::wait::block_until as until;

use super::leadership::{Etcd, serves_after};
use super::outcome::Outcome;
use super::world::{Front, World};

/// Writes until a write is refused; the keys that were acknowledged.
fn fill(front: &Front, disk: &SmallDisk, prefix: &str) -> Vec<String> {
    disk.fill(30_000);
    let (mut client, value) = (front.client(), "x".repeat(3_000));
    let keys = (0..).map(|n| format!("{prefix}{n}"));
    keys.take_while(|key| {
        let outcome = Outcome::of(client.try_ask(&["SET", key, &value]));
        matches!(outcome, Outcome::Done(Reply::Simple(_)))
    })
    .collect()
}

fn is_ready(front: &Front) -> bool {
    http::get(front.admin.0, "/readyz").starts_with("HTTP/1.1 200")
}

fn lengths(client: &mut Client, keys: &[String]) {
    for key in keys {
        assert_eq!(client.ask(&["STRLEN", key]), Reply::Integer(3_000), "{key} was acknowledged");
    }
}

/// Alone it serves reads and comes back by itself; beside another one that one leads at once.
pub(crate) fn goes() {
    let Some(etcd) = Etcd::start("full") else { return };
    let Some(mut world) = World::of("full", &etcd.settings, &[3], 0) else { return };
    std::fs::create_dir_all(&world.front.directory).unwrap();
    let Some(disk) = SmallDisk::mount(&world.front.directory, 6) else { return };
    world.front.start();
    world.front.wait_live(3);

    let mut keys = fill(&world.front, &disk, "alone");
    until("it is not ready", || !is_ready(&world.front));
    let metrics = http::get(world.front.admin.0, "/metrics");
    assert!(metrics.contains("evenkeel_duplicates_log_failed{service=\"chaos\"} 1"), "{metrics}");
    world.front.wait_live(3);
    let mut client = world.front.client();
    lengths(&mut client, &keys);
    let Outcome::Refused(why) = Outcome::of(client.try_ask(&["SET", "k", "1"])) else {
        panic!("it is full")
    };
    assert!(why.contains("make room on the disk"), "{why}");
    client.ask(&["EK.SESSION", "strong"]);
    let Outcome::Refused(why) = Outcome::of(client.try_ask(&["GET", "k"])) else {
        panic!("another one may lead")
    };
    assert!(why.contains("was given up"), "{why}");
    disk.clear();
    until("it leads again", || {
        assert!(!world.front.process.has_ended(), "{}", world.front.journal());
        client.ask(&["SET", "k", "1"]) == Reply::Simple("OK".to_owned())
    });
    until("it is ready again", || is_ready(&world.front));

    let mut other = world.other_front("two");
    other.start();
    until("the second stands by", || other.has_role("stands by"));
    assert!(is_ready(&other), "for its turn");
    keys.extend(fill(&world.front, &disk, "beside"));
    let lasted = serves_after(&other, Instant::now());
    println!("the other served after {lasted:?}");
    until("the first ends", || world.front.process.has_ended());
    let journal = world.front.journal();
    assert!(journal.contains("another process has taken over"), "{journal}");
    disk.clear();
    world.front.start();
    until("the first stands by", || world.front.has_role("stands by"));
    other.settle(3);
    lengths(&mut other.client(), &keys);
    world.converged();
    assert_eq!(other.disagreements(), 0);
}
