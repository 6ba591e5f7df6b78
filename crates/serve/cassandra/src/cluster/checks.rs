//! Whether nodes answer: every node is asked for its `OPTIONS`, every interval.
//!
//! **Signal**: an answer within the time limit, on a connection without login. **Why**: a node
//! answers `OPTIONS` whatever its tables do, so this says whether it is reached at all; how well it
//! serves is for core's safeguards and policies. **Cold start**: the first check decides at once,
//! later ones by `fall` and `rise`. **When it misleads**: a node that joins or drains answers too;
//! its requests then fail, and the safeguards see that.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use evenkeel_core::Health;
use evenkeel_cql::{Opcode, Version};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use super::{ClusterSettings, Member};
use evenkeel_cql::client::{SendError, Single};
use evenkeel_proxy::verdict::Verdict;

/// A check's change of mind about the node with this number.
pub(super) type Change = ([u8; 16], Health);

/// The checks of all nodes.
pub(super) struct Checks {
    settings: Rc<ClusterSettings>,
    tell: mpsc::UnboundedSender<Change>,
    running: BTreeMap<[u8; 16], Check>,
}

struct Check {
    address: SocketAddr,
    now: Rc<Notify>,
    task: JoinHandle<()>,
}

impl Drop for Check {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Checks {
    pub(super) fn new(settings: &Rc<ClusterSettings>) -> (Self, mpsc::UnboundedReceiver<Change>) {
        // Bounded by what changes: each node says something at most once in an interval.
        let (tell, reported) = mpsc::unbounded_channel();
        (Self { settings: Rc::clone(settings), tell, running: BTreeMap::new() }, reported)
    }

    /// Checks these nodes and no others.
    pub(super) fn follow(&mut self, members: &[Member]) {
        let is_there = |id: &[u8; 16], check: &Check| {
            members.iter().any(|member| member.host_id == *id && member.address == check.address)
        };
        self.running.retain(|id, check| is_there(id, check));
        for member in members {
            if !self.running.contains_key(&member.host_id) {
                let check = self.start(member);
                self.running.insert(member.host_id, check);
            }
        }
    }

    /// Checks a node before its time.
    pub(super) fn hurry(&self, id: &[u8; 16]) {
        if let Some(check) = self.running.get(id) {
            check.now.notify_one();
        }
    }

    fn start(&self, member: &Member) -> Check {
        let now = Rc::new(Notify::new());
        let checker = Checker {
            settings: Rc::clone(&self.settings),
            address: member.address,
            link: None,
            verdict: Verdict::default(),
        };
        let (id, tell, hurried) = (member.host_id, self.tell.clone(), Rc::clone(&now));
        let task = tokio::task::spawn_local(checker.watch(hurried, move |health| {
            let _ = tell.send((id, health));
        }));
        Check { address: member.address, now, task }
    }
}

struct Checker {
    settings: Rc<ClusterSettings>,
    address: SocketAddr,
    link: Option<Single>,
    verdict: Verdict,
}

impl Checker {
    async fn watch(mut self, hurried: Rc<Notify>, tell: impl Fn(Health)) {
        if !self.check().await {
            // The first one decides.
            let _ = self.verdict.after(false, 1, 1);
            tell(Health::Down);
        }
        loop {
            let _ = tokio::time::timeout(self.settings.check_every, hurried.notified()).await;
            let is_healthy = self.check().await;
            let (fall, rise) = (self.settings.fall, self.settings.rise);
            if let Some(health) = self.verdict.after(is_healthy, fall, rise) {
                let address = self.address;
                tracing::info!(%address, ?health, "a node's check changed its verdict");
                tell(health);
            }
        }
    }

    async fn check(&mut self) -> bool {
        let is_kept = self.link.is_some();
        let mut is_well = self.ask().await;
        if !is_well && is_kept {
            // A kept connection says nothing of a node that was started again.
            is_well = self.ask().await;
        }
        is_well
    }

    async fn ask(&mut self) -> bool {
        let (address, limits) = (self.address, &self.settings.limits);
        let link = self.link.take();
        let asking = async {
            let mut link = match link {
                Some(link) => link,
                None => Single::knock(address, limits, Version::V4).await?,
            };
            let answer = link.ask(Opcode::Options, Bytes::new()).await?;
            Ok::<_, SendError>((answer.opcode, link))
        };
        match tokio::time::timeout(self.settings.check_timeout, asking).await {
            Ok(Ok((Opcode::Supported, link))) => {
                self.link = Some(link);
                true
            }
            _ => false,
        }
    }
}
