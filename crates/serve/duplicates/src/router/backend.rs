//! One client's session with the leader of one group: what was sent, and what it owes.
//!
//! **What is known of a command** whose session ended: it was not sent as a whole, or the leader
//! said that it had taken no more ([`Reached::last`]): then it was not done, and is sent to whoever
//! leads next. Or it may be done: then only a read is sent again.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite as _;

use evenkeel_leadership::{Reached, Unreached, Ways};
use evenkeel_runtime::accept::Stream;
use evenkeel_settings::address::ServerAddress;
use evenkeel_store_link::inbox::Inbox;
use evenkeel_stores::resp::reply::{self, ReplyScanner};

/// How often a read is sent again whose leader was lost while it was under way.
const TRIES_MAX: u8 = 3;
/// How often a command is sent to a next leader, should leaders end one behind the other.
const LEADERS_MAX: u8 = 16;
/// What a leader says to a client that waits when it stops leading.
const WAITS_NO_MORE: &[u8] = b"-UNAVAILABLE this process ends\r\n";

/// What a command is to whoever sends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Kind {
    /// It may be done only once.
    #[default]
    Write,
    /// It may be sent again.
    Read,
    /// It waits until there is something for it.
    Waits,
    /// It begins or ends listening to channels.
    Listens,
    /// It begins a transaction.
    Begins,
    /// What it means depends on what was sent before it on the same connection.
    Within,
}

/// A command that is sent to a leader, and whose answer it is.
#[derive(Debug, Default)]
pub(super) struct Owed {
    /// The place among the client's answers; `None`: nobody is told.
    pub(super) place: Option<(u64, usize)>,
    pub(super) bytes: Rc<[u8]>,
    /// Replies that come yet.
    replies: usize,
    pub(super) kind: Kind,
    /// Where it ends in what is written.
    end: u64,
    tries: u8,
}

impl Owed {
    pub(super) fn new(place: Option<(u64, usize)>, bytes: &[u8], kind: Kind) -> Self {
        Self { place, bytes: bytes.into(), replies: 1, kind, ..Self::default() }
    }

    /// The same with so many replies, at least one.
    pub(super) fn with_replies(self, replies: usize) -> Self {
        Self { replies, ..self }
    }
}

/// What has become of a session.
pub(super) enum Event {
    /// A whole reply came.
    Reply(Vec<u8>),
    /// It has ended.
    Lost,
    /// There is none.
    Unreached(Unreached),
}

type Opening = Pin<Box<dyn Future<Output = Result<Reached, Unreached>>>>;

enum Link {
    Opening(Opening),
    Open(Stream),
}

/// See the module.
pub(super) struct Backend {
    link: Link,
    /// Where it is, if it is another process.
    at: Option<ServerAddress>,
    /// What the leader says last, if it ends in order.
    last: String,
    inbox: Inbox,
    scanner: ReplyScanner,
    out: Vec<u8>,
    written: usize,
    /// Bytes that were written, and that were given to be.
    sent: u64,
    given: u64,
    is_flushed: bool,
    owed: VecDeque<Owed>,
    owed_bytes: usize,
    /// The leader has said that it takes nothing more.
    has_ended: bool,
    /// Nothing more is written to it.
    is_shut: bool,
    /// What the client listens to: channels and patterns, channels of shards.
    pub(super) listens: [i64; 2],
}

impl Backend {
    /// One that is being opened, with what it is to be asked.
    pub(super) fn open(
        ways: Ways,
        (group, client): (usize, std::net::SocketAddr),
        state: (Vec<u8>, usize),
        owed: VecDeque<Owed>,
    ) -> Self {
        let mut backend = Self {
            link: Link::Opening(Box::pin(ways.open(group, client, state))),
            at: None,
            last: String::new(),
            inbox: Inbox::default(),
            scanner: ReplyScanner::default(),
            out: Vec::new(),
            written: 0,
            sent: 0,
            given: 0,
            is_flushed: true,
            owed: VecDeque::new(),
            owed_bytes: 0,
            has_ended: false,
            is_shut: false,
            listens: [0; 2],
        };
        owed.into_iter().for_each(|owed| backend.send(owed));
        backend
    }

    pub(super) fn send(&mut self, owed: Owed) {
        self.out.extend_from_slice(&owed.bytes);
        self.given += owed.bytes.len() as u64;
        self.owed_bytes += owed.bytes.len();
        self.owed.push_back(Owed { end: self.given, ..owed });
    }

    /// Bytes that are held for it.
    pub(super) fn bytes(&self) -> usize {
        self.out.len() + self.owed_bytes + self.inbox.filled().len()
    }

    /// Whether it owes an answer.
    pub(super) fn owes(&self) -> bool {
        !self.owed.is_empty()
    }

    pub(super) fn is_listening(&self) -> bool {
        self.listens.iter().any(|count| *count > 0)
    }

    /// Whether somebody else is known to lead where this session is.
    pub(super) fn is_deposed(&self, holder: Option<ServerAddress>) -> bool {
        self.at.is_some() && holder.is_some() && holder != self.at
    }

    /// What the command is that is answered next.
    fn next(&self) -> Option<Kind> {
        self.owed.front().map(|owed| owed.kind)
    }

    /// Whether a command that waits is at the head of what is owed.
    pub(super) fn waits(&self) -> bool {
        self.next() == Some(Kind::Waits)
    }

    /// Whether this is a message to who listens, and no answer. Of the answers of `SUBSCRIBE` and
    /// its kin it is noted how many channels are listened to.
    pub(super) fn is_message(&mut self, said: &[u8]) -> bool {
        let is_push = said.first() == Some(&b'>');
        if !is_push && (said.first() != Some(&b'*') || !self.hears()) {
            return false;
        }
        let mut elements = reply::elements(said);
        let of = match elements.next().and_then(reply::payload) {
            Some(b"message" | b"pmessage" | b"smessage") => return true,
            Some(b"subscribe" | b"unsubscribe" | b"psubscribe" | b"punsubscribe") => 0,
            Some(b"ssubscribe" | b"sunsubscribe") => 1,
            _ => return is_push,
        };
        if let Some(count) = elements.nth(1).and_then(reply::integer) {
            self.listens[of] = count;
        }
        false
    }

    /// Whether arrays may be messages: of RESP2, nothing else is answered then.
    fn hears(&self) -> bool {
        self.is_listening() || self.next() == Some(Kind::Listens)
    }

    /// The client ends: the leader is to forget what waits.
    pub(super) fn poll_shut(&mut self, context: &mut Context<'_>) {
        if let Link::Open(stream) = &mut self.link
            && !self.is_shut
            && self.written == self.out.len()
        {
            self.is_shut = true;
            let _ = Pin::new(stream).poll_shutdown(context); // its end is seen by reading
        }
    }

    /// A reply has come: whose it is, and whether it is the last one. An error answers all.
    pub(super) fn answered(&mut self, is_error: bool) -> Option<(Option<(u64, usize)>, bool)> {
        let owed = self.owed.front_mut()?;
        owed.replies = if is_error { 0 } else { owed.replies.saturating_sub(1) };
        let told = (owed.place, owed.replies == 0);
        if told.1 {
            self.owed_bytes -= owed.bytes.len();
            self.owed.pop_front();
        }
        Some(told)
    }

    /// Whether a reply says that what waits was not done, and is to wait at the next leader.
    pub(super) fn is_put_off(&mut self, reply: &[u8]) -> bool {
        let is_put_off = self.waits() && reply == WAITS_NO_MORE;
        if let Some(owed) = self.owed.front_mut().filter(|_| is_put_off) {
            owed.end = u64::MAX; // as if it had not been sent
        }
        is_put_off
    }

    /// What is to be sent to the next leader, and what may have been done: of the latter nobody
    /// can tell.
    pub(super) fn unanswered(&mut self) -> (VecDeque<Owed>, Vec<Owed>) {
        let (mut again, mut doubted) = (VecDeque::new(), Vec::new());
        let mut is_anew = false; // a transaction that is sent from its beginning on
        for mut owed in std::mem::take(&mut self.owed) {
            let is_undone = self.has_ended || owed.end > self.sent;
            owed.tries += 1;
            let may_go = match owed.kind {
                _ if owed.tries >= LEADERS_MAX => false,
                Kind::Read => is_undone || owed.tries < TRIES_MAX,
                Kind::Write | Kind::Waits | Kind::Listens | Kind::Begins => is_undone,
                Kind::Within => is_undone && is_anew,
            };
            is_anew = match owed.kind {
                Kind::Begins => may_go,
                Kind::Within => is_anew,
                _ => false,
            };
            match may_go && doubted.is_empty() {
                true => again.push_back(owed),
                false => doubted.push(owed),
            }
        }
        self.owed_bytes = 0;
        (again, doubted)
    }

    /// Writes and reads until something has happened.
    pub(super) fn poll(&mut self, may_read: bool, context: &mut Context<'_>) -> Poll<Event> {
        if let Link::Opening(opening) = &mut self.link {
            match ready!(opening.as_mut().poll(context)) {
                Ok(Reached { stream, at, last }) => {
                    (self.link, self.at, self.last) = (Link::Open(stream), at, last);
                }
                Err(unreached) => return Poll::Ready(Event::Unreached(unreached)),
            }
        }
        match self.poll_open(may_read, context) {
            Poll::Ready(Ok(reply)) => Poll::Ready(Event::Reply(reply)),
            Poll::Ready(Err(_)) => Poll::Ready(Event::Lost),
            Poll::Pending => Poll::Pending,
        }
    }

    fn poll_open(
        &mut self,
        may_read: bool,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Vec<u8>>> {
        let Link::Open(stream) = &mut self.link else { return Poll::Pending };
        let mut stream = Pin::new(stream);
        while self.written < self.out.len() {
            match stream.as_mut().poll_write(context, &self.out[self.written..]) {
                Poll::Pending => break,
                Poll::Ready(Ok(0) | Err(_)) => break, // what it has said may still be read
                Poll::Ready(Ok(count)) => {
                    (self.written, self.sent) = (self.written + count, self.sent + count as u64);
                    self.is_flushed = false;
                }
            }
        }
        if self.written == self.out.len() {
            self.out = Vec::new();
            self.written = 0;
            if !self.is_flushed {
                self.is_flushed = stream.as_mut().poll_flush(context)?.is_ready();
            }
        }
        if !may_read {
            return Poll::Pending;
        }
        loop {
            if let Some(length) =
                self.scanner.scan(self.inbox.filled()).map_err(io::Error::other)?
            {
                let reply = self.inbox.filled()[..length].to_vec();
                self.inbox.consume(length);
                let line = reply.strip_prefix(b"-").and_then(|text| text.strip_suffix(b"\r\n"));
                if line == Some(self.last.as_bytes()) {
                    self.has_ended = true;
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                return Poll::Ready(Ok(reply));
            }
            if ready!(self.inbox.poll_read(stream.as_mut(), context))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }
}
