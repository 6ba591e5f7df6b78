//! Who asked, and the order in which they are answered.
//!
//! Answers come in the order of the duplicates, clients get them in the order of their commands:
//! each command has a slot, and what is complete at the front goes out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use evenkeel_core::Instant;
use evenkeel_ordered::{Consistency, Sequence, Session};

use super::channels::Listening;
use super::read_order::ReadOrder;
use super::types::{Captured, ClientId, Form, Here};
use super::watch::Watching;
use super::{Inner, cluster};
use evenkeel_duplicates_state::about::About;
use evenkeel_redis_acl::User;
use evenkeel_runtime::buffers;
use evenkeel_stores::resp::reply::{self, Shape};
use evenkeel_stores::resp::{Protocol, encode};

/// Answers that are kept are told of once in so many bytes.
const UNIT_BYTES: usize = buffers::UNIT_BYTES as usize;

/// One connection of a client: a session.
#[derive(Debug)]
pub struct Client {
    serial: u64,
    pub(super) protocol: Protocol,
    pub(super) session: Session,
    pub(super) consistency: Consistency,
    pub(super) transaction: Option<Transaction>,
    pub(super) watching: Option<Box<Watching>>,
    /// It keeps what it reads, and is told when that changes.
    pub(super) tracks: bool,
    /// What it subscribed to.
    pub(super) listening: Option<Box<Listening>>,
    /// Since when much of what it listens to waits for it.
    pub(super) slow_since: Option<Instant>,
    /// It said `MONITOR`.
    pub(super) is_monitor: bool,
    /// Its command that waits.
    pub(super) waits: Option<u64>,
    /// It waits, and nothing is under way.
    pub is_idle: bool,
    /// Who it is; `None` until it has said a password, where one is needed.
    pub(super) user: Option<Arc<User>>,
    /// It is served what it has sent, and nothing more.
    pub(super) is_leaving: bool,
    /// It speaks Redis Cluster's protocol.
    pub(super) is_of_cluster: bool,
    /// It is what a plain client, whose keys are in several groups, has with this group: the word
    /// that is said last to it.
    pub routed: Option<String>,
    pub(super) name: Vec<u8>,
    /// Of which its keys are.
    pub(super) database: u8,
    /// What `CLIENT LIST` says of it, and which answers it wants.
    pub(super) about: About,
    /// Where answers go while EXEC takes what is answered here.
    pub(super) captured: Option<Captured>,
    /// A transaction of which something is asked of a duplicate.
    pub(super) executing: Option<Box<Transaction>>,
    /// The last write of each partition: which, and its number.
    pub(super) last_writes: Vec<(usize, Sequence)>,
    /// Answered out of turn: each waits for those before it.
    slots: VecDeque<Option<Vec<u8>>>,
    /// Bytes of these answers.
    kept_bytes: usize,
    /// The number of the first slot.
    pub(super) first: u64,
    /// What may be written now.
    pub out: Vec<u8>,
    /// No further command is read; the connection ends when all is answered and written.
    pub is_ending: bool,
    /// Its reads that may overtake its writes.
    pub(super) read_order: ReadOrder,
    /// What its next command waits for.
    held: Option<Held>,
    /// The task of its socket, while it has nothing to do.
    pub waker: Option<Waker>,
    /// It is nobody but a part of another one's command: which, and the number of the part.
    part: Option<(usize, usize)>,
}

/// Why a client's next command is not taken yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Held {
    /// A command is under way that has no slot yet.
    UntilReleased,
    /// The read whose answer goes to this slot must be answered before.
    Behind(u64),
    /// So many questions of this look at its keys are to be answered before.
    Looking { look: u64, open: usize },
}

/// Between MULTI and EXEC.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    /// The commands, one after the other.
    pub(super) commands: Vec<u8>,
    /// What their answers become for a client of RESP2.
    pub(super) shapes: Vec<Shape>,
    pub(super) count: u32,
    /// In which its client is, unless EXEC does it.
    pub(super) home: u8,
    /// Of which its next command is.
    pub(super) database: u8,
    /// Of which commands are that are written next, as they are.
    pub(super) written_database: u8,
    /// A database other than 0 is concerned.
    pub(super) reaches_elsewhere: bool,
    /// Which of the commands choose a database.
    pub(super) skipped: Vec<u32>,
    pub(super) shard: Option<usize>,
    /// It removes all keys: commands that do so in another partition, one after the other.
    pub(super) flushes: Vec<u8>,
    pub(super) empties: bool,
    /// Their places.
    pub(super) keys: Vec<Box<[u8]>>,
    pub(super) writes: bool,
    /// What of it is answered here.
    pub(super) here: Vec<Here>,
    pub(super) here_bytes: usize,
    /// `PUBLISH` and `SPUBLISH` of it, once EXEC has taken them.
    pub(super) published: Vec<u8>,
    /// Of those, how many a duplicate may have to be asked.
    pub(super) questions: usize,
    /// What of it is shown to who watches, once EXEC takes it.
    pub(super) shown: Vec<Vec<u8>>,
    pub(super) shown_bytes: usize,
    /// One duplicate does it.
    pub(super) is_effect: bool,
    /// A command was refused: EXEC does nothing.
    pub(super) is_spoiled: bool,
}

impl Client {
    /// Commands that were read and are not answered.
    pub fn waiting(&self) -> usize {
        self.slots.len() + usize::from(self.is_held())
    }

    /// What its reads must see: while it watches or tracks, at least what it was told of.
    pub(super) const fn consistency(&self) -> Consistency {
        match self.consistency {
            Consistency::Eventual if self.watching.is_some() || self.tracks => {
                Consistency::ReadMyOwnWrites
            }
            consistency => consistency,
        }
    }

    /// The place of the answer to its next command.
    pub(super) fn next_slot(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    pub(super) const fn id(&self, key: usize) -> ClientId {
        ClientId { key, serial: self.serial }
    }

    /// Bytes of answers that wait to be written.
    pub fn answer_bytes(&self) -> usize {
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

    /// Of which command it is a part, and which part.
    pub(super) const fn part(&self) -> Option<(usize, usize)> {
        self.part
    }

    /// Whether it is nobody's connection.
    pub(super) const fn is_part(&self) -> bool {
        self.part.is_some()
    }

    /// An answer, or a part of one, waits until it may be told.
    pub(super) const fn keep_bytes(&mut self, bytes: usize) {
        self.kept_bytes += bytes;
    }

    /// It waits no more.
    pub(super) const fn give_bytes(&mut self, bytes: usize) {
        self.kept_bytes -= bytes;
    }

    /// Whether it is this one, and not one that had its place before.
    pub(super) const fn is(&self, id: ClientId) -> bool {
        self.serial == id.serial
    }

    /// As `CLIENT ID` tells it.
    pub(super) const fn number(&self) -> i64 {
        self.serial as i64
    }

    /// Whether its next command has to wait.
    pub const fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// The numbers of its first and its last slot.
    pub(super) fn slots(&self) -> (u64, u64) {
        (self.first, self.first + self.slots.len().saturating_sub(1) as u64)
    }

    /// The slot of its last command that is not answered.
    pub(super) fn last_waiting(&self) -> Option<u64> {
        let index = self.slots.iter().rposition(Option::is_none)?;
        Some(self.first + index as u64)
    }

    /// Whether messages may come for it at any time.
    pub const fn is_listening(&self) -> bool {
        self.listening.is_some() || self.is_monitor
    }

    /// Whether the command of this slot is not answered.
    pub(super) fn is_waiting(&self, slot: u64) -> bool {
        let place = slot.checked_sub(self.first).and_then(|index| self.slots.get(index as usize));
        place.is_some_and(Option::is_none)
    }

    /// Whether it has said the password, if there is one.
    pub const fn is_known(&self) -> bool {
        self.user.is_some()
    }
}

impl Inner {
    /// A client has come.
    pub fn welcome(&mut self) -> ClientId {
        self.serial += 1;
        let serial = self.serial;
        let key = self.clients.insert(Client {
            serial,
            protocol: Protocol::Resp2,
            session: Session::default(),
            consistency: self.config.consistency,
            transaction: None,
            watching: None,
            tracks: false,
            listening: None,
            slow_since: None,
            is_monitor: false,
            waits: None,
            is_idle: false,
            user: self.users.nobody().cloned(),
            is_leaving: false,
            is_of_cluster: false,
            routed: None,
            name: Vec::new(),
            database: 0,
            about: About::new(self.now),
            captured: None,
            executing: None,
            last_writes: Vec::new(),
            slots: VecDeque::new(),
            kept_bytes: 0,
            first: 0,
            out: Vec::new(),
            is_ending: false,
            read_order: ReadOrder::default(),
            held: None,
            waker: None,
            part: None,
        });
        self.counts.clients += 1;
        ClientId { key, serial }
    }

    /// In whose name a part of this client's command is sent: one who has seen what it has, and
    /// whose only answer goes to the whole ([`super::gather`]).
    pub(super) fn welcome_part(&mut self, parent: ClientId, part: (usize, usize)) -> ClientId {
        let consistency = self.consistency_of(parent);
        let session = self.client(parent).map(|client| client.session);
        let seen = session.zip(consistency);
        let database = self.database_of(parent);
        let (id, own) = (self.welcome(), Arc::clone(&self.permissions.own));
        self.counts.clients -= 1;
        if let Some(client) = self.client(id) {
            (client.user, client.part) = (Some(own), Some(part));
            client.database = database;
            client.protocol = Protocol::Resp3;
            if let Some((session, consistency)) = seen {
                (client.session, client.consistency) = (session, consistency);
            }
        }
        id
    }

    /// A client, while it is there.
    pub fn client(&mut self, id: ClientId) -> Option<&mut Client> {
        self.clients.get_mut(id.key).filter(|client| client.serial == id.serial)
    }

    /// A client has gone; what it asked for goes on without it.
    pub fn dismiss(&mut self, id: ClientId) {
        if self.client(id).is_some() {
            self.unwatch(id);
            self.stop_tracking(id);
            self.leave_waiting(id);
            self.forget_paused(id);
            self.stop_listening(id);
            self.stop_monitoring(id);
            self.wants_all_no_more(id);
            self.clients.remove(id.key);
            self.counts.clients -= 1;
        }
    }

    /// The place of the next answer.
    pub(super) fn slot(&mut self, id: ClientId) -> u64 {
        let Some(client) = self.client(id) else { return 0 };
        client.slots.push_back(None);
        let slot = client.first + client.slots.len() as u64 - 1;
        client.about.mute(slot);
        slot
    }

    /// The place of the last answer is given away anew.
    pub(super) fn take_back_slot(&mut self, id: ClientId) {
        if let Some(client) = self.client(id) {
            client.slots.pop_back();
            let slot = client.next_slot();
            client.about.take_back(slot);
            if client.tracks {
                self.tell_undone(id, slot);
            }
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

    /// Takes no more commands of this client until so many questions of a look at its keys are
    /// answered.
    pub(super) fn hold_for(&mut self, id: ClientId, look: u64, open: usize) {
        if let Some(client) = self.client(id) {
            client.held = Some(Held::Looking { look, open });
        }
    }

    /// A question of this look is answered.
    pub(super) fn release_of(&mut self, id: ClientId, look: u64) {
        let Some(client) = self.client(id) else { return };
        match &mut client.held {
            Some(Held::Looking { look: this, open }) if *this == look && *open > 1 => *open -= 1,
            Some(Held::Looking { look: this, .. }) if *this == look => self.release(id),
            _ => {}
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
        let client = self.clients.get_mut(id.key).filter(|client| client.serial == id.serial);
        let Some(client) = client else { return };
        if let Some(part) = client.part {
            return self.part_answered(part, answer);
        }
        match form {
            Form::One(_) => self.counts.errors.note(answer),
            Form::Each(_) | Form::Merged(_) => self.counts.errors.note_each(answer),
        }
        let answer = &*match client.is_of_cluster {
            true => cluster::in_its_words(answer),
            false => answer.into(),
        };
        let index = (slot - client.first) as usize;
        let is_mute = client.about.is_mute(slot);
        if index > 0 {
            let mut kept = Vec::with_capacity(if is_mute { 0 } else { answer.len() });
            if !is_mute {
                write(client.protocol, answer, form, &mut kept);
            }
            client.keep(index, kept);
            if client.held == Some(Held::Behind(slot)) {
                self.release(id);
            }
            return;
        }
        if !is_mute {
            write(client.protocol, answer, form, &mut client.out);
        }
        client.slots.pop_front();
        client.first += 1;
        self.tracking.tell_behind(id, client);
        while let Some(Some(next)) = client.slots.front() {
            client.out.extend_from_slice(next);
            client.kept_bytes -= next.len();
            client.slots.pop_front();
            client.first += 1;
            self.tracking.tell_behind(id, client);
        }
        if client.held == Some(Held::Behind(slot)) {
            client.held = None;
        }
        if let Some(waker) = &client.waker {
            waker.wake_by_ref();
        }
        self.tell_later();
    }

    /// Answers a command at once, in its turn; `write` is told the client's protocol.
    pub fn reply_now(&mut self, id: ClientId, write: impl FnOnce(&mut Vec<u8>, Protocol)) {
        if let Some(client) = self.client(id)
            && let Some(captured) = &mut client.captured
        {
            return write(&mut captured.out, Protocol::Resp3);
        }
        let slot = self.slot(id);
        let client = self.clients.get_mut(id.key).filter(|client| client.serial == id.serial);
        let Some(client) = client else { return };
        if let Some(part) = client.part {
            let mut answer = Vec::new();
            write(&mut answer, client.protocol);
            return self.part_answered(part, &answer);
        }
        let index = (slot - client.first) as usize;
        if client.about.is_mute(slot) {
            match index {
                0 => {
                    client.slots.pop_front();
                    client.first += 1;
                }
                _ => client.keep(index, Vec::new()),
            }
        } else if index == 0 {
            let start = client.out.len();
            write(&mut client.out, client.protocol);
            self.counts.errors.note(&client.out[start..]);
            client.slots.pop_front();
            client.first += 1;
        } else {
            let mut kept = Vec::new();
            write(&mut kept, client.protocol);
            self.counts.errors.note(&kept);
            client.keep(index, kept);
        }
        if index == 0 {
            self.tracking.tell_behind(id, client);
            self.tell_later();
        }
    }
}

fn write(protocol: Protocol, answer: &[u8], form: &Form, out: &mut Vec<u8>) {
    match (protocol, form) {
        (_, Form::Merged(merged)) => {
            let (answer, form) = merged.with(answer);
            write(protocol, &answer, &form, out);
        }
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
