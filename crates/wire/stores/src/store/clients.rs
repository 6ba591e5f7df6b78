//! Who is connected to a store: names, and ends that others decide.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::rc::Rc;

use tokio::sync::Notify;

/// The connections of one store.
#[derive(Debug, Default)]
pub(super) struct Clients {
    inner: RefCell<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    count: u64,
    clients: BTreeMap<u64, Client>,
}

#[derive(Debug)]
struct Client {
    name: String,
    killed: Rc<Killed>,
}

/// Whether a connection is to end.
#[derive(Debug, Default)]
pub(super) struct Killed {
    is_killed: Cell<bool>,
    bell: Notify,
}

impl Killed {
    pub(super) fn is_killed(&self) -> bool {
        self.is_killed.get()
    }

    /// Waits until it is.
    pub(super) async fn killed(&self) {
        if !self.is_killed() {
            self.bell.notified().await;
        }
    }

    fn kill(&self) {
        self.is_killed.set(true);
        self.bell.notify_one();
    }
}

impl Clients {
    /// A connection: its number, and what tells when it is to end.
    pub(super) fn enter(&self) -> (u64, Rc<Killed>) {
        let inner = &mut *self.inner.borrow_mut();
        inner.count += 1;
        let killed = Rc::new(Killed::default());
        let client = Client { name: String::new(), killed: Rc::clone(&killed) };
        inner.clients.insert(inner.count, client);
        (inner.count, killed)
    }

    pub(super) fn leave(&self, id: u64) {
        self.inner.borrow_mut().clients.remove(&id);
    }

    pub(super) fn rename(&self, id: u64, name: &str) {
        if let Some(client) = self.inner.borrow_mut().clients.get_mut(&id) {
            name.clone_into(&mut client.name);
        }
    }

    pub(super) fn name(&self, id: u64) -> String {
        let inner = self.inner.borrow();
        inner.clients.get(&id).map(|client| client.name.clone()).unwrap_or_default()
    }

    /// Ends a connection before its next batch; whether there is one.
    pub(super) fn kill(&self, id: u64) -> bool {
        let inner = self.inner.borrow();
        inner.clients.get(&id).map(|client| client.killed.kill()).is_some()
    }

    /// Ends all connections: what their store holds now may be something else.
    pub(super) fn kill_all(&self) {
        self.inner.borrow().clients.values().for_each(|client| client.killed.kill());
    }

    /// One line each, of the form that Redis gives.
    pub(super) fn list(&self) -> String {
        let mut text = String::new();
        for (id, client) in &self.inner.borrow().clients {
            // Writing to a string does not fail.
            let _ = writeln!(text, "id={id} name={}", client.name);
        }
        text
    }
}
