//! One worker's clients: taken, told of events, told to leave.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use super::agreement::settle_event;
use super::backend::Backend;
use super::connection::attend;
use super::counts::{FrontCounts, count};
use super::link::{Link, Order};
use super::settings::FrontSettings;
use crate::cassandra::cluster::Notice;
use crate::cassandra::events;
use crate::cassandra::prepared::StatementView;
use crate::cassandra::session::Supported;
use crate::http::engine::{Listener, Served};

/// How long accepting rests when the process has no file descriptor left.
const PAUSE: Duration = Duration::from_millis(50);

/// How long connections still take requests once the worker stops: a client that does not know
/// yet is answered.
const LAST_CALL: Duration = Duration::from_millis(250);

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
    tls: Option<TlsAcceptor>,
    links: RefCell<BTreeMap<u64, Rc<Link>>>,
    next: Cell<u64>,
    left: Notify,
}

/// Serves clients on this thread until `stop` resolves, then finishes what is in flight.
///
/// From then on no client is accepted; a quarter of a second later nothing further is read, and
/// what is not answered after [`FrontSettings::drain`] is cut off.
///
/// # Errors
/// When the listener cannot be used; errors of single clients end only their connection.
///
/// # Panics
/// Outside a [`worker_runtime`](crate::http::engine::worker_runtime).
pub(crate) async fn serve<B: Backend>(
    listener: Listener,
    settings: Rc<FrontSettings>,
    backend: Rc<B>,
    counts: Rc<FrontCounts>,
    stop: impl Future<Output = ()>,
) -> io::Result<Served> {
    let listener = TcpListener::from_std(listener.into_std())?;
    let worker = Rc::new(Worker::new(settings, backend, counts));
    let events = tokio::task::spawn_local(pass_events(Rc::clone(&worker)));
    let mut stop = pin!(stop);
    loop {
        match worker.accept_or_stop(&listener, stop.as_mut()).await {
            None => break,
            Some(Ok((stream, address))) => worker.welcome(stream, address),
            Some(Err(error)) => {
                use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
                let is_gone = [ConnectionAborted, ConnectionReset, Interrupted];
                if !is_gone.contains(&error.kind()) {
                    tokio::time::sleep(PAUSE).await; // out of descriptors: others may leave
                }
            }
        }
    }
    drop(listener);
    let cut_off = worker.drain().await;
    events.abort();
    Ok(Served { accepted: worker.counts.accepted.get(), cut_off })
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
            tls: settings.tls.clone().map(TlsAcceptor::from),
            settings,
            links: RefCell::default(),
            next: Cell::new(0),
            left: Notify::new(),
        }
    }

    /// Waits for a client, if there is room for one, or for the end.
    async fn accept_or_stop(
        &self,
        listener: &TcpListener,
        mut stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Option<io::Result<(TcpStream, SocketAddr)>> {
        let mut accept = pin!(async {
            while self.links.borrow().len() >= self.settings.connections_max {
                self.left.notified().await;
            }
            listener.accept().await
        });
        std::future::poll_fn(|context| {
            if stop.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            accept.as_mut().poll(context).map(Some)
        })
        .await
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

    fn welcome(self: &Rc<Self>, stream: TcpStream, address: SocketAddr) {
        let (Ok(()), Ok(local)) = (stream.set_nodelay(true), stream.local_addr()) else { return };
        let registered = self.register();
        let worker = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let link = Rc::clone(&registered.link);
            match &worker.tls {
                None => worker.attend(stream, local, link).await,
                Some(tls) => {
                    let greeting =
                        tokio::time::timeout(worker.settings.handshake, tls.accept(stream));
                    match greeting.await {
                        Ok(Ok(stream)) => worker.attend(stream, local, link).await,
                        Ok(Err(error)) => tracing::debug!(%address, %error, "cql: no TLS"),
                        Err(_) => count(&worker.counts.timeouts),
                    }
                }
            }
            drop(registered);
        });
    }

    /// Serves one connection to its end.
    pub(super) async fn attend(
        self: &Rc<Self>,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        local: SocketAddr,
        link: Rc<Link>,
    ) {
        let own = self.settings.proxy_at(local);
        attend(Rc::clone(self), stream, own, link).await;
    }

    /// A new connection's entry in the table of links.
    pub(super) fn register(self: &Rc<Self>) -> Registered<B> {
        let (id, link) = (self.next.get(), Rc::new(Link::new()));
        self.next.set(id + 1);
        self.links.borrow_mut().insert(id, Rc::clone(&link));
        count(&self.counts.accepted);
        self.counts.connections.set(self.counts.connections.get() + 1);
        Registered { worker: Rc::clone(self), id, link }
    }

    fn tell_all(&self, order: Order) {
        self.links.borrow().values().for_each(|link| link.tell(order));
    }

    /// Waits until the last connection is gone; says how many had to be cut off.
    async fn drain(&self) -> u64 {
        let mut gone = pin!(async {
            while !self.links.borrow().is_empty() {
                self.left.notified().await;
            }
        });
        let last_call = LAST_CALL.min(self.settings.drain / 2);
        if tokio::time::timeout(last_call, gone.as_mut()).await.is_ok() {
            return 0;
        }
        self.tell_all(Order::Drain);
        if tokio::time::timeout(self.settings.drain - last_call, gone.as_mut()).await.is_ok() {
            return 0;
        }
        let is_cut_off = |link: &&Rc<Link>| !link.is_done();
        let cut_off = self.links.borrow().values().filter(is_cut_off).count() as u64;
        self.tell_all(Order::Close);
        gone.await;
        cut_off
    }
}

/// The entry of a connection in its worker's table.
pub(super) struct Registered<B: Backend> {
    worker: Rc<Worker<B>>,
    id: u64,
    pub(super) link: Rc<Link>,
}

impl<B: Backend> Drop for Registered<B> {
    fn drop(&mut self) {
        let Worker { links, counts, left, .. } = &*self.worker;
        links.borrow_mut().remove(&self.id);
        counts.connections.set(counts.connections.get() - 1);
        left.notify_one();
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
        let wants = |link: &Rc<Link>| link.wants_schema();
        let is_news = is_missed || !bodies.is_empty();
        if !is_news || !worker.links.borrow().values().any(wants) {
            continue;
        }
        settle_event(&worker.backend, worker.settings.agreement).await;
        if is_missed {
            worker.links.borrow().values().for_each(|link| link.miss());
            continue;
        }
        for body in &bodies {
            count(&worker.counts.events);
            worker.links.borrow().values().for_each(|link| link.push(body));
        }
    }
}
