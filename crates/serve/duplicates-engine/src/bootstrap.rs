//! Writes and keys for servers that are being filled.

use evenkeel_ordered::{ConnectionKind, Dropped, Hash, Treatment};

use super::Inner;
use super::types::{Copy, CopyTarget, Owed, Write};
use evenkeel_store_link::fencing;
use evenkeel_stores::resp::commands::Repeat;
use evenkeel_stores::resp::reply::payload;
use evenkeel_stores::resp::{databases, encode, functions, whole};
use evenkeel_stores::store::keys::FUNCTIONS;
use xxhash_rust::xxh3::xxh3_128;

impl Inner {
    /// A write was sent to the live ones: those that are being filled get their part of it.
    pub(super) fn tell_bootstrapping(&mut self, partition: usize, write: &Write<'_>) {
        if self.bootstrapping(partition).is_empty() {
            return;
        }
        // Of a database that is not the first the flush is not what the bytes begin with.
        if let Some(stamp) = self.stamp_behind(write.commands, false) {
            return self.empty_bootstrapping(partition, write, &stamp);
        }
        for target in self.bootstrapping(partition).iter() {
            let Some(bootstrap) = &mut self.servers[target].bootstrap else { continue };
            let source = bootstrap.source;
            let mut group = Vec::new();
            let commands = as_given(write, &mut group);
            match bootstrap.copying.write(write.keys, commands) {
                Treatment::Send => self.send_given(target, commands, false),
                Treatment::Hold => {}
                Treatment::Ask => {
                    for (&hash, &key) in write.keys.iter().zip(write.key_names) {
                        self.ask(source, target, key, hash);
                    }
                }
            }
        }
    }

    /// Where all is removed there is nothing to copy any more. Where that cannot be said of
    /// everything, who is being filled comes back, and is filled again: a key that was read before
    /// and arrives behind it would be back.
    fn empty_bootstrapping(&mut self, partition: usize, write: &Write<'_>, stamp: &[u8]) {
        let is_all = write.is_single && whole::empties_everything(write.commands);
        let servers = self.config.servers();
        for target in self.bootstrapping(partition).iter() {
            let Some(bootstrap) = &mut self.servers[target].bootstrap else { continue };
            if !is_all || !bootstrap.copying.emptied(xxh3_128(FUNCTIONS)) {
                self.drop_server(target, Dropped::Lost);
                continue;
            }
            let connection = &mut self.servers[target].ordered;
            let out = &mut connection.pending;
            servers.write_marked(out, write.commands, Some(stamp), fencing::FILLING);
            let before = 2 + write.count;
            connection.owe(Owed::Replayed { write: None, before, refusal: None });
            self.members.sent(self.now, target, None);
            self.servers[target].wake();
        }
    }

    /// The source was seen to have these keys: those not asked for yet are.
    pub fn seen(&mut self, target: usize, key: &[u8], hash: Hash) {
        let Some(bootstrap) = &mut self.servers[target].bootstrap else { return };
        let source = bootstrap.source;
        if bootstrap.copying.seen(hash) {
            self.ask(source, target, key, hash);
        }
    }

    fn ask(&mut self, source: usize, target: usize, key: &[u8], hash: Hash) {
        let connection = self.servers[target].connection;
        self.ask_for(source, CopyTarget::Server(target, connection), key, hash);
    }

    /// Asks for a key as it is after everything sent so far.
    pub(super) fn ask_for(&mut self, source: usize, to: CopyTarget, key: &[u8], hash: Hash) {
        let copy = Copy { to, key: key.into(), hash };
        let (database, key) = databases::at(key);
        if database > 0 {
            self.choose((source, ConnectionKind::Ordered), database);
        }
        let connection = self.servers[source].connection(ConnectionKind::Ordered);
        match functions::is_name(key) {
            true => encode::command(&mut connection.pending, &[b"FUNCTION", b"DUMP"]),
            false => encode::command(&mut connection.pending, &[b"DUMP", key]),
        }
        connection.owe(Owed::Dump { copy: copy.clone() });
        encode::command(&mut connection.pending, &[b"PEXPIRETIME", key]);
        connection.owe(Owed::Expiry { copy, dump: None });
        self.members.sent(self.now, source, None);
        self.members.sent(self.now, source, None);
        if database > 0 {
            self.choose((source, ConnectionKind::Ordered), 0);
        }
        self.schedule();
    }

    /// A key has come from the source.
    pub(super) fn give(&mut self, copy: &Copy, dump: Option<&[u8]>, expires_ms: i64) {
        let (target, connection) = match copy.to {
            CopyTarget::Server(target, connection) => (target, connection),
            CopyTarget::Log(pass) => return self.record(pass, copy, dump, expires_ms),
            CopyTarget::Move(number) => return self.arrived(number, copy, dump, expires_ms),
        };
        let server = &mut self.servers[target];
        if server.connection != connection {
            return;
        }
        let Some(bootstrap) = &mut server.bootstrap else { return };
        let Some(held) = bootstrap.copying.arrived(copy.hash) else { return };
        let command = restoring(&copy.key, dump, expires_ms);
        self.send_given(target, &command, true);
        for command in &held {
            self.send_given(target, command, false);
        }
        self.counts.copied += 1;
        self.servers[target].wake();
    }

    /// The source does not tell what a key holds: whoever is filled from it must not go on without.
    pub(super) fn give_up_copying(&mut self, copy: &Copy, reply: &[u8]) {
        tracing::warn!(reply = %String::from_utf8_lossy(reply), "a key cannot be copied");
        match copy.to {
            CopyTarget::Server(target, connection)
                if self.servers[target].connection == connection =>
            {
                self.drop_server(target, Dropped::Failed);
            }
            CopyTarget::Server(..) => {}
            CopyTarget::Move(number) => {
                if self.moving.as_ref().is_some_and(|it| it.number == number) {
                    let reply = String::from_utf8_lossy(reply).trim_end().to_owned();
                    self.break_move(&format!("a key cannot be copied: {reply}"));
                }
            }
            CopyTarget::Log(number) => {
                if let Some(pass) = &mut self.state_pass
                    && pass.number == number
                {
                    pass.is_broken = true;
                }
            }
        }
    }

    /// Sends a target one command, or one MULTI..EXEC, and waits for the answer of each part.
    pub fn send_given(&mut self, target: usize, commands: &[u8], is_key: bool) {
        let answers = count_commands(commands);
        let connection = &mut self.servers[target].ordered;
        connection.pending.extend_from_slice(commands);
        for _ in 0..answers {
            connection.owe(Owed::Given { is_key });
            self.members.sent(self.now, target, None);
        }
        self.schedule();
    }
}

/// The command that makes a key what it was at the source, or removes it, in its database.
pub(super) fn restoring(place: &[u8], dump: Option<&[u8]>, expires_ms: i64) -> Vec<u8> {
    if functions::is_name(place)
        && let Some(command) = functions::restoring(dump)
    {
        return command;
    }
    let mut command = Vec::new();
    let (database, key) = databases::at(place);
    databases::write_within(&mut command, database, |command| {
        write_restoring(command, key, dump, expires_ms);
    });
    command
}

fn write_restoring(command: &mut Vec<u8>, key: &[u8], dump: Option<&[u8]>, expires_ms: i64) {
    match dump.and_then(payload).filter(|_| expires_ms != -2) {
        Some(value) => {
            let mut digits = itoa::Buffer::new();
            let expires = digits.format(expires_ms.max(0)).as_bytes();
            let restore: [&[u8]; 6] = [b"RESTORE", key, expires, value, b"REPLACE", b"ABSTTL"];
            encode::command(command, &restore);
        }
        None => encode::command(command, &[b"DEL", key]),
    }
}

/// A write as a target gets it: one command, or a group that is applied whole.
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
pub fn count_commands(commands: &[u8]) -> u32 {
    let mut parser = evenkeel_stores::resp::request::RequestParser::default();
    let (mut rest, mut count) = (commands, 0);
    while let Ok(Some(length)) = parser.parse(rest) {
        rest = &rest[length..];
        count += 1;
    }
    count
}
