//! Movers and members that fail: processes that are killed at each change, members that are none,
//! moves that do not come true. The stores are not real, so that each failure comes when it should.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "../common/mod.rs"]
mod common;
mod etcd;
mod killed;
mod servers;
mod told;

use std::net::SocketAddr;
use std::time::Duration;

use evenkeel_placement::act::Cluster as _;
use evenkeel_placement::act::audit::Audit;
use evenkeel_placement::act::etcd::{Etcd, Settings, Site};
use evenkeel_placement::act::mover::{Mover, Outcome};
use evenkeel_placement::act::nats::{self, Nats};
use evenkeel_placement::act::patroni::{self, Patroni};
use evenkeel_planner::model::Layout;
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::story::story;
use serde_json::{Value, json};

use crate::common::{RULES, order};
use crate::servers::{BAD, bad_http, bad_nats, http};

fn led_by(leader: usize) -> Layout {
    Layout::new(leader, vec![0, 1, 2], vec![0, 1, 2]).unwrap()
}

/// What a member of Patroni says of its cluster.
fn patroni_says(_: &str, _: &Value) -> Value {
    let state = "running";
    let member = |name, role| json!({"name": name, "role": role, "state": state, "lag": 0});
    let members = [member("s0", "replica"), member("s1", "leader"), member("s2", "replica")];
    json!({ "members": members })
}

/// What a server of NATS says of a stream that this one leads.
fn stream_led_by(leader: usize) -> Value {
    let follower = |site: usize| {
        let name = format!("s{site}");
        json!({"name": name, "current": true, "active": 1_000_000, "lag": 0})
    };
    let followers: Vec<Value> = (0..3).filter(|site| *site != leader).map(follower).collect();
    json!({"cluster": {"leader": format!("s{leader}"), "replicas": followers}})
}

const REQUEST: Duration = Duration::from_secs(1);

fn nats_of(sites: [SocketAddr; 3], folder: &Folder) -> Nats {
    let site = |at: usize| nats::Site { name: format!("s{at}"), client: sites[at].to_string() };
    Nats::new(nats::Settings {
        name: "stream".to_owned(),
        stream: "orders".to_owned(),
        sites: (0..3).map(site).collect(),
        request: REQUEST,
        user: None,
        lock: folder.file("lock"),
    })
    .unwrap()
}

#[test]
fn one_bad_member_of_nats_blinds_nobody() {
    let good = servers::nats(|_| stream_led_by(1));
    story(async {
        for how in BAD {
            let folder = Folder::new("bad-nats");
            for at in 0..3 {
                let mut sites = [good; 3];
                sites[at] = bad_nats(how);
                let seen = nats_of(sites, &folder).observe().await;
                assert_eq!(seen.map(|seen| seen.layout), Ok(led_by(1)), "{how:?} at {at}");
            }
            let all = nats_of([(); 3].map(|()| bad_nats(how)), &folder).observe().await;
            assert!(all.unwrap_err().may_pass, "{how:?}");
        }
    });
}

#[test]
fn one_bad_member_of_patroni_blinds_nobody() {
    let good = http(patroni_says);
    let cluster = |sites: [SocketAddr; 3], folder: &Folder| {
        let api = |at: usize| format!("http://{}", sites[at]);
        let site = |at: usize| patroni::Site { name: format!("s{at}"), api: api(at) };
        Patroni::new(patroni::Settings {
            name: "shop".to_owned(),
            sites: (0..3).map(site).collect(),
            request: REQUEST,
            switchover: REQUEST,
            user: None,
            authority: None,
            identity: None,
            lock: folder.file("lock"),
        })
        .unwrap()
    };
    let stranger = json!({"name": "p9", "role": "leader", "state": "running"});
    let other = move |_: &str, _: &Value| json!({"members": [stranger]});
    story(async {
        let folder = Folder::new("bad-patroni");
        let bad = BAD.map(bad_http).into_iter().chain([http(other)]);
        for (how, bad) in bad.enumerate() {
            for at in 0..3 {
                let mut sites = [good; 3];
                sites[at] = bad;
                let seen = cluster(sites, &folder).observe().await;
                assert_eq!(seen.map(|seen| seen.layout), Ok(led_by(1)), "{how} at {at}");
            }
        }
    });
}

fn etcd_of(sites: [SocketAddr; etcd::SITES]) -> Etcd {
    let site = |at: usize| Site {
        name: format!("s{at}"),
        client: format!("http://{}", sites[at]),
        peer: format!("http://peer-{at}:2380"),
        start: Vec::new(),
    };
    Etcd::new(Settings {
        name: "orders".to_owned(),
        sites: (0..etcd::SITES).map(site).collect(),
        request: REQUEST,
        user: None,
        authority: None,
        identity: None,
        hold: Duration::from_secs(5),
    })
    .unwrap()
}

/// The bad one is asked first where anybody will do.
#[test]
fn one_bad_member_of_etcd_blinds_nobody_and_keeps_nobody_from_moving() {
    let of_another_cluster = |_: &str, _: &Value| {
        let header = json!({"cluster_id": "8", "member_id": "1"});
        json!({"header": header, "leader": "1", "raftTerm": "9"})
    };
    let voters = vec![1, 2, 3];
    let layout = |leader| Layout::new(leader, voters.clone(), voters.clone()).unwrap();
    story(async {
        let folder = Folder::new("bad-etcd");
        let audit = Audit::open(&folder.file("audit.jsonl")).unwrap();
        let bad = BAD.map(bad_http).into_iter().chain([http(of_another_cluster)]);
        for (how, bad) in bad.enumerate() {
            let cluster = etcd::Cluster::start([1, 2, 3], None, true);
            let mut sites = cluster.sites;
            sites[0] = bad;
            let etcd = etcd_of(sites);
            assert_eq!(etcd.observe().await.unwrap().layout, layout(1), "{how}");
            let mover = Mover { cluster: &etcd, rules: RULES, audit: &audit };
            let outcome = mover.run(&order(&layout(2), "a test")).await;
            assert!(matches!(outcome, Ok(Outcome::Reached(_))), "{how}: {outcome:?}");
        }
    });
}
