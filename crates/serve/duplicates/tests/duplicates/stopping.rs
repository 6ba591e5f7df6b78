//! A front that is told to stop: what clients get before their connections end.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use evenkeel_duplicates::Target;
use evenkeel_stores::store::embedded::EmbeddedSettings;
use evenkeel_testkit::redis::{Client, Reply};

use super::world::World;
use super::{bulk, ok};

fn world(name: &str, drain: Duration) -> World {
    World::over(name, Vec::new(), 2, |config| {
        let folder = config.log_directory.parent().unwrap().to_path_buf();
        let target = |n: usize| {
            let settings = EmbeddedSettings::at(&folder.join(format!("{n}.redb")));
            Target::Embedded { settings, pauses: None }
        };
        config.partitions = vec![(0..2).map(target).collect()];
        config.drain = drain;
    })
}

/// Sends batches of writes, the next before the last is answered, until the connection ends; the
/// writes that were answered.
fn count_up(mut client: Client, key: &str, answered: &AtomicUsize) -> i64 {
    let mut reader = client.reader();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let batch = format!("*2\r\n$4\r\nINCR\r\n${}\r\n{key}\r\n", key.len()).repeat(50);
            while client.try_send(batch.as_bytes()).is_ok() {}
        });
        let mut last = 0;
        while let Ok(came) = reader.try_read() {
            assert_eq!(came, Reply::Integer(last + 1));
            last += 1;
            answered.fetch_add(1, Ordering::Relaxed);
        }
        reader.close(); // whoever sends notices too
        last
    })
}

#[test]
fn every_write_that_is_applied_is_answered_though_the_front_stops_in_the_middle() {
    let mut world = world("stopped-under-load", Duration::from_secs(20));
    for round in 0..3 {
        // Not so many that the duplicates owe more than they may.
        let keys: Vec<String> = (0..3).map(|n| format!("{round}:{n}")).collect();
        let answered = [(); 3].map(|()| AtomicUsize::new(0));
        let counts: Vec<i64> = std::thread::scope(|scope| {
            let counting: Vec<_> = keys
                .iter()
                .zip(&answered)
                .map(|(key, answered)| (key, world.client(), answered))
                .map(|(key, client, answered)| scope.spawn(move || count_up(client, key, answered)))
                .collect();
            while answered.iter().any(|answered| answered.load(Ordering::Relaxed) < 300) {
                std::thread::yield_now();
            }
            world.stop();
            counting.into_iter().map(|counting| counting.join().unwrap()).collect()
        });
        world.restart();
        let mut client = world.client();
        for (key, count) in keys.iter().zip(counts) {
            assert_eq!(client.ask(&["GET", key]), bulk(&count.to_string()), "round {round}");
        }
    }
}

#[test]
fn a_command_that_has_begun_is_taken_when_the_rest_comes_and_waited_for_no_longer_than_a_drain() {
    let drain = Duration::from_millis(600);
    let mut world = world("stopped-in-between", drain);
    let [mut idle, mut begun, mut stuck] = [(); 3].map(|()| world.client());
    for client in [&mut idle, &mut begun, &mut stuck] {
        assert_eq!(client.ask(&["SET", "a", "1"]), ok());
    }
    begun.send(b"*3\r\n$3\r\nSET\r\n$1\r\nb\r\n$1\r\n");
    stuck.send(b"*3\r\n$3\r\nSET\r\n$1\r\nc\r\n$1\r\n");
    assert_eq!(world.client().ask(&["GET", "a"]), bulk("1")); // what was sent before is read
    let reported = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| world.stop());
        assert_eq!(idle.rest(), b"");
        begun.send(b"2\r\n*3\r\n$3\r\nSET\r\n$1\r\nb\r\n$1\r\n3\r\n");
        assert_eq!(begun.read(), ok());
        assert_eq!(begun.rest(), b"", "the next command came too late");
        begun.close();
        stuck.rest_or_reset();
        assert!(reported.elapsed() >= drain, "{:?}", reported.elapsed());
    });
    world.restart();
    let mut client = world.client();
    assert_eq!(client.ask(&["GET", "b"]), bulk("2"));
    assert_eq!(client.ask(&["GET", "c"]), Reply::Null);
}

/// Before it slept, a service looked 72 times a second whether there was something to do.
#[cfg(target_os = "linux")]
#[test]
fn a_service_that_nobody_asks_anything_sleeps() {
    let world = world("asleep", Duration::ZERO);
    assert_eq!(world.client().ask(&["SET", "a", "1"]), ok());
    let slept = || -> u64 {
        let status = std::fs::read_to_string(world.thread.join("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse().unwrap()
    };
    let begun = Instant::now();
    loop {
        let before = slept();
        std::thread::sleep(Duration::from_secs(1)); // a rate is what is measured
        let wakes = slept() - before;
        if wakes <= 2 {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "it woke {wakes} times in a second");
    }
}
