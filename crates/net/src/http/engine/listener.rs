//! The client side: accept connections, hand requests to a handler, and stop politely.
//!
//! Every worker binds a listener of its own to the same address (`SO_REUSEPORT`), so the kernel
//! spreads the connections and workers share nothing.
//!
//! What a slow or silent client may hold up is limited by time in each phase of a connection.
//! Those limits are coarse (seconds), so no timer is armed per request: a connection notes the
//! tick at which it entered a phase, and one sweep per tick closes what has overstayed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::body::{Body, BodyError};
use super::head::Refusal;
use super::wire::Wire;

/// Connections the kernel keeps waiting while a worker is busy or full.
const BACKLOG: i32 = 4096;

/// How long accepting rests when the process has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long idle connections stay open once the worker stops: a client that does not know yet
/// and sends its next request is answered, and told to close.
const LAST_CALL: Duration = Duration::from_millis(250);

/// Reads of a leaving client's bytes before other clients have their turn.
const DISCARDS_MAX: usize = 16;

/// What one worker allows its clients.
#[derive(Debug, Clone, Copy)]
pub struct ServerLimits {
    /// The longest request head in bytes, answered 431 beyond; a head has at most 100 lines.
    pub head_bytes_max: usize,
    /// The longest request body in bytes, answered 413 beyond.
    pub body_bytes_max: u64,
    /// Connections at once; more wait in the kernel's backlog.
    pub connections_max: usize,
    /// How long a request head may take from its first byte, a new connection to its first
    /// head, and a client to stop sending once it has been refused.
    pub head: Duration,
    /// How long a connection may idle between requests.
    pub idle: Duration,
    /// How long a client may refuse to take a piece of the response.
    pub write: Duration,
    /// How long requests in flight may take to finish once the worker stops.
    pub drain: Duration,
}

/// Who sent a request. Shared by all requests of a connection.
#[derive(Debug, Clone)]
pub struct Client {
    /// The peer's address.
    pub address: SocketAddr,
    /// The peer's IP address as the value of a header, so that none is formatted per request.
    pub forwarded_for: HeaderValue,
}

/// What a worker did, told when it has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections cut off because they outlasted the drain.
    pub cut_off: u64,
}

/// A bound address that accepts no one yet. Can be sent to the thread that serves it.
#[derive(Debug)]
pub struct Listener(std::net::TcpListener);

impl Listener {
    /// Binds the address; other listeners, in this process or another, may share it.
    ///
    /// # Errors
    ///
    /// As the operating system says, with the address and a likely cause.
    pub fn bind(address: SocketAddr) -> io::Result<Listener> {
        bind(address).map(Listener).map_err(|error| {
            let hint = match error.kind() {
                io::ErrorKind::AddrInUse => " (is another server running there?)",
                io::ErrorKind::PermissionDenied => " (ports below 1024 need a privilege)",
                io::ErrorKind::AddrNotAvailable => " (no interface of this host has it)",
                _ => "",
            };
            io::Error::new(error.kind(), format!("cannot listen on {address}: {error}{hint}"))
        })
    }

    /// The address bound, with the port the system chose if the port asked for was 0.
    ///
    /// # Errors
    ///
    /// As the operating system says.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// The socket, for a protocol that is not HTTP.
    pub(crate) fn into_std(self) -> std::net::TcpListener {
        self.0
    }
}

/// The runtime of one worker thread: single-threaded, so that nothing on it needs a lock.
///
/// # Errors
///
/// When the operating system refuses an event queue.
pub fn worker_runtime() -> io::Result<tokio::runtime::LocalRuntime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build_local(tokio::runtime::LocalOptions::default())
}

/// Serves clients on this thread until `stop` resolves, then finishes what is in flight.
///
/// From then on no client is accepted, answers carry `connection: close`, idle connections
/// close a quarter of a second later (a request may be on its way on any of them), and what is
/// not done after [`ServerLimits::drain`] is cut off.
/// The handler cannot fail: a failure is a response too. It is dropped in mid-air when the
/// client goes away, which must cancel its work.
///
/// # Errors
///
/// When the listener cannot be used; errors of single clients end only their connection.
///
/// # Panics
///
/// Outside a [`worker_runtime`].
pub async fn serve<H, F>(
    listener: Listener,
    limits: ServerLimits,
    handler: H,
    stop: impl Future<Output = ()>,
) -> io::Result<Served>
where
    H: Fn(Request<Body>, Rc<Client>) -> F + 'static,
    F: Future<Output = Response<Body>> + 'static,
{
    let listener = TcpListener::from_std(listener.0)?;
    let worker = Rc::new(Worker::new(limits, handler));
    let sweeping = Sweeping(tokio::task::spawn_local(Rc::clone(&worker).sweep()));
    let mut stop = pin!(stop);
    loop {
        match accept_or_stop(&listener, &worker, stop.as_mut()).await {
            Event::Stop => break,
            Event::Accepted(Ok((stream, address))) => worker.welcome(stream, address, true),
            Event::Accepted(Err(error)) => rest_after(&error).await,
        }
    }
    worker.stop(listener)?;
    let cut_off = worker.drain().await;
    drop(sweeping);
    Ok(Served { accepted: worker.accepted.get(), cut_off })
}

fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = socket2::Socket::new(
        socket2::Domain::for_address(address),
        socket2::Type::STREAM.nonblocking().cloexec(),
        Some(socket2::Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

enum Event {
    Accepted(io::Result<(TcpStream, SocketAddr)>),
    Stop,
}

/// Waits for a client, if there is room for one, or for the end.
async fn accept_or_stop<H>(
    listener: &TcpListener,
    worker: &Worker<H>,
    mut stop: Pin<&mut impl Future<Output = ()>>,
) -> Event {
    let mut accept = pin!(async {
        while worker.connections.borrow().len() >= worker.limits.connections_max {
            worker.left.notified().await;
        }
        listener.accept().await
    });
    std::future::poll_fn(|cx| {
        if stop.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Event::Stop);
        }
        accept.as_mut().poll(cx).map(Event::Accepted)
    })
    .await
}

/// A client that gave up while queued is no reason to rest; missing descriptors are.
async fn rest_after(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    if !matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted) {
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

/// Stops the sweep when the worker returns, or is dropped in the middle.
struct Sweeping(tokio::task::JoinHandle<()>);

impl Drop for Sweeping {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The connections of one worker thread and what they share.
struct Worker<H> {
    limits: ServerLimits,
    handler: H,
    ticks: Rc<Cell<u32>>,
    accepted: Cell<u64>,
    connections: RefCell<BTreeMap<u64, Rc<Connection>>>,
    left: Notify,
}

impl<H, F> Worker<H>
where
    H: Fn(Request<Body>, Rc<Client>) -> F + 'static,
    F: Future<Output = Response<Body>> + 'static,
{
    fn new(limits: ServerLimits, handler: H) -> Worker<H> {
        let (ticks, accepted) = (Rc::default(), Cell::new(0));
        let (connections, left) = (RefCell::default(), Notify::new());
        Worker { limits, handler, ticks, accepted, connections, left }
    }

    /// Starts serving a connection; without `keep_alive` it is good for one request.
    fn welcome(self: &Rc<Self>, stream: TcpStream, address: SocketAddr, keep_alive: bool) {
        let Ok(wire) = Wire::new(stream) else { return };
        let id = self.accepted.get();
        self.accepted.set(id + 1);
        let connection = Rc::new(Connection::new(Rc::clone(&self.ticks)));
        self.connections.borrow_mut().insert(id, Rc::clone(&connection));
        let worker = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let registered = Registered { worker: &worker, id };
            worker.converse(wire, address, connection, keep_alive).await;
            drop(registered);
        });
    }

    /// Tells the others to finish; clients the kernel has connected already are served once.
    fn stop(self: &Rc<Self>, listener: TcpListener) -> io::Result<()> {
        self.tell_all(Order::LastCall);
        let listener = listener.into_std()?; // asks the kernel, not tokio's memory of events
        while let Ok((stream, address)) = listener.accept() {
            stream.set_nonblocking(true)?;
            self.welcome(TcpStream::from_std(stream)?, address, false);
        }
        Ok(())
    }

    async fn converse(
        &self,
        wire: Wire,
        address: SocketAddr,
        connection: Rc<Connection>,
        keep_alive: bool,
    ) {
        let client = Rc::new(Client::new(address));
        let service = service_fn(|request: Request<Incoming>| {
            let serving = Serving::begin(&connection);
            let answer = self.answer(request, &client);
            async move {
                let response = match answer {
                    Ok(handling) => handling.await,
                    Err(refusal) => refusal.into_response(),
                };
                Ok::<_, Infallible>(response.map(|body| Answer { body, _serving: serving }))
            }
        });
        let watched = Watched { wire, connection: Rc::clone(&connection) };
        let mut serving = pin!(self.builder(keep_alive).serve_connection(watched, service));
        let mut is_draining = false;
        std::future::poll_fn(|cx| {
            let order = connection.order(cx);
            if order == Order::Close {
                return Poll::Ready(());
            }
            if serving.as_mut().poll(cx).is_ready() {
                return Poll::Ready(()); // the client has been told, or is gone
            }
            // After the poll: what has arrived by now counts as in flight.
            match connection.parting(order) {
                Parting::None => Poll::Pending,
                Parting::AfterAnswer if is_draining => Poll::Pending,
                Parting::AfterAnswer => {
                    is_draining = true;
                    serving.as_mut().graceful_shutdown();
                    serving.as_mut().poll(cx).map(drop)
                }
                Parting::Now => Poll::Ready(()),
            }
        })
        .await;
    }

    fn tell_all(&self, order: Order) {
        self.connections.borrow().values().for_each(|connection| connection.tell(order));
    }

    fn answer(&self, request: Request<Incoming>, client: &Rc<Client>) -> Result<F, Refusal> {
        let bytes_max = self.limits.body_bytes_max;
        if http_body::Body::size_hint(request.body()).lower() > bytes_max {
            return Err(Refusal::body_too_large(bytes_max));
        }
        let request = request.map(|incoming| Body::from_client(incoming, bytes_max));
        Ok((self.handler)(request, Rc::clone(client)))
    }

    fn builder(&self, keep_alive: bool) -> http1::Builder {
        let mut builder = http1::Builder::new();
        let head_bytes_max = self.limits.head_bytes_max;
        builder.max_header_size(head_bytes_max).max_buf_size(head_bytes_max.max(64 * 1024));
        builder.header_read_timeout(None).keep_alive(keep_alive);
        builder
    }

    /// Closes connections that have overstayed; ticks often enough for the shortest limit.
    async fn sweep(self: Rc<Self>) {
        let ServerLimits { head, idle, write, .. } = self.limits;
        let tick = (head.min(idle).min(write) / 8).clamp(MILLISECOND, Duration::from_secs(1));
        let ticks = |limit: Duration| limit.as_nanos().div_ceil(tick.as_nanos()) as u32;
        let (head, idle, write) = (ticks(head), ticks(idle), ticks(write));
        loop {
            tokio::time::sleep(tick).await;
            let now = self.ticks.get().wrapping_add(1);
            self.ticks.set(now);
            for connection in self.connections.borrow().values() {
                let age = now.wrapping_sub(connection.since.get());
                let is_over = match connection.phase.get() {
                    Phase::New | Phase::Head | Phase::Leaving => age > head,
                    Phase::Idle => age > idle,
                    Phase::Serving => false,
                };
                let blocked_since = connection.blocked_since.get();
                if is_over || blocked_since.is_some_and(|since| now.wrapping_sub(since) > write) {
                    connection.tell(Order::Close);
                }
            }
        }
    }

    /// Waits until the last connection is gone; says how many had to be cut off.
    async fn drain(&self) -> u64 {
        let gone = async {
            while !self.connections.borrow().is_empty() {
                self.left.notified().await;
            }
        };
        let mut gone = pin!(gone);
        let last_call = LAST_CALL.min(self.limits.drain / 2);
        if tokio::time::timeout(last_call, gone.as_mut()).await.is_ok() {
            return 0;
        }
        self.tell_all(Order::Drain);
        let rest = self.limits.drain - last_call;
        if tokio::time::timeout(rest, gone.as_mut()).await.is_ok() {
            return 0;
        }
        let cut_off = self.connections.borrow().len() as u64;
        self.tell_all(Order::Close);
        gone.await;
        cut_off
    }
}

const MILLISECOND: Duration = Duration::from_millis(1);

/// The entry of a connection in its worker's table.
struct Registered<'a, H> {
    worker: &'a Worker<H>,
    id: u64,
}

impl<H> Drop for Registered<'_, H> {
    fn drop(&mut self) {
        self.worker.connections.borrow_mut().remove(&self.id);
        self.worker.left.notify_one();
    }
}

/// What the sweep and the drain know of one connection, and what they tell it.
struct Connection {
    ticks: Rc<Cell<u32>>,
    phase: Cell<Phase>,
    since: Cell<u32>,
    /// The tick since which the client takes nothing of the answer.
    blocked_since: Cell<Option<u32>>,
    order: Cell<Order>,
    waker: RefCell<Option<Waker>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing has come from the client yet.
    New,
    /// In the middle of a request head.
    Head,
    /// Between requests.
    Idle,
    /// A request is being handled or answered.
    Serving,
    /// The last answer is written; the client still sends.
    Leaving,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Serve,
    /// Answer what is in flight and what still comes, each with `connection: close`.
    LastCall,
    /// Answer what is in flight.
    Drain,
    Close,
}

/// How a connection obeys an order in its present phase.
enum Parting {
    None,
    AfterAnswer,
    Now,
}

impl Connection {
    fn new(ticks: Rc<Cell<u32>>) -> Connection {
        let (phase, since) = (Cell::new(Phase::New), Cell::new(ticks.get()));
        let (order, waker) = (Cell::new(Order::Serve), RefCell::default());
        Connection { ticks, phase, since, blocked_since: Cell::new(None), order, waker }
    }

    fn enter(&self, phase: Phase) {
        self.phase.set(phase);
        self.since.set(self.ticks.get());
    }

    fn tell(&self, order: Order) {
        self.order.set(order);
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    fn parting(&self, order: Order) -> Parting {
        match (order, self.phase.get()) {
            (Order::LastCall | Order::Drain, Phase::Serving) => Parting::AfterAnswer,
            // The end of an answer may still lie in a buffer.
            (Order::Drain, Phase::Idle) => Parting::AfterAnswer,
            (Order::Drain, Phase::New) | (Order::Close, _) => Parting::Now,
            _ => Parting::None, // a head has begun: it will be served, or take too long
        }
    }

    /// The order in force. A task has one waker for life, so the first one is kept.
    fn order(&self, cx: &Context<'_>) -> Order {
        if self.waker.borrow().is_none() {
            *self.waker.borrow_mut() = Some(cx.waker().clone());
        }
        self.order.get()
    }
}

impl Client {
    fn new(address: SocketAddr) -> Client {
        let text = address.ip().to_canonical().to_string();
        let forwarded_for = HeaderValue::from_str(&text).expect("an IP address is a header value");
        Client { address, forwarded_for }
    }
}

/// From the end of a request head to the end of its response.
struct Serving(Rc<Connection>);

impl Serving {
    fn begin(connection: &Rc<Connection>) -> Serving {
        connection.enter(Phase::Serving);
        Serving(Rc::clone(connection))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.enter(Phase::Idle);
    }
}

/// A response body that marks the end of serving when hyper is done with it.
struct Answer {
    body: Body,
    _serving: Serving,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The client's stream, telling the connection's phase by what passes.
struct Watched {
    wire: Wire,
    connection: Rc<Connection>,
}

impl Watched {
    fn note_write(&self, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let Connection { blocked_since, ticks, .. } = &*self.connection;
        if result.is_ready() {
            blocked_since.set(None);
        } else if blocked_since.get().is_none() {
            blocked_since.set(Some(ticks.get()));
        }
        result
    }
}

impl Read for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.wire).poll_read(cx, buffer);
        if result.is_ready() {
            match self.connection.phase.get() {
                Phase::New => self.connection.phase.set(Phase::Head), // its time runs already
                Phase::Idle => self.connection.enter(Phase::Head),
                _ => {}
            }
        }
        result
    }
}

impl Write for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.wire).poll_write(cx, bytes);
        self.note_write(result)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.wire).poll_write_vectored(cx, slices);
        self.note_write(result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_flush(cx)
    }

    /// Closing a socket with unread bytes makes the kernel send a reset, which may destroy the
    /// answer before the client has read it ("413", while the client still uploads). So what
    /// the client still sends is thrown away until it ends, or until its time is up.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.connection.phase.get() != Phase::Leaving {
            ready!(Pin::new(&mut self.wire).poll_shutdown(cx))?;
        }
        let mut scratch = [0; 4096];
        for _ in 0..DISCARDS_MAX {
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut self.wire).poll_read(cx, buffer.unfilled()) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    if self.connection.phase.get() != Phase::Leaving {
                        self.connection.enter(Phase::Leaving);
                    }
                }
                Poll::Pending if self.connection.phase.get() == Phase::Leaving => {
                    return Poll::Pending;
                }
                _ => return Poll::Ready(Ok(())),
            }
        }
        cx.waker().wake_by_ref(); // let others have their turn
        Poll::Pending
    }
}
