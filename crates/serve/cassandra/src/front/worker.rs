//! What the connections of one worker share.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

use super::backend::Backend;
use super::counts::FrontCounts;
use super::settings::FrontSettings;
use super::subscriber::Subscriber;
use crate::prepared::StatementView;
use crate::session::Supported;
use evenkeel_runtime::accept::Link;

/// How long it is believed that nodes support what one said. Drivers ask for a sign of life.
const SUPPORTED_FOR: Duration = Duration::from_secs(30);

/// What the connections of one worker share.
pub(super) struct Worker<B: Backend> {
    pub(super) backend: Rc<B>,
    pub(super) settings: Rc<FrontSettings>,
    pub(super) statements: StatementView,
    /// Whether the cluster has the default partitioner; not before a client has come so far that
    /// the cluster must be known.
    pub(super) is_murmur: Cell<bool>,
    /// What a node supports, and when it said so.
    supported: RefCell<Option<(Instant, Supported)>>,
    pub(super) counts: Rc<FrontCounts>,
    pub(super) subscribers: RefCell<BTreeMap<u64, Rc<Subscriber>>>,
    next: Cell<u64>,
}

impl<B: Backend> Worker<B> {
    pub(super) fn new(
        settings: Rc<FrontSettings>,
        backend: Rc<B>,
        counts: Rc<FrontCounts>,
    ) -> Self {
        Self {
            backend,
            statements: StatementView::new(settings.statements.clone()),
            is_murmur: Cell::new(false),
            supported: RefCell::default(),
            counts,
            settings,
            subscribers: RefCell::default(),
            next: Cell::new(0),
        }
    }

    /// What a node supports, if one has said so lately.
    pub(super) fn supported(&self) -> Option<Supported> {
        let kept = self.supported.borrow();
        let (at, supported) = kept.as_ref()?;
        (at.elapsed() < SUPPORTED_FOR).then(|| supported.clone())
    }

    /// A node has said what it supports.
    pub(super) fn remember(&self, supported: Supported) {
        *self.supported.borrow_mut() = Some((Instant::now(), supported));
    }

    /// A client has logged in: the cluster is known.
    pub(super) fn look_at_partitioner(&self) {
        if !self.is_murmur.get() {
            let cluster = self.backend.cluster();
            self.is_murmur.set(cluster.partitioner.ends_with("Murmur3Partitioner"));
        }
    }

    /// A new connection's entry in the table of those who may want events.
    pub(super) fn subscribe(self: &Rc<Self>, link: Rc<Link>) -> Subscribed<B> {
        let (id, subscriber) = (self.next.get(), Rc::new(Subscriber::new(link)));
        self.next.set(id + 1);
        self.subscribers.borrow_mut().insert(id, Rc::clone(&subscriber));
        Subscribed { worker: Rc::clone(self), id, subscriber }
    }
}

/// The entry of a connection in its worker's table.
pub(super) struct Subscribed<B: Backend> {
    worker: Rc<Worker<B>>,
    id: u64,
    pub(super) subscriber: Rc<Subscriber>,
}

impl<B: Backend> Drop for Subscribed<B> {
    fn drop(&mut self) {
        self.worker.subscribers.borrow_mut().remove(&self.id);
    }
}
