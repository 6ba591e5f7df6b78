//! The polling of nodes: one poller for each, for all workers together.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use evenkeel_cql::Version;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{ClusterSettings, Member, Publisher, Reports};
use crate::poll::poll;
use evenkeel_cql::client::{Dialect, NodeLimits};
use evenkeel_runtime::clock::Clock;

/// The pollers of all nodes; none when nothing is polled.
pub(super) struct Polls {
    settings: Rc<ClusterSettings>,
    limits: Rc<NodeLimits>,
    clock: Clock,
    reports: watch::Sender<Arc<Reports>>,
    running: BTreeMap<SocketAddr, Poller>,
}

struct Poller(JoinHandle<()>);

impl Drop for Poller {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Polls {
    pub(super) fn new(settings: &Rc<ClusterSettings>, publisher: &Publisher) -> Self {
        Self {
            settings: Rc::clone(settings),
            limits: Rc::new(settings.limits.clone()),
            // Reports are compared with those of the same node only.
            clock: Clock::start(),
            reports: publisher.reports.clone(),
            running: BTreeMap::new(),
        }
    }

    /// Polls these nodes and no others.
    pub(super) fn follow(&mut self, members: &[Member]) {
        let Some(every) = self.settings.poll_every else { return };
        let is_there =
            |address: &SocketAddr| members.iter().any(|member| member.address == *address);
        self.running.retain(|address, _| is_there(address));
        self.reports.send_if_modified(|reports| {
            let is_less = reports.keys().any(|address| !is_there(address));
            if is_less {
                Arc::make_mut(reports).retain(|address, _| is_there(address));
            }
            is_less
        });
        for member in members {
            let address = member.address;
            if self.running.contains_key(&address) {
                continue;
            }
            let dialect = Dialect {
                version: Version::V4,
                keyspace: None,
                login: self.settings.login.clone(),
            };
            let reports = self.reports.clone();
            let tell = move |report| {
                reports.send_modify(|reports| {
                    let reports = Arc::make_mut(reports);
                    match report {
                        Some(report) => reports.insert(address, report),
                        None => reports.remove(&address),
                    };
                });
            };
            let limits = Rc::clone(&self.limits);
            let polling = poll(address, limits, dialect, (every, self.clock), tell);
            let task = tokio::task::spawn_local(polling);
            self.running.insert(address, Poller(task));
        }
    }
}
