//! Clients: their bytes become commands, their answers bytes.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

use super::engine::{Came, ClientId, Engine};
use super::inbox::Inbox;
use crate::resp::encode;
use crate::resp::request::{Limits, RequestParser};

/// Commands of one client that may wait for their answers; no more of its bytes are read then.
const WAITING_MAX: usize = 1_024;
/// Answers of one client that may wait to be written; no more of its bytes are read then.
const OUT_BYTES_PAUSE: usize = 1 << 20;
/// With so many it does not read: it is cut off.
const OUT_BYTES_MAX: usize = 256 << 20;
/// How often a client that does not read is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Accepts clients until `stop` resolves.
pub(super) async fn serve(
    engine: Rc<Engine>,
    listener: TcpListener,
    mut within: UnboundedReceiver<DuplexStream>,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let mut clients = JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = std::future::poll_fn(|context| {
            if stop.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            while let Poll::Ready(Some(_)) = clients.poll_join_next(context) {}
            while let Poll::Ready(Some(stream)) = within.poll_recv(context) {
                clients.spawn_local(attend(Rc::clone(&engine), stream));
            }
            listener.poll_accept(context).map(Some)
        });
        match accepted.await {
            None => return Ok(()),
            Some(Ok((stream, _))) => {
                let clients_max = engine.borrow().config.clients_max;
                if clients.len() >= clients_max || stream.set_nodelay(true).is_err() {
                    continue; // dropped: it is closed
                }
                clients.spawn_local(attend(Rc::clone(&engine), stream));
            }
            // Out of descriptors, or a client that has gone: others may fare better.
            Some(Err(_)) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// One client, from its first byte to its last.
pub(super) async fn attend(
    engine: Rc<Engine>,
    mut stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
) {
    let mut session = {
        let mut inner = engine.borrow();
        let limits = match inner.config.password {
            Some(_) => Limits::unauthenticated(),
            None => inner.config.limits,
        };
        let id = inner.welcome();
        Session {
            engine: Rc::clone(&engine),
            id,
            inbox: Inbox::default(),
            parser: RequestParser::new(limits),
            out: Vec::new(),
            written: 0,
            is_closed: false,
            is_limited: inner.config.password.is_some(),
            heard: Instant::now(),
            is_heard: false,
        }
    };
    let idle_max = engine.borrow().config.idle_max;
    let looks_every = idle_max.map_or(LOOK_EVERY, |max| LOOK_EVERY.min(max / 2));
    let mut stalled = tokio::time::interval(looks_every);
    let (mut written_before, mut looked) = ((0, 0), Instant::now());
    std::future::poll_fn(|context| {
        // A client that has not taken a byte in two looks, while there was one, is gone.
        while stalled.poll_tick(context).is_ready() {
            if session.is_idle_for(idle_max) {
                return Poll::Ready(());
            }
            if looked.elapsed() < LOOK_EVERY {
                continue;
            }
            looked = Instant::now();
            let now = (session.out.len(), session.written);
            if session.written < session.out.len() && now == written_before {
                return Poll::Ready(());
            }
            written_before = now;
        }
        session.poll(Pin::new(&mut stream), context)
    })
    .await;
}

struct Session {
    engine: Rc<Engine>,
    id: ClientId,
    inbox: Inbox,
    parser: RequestParser,
    /// What is being written.
    out: Vec<u8>,
    written: usize,
    /// The client sends nothing more.
    is_closed: bool,
    /// It has not said its password yet.
    is_limited: bool,
    /// When it sent something last, as it was looked at.
    heard: Instant,
    is_heard: bool,
}

impl Session {
    /// Reads, takes commands and writes until nothing moves; ready when the client is done with.
    fn poll<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        mut stream: Pin<&mut S>,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        loop {
            self.take_commands(context);
            let Poll::Ready(Ok(is_idle)) = self.poll_write(stream.as_mut(), context) else {
                return Poll::Ready(());
            };
            let engine = Rc::clone(&self.engine);
            let mut inner = engine.borrow();
            let Some(client) = inner.client(self.id) else { return Poll::Ready(()) };
            let waits = client.waiting() > 0;
            let is_ending = client.is_ending || self.is_closed;
            if is_ending && !waits && is_idle && client.out.is_empty() {
                return Poll::Ready(());
            }
            if client.out.len() > OUT_BYTES_MAX {
                return Poll::Ready(());
            }
            let is_full = client.waiting() >= WAITING_MAX
                || client.is_held()
                || client.out.len() + self.out.len() - self.written > OUT_BYTES_PAUSE;
            drop(inner);
            if is_ending || is_full {
                return Poll::Pending; // woken by answers, or when the socket takes more
            }
            match self.inbox.poll_read(stream.as_mut(), context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0)) => self.is_closed = true,
                Poll::Ready(Ok(_)) => self.is_heard = true,
                Poll::Ready(Err(_)) => return Poll::Ready(()),
            }
        }
    }

    /// Whether it has said nothing for so long, and waits for nothing. Called now and then: between
    /// two calls the time is not looked at.
    fn is_idle_for(&mut self, max: Option<Duration>) -> bool {
        let Some(max) = max else { return false };
        let waits = self.engine.borrow().client(self.id).is_some_and(|it| it.waiting() > 0);
        if std::mem::take(&mut self.is_heard) || waits || self.written < self.out.len() {
            self.heard = Instant::now();
        }
        self.heard.elapsed() >= max
    }

    /// Takes the whole commands that have come, as many as may wait.
    fn take_commands(&mut self, context: &Context<'_>) {
        let engine = Rc::clone(&self.engine);
        let mut inner = engine.borrow();
        inner.read_clock();
        if let Some(client) = inner.client(self.id)
            && !client.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker()))
        {
            client.waker = Some(context.waker().clone());
        }
        loop {
            let Some(client) = inner.client(self.id) else { return };
            if client.waiting() >= WAITING_MAX || client.is_ending || client.is_held() {
                return;
            }
            if self.is_limited && client.is_known() {
                self.is_limited = false;
                self.parser.set_limits(inner.config.limits);
            }
            match self.parser.parse(self.inbox.filled()) {
                Ok(None) => return,
                Ok(Some(length)) => {
                    if !self.parser.is_empty() {
                        let buffer = self.inbox.filled();
                        let came = Came { parser: &self.parser, buffer, length };
                        if !inner.submit(self.id, came) {
                            return; // its bytes stay for when it is no longer held
                        }
                    }
                    self.inbox.consume(length);
                }
                Err(error) => {
                    inner.reply_now(self.id, |out, _| encode::protocol_error(out, error));
                    if let Some(client) = inner.client(self.id) {
                        client.is_ending = true;
                    }
                    return;
                }
            }
        }
    }

    /// Writes what there is; true when all of it is written.
    fn poll_write<S: AsyncWrite>(
        &mut self,
        mut stream: Pin<&mut S>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        loop {
            if self.written == self.out.len() {
                self.out.clear();
                self.written = 0;
                let engine = Rc::clone(&self.engine);
                let mut inner = engine.borrow();
                let Some(client) = inner.client(self.id) else { return Poll::Ready(Ok(true)) };
                if client.out.is_empty() {
                    return Poll::Ready(Ok(true));
                }
                std::mem::swap(&mut self.out, &mut client.out);
            }
            match stream.as_mut().poll_write(context, &self.out[self.written..]) {
                Poll::Pending => return Poll::Ready(Ok(false)),
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => self.written += count,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.engine.borrow().dismiss(self.id);
    }
}
