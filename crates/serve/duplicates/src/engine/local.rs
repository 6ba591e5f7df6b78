//! What the frontend answers itself.

use evenkeel_ordered::{Consistency, Epoch, Position, ReplicaState, Sequence};
use xxhash_rust::xxh3::xxh3_128;

use super::Inner;
use super::access::unix_ms;
use super::clients::Transaction;
use super::effects::Request;
use super::types::{ClientId, Form, ParsedCommand, Write};
use evenkeel_stores::resp::commands::{self, Class, Command, Local, Repeat, Rewrite};
use evenkeel_stores::resp::{Protocol, encode, rewrite};

/// Commands one transaction may have, so that it cannot fill the memory.
const TRANSACTION_BYTES_MAX: usize = 16 << 20;

impl Inner {
    /// Answers a command that no duplicate needs to see.
    pub(super) fn local(&mut self, id: ClientId, local: Local, parsed: ParsedCommand<'_>) {
        let Some(client) = self.client(id) else { return };
        let is_greeting = matches!(local, Local::Auth | Local::Hello | Local::Quit | Local::Reset);
        if !client.is_known && !is_greeting {
            return self.refuse(id, "NOAUTH Authentication required.");
        }
        match local {
            Local::Ping if parsed.len() > 1 => {
                self.reply_now(id, |out, _| encode::bulk(out, parsed.argument(1)));
            }
            Local::Ping => self.reply_now(id, |out, _| encode::simple(out, "PONG")),
            Local::Echo => self.reply_now(id, |out, _| encode::bulk(out, parsed.argument(1))),
            Local::Hello => self.hello(id, parsed),
            Local::Auth => self.auth(id, parsed),
            Local::Quit => {
                self.ok(id);
                if let Some(client) = self.client(id) {
                    client.is_ending = true;
                }
            }
            Local::Reset => self.reset(id),
            Local::Script => self.script(id, parsed),
            Local::Select => match parsed.argument(1) {
                b"0" => self.ok(id),
                _ => self.refuse(id, "ERR DB index is out of range: duplicates have database 0"),
            },
            Local::Client => self.client_command(id, parsed),
            Local::Command => self.reply_now(id, |out, _| encode::array(out, 0)),
            Local::Config if parsed.argument(1).eq_ignore_ascii_case(b"GET") => {
                self.reply_now(id, |out, protocol| encode::map(out, 0, protocol));
            }
            Local::Config => self.refuse(
                id,
                "ERR of CONFIG only GET is answered here; the servers are configured themselves",
            ),
            Local::Info => {
                let text = self.info();
                self.reply_now(id, |out, _| encode::bulk(out, text.as_bytes()));
            }
            Local::Time => self.time(id),
            Local::Multi => self.multi(id),
            Local::Discard => self.discard(id),
            Local::Exec => self.exec(id),
            Local::Token => self.token(id),
            Local::Session => self.adopt_session(id, parsed),
        }
    }

    fn ok(&mut self, id: ClientId) {
        self.reply_now(id, |out, _| encode::simple(out, "OK"));
    }

    /// `HELLO [2|3] [AUTH user password] [SETNAME name]`
    fn hello(&mut self, id: ClientId, parsed: ParsedCommand<'_>) {
        let mut asked = None;
        let mut index = 1;
        if parsed.len() > 1 {
            asked = match parsed.argument(1) {
                b"2" => Some(Protocol::Resp2),
                b"3" => Some(Protocol::Resp3),
                _ => return self.refuse(id, "NOPROTO unsupported protocol version"),
            };
            index = 2;
        }
        while index < parsed.len() {
            let option = parsed.argument(index);
            if option.eq_ignore_ascii_case(b"AUTH") && index + 2 < parsed.len() {
                if !self.admit(id, parsed.argument(index + 2)) {
                    return self.refuse(id, WRONG_PASSWORD);
                }
                index += 3;
            } else if option.eq_ignore_ascii_case(b"SETNAME") && index + 1 < parsed.len() {
                let name = parsed.argument(index + 1).to_vec();
                if let Some(client) = self.client(id) {
                    client.name = name;
                }
                index += 2;
            } else {
                return self.refuse(id, "ERR Syntax error in HELLO");
            }
        }
        let Some(client) = self.client(id) else { return };
        if !client.is_known {
            return self.refuse(
                id,
                "NOAUTH HELLO must be called with the client already authenticated, otherwise \
                 the HELLO <proto> AUTH <user> <pass> option can be used",
            );
        }
        // Before the answer: it is written as the protocol asked for has it.
        if let Some(protocol) = asked {
            client.protocol = protocol;
        }
        self.reply_now(id, |out, protocol| {
            encode::map(out, 5, protocol);
            for (name, value) in [
                ("server", "redis"),
                ("version", "7.0.0"),
                ("mode", "standalone"),
                ("role", "master"),
            ] {
                encode::bulk(out, name.as_bytes());
                encode::bulk(out, value.as_bytes());
            }
            encode::bulk(out, b"proto");
            encode::integer(out, if protocol == Protocol::Resp3 { 3 } else { 2 });
        });
    }

    fn auth(&mut self, id: ClientId, parsed: ParsedCommand<'_>) {
        if self.config.password.is_none() {
            return self.refuse(
                id,
                "ERR AUTH <password> called without any password configured for the default user. \
                 Are you sure your configuration is correct?",
            );
        }
        let password = parsed.argument(parsed.len() - 1);
        if self.admit(id, password) { self.ok(id) } else { self.refuse(id, WRONG_PASSWORD) }
    }

    fn admit(&mut self, id: ClientId, password: &[u8]) -> bool {
        let is_right = match &self.config.password {
            None => true,
            // As long for a wrong password as for a right one, whatever they share.
            Some(expected) => {
                let expected = expected.as_bytes();
                let differs = expected.iter().zip(password.iter().chain(std::iter::repeat(&0)));
                let differences = differs.fold(0, |all, (a, b)| all | (a ^ b));
                differences == 0 && expected.len() == password.len()
            }
        };
        if is_right && let Some(client) = self.client(id) {
            client.is_known = true;
        }
        is_right
    }

    fn reset(&mut self, id: ClientId) {
        let (consistency, is_known) = (self.config.consistency, self.config.password.is_none());
        if let Some(client) = self.client(id) {
            client.transaction = None;
            client.protocol = Protocol::Resp2;
            client.consistency = consistency;
            client.is_known = is_known;
        }
        self.reply_now(id, |out, _| encode::simple(out, "RESET"));
    }

    fn client_command(&mut self, id: ClientId, parsed: ParsedCommand<'_>) {
        let what = parsed.argument(1).to_ascii_uppercase();
        match what.as_slice() {
            b"SETNAME" if parsed.len() == 3 => {
                let name = parsed.argument(2).to_vec();
                if let Some(client) = self.client(id) {
                    client.name = name;
                }
                self.ok(id);
            }
            b"SETINFO" | b"NO-EVICT" | b"NO-TOUCH" => self.ok(id),
            b"GETNAME" => {
                let name = self.client(id).map(|client| client.name.clone()).unwrap_or_default();
                self.reply_now(id, |out, protocol| match name.as_slice() {
                    [] => encode::null(out, protocol),
                    name => encode::bulk(out, name),
                });
            }
            b"ID" => self.reply_now(id, |out, _| encode::integer(out, id.key as i64 + 1)),
            _ => self.refuse(
                id,
                "ERR of CLIENT only SETNAME, GETNAME, SETINFO, ID, NO-EVICT and NO-TOUCH are \
                 answered here",
            ),
        }
    }

    fn time(&mut self, id: ClientId) {
        let now_ms = unix_ms();
        self.reply_now(id, |out, _| {
            encode::array(out, 2);
            encode::bulk(out, (now_ms / 1_000).to_string().as_bytes());
            encode::bulk(out, (now_ms % 1_000 * 1_000).to_string().as_bytes());
        });
    }

    fn info(&self) -> String {
        let last = self.history.last();
        let mut text = format!(
            "# Server\r\nredis_version:7.0.0\r\nredis_mode:standalone\r\nrole:master\r\n\
             # Evenkeel\r\nservice:{}\r\nepoch:{}\r\nsequence:{}\r\npartitions:{}\r\nshards:{}\r\n\
             connected_clients:{}\r\n",
            self.config.name,
            last.epoch.0,
            last.sequence.0,
            self.map.partitions(),
            self.map.shards(),
            self.counts.clients,
        );
        let is_one = |server: &usize| self.members.is_configured(*server);
        for server in (0..self.servers.len()).filter(is_one) {
            let state = match self.members.state(server) {
                ReplicaState::Disconnected => "disconnected",
                ReplicaState::CatchingUp => "catching-up",
                ReplicaState::InSync => "in-sync",
            };
            text.push_str(&format!(
                "duplicate{server}:partition={},state={state},applied={},error={:?},\
                 pending={}\r\n",
                self.members.partition(server),
                self.members.applied(server).0,
                self.servers[server].error.as_deref().unwrap_or_default(),
                self.members.owed(server)
            ));
        }
        text
    }

    fn multi(&mut self, id: ClientId) {
        let Some(client) = self.client(id) else { return };
        if client.transaction.is_some() {
            return self.refuse(id, "ERR MULTI calls can not be nested");
        }
        client.transaction = Some(Transaction::default());
        self.ok(id);
    }

    fn discard(&mut self, id: ClientId) {
        match self.client(id).and_then(|client| client.transaction.take()) {
            Some(_) => self.ok(id),
            None => self.refuse(id, "ERR DISCARD without MULTI"),
        }
    }

    /// A command between MULTI and EXEC.
    pub(super) fn queue(
        &mut self,
        id: ClientId,
        command: &Command,
        class: Class,
        parsed: ParsedCommand<'_>,
    ) {
        let shard = match self.shard_of(command, parsed) {
            Ok(shard) => shard,
            Err(reply) => return self.refuse(id, &reply.to_string()),
        };
        let mut text = Vec::new();
        let draws = matches!(class, Class::Rewritten(Rewrite::Pop, _)) && self.has_streams();
        let is_effect = draws || class == Class::Effects;
        let is_free = class == Class::Effects && self.map.partitions() == 1;
        let written = match class {
            Class::Rewritten(Rewrite::Pop, _) if draws => {
                parsed.write(&mut text);
                Ok(())
            }
            Class::Rewritten(rewritten, _) => {
                let now_unix_ms = self.time_of(rewritten, parsed);
                rewrite::rewrite(rewritten, parsed.arguments(), now_unix_ms, &mut text)
            }
            _ => {
                parsed.write(&mut text);
                Ok(())
            }
        };
        if let Err(refusal) = written {
            return self.refuse(id, refusal.0);
        }
        let keys = commands::keys(command, parsed.arguments()).into_iter().flatten();
        let keys: Vec<Box<[u8]>> = keys.map(|index| parsed.argument(index).into()).collect();
        let Some(client) = self.client(id) else { return };
        let Some(transaction) = &mut client.transaction else { return };
        if *transaction.shard.get_or_insert(shard) != shard && !is_free {
            return self.refuse(
                id,
                "CROSSSHARD the keys of a transaction must be in one shard: give them a common \
                 {tag}",
            );
        }
        if transaction.commands.len() + text.len() > TRANSACTION_BYTES_MAX {
            return self.refuse(id, "ERR a transaction may have 16 MiB of commands");
        }
        transaction.commands.extend_from_slice(&text);
        transaction.count += 1;
        transaction.shapes.push(commands::shape(command, parsed.arguments()));
        transaction.is_effect |= is_effect;
        transaction.writes |= !matches!(class, Class::Read);
        transaction.keys.extend(keys);
        self.reply_now(id, |out, _| encode::simple(out, "QUEUED"));
    }

    fn exec(&mut self, id: ClientId) {
        let Some(transaction) = self.client(id).and_then(|client| client.transaction.take()) else {
            return self.refuse(id, "ERR EXEC without MULTI");
        };
        if transaction.is_spoiled {
            let text = "EXECABORT Transaction discarded because of previous errors.";
            return self.refuse(id, text);
        }
        let Some(shard) = transaction.shard else {
            return self.reply_now(id, |out, _| encode::array(out, 0));
        };
        let keys: Vec<u128> = transaction.keys.iter().map(|key| xxh3_128(key)).collect();
        let key_names: Vec<&[u8]> = transaction.keys.iter().map(AsRef::as_ref).collect();
        keys.iter().for_each(|key| self.streams.forget(*key));
        if transaction.is_effect && self.has_streams() {
            return self.run_effects(Request {
                client: id,
                shard,
                commands: transaction.commands,
                count: transaction.count,
                form: Form::Each(transaction.shapes.into()),
                is_single: false,
            });
        }
        // Reads among them see one state of one shard only together: also without a write they
        // go as one, to all duplicates.
        self.write(
            id,
            &Write {
                commands: &transaction.commands,
                count: transaction.count,
                shard,
                repeat: Repeat::Once,
                keys: &keys,
                key_names: &key_names,
                form: Form::Each(transaction.shapes.into()),
                is_single: false,
            },
        );
    }

    /// `EK.TOKEN`: what this session has seen, to be carried to another connection.
    fn token(&mut self, id: ClientId) {
        let epoch = self.history.last().epoch.0;
        let Some(client) = self.client(id) else { return };
        let token = format!("{epoch}-{}", client.session.seen().0);
        self.reply_now(id, |out, _| encode::bulk(out, token.as_bytes()));
    }

    /// `EK.SESSION token|eventual|read-my-own-writes|strong`
    fn adopt_session(&mut self, id: ClientId, parsed: ParsedCommand<'_>) {
        let text = parsed.argument(1);
        let level = match text {
            b"eventual" => Some(Consistency::Eventual),
            b"read-my-own-writes" => Some(Consistency::ReadMyOwnWrites),
            b"strong" => Some(Consistency::Strong),
            _ => None,
        };
        if let Some(level) = level {
            if let Some(client) = self.client(id) {
                client.consistency = level;
            }
            return self.ok(id);
        }
        let token = std::str::from_utf8(text).ok().and_then(|text| {
            let (epoch, sequence) = text.split_once('-')?;
            let (epoch, sequence) = (epoch.parse().ok()?, sequence.parse().ok()?);
            Some(Position { epoch: Epoch(epoch), sequence: Sequence(sequence) })
        });
        let Some(token) = token else {
            return self.refuse(
                id,
                "ERR EK.SESSION takes a token of EK.TOKEN (such as 3-1042), or eventual, \
                 read-my-own-writes or strong",
            );
        };
        if !self.history.is_ours(token) {
            return self.refuse(
                id,
                "STALE this token names a write that this service does not have: it is another \
                 service's, is of before another process took over, or was never acknowledged",
            );
        }
        if let Some(client) = self.client(id) {
            client.session.saw(token.sequence);
        }
        self.ok(id);
    }
}

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";
