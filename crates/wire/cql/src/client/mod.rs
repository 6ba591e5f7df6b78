//! One node of Cassandra as one worker sees it.
//!
//! Requests of clients that speak alike ([`Dialect`]) share connections; each has a stream, and
//! answers come in any order. A node that does not know a prepared statement is told it again, and
//! the one who asked does not notice. An attempt is given up by dropping its future; what it cost
//! the node goes on, and its stream stays taken until the node has answered.

pub mod config;
pub mod feedback;
pub mod schema;

mod ask;
mod connection;
mod converse;
mod dialect;
mod error;
mod handshake;
mod ledger;
mod limits;
mod pool;
mod prepare;
mod result;
mod result_columns;
mod single;
mod streams;
mod wire;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;

use crate::{Opcode, Version};
use evenkeel_core::Feedback;

pub use ask::{Answer, Ask, Known, Prepared};
pub use converse::Conversation;
pub use dialect::{Challenge, Dialect, Login};
pub use error::{SendError, SendErrorKind};
pub use ledger::{FeedbackSource, NodeCounts};
pub use limits::NodeLimits;
pub use result::AnswerError;
pub use result_columns::ResultColumns;
pub use single::Single;

use ledger::Ledger;
use pool::Pool;
use prepare::{PrepareOutcome, Preparing, TELLINGS_MAX};
use streams::{Arrived, Outgoing};
use wire::Wire;

/// The option of `STARTUP` that asks an agent for reports; agents do not pass it on.
pub const FEEDBACK_OPTION: &str = "EVENKEEL_FEEDBACK";
/// The entry of an answer's custom payload that is the report.
pub const FEEDBACK_KEY: &str = "evenkeel-feedback";

/// One node as one worker sees it. Belongs to the worker's thread; its connections close when it
/// is dropped.
pub struct Node {
    ledger: Rc<Ledger>,
    pools: RefCell<BTreeMap<Dialect, Rc<Pool>>>,
    preparing: Preparing,
}

impl Node {
    /// The node at this address, without a connection yet.
    pub fn new(address: SocketAddr, limits: Rc<NodeLimits>) -> Rc<Self> {
        let ledger = Rc::new(Ledger::new(address, limits));
        Rc::new(Self { ledger, pools: RefCell::default(), preparing: Preparing::default() })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.ledger.address()
    }

    /// Sends one request and waits for its answer; `ERROR` is an answer.
    ///
    /// Dropping the future gives the request up: one that has not left never will, and of another
    /// nobody hears any more. Opening a connection has a limit of its own; all other waiting is
    /// limited by the caller.
    ///
    /// A node that does not know a prepared statement is told it, in its keyspace, and asked
    /// again: it has done nothing by then. One that forgets it at once is told it several times.
    /// When it cannot prepare the statement either, its `ERROR` to that is the answer. When the
    /// result has other columns now, it is `UNPREPARED`: who asked must know them.
    ///
    /// # Errors
    /// When no answer came; [`SendError::was_sent`] says whether the node may have seen any of it.
    ///
    /// # Panics
    /// Outside a [`worker_runtime`](evenkeel_runtime::accept::worker_runtime), whose tasks drive
    /// the connections.
    pub async fn ask(self: &Rc<Self>, dialect: &Dialect, ask: Ask) -> Result<Answer, SendError> {
        for _ in 0..ask.prepared.len() * TELLINGS_MAX {
            let changed = ask.with_metadata(dialect.version);
            let ended = self.preparing.ended();
            let arrived = self.ask_once(dialect, changed.as_ref().unwrap_or(&ask)).await?;
            let Some(statement) = prepare::forgotten(&arrived.envelope, &ask.prepared) else {
                return Ok(arrived.into());
            };
            match self.prepare_again(dialect, statement, ended).await? {
                PrepareOutcome::Refused(refusal) => return Ok(refusal),
                PrepareOutcome::Changed if ask.opcode == Opcode::Execute => {
                    return Ok(arrived.into());
                }
                PrepareOutcome::Changed | PrepareOutcome::Alike => {}
            }
        }
        let changed = ask.with_metadata(dialect.version);
        self.ask_once(dialect, changed.as_ref().unwrap_or(&ask)).await.map(Answer::from)
    }

    /// A connection for one client's `OPTIONS`, `STARTUP` and login.
    ///
    /// # Errors
    /// When it cannot be opened, or there are as many conversations as there may be.
    pub async fn converse(&self, version: Version) -> Result<Conversation, SendError> {
        let (address, limits) = (self.address(), self.ledger.limits());
        if !self.ledger.begin_conversation() {
            let why = format!("{} clients are logging in already", self.ledger.conversations());
            return Err(SendError::unsent(SendErrorKind::Busy, address, why));
        }
        let place = Place(Some(Rc::clone(&self.ledger)));
        let opened = tokio::time::timeout(limits.connect, Wire::open(address, limits, version));
        match opened.await {
            Ok(Ok(wire)) => Ok(Conversation::new(place.taken(), wire)),
            Ok(Err(end)) => Err(end.at(address)),
            Err(_) => {
                let why = format!("no connection within {:?}", limits.connect);
                Err(SendError::unsent(SendErrorKind::ConnectTimedOut, address, why))
            }
        }
    }

    /// Connections that are open or being opened.
    pub fn connections(&self) -> usize {
        self.ledger.connections()
    }

    /// Conversations of clients that are logging in.
    pub fn conversations(&self) -> usize {
        self.ledger.conversations()
    }

    /// Requests on connections that somebody waits for.
    pub fn in_flight(&self) -> usize {
        self.ledger.in_flight()
    }

    /// Requests that were given up and are not answered yet.
    pub fn orphans(&self) -> usize {
        self.ledger.orphans()
    }

    /// What has happened since it began.
    pub fn counts(&self) -> NodeCounts {
        self.ledger.counts()
    }

    /// Its newest report, and where reports come from.
    pub fn feedback(&self) -> (FeedbackSource, Option<Feedback>) {
        self.ledger.newest()
    }

    /// Takes in a report that came from elsewhere than an answer.
    pub fn receive_report(&self, source: FeedbackSource, report: Feedback) {
        self.ledger.receive_report(source, report);
    }

    async fn ask_once(self: &Rc<Self>, dialect: &Dialect, ask: &Ask) -> Result<Arrived, SendError> {
        let Ask { opcode, flags, body, .. } = ask;
        let request = Outgoing { opcode: *opcode, flags: *flags, body: body.clone() };
        self.pool(dialect).send(request).await
    }

    fn pool(self: &Rc<Self>, dialect: &Dialect) -> Rc<Pool> {
        let mut pools = self.pools.borrow_mut();
        if let Some(pool) = pools.get(dialect) {
            return Rc::clone(pool);
        }
        let pool = Pool::new(&self.ledger, Rc::downgrade(self), dialect);
        pools.insert(dialect.clone(), Rc::clone(&pool));
        pool
    }

    /// Closes the connection that has been unused for longest, and takes its place.
    fn make_room(&self) -> bool {
        let pools = self.pools.borrow();
        let unused = pools.values().filter_map(|pool| pool.least_used());
        let Some((_, link)) = unused.min_by_key(|(used_at, _)| *used_at) else { return false };
        link.close("its place was needed");
        self.ledger.reserve()
    }

    fn forget_pool(&self, dialect: &Dialect) {
        let mut pools = self.pools.borrow_mut();
        if pools.get(dialect).is_some_and(|pool| pool.is_empty()) {
            pools.remove(dialect);
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (address, open) = (self.address(), self.connections());
        let (in_flight, orphans) = (self.in_flight(), self.orphans());
        write!(formatter, "Node({address}, {open} connections, {in_flight} in flight, ")?;
        write!(formatter, "{orphans} given up)")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for pool in self.pools.get_mut().values() {
            pool.close("the node is not used any more");
        }
    }
}

/// A place for a conversation, given back when it is not taken.
struct Place(Option<Rc<Ledger>>);

impl Place {
    fn taken(mut self) -> Rc<Ledger> {
        self.0.take().expect("a place is taken once")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(ledger) = &self.0 {
            ledger.end_conversation();
        }
    }
}
