//! Who asked, and the order in which they are answered.
//!
//! Answers come in the order of the duplicates, clients get them in the order of their commands:
//! each command has a slot, and what is complete at the front goes out.

use std::collections::VecDeque;
use std::task::Waker;

use evenkeel_ordered::{Consistency, Session};

use super::Inner;
use super::read_order::ReadOrder;
use super::types::{ClientId, Form};
use evenkeel_runtime::buffers;
use evenkeel_stores::resp::reply::{self, Shape};
use evenkeel_stores::resp::{Protocol, encode};

/// Answers that are kept are told of once in so many bytes.
const UNIT_BYTES: usize = buffers::UNIT_BYTES as usize;

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
    /// Bytes of these answers.
    kept_bytes: usize,
    /// The number of the first slot.
    first: u64,
    /// What may be written now.
    pub(in super::super) out: Vec<u8>,
    /// No further command is read; the connection ends when all is answered and written.
    pub(in super::super) is_ending: bool,
    /// Its reads that may overtake its writes.
    pub(super) read_order: ReadOrder,
    /// What its next command waits for.
    held: Option<Held>,
    pub(in super::super) waker: Option<Waker>,
}

/// Why a client's next command is not taken yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Held {
    /// A command is under way that has no slot yet.
    UntilReleased,
    /// The read whose answer goes to this slot must be answered before.
    Behind(u64),
}

/// Between MULTI and EXEC.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    /// The commands, one after the other.
    pub(super) commands: Vec<u8>,
    /// What their answers become for a client of RESP2.
    pub(super) shapes: Vec<Shape>,
    pub(super) count: u32,
    pub(super) shard: Option<usize>,
    pub(super) keys: Vec<Box<[u8]>>,
    pub(super) writes: bool,
    /// One duplicate does it.
    pub(super) is_effect: bool,
    /// A command was refused: EXEC does nothing.
    pub(super) is_spoiled: bool,
}

impl Client {
    /// Commands that were read and are not answered.
    pub(in super::super) fn waiting(&self) -> usize {
        self.slots.len() + usize::from(self.is_held())
    }

    /// Bytes of answers that wait to be written.
    pub(in super::super) fn answer_bytes(&self) -> usize {
        self.out.len() + self.kept_bytes
    }

    /// Keeps an answer until those before it are there. Whoever writes is told of much.
    fn keep(&mut self, index: usize, answer: Vec<u8>) {
        let before = self.kept_bytes;
        self.kept_bytes += answer.len();
        self.slots[index] = Some(answer);
        if let Some(waker) = &self.waker
            && before / UNIT_BYTES != self.kept_bytes / UNIT_BYTES
        {
            waker.wake_by_ref();
        }
    }

    /// Whether its next command has to wait.
    pub(in super::super) const fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// The numbers of its first and its last slot.
    pub(super) fn slots(&self) -> (u64, u64) {
        (self.first, self.first + self.slots.len().saturating_sub(1) as u64)
    }

    /// Whether the command of this slot is not answered.
    pub(super) fn is_waiting(&self, slot: u64) -> bool {
        let place = slot.checked_sub(self.first).and_then(|index| self.slots.get(index as usize));
        place.is_some_and(Option::is_none)
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
            kept_bytes: 0,
            first: 0,
            out: Vec::new(),
            is_ending: false,
            read_order: ReadOrder::default(),
            held: None,
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

    /// The place of the last answer is given away anew.
    pub(super) fn take_back_slot(&mut self, id: ClientId) {
        if let Some(client) = self.client(id) {
            client.slots.pop_back();
        }
    }

    /// Takes no more commands of this client until it is released.
    pub(super) fn hold(&mut self, id: ClientId) {
        if let Some(client) = self.client(id) {
            client.held = Some(Held::UntilReleased);
        }
    }

    /// Takes no more commands of this client until the one of this slot is answered.
    pub(super) fn hold_behind(&mut self, id: ClientId, slot: u64) {
        if let Some(client) = self.client(id) {
            client.held = Some(Held::Behind(slot));
        }
    }

    pub(super) fn release(&mut self, id: ClientId) {
        if let Some(client) = self.client(id) {
            client.held = None;
            if let Some(waker) = &client.waker {
                waker.wake_by_ref();
            }
        }
    }

    /// Answers one command in RESP3; a client of RESP2 gets it as that has it.
    pub(super) fn reply(&mut self, id: ClientId, slot: u64, answer: &[u8], form: &Form) {
        let Some(client) = self.client(id) else { return };
        let index = (slot - client.first) as usize;
        if index > 0 {
            let mut kept = Vec::with_capacity(answer.len());
            write(client.protocol, answer, form, &mut kept);
            client.keep(index, kept);
            if client.held == Some(Held::Behind(slot)) {
                self.release(id);
            }
            return;
        }
        write(client.protocol, answer, form, &mut client.out);
        client.slots.pop_front();
        client.first += 1;
        while let Some(Some(next)) = client.slots.front() {
            client.out.extend_from_slice(next);
            client.kept_bytes -= next.len();
            client.slots.pop_front();
            client.first += 1;
        }
        if client.held == Some(Held::Behind(slot)) {
            client.held = None;
        }
        if let Some(waker) = &client.waker {
            waker.wake_by_ref();
        }
    }

    /// Answers a command at once, in its turn; `write` is told the client's protocol.
    pub(in super::super) fn reply_now(
        &mut self,
        id: ClientId,
        write: impl FnOnce(&mut Vec<u8>, Protocol),
    ) {
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
            client.keep(index, kept);
        }
    }
}

fn write(protocol: Protocol, answer: &[u8], form: &Form, out: &mut Vec<u8>) {
    match (protocol, form) {
        (Protocol::Resp3, _) => out.extend_from_slice(answer),
        (Protocol::Resp2, Form::One(shape)) => reply::down_convert(answer, *shape, out),
        (Protocol::Resp2, Form::Each(shapes)) if answer.first() == Some(&b'*') => {
            encode::array(out, reply::elements(answer).count());
            let shapes = shapes.iter().chain(std::iter::repeat(&Shape::Plain));
            for (element, shape) in reply::elements(answer).zip(shapes) {
                reply::down_convert(element, *shape, out);
            }
        }
        (Protocol::Resp2, Form::Each(_)) => reply::down_convert(answer, Shape::Plain, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Redis 7 sends a client of RESP2 for `MULTI`, `ZRANGE z 0 -1 WITHSCORES`, `LPOP none 2`,
    /// `GET none`, `EXEC`.
    #[test]
    fn each_answer_of_a_transaction_has_the_form_of_its_command() {
        let answer = b"*3\r\n*1\r\n*2\r\n$1\r\na\r\n,1\r\n_\r\n_\r\n";
        let form = Form::Each([Shape::Pairs, Shape::NullArray, Shape::Plain].into());
        let mut out = Vec::new();
        write(Protocol::Resp2, answer, &form, &mut out);
        assert_eq!(out, b"*3\r\n*2\r\n$1\r\na\r\n$1\r\n1\r\n*-1\r\n$-1\r\n");
        out.clear();
        write(Protocol::Resp2, b"-EXECABORT no\r\n", &form, &mut out);
        assert_eq!(out, b"-EXECABORT no\r\n");
        out.clear();
        write(Protocol::Resp3, answer, &form, &mut out);
        assert_eq!(out, answer);
    }
}
