//! A cluster of etcd that is not real: its members answer at once, and one of its changes can kill
//! who asks for it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use serde_json::{Value, json};

use crate::servers::http;

pub(crate) const SITES: usize = 4;

/// What all members know.
struct Known {
    leader: usize,
    voters: BTreeSet<usize>,
    learners: BTreeSet<usize>,
    /// Learners that were added run.
    runs_learners: bool,
    /// Who holds the lock.
    holder: Option<String>,
    /// Changes that are made until one is not answered, and whether that one is made.
    fatal: Option<(usize, bool)>,
    /// That one was asked for, so that who asked is to be killed now.
    is_fatal: bool,
    changes: usize,
}

pub(crate) struct Cluster {
    known: Arc<(Mutex<Known>, Condvar)>,
    pub(crate) sites: [SocketAddr; SITES],
}

impl Cluster {
    /// Three voters, the first of them leads.
    pub(crate) fn start(
        voters: [usize; 3],
        fatal: Option<(usize, bool)>,
        runs_learners: bool,
    ) -> Self {
        let known = Known {
            leader: voters[0],
            voters: BTreeSet::from(voters),
            learners: BTreeSet::new(),
            runs_learners,
            holder: None,
            fatal,
            is_fatal: false,
            changes: 0,
        };
        let known = Arc::new((Mutex::new(known), Condvar::new()));
        let sites = std::array::from_fn(|site| {
            let known = Arc::clone(&known);
            http(move |path, body| answer(&known, site, path, body))
        });
        Self { known, sites }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.0.lock().unwrap()
    }

    /// Waits until the change that kills is asked for.
    pub(crate) fn wait_fatal(&self) {
        let (known, told) = &*self.known;
        let patience = evenkeel_testkit::wait::PATIENCE;
        let wait = told.wait_timeout_while(known.lock().unwrap(), patience, |it| !it.is_fatal);
        assert!(wait.unwrap().0.is_fatal, "nobody asks for so many changes");
    }

    /// The dead one's lease ends.
    pub(crate) fn end_lease(&self) {
        self.known().holder = None;
    }

    /// Who leads, votes and learns.
    pub(crate) fn layout(&self) -> (usize, Vec<usize>, Vec<usize>) {
        let known = self.known();
        let listed = |sites: &BTreeSet<usize>| sites.iter().copied().collect();
        (known.leader, listed(&known.voters), listed(&known.learners))
    }
}

fn id(site: usize) -> String {
    (site + 100).to_string()
}

fn answer(known: &(Mutex<Known>, Condvar), site: usize, path: &str, body: &Value) -> Value {
    let (lock, told) = known;
    let mut known = lock.lock().unwrap();
    if known.learners.contains(&site) && !known.runs_learners {
        return json!({"error": "it does not run"});
    }
    let header = json!({"cluster_id": "7", "member_id": id(site)});
    match path {
        "/v3/maintenance/status" => json!({
            "header": header, "leader": id(known.leader), "raftTerm": "2", "raftIndex": "9",
            "raftAppliedIndex": "9",
        }),
        "/v3/cluster/member/list" => {
            let one = |site: &usize, is_learner: bool| {
                let peer = format!("http://peer-{site}:2380");
                json!({"ID": id(*site), "name": format!("s{site}"), "peerURLs": [peer],
                       "isLearner": is_learner})
            };
            let voters = known.voters.iter().map(|site| one(site, false));
            let learners = known.learners.iter().map(|site| one(site, true));
            json!({"header": header, "members": voters.chain(learners).collect::<Vec<_>>()})
        }
        "/v3/lease/grant" => json!({"header": header, "ID": "5", "TTL": "5"}),
        "/v3/lease/keepalive" => json!({"result": {"header": header, "ID": "5", "TTL": "5"}}),
        "/v3/lease/revoke" => {
            known.holder = None;
            json!({"header": header})
        }
        "/v3/kv/txn" => {
            let value = |at: &str| body.pointer(at).and_then(Value::as_str).map(str::to_owned);
            match &known.holder {
                Some(who) => json!({"header": header, "responses":
                    [{"response_range": {"kvs": [{"value": who}]}}]}),
                None => {
                    known.holder = value("/success/0/request_put/value");
                    json!({"header": header, "succeeded": true})
                }
            }
        }
        _ => {
            let is_fatal = known.fatal.is_some_and(|(at, _)| at == known.changes);
            if !is_fatal || known.fatal.is_some_and(|(_, is_made)| is_made) {
                known.change(path, body);
                known.changes += 1;
            }
            if is_fatal {
                (known.fatal, known.is_fatal) = (None, true);
                told.notify_all();
                drop(known);
                // Who asked is killed; nobody hears this.
                std::thread::park();
            }
            json!({"header": header})
        }
    }
}

impl Known {
    fn change(&mut self, path: &str, body: &Value) {
        let of = |key: &str| body[key].as_str().map(|id| id.parse::<usize>().unwrap() - 100);
        match path {
            "/v3/cluster/member/add" => {
                let peer = body["peerURLs"][0].as_str().unwrap();
                let site = (0..SITES).find(|site| peer.contains(&format!("peer-{site}:")));
                self.learners.insert(site.unwrap());
            }
            "/v3/cluster/member/promote" => {
                let site = of("ID").unwrap();
                assert!(self.learners.remove(&site));
                self.voters.insert(site);
            }
            "/v3/cluster/member/remove" => {
                let site = of("ID").unwrap();
                assert!(self.learners.remove(&site) || self.voters.remove(&site));
            }
            "/v3/maintenance/transfer-leadership" => self.leader = of("targetID").unwrap(),
            other => panic!("{other}"),
        }
    }
}
