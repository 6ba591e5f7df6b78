//! A conversation with a node before there is a login: what a client says is passed on.

use std::rc::Rc;

use crate::request::Startup;
use crate::{Envelope, Flags, Opcode};
use bytes::{Bytes, BytesMut};

use super::ask::Answer;
use super::error::{End, SendError, SendErrorKind};
use super::ledger::Ledger;
use super::wire::Wire;

/// A connection of one client's own, for its `OPTIONS`, `STARTUP` and `AUTH_RESPONSE`.
///
/// It closes when it is dropped.
#[derive(Debug)]
pub struct Conversation {
    ledger: Rc<Ledger>,
    wire: Wire,
}

impl Conversation {
    /// On a place that was taken in the ledger.
    pub(super) fn new(ledger: Rc<Ledger>, wire: Wire) -> Self {
        Self { ledger, wire }
    }

    /// Sends what a client sent and waits for what the node says to it: `SUPPORTED`, `READY`,
    /// `AUTHENTICATE`, `AUTH_CHALLENGE`, `AUTH_SUCCESS` or `ERROR`.
    ///
    /// The client's compression is its own affair: this connection has none.
    ///
    /// # Errors
    /// When no answer comes, within the limit on connecting. The conversation is over then.
    pub async fn ask(
        &mut self,
        opcode: Opcode,
        flags: Flags,
        body: Bytes,
    ) -> Result<Answer, SendError> {
        let patience = self.ledger.limits().connect;
        let exchange = exchange(&mut self.wire, opcode, flags, body);
        let address = self.ledger.address();
        match tokio::time::timeout(patience, exchange).await {
            Ok(Ok(answer)) => Ok(answer.into()),
            Ok(Err(end)) => Err(end.at(address).sent()),
            Err(_) => {
                let why = format!("no answer to {opcode} within {patience:?}");
                let kind = SendErrorKind::ConnectTimedOut;
                Err(SendError::unsent(kind, address, why).sent())
            }
        }
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        self.ledger.end_conversation();
    }
}

async fn exchange(
    wire: &mut Wire,
    opcode: Opcode,
    flags: Flags,
    body: Bytes,
) -> Result<Envelope, End> {
    if opcode != Opcode::Startup {
        return wire.exchange(opcode, flags, body).await;
    }
    wire.starting(None);
    let answer = wire.exchange(opcode, flags, without_compression(body)).await?;
    if matches!(answer.opcode, Opcode::Ready | Opcode::Authenticate) {
        wire.started(None);
    }
    Ok(answer)
}

/// A `STARTUP` that cannot be read is for the node to refuse.
fn without_compression(body: Bytes) -> Bytes {
    let Ok(mut startup) = Startup::read(&body) else { return body };
    startup.options.retain(|(name, _)| !name.eq_ignore_ascii_case("COMPRESSION"));
    let mut written = BytesMut::new();
    startup.write(&mut written);
    written.freeze()
}
