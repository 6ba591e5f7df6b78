//! One plain client: its commands in, answers of all groups in the order of its commands out.

mod listening;
mod taking;
mod transaction;

use std::collections::{BTreeSet, VecDeque};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite as _;
use tokio::sync::watch;

use self::listening::Listens;
use self::taking::HOME;
use self::transaction::Transaction;
use super::Router;
use super::backend::{Backend, Event, Kind, Owed};
use super::joined::Join;
use super::said::Said;
use evenkeel_leadership::{Known, Unreached};
use evenkeel_redis_acl::{User, Users};
use evenkeel_runtime::accept::{Linger, Link, Order, Peer, Phase, Stream, poll_leave};
use evenkeel_runtime::buffers::{self, BufferShare};
use evenkeel_store_link::inbox::Inbox;
use evenkeel_stores::resp::commands::Local;
use evenkeel_stores::resp::request::{Limits, RequestParser};
use evenkeel_stores::resp::{Protocol, encode};

/// Commands of one client that may wait for their answers; no more of its bytes are read then.
const WAITING_MAX: usize = 1_024;
/// Answers of one client that may wait to be written; no more of its bytes are read then.
const OUT_BYTES_PAUSE: usize = 1 << 20;
/// What a client that waits may send ahead: it is read so that its end is seen.
const AHEAD_BYTES_MAX: usize = 64 << 10;

/// The place of an answer.
#[derive(Debug)]
struct Slot {
    join: Join,
    parts: Vec<Vec<u8>>,
    /// Parts that are not answered.
    waiting: usize,
    /// Nobody can tell what has become of it.
    is_doubted: bool,
    /// The client does not want to hear it.
    is_muted: bool,
    /// What the client says of itself, in bytes, if it is not refused.
    says: Option<(Local, Vec<u8>)>,
    /// What it listens to then, or no more.
    listens: Option<Listens>,
}

impl Slot {
    /// Whether sessions keep something of it.
    const fn is_kept(&self) -> bool {
        self.says.is_some() || self.listens.is_some()
    }
}

/// Which answers a client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Replies {
    #[default]
    All,
    AllButNext,
    None,
}

/// Waits until more is known of who leads.
type Turning = Pin<Box<dyn Future<Output = Option<watch::Receiver<Known>>>>>;

/// See the module.
pub(super) struct Client {
    router: Rc<Router>,
    peer: Peer,
    link: Rc<Link>,
    inbox: Inbox,
    parser: RequestParser,
    out: Vec<u8>,
    written: usize,
    is_flushed: bool,
    share: BufferShare,
    slots: VecDeque<Slot>,
    /// The number of the first slot.
    first: u64,
    kept_bytes: usize,
    sessions: Vec<Option<Backend>>,
    turning: Option<Turning>,
    said: Said,
    /// The group that answers what any could: one that is led here, so that nobody else is needed.
    home: usize,
    /// Messages that came before all groups had said that they are listened to.
    early: Vec<u8>,
    /// Who it is; `None` until it has said a password, where one is needed.
    user: Option<Arc<User>>,
    users: watch::Receiver<Arc<Users>>,
    transaction: Option<Transaction>,
    /// The group whose keys it watches.
    watches: Option<usize>,
    /// Channels, patterns, and channels of shards that it has asked for.
    listens: [BTreeSet<Vec<u8>>; 3],
    replies: Replies,
    /// Its next command is taken when all before it are answered.
    is_held: bool,
    /// Its command waits for what others do.
    is_blocked: bool,
    is_ending: bool,
    is_closed: bool,
    is_heard: bool,
    /// Told to drain, it is served the command that has begun, and then nothing more.
    is_last: bool,
    is_done: bool,
    /// Commands that came were not looked at, because it has no room for more.
    is_paused: bool,
}

impl Client {
    pub(super) fn new(router: Rc<Router>, peer: Peer, link: Rc<Link>) -> Self {
        let users = router.users.subscribe();
        let user = users.borrow().nobody().cloned();
        let home = router.ways.any_here().unwrap_or(HOME);
        let sessions = (0..router.groups()).map(|_| None).collect();
        Self {
            parser: RequestParser::new(Limits::unauthenticated()),
            turning: Some(turning(router.ways.known.clone())),
            router,
            peer,
            link,
            inbox: Inbox::default(),
            out: Vec::new(),
            written: 0,
            is_flushed: true,
            share: BufferShare::of(buffers::of_process()),
            slots: VecDeque::new(),
            first: 0,
            kept_bytes: 0,
            sessions,
            said: Said::default(),
            home,
            early: Vec::new(),
            user,
            users,
            transaction: None,
            watches: None,
            listens: Default::default(),
            replies: Replies::All,
            is_held: false,
            is_blocked: false,
            is_ending: false,
            is_closed: false,
            is_heard: false,
            is_last: false,
            is_done: false,
            is_paused: false,
        }
    }

    fn protocol(&self) -> Protocol {
        match self.said.protocol.as_deref() {
            Some(b"3") => Protocol::Resp3,
            _ => Protocol::Resp2,
        }
    }

    /// As it is after `RESET`.
    fn reset(&mut self) {
        self.sessions.iter_mut().for_each(|session| *session = None);
        (self.said, self.listens) = (Said::default(), Default::default());
        (self.transaction, self.watches, self.replies) = (None, None, Replies::All);
        self.user = self.users.borrow().nobody().cloned();
    }

    /// Whether commands that were taken are not answered.
    fn owes(&self) -> bool {
        !self.slots.is_empty()
    }

    /// The place of the next answer, of so many parts.
    fn place(&mut self, join: Join, parts: usize) -> u64 {
        let is_muted = self.replies != Replies::All;
        if self.replies == Replies::AllButNext {
            self.replies = Replies::All;
        }
        let parts = vec![Vec::new(); parts];
        let waiting = parts.len();
        let (is_doubted, says, listens) = (false, None, None);
        self.slots.push_back(Slot { join, parts, waiting, is_doubted, is_muted, says, listens });
        self.first + self.slots.len() as u64 - 1 // there is one
    }

    /// Answers at the next place.
    fn tell(&mut self, write: impl FnOnce(&mut Vec<u8>, Protocol)) {
        let (protocol, place) = (self.protocol(), self.place(Join::First, 1));
        let mut answer = Vec::new();
        write(&mut answer, protocol);
        self.part_answered((place, 0), &answer, true);
    }

    /// What the last command has said of the client holds once it is not refused.
    fn says(&mut self, local: Local, bytes: &[u8]) {
        if let Some(slot) = self.slots.back_mut() {
            slot.says = Some((local, bytes.to_vec()));
        }
    }

    /// Sends a command to the leader of a group.
    fn send(&mut self, group: usize, owed: Owed) {
        match &mut self.sessions[group] {
            Some(session) => session.send(owed),
            None => self.open(group, [owed].into()),
        }
    }

    fn open(&mut self, group: usize, owed: VecDeque<Owed>) {
        let (ways, to) = (self.router.ways.clone(), (group, self.peer.address));
        self.sessions[group] = Some(Backend::open(ways, to, self.said.commands(), owed));
    }

    fn slot(&mut self, place: u64) -> Option<&mut Slot> {
        self.slots.get_mut(usize::try_from(place.checked_sub(self.first)?).ok()?)
    }

    fn part_answered(&mut self, (place, part): (u64, usize), answer: &[u8], is_last: bool) {
        let Some(slot) = self.slot(place) else { return };
        slot.parts[part].extend_from_slice(answer);
        slot.waiting -= usize::from(is_last);
        self.kept_bytes += answer.len();
    }

    /// Answers go out as far as those before them have; whether any did.
    fn settle(&mut self) -> bool {
        let before = self.first;
        let is_ready = |slot: &Slot| slot.waiting == 0 || slot.is_doubted;
        while self.slots.front().is_some_and(is_ready)
            && let Some(slot) = self.slots.pop_front()
        {
            self.first += 1;
            if slot.is_doubted {
                self.slots.clear(); // as where a leader dies, the connection ends
                self.is_ending = true;
                return true;
            }
            self.kept_bytes -= slot.parts.iter().map(Vec::len).sum::<usize>();
            let is_fine = |part: &Vec<u8>| !matches!(part.first(), Some(b'-' | b'!'));
            let is_done = slot.parts.iter().all(is_fine);
            let is_in_part = !is_done && slot.parts.iter().any(is_fine);
            let is_greeting = matches!(slot.says, Some((Local::Auth | Local::Hello, _)));
            if slot.is_kept() && (is_in_part || is_greeting && !is_done) {
                self.part();
            }
            if let Some((local, bytes)) = slot.says.filter(|_| is_done) {
                self.note(local, &bytes);
            }
            if let Some(listens) = slot.listens.filter(|_| is_done) {
                self.note_listens(listens);
            }
            let answer = slot.join.joined(slot.parts, self.protocol());
            if !slot.is_muted {
                self.out.extend_from_slice(&answer);
            }
        }
        if self.slots.is_empty() {
            (self.is_held, self.is_blocked) = (false, false);
            self.out.append(&mut self.early);
        }
        self.first != before
    }

    /// Sessions that differ, or of which nobody knows what they have kept (a `HELLO` is refused
    /// for its end, behind its `AUTH`), are opened anew, as the client was before.
    fn part(&mut self) {
        self.is_ending |= self.watches.is_some() || self.listens();
        self.sessions.iter_mut().for_each(|session| *session = None);
    }

    /// What a command has said of the client.
    fn note(&mut self, local: Local, bytes: &[u8]) {
        let mut parser = RequestParser::new(Limits::MAX);
        if !matches!(parser.parse(bytes), Ok(Some(_))) {
            return;
        }
        self.said.note(local, parser.arguments(bytes));
        if matches!(local, Local::Auth | Local::Hello)
            && let Some((user, password)) = &self.said.who
        {
            self.user = self.users.borrow().who(user, password).cloned();
            self.is_ending |= self.user.is_none(); // users differ from process to process
        }
    }

    /// Has all sessions write and read; whether anything has happened.
    fn poll_sessions(&mut self, context: &mut Context<'_>) -> bool {
        self.poll_turned(context);
        let (mut has_moved, is_draining) = (false, self.link.order() >= Order::Drain);
        for group in 0..self.sessions.len() {
            while let Some(session) = &mut self.sessions[group] {
                // What came early waits for answers: who owes one is read.
                let is_early = self.early.len() < OUT_BYTES_PAUSE || session.owes();
                let may_read = self.out.len() < OUT_BYTES_PAUSE && is_early;
                if is_draining && session.waits() {
                    session.poll_shut(context);
                }
                let Poll::Ready(event) = session.poll(may_read, context) else { break };
                has_moved = true;
                match event {
                    Event::Reply(reply) => self.replied(group, &reply),
                    Event::Lost => self.lost(group),
                    Event::Unreached(unreached) => self.unreached(group, &unreached),
                }
            }
        }
        has_moved
    }

    /// Sessions with who leads no more are lost: one that was stopped keeps its connections, and
    /// answers nobody.
    fn poll_turned(&mut self, context: &mut Context<'_>) {
        while let Some(Poll::Ready(known)) =
            self.turning.as_mut().map(|turning| turning.as_mut().poll(context))
        {
            self.turning = known.map(turning);
            for group in 0..self.sessions.len() {
                let holder = self.router.ways.holder(group);
                if self.sessions[group].as_ref().is_some_and(|it| it.is_deposed(holder)) {
                    self.lost(group);
                }
            }
        }
    }

    fn replied(&mut self, group: usize, reply: &[u8]) {
        let is_draining = self.link.order() >= Order::Drain;
        let Some(session) = &mut self.sessions[group] else { return };
        if session.is_message(reply) {
            // Whoever hears them is told first that it listens, and in which protocol.
            let is_early = self.slots.front().is_some_and(Slot::is_kept);
            let out = if is_early { &mut self.early } else { &mut self.out };
            return out.extend_from_slice(reply);
        }
        if !is_draining && session.is_put_off(reply) {
            return; // the session ends now
        }
        match session.answered(matches!(reply.first(), Some(b'-' | b'!'))) {
            Some((Some(place), is_last)) => self.part_answered(place, reply, is_last),
            Some((None, _)) => {}
            None => self.lost(group), // it says why it ends
        }
    }

    /// A session has ended. What cannot be done again at another one is the end of the client.
    fn lost(&mut self, group: usize) {
        let Some(mut session) = self.sessions[group].take() else { return };
        let (mut again, mut doubted) = session.unanswered();
        let is_begun = self.is_within(group) || self.watches == Some(group);
        let is_anew = again.iter().any(|owed| owed.kind == Kind::Begins);
        if session.is_listening() || is_begun && !is_anew {
            self.is_ending = true; // it knows what it has missed by the end of its connection
            doubted.extend(std::mem::take(&mut again)); // no other leader knows what they are of
        }
        for owed in &doubted {
            if let Some(slot) = owed.place.and_then(|(place, _)| self.slot(place)) {
                slot.is_doubted = true;
                self.is_ending = true; // nothing is done that came behind it
            }
        }
        if !again.is_empty() {
            self.open(group, again);
        }
    }

    /// Whether there is a transaction at this group.
    fn is_within(&self, group: usize) -> bool {
        self.transaction.as_ref().is_some_and(|it| it.group == Some(group))
    }

    /// There is no session: nothing of what it was to be asked was done.
    fn unreached(&mut self, group: usize, unreached: &Unreached) {
        let Some(mut session) = self.sessions[group].take() else { return };
        let (Unreached::Refused(said) | Unreached::Unavailable(said)) = unreached;
        let (again, doubted) = session.unanswered();
        for place in again.iter().chain(&doubted).filter_map(|owed| owed.place) {
            self.part_answered(place, said, true);
        }
        let is_refused = matches!(unreached, Unreached::Refused(_));
        let is_begun = self.is_within(group) || self.watches == Some(group);
        self.is_ending |= is_refused || is_begun || self.listens();
    }

    /// Whether there is room for further commands and their answers.
    fn takes_more(&self) -> bool {
        let is_full = self.slots.len() >= WAITING_MAX || self.out.len() > OUT_BYTES_PAUSE;
        let is_quiet = self.slots.is_empty() && self.out.is_empty();
        !is_full && (is_quiet || self.share.has_room())
    }

    /// Takes the whole commands that have come, as many as may wait.
    fn take_commands(&mut self) {
        let is_draining = self.link.order() >= Order::Drain;
        self.is_paused = false;
        loop {
            if self.is_ending || self.is_done || self.is_held {
                return;
            }
            if !self.takes_more() {
                self.is_paused = true;
                return;
            }
            let limits = match self.user {
                Some(_) => self.router.limits,
                None => Limits::unauthenticated(),
            };
            self.parser.set_limits(limits);
            match self.parser.parse(self.inbox.filled()) {
                Ok(None) => {
                    let has_begun = !self.inbox.filled().is_empty();
                    self.is_last |= is_draining && has_begun;
                    self.is_done |= is_draining && !has_begun;
                    return;
                }
                Ok(Some(length)) if self.parser.is_empty() => self.inbox.consume(length),
                Ok(Some(length)) => {
                    let (parser, inbox) = (std::mem::take(&mut self.parser), &self.inbox);
                    let bytes = inbox.filled()[..length].to_vec();
                    let is_taken = self.take(parser.arguments(&bytes), &bytes);
                    self.parser = parser;
                    if !is_taken {
                        self.parser.reset();
                        self.is_held = true; // it comes when all before it are answered
                        return;
                    }
                    self.inbox.consume(length);
                    self.is_done |= self.is_last;
                }
                Err(error) => {
                    self.tell(|out, _| encode::protocol_error(out, error));
                    self.is_ending = true;
                }
            }
        }
    }

    /// Reads, takes commands and writes until nothing moves; ready when the client is done with.
    pub(super) fn poll(
        &mut self,
        mut stream: Pin<&mut Stream>,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        loop {
            self.take_commands();
            let has_moved = self.poll_sessions(context) | self.settle();
            let Poll::Ready(Ok(is_idle)) = self.poll_write(stream.as_mut(), context) else {
                return Poll::Ready(());
            };
            let waits = !self.slots.is_empty();
            if self.is_closed && self.is_blocked {
                return Poll::Ready(()); // it waits for what nobody would get
            }
            if has_moved {
                continue;
            }
            let is_over = self.is_ending || self.is_closed || self.is_done;
            if is_over && !waits && is_idle && self.out.is_empty() {
                if self.is_closed {
                    return Poll::Ready(());
                }
                self.sessions.clear(); // nothing more is asked, and nothing heard
                let linger = Linger::UntilClosed;
                return poll_leave(stream, &self.link, linger, context).map(drop);
            }
            if !self.share.hold(self.bytes(), context.waker()) {
                return Poll::Ready(()); // nobody has more, and there is no room for all
            }
            self.say_phase(waits);
            let is_ahead = self.is_blocked && self.inbox.filled().len() < AHEAD_BYTES_MAX;
            let reads = self.takes_more() && (!self.is_held || is_ahead);
            if is_over || !reads {
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

    /// Bytes that are held for it.
    fn bytes(&self) -> usize {
        let sessions = self.sessions.iter().flatten().map(Backend::bytes).sum::<usize>();
        let came = self.inbox.filled().len() + self.parser.place_bytes();
        let names = self.listens.iter().flatten().map(Vec::len).sum::<usize>();
        let queued = self.transaction.as_ref().map_or(0, Transaction::bytes);
        sessions + came + names + queued + self.out.len() + self.early.len() + self.kept_bytes
    }

    fn say_phase(&mut self, waits: bool) {
        let is_heard = std::mem::take(&mut self.is_heard);
        let is_serving = self.link.phase() == Phase::Serving;
        let is_served = waits || self.listens();
        if is_served && !is_serving {
            self.link.enter(Phase::Serving);
        } else if !is_served && self.user.is_some() && (is_heard || is_serving) {
            self.link.enter(Phase::Idle);
        }
    }

    /// Writes what there is; true when all of it is written.
    fn poll_write(
        &mut self,
        mut stream: Pin<&mut Stream>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        while self.written < self.out.len() {
            match stream.as_mut().poll_write(context, &self.out[self.written..]) {
                Poll::Pending => {
                    self.link.write_blocked(true);
                    return Poll::Ready(Ok(false));
                }
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => {
                    self.link.write_blocked(false);
                    (self.written, self.is_flushed) = (self.written + count, false);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            }
        }
        match self.out.capacity() > OUT_BYTES_PAUSE {
            true => self.out = Vec::new(), // gives the memory back
            false => self.out.clear(),
        }
        self.written = 0;
        if !self.is_flushed {
            self.is_flushed = stream.poll_flush(context)?.is_ready();
        }
        Poll::Ready(Ok(self.is_flushed))
    }
}

fn turning(mut known: watch::Receiver<Known>) -> Turning {
    Box::pin(async move { known.changed().await.is_ok().then_some(known) })
}
