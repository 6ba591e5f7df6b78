//! The disk of the log is full.

use evenkeel_testkit::disk::SmallDisk;
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::redis::{Client, Reply};
use evenkeel_testkit::wait::{block_for, block_until};

use super::world::World;
use super::{bulk, ok};

/// Writes keys of this prefix until one is refused; how many were acknowledged, and why.
fn written(client: &mut Client, prefix: &str) -> (usize, String) {
    let value = "x".repeat(3_000);
    for n in 0.. {
        match client.ask(&["SET", &format!("{prefix}{n}"), &value]) {
            Reply::Error(why) => return (n, why),
            answer => assert_eq!(answer, ok()),
        }
    }
    unreachable!("it never was full")
}

#[test]
fn with_a_full_disk_reads_go_on_and_so_do_writes_when_there_is_room() {
    let folder = Folder::new("duplicates-full-disk");
    let Some(disk) = SmallDisk::mount(folder.path(), 6) else { return };
    let log = folder.file("log");
    let Some(mut world) = World::start("full", 3, |config| config.log_directory = log) else {
        return;
    };
    let mut client = world.client();
    assert_eq!(client.ask(&["SET", "before", "1"]), ok());
    let mut acknowledged = Vec::new();
    for round in ["a", "b"] {
        disk.fill(30_000);
        let (count, why) = written(&mut client, round);
        acknowledged.extend((0..count).map(|n| format!("{round}{n}")));
        assert!(count > 0 && why.starts_with("UNCERTAIN"), "{count}: {why}");
        let Reply::Error(why) = client.ask(&["SET", "more", "1"]) else { panic!("it is full") };
        assert!(why.contains("make room on the disk"), "{why}");
        assert!(world.state_now().log.failed);
        block_until("all are live for reads", || world.live() == 3);
        for level in ["read-my-own-writes", "eventual", "strong"] {
            assert_eq!(client.ask(&["EK.SESSION", level]), ok());
            assert_eq!(client.ask(&["GET", "before"]), bulk("1"));
            assert_eq!(client.ask(&["GET", "more"]), Reply::Null);
        }
        disk.clear();
        let more = || client.ask(&["SET", &format!("more-{round}"), "1"]) == ok();
        block_until("writes are taken again", more);
        assert!(!world.state_now().log.failed);
    }
    world.settle();
    let before = world.states();
    assert_eq!(before.len(), 1, "duplicates differ");
    for key in &acknowledged {
        assert_eq!(client.ask(&["STRLEN", key]), Reply::Integer(3_000), "{key} was acknowledged");
    }
    world.redises[1].kill();
    world.redises[1].wipe();
    world.redises[1].start();
    world.restart();
    world.settle();
    assert_eq!(block_for("all are equal", || Some(world.states())), before);
    assert_eq!(world.client().ask(&["GET", "more-b"]), bulk("1"));
}
