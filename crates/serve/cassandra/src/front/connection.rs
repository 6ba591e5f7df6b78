//! The loop around one connection: bytes in, tasks, answers out.

use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use evenkeel_cql::codec::{Decoder, Encoder, Limits, Side};
use evenkeel_cql::{Envelope, Opcode, Version};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::task::JoinSet;

use super::agreement::{agree, settle};
use super::backend::{Backend, Conversation};
use super::counts::count;
use super::refusal::Refusal;
use super::subscriber::Subscriber;
use super::worker::Worker;
use crate::cluster::Cluster;
use crate::session::{Agreement, Says, Session, Step, Then, World};
use crate::system::Proxy;
use evenkeel_cql::client::Answer;
use evenkeel_runtime::accept::{Linger, Order, Phase, poll_leave};
use evenkeel_runtime::buffers::BufferShare;

/// Room for what is read at once, when there is less than the other.
const READ_BYTES: usize = 32 << 10;
const READ_BYTES_MIN: usize = 4 << 10;
/// Bytes of answers that may wait to be written; with more nothing further is read.
const OUT_BYTES_PAUSE: usize = 1 << 20;
/// Answers that are made before they are written.
const REPLIES_MAX: usize = 256;
/// Nodes that are asked what a client's connection begins with, when one does not answer.
const GREETED_MAX: usize = 3;
/// All that a client may say before it is logged in.
const GREETING_BYTES_MAX: usize = 64 << 10;
/// What a task found.
enum Done<C> {
    Answered(i16, Then, Answer),
    Said(i16, Says, Option<C>, Result<Answer, Refusal>),
    Agreed(i16, Agreement, Vec<[u8; 16]>),
    Settled(i16, Envelope),
    Proven(i16, Envelope, Result<(), Refusal>),
}

/// One connection of a client.
pub(super) struct Connection<B: Backend, S> {
    worker: Rc<Worker<B>>,
    subscriber: Rc<Subscriber>,
    stream: S,
    decoder: Decoder,
    encoder: Encoder,
    session: Session,
    /// With the node that the client logs in at.
    conversation: Option<B::Conversation>,
    tasks: JoinSet<Done<B::Conversation>>,
    /// What came and is not understood yet.
    inbox: BytesMut,
    /// Whether some of it was not looked at, because there was no room for answers.
    is_paused: bool,
    /// Bytes that came before the client was logged in.
    greeting_bytes: usize,
    /// Answers that are not encoded yet.
    replies: Vec<Envelope>,
    /// What is to be written.
    out: BytesMut,
    /// Memory that this takes until all of it is written.
    out_bytes: usize,
    is_flushed: bool,
    /// What of the process's buffers is this client's.
    share: BufferShare,
    state: State,
    /// Something came, or was answered, since its phase was said.
    is_stirred: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// Nothing further is taken; ends when what there is to say is written.
    Ending,
}

/// Serves one client to the end.
pub(super) async fn attend<B: Backend>(
    worker: Rc<Worker<B>>,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    own: Proxy,
    subscriber: Rc<Subscriber>,
) {
    let settings = &worker.settings;
    let proxies = settings.proxies.with(own.clone());
    let limits = Limits { envelope_bytes_max: settings.frame_bytes_max };
    let mut connection = Connection {
        subscriber,
        stream,
        decoder: Decoder::new(Side::Client, limits),
        encoder: Encoder::new(),
        session: Session::new(own, proxies),
        conversation: None,
        tasks: JoinSet::new(),
        inbox: BytesMut::new(),
        is_paused: false,
        greeting_bytes: 0,
        replies: Vec::new(),
        out: BytesMut::new(),
        out_bytes: 0,
        is_flushed: true,
        share: BufferShare::of(settings.buffers),
        state: State::Open,
        is_stirred: false,
        worker,
    };
    std::future::poll_fn(|context| connection.poll(context)).await;
}

impl<B: Backend, S: AsyncRead + AsyncWrite + Unpin> Connection<B, S> {
    /// Reads, asks, answers and writes until nothing moves; ready when the client is done with.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.subscriber.link().phase() == Phase::Leaving {
            return self.poll_leave(context);
        }
        loop {
            if self.order() == Order::Close {
                return Poll::Ready(());
            }
            self.take_requests();
            if self.take_done(context) {
                continue; // an answer may have made room for requests
            }
            self.take_events();
            self.encode();
            if self.poll_write(context).is_err() || !self.hold(context) {
                return Poll::Ready(());
            }
            if self.is_paused && self.may_take() {
                continue; // what was written made room, and there may be requests that came
            }
            let is_written = self.out.is_empty() && self.is_flushed;
            if self.is_over() && is_written {
                return self.poll_leave(context);
            }
            self.say_phase();
            if !self.may_read() {
                return Poll::Pending; // woken by answers, or when the socket takes more
            }
            match self.poll_read(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(()),
                Poll::Ready(Ok(count)) => self.came(count),
            }
        }
    }

    /// Whether nothing is left to be said.
    fn is_over(&self) -> bool {
        match self.state {
            State::Open => {
                let has_taken_all = self.order() >= Order::Drain && !self.is_paused;
                has_taken_all && self.session.in_flight() == 0
            }
            State::Ending => true,
        }
    }

    fn order(&self) -> Order {
        self.subscriber.link().order()
    }

    /// A client with requests in flight is served; one without is idle from when anything came
    /// last. Until it is logged in it is new.
    fn say_phase(&mut self) {
        let link = self.subscriber.link();
        let is_stirred = std::mem::take(&mut self.is_stirred);
        let is_serving = link.phase() == Phase::Serving;
        if !self.session.is_ready() {
            return;
        }
        if self.session.in_flight() > 0 {
            if !is_serving {
                link.enter(Phase::Serving);
            }
        } else if is_stirred || is_serving {
            link.enter(Phase::Idle);
        }
    }

    /// Whether another request may be taken.
    fn may_take(&self) -> bool {
        let settings = &self.worker.settings;
        // Told to drain, what was read is taken, and nothing else.
        self.state == State::Open
            && (self.order() < Order::Drain || self.is_paused)
            && self.session.in_flight() < settings.in_flight_max
            && self.session.bytes_in_flight() < settings.in_flight_bytes_max
            && self.replies.len() < REPLIES_MAX
            && self.out.len() < OUT_BYTES_PAUSE
            && (!self.is_under_way() || self.share.has_room())
    }

    /// Whether something was asked that is not answered and written.
    fn is_under_way(&self) -> bool {
        self.session.in_flight() > 0 || !self.replies.is_empty() || !self.out.is_empty()
    }

    /// Says what is buffered for this client. False when that is too much, and nobody has more.
    fn hold(&mut self, context: &Context<'_>) -> bool {
        let came = self.inbox.len() + self.decoder.held_bytes();
        let bytes = came + self.session.bytes_in_flight() + self.out_bytes;
        self.share.hold(bytes, context.waker())
    }

    /// Whether bytes may be read: all that came has been looked at, unless an answer is awaited
    /// that says how to read on (STARTUP's).
    fn may_read(&self) -> bool {
        self.may_take()
            && self.order() < Order::Drain
            && self.inbox.len() <= self.worker.settings.frame_bytes_max + READ_BYTES
    }

    /// So many bytes came.
    fn came(&mut self, bytes: usize) {
        self.is_stirred = true;
        if self.session.is_ready() {
            return;
        }
        self.greeting_bytes += bytes;
        if self.greeting_bytes > GREETING_BYTES_MAX {
            let words =
                format!("more than {GREETING_BYTES_MAX} bytes came before the login was complete");
            let stream = 0; // whichever it is of, it is not all there
            let step = self.session.end(stream, &Refusal::protocol(words));
            self.take(step);
        }
    }

    /// Takes the messages that came, as many as may be in flight.
    fn take_requests(&mut self) {
        if self.order() >= Order::Drain && !self.is_paused {
            return;
        }
        while self.may_take() {
            match self.decoder.decode(&mut self.inbox) {
                Ok(None) => {
                    self.is_paused = false;
                    return;
                }
                Ok(Some(envelope)) => {
                    count(&self.worker.counts.requests);
                    let worker = Rc::clone(&self.worker);
                    let step = with_world(&worker, |world| self.session.receive(envelope, world));
                    self.take(step);
                }
                Err(error) => {
                    count(&self.worker.counts.protocol_errors);
                    tracing::debug!(%error, "cql: a client's bytes cannot be read");
                    self.end(error.answer());
                }
            }
        }
        self.is_paused = true;
    }

    /// Does what the session says.
    fn take(&mut self, step: Step) {
        let counts = &self.worker.counts;
        match step {
            Step::Reply(reply) => {
                if reply.opcode == Opcode::Result {
                    count(&counts.answered_here);
                }
                self.replies.push(reply);
            }
            Step::End(reply) => {
                count(&counts.protocol_errors);
                self.end(reply);
            }
            Step::Started(reply, version, compression) => {
                self.replies.push(reply);
                self.encode();
                self.encoder.start(version, compression);
                self.decoder.start(version, compression);
            }
            Step::NotStarted(reply) => {
                self.replies.push(reply);
                self.decoder.refuse();
                self.conversation = None;
            }
            Step::Registered(reply) => {
                self.replies.push(reply);
                self.subscriber.want_schema();
            }
            Step::Ask(stream, request, then) => {
                let backend = Rc::clone(&self.worker.backend);
                self.tasks.spawn_local(async move {
                    Done::Answered(stream, then, backend.ask(*request).await)
                });
            }
            Step::Settle(stream, reply) => {
                let backend = Rc::clone(&self.worker.backend);
                let wait = self.worker.settings.settle;
                self.tasks.spawn_local(async move {
                    settle(&backend, wait).await;
                    Done::Settled(stream, reply)
                });
            }
            Step::Say(stream, says) => self.say(stream, says),
            Step::Prove(stream, reply) => {
                let backend = Rc::clone(&self.worker.backend);
                let dialect = self.session.dialect().clone();
                self.tasks.spawn_local(async move {
                    Done::Proven(stream, reply, backend.prove(&dialect).await)
                });
            }
            Step::Agree(stream, agreement) => {
                let backend = Rc::clone(&self.worker.backend);
                let (subscriber, wait) =
                    (Rc::clone(&self.subscriber), self.worker.settings.agreement);
                self.tasks.spawn_local(async move {
                    let versions = agree(&backend, &subscriber, wait).await;
                    Done::Agreed(stream, agreement, versions)
                });
            }
        }
    }

    /// The last answer; what is in flight is given up.
    fn end(&mut self, reply: Envelope) {
        self.replies.push(reply);
        self.state = State::Ending;
        self.tasks = JoinSet::new();
    }

    /// Tells the node that the client logs in at.
    fn say(&mut self, stream: i16, says: Says) {
        let backend = Rc::clone(&self.worker.backend);
        let version = self.session.dialect().version;
        let kept = match says {
            Says::AuthResponse(_) => self.conversation.take(),
            Says::Options | Says::Startup(_) => None,
        };
        self.tasks.spawn_local(async move {
            let (opcode, body) = says.parts();
            let said = match kept {
                Some(mut conversation) => {
                    conversation.say(opcode, body).await.map(|answer| (conversation, answer))
                }
                None if matches!(says, Says::AuthResponse(_)) => Err(Refusal::server_error(
                    "the connection to the node that the login began at is lost: connect again",
                )),
                None => begin(&backend, version, opcode, &body).await,
            };
            match said {
                Ok((conversation, answer)) => {
                    Done::Said(stream, says, Some(conversation), Ok(answer))
                }
                Err(refusal) => Done::Said(stream, says, None, Err(refusal)),
            }
        });
    }

    /// Takes what tasks have found; true when there was something.
    fn take_done(&mut self, context: &mut Context<'_>) -> bool {
        let mut took = false;
        while let Poll::Ready(Some(done)) = self.tasks.poll_join_next(context) {
            took = true;
            self.is_stirred = true;
            let Ok(done) = done else {
                // A task panicked: its stream is never answered.
                self.subscriber.link().tell(Order::Close);
                return true;
            };
            let worker = Rc::clone(&self.worker);
            match done {
                Done::Answered(stream, then, answer) => {
                    let step = with_world(&worker, |world| {
                        self.session.answered(stream, then, answer, world)
                    });
                    match step {
                        Step::Reply(reply) => self.replies.push(reply),
                        step => self.take(step),
                    }
                }
                Done::Settled(stream, reply) => {
                    self.session.settled(stream);
                    self.replies.push(reply);
                }
                Done::Agreed(stream, agreement, versions) => {
                    let reply = with_world(&worker, |world| {
                        self.session.agreed(stream, &agreement, &versions, world)
                    });
                    self.replies.push(reply);
                }
                Done::Proven(stream, reply, outcome) => {
                    let step = self.session.proven(stream, reply, outcome);
                    self.logged_in();
                    self.take(step);
                }
                Done::Said(stream, says, conversation, answer) => {
                    self.take_said(stream, &says, conversation, answer);
                }
            }
        }
        took
    }

    fn take_said(
        &mut self,
        stream: i16,
        says: &Says,
        conversation: Option<B::Conversation>,
        answer: Result<Answer, Refusal>,
    ) {
        let (step, supported) = self.session.said(stream, says, answer);
        if let Some(supported) = supported {
            self.worker.remember(supported);
        }
        if *says != Says::Options {
            self.conversation = conversation;
        }
        if *says != Says::Options {
            self.logged_in();
        }
        self.take(step);
    }

    /// What a client has no use for any more that may ask, and what it needs then.
    fn logged_in(&mut self) {
        if self.session.is_ready() {
            self.conversation = None;
            self.worker.look_at_partitioner();
        }
    }

    fn take_events(&mut self) {
        if !self.session.is_ready() {
            return;
        }
        let version = self.session.dialect().version;
        while let Some(body) = self.subscriber.take_event() {
            self.replies.push(Envelope::new(version, -1, Opcode::Event, body));
        }
    }

    /// What there is to say together goes out together.
    fn encode(&mut self) {
        if !self.replies.is_empty() {
            self.encoder.encode_all(self.replies.drain(..), &mut self.out);
            self.out_bytes = self.out_bytes.max(self.out.len());
            self.is_flushed = false;
        }
    }

    fn poll_write(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        while !self.out.is_empty() {
            match Pin::new(&mut self.stream).poll_write(context, &self.out)? {
                Poll::Pending => {
                    self.subscriber.link().write_blocked(true);
                    return Ok(());
                }
                Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(written) => {
                    self.out.advance(written);
                    self.subscriber.link().write_blocked(false);
                }
            }
        }
        if std::mem::take(&mut self.out_bytes) > OUT_BYTES_PAUSE {
            self.out = BytesMut::new(); // gives the memory back
        }
        if !self.is_flushed {
            self.is_flushed = Pin::new(&mut self.stream).poll_flush(context)?.is_ready();
            self.subscriber.link().write_blocked(!self.is_flushed);
        }
        Ok(())
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.inbox.capacity() - self.inbox.len() < READ_BYTES_MIN {
            self.inbox.reserve(READ_BYTES);
        }
        pin!(self.stream.read_buf(&mut self.inbox)).poll(context)
    }

    /// The last answer is written. Ready when the client has heard it, as far as can be known.
    fn poll_leave(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let (stream, link) = (Pin::new(&mut self.stream), self.subscriber.link());
        poll_leave(stream, link, Linger::UntilClosed, context).map(drop)
    }
}

/// Says what a connection begins with to the first node that answers it: one that takes
/// connections may be paused all the same.
async fn begin<B: Backend>(
    backend: &Rc<B>,
    version: Version,
    opcode: Opcode,
    body: &Bytes,
) -> Result<(B::Conversation, Answer), Refusal> {
    let mut attempt = 1;
    loop {
        let mut conversation = backend.greet(version).await?;
        match conversation.say(opcode, body.clone()).await {
            Ok(answer) => return Ok((conversation, answer)),
            Err(refusal) if attempt == GREETED_MAX => return Err(refusal),
            Err(_) => attempt += 1,
        }
    }
}

fn with_world<B: Backend, T>(worker: &Worker<B>, tell: impl FnOnce(&World<'_>) -> T) -> T {
    let cluster = || -> Arc<Cluster> { worker.backend.cluster() };
    let supported = || worker.supported();
    tell(&World {
        statements: &worker.statements,
        cluster: &cluster,
        supported: &supported,
        is_murmur: worker.is_murmur.get(),
    })
}
