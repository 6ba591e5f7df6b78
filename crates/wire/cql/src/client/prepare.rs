//! Telling a node a prepared statement that it has forgotten.
//!
//! Nodes forget when they restart, when their cache is full, and when a table changes. Then many
//! requests find out at once; one of them tells the node and the others wait for that.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use crate::request::Prepare;
use crate::response::Result as Message;
use crate::{Envelope, ErrorCode, Flags, Opcode, Reader, payload};
use bytes::{Bytes, BytesMut};
use tokio::sync::watch;

use super::Node;
use super::ask::{Answer, Ask, Known, Prepared};
use super::dialect::Dialect;
use super::error::SendError;
use super::error::SendErrorKind;

/// How often a node is told a statement for one request, on average over those of a batch. A node
/// that has as many as it keeps weighs a new one against them, and may forget it at once; whenever
/// it is told again the new one weighs more (Cassandra 5.0's cache, W-TinyLFU). A large one it may
/// refuse for good.
pub(super) const TELLINGS_MAX: usize = 8;

/// What came of it.
#[derive(Clone, Debug)]
pub(super) enum PrepareOutcome {
    /// The node knows it, and its result looks as clients know it.
    Alike,
    /// The node knows it, and its result has other columns than clients know.
    Changed,
    /// The node's `ERROR`.
    Refused(Answer),
}

/// How many tellings that have ended are remembered. One that is forgotten too early may be made
/// twice, which does no harm.
const ENDED_MAX: usize = 64;

/// The statements that the node is being told, and those that it was told last.
#[derive(Debug, Default)]
pub(super) struct Preparing {
    tellings: RefCell<VecDeque<Telling>>,
    /// How many have ended.
    ended: Cell<u64>,
}

/// One of them.
#[derive(Debug)]
struct Telling {
    dialect: Dialect,
    id: Bytes,
    reported: watch::Receiver<Outcome>,
    /// Which one it was to end, from 1.
    ended: Option<u64>,
}

/// What came of it, when something did.
type Outcome = Option<Result<PrepareOutcome, SendError>>;

impl Telling {
    fn is_of(&self, dialect: &Dialect, statement: &Known) -> bool {
        self.id == statement.id && self.dialect == *dialect
    }
}

impl Preparing {
    /// How many tellings have ended so far. What a node says it does not know in answer to a
    /// request that left after this, it may have been told since.
    pub(super) fn ended(&self) -> u64 {
        self.ended.get()
    }

    /// A telling has ended. If the node knows the statement now, it is kept for those whose
    /// requests were sent before; else whoever hears of it later tries again.
    fn end(&self, dialect: &Dialect, statement: &Known, is_told: bool) {
        let mut tellings = self.tellings.borrow_mut();
        let is_open = |one: &Telling| one.ended.is_none() && one.is_of(dialect, statement);
        let Some(at) = tellings.iter().position(is_open) else { return };
        if !is_told {
            tellings.remove(at);
            return;
        }
        self.ended.update(|ended| ended + 1);
        tellings[at].ended = Some(self.ended.get());
        if tellings.iter().filter(|telling| telling.ended.is_some()).count() > ENDED_MAX
            && let Some(oldest) = tellings.iter().position(|telling| telling.ended.is_some())
        {
            tellings.remove(oldest);
        }
    }
}

/// The statement that the node says it does not know, if it is one of these.
pub(super) fn forgotten<'a>(answer: &Envelope, prepared: &'a Prepared) -> Option<&'a Arc<Known>> {
    if answer.opcode != Opcode::Error {
        return None;
    }
    let mut reader = Reader::new(payload::split(answer).ok()?.message);
    let code = reader.int("code").ok()?.cast_unsigned();
    if ErrorCode::of(code) != Some(ErrorCode::Unprepared) {
        return None;
    }
    reader.string("message").ok()?;
    prepared.find(reader.short_bytes("id").ok()?)
}

impl Node {
    /// Has the node prepare a statement again, in the keyspace in which it was prepared, unless
    /// that was done since [`Preparing::ended`] was as it was when the request was sent: answers
    /// of several connections come in any order.
    pub(super) async fn prepare_again(
        self: &Rc<Self>,
        dialect: &Dialect,
        statement: &Arc<Known>,
        ended: u64,
    ) -> Result<PrepareOutcome, SendError> {
        let dialect = dialect.in_keyspace(statement.keyspace.clone());
        let mut reported = self.telling(&dialect, statement, ended);
        let reported = match reported.wait_for(Option::is_some).await {
            Ok(reported) => reported.clone(),
            Err(_) => None,
        };
        reported.unwrap_or_else(|| {
            let why = "what told it a prepared statement again broke off";
            Err(SendError::unsent(SendErrorKind::Reset, self.address(), why))
        })
    }

    /// The telling of this statement that is under way or ended after so many, or a new one. It is
    /// a task of its own: the request that began it may be given up.
    fn telling(
        self: &Rc<Self>,
        dialect: &Dialect,
        statement: &Arc<Known>,
        ended: u64,
    ) -> watch::Receiver<Outcome> {
        let mut tellings = self.preparing.tellings.borrow_mut();
        let is_new = |telling: &Telling| telling.ended.is_none_or(|at| at > ended);
        let newest = tellings.iter().rev().find(|telling| telling.is_of(dialect, statement));
        if let Some(telling) = newest.filter(|telling| is_new(telling)) {
            return telling.reported.clone();
        }
        let (tell, reported) = watch::channel(None);
        let (dialect, statement) = (dialect.clone(), Arc::clone(statement));
        let id = statement.id.clone();
        let (of, told) = (dialect.clone(), reported.clone());
        tellings.push_back(Telling { dialect: of, id, reported: told, ended: None });
        self.ledger.count(|counts| counts.prepared_again += 1);
        let node = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let outcome = node.tell(&dialect, &statement).await;
            let is_told = matches!(&outcome, Ok(it) if !matches!(it, PrepareOutcome::Refused(_)));
            node.preparing.end(&dialect, &statement, is_told);
            let _ = tell.send(Some(outcome));
        });
        reported
    }

    async fn tell(
        self: &Rc<Self>,
        dialect: &Dialect,
        statement: &Known,
    ) -> Result<PrepareOutcome, SendError> {
        let mut body = BytesMut::new();
        Prepare { text: &statement.text, keyspace: None }.write(dialect.version, &mut body);
        let ask = Ask {
            opcode: Opcode::Prepare,
            flags: Flags::NONE,
            body: body.freeze(),
            prepared: Prepared::None,
        };
        let patience = self.ledger.limits().connect;
        let asking = self.ask_once(dialect, &ask);
        let answer = tokio::time::timeout(patience, asking).await.unwrap_or_else(|_| {
            let why = format!("no answer to PREPARE within {patience:?}");
            Err(SendError::unsent(SendErrorKind::ConnectTimedOut, self.address(), why))
        });
        // The request that is to be repeated was not done, whatever became of this one.
        let answer = answer.map_err(SendError::not_sent)?;
        if answer.envelope.opcode == Opcode::Error {
            return Ok(PrepareOutcome::Refused(Answer::from(answer)));
        }
        let parts = payload::split(&answer.envelope);
        let read = parts.and_then(|parts| Message::read(parts.message, dialect.version));
        Ok(match read {
            Ok(Message::Prepared(prepared)) => match prepared.result.columns.as_ref() {
                columns if statement.result.are(columns) => PrepareOutcome::Alike,
                _ => {
                    statement.result.change();
                    PrepareOutcome::Changed
                }
            },
            _ => PrepareOutcome::Alike,
        })
    }
}
