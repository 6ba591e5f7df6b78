//! What is said of what goes wrong: once when it begins and once when it ends, however long it
//! takes; and moves that do not come true, which are not tried again at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use evenkeel_placement::PlacementState;
use evenkeel_placement::state::CountsState;
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::log::{self, count as logged};
use evenkeel_testkit::story::story;
use serde_json::json;

use crate::common::Placing;
use crate::{servers, stream_led_by};

/// A stream of one server that answers, and of two that do not; all clients are at another site
/// than its leader.
fn placing(folder: &Folder, database: &str, server: std::net::SocketAddr, more: &str) -> Placing {
    let trips = "x,s0,s1,s2\ns0,0.5,60,80\ns1,60,0.5,70\ns2,80,70,0.5\n";
    std::fs::write(folder.file("rtt.csv"), trips).unwrap();
    let counts = servers::prometheus("s1");
    let gone = evenkeel_testkit::story::nobody();
    let text = format!(
        "[placement]\nround_trips = 'rtt.csv'\naudit = 'audit.jsonl'\nintervals = 1\n{more}\
         [[placement.databases]]\nname = '{database}'\n\
         operations = {{ prometheus = 'http://{counts}' }}\n\
         [placement.databases.system]\nkind = 'nats'\nstream = 'orders'\nstep = '1s'\n\
         members.s0 = {{ client = '{gone}' }}\nmembers.s1 = {{ client = '{server}' }}\n\
         members.s2 = {{ client = '{gone}' }}\n"
    );
    Placing::start_every(folder.path(), &text, Some(Duration::from_millis(100)))
}

fn counts(state: &PlacementState) -> CountsState {
    state.databases[0].counts
}

#[test]
fn a_store_that_cannot_be_seen_is_told_once_and_counted_every_time() {
    log::keep();
    let is_well = Arc::new(AtomicBool::new(false));
    let server = {
        let is_well = Arc::clone(&is_well);
        servers::nats(move |_| match is_well.load(Ordering::Relaxed) {
            true => stream_led_by(1),
            false => json!({"error": {"code": 503, "description": "no quorum"}}),
        })
    };
    story(async {
        let folder = Folder::new("told-unseen");
        let placing = placing(&folder, "unseen", server, "");
        let state = placing.until(|state| counts(state).store_failures >= 3).await;
        let problem = state.databases[0].problem.clone().unwrap_or_default();
        // What each member said.
        assert!(problem.contains("no quorum") && problem.contains("refused"), "{problem}");
        assert_eq!(state.databases[0].verdict, "undecided");
        assert_eq!(logged("unseen", "the store cannot be seen"), 1);

        is_well.store(true, Ordering::Relaxed);
        let state = placing.until(|state| state.databases[0].layout.is_some()).await;
        let (failures, rounds) = (counts(&state).store_failures, state.rounds);
        placing.until(|state| state.rounds > rounds + 2).await;
        assert_eq!(logged("unseen", "the store cannot be seen: no longer"), 1);
        is_well.store(false, Ordering::Relaxed);
        placing.until(|state| counts(state).store_failures > failures + 2).await;
        assert_eq!(logged("unseen", "the store cannot be seen"), 3);
    });
}

/// Whoever is asked to step down says yes and stays.
#[test]
fn a_move_that_stopped_waits_for_the_cooldown_also_in_the_next_process() {
    let server = servers::nats(|_| stream_led_by(0));
    let acts = "dry_run = false\ncooldown = '1h'\n";
    story(async {
        let folder = Folder::new("told-stopped");
        let first = placing(&folder, "stopped", server, acts);
        let state = first.until(|state| counts(state).stopped == 1).await;
        let waits = state.databases[0].waits_for.clone().unwrap_or_default();
        assert!(waits.contains("move the leader from s0 to s1"), "by their names: {waits}");
        let rounds = state.rounds;
        let state = first.until(|state| state.rounds > rounds + 5).await;
        assert_eq!(counts(&state).stopped, 1, "it is not tried again");
        let why = &state.databases[0].why;
        assert!(why.contains("the last move was a short while ago"), "{why}");
        drop(first);

        let next = placing(&folder, "stopped", server, acts);
        let state = next.until(|state| counts(state).decided_to_stay >= 5).await;
        assert_eq!((counts(&state).stopped, counts(&state).decided_to_move), (0, 0), "{state:?}");
        drop(next);

        let log = std::fs::read_to_string(folder.file("audit.jsonl")).unwrap();
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let who = format!("evenkeel run on {}, process {}", host.trim(), std::process::id());
        assert!(log.lines().all(|line| line.contains(&who)), "{log}");

        // A clock that is set back: the cooldown begins anew, and does not take so many years.
        let later = log.replace("\"at\":\"20", "\"at\":\"21");
        std::fs::write(folder.file("audit.jsonl"), later).unwrap();
        let last = placing(&folder, "stopped", server, acts);
        let state = last.until(|state| counts(state).decided_to_stay >= 2).await;
        let why = &state.databases[0].why;
        assert!(["after 1h", "after 59m"].iter().any(|left| why.contains(left)), "{why}");
    });
}

#[test]
fn in_a_dry_run_a_move_that_was_cut_off_is_told_and_left() {
    log::keep();
    let server = servers::nats(|_| stream_led_by(0));
    story(async {
        let folder = Folder::new("told-dry");
        let layout = |leader: &str| {
            json!({"leader": leader, "voters": ["s0", "s1", "s2"],
                                           "replicas": ["s0", "s1", "s2"]})
        };
        let starts = json!({"at": "2026-01-01T00:00:00.000Z", "cluster": "dry", "event": "starts",
                            "from": layout("s0"), "goal": layout("s1")});
        std::fs::write(folder.file("audit.jsonl"), format!("{starts}\n")).unwrap();
        let placing = placing(&folder, "dry", server, "");
        let state = placing.until(|state| !state.databases[0].would_do.is_empty()).await;
        assert_eq!(state.databases[0].moves[0].event, "interrupted");
        assert_eq!(logged("dry", "is not finished (with dry_run nothing is changed)"), 1);
    });
}
