//! Kept connections to one replica, and a connection in use.

use evenkeel_settings::address::ServerAddress;
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use evenkeel_runtime::limits::UpstreamLimits;
use evenkeel_runtime::stream::Stream;
use evenkeel_runtime::tls::ClientTls;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};

use super::body::Body;
use super::counts::{Counted, Side, count};
use super::h2::inflow::Cause;
use super::h2::sessions::Sessions;
use super::head;
use super::relay::Relay;
use super::replica_body::Arrival;
use super::wire::Wire;

/// How many times a kept connection is looked at during its idle time.
const SWEEPS_PER_IDLE_TIME: u32 = 4;

/// The connections of one worker to one replica.
pub(super) struct Pool {
    address: ServerAddress,
    limits: UpstreamLimits,
    tls: Option<ClientTls>,
    builder: http1::Builder,
    #[expect(clippy::vec_box, reason = "a link is large and moves twice per request")]
    idle: RefCell<Vec<Box<Link>>>,
    open: Cell<usize>,
    /// Those of HTTP/2.
    sessions: Rc<Sessions>,
    /// Counts sweeps: a clock that costs the request path nothing.
    sweep: Cell<u32>,
}

/// One connection. `driver` is `None` once it has closed.
struct Link {
    sender: http1::SendRequest<Body>,
    driver: Option<http1::Connection<Wire<Stream>, Body>>,
    relay: Relay,
    idle_since_sweep: u32,
    /// Whether it may leave HTTP, and what is left when it has.
    may_upgrade: bool,
    upgraded: Option<http1::Parts<Wire<Stream>>>,
}

impl Link {
    /// Lets the connection read and write as far as it can, then looks with `poll` at what came
    /// of it.
    fn drive<T>(
        &mut self,
        cx: &Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let Link { driver, relay, may_upgrade, upgraded, .. } = self;
        relay.poll(cx, |cx| {
            if driver.as_mut().is_some_and(|driver| Pin::new(driver).poll(cx).is_ready()) {
                let ended = driver.take(); // dropping it hands an unsent request back
                *upgraded = ended.filter(|_| *may_upgrade).map(http1::Connection::into_parts);
            }
            poll(cx)
        })
    }

    /// Whether request and response are both through and another request may follow.
    fn is_reusable(&self) -> bool {
        self.driver.is_some() && self.sender.is_ready()
    }
}

impl Pool {
    /// No connection yet; a task of its own looks after idle ones.
    pub(super) fn new(
        address: ServerAddress,
        limits: UpstreamLimits,
        tls: Option<ClientTls>,
    ) -> Rc<Pool> {
        let mut builder = http1::Builder::new();
        builder.max_buf_size(limits.head_bytes_max.max(8192));
        let (idle, open) = (RefCell::default(), Cell::new(0));
        let sessions = Sessions::new(address, limits, tls.clone());
        let swept = Cell::new(0);
        let pool = Pool { address, limits, tls, builder, idle, open, sessions, sweep: swept };
        let pool = Rc::new(pool);
        tokio::task::spawn_local(sweep(Rc::downgrade(&pool), limits.idle));
        pool
    }

    pub(super) fn address(&self) -> ServerAddress {
        self.address
    }

    pub(super) fn limits(&self) -> &UpstreamLimits {
        &self.limits
    }

    pub(super) fn tls(&self) -> Option<&ClientTls> {
        self.tls.as_ref()
    }

    /// Connections that are open or being opened, idle ones too.
    pub(super) fn connections(&self) -> usize {
        self.open.get() + self.sessions.open()
    }

    pub(super) fn connections_idle(&self) -> usize {
        self.idle.borrow().len() + self.sessions.idle()
    }

    pub(super) fn close_idle(&self) {
        self.closed(self.idle.take().len());
        self.sessions.close_idle();
    }

    /// The connections of HTTP/2.
    pub(super) fn sessions(&self) -> &Rc<Sessions> {
        &self.sessions
    }

    /// Connections of HTTP/1.1 that are open or being opened.
    pub(super) fn leases(&self) -> usize {
        self.open.get()
    }

    /// So many connections are gone.
    fn closed(&self, count: usize) {
        let open = self.open.get();
        assert!(count <= open, "a connection closes once");
        self.open.set(open - count);
    }

    /// Drops idle connections that are too old, or that the replica has closed.
    fn drop_stale(&self) {
        let sweep = self.sweep.get().wrapping_add(1);
        self.sweep.set(sweep);
        let mut idle = self.idle.borrow_mut();
        let before = idle.len();
        idle.retain_mut(|link| {
            let _ = link.drive(&Context::from_waker(Waker::noop()), |_| Poll::Ready(()));
            let age = sweep.wrapping_sub(link.idle_since_sweep);
            link.is_reusable() && age <= SWEEPS_PER_IDLE_TIME
        });
        self.closed(before - idle.len());
        self.sessions.drop_stale(sweep, SWEEPS_PER_IDLE_TIME);
    }
}

/// Looks after idle connections until the last user of the pool is gone.
async fn sweep(pool: Weak<Pool>, idle: Duration) {
    let period = (idle / SWEEPS_PER_IDLE_TIME).max(Duration::from_millis(1));
    loop {
        tokio::time::sleep(period).await;
        let Some(pool) = pool.upgrade() else { return };
        pool.drop_stale();
    }
}

/// A connection in use by one attempt. Dropping it closes the connection.
pub(super) struct Lease {
    /// `None` while it opens, and after it went back to the pool.
    link: Option<Box<Link>>,
    pool: Rc<Pool>,
    is_kept: bool,
}

impl Lease {
    /// Takes the connection that became idle last.
    pub(super) fn reuse(pool: &Rc<Pool>) -> Option<Lease> {
        let link = pool.idle.borrow_mut().pop()?;
        Some(Lease { link: Some(link), pool: Rc::clone(pool), is_kept: false })
    }

    /// Takes a place for a connection that is to be [opened](Lease::open), if there is one.
    pub(super) fn reserve(pool: &Rc<Pool>) -> Option<Lease> {
        if pool.connections() >= pool.limits.connections_max {
            return None;
        }
        pool.open.set(pool.open.get() + 1);
        Some(Lease { link: None, pool: Rc::clone(pool), is_kept: false })
    }

    /// Speaks HTTP on this stream from now on.
    pub(super) async fn open(&mut self, wire: Wire<Stream>) -> hyper::Result<()> {
        let (sender, driver) = self.pool.builder.handshake(wire).await?;
        let (driver, relay) = (Some(driver), Relay::new());
        let (idle_since_sweep, may_upgrade, upgraded) = (0, false, None);
        let link = Link { sender, driver, relay, idle_since_sweep, may_upgrade, upgraded };
        self.link = Some(Box::new(link));
        count(Side::Replicas, Counted::Http1);
        Ok(())
    }

    pub(super) fn address(&self) -> ServerAddress {
        self.pool.address
    }

    pub(super) fn limits(&self) -> &UpstreamLimits {
        self.pool.limits()
    }

    /// Whether request and response are both through and another request may follow.
    pub(super) fn is_reusable(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.is_reusable())
    }

    /// Hands a request to the connection: it is not in the future, which is moved. Drive that with
    /// [`Lease::answer`].
    #[inline]
    pub(super) fn send(
        &mut self,
        request: Request<Body>,
    ) -> impl Future<Output = Result<Response<Incoming>, TrySendError<Request<Body>>>> + use<> {
        let link = self.link.as_mut().expect("a lease for an exchange has a link");
        link.may_upgrade = head::wants_upgrade(&request);
        link.sender.try_send_request(request)
    }

    /// Waits for the head of the response to what was sent.
    pub(super) fn answer<T>(
        &mut self,
        mut sent: Pin<&mut impl Future<Output = T>>,
    ) -> impl Future<Output = T> {
        let link = self.link.as_mut().expect("a lease for an exchange has a link");
        std::future::poll_fn(move |cx| link.drive(cx, |cx| sent.as_mut().poll(cx)))
    }

    /// Lets the connection read and write as far as it can, then looks with `poll` at what came
    /// of it.
    pub(super) fn drive<T>(
        &mut self,
        cx: &Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.link.as_mut().expect("a lease in use has a link").drive(cx, poll)
    }

    /// The replica has answered that it leaves HTTP: the connection as it is then, and what was
    /// read of it.
    pub(super) async fn upgrade(&mut self) -> Option<(Stream, Bytes)> {
        let link = self.link.as_mut().expect("a lease in use has a link");
        std::future::poll_fn(|cx| {
            let _ = link.drive(cx, |_| Poll::<()>::Pending);
            match link.upgraded.take() {
                None if link.driver.is_some() => Poll::Pending,
                ended => Poll::Ready(ended),
            }
        })
        .await
        .map(|parts| (parts.io.into_stream(), parts.read_buf))
    }

    /// Keeps the connection for the next request, if it is fit for one.
    pub(super) fn give_back(mut self) {
        let Some(mut link) = self.link.take_if(|link| link.is_reusable()) else { return };
        let mut idle = self.pool.idle.borrow_mut();
        if idle.len() < self.pool.limits.idle_connections_max {
            link.relay.rest();
            link.idle_since_sweep = self.pool.sweep.get();
            idle.push(link);
            self.is_kept = true;
        }
    }
}

/// The body of a response, with the connection that it comes by.
pub(super) struct Leased {
    lease: Lease,
    incoming: Incoming,
}

impl Leased {
    pub(super) fn new(lease: Lease, incoming: Incoming) -> Leased {
        Leased { lease, incoming }
    }
}

impl Arrival for Leased {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cause>>> {
        let incoming = Pin::new(&mut self.incoming);
        let frame = self.lease.drive(cx, |cx| http_body::Body::poll_frame(incoming, cx));
        frame.map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        http_body::Body::is_end_stream(&self.incoming)
    }

    fn size_hint(&self) -> SizeHint {
        http_body::Body::size_hint(&self.incoming)
    }

    fn is_through(&self) -> bool {
        self.lease.is_reusable()
    }

    fn complete(self) {
        self.lease.give_back();
    }

    fn address(&self) -> ServerAddress {
        self.lease.address()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.is_kept {
            self.pool.closed(1);
        }
    }
}
