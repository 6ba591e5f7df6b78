//! What the manager says of two stores in this process that pause: measured, so alone.

#![expect(clippy::unwrap_used, reason = "a test may fail")]
#![allow(unreachable_pub, reason = "rooms of a test")]

#[path = "duplicates/config.rs"]
mod config;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use evenkeel_duplicates::state::Advice;
use evenkeel_duplicates::{DuplicatesConfig, ManagerSettings, Service, Target};
use evenkeel_ordered::Consistency;
use evenkeel_runtime::clock::Clock;
use evenkeel_stores::store::Pauses;
use evenkeel_stores::store::embedded::EmbeddedSettings;
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::redis::{Client, Reply};
use evenkeel_testkit::story::{MS, Running};
use evenkeel_testkit::wait::block_until;

/// Of fewer, the pauses that overlap are too few to compare shares with what is foretold.
const WINDOWS: u64 = 8;

/// Two duplicates that answer nobody 40 % of the time, in pauses of 100 ms.
fn pausing(name: &str, seeds: [u64; 2], folder: &Folder) -> DuplicatesConfig {
    let target = |(n, seed): (usize, u64)| Target::Embedded {
        settings: EmbeddedSettings::at(&folder.file(&format!("{n}.redb"))),
        pauses: Some(Pauses { every: 150 * MS, length: 100 * MS, seed }),
    };
    let partitions = vec![seeds.into_iter().enumerate().map(target).collect()];
    let window = Duration::from_secs(4);
    DuplicatesConfig {
        consistency: Consistency::Eventual,
        manager: Some(ManagerSettings { window, ..ManagerSettings::new(20 * MS) }),
        ..config::config(name, partitions, folder.path())
    }
}

/// Asks 200 times a second, whatever comes back, and collects what is said of each window.
fn advised(name: &str, seeds: [u64; 2]) -> Vec<Advice> {
    let folder = Folder::new(&format!("advice-{name}"));
    let config = pausing(name, seeds, &folder);
    drop(Service::open(&config).unwrap()); // then both open at once
    let service = Service::open(&config).unwrap();
    let (address, state) = (service.address(), service.state());
    let running = Running::start(move |signal| service.run(Clock::start(), signal));
    let (mut client, mut said) = (Client::connect(address), Vec::<Advice>::new());
    block_until("a duplicate is live", || client.ask(&["GET", "k"]) == Reply::Null);
    let is_over = Arc::new(AtomicBool::new(false));
    let mut reader = client.reader();
    let reading = std::thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || while !is_over.load(Ordering::Relaxed) && reader.try_read().is_ok() {}
    });
    let begun = Instant::now();
    let mut next = begun;
    while said.len() < WINDOWS as usize {
        assert!(begun.elapsed() < Duration::from_secs(90), "too few windows: {said:?}");
        next += 5 * MS;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        client.tell(&["GET", "k"]);
        if let Some(advice) = &state.borrow().advice
            && said.last().is_none_or(|last| last.windows < advice.windows)
        {
            println!("{advice:#?}");
            said.push(advice.clone());
        }
    }
    is_over.store(true, Ordering::Relaxed);
    client.tell(&["GET", "k"]);
    reading.join().unwrap();
    drop(running);
    said
}

#[test]
fn independent_pauses_are_masked_as_predicted() {
    let said = advised("independent", [1, 2]);
    let last = said.last().unwrap();
    assert_eq!(last.outliers.as_ref().unwrap().duplicates_help, Some(true), "{last:?}");
    // Alone a duplicate is late for 80 of each 250 ms; both are by chance in a tenth of the time.
    let of = |it: fn(&Advice) -> f64| said.iter().map(it).sum::<f64>() / said.len() as f64;
    let (measured, alone) = (of(|it| it.measured_within), of(|it| it.measured_within_alone));
    assert!((alone - 0.68).abs() < 0.12 && measured > alone + 0.1, "{alone} {measured}");
    let predicted = of(|it| it.predicted_within.unwrap());
    // 260 pauses: the share that overlap is itself uncertain to 2 points.
    assert!((predicted - measured).abs() < 0.08, "{predicted} predicted, {measured} measured");
}

#[test]
fn pauses_of_all_at_once_are_not_masked() {
    let said = advised("coinciding", [1, 1]);
    let last = said.last().unwrap();
    let outliers = last.outliers.as_ref().unwrap();
    assert_eq!((outliers.verdict, outliers.duplicates_help), ("coincide", Some(false)), "{last:?}");
    assert!(last.why.contains("duplicates do not help here"), "{}", last.why);
    assert!(said.iter().all(|it| !it.what.contains("add")), "{said:?}");
}
