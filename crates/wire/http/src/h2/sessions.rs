//! The connections to one replica that speak HTTP/2, and which of them a request takes.
//!
//! A request goes to the connection with the fewest streams. Where all have as many as they should,
//! another one is opened beside; where all have as many as the replica lets them, a request waits
//! for that one.

use evenkeel_settings::address::ServerAddress;
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::{Rc, Weak};

use evenkeel_runtime::dial::dial;
use evenkeel_runtime::limits::{Http2, UpstreamLimits};
use evenkeel_runtime::stream::Stream;
use evenkeel_runtime::tls::ClientTls;
use tokio::sync::Notify;

use super::session::Session;
use crate::send_error::{SendError, SendErrorKind};

/// Connections that close as soon as they are open, of those that one request waits for.
const CLOSED_MAX: usize = 4;

/// What HTTP/2 is called in the handshake of TLS.
pub(crate) const ALPN: &[u8] = b"h2";

/// The connections of one worker to one replica that speak HTTP/2.
pub(crate) struct Sessions {
    address: ServerAddress,
    limits: UpstreamLimits,
    tls: Option<ClientTls>,
    list: RefCell<Vec<Rc<Session>>>,
    /// Those that are open or being opened, retired ones too.
    open: Cell<usize>,
    opening: RefCell<Option<Rc<Opening>>>,
    /// Whether the replica has agreed on something else.
    is_other: Cell<bool>,
}

/// A connection that is being opened, for all who wait for it.
#[derive(Default)]
struct Opening {
    is_over: Cell<bool>,
    failure: RefCell<Option<Failure>>,
    /// A connection on which HTTP/1.1 was agreed, for the first who asks.
    other: RefCell<Option<Stream>>,
    /// What was opened, for as long as it is.
    session: RefCell<Weak<Session>>,
    done: Notify,
}

/// Why none was opened.
#[derive(Clone)]
struct Failure {
    kind: SendErrorKind,
    error: io::ErrorKind,
    words: String,
}

/// What a request is sent on.
pub(crate) enum Found {
    Session(Rc<Session>),
    /// HTTP/1.1 is what the replica speaks; here is a connection, if there is one already.
    Other(Option<Stream>),
}

impl Sessions {
    /// None yet.
    pub(crate) fn new(
        address: ServerAddress,
        limits: UpstreamLimits,
        tls: Option<ClientTls>,
    ) -> Rc<Self> {
        let (list, open, opening) = (RefCell::default(), Cell::new(0), RefCell::default());
        Rc::new(Self { address, limits, tls, list, open, opening, is_other: Cell::new(false) })
    }

    /// Whether requests are to be sent in HTTP/2, as far as is known.
    pub(crate) fn are_wanted(&self) -> bool {
        match self.limits.http2 {
            Http2::Always => true,
            Http2::Never => false,
            Http2::Auto => self.tls.is_some() && !self.is_other.get(),
        }
    }

    /// Connections open at this moment.
    pub(crate) fn open(&self) -> usize {
        self.open.get()
    }

    /// Those of them without a request.
    pub(crate) fn idle(&self) -> usize {
        self.list.borrow().iter().filter(|session| session.active() == 0).count()
    }

    /// Closes those without a request; others take no further one.
    pub(crate) fn close_idle(&self) {
        self.list.take().iter().for_each(|session| session.retire());
    }

    /// Closes what was idle for too many sweeps.
    pub(crate) fn drop_stale(&self, sweep: u32, sweeps_max: u32) {
        self.list.borrow_mut().retain(|session| {
            let is_kept = !session.is_retired() && session.sweeps_idle(sweep) <= sweeps_max;
            if !is_kept {
                session.retire();
            }
            is_kept
        });
    }

    /// The connection that a request takes. `others` is how many are open that are not counted
    /// here.
    ///
    /// # Errors
    /// When there is none and none can be opened.
    pub(crate) async fn find(self: &Rc<Self>, others: usize) -> Result<Found, SendError> {
        let mut closed = 0;
        while closed < CLOSED_MAX {
            if !self.are_wanted() {
                return Ok(Found::Other(None));
            }
            let best = self.best();
            let has_room = |best: &Rc<Session>| best.active() < best.streams_wanted();
            let is_room = best.as_ref().is_some_and(|best| has_room(best) && !best.is_doubted());
            let may_open = self.open.get() + others < self.limits.connections_max;
            if !is_room && may_open && self.opening.borrow().is_none() {
                self.begin_opening();
            }
            let opening = self.opening.borrow().clone();
            // One that may be dead is better than none.
            let is_good = |best: &Rc<Session>| opening.is_none() || !best.is_doubted();
            let has_place = |best: &Rc<Session>| best.active() < best.streams_max();
            if let Some(best) = best.filter(|best| has_place(best) && is_good(best)) {
                return Ok(Found::Session(best));
            }
            let Some(opening) = opening else {
                let busy = SendError::new(SendErrorKind::Busy, self.address);
                return Err(busy.because(self.limits.connections_max.to_string()));
            };
            self.wait(&opening).await?;
            if let Some(stream) = opening.other.take() {
                return Ok(Found::Other(Some(stream)));
            }
            // One that others have filled is no failure: there may be so many and no more.
            let is_usable = |session: Rc<Session>| session.is_usable();
            closed += usize::from(!opening.session.borrow().upgrade().is_some_and(is_usable));
        }
        let closed = SendError::new(SendErrorKind::Connect, self.address);
        Err(closed.because("new connections are closed at once"))
    }

    /// Takes over a connection on which HTTP/2 was agreed though it was not expected.
    pub(crate) fn adopt(self: &Rc<Self>, stream: Stream) {
        self.is_other.set(false);
        if self.opening.borrow().is_none() {
            self.spawn(async move { Ok(stream) });
        }
    }

    /// The one with the fewest streams, of those that are known to be alive if there is one.
    fn best(&self) -> Option<Rc<Session>> {
        let mut list = self.list.borrow_mut();
        list.retain(|session| session.is_usable());
        list.iter().min_by_key(|session| (session.is_doubted(), session.active())).cloned()
    }

    async fn wait(&self, opening: &Opening) -> Result<(), SendError> {
        let done = opening.done.notified();
        if !opening.is_over.get() {
            done.await;
        }
        match &*opening.failure.borrow() {
            None => Ok(()),
            Some(Failure { kind, error, words }) => {
                let failed = SendError::new(*kind, self.address);
                Err(match kind {
                    SendErrorKind::ConnectTimeout => failed.because(words.clone()),
                    _ => failed.because(io::Error::new(*error, words.clone())),
                })
            }
        }
    }

    /// Opens a connection, which goes on though the request that wanted it be gone.
    fn begin_opening(self: &Rc<Self>) {
        let (address, tls, limit) = (self.address, self.tls.clone(), self.limits.connect);
        self.spawn(async move {
            match tokio::time::timeout(limit, dial(address, tls.as_ref())).await {
                Ok(Ok(stream)) => Ok(stream),
                Ok(Err(error)) => {
                    let (kind, words) = (SendErrorKind::Connect, error.to_string());
                    Err(Failure { kind, error: error.kind(), words })
                }
                Err(_) => {
                    let (kind, error) = (SendErrorKind::ConnectTimeout, io::ErrorKind::TimedOut);
                    Err(Failure { kind, error, words: format!("within {limit:?}") })
                }
            }
        });
    }

    fn spawn(self: &Rc<Self>, dialled: impl Future<Output = Result<Stream, Failure>> + 'static) {
        let opening = Rc::<Opening>::default();
        *self.opening.borrow_mut() = Some(Rc::clone(&opening));
        let place = Place::take(self);
        let its = Rc::downgrade(self);
        tokio::task::spawn_local(async move {
            let result = match dialled.await {
                Ok(stream) => establish(&its, stream, &opening, place).await,
                Err(failure) => Err(failure),
            };
            *opening.failure.borrow_mut() = result.err();
            opening.is_over.set(true);
            opening.done.notify_waiters();
            if let Some(its) = its.upgrade() {
                *its.opening.borrow_mut() = None;
            }
        });
    }
}

/// Speaks on a new connection what was agreed on.
async fn establish(
    its: &Weak<Sessions>,
    stream: Stream,
    opening: &Opening,
    place: Place,
) -> Result<(), Failure> {
    let Some(sessions) = its.upgrade() else { return Ok(()) };
    let limits = sessions.limits;
    let has_agreed = stream.alpn() == Some(ALPN);
    match limits.http2 {
        Http2::Always if stream.is_tls() && !has_agreed => {
            let words = "HTTP/2 was not agreed on (ALPN), expected it as http2 = true".to_owned();
            let error = io::ErrorKind::InvalidData;
            return Err(Failure { kind: SendErrorKind::Connect, error, words });
        }
        Http2::Auto | Http2::Never if !has_agreed => {
            sessions.is_other.set(true);
            *opening.other.borrow_mut() = Some(stream);
            return Ok(());
        }
        _ => {}
    }
    let session = Session::open(stream, &limits, move || drop(place)).await;
    let session = session.map_err(|error| Failure {
        kind: SendErrorKind::Connect,
        error: io::ErrorKind::Other,
        words: error.to_string(),
    })?;
    *opening.session.borrow_mut() = Rc::downgrade(&session);
    sessions.list.borrow_mut().push(session);
    Ok(())
}

/// One of the connections that may be open.
struct Place(Weak<Sessions>);

impl Place {
    fn take(sessions: &Rc<Sessions>) -> Self {
        sessions.open.set(sessions.open.get() + 1);
        Self(Rc::downgrade(sessions))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(sessions) = self.0.upgrade() {
            sessions.open.set(sessions.open.get() - 1);
        }
    }
}
