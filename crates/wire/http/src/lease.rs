//! Kept connections to one replica, and a connection in use.

use evenkeel_settings::address::ServerAddress;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use evenkeel_runtime::limits::UpstreamLimits;
use evenkeel_runtime::stream::Stream;
use evenkeel_runtime::tls::ClientTls;
use http_body::SizeHint;
use hyper::client::conn::http1;

use super::answer::{Answer, Failure};
use super::body::Body;
use super::connection::Connection;
use super::counts::{Counted, Side, count};
use super::h2::inflow::Cause;
use super::h2::sessions::Sessions;
use super::message::{Request, request};
use super::piece::{Piece, Takes};
use super::replica_body::Arrival;

/// How many times a kept connection is looked at during its idle time.
const SWEEPS_PER_IDLE_TIME: u32 = 4;

/// The connections of one worker to one replica.
pub(super) struct Pool {
    address: ServerAddress,
    limits: UpstreamLimits,
    tls: Option<ClientTls>,
    builder: http1::Builder,
    idle: RefCell<Vec<Link>>,
    open: Cell<usize>,
    /// Those of HTTP/2.
    sessions: Rc<Sessions>,
    /// Counts sweeps: a clock that costs the request path nothing.
    sweep: Cell<u32>,
}

/// One connection.
struct Link {
    connection: Connection,
    idle_since_sweep: u32,
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
            let age = sweep.wrapping_sub(link.idle_since_sweep);
            age <= SWEEPS_PER_IDLE_TIME && link.connection.is_fit()
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
    link: Option<Link>,
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
    pub(super) async fn open(&mut self, stream: Stream) -> Result<(), Cause> {
        let Pool { limits, builder, .. } = &*self.pool;
        let connection = Connection::open(stream, limits, builder).await?;
        self.link = Some(Link { connection, idle_since_sweep: 0 });
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
        self.link.as_ref().is_some_and(|link| link.connection.is_reusable())
    }

    /// Hands a request to the connection: it is not in the future, which is moved. Drive that with
    /// [`Lease::answer`].
    #[inline]
    pub(super) fn begin(&mut self, request: Request<Body>) {
        self.connection().begin(request);
    }

    /// The same for a copy of a request whose head stays with the caller. The body comes back if
    /// the replica has ended the connection.
    #[inline]
    pub(super) fn begin_copy(&mut self, head: &request::Parts, body: Body) -> Result<(), Body> {
        self.connection().begin_copy(head, body)
    }

    /// Waits for the head of the response to what was sent.
    pub(super) fn answer(&mut self) -> impl Future<Output = Result<Answer, Failure>> {
        let connection = self.connection();
        std::future::poll_fn(|cx| connection.poll_answer(cx))
    }

    fn connection(&mut self) -> &mut Connection {
        &mut self.link.as_mut().expect("a lease for an exchange has a link").connection
    }

    /// The replica has answered that it leaves HTTP: the connection as it is then, and what was
    /// read of it.
    pub(super) async fn upgrade(&mut self) -> Option<(Stream, Bytes)> {
        self.link.take()?.connection.upgrade().await
    }

    /// Keeps the connection for the next request, if it is fit for one.
    pub(super) fn give_back(mut self) {
        let is_reusable = |link: &mut Link| link.connection.is_reusable();
        let Some(mut link) = self.link.take_if(is_reusable) else { return };
        let mut idle = self.pool.idle.borrow_mut();
        if idle.len() < self.pool.limits.idle_connections_max {
            link.connection.rest();
            link.idle_since_sweep = self.pool.sweep.get();
            idle.push(link);
            self.is_kept = true;
        }
    }
}

/// The body of a response comes by the connection.
impl Arrival for Lease {
    fn poll_piece(
        &mut self,
        takes: Takes,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, Cause>>> {
        self.connection().poll_piece(takes, cx)
    }

    fn is_end_stream(&self) -> bool {
        self.link.as_ref().is_none_or(|link| link.connection.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.link.as_ref().map(|link| link.connection.size_hint());
        rest.unwrap_or(SizeHint::with_exact(0))
    }

    fn is_through(&self) -> bool {
        self.is_reusable()
    }

    fn complete(self) {
        self.give_back();
    }

    fn address(&self) -> ServerAddress {
        self.pool.address
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.is_kept {
            self.pool.closed(1);
        }
    }
}
