//! A connection of our own to a node: one request after another, and the node's events.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use crate::request::{Query, QueryParameters};
use crate::{Envelope, Flags, Opcode, Version};
use bytes::{Bytes, BytesMut};
use evenkeel_core::request::ring::Consistency;

use super::dialect::Dialect;
use super::error::{End, SendError, SendErrorKind};
use super::handshake;
use super::ledger::Ledger;
use super::limits::NodeLimits;
use super::wire::Wire;

/// How long a node may take to answer at least, if it may take longer to answer requests: one that
/// is slow is not one that is gone, and may have more to tell.
const ANSWER_MIN: Duration = Duration::from_secs(5);

/// A connection that nobody shares.
#[derive(Debug)]
pub struct Single {
    address: SocketAddr,
    version: Version,
    patience: Duration,
    wire: Wire,
}

impl Single {
    /// Opens a connection and logs in.
    pub async fn open(
        address: SocketAddr,
        limits: &Rc<NodeLimits>,
        dialect: &Dialect,
    ) -> Result<Self, SendError> {
        let ledger = Rc::new(Ledger::new(address, Rc::clone(limits)));
        let wire = handshake::open(&ledger, dialect).await?;
        let patience = limits.connect.max(limits.silence_max.min(ANSWER_MIN));
        Ok(Self { address, version: dialect.version, patience, wire })
    }

    /// Opens a connection on which only `OPTIONS` may be asked. The caller limits the time.
    pub async fn knock(
        address: SocketAddr,
        limits: &NodeLimits,
        version: Version,
    ) -> Result<Self, SendError> {
        let wire = Wire::open(address, limits, version).await;
        let wire = wire.map_err(|end| end.at(address))?;
        Ok(Self { address, version, patience: limits.connect, wire })
    }

    /// Asks and waits for the answer.
    pub async fn ask(&mut self, opcode: Opcode, body: Bytes) -> Result<Envelope, SendError> {
        let asking = self.wire.exchange(opcode, Flags::NONE, body);
        match tokio::time::timeout(self.patience, asking).await {
            Ok(answer) => answer.map_err(|end| self.failed(end)),
            Err(_) => {
                let why = format!("no answer to {opcode} within {:?}", self.patience);
                Err(self.failed(End::new(SendErrorKind::Silent, why)))
            }
        }
    }

    /// Asks a statement that reads what is stored at the node itself.
    pub async fn query(&mut self, text: &str) -> Result<Envelope, SendError> {
        let mut body = BytesMut::new();
        let parameters = QueryParameters::new(Consistency::One);
        Query { text, parameters }.write(self.version, &mut body);
        self.ask(Opcode::Query, body.freeze()).await
    }

    /// The next event. Nothing is lost when it is dropped.
    pub async fn event(&mut self) -> Result<Envelope, SendError> {
        self.wire.event().await.map_err(|end| self.failed(end))
    }

    /// An event that came while an answer was awaited.
    pub fn kept_event(&mut self) -> Option<Envelope> {
        self.wire.kept_event()
    }

    /// An error of this connection: nothing comes any more.
    pub fn silent(&self, why: &str) -> SendError {
        self.failed(End::new(SendErrorKind::Silent, why))
    }

    /// An error of this connection: what came is not what it should be.
    pub fn nonsense(&self, why: String) -> SendError {
        self.failed(End::new(SendErrorKind::Protocol, why))
    }

    fn failed(&self, end: End) -> SendError {
        end.at(self.address).sent()
    }
}
