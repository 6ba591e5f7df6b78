//! Who asked, and the order in which they are answered.
//!
//! Answers come in the order of the duplicates, clients get them in the order of their commands:
//! each command has a slot, and what is complete at the front goes out.

use std::collections::VecDeque;
use std::task::Waker;

use evenkeel_core::request::ordered::{Consistency, Session};

use super::Inner;
use crate::resp::Protocol;
use crate::resp::reply::{self, Shape};

/// Names one client for as long as the service runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) struct ClientId {
    /// Where it is kept.
    pub(super) key: usize,
    serial: u64,
}

/// One connection of a client: a session.
#[derive(Debug)]
pub(in super::super) struct Client {
    serial: u64,
    pub(super) protocol: Protocol,
    pub(super) session: Session,
    pub(super) consistency: Consistency,
    pub(super) transaction: Option<Transaction>,
    pub(super) is_known: bool,
    pub(super) name: Vec<u8>,
    /// Answered out of turn: each waits for those before it.
    slots: VecDeque<Option<Vec<u8>>>,
    /// The number of the first slot.
    first: u64,
    /// What may be written now.
    pub(in super::super) out: Vec<u8>,
    /// No further command is read; the connection ends when all is answered and written.
    pub(in super::super) is_ending: bool,
    pub(in super::super) waker: Option<Waker>,
}

/// Between MULTI and EXEC.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    /// The commands, one after the other.
    pub(super) commands: Vec<u8>,
    pub(super) count: u32,
    pub(super) shard: Option<usize>,
    pub(super) keys: Vec<Box<[u8]>>,
    pub(super) writes: bool,
    /// A command was refused: EXEC does nothing.
    pub(super) is_spoiled: bool,
}

impl Client {
    /// Commands that were read and are not answered.
    pub(in super::super) fn waiting(&self) -> usize {
        self.slots.len()
    }

    /// Whether it has said the password, if there is one.
    pub(in super::super) const fn is_known(&self) -> bool {
        self.is_known
    }
}

impl Inner {
    /// A client has come.
    pub(in super::super) fn welcome(&mut self) -> ClientId {
        self.serial += 1;
        let serial = self.serial;
        let key = self.clients.insert(Client {
            serial,
            protocol: Protocol::Resp2,
            session: Session::default(),
            consistency: self.config.consistency,
            transaction: None,
            is_known: self.config.password.is_none(),
            name: Vec::new(),
            slots: VecDeque::new(),
            first: 0,
            out: Vec::new(),
            is_ending: false,
            waker: None,
        });
        self.counts.clients += 1;
        ClientId { key, serial }
    }

    /// A client, while it is there.
    pub(in super::super) fn client(&mut self, id: ClientId) -> Option<&mut Client> {
        self.clients.get_mut(id.key).filter(|client| client.serial == id.serial)
    }

    /// A client has gone; what it asked for goes on without it.
    pub(in super::super) fn dismiss(&mut self, id: ClientId) {
        if self.client(id).is_some() {
            self.clients.remove(id.key);
            self.counts.clients -= 1;
        }
    }

    /// The place of the next answer.
    pub(super) fn slot(&mut self, id: ClientId) -> u64 {
        let Some(client) = self.client(id) else { return 0 };
        client.slots.push_back(None);
        client.first + client.slots.len() as u64 - 1
    }

    /// Answers one command in RESP3; a client of RESP2 gets it as that has it.
    pub(super) fn reply(&mut self, id: ClientId, slot: u64, answer: &[u8], shape: Shape) {
        let Some(client) = self.client(id) else { return };
        let index = (slot - client.first) as usize;
        if index > 0 {
            let mut kept = Vec::with_capacity(answer.len());
            write(client.protocol, answer, shape, &mut kept);
            client.slots[index] = Some(kept);
            return;
        }
        write(client.protocol, answer, shape, &mut client.out);
        client.slots.pop_front();
        client.first += 1;
        while let Some(Some(next)) = client.slots.front() {
            client.out.extend_from_slice(next);
            client.slots.pop_front();
            client.first += 1;
        }
        if let Some(waker) = &client.waker {
            waker.wake_by_ref();
        }
    }

    /// Answers a command at once, in its turn; `write` is told the client's protocol.
    pub(in super::super) fn reply_now(&mut self, id: ClientId, write: impl FnOnce(&mut Vec<u8>, Protocol)) {
        let slot = self.slot(id);
        let Some(client) = self.client(id) else { return };
        let index = (slot - client.first) as usize;
        if index == 0 {
            write(&mut client.out, client.protocol);
            client.slots.pop_front();
            client.first += 1;
        } else {
            let mut kept = Vec::new();
            write(&mut kept, client.protocol);
            client.slots[index] = Some(kept);
        }
    }
}

fn write(protocol: Protocol, answer: &[u8], shape: Shape, out: &mut Vec<u8>) {
    match protocol {
        Protocol::Resp3 => out.extend_from_slice(answer),
        Protocol::Resp2 => reply::down_convert(answer, shape, out),
    }
}
