//! What it costs that several processes lead: CPU time of the fronts for each command, where one
//! front leads 16 partitions and where three lead 16 groups of one. The same clients send the same
//! commands; what differs is by whom they are served.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use evenkeel_stores::resp::hash::slot;
use evenkeel_testkit::redis::{Client, Reply};
use evenkeel_testkit::wait::block_until as until;

use super::groups::Scene;
use super::leadership::Etcd;
use super::world::{Front, World};

const PARTITIONS: usize = 16;
const SLOTS: usize = 16_384;
/// Connections for each run of slots, and commands that each sends at once.
const CONNECTIONS: usize = 4;
const PIPELINE: usize = 16;
const LASTS: Duration = Duration::from_secs(8);
/// Long: the load takes both cores, and nobody is to lose a lease by it.
const LEASE: &str = "6s";
/// Ticks of the kernel's statistics of processes in a second.
const TICKS: f64 = 100.0;

/// One connection and what it sends again and again.
struct Load {
    client: Client,
    batch: Vec<u8>,
}

impl Load {
    /// To who leads the slots of this key.
    fn start(door: SocketAddr, key: &str) -> Self {
        let mut at = door;
        let client = loop {
            let mut client = Client::connect(at);
            match client.ask(&["SET", key, "x"]) {
                Reply::Error(text) if text.starts_with("MOVED ") => {
                    at = text.rsplit(' ').next().unwrap().parse().unwrap();
                }
                said => {
                    assert_eq!(said, Reply::Simple("OK".to_owned()));
                    break client;
                }
            }
        };
        let command = |number: usize| match number % 2 {
            0 => format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n$3\r\nabc\r\n", key.len()),
            _ => format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len()),
        };
        let batch = (0..PIPELINE).map(command).collect::<String>().into_bytes();
        Self { client, batch }
    }
}

/// Commands and CPU seconds of these fronts for each million of them.
fn measured(door: SocketAddr, fronts: &[Front]) -> (u64, f64) {
    let key_of = |run: usize, number: usize| {
        let first = run * SLOTS / PARTITIONS;
        let is_its = |key: &String| {
            let at = usize::from(slot(key.as_bytes()));
            (first..first + SLOTS / PARTITIONS).contains(&at)
        };
        (0..).map(|n| format!("key:{number}:{n}")).find(is_its).unwrap()
    };
    let keys = (0..PARTITIONS)
        .flat_map(|run| (0..CONNECTIONS).map(move |number| (run, number)))
        .map(|(run, number)| key_of(run, number));
    let mut loads: Vec<Load> = keys.map(|key| Load::start(door, &key)).collect();
    let mut commands = 0;
    let mut go_on = |lasts: Duration| {
        let begun = Instant::now();
        while begun.elapsed() < lasts {
            for load in &mut loads {
                load.client.try_send(&load.batch).unwrap();
            }
            for load in &mut loads {
                for _ in 0..PIPELINE {
                    let said = load.client.read();
                    assert!(!matches!(said, Reply::Error(_)), "{said:?}");
                }
            }
            commands += (loads.len() * PIPELINE) as u64;
        }
        std::mem::take(&mut commands)
    };
    go_on(LASTS / 4);
    let before: f64 = fronts.iter().map(cpu).sum();
    let done = go_on(LASTS);
    let spent = fronts.iter().map(cpu).sum::<f64>() - before;
    (done, spent * 1e6 / done as f64)
}

/// CPU seconds of a front, of all its threads, user and system.
fn cpu(front: &Front) -> f64 {
    let path = format!("/proc/{}/stat", front.process.id().unwrap());
    let text = std::fs::read_to_string(path).unwrap();
    let (_, fields) = text.rsplit_once(") ").unwrap(); // from the third one on
    let ticks = fields.split(' ').skip(11).take(2).map(|it| it.parse::<f64>().unwrap());
    ticks.sum::<f64>() / TICKS
}

/// Prints both, and what three cost for each command beside one, by the median of rounds.
pub(crate) fn three_beside_one() {
    let Some(etcd) = Etcd::start("cost-one") else { return };
    let settings = format!(
        "consistency = \"strong\"\nlog_sync = \"never\"\ncluster = \"127.0.0.1:0\"\n{}",
        etcd.settings.replace("2s", LEASE)
    );
    let Some(mut one) = World::of("cost-one", &settings, &[1; PARTITIONS], 0) else { return };
    let door = evenkeel_testkit::story::nobody();
    one.front.replace_words("127.0.0.1:0", &door.to_string());
    one.front.start();
    until("it leads", || one.front.has_role("leads"));
    one.front.wait_live(PARTITIONS);
    let Some(three) = Scene::with_lease("cost-three", PARTITIONS, 1, LEASE) else { return };
    three.wait_spread();
    let mut ratios: Vec<f64> = (0..5)
        .map(|round| {
            let (of_one, cpu_of_one) = measured(door, std::slice::from_ref(&one.front));
            let (of_three, cpu_of_three) = measured(three.doors[0], &three.fronts);
            println!(
                "round {round}: one front {cpu_of_one:.2} us of CPU for each of {of_one} commands, \
                 three {cpu_of_three:.2} us for each of {of_three}"
            );
            cpu_of_three / cpu_of_one
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    println!("three cost {:.2} of one for each command ({ratios:.2?})", ratios[2]);
    assert!(ratios[2] <= 1.1, "{ratios:?}");
}
