//! What it costs that several processes lead: CPU time of the fronts for each command, where one
//! front leads 16 partitions and where three lead 16 groups of one. As many clients send the same
//! commands; what differs is by whom they are served.
//!
//! **In turn**: a process is there to serve as many clients as one process can, on a machine of its
//! own. So each of the three has all clients to itself, at its groups, one after the other; what
//! the others spend meanwhile counts as well. **At once** the same clients are spread over all
//! three, so each finds a third of the commands whenever it wakes: that is what it costs to have
//! three where one would do. It is printed, and no bar.

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
/// Connections, and commands that each sends at once.
const CONNECTIONS: usize = 64;
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

/// Commands that clients of these runs of slots had done, and CPU seconds of all these fronts.
fn measured(
    (door, fronts): (SocketAddr, &[Front]),
    (runs, connections): (&[usize], usize),
    lasts: Duration,
) -> (u64, f64) {
    let key_of = |run: usize, number: usize| {
        let first = run * SLOTS / PARTITIONS;
        let is_its = |key: &String| {
            let at = usize::from(slot(key.as_bytes()));
            (first..first + SLOTS / PARTITIONS).contains(&at)
        };
        (0..).map(|n| format!("key:{number}:{n}")).find(is_its).unwrap()
    };
    let numbers = 0..connections.div_ceil(runs.len());
    let keys = numbers.flat_map(|number| runs.iter().map(move |run| key_of(*run, number)));
    let mut loads: Vec<Load> = keys.take(connections).map(|key| Load::start(door, &key)).collect();
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
    go_on(lasts / 4);
    let before: f64 = fronts.iter().map(cpu).sum();
    let done = go_on(lasts);
    (done, fronts.iter().map(cpu).sum::<f64>() - before)
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
    let Some(scene) = Scene::with_lease("cost-three", PARTITIONS, 1, LEASE) else { return };
    scene.wait_spread();
    let (all, led): (Vec<usize>, _) = ((0..PARTITIONS).collect(), scene.led());
    let three = (scene.doors[0], &*scene.fronts);
    let in_turn = || {
        let each = led.iter().map(|runs| measured(three, (runs, CONNECTIONS), LASTS / 3));
        each.fold((0, 0.0), |sum, (done, spent)| (sum.0 + done, sum.1 + spent))
    };
    let each_us = |(done, spent): (u64, f64)| spent * 1e6 / done as f64;
    let mut ratios: Vec<[f64; 2]> = (0..5)
        .map(|round| {
            let one = (door, std::slice::from_ref(&one.front));
            let one = each_us(measured(one, (&all, CONNECTIONS), LASTS));
            let in_turn = each_us(in_turn());
            let at_once = each_us(measured(three, (&all, CONNECTIONS), LASTS));
            println!(
                "round {round}: one front {one:.2} us of CPU for each command, three in turn \
                 {in_turn:.2} us, three at once {at_once:.2} us"
            );
            [in_turn / one, at_once / one]
        })
        .collect();
    let median = |which: usize, ratios: &mut Vec<[f64; 2]>| {
        ratios.sort_by(|one, other| one[which].total_cmp(&other[which]));
        ratios[ratios.len() / 2][which]
    };
    let [in_turn, at_once] = [0, 1].map(|which| median(which, &mut ratios));
    println!("three cost {in_turn:.2} of one in turn, {at_once:.2} at once ({ratios:.2?})");
    assert!(in_turn <= 1.1, "{ratios:?}");
}
