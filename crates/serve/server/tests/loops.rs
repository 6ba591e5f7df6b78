//! Requests that would go round among several processes, which no file shows.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::net::SocketAddr;
use std::time::Duration;

use evenkeel_server::config::Config;
use evenkeel_server::process::Process;
use evenkeel_settings::Node;
use evenkeel_testkit::http;
use evenkeel_testkit::story::nobody;
use evenkeel_testkit::wait::block_until;

/// What limits requests beside their hops: with less, the loop could end by itself.
const UPSTREAM: &str = "retries_max = 3\nretry_budget = 1.0\n\
                        hedge = { quantile = 0.5, budget = 1.0, late_ratio_max = 1.0 }\n";

fn start(text: &str) -> Process {
    let node = Node::parse(text, "test.toml").unwrap_or_else(|p| panic!("{p}\n{text}"));
    Process::start(Config::read(&node).unwrap_or_else(|p| panic!("{p}\n{text}"))).unwrap()
}

fn proxy(at: SocketAddr, replicas: &str, more: &str) -> Process {
    start(&format!(
        "[process]\nworkers = 1\n[[listen]]\naddress = '{at}'\nupstream = 'web'\n\
         [upstream.web]\nreplicas = [{replicas}]\n{more}"
    ))
}

/// Requests that ended, over both.
fn ended(processes: &[&Process]) -> u64 {
    let total = |process: &&Process| process.upstreams().stats(0).total;
    processes.iter().map(total).map(|it| it.answered + it.refused + it.abandoned).sum()
}

/// Asks once; says how many requests it became.
fn asked(at: SocketAddr, processes: &[&Process]) -> u64 {
    let answer = http::get(at, "/");
    assert!(answer.starts_with("HTTP/1.1 508"), "{answer}");
    assert!(http::body(&answer).starts_with("the request goes in a loop"), "{answer}");
    let mut before = 0;
    block_until("nobody is asked any more", || {
        std::thread::sleep(Duration::from_millis(500)); // two reports of the workers
        std::mem::replace(&mut before, ended(processes)) == before
    });
    before
}

#[test]
fn a_loop_through_two_processes_ends_after_sixteen_hops() {
    let [one, other] = [nobody(), nobody()];
    let first = proxy(one, &format!("'{other}'"), "");
    let second = proxy(other, &format!("'{one}'"), "");
    assert_eq!(asked(one, &[&first, &second]), 16, "the seventeenth is refused before it counts");
    first.stop().unwrap();
    second.stop().unwrap();
}

#[test]
fn a_loop_through_an_agent_ends_too() {
    let [one, agent] = [nobody(), nobody()];
    let first = proxy(one, &format!("'{agent}'"), "");
    let second = start(&format!("[[agent]]\nlisten = '{agent}'\napp = '{one}'\n"));
    assert_eq!(asked(one, &[&first]), 8, "every other hop is the agent's");
    first.stop().unwrap();
    second.stop().unwrap();
}

#[test]
fn a_loop_is_no_flood_where_failures_are_retried_and_hedged() {
    let [one, other] = [nobody(), nobody()];
    // The other address of the same machine: the file does not show that it is the same one.
    let replicas = |port: u16| format!("'127.0.0.1:{port}', '127.0.0.2:{port}'");
    let any = |at: SocketAddr| SocketAddr::new([0, 0, 0, 0].into(), at.port());
    let first = proxy(any(one), &replicas(other.port()), UPSTREAM);
    let second = proxy(any(other), &replicas(one.port()), UPSTREAM);
    let requests = asked(one, &[&first, &second]);
    assert!(requests < 200, "{requests} requests of one");
    first.stop().unwrap();
    second.stop().unwrap();
}
