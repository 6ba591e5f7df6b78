//! One connection: opened, used for one request after another, closed.
//!
//! The protocol machinery of a connection and the exchange on it are driven by one task, so that
//! an answer costs one wake-up.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use http_body_util::{BodyExt as _, Full};
use hyper::Response;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::expect::Comparison;
use super::slot::{Job, Slot};
use super::tally::{Reply, is_success};
use super::target::Facts;
use super::world::World;

type Sender = SendRequest<Full<Bytes>>;
type Protocol = Connection<TokioIo<TcpStream>, Full<Bytes>>;

/// How an exchange ended.
enum End {
    Answered(Reply),
    /// Nothing of the request was written: the connection had been closed while it lay idle.
    Unsent,
    Broken(String),
}

/// Opens a connection in a task of its own; it reports to `world`.
pub(super) fn open(world: &Rc<World>) {
    let world = Rc::clone(world);
    Slot::spawn(|slot| live(world, slot));
}

async fn live(world: Rc<World>, slot: Rc<Slot>) {
    let connected = tokio::time::timeout(world.load.plan.timeout, connect(&world.addresses)).await;
    let authority = world.load.target.authority();
    match connected {
        Ok(Ok((sender, wire))) => {
            world.connection_opened();
            serve(&world, &slot, sender, wire).await;
            world.connection_closed(&slot);
        }
        Ok(Err(error)) => {
            let advice = match error.kind() {
                io::ErrorKind::ConnectionRefused => " (is the server running?)",
                io::ErrorKind::AddrNotAvailable => " (no free local port: too many connections?)",
                _ => "",
            };
            world.connect_failed(&format!("connect {authority}: {error}{advice}"));
        }
        Err(_) => {
            let timeout = world.load.plan.timeout;
            world.connect_failed(&format!("connect {authority}: no answer within {timeout:?}"));
        }
    }
}

async fn connect(addresses: &[SocketAddr]) -> io::Result<(Sender, Wire)> {
    let stream = TcpStream::connect(addresses).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    Ok((sender, Wire(Some(Box::pin(connection)))))
}

async fn serve(world: &Rc<World>, slot: &Rc<Slot>, mut sender: Sender, mut wire: Wire) {
    let mut next = world.waiting_job_or_idle(slot);
    let mut is_new = next.is_some();
    loop {
        if next.is_none() {
            next = given_job(slot, &mut wire).await;
        }
        let Some(job) = next else { return };
        let sent = world.sent(&job);
        let end = wire.drive(exchange(world, &mut sender, &job)).await;
        match end {
            End::Answered(reply) => world.answered(&job, sent, reply),
            End::Unsent => return world.unsent(job, is_new),
            End::Broken(message) => return world.broken(&job, &message),
        }
        is_new = false;
        // After `Connection: close` there is no next request.
        if wire.drive(poll_fn(|context| sender.poll_ready(context))).await.is_err() {
            return;
        }
        next = world.waiting_job_or_idle(slot);
    }
}

/// Waits until the idle connection is given a request; `None` when it ends before.
async fn given_job(slot: &Slot, wire: &mut Wire) -> Option<Job> {
    poll_fn(|context| {
        if let Some(job) = slot.take(context.waker()) {
            return Poll::Ready(Some(job));
        }
        if wire.poll(context).is_ready() { Poll::Ready(None) } else { Poll::Pending }
    })
    .await
}

async fn exchange(world: &World, sender: &mut Sender, job: &Job) -> End {
    let request = world.load.target.request(job.number, job.key);
    match sender.try_send_request(request).await {
        Ok(response) => read(world, job, response).await,
        Err(error) if error.message().is_some() => End::Unsent,
        Err(error) => End::Broken(explain(error.error())),
    }
}

async fn read(world: &World, job: &Job, response: Response<Incoming>) -> End {
    let status = response.status().as_u16();
    let optional = response.headers().get("brownout-served").is_some_and(|value| value == "?1");
    let mut comparison =
        Comparison::new(if is_success(status) { expected(world, job) } else { None });
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => {
                if let Some(chunk) = frame.data_ref() {
                    comparison.chunk(chunk);
                }
            }
            Err(error) => return End::Broken(explain(&error)),
        }
    }
    let (bytes, difference) = comparison.end();
    let mismatch = difference.map(|difference| {
        let path = world.load.target.path(job.number, job.key);
        difference.of(&Facts { number: job.number, key: job.key, path: &path })
    });
    End::Answered(Reply { status, bytes, optional, mismatch })
}

fn expected(world: &World, job: &Job) -> Option<Bytes> {
    use super::Expectation::{Any, Computed};
    let expectation = &world.load.expectation;
    let path = match expectation {
        Any => return None,
        Computed(_) => world.load.target.path(job.number, job.key),
        _ => String::new(),
    };
    expectation.of(&Facts { number: job.number, key: job.key, path: &path })
}

fn explain(error: &hyper::Error) -> String {
    use std::error::Error as _;
    if error.is_incomplete_message() {
        return "the server closed the connection before the response was complete".into();
    }
    if error.is_parse() {
        return format!("the response is no HTTP/1.1: {error} (does the port speak HTTP?)");
    }
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// The protocol machinery of a connection, until it ends.
struct Wire(Option<Pin<Box<Protocol>>>);

impl Wire {
    /// Runs `future`, which uses this connection, and the connection with it.
    async fn drive<F: Future>(&mut self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|context| {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(output);
            }
            // What the connection read may be what the future waits for.
            let _ = self.poll(context);
            future.as_mut().poll(context)
        })
        .await
    }

    /// Ready when the connection has ended.
    fn poll(&mut self, context: &mut std::task::Context<'_>) -> Poll<()> {
        let Some(connection) = &mut self.0 else { return Poll::Ready(()) };
        let ended = connection.as_mut().poll(context).map(drop);
        if ended.is_ready() {
            // Dropped at once, so that whoever waits for an answer learns that none will come.
            self.0 = None;
        }
        ended
    }
}
