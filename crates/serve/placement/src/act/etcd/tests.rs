//! etcd's answers and members as they are read, and the loop behind its linearizable gets.

use std::time::Duration;

use evenkeel_core::Rng;
use serde_json::json;

use super::*;
use evenkeel_stores::clients::etcd::wire::error_of_answer;

fn settings(urls: &[(&str, &str)]) -> Settings {
    let site = |(name, client): &(&str, &str)| Site {
        name: (*name).to_owned(),
        client: (*client).to_owned(),
        peer: format!("http://{name}:2380"),
        start: Vec::new(),
    };
    Settings {
        name: "store".to_owned(),
        sites: urls.iter().map(site).collect(),
        request: Duration::from_secs(1),
        user: None,
        authority: None,
        identity: None,
        hold: Duration::from_secs(5),
    }
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let twice = Etcd::new(settings(&[("a", "http://a:1"), ("a", "http://b:1")])).unwrap_err();
    assert_eq!(twice.to_string(), "two sites are called a");
    let url = Etcd::new(settings(&[("a", "a:1")])).unwrap_err();
    assert!(url.to_string().starts_with("site a: \"a:1\""), "{url}");
    let short = Settings { hold: Duration::from_secs(1), ..settings(&[]) };
    assert!(Etcd::new(short).unwrap_err().to_string().contains("5 s or more"));
}

/// What 3.4.23 answered.
#[test]
fn statuses_and_members_are_read() {
    let status = json!({
        "header": {"cluster_id": "6275235229831389921", "member_id": "16265505783619002404",
            "revision": "1", "raft_term": "2"},
        "version": "3.4.23", "dbSize": "32768", "leader": "16265505783619002404",
        "raftIndex": "8", "raftTerm": "2", "raftAppliedIndex": "7", "dbSizeInUse": "24576"
    });
    let read = Status::read(&status).unwrap();
    let expected = Status {
        cluster: 6_275_235_229_831_389_921,
        member: 16_265_505_783_619_002_404,
        leader: 16_265_505_783_619_002_404,
        term: 2,
        index: 8,
        applied: 7,
        errors: Vec::new(),
    };
    assert_eq!(read, expected);
    let list = json!({"members": [
        {"ID": "5546672764905322534", "name": "e2", "peerURLs": ["http://e2:2380"]},
        {"ID": "7", "peerURLs": ["http://e4:2380"], "isLearner": true},
    ]});
    let members = members(&list).unwrap();
    assert_eq!((members[0].id, members[0].is_learner), (5_546_672_764_905_322_534, false));
    assert_eq!((members[1].name.as_str(), members[1].is_learner), ("", true));
    assert!(evenkeel_stores::clients::etcd::wire::members(&json!({"ID": "no"})).is_err());
}

fn member(name: &str, peer: &str, id: u64, is_learner: bool) -> Member {
    Member { id, name: name.to_owned(), peers: vec![peer.to_owned()], is_learner }
}

fn status(member: u64, leader: u64, applied: u64) -> Result<Status, RemoteError> {
    Ok(Status { cluster: 5, member, leader, term: 2, index: 10, applied, errors: Vec::new() })
}

#[test]
fn members_are_found_by_name_or_by_peer_url() {
    let urls = [("a", "http://a:1"), ("b", "http://b:1"), ("c", "http://c:1"), ("d", "http://d:1")];
    let etcd = Etcd::new(settings(&urls)).unwrap();
    let none = Err(RemoteError::passing("refused"));
    let mut view = View {
        statuses: vec![status(1, 1, 10), status(2, 1, 4), none.clone(), none],
        members: vec![
            member("a", "http://elsewhere:1", 1, false),
            member("b", "http://b:2380/", 2, false),
            member("", "http://c:2380", 3, true),
        ],
        leader: 1,
        leads: 0,
    };
    let seen = etcd.observed(&view).unwrap();
    assert_eq!(seen.layout, Layout::new(0, vec![0, 1], vec![0, 1, 2]).unwrap());
    let seen: Vec<_> = seen.replicas.into_iter().map(|one| one.map(|s| (s.ill, s.lag))).collect();
    let ill = Some((Some("refused".to_owned()), 0));
    assert_eq!(seen, [Some((None, 0)), Some((None, 6)), ill, None]);
    view.members.push(member("x", "http://x:2380", 9, false));
    let error = etcd.observed(&view).unwrap_err();
    assert!(!error.may_pass && error.message.contains("\"x\" (http://x:2380)"), "{error}");
}

#[test]
fn errors_that_pass_are_told_from_those_that_stay() {
    let answer = |code: u64, said: &str| evenkeel_stores::clients::rest::Answer {
        status: 503,
        body: json!({"code": code, "message": said}),
    };
    for (code, said, may_pass) in [
        (14, "etcdserver: unhealthy cluster", true),
        (9, "etcdserver: can only promote a learner member which is in sync with leader", true),
        (9, "etcdserver: bad leader transferee", false),
        (9, "etcdserver: too many learner members in cluster", false),
    ] {
        let error = error_of_answer("a", "/v3/x", &answer(code, said));
        assert_eq!(error.may_pass, may_pass, "{error}");
        assert!(error.message.contains(said) && error.message.starts_with("a answered 503"));
    }
}

/// The loop of etcd, served one arrival after another.
#[test]
fn the_mean_of_linearizable_gets_is_that_of_the_loop_that_serves_them() {
    let round_ms = 100.0;
    for per_second in [0.5, 5.0, 20.0, 200.0] {
        let mut rng = Rng::stream(1, "gets");
        let (mut now_ms, mut round_ends_ms, mut next_ends_ms) = (0.0, f64::MIN, f64::MIN);
        let (mut total_ms, gets) = (0.0, 200_000);
        for _ in 0..gets {
            now_ms -= (1.0 - rng.unit()).ln() * 1e3 / per_second;
            if now_ms >= round_ends_ms {
                // The next round, if anybody waited for it, has begun when this one ended.
                if next_ends_ms > now_ms {
                    round_ends_ms = next_ends_ms;
                }
                next_ends_ms = f64::MIN;
            }
            total_ms += if now_ms >= round_ends_ms {
                round_ends_ms = now_ms + round_ms;
                round_ms
            } else {
                next_ends_ms = round_ends_ms + round_ms;
                next_ends_ms - now_ms
            };
        }
        let mean_ms = total_ms / f64::from(gets);
        let expected_ms = linearizable_ms(round_ms, per_second);
        assert!((mean_ms / expected_ms - 1.0).abs() < 0.01, "{mean_ms} {expected_ms}");
    }
}
