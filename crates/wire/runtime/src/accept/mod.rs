//! Clients: accepted, limited in number and time, told to leave.
//!
//! The only accept loop. What a client says is for the protocol's [`ServeConnection`] to
//! understand; how many may come, how long each phase of a connection may take and how all of
//! them end is decided here, so that every protocol behaves alike.
//!
//! **Limits.** More clients than [`AcceptConfig::connections_max`] wait in the kernel's backlog,
//! and so do those of all listeners beyond what the limit of open files leaves
//! ([`limit_clients`]). Where a protocol says that its clients may be told to leave between
//! requests ([`ServeConnection::MAY_EVICT`]), the longest idle one leaves for the one who waits.
//! The time of a phase is coarse (seconds), so no timer is armed per request: a connection notes
//! the tick at which it entered a [`Phase`], and one sweep per tick cuts off what has overstayed.
//! Without connections nothing ticks.
//!
//! **The end** ([`Stage`]). As a *lame duck* the listener still accepts, and connections are told
//! [`Order::LastRequest`]; it lasts as long as it is told to, or until the last client has gone.
//! Where another process has the same sockets ([`Stage::Replaced`]) it accepts nobody in that time.
//! Then nobody is accepted any more; clients that the kernel has connected already, or that have
//! come just before, are served once, and all others are told [`Order::Drain`]. Whoever is not
//! done when the time is up is cut off and counted.

mod gate;
pub mod inherited;
mod leave;
mod limits;
mod link;
mod listener;
mod places;
mod proxy_header;
mod socket;
mod stop;
pub mod unix;

#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

pub use crate::stream::Stream;
pub use gate::Gate;
pub use leave::{Linger, poll_leave};
pub use link::{Link, Order, Phase};
pub use listener::{Dialer, Listener};
pub(crate) use places::Told;
pub use places::{AcceptCounts, accept_counts, limit_clients};
pub use proxy_header::begins_proxy_header;
pub use socket::{Sharing, open_sockets, sockets_are_shared};
pub use stop::{Stage, Stop, StopSignal};

use crate::networks::Networks;
use crate::tls::ServerTls;
use limits::Limits;
use listener::Source;
use places::{PLACES, Place};

/// How long those who waited in the backlog when accepting ended, or had come just before, have to
/// say what they want.
const BACKLOG_GRACE: Duration = Duration::from_millis(250);

/// The most events that tokio takes from the kernel at once.
const EVENTS_AT_ONCE: usize = 1024;

/// What one listener allows its clients. [`Duration::MAX`] is no limit.
#[derive(Debug, Clone)]
pub struct AcceptConfig {
    /// Connections at once; more wait in the kernel's backlog.
    pub connections_max: usize,
    /// How long TLS may take, and a client to stop sending after its last answer.
    pub handshake: Duration,
    /// How long a new connection may take to its first whole request, TLS included, and a later
    /// request's head from its first byte.
    pub first: Duration,
    /// How long a connection may idle between requests.
    pub idle: Duration,
    /// How long a client may take nothing of what there is to write.
    pub write: Duration,
    /// After how long a connection is told to come back on another one, or up to a quarter of it
    /// earlier, so that those that came together do not return together.
    pub age: Duration,
    /// How long clients may take to finish once nobody is accepted any more; the process's own
    /// limit holds too.
    pub drain: Duration,
    /// What comes before the first byte of the protocol.
    pub filters: ListenerFilters,
}

/// What comes before the first byte of a protocol; nothing for clients within the process.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ListenerFilters {
    /// Peers that pass on the connections of others: each begins with a header of the PROXY
    /// protocol, before TLS. Others never do.
    pub proxy_protocol: Networks,
    /// With what clients are spoken to, if encrypted.
    pub tls: Option<ServerTls>,
}

impl ListenerFilters {
    /// None.
    pub const NONE: Self = Self { proxy_protocol: Networks::NONE, tls: None };

    /// TLS alone, where there is some.
    pub const fn of_tls(tls: Option<ServerTls>) -> Self {
        Self { proxy_protocol: Networks::NONE, tls }
    }
}

impl AcceptConfig {
    /// Without any limit, nor TLS.
    pub const fn unlimited() -> Self {
        Self {
            connections_max: usize::MAX,
            handshake: Duration::MAX,
            first: Duration::MAX,
            idle: Duration::MAX,
            write: Duration::MAX,
            age: Duration::MAX,
            drain: Duration::MAX,
            filters: ListenerFilters::NONE,
        }
    }

    /// For a listener whose limits never change.
    pub fn fixed(self) -> watch::Receiver<Arc<Self>> {
        watch::Sender::new(Arc::new(self)).subscribe()
    }
}

/// Who connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The client's address.
    pub address: SocketAddr,
    /// The address it reached.
    pub local: SocketAddr,
}

/// What happened to a connection, for whoever counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A client was accepted.
    Accepted,
    /// It overstayed a phase, or took nothing for too long: it is cut off.
    TimedOut,
    /// It has gone, whatever the reason.
    Gone,
}

/// One protocol: serves a connection from its first byte to its last.
pub trait ServeConnection: 'static {
    /// Whether a client that asks nothing may be told to leave for one who waits: nothing of it is
    /// lost between requests, and it may connect again whenever it wants.
    const MAY_EVICT: bool = false;

    /// Serves one client. It is dropped in mid-air when the client overstays or the drain's time
    /// is up, which must cancel its work.
    ///
    /// It says every [`Phase`] it enters, [`Phase::New`] excepted, and does as it is told by
    /// [`Link::order`]; it is polled when that changes.
    fn serve(
        self: Rc<Self>,
        stream: Stream,
        peer: Peer,
        link: Rc<Link>,
    ) -> impl Future<Output = ()>;

    /// Whether a client may come in. Nobody else is accepted while this waits.
    fn admit(&self, _peer: &Peer) -> impl Future<Output = bool> {
        std::future::ready(true)
    }

    /// Counts what happened.
    fn count(&self, _event: Event) {}
}

/// What was done, told when accepting has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Served {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections that [`ServeConnection::admit`] turned away.
    pub rejected: u64,
    /// Connections cut off because they outlasted the drain.
    pub cut_off: u64,
}

/// The runtime of one worker thread: single-threaded, so that nothing on it needs a lock.
///
/// # Errors
/// When the operating system refuses an event queue.
pub fn worker_runtime() -> io::Result<tokio::runtime::LocalRuntime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build_local(tokio::runtime::LocalOptions::default())
}

/// Accepts clients on this thread until told to stop, then lets them finish. Dropped in the
/// middle, it closes all connections.
///
/// # Errors
/// When the listener cannot be used; errors of single clients end only their connection.
///
/// # Panics
/// Outside a [`worker_runtime`].
pub async fn accept<H: ServeConnection>(
    listener: Listener,
    config: watch::Receiver<Arc<AcceptConfig>>,
    handler: Rc<H>,
    mut stop: StopSignal,
) -> io::Result<Served> {
    let mut source = listener.open()?;
    let worker = Rc::new(Worker::new(config, handler, source.is_shared_with_process()));
    let sweep = tokio::task::spawn_local(Rc::clone(&worker).sweep());
    let running = Running { worker: Rc::clone(&worker), sweep };
    let accepting = async {
        source.opened().await;
        worker.accept_all(&mut source).await;
    };
    first(accepting, worker.until_drain(&mut stop)).await;
    let held = worker.waiting.borrow_mut().take();
    let waiting = match stop.stage() {
        Stage::Replaced => {
            drop(source); // who waits there is the other's
            held.into_iter().for_each(|(stream, peer)| worker.welcome(stream, peer, None));
            worker.until_left(stop.draining()).await;
            Vec::new()
        }
        _ => held.into_iter().chain(source.into_waiting()?).collect(),
    };
    let cut_off = worker.drain(waiting, &mut stop).await;
    drop(running);
    let (accepted, rejected) = (worker.accepted.get(), worker.rejected.get());
    Ok(Served { accepted, rejected, cut_off })
}

/// Ends the sweep and all connections, when accepting has ended or is dropped in the middle.
struct Running<H: ServeConnection> {
    worker: Rc<Worker<H>>,
    sweep: tokio::task::JoinHandle<()>,
}

impl<H: ServeConnection> Drop for Running<H> {
    fn drop(&mut self) {
        self.sweep.abort();
        self.worker.tell_all(Order::Close);
    }
}

/// The connections of one listener and what they share.
struct Worker<H: ServeConnection> {
    config: watch::Receiver<Arc<AcceptConfig>>,
    handler: Rc<H>,
    /// Clients within the process come in beside a socket: they need neither TLS nor be told apart.
    is_shared_with_process: bool,
    ticks: Rc<Cell<u32>>,
    accepted: Cell<u64>,
    rejected: Cell<u64>,
    /// What a new connection is told.
    order: Cell<Order>,
    /// Draws how old each may become.
    spread: RandomState,
    links: RefCell<BTreeMap<u64, Rc<Link>>>,
    /// A client for whom another is told to leave.
    waiting: RefCell<Option<(Stream, Peer)>>,
    /// A connection came or went, or the configuration changed.
    changed: Notify,
}

impl<H: ServeConnection> Worker<H> {
    fn new(
        config: watch::Receiver<Arc<AcceptConfig>>,
        handler: Rc<H>,
        is_shared_with_process: bool,
    ) -> Self {
        let (ticks, accepted, rejected) = (Rc::default(), Cell::new(0), Cell::new(0));
        let (order, links, changed) = (Cell::new(Order::Serve), RefCell::default(), Notify::new());
        let waiting = RefCell::default();
        Self {
            config,
            handler,
            is_shared_with_process,
            ticks,
            accepted,
            rejected,
            order,
            spread: RandomState::new(),
            links,
            waiting,
            changed,
        }
    }

    /// Accepts for as long as it is polled.
    async fn accept_all(self: &Rc<Self>, source: &mut Source) {
        let counts = source.counts();
        loop {
            if !H::MAY_EVICT {
                self.until(|| self.has_room()).await;
                while counts && !PLACES.is_free() {
                    PLACES.full().await;
                }
            }
            match source.next().await {
                Ok((stream, peer)) if self.handler.admit(&peer).await => {
                    let held = self.waiting.borrow_mut().replace((stream, peer));
                    debug_assert!(held.is_none(), "one waits at a time");
                    self.make_room(counts).await;
                    let place = counts.then(|| PLACES.take());
                    let waited = self.waiting.borrow_mut().take();
                    let (stream, peer) = waited.expect("nobody else takes it before the drain");
                    self.welcome(stream, peer, place);
                }
                Ok(_) => self.rejected.set(self.rejected.get() + 1),
                Err(error) => PLACES.failed(&error).await,
            }
        }
    }

    fn has_room(&self) -> bool {
        self.links.borrow().len() < self.config.borrow().connections_max
    }

    /// Tells clients to leave until there is room for the one who waits.
    async fn make_room(&self, counts: bool) {
        loop {
            let is_free = !counts || PLACES.is_free();
            if is_free && self.has_room() {
                return;
            }
            if let Some(link) = self.least_needed() {
                PLACES.evicted();
                link.tell(Order::Drain);
            }
            // Who becomes idle tells nobody.
            let pause = async {
                match is_free {
                    true => tokio::time::sleep(places::ACCEPT_PAUSE).await,
                    false => PLACES.full().await,
                }
            };
            first(self.changed.notified(), pause).await;
        }
    }

    /// The client that has been about to ask for longest; where there is none, the one that has
    /// been idle for longest. Who has just come or asked stays.
    fn least_needed(&self) -> Option<Rc<Link>> {
        const TICKS_MIN: u32 = 2;
        let links = self.links.borrow();
        let rank = |link: &Link| match link.phase() {
            Phase::Handshake | Phase::New => Some((1, link.age())),
            Phase::Idle => Some((0, link.age())),
            Phase::Reading | Phase::Serving | Phase::Leaving => None,
        };
        let may_go = |link: &&Rc<Link>| link.order() < Order::Drain && link.age() >= TICKS_MIN;
        let ranked = links.values().filter(may_go).filter_map(|link| Some((rank(link)?, link)));
        let (_, link) = ranked.rev().max_by_key(|(rank, _)| *rank)?; // of equals the first
        Some(Rc::clone(link))
    }

    /// Waits for the end of accepting; until then it is a lame duck, if it was told to be.
    async fn until_drain(&self, stop: &mut StopSignal) {
        stop.stopping().await;
        self.tell_all(Order::LastRequest);
        if stop.stage() < Stage::Replaced {
            self.until_left(stop.accepting_ends()).await;
        }
    }

    /// Waits, unless nobody is there to be told: then it need not last.
    async fn until_left(&self, told: impl Future<Output = ()>) {
        first(told, self.until(|| self.links.borrow().is_empty())).await;
    }

    /// Starts serving a connection.
    fn welcome(self: &Rc<Self>, stream: Stream, peer: Peer, place: Option<Place>) {
        let id = self.accepted.get();
        self.accepted.set(id + 1);
        let is_within = self.is_shared_with_process && matches!(stream, Stream::Memory(_));
        let greeting = match is_within {
            true => Greeting::default(),
            false => Greeting::of(peer, &self.config.borrow()),
        };
        let phase = if greeting.is_empty() { Phase::New } else { Phase::Handshake };
        let link = Rc::new(Link::new(Rc::clone(&self.ticks), phase, self.order.get()));
        let before = self.links.borrow_mut().insert(id, Rc::clone(&link));
        debug_assert!(before.is_none(), "every connection has a number of its own");
        self.changed.notify_waiters();
        self.handler.count(Event::Accepted);
        let entry = Entry { worker: Rc::clone(self), id, _place: place };
        tokio::task::spawn_local(async move {
            let serving = async {
                let greeted = match greeting.is_empty() {
                    true => Some((stream, peer)),
                    false => greet(stream, peer, greeting, &link).await,
                };
                if let Some((stream, peer)) = greeted {
                    let handler = Rc::clone(&entry.worker.handler);
                    handler.serve(stream, peer, Rc::clone(&link)).await;
                }
            };
            let mut serving = pin!(serving);
            std::future::poll_fn(|context| match link.listen(context) {
                Order::Close => Poll::Ready(()),
                _ => serving.as_mut().poll(context),
            })
            .await;
        });
    }

    /// From 0 to 1, always the same for one connection.
    fn chance(&self, id: u64) -> f64 {
        self.spread.hash_one(id) as f64 / u64::MAX as f64
    }

    /// Tells all connections, and those that come later.
    fn tell_all(&self, order: Order) {
        self.order.set(order);
        self.links.borrow().values().for_each(|link| link.tell(order));
    }

    /// Waits until something of connections or configuration is true.
    async fn until(&self, is_so: impl Fn() -> bool) {
        while !is_so() {
            self.changed.notified().await;
        }
    }

    /// Lets connections read what the kernel has for them: on a busy machine this thread may have
    /// slept while requests came, and whoever is told to leave before they are seen breaks them.
    async fn hear_all(&self) {
        let connections = self.links.borrow().len();
        for _ in 0..=connections / EVENTS_AT_ONCE {
            tokio::task::yield_now().await; // until after a look at the kernel's events
        }
    }

    /// Serves those who wait once, and waits until the last connection is gone; says how many had
    /// to be cut off.
    async fn drain(self: &Rc<Self>, waiting: Vec<(Stream, Peer)>, stop: &mut StopSignal) -> u64 {
        let limit = self.config.borrow().drain;
        let gone = async {
            self.hear_all().await;
            waiting.into_iter().for_each(|(stream, peer)| self.welcome(stream, peer, None));
            let is_about_to_ask = |link: &Rc<Link>| {
                matches!(link.phase(), Phase::Handshake | Phase::New)
                    && link.born().elapsed() < BACKLOG_GRACE
            };
            let (new, others): (Vec<_>, Vec<_>) =
                self.links.borrow().values().cloned().partition(is_about_to_ask);
            others.iter().for_each(|link| link.tell(Order::Drain));
            if !new.is_empty() {
                let gone = self.until(|| self.links.borrow().is_empty());
                let _ = tokio::time::timeout(BACKLOG_GRACE.min(limit / 2), gone).await;
            }
            self.tell_all(Order::Drain);
            self.until(|| self.links.borrow().is_empty()).await;
        };
        let _ = tokio::time::timeout(limit, first(gone, stop.over())).await;
        // Who is leaving has all its answers.
        let is_cut_off = |link: &&Rc<Link>| link.phase() != Phase::Leaving;
        let cut_off = self.links.borrow().values().filter(is_cut_off).count() as u64;
        if cut_off > 0 {
            tracing::warn!(cut_off, "clients were cut off at the end of the drain");
        }
        self.tell_all(Order::Close);
        self.until(|| self.links.borrow().is_empty()).await;
        cut_off
    }

    /// Cuts off connections that have overstayed.
    async fn sweep(self: Rc<Self>) {
        let mut config = self.config.clone();
        loop {
            let limits = Limits::new(&config.borrow_and_update());
            let replaced = async {
                if config.changed().await.is_err() {
                    std::future::pending::<()>().await; // it never changes again
                }
            };
            first(self.sweep_by(&limits), replaced).await;
            self.links.borrow().values().for_each(|link| link.renew());
            self.changed.notify_waiters(); // there may be more places
        }
    }

    async fn sweep_by(&self, limits: &Limits) {
        loop {
            self.until(|| !self.links.borrow().is_empty()).await;
            tokio::time::sleep(limits.tick).await;
            self.ticks.set(self.ticks.get().wrapping_add(1));
            let now = Instant::now();
            for (id, link) in &*self.links.borrow() {
                if link.order() != Order::Close && limits.is_overdue(link) {
                    link.tell(Order::Close);
                    self.handler.count(Event::TimedOut);
                } else if link.takes_more() && limits.is_old(now, link, self.chance(*id)) {
                    link.retire();
                }
            }
        }
    }
}

/// The entry of a connection in its worker's table.
struct Entry<H: ServeConnection> {
    worker: Rc<Worker<H>>,
    id: u64,
    _place: Option<Place>,
}

impl<H: ServeConnection> Drop for Entry<H> {
    fn drop(&mut self) {
        let removed = self.worker.links.borrow_mut().remove(&self.id);
        debug_assert!(removed.is_some(), "a connection goes once");
        self.worker.changed.notify_waiters();
        self.worker.handler.count(Event::Gone);
    }
}

/// What comes before the first byte of the protocol.
#[derive(Default)]
struct Greeting {
    /// The peer says who the client is.
    is_proxied: bool,
    tls: Option<ServerTls>,
}

impl Greeting {
    fn of(peer: Peer, config: &AcceptConfig) -> Self {
        let ListenerFilters { proxy_protocol, tls } = &config.filters;
        Self { is_proxied: proxy_protocol.contain(peer.address.ip()), tls: tls.clone() }
    }

    const fn is_empty(&self) -> bool {
        !self.is_proxied && self.tls.is_none()
    }
}

/// Learns who a client is and agrees on TLS with it; `None` when that fails, or it is told to leave
/// before.
async fn greet(
    stream: Stream,
    peer: Peer,
    greeting: Greeting,
    link: &Link,
) -> Option<(Stream, Peer)> {
    let greeting = Box::pin(async move {
        let (mut stream, mut peer) = (stream, peer);
        if let (true, Stream::Plain(stream)) = (greeting.is_proxied, &mut stream) {
            peer = proxy_header::read(stream, peer).await?;
        }
        if let Some(tls) = greeting.tls {
            let accepted = TlsAcceptor::from(tls.config()).accept(stream).await?;
            stream = Stream::Tls(Box::new(accepted.into()));
        }
        Ok((stream, peer))
    });
    let left = async {
        link.ordered(Order::Drain).await;
        Err(io::Error::from(io::ErrorKind::ConnectionAborted))
    };
    match first(greeting, left).await {
        Ok(greeted) => {
            link.enter(Phase::New);
            Some(greeted)
        }
        Err(error) => {
            tracing::debug!(address = %peer.address, %error, "a client did not begin as it must");
            None
        }
    }
}

/// What ends first of two that run beside each other; the other one is dropped.
pub async fn first<T>(one: impl Future<Output = T>, other: impl Future<Output = T>) -> T {
    let (mut one, mut other) = (pin!(one), pin!(other));
    std::future::poll_fn(|context| match one.as_mut().poll(context) {
        Poll::Ready(ended) => Poll::Ready(ended),
        Poll::Pending => other.as_mut().poll(context),
    })
    .await
}
