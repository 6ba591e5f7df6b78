//! The nodes of a cluster as what stands behind its clients: [`Route`] behind
//! [`front`](super::front).

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use evenkeel_cql::Version;
use tokio::sync::broadcast;

use super::cluster::{Cluster, Notice};
use super::front::{self, Backend, FrontCounts, FrontSettings, Refusal, Request};
use super::protocol::Cql;
use super::route::Route;
use super::route::greeting::{self, Greeting};
use super::route::schema;
use super::span;
use evenkeel_cql::client::{Answer, Dialect};
use evenkeel_proxy::calls::exchange::Exchange;
use evenkeel_proxy::calls::observer::Record;
use evenkeel_proxy::site_choice::SiteChoice;
use evenkeel_runtime::accept::{Listener, Served, StopSignal};

/// Serves clients of a cluster on this thread until told to stop, then finishes what is in flight:
/// nothing further is read, and what is not answered after [`FrontSettings::drain`] is cut off.
///
/// # Errors
/// When the listener cannot be used; errors of single clients end only their connection.
///
/// # Panics
/// Outside a [`worker_runtime`](evenkeel_runtime::accept::worker_runtime).
pub async fn serve(
    listener: Listener,
    settings: Rc<FrontSettings>,
    route: Rc<Route>,
    counts: Rc<FrontCounts>,
    stop: StopSignal,
) -> io::Result<Served> {
    front::serve(listener, settings, route, counts, stop).await
}

impl Backend for Route {
    type Conversation = Greeting;

    fn cluster(&self) -> Arc<Cluster> {
        Self::cluster(self)
    }

    fn events(&self) -> broadcast::Receiver<Notice> {
        Self::events(self)
    }

    async fn ask(self: &Rc<Self>, request: Request) -> Answer {
        let what = &request.what;
        self.calls.note_operation(what.is_write);
        let is_split = self.calls.split().is_some();
        let choice =
            is_split.then(|| SiteChoice::depart(&self.calls, self.constraints(what))).flatten();
        let mut record = Record::of(&self.calls, &self.config.name);
        if let Some(draft) = record.draft() {
            let kind: &[u8] = if what.is_write { b"CQL write " } else { b"CQL read " };
            let keyspace = what.keyspace.as_deref().unwrap_or_default();
            draft.describe(&[kind, keyspace.as_bytes()], b"");
            span::join(draft, self, &request);
        }
        let route = Rc::clone(self);
        Exchange::<Cql>::open(route, request.into(), choice, record).run().await
    }

    async fn greet(self: &Rc<Self>, version: Version) -> Result<Greeting, Refusal> {
        self.known().await;
        Greeting::begin(self, version).await
    }

    async fn prove(self: &Rc<Self>, dialect: &Dialect) -> Result<(), Refusal> {
        greeting::prove(self, dialect).await
    }

    async fn schema_versions(self: &Rc<Self>) -> Vec<[u8; 16]> {
        schema::versions(self).await
    }
}

#[cfg(test)]
mod tests;
