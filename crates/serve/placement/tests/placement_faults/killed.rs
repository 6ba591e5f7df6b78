//! A process that places is killed (SIGKILL) at each change that it asks for; the next one finishes
//! or undoes the move, and nobody helps.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::program::Program;
use evenkeel_testkit::story::story;

use crate::common::Placing;
use crate::etcd::{Cluster, SITES};
use crate::servers::prometheus;

const FOLDER: &str = "EVENKEEL_KILLED";
const INTERVAL: Duration = Duration::from_millis(300);

/// All clients are at s3; s1 and s2 are nearer than s0.
fn write_files(folder: &Folder, cluster: &Cluster) {
    let mut trips = "x,s0,s1,s2,s3\n".to_owned();
    for from in 0..SITES {
        let ms = |to: usize| match (from, to) {
            (from, to) if from == to => "0.5",
            (0, _) | (_, 0) => "100",
            _ => "10",
        };
        trips.push_str(&format!("s{from},{}\n", [0, 1, 2, 3].map(ms).join(",")));
    }
    std::fs::write(folder.file("rtt.csv"), trips).unwrap();
    let counts = prometheus("s3");
    let mut text = format!(
        "[placement]\nround_trips = 'rtt.csv'\ntier = 3\ndry_run = false\n\
         intervals = 1\naudit = 'audit.jsonl'\n\
         [[placement.databases]]\nname = 'orders'\nreplicas = 3\nvoters = 3\n\
         operations = {{ prometheus = 'http://{counts}' }}\n\
         [placement.databases.system]\nkind = 'etcd'\nhold = '5s'\nstep = '2s'\n"
    );
    for (site, address) in cluster.sites.iter().enumerate() {
        let peer = format!("http://peer-{site}:2380");
        text.push_str(&format!(
            "members.s{site} = {{ client = 'http://{address}', peer = '{peer}' }}\n"
        ));
    }
    std::fs::write(folder.file("run.toml"), text).unwrap();
}

fn start(folder: &std::path::Path) -> Placing {
    let text = std::fs::read_to_string(folder.join("run.toml")).unwrap();
    Placing::start_every(folder, &text, Some(INTERVAL))
}

/// Not a test: the process that a test kills.
#[test]
#[ignore = "a test starts it as a process of its own"]
fn a_process_that_places() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let _placing = start(&folder);
    std::thread::park();
}

/// Starts it.
fn process(folder: &Folder) -> Program {
    let this = std::env::current_exe().unwrap();
    let mut command = Command::new(this);
    command.args(["--exact", "killed::a_process_that_places", "--ignored", "--nocapture"]);
    command.env(FOLDER, folder.path()).stdin(Stdio::null()).stdout(Stdio::null());
    Program::start(&mut command)
}

/// Where it ends after somebody was killed at a change, and how the log calls that.
fn killed_at(change: usize, is_made: bool, runs_learners: bool) -> (Vec<usize>, usize, String) {
    let folder = Folder::new(&format!("killed-{change}-{is_made}-{runs_learners}"));
    let cluster = Cluster::start([0, 1, 2], Some((change, is_made)), runs_learners);
    write_files(&folder, &cluster);
    let mut first = process(&folder);
    cluster.wait_fatal();
    first.kill();
    cluster.end_lease();
    let (leader, voters, learners) = cluster.layout();
    println!("killed at {change} ({is_made}): {leader} leads {voters:?}, {learners:?} learn");
    let mut event = String::new();
    story(async {
        let next = start(folder.path());
        let state = next.until(|state| {
            let moves = &state.databases[0].moves;
            ["reached", "stopped"].contains(&moves.first().map_or("", |it| &it.event))
        });
        event = state.await.databases[0].moves[0].event.clone();
    });
    let (leader, voters, learners) = cluster.layout();
    assert_eq!(learners, [0; 0], "{change} {is_made}");
    (voters, leader, event)
}

#[test]
fn a_process_killed_at_any_change_of_a_move_leaves_what_the_next_one_finishes() {
    let there = (vec![0, 1, 3], 3, "reached".to_owned());
    let back = |event: &str| (vec![0, 1, 2], 0, event.to_owned());
    // A learner is added, votes, and leads; another voter goes.
    let all = [(0, false), (0, true), (1, false), (1, true), (2, false), (2, true), (3, false)];
    let cases = all.into_iter().chain([(3, true)]).map(|(change, is_made)| {
        std::thread::spawn(move || ((change, is_made), killed_at(change, is_made, true)))
    });
    for case in cases.collect::<Vec<_>>() {
        let (killed, ends) = case.join().unwrap();
        // Nothing was changed yet, so the next process decides for itself.
        let expected = if killed == (0, false) { back("stopped") } else { there.clone() };
        assert_eq!(ends, expected, "{killed:?}");
    }
    // A learner was added, and nobody starts it.
    assert_eq!(killed_at(0, true, false), back("stopped"));
}
