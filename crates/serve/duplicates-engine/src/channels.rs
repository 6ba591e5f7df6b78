//! `SUBSCRIBE`, `PUBLISH` and their kin: messages to who listens now. No log, at most once.
//!
//! **Order.** A command about channels is taken when all earlier commands of its client are
//! answered: so a message comes behind the writes of who publishes it, and the session of who
//! gets it is lifted to them (`read-my-own-writes` finds them). What a script or a transaction
//! publishes comes when that is acknowledged; if it is in doubt, nobody is told. Messages of one
//! client come in its order. A subscription is confirmed before the first message of its channel,
//! since both are appended to what its client is written.
//!
//! **Who does not read** is cut off, as Redis does it: with more than 32 MiB waiting at once, or
//! more than 8 MiB for a minute.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_ordered::Sequence;

use super::Inner;
use super::types::{ClientId, ParsedCommand};
use evenkeel_stores::resp::channels::{self, Message, confirm};
use evenkeel_stores::resp::commands::{Channels, Class, Command, Local};
use evenkeel_stores::resp::request::Arguments;
use evenkeel_stores::resp::{Protocol, encode};

/// `client-output-buffer-limit pubsub 32mb 8mb 60`
const WAITING_BYTES_MAX: usize = 32 << 20;
const WAITING_BYTES_LONG: usize = 8 << 20;
const LONG: Duration = Duration::from_secs(60);
/// Names of all subscriptions together, and how many.
const NAME_BYTES_MAX: usize = 64 << 20;
const NAMES_MAX: usize = 1 << 20;

const TOO_MANY: &str = "ERR too many subscriptions";

/// What writes that are not acknowledged yet have published, by their calls.
pub(super) type Published = BTreeMap<usize, Vec<u8>>;

/// A client that listens.
#[derive(Debug, Default)]
pub(super) struct Listening {
    to: channels::Listening,
}

impl Inner {
    /// Has a command about channels wait until the commands before it are answered; whether it has
    /// to.
    pub(super) fn holds_channels(
        &mut self,
        id: ClientId,
        class: Class,
        parsed: ParsedCommand<'_>,
    ) -> bool {
        let Class::Local(local) = class else { return false };
        let client = self.client(id).filter(|client| match (local, &client.transaction) {
            // What is shown or told comes behind the answers that are owed.
            (Local::Publish(_) | Local::Subscribe(_) | Local::Unsubscribe(_), None)
            | (Local::Monitor, None) => true,
            (Local::Exec, Some(transaction)) => transaction.publishes(),
            _ => false,
        });
        let Some(client) = client else { return false };
        if let Some(slot) = client.last_waiting() {
            self.hold_behind(id, slot);
            return true;
        }
        matches!(local, Local::Subscribe(kind) if self.awaits_events(id, kind, parsed))
    }

    /// A client of RESP2 that listens may not say everything; whether it was answered so.
    pub(super) fn answers_listener(
        &mut self,
        id: ClientId,
        (command, class): (&Command, Class),
        arguments: Arguments<'_>,
    ) -> bool {
        let Some(client) = self.client(id).filter(|client| client.listening.is_some()) else {
            return false;
        };
        if client.protocol == Protocol::Resp3 {
            return false;
        }
        match class {
            Class::Local(Local::Ping) => self.reply_now(id, |out, _| {
                encode::array(out, 2);
                encode::bulk(out, b"pong");
                encode::bulk(out, arguments.get(1).unwrap_or_default());
            }),
            Class::Local(
                Local::Subscribe(_) | Local::Unsubscribe(_) | Local::Quit | Local::Reset,
            ) => return false,
            _ => {
                let text = channels::only_listens(command.name);
                self.reply_now(id, |out, _| encode::error(out, &text));
            }
        }
        true
    }

    /// `SUBSCRIBE name…` and its kin
    pub(super) fn subscribe(&mut self, id: ClientId, kind: Channels, parsed: ParsedCommand<'_>) {
        let names = parsed.arguments().iter().skip(1);
        let (count, bytes) = self.subscriptions.size();
        let more: usize = names.clone().map(<[u8]>::len).sum();
        if count + names.len() > NAMES_MAX || bytes + more > NAME_BYTES_MAX {
            return self.refuse(id, TOO_MANY);
        }
        let Some(client) = self.clients.get_mut(id.key) else { return };
        let to = &mut client.listening.get_or_insert_default().to;
        let mut told = Vec::new();
        for name in names {
            if self.subscriptions.add(id, to, kind, name) {
                self.key_events.listens(kind, name, true);
            }
            confirm(&mut told, client.protocol, (kind, true), Some(name), to.count(kind));
        }
        self.confirm_to(id, &told);
    }

    /// `UNSUBSCRIBE [name…]` and its kin
    pub(super) fn unsubscribe(&mut self, id: ClientId, kind: Channels, parsed: ParsedCommand<'_>) {
        let Some(client) = self.clients.get_mut(id.key) else { return };
        let mut listening = client.listening.take().unwrap_or_default();
        let to = &mut listening.to;
        let mut names: Vec<Box<[u8]>> = parsed.arguments().iter().skip(1).map(Box::from).collect();
        if names.is_empty() {
            names.extend(to.names(kind).cloned());
        }
        let mut told = Vec::new();
        for name in &names {
            if self.subscriptions.remove(id, to, kind, name) {
                self.key_events.listens(kind, name, false);
            }
            confirm(&mut told, client.protocol, (kind, false), Some(name), to.count(kind));
        }
        if names.is_empty() {
            confirm(&mut told, client.protocol, (kind, false), None, to.count(kind));
        }
        client.listening = (!listening.to.is_empty()).then_some(listening);
        self.confirm_to(id, &told);
    }

    /// Confirms subscriptions: messages, that `CLIENT REPLY OFF` lets pass.
    fn confirm_to(&mut self, id: ClientId, told: &[u8]) {
        let client = self.client(id).filter(|client| client.captured.is_none());
        if let Some(client) = client
            && client.about.passes_over()
        {
            return client.out.extend_from_slice(told); // all before it is answered
        }
        self.reply_now(id, |out, _| out.extend_from_slice(told));
    }

    /// A client listens to nothing any more.
    pub(super) fn stop_listening(&mut self, id: ClientId) {
        let Some(mut listening) = self.client(id).and_then(|client| client.listening.take()) else {
            return;
        };
        for kind in [Channels::Plain, Channels::Patterns, Channels::Sharded] {
            let names: Vec<Box<[u8]>> = listening.to.names(kind).cloned().collect();
            for name in names {
                self.subscriptions.remove(id, &mut listening.to, kind, &name);
                self.key_events.listens(kind, &name, false);
            }
        }
    }

    /// `PUBLISH channel message`, `SPUBLISH`
    pub(super) fn publish(&mut self, id: ClientId, kind: Channels, parsed: ParsedCommand<'_>) {
        let Some(client) = self.client(id) else { return };
        let seen = client.session.seen();
        let told = self.send_message((kind, parsed.argument(1), parsed.argument(2)), seen);
        self.reply_now(id, |out, _| encode::integer(out, told as i64));
    }

    /// Of `PUBLISH` in a transaction, which is sent behind that.
    pub(super) fn count_listeners(&mut self, id: ClientId, kind: Channels, channel: &[u8]) {
        let direct = self.subscriptions.of(kind, channel).count();
        let by_pattern: usize = match kind {
            Channels::Plain => {
                self.subscriptions.matching(channel).iter().map(|(_, who)| who.len()).sum()
            }
            Channels::Patterns | Channels::Sharded => 0,
        };
        self.reply_now(id, |out, _| encode::integer(out, (direct + by_pattern) as i64));
    }

    /// What a write has published comes when it is acknowledged.
    pub(super) fn publish_behind(&mut self, call: usize, published: Vec<u8>) {
        if !published.is_empty() {
            self.published.insert(call, published);
        }
    }

    /// A write is acknowledged, or in doubt: then nobody is told what it has published.
    pub(super) fn publish_written(&mut self, call: usize, is_acknowledged: bool) {
        if self.published.is_empty() {
            return;
        }
        let written = self.calls[call].write.filter(|_| is_acknowledged);
        if let (Some(published), Some(seen)) = (self.published.remove(&call), written) {
            self.send_messages(&published, seen);
        }
    }

    /// Sends what `PUBLISH` and `SPUBLISH` say, one after the other.
    pub(super) fn send_messages(&mut self, published: &[u8], seen: Sequence) {
        channels::for_each_message(published, |message| {
            self.send_message(message, seen);
        });
    }

    /// Sends a message to who listens; to how many.
    pub(super) fn send_message(
        &mut self,
        (kind, channel, message): Message<'_>,
        seen: Sequence,
    ) -> usize {
        let direct: Vec<ClientId> = self.subscriptions.of(kind, channel).collect();
        let word: &[u8] = if kind == Channels::Sharded { b"smessage" } else { b"message" };
        let mut told = direct.len();
        self.deliver(&direct, &[word, channel, message], seen);
        if kind == Channels::Plain {
            for (pattern, clients) in self.subscriptions.matching(channel) {
                told += clients.len();
                self.deliver(&clients, &[b"pmessage", &pattern, channel, message], seen);
            }
        }
        told
    }

    fn deliver(&mut self, clients: &[ClientId], words: &[&[u8]], seen: Sequence) {
        let mut messages = [Vec::new(), Vec::new()];
        for &id in clients {
            let Some(client) = self.client(id) else { continue };
            let message = &mut messages[usize::from(client.protocol == Protocol::Resp3)];
            if message.is_empty() {
                encode::push(message, words.len(), client.protocol);
                words.iter().for_each(|word| encode::bulk(message, word));
            }
            client.session.saw(seen);
            self.push(id, message);
        }
    }

    /// Sends a client what is no answer; one that does not read is cut off.
    pub(super) fn push(&mut self, id: ClientId, message: &[u8]) {
        let now = self.now;
        let Some(client) = self.client(id) else { return };
        client.out.extend_from_slice(message);
        client.waker.iter().for_each(std::task::Waker::wake_by_ref);
        let waiting = client.answer_bytes();
        let slow_since = *client.slow_since.get_or_insert(now);
        if waiting <= WAITING_BYTES_LONG {
            client.slow_since = None;
        } else if waiting > WAITING_BYTES_MAX || now.since(slow_since) > LONG {
            self.cut_off(id, waiting);
        }
    }

    /// Ends the connection of a client that does not read.
    fn cut_off(&mut self, id: ClientId, bytes: usize) {
        let service = &self.config.name;
        tracing::warn!(service, bytes, "a client does not read what it listens to: cut off");
        self.counts.subscribers_cut_off += 1;
        self.dismiss(id); // it was woken, and finds that it is gone
    }

    /// `PUBSUB …`
    pub(super) fn pubsub(&mut self, id: ClientId, parsed: ParsedCommand<'_>) {
        if parsed.arguments().is(1, "help") {
            return self.ask_one(id, parsed);
        }
        let mut out = Vec::new();
        self.subscriptions.describe(parsed.arguments(), &mut out);
        self.reply_now(id, |all, _| all.extend_from_slice(&out));
    }
}
