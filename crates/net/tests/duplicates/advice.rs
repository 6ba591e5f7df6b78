//! What the manager says of two stores in this process that pause.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use evenkeel_core::request::ordered::{Consistency, MembersConfig};
use evenkeel_net::clock::Clock;
use evenkeel_net::duplicates::layout::MapPlace;
use evenkeel_net::duplicates::log::LogSettings;
use evenkeel_net::duplicates::state::Advice;
use evenkeel_net::duplicates::store::Pauses;
use evenkeel_net::duplicates::store::embedded::EmbeddedSettings;
use evenkeel_net::duplicates::{DuplicatesConfig, ManagerSettings, Service, Target};
use evenkeel_net::http::engine::worker_runtime;
use evenkeel_net::resp::request::Limits;
use tokio::sync::watch;

use super::client::{Client, Reply};

const MS: Duration = Duration::from_millis(1);
const WINDOWS: u64 = 4;

/// Two duplicates that answer nobody 40 % of the time, in pauses of 100 ms.
fn config(name: &str, seeds: [u64; 2]) -> DuplicatesConfig {
    let id = std::process::id();
    let directory = std::env::temp_dir().join(format!("evenkeel-advice-{name}-{id}"));
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    let target = |(n, seed): (usize, u64)| Target::Embedded {
        settings: EmbeddedSettings::at(&directory.join(format!("{n}.redb"))),
        pauses: Some(Pauses { every: 150 * MS, length: 100 * MS, seed }),
    };
    DuplicatesConfig {
        name: name.to_owned(),
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        partitions: vec![seeds.into_iter().enumerate().map(target).collect()],
        shards: 16,
        consistency: Consistency::Eventual,
        read_copies: 64,
        members: MembersConfig::default(),
        log_directory: directory.join("log"),
        map: MapPlace::File(directory.join("layout")),
        spares: Vec::new(),
        log: LogSettings::default(),
        password: None,
        limits: Limits::default(),
        clients_max: 1_000,
        idle_max: None,
        etcd: None,
        manager: Some(ManagerSettings {
            window: Duration::from_secs(4),
            ..ManagerSettings::new(20 * MS)
        }),
    }
}

/// Asks 200 times a second, whatever comes back, and collects what is said of each window.
fn advised(config: &DuplicatesConfig) -> Vec<Advice> {
    drop(Service::open(config).unwrap()); // then both open at once
    let service = Service::open(config).unwrap();
    let (address, state) = (service.address().unwrap(), service.state());
    let (stop, stopping) = watch::channel(false);
    let server = std::thread::spawn(move || {
        worker_runtime().unwrap().block_on(service.run(Clock::start(), async move {
            let mut stopping = stopping;
            let _ = stopping.wait_for(|stop| *stop).await;
        }))
    });
    let begun = Instant::now();
    let (mut client, mut said) = (Client::connect(address), Vec::<Advice>::new());
    while client.ask(&["GET", "k"]) != Reply::Null {
        assert!(begun.elapsed() < Duration::from_secs(20), "no duplicate is live");
        std::thread::sleep(10 * MS);
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let mut reader = client.reader();
    let reading = std::thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || while !is_over.load(Ordering::Relaxed) && reader.try_read().is_ok() {}
    });
    let mut next = Instant::now();
    while said.len() < WINDOWS as usize {
        assert!(begun.elapsed() < Duration::from_secs(60), "too few windows: {said:?}");
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
    stop.send(true).unwrap();
    server.join().unwrap().unwrap();
    let _ = std::fs::remove_dir_all(config.log_directory.parent().unwrap());
    said
}

#[test]
fn independent_pauses_are_masked_as_predicted() {
    let said = advised(&config("independent", [1, 2]));
    let last = said.last().unwrap();
    assert_eq!(last.outliers.as_ref().unwrap().duplicates_help, Some(true), "{last:?}");
    // Alone a duplicate is late for 80 of each 250 ms; both are by chance in a tenth of the time.
    let of = |it: fn(&Advice) -> f64| said.iter().map(it).sum::<f64>() / said.len() as f64;
    let (measured, alone) = (of(|it| it.measured_within), of(|it| it.measured_within_alone));
    assert!((alone - 0.68).abs() < 0.12 && measured > alone + 0.1, "{alone} {measured}");
    let predicted = of(|it| it.predicted_within.unwrap());
    // 130 pauses: the share that overlap is itself uncertain to 3 points.
    assert!((predicted - measured).abs() < 0.08, "{predicted} predicted, {measured} measured");
}

#[test]
fn pauses_of_all_at_once_are_not_masked() {
    let said = advised(&config("coinciding", [1, 1]));
    let last = said.last().unwrap();
    let outliers = last.outliers.as_ref().unwrap();
    assert_eq!((outliers.verdict, outliers.duplicates_help), ("coincide", Some(false)), "{last:?}");
    assert!(last.why.contains("duplicates do not help here"), "{}", last.why);
    assert!(said.iter().all(|it| !it.what.contains("add")), "{said:?}");
}
