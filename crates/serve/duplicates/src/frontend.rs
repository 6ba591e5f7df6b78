//! Clients: their bytes become commands, their answers bytes.
//!
//! **The end.** Told to drain, a client's commands that were read are taken, and one that has begun
//! when the rest of it comes; then nothing further is read. The connection ends when every answer
//! that is owed has been written, so that no write is applied whose client is not told. What it
//! sends after that is thrown away and not applied.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

use super::config::DuplicatesConfig;
use evenkeel_duplicates_engine::{ClientId, Engine, ParsedCommand};
use evenkeel_leadership::{Door, ended};
use evenkeel_redis_acl::Users;
use evenkeel_runtime::accept::{
    AcceptConfig, Linger, Link, ListenerFilters, Order, Peer, Phase, ServeConnection, Stream,
    poll_leave,
};
use evenkeel_runtime::buffers::{self, BufferBudget, BufferShare};
use evenkeel_runtime::tls::ServerTls;
use evenkeel_store_link::inbox::Inbox;
use evenkeel_stores::resp::encode;
use evenkeel_stores::resp::request::{Limits, RequestParser};

/// Commands of one client that may wait for their answers; no more of its bytes are read then.
const WAITING_MAX: usize = 1_024;
/// Answers of one client that may wait to be written; no more of its bytes are read then.
const OUT_BYTES_PAUSE: usize = 1 << 20;
/// What a client that waits (`BLPOP`) may send ahead: it is read so that its end is seen.
const AHEAD_BYTES_MAX: usize = 64 << 10;
/// How long a client may take to say its password, to take some of its answers, and to leave.
const PATIENCE: Duration = Duration::from_secs(10);

/// What clients are allowed. Without a password nothing need come from a new one, as with Redis.
pub(super) fn accept_config(
    config: &DuplicatesConfig,
    users: &Users,
    tls: Option<ServerTls>,
) -> AcceptConfig {
    let idle = config.idle_max.unwrap_or(Duration::MAX);
    AcceptConfig {
        connections_max: config.clients_max,
        handshake: PATIENCE,
        first: if users.nobody().is_none() { PATIENCE } else { idle },
        idle,
        write: PATIENCE,
        age: Duration::MAX,
        drain: config.drain,
        filters: ListenerFilters::of_tls(tls),
    }
}

/// What those are allowed who ask who leads.
pub(super) fn sentinel_config(
    config: &DuplicatesConfig,
    users: &Users,
    tls: Option<ServerTls>,
) -> AcceptConfig {
    const CLIENTS_MAX: usize = 1_000;
    let own = accept_config(config, users, tls);
    AcceptConfig { connections_max: CLIENTS_MAX.min(config.clients_max), first: PATIENCE, ..own }
}

/// Serves clients of a service.
pub(super) struct Frontend {
    engine: Rc<Engine>,
    /// Where its clients come to.
    door: Door,
    buffers: &'static BufferBudget,
}

impl Frontend {
    pub(super) fn new(engine: &Rc<Engine>, door: Door) -> Self {
        Self { engine: Rc::clone(engine), door, buffers: buffers::of_process() }
    }
}

impl ServeConnection for Frontend {
    async fn serve(self: Rc<Self>, mut stream: Stream, peer: Peer, link: Rc<Link>) {
        let mut session = Session::new(&self.engine, self.buffers, link);
        self.engine.borrow().introduce(session.id, (&peer, self.door));
        std::future::poll_fn(|context| session.poll(Pin::new(&mut stream), context)).await;
    }
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
    /// It has sent something since its phase was said.
    is_heard: bool,
    is_flushed: bool,
    intake: Intake,
    linger: Linger,
    link: Rc<Link>,
    /// Commands that came were not looked at, because it has no room for more.
    is_paused: bool,
    /// What of the process's buffers is this client's.
    share: BufferShare,
}

/// Which commands are still taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Intake {
    /// All.
    Open,
    /// The one that has begun, and no other.
    Last,
    /// None.
    Ended,
}

impl Session {
    fn new(engine: &Rc<Engine>, buffers: &'static BufferBudget, link: Rc<Link>) -> Self {
        let mut inner = engine.borrow();
        let is_limited = inner.users.nobody().is_none();
        let limits = match is_limited {
            true => Limits::unauthenticated(),
            false => inner.config.limits,
        };
        Self {
            engine: Rc::clone(engine),
            id: inner.welcome(),
            inbox: Inbox::default(),
            parser: RequestParser::new(limits),
            out: Vec::new(),
            written: 0,
            is_closed: false,
            is_limited,
            is_heard: false,
            is_flushed: true,
            intake: Intake::Open,
            linger: Linger::WhileSending,
            link,
            is_paused: false,
            share: BufferShare::of(buffers),
        }
    }

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
            let is_ending = client.is_ending || self.is_closed || self.intake == Intake::Ended;
            if self.is_closed && client.is_idle {
                return Poll::Ready(()); // it waits for what nobody would get
            }
            if is_ending && !waits && is_idle && client.out.is_empty() {
                if self.intake == Intake::Ended
                    && let Some(word) = client.routed.take()
                {
                    encode::error(&mut client.out, &ended(&word)); // the next one goes on
                    continue;
                }
                let is_told = client.is_ending;
                drop(inner);
                return self.poll_leave(stream, is_told, context);
            }
            let answers = client.answer_bytes() + self.out.len();
            let came = self.inbox.filled().len() + self.parser.place_bytes();
            if !self.share.hold(answers + came, context.waker()) {
                return Poll::Ready(()); // nobody has more, and there is no room for all
            }
            let is_full = client.waiting() >= WAITING_MAX
                || client.is_held()
                    && !(client.is_idle && self.inbox.filled().len() < AHEAD_BYTES_MAX)
                || client.out.len() + self.out.len() - self.written > OUT_BYTES_PAUSE;
            let has_room = !waits && answers == 0 || self.share.has_room();
            let (is_known, is_listening) = (client.is_known(), client.is_listening());
            drop(inner);
            self.say_phase(waits || is_listening, is_known);
            if is_ending || is_full || !has_room {
                return Poll::Pending; // woken by answers, or when the socket takes more
            }
            if self.is_paused {
                continue; // what was answered made room, and there are commands that came
            }
            match self.inbox.poll_read(stream.as_mut(), context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0)) => self.is_closed = true,
                Poll::Ready(Ok(_)) => self.is_heard = true,
                Poll::Ready(Err(_)) => return Poll::Ready(()),
            }
        }
    }

    /// Everything is said. Ready when the client has heard it, as far as can be known: a reset
    /// could destroy the last answers.
    fn poll_leave<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: Pin<&mut S>,
        is_told: bool,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        if self.is_closed {
            return Poll::Ready(()); // it sends nothing more
        }
        let linger = if is_told { Linger::UntilClosed } else { self.linger };
        poll_leave(stream, &self.link, linger, context).map(drop)
    }

    /// A client that waits for answers is served; one that waits for nothing is idle from when it
    /// sent something last.
    fn say_phase(&mut self, waits: bool, is_known: bool) {
        let is_heard = std::mem::take(&mut self.is_heard);
        let is_serving = self.link.phase() == Phase::Serving;
        if waits && !is_serving {
            self.link.enter(Phase::Serving);
        } else if !waits && is_known && (is_heard || is_serving) {
            self.link.enter(Phase::Idle);
        }
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
        let is_draining = self.link.order() >= Order::Drain;
        if is_draining {
            inner.refuse_waiting(self.id, "this process ends");
            inner.leave_pause(self.id);
        }
        self.is_paused = false;
        loop {
            let Some(client) = inner.client(self.id) else { return };
            let is_over = client.is_ending || self.intake == Intake::Ended;
            if client.waiting() >= WAITING_MAX || is_over || client.is_held() {
                return;
            }
            let is_under_way = client.waiting() + client.answer_bytes() + self.out.len() > 0;
            if is_under_way && !self.share.has_room() {
                self.is_paused = true;
                return;
            }
            if is_draining && (client.waiting() > 0 || !self.inbox.filled().is_empty()) {
                self.linger = Linger::UntilClosed; // it is answered something
            }
            if self.is_limited && client.is_known() {
                self.is_limited = false;
                self.parser.set_limits(inner.config.limits);
            }
            match self.parser.parse(self.inbox.filled()) {
                Ok(None) => {
                    if is_draining && self.intake == Intake::Open {
                        let has_begun = !self.inbox.filled().is_empty();
                        self.intake = if has_begun { Intake::Last } else { Intake::Ended };
                    }
                    return;
                }
                Ok(Some(length)) => {
                    if !self.parser.is_empty() {
                        let buffer = self.inbox.filled();
                        let parsed = ParsedCommand { parser: &self.parser, buffer, length };
                        if !inner.submit(self.id, parsed) {
                            return; // its bytes stay for when it is no longer held
                        }
                    }
                    self.inbox.consume(length);
                    if self.intake == Intake::Last {
                        self.intake = Intake::Ended;
                    }
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
                match self.out.capacity() > OUT_BYTES_PAUSE {
                    true => self.out = Vec::new(), // gives the memory back
                    false => self.out.clear(),
                }
                self.written = 0;
                let engine = Rc::clone(&self.engine);
                let mut inner = engine.borrow();
                let Some(client) = inner.client(self.id) else { return Poll::Ready(Ok(true)) };
                if client.out.is_empty() {
                    if !self.is_flushed {
                        self.is_flushed = stream.as_mut().poll_flush(context)?.is_ready();
                    }
                    return Poll::Ready(Ok(self.is_flushed));
                }
                self.is_flushed = false;
                std::mem::swap(&mut self.out, &mut client.out);
            }
            match stream.as_mut().poll_write(context, &self.out[self.written..]) {
                Poll::Pending => {
                    self.link.write_blocked(true);
                    return Poll::Ready(Ok(false));
                }
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => {
                    self.link.write_blocked(false);
                    self.written += count;
                }
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use evenkeel_runtime::accept::{Listener, Stop, accept};

    use super::*;
    use evenkeel_duplicates_engine::world::World;

    const COMMANDS: usize = 40;
    const BYTES: usize = 40_000;

    #[test]
    fn clients_that_do_not_read_share_a_budget_and_hinder_nobody_else() {
        let buffers: &BufferBudget = Box::leak(Box::new(BufferBudget::new(2 << 20)));
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().start_paused(true).build_local(Default::default());
        runtime.unwrap().block_on(async {
            let world = World::start(1, |_| {});
            let door = Door::Plain;
            let frontend = Frontend { engine: Rc::clone(&world.engine), door, buffers };
            let config = AcceptConfig::unlimited().fixed();
            let (listener, dialer) = Listener::memory();
            let (stop, frontend) = (Stop::new(), Rc::new(frontend));
            tokio::task::spawn_local(accept(listener, config, frontend, stop.signal()));
            let mut slow = Vec::new();
            for _ in 0..8 {
                let (read, mut write) = tokio::io::split(dialer.connect().unwrap());
                tokio::task::spawn_local(async move {
                    let mut command = Vec::new();
                    encode::command(&mut command, &[b"ECHO", &[b'x'; BYTES]]);
                    let mut commands = command.repeat(COMMANDS);
                    commands.extend(b"PING\r\n".repeat(COMMANDS)); // are read with the last one
                    write.write_all(&commands).await.unwrap();
                    std::future::pending::<()>().await; // it stays
                });
                slow.push(read);
            }
            tokio::time::sleep(Duration::from_secs(1)).await; // all that can be done is done
            let counts = buffers.counts();
            // Without the budget they would have a mebibyte each.
            assert!((1 << 19..=2 << 20).contains(&counts.bytes), "{counts:?}");
            assert!(counts.held_back >= 8 && counts.cut_off == 0, "{counts:?}");
            let mut other = dialer.connect().unwrap();
            other.write_all(b"PING\r\n").await.unwrap();
            let mut answer = [0; 7];
            other.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"+PONG\r\n");
            let mut each = Vec::new();
            encode::bulk(&mut each, &[b'x'; BYTES]);
            let all = [each.repeat(COMMANDS), b"+PONG\r\n".repeat(COMMANDS)].concat();
            for client in &mut slow {
                let mut came = vec![0; all.len()];
                let reading = tokio::time::timeout(PATIENCE, client.read_exact(&mut came));
                reading.await.expect("it gets every answer").unwrap();
                assert!(came == all);
            }
            let counts = buffers.counts();
            assert_eq!((counts.bytes, counts.cut_off), (0, 0), "{counts:?}");
        });
    }
}
