//! What the frontend answers itself.

use evenkeel_ordered::{Consistency, Epoch, Position, Sequence};
use xxhash_rust::xxh3::xxh3_128;

use super::Inner;
use super::access::unix_ms;
use super::client_command::BAD_NAME;
use super::clients::Transaction;
use super::effects::Request;
use super::types::{ClientId, ErrorReply, Form, ParsedCommand, Write};
use evenkeel_stores::resp::commands::{
    self, Class, Command, Local, Repeat, Rewrite, Wait as WaitsFor, integer, refusals,
};
use evenkeel_stores::resp::locate::{CROSSING, Location};
use evenkeel_stores::resp::reply::Shape;
use evenkeel_stores::resp::{Protocol, databases, encode, pause, rewrite, whole};

const PING_ARITY: &str = "ERR wrong number of arguments for 'ping' command";
const FLUSH_BESIDE_EFFECTS: &str = "ERR FLUSHALL and FLUSHDB are not taken in one transaction with \
    scripts, SPOP or deliveries to consumer groups: send it before MULTI or after EXEC";
const PUBLISH_BESIDE_FLUSH: &str = "ERR FLUSHALL, FLUSHDB and PUBLISH are not taken in one \
    transaction: publish behind EXEC";
const ABORTED: &str = "EXECABORT Transaction discarded because of previous errors.";
/// Commands one transaction may have, so that it cannot fill the memory.
pub(super) const TRANSACTION_BYTES_MAX: usize = 16 << 20;
pub(super) const TRANSACTION_TOO_LONG: &str = "ERR a transaction may have 16 MiB of commands";

impl Inner {
    /// Answers a command that no duplicate needs to see.
    pub(super) fn local(
        &mut self,
        id: ClientId,
        (command, local): (&Command, Local),
        parsed: ParsedCommand<'_>,
    ) {
        let Some(client) = self.client(id) else { return };
        let is_greeting = matches!(
            local,
            Local::Auth | Local::Hello | Local::Quit | Local::Relayed | Local::Reset
        );
        if !client.is_known() && !is_greeting {
            return self.refuse(id, "NOAUTH Authentication required.");
        }
        match local {
            Local::Ping if parsed.len() > 2 => self.refuse(id, PING_ARITY),
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
            Local::Select => self.select(id, parsed),
            Local::Acl => self.acl(id, parsed),
            Local::AskAll => self.ask_all(id, parsed),
            Local::AskOne => self.ask_one(id, parsed),
            Local::Client => self.client_command(id, parsed),
            Local::Command => self.command_command(id, parsed),
            Local::Config => self.config_command(id, parsed),
            Local::Info => self.info_command(id, parsed),
            Local::Module => self.module(id, parsed),
            Local::Monitor => self.monitor(id),
            Local::Role => self.role(id),
            Local::Script => self.script(id, parsed),
            Local::Function => self.function(id, parsed),
            Local::Wait => self.wait_for(id, parsed),
            Local::Time => self.time(id),
            Local::NoReplica => self.ok(id),
            Local::Multi => self.multi(id),
            Local::Discard => self.discard(id),
            Local::Exec => self.exec(id),
            Local::Subscribe(kind) => self.subscribe(id, kind, parsed),
            Local::Unsubscribe(kind) => self.unsubscribe(id, kind, parsed),
            Local::Publish(kind) => self.publish(id, kind, parsed),
            Local::Pubsub => self.pubsub(id, parsed),
            Local::Watch => self.watch(id, command, parsed),
            Local::Unwatch => {
                self.unwatch(id);
                self.ok(id);
            }
            Local::Relayed => self.relayed(id, parsed),
            Local::Token => self.token(id),
            Local::Session => self.adopt_session(id, parsed),
        }
    }

    fn module(&mut self, id: ClientId, parsed: ParsedCommand<'_>) {
        match parsed.argument(1).to_ascii_lowercase().as_slice() {
            b"list" => self.reply_now(id, |out, _| encode::array(out, 0)),
            b"help" => self.ask_one(id, parsed),
            b"load" | b"loadex" | b"unload" => self.refuse(id, refusals::MODULES),
            _ => self.refuse_subcommand(id, "module", &["list", "help"], parsed),
        }
    }

    pub(super) fn ok(&mut self, id: ClientId) {
        self.reply_now(id, |out, _| encode::simple(out, "OK"));
    }

    /// `HELLO [2|3] [AUTH user password] [SETNAME name]`
    fn hello(&mut self, id: ClientId, parsed: ParsedCommand<'_>) {
        let mut asked = None;
        if parsed.len() > 1 {
            asked = match integer(parsed.argument(1)) {
                Some(2) => Some(Protocol::Resp2),
                Some(3) => Some(Protocol::Resp3),
                Some(_) => return self.refuse(id, "NOPROTO unsupported protocol version"),
                None => {
                    let text = "ERR Protocol version is not an integer or out of range";
                    return self.refuse(id, text);
                }
            };
        }
        let (mut index, mut name) = (2, None);
        while index < parsed.len() {
            let option = parsed.argument(index);
            if option.eq_ignore_ascii_case(b"AUTH") && index + 2 < parsed.len() {
                let said = (parsed.argument(index + 1), parsed.argument(index + 2));
                if !self.admit(id, said, "HELLO") {
                    return;
                }
                index += 3;
            } else if option.eq_ignore_ascii_case(b"SETNAME") && index + 1 < parsed.len() {
                name = Some(parsed.argument(index + 1));
                index += 2;
            } else {
                let option = String::from_utf8_lossy(&option[..option.len().min(64)]);
                return self.refuse(id, &format!("ERR Syntax error in HELLO option '{option}'"));
            }
        }
        let Some(client) = self.client(id) else { return };
        if !client.is_known() {
            return self.refuse(id, HELLO_FIRST);
        }
        // Before the answer: it is written as the protocol asked for has it.
        if let Some(protocol) = asked {
            client.protocol = protocol;
        }
        if let Some(name) = name
            && !self.set_name(id, name)
        {
            return self.refuse(id, BAD_NAME);
        }
        let version = self.version();
        let mode = self.mode(id);
        self.reply_now(id, |out, protocol| greet(id, (&version, mode), protocol, out));
    }

    fn reset(&mut self, id: ClientId) {
        let (consistency, nobody) = (self.config.consistency, self.users.nobody().cloned());
        self.unwatch(id);
        self.stop_tracking(id);
        self.stop_listening(id);
        self.stop_monitoring(id);
        if let Some(client) = self.client(id) {
            client.transaction = None;
            client.protocol = Protocol::Resp2;
            client.name.clear();
            client.database = 0;
            client.about.reset();
            client.consistency = consistency;
            client.user = nobody;
        }
        self.reply_now(id, |out, _| encode::simple(out, "RESET"));
    }

    fn time(&mut self, id: ClientId) {
        let now_ms = unix_ms();
        self.reply_now(id, |out, _| {
            encode::array(out, 2);
            encode::bulk(out, (now_ms / 1_000).to_string().as_bytes());
            encode::bulk(out, (now_ms % 1_000 * 1_000).to_string().as_bytes());
        });
    }

    fn multi(&mut self, id: ClientId) {
        let Some(client) = self.client(id) else { return };
        if client.transaction.is_some() {
            // As with Redis, this does not spoil it.
            let text = "ERR MULTI calls can not be nested";
            return self.reply_now(id, |out, _| encode::error(out, text));
        }
        let database = client.database;
        client.transaction =
            Some(Transaction { home: database, database, ..Transaction::default() });
        self.ok(id);
    }

    fn discard(&mut self, id: ClientId) {
        match self.client(id).and_then(|client| client.transaction.take()) {
            Some(_) => {
                self.unwatch(id);
                self.ok(id);
            }
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
        // Whether it may be written there is asked when all of it is known.
        let place = match self.locate(command, parsed) {
            Ok(place) => place,
            Err(reply) => return self.refuse(id, &reply.to_string()),
        };
        let mut text = Vec::new();
        let draws = matches!(class, Class::Rewritten(Rewrite::Pop, _)) && self.is_redis();
        // Nothing waits there: a read of a group is done at once.
        let is_effect = draws || matches!(class, Class::Effects | Class::Waits(WaitsFor::Group));
        let queued = self.client(id).and_then(|client| client.transaction.as_ref());
        let database = queued.map_or(0, |transaction| transaction.database);
        let written = match class {
            Class::Rewritten(Rewrite::Pop, _) if draws => {
                parsed.write(&mut text);
                Ok(())
            }
            Class::Rewritten(rewritten, _) => {
                let now_unix_ms = self.time_of(database, rewritten, parsed);
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
        let Some(client) = self.client(id) else { return };
        let Some(transaction) = &mut client.transaction else { return };
        let keys = databases::places(transaction.database, command, parsed.arguments());
        let keys: Vec<Box<[u8]>> = keys.into_iter().map(|place| Box::from(&*place)).collect();
        let first = *transaction.shard.get_or_insert(place.shard);
        let fits = self.map.partition(first) == place.partition;
        let Some(client) = self.client(id) else { return };
        let Some(transaction) = client.transaction.as_mut().filter(|_| fits) else {
            return self.refuse(id, CROSSING.0);
        };
        if transaction.bytes() + text.len() > TRANSACTION_BYTES_MAX {
            return self.refuse(id, TRANSACTION_TOO_LONG);
        }
        if is_effect && transaction.empties {
            return self.refuse(id, FLUSH_BESIDE_EFFECTS);
        }
        transaction.turn();
        transaction.reaches_elsewhere |=
            databases::target_argument(command, parsed.arguments()).is_some();
        transaction.commands.extend_from_slice(&text);
        transaction.count += 1;
        transaction.shapes.push(commands::shape(command, parsed.arguments()));
        transaction.is_effect |= is_effect;
        transaction.writes |= pause::writes(command, class);
        transaction.keys.extend(keys);
        self.reply_now(id, |out, _| encode::simple(out, "QUEUED"));
    }

    /// `FLUSHALL` or `FLUSHDB` between MULTI and EXEC.
    pub(super) fn queue_flush(
        &mut self,
        id: ClientId,
        command: &Command,
        parsed: ParsedCommand<'_>,
    ) {
        let is_one = self.empties_one(command);
        if let Some(lacks) = self.lacks(parsed.argument(0)) {
            return self.refuse(id, &lacks);
        }
        let Some(client) = self.client(id) else { return };
        let Some(transaction) = &mut client.transaction else { return };
        if transaction.commands.len() > TRANSACTION_BYTES_MAX {
            return self.refuse(id, TRANSACTION_TOO_LONG);
        }
        if transaction.is_effect {
            return self.refuse(id, FLUSH_BESIDE_EFFECTS);
        }
        let how = parsed.arguments().get(1);
        transaction.turn();
        // It is of the database that was turned to.
        whole::write_flush(is_one.then_some(0), how, &mut transaction.commands);
        let database = is_one.then_some(transaction.database);
        whole::write_flush(database, how, &mut transaction.flushes);
        transaction.count += 1;
        transaction.shapes.push(Shape::Plain);
        (transaction.writes, transaction.empties) = (true, true);
        self.reply_now(id, |out, _| encode::simple(out, "QUEUED"));
    }

    fn exec(&mut self, id: ClientId) {
        let Some(transaction) = self.client(id).and_then(|client| client.transaction.take()) else {
            return self.refuse(id, "ERR EXEC without MULTI");
        };
        // Redis looks first, and then does what is queued.
        if transaction.is_spoiled || self.is_watch_broken(id) {
            self.unwatch(id);
            return match transaction.is_spoiled {
                true => self.refuse(id, ABORTED),
                false => self.reply_now(id, encode::null_array),
            };
        }
        match transaction.here.is_empty() {
            true => self.exec_rest(id, transaction),
            false => self.exec_here(id, Box::new(transaction)),
        }
    }

    /// Sends what of a transaction is for duplicates: this is its place in the order of writes.
    pub(super) fn exec_rest(&mut self, id: ClientId, mut transaction: Transaction) {
        // Pops of clients that wait come before, or they would after it was looked.
        self.try_again();
        self.remove_expired_of(id, &transaction.commands);
        // What is done by one duplicate is done later: until then it is watched.
        let is_later = transaction.is_effect;
        let is_broken = if is_later { self.is_watch_broken(id) } else { self.unwatch(id) };
        if is_broken {
            self.end_in(id, transaction.home);
            return self.reply_now(id, encode::null_array);
        }
        transaction.finish();
        let form = transaction.form();
        let published = std::mem::take(&mut transaction.published);
        if transaction.count == 0 {
            return self.exec_nothing(id, &published, &form);
        }
        // A shard may have moved since they came.
        let shard = match self.shard_of_exec(&transaction) {
            Ok(shard) => shard,
            Err(reply) => {
                self.end_in(id, transaction.home);
                return self.refuse(id, &reply.to_string());
            }
        };
        if transaction.empties && !published.is_empty() {
            self.end_in(id, transaction.home);
            return self.refuse(id, PUBLISH_BESIDE_FLUSH);
        }
        if transaction.empties {
            return self.empty_all_within(id, (shard, transaction), form);
        }
        let keys: Vec<u128> = transaction.keys.iter().map(|key| xxh3_128(key)).collect();
        let key_names: Vec<&[u8]> = transaction.keys.iter().map(AsRef::as_ref).collect();
        keys.iter().for_each(|key| self.streams.forget(*key));
        if transaction.is_effect && self.is_redis() {
            let home = Some(transaction.home);
            let Transaction { commands, count, .. } = transaction;
            return self.run_effects(Request {
                client: id,
                shard,
                commands,
                count,
                form,
                home,
                waiter: None,
                published,
            });
        }
        // Reads among them see one state of one shard only together: also without a write they
        // go as one, to all duplicates.
        let call = self.write(
            id,
            &Write {
                commands: &transaction.commands,
                count: transaction.count,
                shard,
                repeat: Repeat::Once,
                keys: &keys,
                key_names: &key_names,
                form,
                is_single: false,
            },
        );
        match call {
            Some(call) => self.publish_behind(call, published),
            None => self.end_in(id, transaction.home),
        }
    }

    fn shard_of_exec(&self, transaction: &Transaction) -> Result<usize, ErrorReply> {
        let keys = transaction.keys.iter().map(|place| databases::key(place));
        Ok(self.locate_keys(keys)?.map_or(Ok(0), Location::shard_to_write)?)
    }

    /// A transaction is not done: its client is where it was.
    pub(super) fn end_in(&mut self, id: ClientId, database: u8) {
        self.unwatch(id);
        if let Some(client) = self.client(id) {
            client.database = database;
        }
    }

    /// Nothing of a transaction is for duplicates.
    fn exec_nothing(&mut self, id: ClientId, published: &[u8], form: &Form) {
        let seen = self.client(id).map(|client| client.session.seen());
        self.send_messages(published, seen.unwrap_or_default());
        let slot = self.slot(id);
        self.reply(id, slot, b"*0\r\n", form);
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

const HELLO_FIRST: &str = "NOAUTH HELLO must be called with the client already authenticated, \
    otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client \
    and select the RESP protocol version at the same time";
/// The answer to HELLO.
fn greet(id: ClientId, (version, mode): (&str, &str), protocol: Protocol, out: &mut Vec<u8>) {
    let number = if protocol == Protocol::Resp3 { 3 } else { 2 };
    encode::map(out, 7, protocol);
    for text in ["server", "redis", "version", version, "proto"] {
        encode::bulk(out, text.as_bytes());
    }
    encode::integer(out, number);
    encode::bulk(out, b"id");
    encode::integer(out, id.number());
    for text in ["mode", mode, "role", "master", "modules"] {
        encode::bulk(out, text.as_bytes());
    }
    encode::array(out, 0);
}
