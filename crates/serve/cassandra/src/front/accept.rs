//! One worker's clients: accepted, and told of events.

use std::io;
use std::rc::Rc;

use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::task::JoinSet;

use super::agreement::settle_event;
use super::backend::Backend;
use super::connection::attend;
use super::counts::{FrontCounts, count};
use super::settings::FrontSettings;
use super::subscriber::Subscriber;
use super::worker::Worker;
use crate::cluster::Notice;
use crate::events;
use evenkeel_runtime::accept::{
    Event, Link, Listener, Peer, ServeConnection, Served, StopSignal, Stream, accept,
};

/// Serves clients on this thread until told to stop, then finishes what is in flight.
///
/// When it drains nothing further is read, and what is not answered after
/// [`FrontSettings::drain`] is cut off.
///
/// # Errors
/// When the listener cannot be used; errors of single clients end only their connection.
///
/// # Panics
/// Outside a [`worker_runtime`](evenkeel_runtime::accept::worker_runtime).
pub(crate) async fn serve<B: Backend>(
    listener: Listener,
    settings: Rc<FrontSettings>,
    backend: Rc<B>,
    counts: Rc<FrontCounts>,
    stop: StopSignal,
) -> io::Result<Served> {
    let config = settings.accept_config().fixed();
    let worker = Rc::new(Worker::new(settings, backend, counts));
    let mut events = JoinSet::new(); // ends when this does
    events.spawn_local(pass_events(Rc::clone(&worker)));
    accept(listener, config, worker, stop).await
}

impl<B: Backend> ServeConnection for Worker<B> {
    async fn serve(self: Rc<Self>, stream: Stream, peer: Peer, link: Rc<Link>) {
        let own = self.settings.proxy_at(peer.local);
        let subscribed = self.subscribe(link);
        attend(Rc::clone(&self), stream, own, Rc::clone(&subscribed.subscriber)).await;
    }

    fn count(&self, event: Event) {
        let FrontCounts { connections, accepted, timeouts, .. } = &*self.counts;
        match event {
            Event::Accepted => {
                count(accepted);
                connections.set(connections.get() + 1);
            }
            Event::TimedOut => count(timeouts),
            Event::Gone => connections.set(connections.get() - 1),
        }
    }
}

/// Passes on what happens in the cluster, as far as it is for clients: when all nodes know, since
/// clients that hear of a change read the schema from any.
pub(super) async fn pass_events<B: Backend>(worker: Rc<Worker<B>>) {
    let mut events = worker.backend.events();
    loop {
        let mut came = events.recv().await.map_err(|error| match error {
            RecvError::Closed => TryRecvError::Closed,
            RecvError::Lagged(missed) => TryRecvError::Lagged(missed),
        });
        let (mut bodies, mut is_missed) = (Vec::new(), false);
        loop {
            match came {
                Ok(Notice::Event(event)) => bodies.extend(events::body(&event).cloned()),
                // What was missed was, or may have been, a change of the schema, and which is not
                // known: clients that wait for those begin anew, and read the schema when they do.
                Ok(Notice::SchemaMissed) | Err(TryRecvError::Lagged(_)) => is_missed = true,
                Err(TryRecvError::Closed) => return,
                Err(TryRecvError::Empty) => break,
            }
            came = events.try_recv();
        }
        let wants = |subscriber: &Rc<Subscriber>| subscriber.wants_schema();
        let is_news = is_missed || !bodies.is_empty();
        if !is_news || !worker.subscribers.borrow().values().any(wants) {
            continue;
        }
        settle_event(&worker.backend, worker.settings.settle).await;
        if is_missed {
            worker.subscribers.borrow().values().for_each(|it| it.miss());
            continue;
        }
        for body in &bodies {
            count(&worker.counts.events);
            worker.subscribers.borrow().values().for_each(|it| it.push(body));
        }
    }
}
