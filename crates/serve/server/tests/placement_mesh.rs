//! Round trips that the mesh between data centres measures say where databases should be.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use evenkeel_core::distribution::Recorder;
use evenkeel_core::units::{Probability, Rate};
use evenkeel_geo::curve::{LoadStep, Profile, Saturation};
use evenkeel_placement::state::DatabaseState;
use evenkeel_server::config::Config;
use evenkeel_server::process::Process;
use evenkeel_settings::{Node, profile};
use evenkeel_testkit::certificates::Authority;
use evenkeel_testkit::distance::{Lane, Lanes};
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::story::{free_addresses, story_within};
use evenkeel_testkit::wait;

const NAMES: [&str; 3] = ["london", "ireland", "frankfurt"];

/// Round trips to each site, from wherever.
const TO_MS: [u64; 3] = [10, 20, 30];

/// Some profile of four servers.
fn some_profile() -> Profile {
    let mut latencies = Recorder::default();
    (0..1_000).for_each(|_| latencies.record(Duration::from_millis(20)));
    let write_share = Probability::ZERO;
    let (load, latencies) = (Rate::new(100.0).unwrap(), latencies.buckets().collect());
    let steps = [LoadStep { load, write_share, latencies, unanswered: 0 }].into();
    let saturations = vec![Saturation { write_share, load: Rate::new(200.0).unwrap() }];
    Profile { servers: 4.try_into().unwrap(), steps, saturations }
}

fn configuration(site: usize, listen: u16, peers: &[SocketAddr], placement: &str) -> String {
    let name = NAMES[site];
    let others = NAMES.iter().zip(11..).filter(|(other, _)| **other != name);
    let others: String =
        others.map(|(other, port)| format!("{other} = ['127.0.0.1:{port}']\n")).collect();
    let sites = NAMES.iter().zip(peers);
    let sites: String = sites
        .map(|(name, peer)| {
            format!(
                "[[redirect.sites]]\nname = '{name}'\npeer = '{peer}'\ncurves = ['four.toml']\n"
            )
        })
        .collect();
    format!(
        "[process]\nworkers = 1\n[[listen]]\naddress = '127.0.0.1:0'\nupstream = 'shop'\n\
         [upstream.shop]\nreplicas = ['127.0.0.1:9', '127.0.0.1:10']\n\
         [upstream.shop.sites]\n{others}\
         [redirect]\nupstream = 'shop'\nsite = '{name}'\nobjective = '100ms'\nperiod = '400ms'\n\
         listen = '127.0.0.1:{listen}'\ncertificate = '{name}/site.pem'\nkey = '{name}/site.key'\n\
         ca_file = '{name}/authority.pem'\nprobe_interval = '20ms'\n{sites}{placement}"
    )
}

fn placement(more: &str) -> String {
    format!(
        "[placement]\nround_trips = 'mesh'\ninterval = '1s'\nintervals = 1\n{more}\
         [[placement.databases]]\nname = 'orders'\noperations = {{ csv = 'counts.csv' }}\n\
         today = {{ leader = 'frankfurt', voters = ['london', 'ireland', 'frankfurt'] }}\n"
    )
}

fn start(directory: &Path, site: usize, text: &str) -> Process {
    let path = directory.join(format!("{}.toml", NAMES[site]));
    std::fs::write(&path, text).unwrap();
    Process::start(Config::load(&path).unwrap_or_else(|problems| panic!("{problems}"))).unwrap()
}

/// Waits until it is decided.
async fn decided(process: &Process) -> DatabaseState {
    let state = wait::state(process.placement().unwrap(), |state| {
        let database = &state.databases[0];
        let problem = database.problem.as_ref().filter(|_| database.now_ms.is_none());
        assert!(problem.is_none_or(|it| it.contains("is not measured")), "{database:#?}");
        database.now_ms.is_some()
    });
    state.await.databases[0].clone()
}

#[test]
fn the_probes_of_all_sites_make_the_round_trips_of_placement() {
    let (directory, authority) = (Folder::new("placement-mesh"), Authority::new());
    std::fs::write(directory.file("four.toml"), profile::write(&some_profile())).unwrap();
    let counts = "interval,client,strong-read\n1,ireland,1000000\n";
    std::fs::write(directory.file("counts.csv"), counts).unwrap();
    NAMES.iter().for_each(|name| drop(authority.write(&directory.file(name), &[name])));
    let listens: [SocketAddr; 3] = free_addresses();
    story_within(Duration::from_secs(90), async {
        let lane = |(target, ms): (&SocketAddr, u64)| Lane {
            target: *target,
            base: Duration::from_millis(ms),
            residual: None,
        };
        let lanes = Lanes::start(listens.iter().zip(TO_MS).map(lane).collect(), 1).unwrap();
        let peers = [0, 1, 2].map(|site| lanes.address(site));
        let wants = [placement(""), placement("percentile = 99\n"), String::new()];
        let texts: Vec<String> = (0..3)
            .map(|site| configuration(site, listens[site].port(), &peers, &wants[site]))
            .collect();
        let processes: Vec<Process> = texts
            .iter()
            .enumerate()
            .map(|(site, text)| start(directory.path(), site, text))
            .collect();

        // Clients in Ireland read at the leader: in Frankfurt 30 ms away, in London 10. A busy
        // machine makes ways longer, never shorter.
        let mean = decided(&processes[0]).await;
        println!("{} {:?}", mean.why, mean.intervals[0]);
        let within = |ms: f64, least: f64| (least..least + 9.0).contains(&ms);
        assert!(within(mean.now_ms.unwrap(), 30.0), "{mean:#?}");
        assert_eq!(mean.goal.as_ref().unwrap().leader, "ireland");
        assert_eq!(mean.goal_ms, Some(0.5), "what a site needs to itself");
        let second = &mean.intervals[0].best[1];
        assert!(second.layout.leader == "london" && within(second.latency_ms, 10.0), "{second:?}");

        let tail = decided(&processes[1]).await;
        let (now_ms, mean_ms) = (tail.now_ms.unwrap(), mean.now_ms.unwrap());
        println!("{}", tail.why);
        assert!(now_ms >= 30.0 && now_ms.fract() == 0.0, "on steps of 1 ms: {now_ms}, {mean_ms}");
        for process in processes {
            process.stop().unwrap();
        }
    });
}

#[test]
fn a_follower_has_no_round_trips_to_place_by() {
    let peers = [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let text = configuration(0, 9_999, &peers, &placement(""));
    let text = text.replace("listen = '127.0.0.1:9999'", "controller = '127.0.0.1:9999'");
    let needed = |line: &&str| !line.starts_with("peer") && !line.starts_with("curves");
    let text: String = text.lines().filter(needed).map(|line| format!("{line}\n")).collect();
    let problems = Config::read(&Node::parse(&text, "run.toml").unwrap()).unwrap_err();
    let found: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].contains("a follower measures no round trips"), "{found:#?}");
}
