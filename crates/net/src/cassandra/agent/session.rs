//! One client's connection through an agent: both directions, and what they must know of each
//! other.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use evenkeel_cql::Version;
use evenkeel_cql::codec::{Compression, Limits};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;

use super::census::{Census, Residents};
use super::{answers, requests};

/// What is agreed on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Agreed {
    pub(super) version: Version,
    pub(super) compression: Option<Compression>,
    /// Whether the client asked for reports.
    pub(super) wants_reports: bool,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Envelopes before `STARTUP`.
    Beginning,
    /// `STARTUP` went to the node: the client waits for its answer.
    Starting(Agreed),
    /// It was answered well.
    Started(Agreed),
    /// It is not understood: bytes pass, and that is all.
    Blind,
}

/// What both directions share.
pub(super) struct Session {
    pub(super) phase: Cell<Phase>,
    /// The phase has changed.
    pub(super) changed: Notify,
    pub(super) residents: RefCell<Residents>,
    pub(super) limits: Limits,
}

impl Session {
    pub(super) fn new(census: &Rc<Census>, frame_bytes_max: usize) -> Self {
        Self {
            phase: Cell::new(Phase::Beginning),
            changed: Notify::new(),
            residents: RefCell::new(Residents::new(census)),
            limits: Limits { envelope_bytes_max: frame_bytes_max },
        }
    }

    pub(super) fn become_phase(&self, phase: Phase) {
        self.phase.set(phase);
        self.changed.notify_one();
    }

    /// From here on bytes pass that nobody looks at.
    pub(super) fn go_blind(&self) {
        if self.phase.get() != Phase::Blind {
            self.residents.borrow_mut().clear();
            self.become_phase(Phase::Blind);
        }
    }
}

/// Passes bytes in both directions until one of them ends.
pub(super) async fn pass(
    session: &Session,
    mut client: impl AsyncRead + AsyncWrite + Unpin,
    mut node: impl AsyncRead + AsyncWrite + Unpin,
) -> io::Result<()> {
    let ended = {
        let (from_client, to_client) = tokio::io::split(&mut client);
        let (from_node, to_node) = tokio::io::split(&mut node);
        let mut up = pin!(requests::pass(session, from_client, to_node));
        let mut down = pin!(answers::pass(session, from_node, to_client));
        std::future::poll_fn(|context| match up.as_mut().poll(context) {
            Poll::Ready(ended) => Poll::Ready(ended),
            Poll::Pending => down.as_mut().poll(context),
        })
        .await
    };
    // TLS tells an end from a break by a last word: whoever takes it at once hears it.
    std::future::poll_fn(|context| {
        let _ = Pin::new(&mut client).poll_shutdown(context);
        let _ = Pin::new(&mut node).poll_shutdown(context);
        Poll::Ready(())
    })
    .await;
    ended
}
