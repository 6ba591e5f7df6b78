//! Redirect over Cassandra's protocol on a real cluster of three data centres: what a plan sends to
//! coordinators elsewhere, what must stay and why, and what becomes of it when a node dies.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod world;

use std::time::Duration;

use evenkeel_core::request::ring::Consistency;
use evenkeel_core::request::ring::Stays;
use evenkeel_cql::{Opcode, Version};
use evenkeel_settings::profile::Record;
use evenkeel_testkit::cassandra::client::{Client, reported, rows_of};
use evenkeel_testkit::cassandra::{self, Cluster};
use evenkeel_testkit::wait::block_until;
use world::{SITES, Setup, Sites, Users, asked, curves, fill, load, spec};

const LONDON: usize = 0;
const IRELAND: usize = 1;
/// How the error of a node begins that knows of too few replicas.
const UNAVAILABLE: &str = "unavailable";
/// Requests per second of london's users: above what the curves say that one site can serve.
const HOT_PER_S: f64 = 120.0;
const CALM_PER_S: f64 = 20.0;

/// 60/s are no trouble, 80/s make one of two late, 100/s are too much.
fn steep() -> Record {
    curves(&[(20.0, 1.0), (40.0, 1.0), (60.0, 1.0), (80.0, 0.5), (100.0, 0.1)], 100.0)
}

/// Users everywhere; london's are many and ask as they are told.
fn crowd(sites: &Sites<'_>, keyspace: &str, consistency: Consistency) -> Vec<Users> {
    let begin = |site: usize| {
        let per_s = if site == LONDON { HOT_PER_S } else { CALM_PER_S };
        let mut load = load(sites.entrance(site), "everywhere", per_s);
        if site == LONDON {
            load = world::load(sites.entrance(site), keyspace, per_s);
            load.consistency = consistency;
        }
        Users::begin(load)
    };
    (0..SITES.len()).map(begin).collect()
}

fn stayed(sites: &Sites<'_>, why: Stays) -> u64 {
    sites.cluster(LONDON).stayed[why.index()]
}

fn away(sites: &Sites<'_>) -> u64 {
    let total = sites.stats(LONDON).split.unwrap().total();
    total.by_site.iter().skip(1).map(|counts| counts.sent).sum()
}

/// The cluster, with a table that all data centres have and one that only `east` has.
fn prepared() -> Option<&'static Cluster> {
    let cluster = cassandra::shared(spec)?;
    fill(cluster, "everywhere", &["east", "west", "far"]);
    fill(cluster, "at_home", &["east"]);
    Some(cluster)
}

#[test]
fn a_hot_site_asks_elsewhere_as_much_as_is_planned() {
    let Some(cluster) = prepared() else { return };
    let curves = steep();
    let sites = Sites::start(cluster, &Setup::new("hot", &curves));
    let users = crowd(&sites, "everywhere", Consistency::One);
    sites.wait_for_a_common_plan();
    block_until("london sends", || away(&sites) > 0);
    std::thread::sleep(3 * world::PERIOD);
    what_nodes_say_agrees(cluster, &sites);
    conditional_writes_stay(&sites);
    // What a dead node elsewhere had comes home.
    let mut node = Client::connect(cluster.address(LONDON), Version::V4, None).unwrap();
    let replication = "{'class': 'NetworkTopologyStrategy', 'west': 1}";
    node.change(&format!("create keyspace west_only with replication = {replication}"));
    node.change("create table west_only.t (id int primary key)");
    let known = Client::connect(sites.entrance(IRELAND), Version::V5, None).unwrap();
    sites.turn().kill(IRELAND);
    std::thread::sleep(Duration::from_secs(4));
    let new = Client::connect(sites.entrance(IRELAND), Version::V4, None).unwrap();
    for mut client in [known, new] {
        a_site_without_nodes_asks_through_others(&mut client);
    }
    for (site, user) in users.into_iter().enumerate().filter(|(site, _)| *site != IRELAND) {
        let report = user.end().report;
        assert_eq!(report.failed + report.timeouts, 0, "{site}: {report:?}");
    }
}

/// All that means the same there is served, or refused in a node's own words; what means replicas
/// at home is refused here.
fn a_site_without_nodes_asks_through_others(client: &mut Client) {
    let conditional = "update everywhere.turns set turn = 1 where id = 1 if turn = 0";
    for (text, consistency) in [
        ("select * from everywhere.turns", Consistency::One),
        ("select * from everywhere.turns where id = 1", Consistency::Quorum),
        ("select * from everywhere.turns where id = 1", Consistency::Serial),
        ("insert into everywhere.turns (id, turn) values (2, 0)", Consistency::Any),
        ("insert into west_only.t (id) values (1)", Consistency::Any),
        (conditional, Consistency::Quorum),
        ("select keyspace_name from system_schema.keyspaces", Consistency::One),
    ] {
        // Others may have no room for a moment.
        block_until(&format!("{text} at {consistency:?}"), || {
            let answer = client.query(text, consistency).unwrap();
            assert!(!reported(&answer).starts_with(UNAVAILABLE), "{text}: {}", reported(&answer));
            answer.opcode == Opcode::Result
        });
    }
    block_until("what has no replica is refused by a node", || {
        let answer = client.query("select * from west_only.t where id = 1", Consistency::One);
        reported(&answer.unwrap()).starts_with(UNAVAILABLE)
    });
    let answer = client.query("select * from everywhere.turns", Consistency::LocalOne).unwrap();
    let said = reported(&answer);
    assert!(said.starts_with("overloaded") && said.contains("nothing was sent"), "{said}");
}

fn what_nodes_say_agrees(cluster: &Cluster, sites: &Sites<'_>) {
    let nodes = || [0, 1, 2].map(|node| asked(cluster, node));
    let (before, sent_before) = (nodes(), away(sites));
    std::thread::sleep(Duration::from_secs(6));
    let (after, sent) = (nodes(), away(sites) - sent_before);
    let had: Vec<i64> = before.iter().zip(after).map(|(before, after)| after - before).collect();
    // Of 120/s about 60 are more than one site can serve well: between a third and two thirds go.
    assert!((200..=480).contains(&sent), "{sent} of about 720 went: {:?}", sites.flows(LONDON));
    // Their own users' 120 each, and what was sent; some more for what is asked about the cluster.
    let elsewhere = had[1] + had[2];
    let expected = 2.0 * 6.0 * CALM_PER_S + sent as f64;
    let error = (elsewhere as f64 - expected).abs() / expected;
    assert!(error < 0.15, "{had:?}, expected {expected} at the other two");
}

fn conditional_writes_stay(sites: &Sites<'_>) {
    let mut client = Client::connect(sites.entrance(LONDON), Version::V4, None).unwrap();
    client.change("create table if not exists everywhere.turns (id int primary key, turn int)");
    // Java meets Paxos for the first time: that alone can take longer than a write may.
    let first = "insert into everywhere.turns (id, turn) values (1, 0) if not exists";
    block_until("a first conditional write", || {
        client.query(first, Consistency::Quorum).unwrap().opcode == Opcode::Result
    });
    let before = stayed(sites, Stays::Conditional);
    for turn in 0..20 {
        let next = turn + 1;
        let text =
            format!("update everywhere.turns set turn = {next} where id = 1 if turn = {turn}");
        let answer = client.query(&text, Consistency::Quorum).unwrap();
        assert_eq!(answer.opcode, Opcode::Result, "turn {turn}: {}", reported(&answer));
        let rows = rows_of(&answer);
        assert_eq!(rows[0][0].as_deref(), Some(&[1][..]), "turn {turn} was applied");
    }
    block_until("they are counted", || stayed(sites, Stays::Conditional) >= before + 20);
}

#[test]
fn what_means_replicas_at_home_stays_and_is_planned_as_such() {
    let Some(cluster) = prepared() else { return };
    let curves = steep();
    let sites = Sites::start(cluster, &Setup::new("bound", &curves));
    for (keyspace, consistency, why) in [
        ("everywhere", Consistency::LocalQuorum, Stays::LocalConsistency),
        ("at_home", Consistency::One, Stays::NoReplica),
    ] {
        let users = crowd(&sites, keyspace, consistency);
        sites.wait_for_a_common_plan();
        block_until("london's load is known to stay", || stayed(&sites, why) > 300);
        // Demand is a mean over two epochs.
        std::thread::sleep(4 * world::PERIOD);
        let sent = away(&sites);
        let flows = sites.flows(LONDON);
        let planned = [1, 2].map(|to| sites.planned(LONDON, to).unwrap());
        std::thread::sleep(2 * world::PERIOD);
        assert_eq!(away(&sites) - sent, 0, "{consistency:?} of {keyspace}");
        assert_eq!(planned, [0.0, 0.0], "what cannot move is not planned to: {flows:?}");
        for user in users {
            let report = user.end().report;
            assert_eq!(report.failed + report.timeouts, 0, "{report:?}");
        }
    }
}
