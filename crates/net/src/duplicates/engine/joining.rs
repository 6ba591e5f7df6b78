//! Writes and keys for servers that are being filled.

use evenkeel_core::request::ordered::{Dropped, Hash, Lane, Treatment};

use super::super::lane::{Copy, Joiner, Owed};
use super::Inner;
use super::access::Write;
use crate::resp::commands::Repeat;
use crate::resp::encode;
use crate::resp::reply::payload;

impl Inner {
    /// A write was sent to the live ones: those that are being filled get their part of it.
    pub(super) fn tell_joiners(&mut self, partition: usize, write: &Write<'_>) {
        for joiner in self.joiners(partition).iter() {
            let Some(joining) = &mut self.servers[joiner].joining else { continue };
            let donor = joining.donor;
            let mut group = Vec::new();
            let commands = as_given(write, &mut group);
            match joining.copying.write(write.keys, commands) {
                Treatment::Send => self.send_given(joiner, commands, false),
                Treatment::Hold => {}
                Treatment::Ask => {
                    for (&hash, &key) in write.keys.iter().zip(write.key_names) {
                        self.ask(donor, joiner, key, hash);
                    }
                }
            }
        }
    }

    /// The donor was seen to have these keys: those not asked for yet are.
    pub(in super::super) fn seen(&mut self, joiner: usize, key: &[u8], hash: Hash) {
        let Some(joining) = &mut self.servers[joiner].joining else { return };
        let donor = joining.donor;
        if joining.copying.seen(hash) {
            self.ask(donor, joiner, key, hash);
        }
    }

    fn ask(&mut self, donor: usize, joiner: usize, key: &[u8], hash: Hash) {
        let connection = self.servers[joiner].connection;
        self.ask_for(donor, Joiner::Server(joiner, connection), key, hash);
    }

    /// Asks for a key as it is after everything sent so far.
    pub(super) fn ask_for(&mut self, donor: usize, to: Joiner, key: &[u8], hash: Hash) {
        let copy = Copy { to, key: key.into(), hash };
        let lane = self.servers[donor].lane(Lane::Ordered);
        encode::command(&mut lane.pending, &[b"DUMP", key]);
        lane.owed.push_back(Owed::Dump { copy: copy.clone() });
        encode::command(&mut lane.pending, &[b"PEXPIRETIME", key]);
        lane.owed.push_back(Owed::Expiry { copy, dump: None });
        self.members.sent(self.now, donor, None);
        self.members.sent(self.now, donor, None);
        self.schedule();
    }

    /// A key has come from the donor.
    pub(super) fn give(&mut self, copy: &Copy, dump: Option<&[u8]>, expires_ms: i64) {
        let (joiner, connection) = match copy.to {
            Joiner::Server(joiner, connection) => (joiner, connection),
            Joiner::Log(pass) => return self.record(pass, copy, dump, expires_ms),
            Joiner::Move(number) => return self.arrived(number, copy, dump, expires_ms),
        };
        let server = &mut self.servers[joiner];
        if server.connection != connection {
            return;
        }
        let Some(joining) = &mut server.joining else { return };
        let Some(held) = joining.copying.arrived(copy.hash) else { return };
        let command = restoring(&copy.key, dump, expires_ms);
        self.send_given(joiner, &command, true);
        for command in &held {
            self.send_given(joiner, command, false);
        }
        self.counts.copied += 1;
        self.servers[joiner].wake();
    }

    /// The donor does not tell what a key holds: whoever is filled from it must not go on without.
    pub(super) fn give_up_copying(&mut self, copy: &Copy, reply: &[u8]) {
        tracing::warn!(reply = %String::from_utf8_lossy(reply), "a key cannot be copied");
        match copy.to {
            Joiner::Server(joiner, connection) if self.servers[joiner].connection == connection => {
                self.drop_server(joiner, Dropped::Failed);
            }
            Joiner::Server(..) => {}
            Joiner::Move(number) => {
                if self.moving.as_ref().is_some_and(|it| it.number == number) {
                    let reply = String::from_utf8_lossy(reply).trim_end().to_owned();
                    self.break_move(&format!("a key cannot be copied: {reply}"));
                }
            }
            Joiner::Log(number) => {
                if let Some(pass) = &mut self.state_pass
                    && pass.number == number
                {
                    pass.is_broken = true;
                }
            }
        }
    }

    /// Sends a joiner one command, or one MULTI..EXEC, and waits for the answer of each part.
    pub(in super::super) fn send_given(&mut self, joiner: usize, commands: &[u8], is_key: bool) {
        let answers = count_commands(commands);
        let lane = &mut self.servers[joiner].ordered;
        lane.pending.extend_from_slice(commands);
        for _ in 0..answers {
            lane.owed.push_back(Owed::Given { is_key });
            self.members.sent(self.now, joiner, None);
        }
        self.schedule();
    }
}

/// The command that makes a key what it was at the donor, or removes it.
pub(super) fn restoring(key: &[u8], dump: Option<&[u8]>, expires_ms: i64) -> Vec<u8> {
    let mut command = Vec::new();
    match dump.and_then(payload).filter(|_| expires_ms != -2) {
        Some(value) => {
            let mut digits = itoa::Buffer::new();
            let expires = digits.format(expires_ms.max(0)).as_bytes();
            let restore: [&[u8]; 6] = [b"RESTORE", key, expires, value, b"REPLACE", b"ABSTTL"];
            encode::command(&mut command, &restore);
        }
        None => encode::command(&mut command, &[b"DEL", key]),
    }
    command
}

/// A write as a joiner gets it: one command, or a group that is applied whole.
pub(super) fn as_given<'w>(write: &Write<'w>, group: &'w mut Vec<u8>) -> &'w [u8] {
    if write.count == 1 && write.repeat == Repeat::Idempotent {
        return write.commands;
    }
    group.extend_from_slice(b"*1\r\n$5\r\nMULTI\r\n");
    group.extend_from_slice(write.commands);
    group.extend_from_slice(b"*1\r\n$4\r\nEXEC\r\n");
    group
}

/// How many commands lie one after the other.
pub(in super::super) fn count_commands(commands: &[u8]) -> u32 {
    let mut parser = crate::resp::request::RequestParser::default();
    let (mut rest, mut count) = (commands, 0);
    while let Ok(Some(length)) = parser.parse(rest) {
        rest = &rest[length..];
        count += 1;
    }
    count
}
