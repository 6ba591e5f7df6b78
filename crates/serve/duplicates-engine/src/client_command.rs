//! `CLIENT`: what connections are called, who they are, and ending them.
//!
//! A connection that another one kills ends at once, as with Redis: what it asked for goes on
//! without it, and a write of which it was not told may be done.

use std::net::SocketAddr;

use evenkeel_core::Instant;
use evenkeel_leadership::Door;
use evenkeel_runtime::accept::Peer;

use super::Inner;
use super::clients::Client;
use super::types::{ClientId, ParsedCommand};
use evenkeel_duplicates_state::about::Replies;
use evenkeel_stores::resp::commands::{integer, unknown_subcommand};
use evenkeel_stores::resp::connections::{Filter, Kind, Line, Tracked, is_name};
use evenkeel_stores::resp::{Protocol, encode};

const SYNTAX: &str = "ERR syntax error";
pub(super) const BAD_NAME: &str =
    "ERR Client names cannot contain spaces, newlines or special characters.";
/// What is kept of a process's word is bounded; it is of 16 bytes.
const WORD_BYTES_MAX: usize = 64;
const BAD_ADDRESS: &str = "ERR EK.RELAYED takes the client's address, such as 10.0.0.7:40312";

impl Client {
    /// As it is listed.
    pub(super) fn line(&self, id: u64, now: Instant) -> Line {
        let about = &self.about;
        let queued = self.transaction.as_ref();
        Line {
            id,
            address: about.address.clone(),
            local: about.local.clone(),
            name: String::from_utf8_lossy(&self.name).into_owned(),
            age_s: now.since(about.since).as_secs(),
            idle_s: now.since(about.said_at).as_secs(),
            kind: if self.listening.is_some() { Kind::PubSub } else { Kind::Normal },
            database: self.database,
            multi: queued.map_or(-1, |it| it.shapes.len() as i64),
            out_bytes: self.answer_bytes(),
            command: about.command,
            query_bytes: about.bytes,
            protocol: if self.protocol == Protocol::Resp3 { 3 } else { 2 },
            user: self.user.as_ref().map_or(String::new(), |user| user.name().to_owned()),
            lib_name: about.lib_name.clone(),
            lib_version: about.lib_version.clone(),
            tracked: Tracked::default(),
        }
    }
}

impl Inner {
    /// Where a client comes from.
    pub fn introduce(&mut self, id: ClientId, (peer, door): (&Peer, Door)) {
        if let Some(client) = self.client(id) {
            client.is_of_cluster = door == Door::Cluster;
            client.about.address = peer.address.to_string();
            client.about.local = peer.local.to_string();
        }
    }

    /// `EK.RELAYED address [ROUTED word]`: a process that stands by passes this client on; or, of a
    /// service of several groups, the commands of a plain client that are this group's. Such a
    /// session goes on where another one ended, maybe at another leader: so it begins with having
    /// seen every write.
    pub(super) fn relayed(&mut self, id: ClientId, parsed: ParsedCommand<'_>) {
        let address = std::str::from_utf8(parsed.argument(1)).ok();
        let Some(address) = address.and_then(|text| text.parse::<SocketAddr>().ok()) else {
            return self.refuse(id, BAD_ADDRESS);
        };
        let arguments = parsed.arguments();
        let routed = match (arguments.get(2), arguments.get(3)) {
            (None, _) => None,
            (Some(_), Some(word))
                if arguments.is(2, "routed")
                    && parsed.len() == 4
                    && word.len() <= WORD_BYTES_MAX =>
            {
                Some(String::from_utf8_lossy(word).into_owned())
            }
            (Some(_), _) => return self.refuse(id, SYNTAX),
        };
        let last = self.history.last().sequence;
        if let Some(client) = self.client(id) {
            client.about.address = address.to_string();
            if routed.is_some() {
                (client.routed, client.is_of_cluster) = (routed, false);
                client.session.saw(last);
            }
        }
        self.ok(id);
    }

    /// `CLIENT subcommand …`
    pub(super) fn client_command(&mut self, id: ClientId, parsed: ParsedCommand<'_>) {
        let what = parsed.argument(1).to_ascii_uppercase();
        if let Some(client) = self.client(id) {
            client.about.command = match what.as_slice() {
                b"LIST" => "client|list",
                b"INFO" => "client|info",
                _ => "client",
            };
        }
        match (what.as_slice(), parsed.len()) {
            (b"ID", 2) => self.reply_now(id, |out, _| encode::integer(out, id.number())),
            (b"GETNAME", 2) => {
                let name = self.client(id).map(|client| client.name.clone()).unwrap_or_default();
                self.reply_now(id, |out, protocol| match name.as_slice() {
                    [] => encode::null(out, protocol),
                    name => encode::bulk(out, name),
                });
            }
            (b"SETNAME", 3) => match self.set_name(id, parsed.argument(2)) {
                true => self.ok(id),
                false => self.refuse(id, BAD_NAME),
            },
            (b"SETINFO", 4) => self.set_info(id, parsed),
            (b"LIST", _) => self.list_clients(id, parsed),
            (b"INFO", 2) => {
                let now = self.now;
                let tracked = self.tracked(id);
                let line = self.client(id).map(|client| client.line(id.serial, now));
                let line = line.map(|line| Line { tracked, ..line }.to_string());
                self.reply_text(id, &line.unwrap_or_default());
            }
            (b"KILL", 3..) => self.kill_clients(id, parsed),
            (b"UNBLOCK", _) => self.unblock(id, parsed),
            (b"NO-EVICT" | b"NO-TOUCH", 3) => match parsed.argument(2).to_ascii_lowercase() {
                word if word == b"on" || word == b"off" => self.ok(id), // nobody is evicted
                _ => self.refuse(id, SYNTAX),
            },
            (b"REPLY", 3) => self.set_replies(id, parsed),
            (b"GETREDIR", 2) => self.tell_redirect(id),
            (b"TRACKINGINFO", 2) => self.tell_tracking(id),
            (b"TRACKING", 3..) => self.set_tracking(id, parsed),
            (b"CACHING", 3) => self.set_caching(id, parsed),
            (b"PAUSE", 3 | 4) => self.pause(id, parsed),
            (b"UNPAUSE", 2) => {
                self.end_pause();
                self.ok(id);
            }
            (b"HELP", 2) => self.ask_one(id, parsed),
            _ => self.refuse_subcommand(id, "client", CLIENT_SUBCOMMANDS, parsed),
        }
    }

    /// Of a subcommand that is known the number of arguments is wrong, else it is unknown.
    pub(super) fn refuse_subcommand(
        &mut self,
        id: ClientId,
        command: &str,
        known: &[&str],
        parsed: ParsedCommand<'_>,
    ) {
        let came = parsed.argument(1);
        match known.iter().find(|name| came.eq_ignore_ascii_case(name.as_bytes())) {
            Some(name) => {
                let text = format!("ERR wrong number of arguments for '{command}|{name}' command");
                self.refuse(id, &text);
            }
            None => self.refuse_as(id, |out| unknown_subcommand(command, came, out)),
        }
    }

    /// Gives a connection a name; false when it cannot be one.
    pub(super) fn set_name(&mut self, id: ClientId, name: &[u8]) -> bool {
        let is_name = is_name(name);
        if is_name && let Some(client) = self.client(id) {
            client.name = name.to_vec();
        }
        is_name
    }

    fn set_info(&mut self, id: ClientId, parsed: ParsedCommand<'_>) {
        let (option, value) = (parsed.argument(2).to_ascii_lowercase(), parsed.argument(3));
        let option = String::from_utf8_lossy(&option).into_owned();
        if !is_name(value) {
            let text =
                format!("ERR {option} cannot contain spaces, newlines or special characters.");
            return self.refuse(id, &text);
        }
        let value = String::from_utf8_lossy(value).into_owned();
        let Some(client) = self.client(id) else { return };
        match option.as_str() {
            "lib-name" => client.about.lib_name = value,
            "lib-ver" => client.about.lib_version = value,
            _ => return self.refuse(id, &format!("ERR Unrecognized option '{option}'")),
        }
        self.ok(id);
    }

    fn set_replies(&mut self, id: ClientId, parsed: ParsedCommand<'_>) {
        let arguments = parsed.arguments();
        let words = ["on", "off", "skip"];
        let word = words.iter().position(|word| arguments.is(2, word));
        let Some(client) = self.client(id) else { return };
        let is_captured = client.captured.is_some(); // within EXEC each has its answer
        let replies = &mut client.about.replies;
        match word {
            Some(0) => *replies = Replies::On,
            Some(1) => *replies = Replies::Off,
            Some(_) if *replies == Replies::On => *replies = Replies::SkipNext,
            Some(_) => {}
            None => return self.refuse(id, SYNTAX),
        }
        if word == Some(0) || is_captured {
            self.ok(id);
        }
    }

    /// Those that are connected, the longest first.
    fn lines(&mut self) -> Vec<(ClientId, Line)> {
        let line = |(key, client): (usize, &Client)| {
            let id = client.id(key);
            (id, client.line(id.serial, self.now))
        };
        let clients = self.clients.iter().filter(|(_, client)| !client.is_part());
        let mut lines: Vec<_> = clients.map(line).collect();
        lines.sort_unstable_by_key(|(id, _)| id.serial);
        if self.tracking.is_on() {
            lines.iter_mut().for_each(|(id, line)| line.tracked = self.tracked(*id));
        }
        lines
    }

    fn list_clients(&mut self, id: ClientId, parsed: ParsedCommand<'_>) {
        let filter = match Filter::of_list(parsed.arguments()) {
            Ok(filter) => filter,
            Err(error) => return self.refuse(id, &error.to_string()),
        };
        let lines = self.lines().into_iter().filter(|(_, line)| filter.meets(line, false));
        let text: String = lines.map(|(_, line)| line.to_string()).collect();
        self.reply_text(id, &text);
    }

    fn kill_clients(&mut self, id: ClientId, parsed: ParsedCommand<'_>) {
        let is_user = |name: &[u8]| self.users.get(name).is_some();
        let filter = match Filter::of_kill(parsed.arguments(), is_user) {
            Ok(filter) => filter,
            Err(error) => return self.refuse(id, &error.to_string()),
        };
        let mut count = 0;
        for (other, line) in self.lines() {
            if !filter.meets(&line, other == id) || (filter.is_old_form && count > 0) {
                continue;
            }
            count += 1;
            self.end_client(other, id);
        }
        match (filter.is_old_form, count) {
            (true, 0) => self.refuse(id, "ERR No such client"),
            (true, _) => self.ok(id),
            (false, _) => self.reply_now(id, |out, _| encode::integer(out, count)),
        }
    }

    /// Ends a connection at once; the one that says so, behind its answer.
    pub(super) fn end_client(&mut self, other: ClientId, me: ClientId) {
        let Some(client) = self.client(other) else { return };
        if other == me {
            client.is_ending = true;
            return;
        }
        self.drop_client(other);
    }

    /// Ends a connection at once.
    pub(super) fn drop_client(&mut self, id: ClientId) {
        let waker = self.client(id).and_then(|client| client.waker.take());
        self.dismiss(id);
        waker.into_iter().for_each(std::task::Waker::wake);
    }

    /// A text for people and programs.
    pub(super) fn reply_text(&mut self, id: ClientId, text: &str) {
        self.reply_now(id, |out, protocol| encode::text(out, text, protocol));
    }

    /// An argument that is a whole number.
    pub(super) fn number_of(parsed: ParsedCommand<'_>, index: usize) -> Option<i64> {
        integer(parsed.argument(index))
    }
}

const CLIENT_SUBCOMMANDS: &[&str] = &[
    "id",
    "getname",
    "setname",
    "setinfo",
    "info",
    "kill",
    "no-evict",
    "no-touch",
    "reply",
    "getredir",
    "trackinginfo",
    "unblock",
    "tracking",
    "caching",
    "pause",
    "unpause",
    "help",
];
