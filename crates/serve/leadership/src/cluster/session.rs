//! What one client of Redis Cluster is told by a process that stands by.

use super::ClusterStandIn;
use std::sync::Arc;

use tokio::sync::watch;

use evenkeel_redis_acl::{User, Users};
use evenkeel_runtime::accept::Peer;
use evenkeel_stores::resp::cluster::{self, Asked, NOT_SERVED};
use evenkeel_stores::resp::commands::described::{self, Described};
use evenkeel_stores::resp::commands::{self, Class, Command, integer};
use evenkeel_stores::resp::connections::is_name;
use evenkeel_stores::resp::reply::{self, Shape};
use evenkeel_stores::resp::request::{Arguments, Limits};
use evenkeel_stores::resp::{Protocol, encode, info};

const NO_AUTH: &str = "NOAUTH Authentication required.";
const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the \
    default user. Are you sure your configuration is correct?";
const BAD_NAME: &str = "ERR Client names cannot contain spaces, newlines or special characters.";
const ABORTED: &str = "EXECABORT Transaction discarded because of previous errors.";
const WITHOUT_KEYS: &str = "ERR this process stands by: a transaction whose first command has no \
    key is taken by the leader only, see CLUSTER SLOTS";
const VERSION: &str = "7.0.0";
/// Numbers of clients begin here: the leader has none of these, so whoever is named there by one
/// (`CLIENT TRACKING … REDIRECT`, `CLIENT KILL ID`) is nobody, and no other client.
const IDS_FROM: i64 = 1 << 52;

/// What comes after a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The next command.
    Next,
    /// Further bytes are needed.
    Read,
    /// The leader has to answer it, and what follows.
    PassOn,
    /// The same again, once more is known of who leads.
    Hold,
    /// Nothing.
    End,
}

/// One client.
pub(super) struct Session<'s> {
    by: &'s ClusterStandIn,
    protocol: Protocol,
    /// The connection's number, for `CLIENT ID` and `HELLO`.
    id: i64,
    name: Vec<u8>,
    /// Who it is; `None` until it has said a password, where one is needed.
    user: Option<Arc<User>>,
    users: watch::Receiver<Arc<Users>>,
    /// What it has said of that: the leader is to hear it too.
    said: Option<(Vec<u8>, Vec<u8>)>,
    /// It reads at replicas.
    reads_here: bool,
    /// It is between MULTI and EXEC, and something was refused there.
    transaction: Option<bool>,
    /// The next command has waited long enough for somebody to lead.
    pub(super) is_held_enough: bool,
    pub(super) out: Vec<u8>,
}

impl<'s> Session<'s> {
    pub(super) fn new(by: &'s ClusterStandIn, peer: &Peer) -> Self {
        Self {
            by,
            protocol: Protocol::Resp2,
            id: IDS_FROM + i64::from(peer.address.port()),
            name: Vec::new(),
            user: by.users.borrow().nobody().cloned(),
            users: by.users.clone(),
            said: None,
            reads_here: false,
            transaction: None,
            is_held_enough: false,
            out: Vec::new(),
        }
    }

    /// Whether it has said the password, if there is one.
    pub(super) const fn is_known(&self) -> bool {
        self.user.is_some()
    }

    /// What one of its commands may be.
    pub(super) fn limits(&self) -> Limits {
        if self.is_known() { self.by.limits } else { Limits::unauthenticated() }
    }

    /// The commands that bring another connection into the same state, and how many they are.
    pub(super) fn state(&self) -> (Vec<u8>, usize) {
        let version: &[u8] = if self.protocol == Protocol::Resp3 { b"3" } else { b"2" };
        let mut hello: Vec<&[u8]> = vec![b"HELLO", version];
        if let Some((user, password)) = &self.said {
            hello.extend([&b"AUTH"[..], user, password]);
        }
        if !self.name.is_empty() {
            hello.extend([&b"SETNAME"[..], &self.name]);
        }
        let mut state = Vec::new();
        encode::command(&mut state, &hello);
        (state, 1)
    }

    /// Answers one command, or has the leader do it.
    pub(super) fn answer(&mut self, parsed: Arguments<'_>) -> Step {
        if self.users.has_changed().unwrap_or(false) {
            let users = self.users.borrow_and_update();
            if self.user.as_ref().is_some_and(|user| users.lacks(user)) {
                return Step::End; // as at the leader
            }
        }
        let Some(command) = commands::lookup(parsed.at(0)) else {
            self.spoil();
            commands::unknown(parsed, &mut self.out);
            return Step::Next;
        };
        if !command.accepts(parsed.len()) {
            self.spoil();
            commands::wrong_arity(command, &mut self.out);
            return Step::Next;
        }
        if !self.is_known() && !matches!(command.name, "auth" | "hello" | "quit" | "reset") {
            return self.refuse(NO_AUTH);
        }
        if let Some(Err(denied)) = self.user.as_ref().map(|user| user.check(command, parsed)) {
            return self.refuse(&denied.reply());
        }
        let class = commands::classify(command, parsed);
        let refusal = cluster::refusal(command, parsed);
        if let Some(text) = refusal.or_else(|| self.by.view.borrow().refusal(class)) {
            return self.refuse(text);
        }
        match cluster::slot_of(command, class, parsed) {
            Err(refusal) => self.refuse(refusal.0),
            Ok(Some(_))
                if self.reads_here && class == Class::Read && self.transaction.is_none() =>
            {
                Step::PassOn
            }
            Ok(Some(slot)) => {
                let moved = self.by.view.borrow_mut().map().redirection(slot);
                // It may be said to lead what it does not lead any more, or yet.
                match moved.filter(|text| text != NOT_SERVED) {
                    Some(text) => self.refuse(&text),
                    None if self.is_held_enough => self.refuse(NOT_SERVED),
                    None => Step::Hold,
                }
            }
            Ok(None) => self.answer_here(command, parsed),
        }
    }

    /// A command without keys.
    fn answer_here(&mut self, command: &Command, parsed: Arguments<'_>) -> Step {
        match command.name {
            "multi" | "exec" | "discard" | "watch" => return self.transaction(command.name),
            "quit" => {
                self.ok();
                return Step::End;
            }
            "reset" => {
                let fresh = Self { out: std::mem::take(&mut self.out), ..self.anew() };
                *self = fresh;
                encode::simple(&mut self.out, "RESET");
            }
            _ if self.transaction.is_some() => return self.refuse(WITHOUT_KEYS),
            "ping" if parsed.len() == 1 => encode::simple(&mut self.out, "PONG"),
            "ping" | "echo" if parsed.len() == 2 => encode::bulk(&mut self.out, parsed.at(1)),
            "select" => match integer(parsed.at(1)) {
                Some(_) => self.ok(), // others than 0 are refused
                None => return self.refuse("ERR value is not an integer or out of range"),
            },
            "hello" => return self.hello(parsed),
            "auth" => return self.auth(parsed),
            "client" => return self.client(parsed),
            "cluster" => {
                let map = self.by.view.borrow_mut().map();
                match map.answer(parsed, (0, self.protocol), &mut self.out) {
                    Asked::Answered => {}
                    Asked::Count(_) | Asked::Keys(..) => return Step::PassOn,
                }
            }
            "readonly" | "readwrite" => {
                self.reads_here = command.name == "readonly";
                self.ok();
            }
            "asking" => self.ok(),
            "command" if parsed.len() == 1 => self.commands(),
            "info" => self.info(parsed),
            "role" => self.role(),
            // Passed on by another process that takes this one for the leader.
            "ek.relayed" => return self.refuse(&format!("UNAVAILABLE {}", self.by.relay.why())),
            _ => return Step::PassOn,
        }
        Step::Next
    }

    fn anew(&self) -> Self {
        Self {
            by: self.by,
            protocol: Protocol::Resp2,
            id: self.id,
            name: Vec::new(),
            user: self.by.users.borrow().nobody().cloned(),
            users: self.users.clone(),
            said: None,
            reads_here: false,
            transaction: None,
            is_held_enough: false,
            out: Vec::new(),
        }
    }

    fn ok(&mut self) {
        encode::simple(&mut self.out, "OK");
    }

    /// A transaction in which something was refused does nothing.
    fn spoil(&mut self) {
        self.transaction = self.transaction.map(|_| true);
    }

    fn refuse(&mut self, text: &str) -> Step {
        self.spoil();
        encode::error(&mut self.out, text);
        Step::Next
    }

    /// All commands with keys are refused, so no transaction has anything to do.
    fn transaction(&mut self, name: &str) -> Step {
        match (name, self.transaction) {
            ("multi", None) => {
                self.transaction = Some(false);
                self.ok();
            }
            ("multi", Some(_)) => {
                encode::error(&mut self.out, "ERR MULTI calls can not be nested");
            }
            ("discard", Some(_)) => {
                self.transaction = None;
                self.ok();
            }
            ("exec", Some(is_spoiled)) => {
                self.transaction = None;
                match is_spoiled {
                    true => encode::error(&mut self.out, ABORTED),
                    false => encode::array(&mut self.out, 0),
                }
            }
            (name, _) => {
                let text = format!("ERR {} without MULTI", name.to_ascii_uppercase());
                encode::error(&mut self.out, &text);
            }
        }
        Step::Next
    }

    fn admit(&mut self, user: &[u8], password: &[u8]) -> bool {
        let found = self.by.users.borrow().who(user, password).cloned();
        let is_right = found.is_some();
        if is_right {
            (self.user, self.said) = (found, Some((user.into(), password.into())));
        }
        is_right
    }

    /// `AUTH [user] password`
    fn auth(&mut self, parsed: Arguments<'_>) -> Step {
        let (user, password): (&[u8], &[u8]) = match parsed.len() {
            2 => (b"default", parsed.at(1)),
            3 => (parsed.at(1), parsed.at(2)),
            _ => return self.refuse("ERR syntax error"),
        };
        if self.by.users.borrow().nobody().is_some() && parsed.len() == 2 {
            return self.refuse(NO_PASSWORD);
        }
        match self.admit(user, password) {
            true => self.ok(),
            false => return self.refuse(WRONG_PASSWORD),
        }
        Step::Next
    }

    /// `HELLO [2|3] [AUTH user password] [SETNAME name]`
    fn hello(&mut self, parsed: Arguments<'_>) -> Step {
        let asked = match parsed.get(1) {
            None => self.protocol,
            Some(b"2") => Protocol::Resp2,
            Some(b"3") => Protocol::Resp3,
            Some(_) => return self.refuse("NOPROTO unsupported protocol version"),
        };
        let (mut at, mut name) = (2, None);
        while at < parsed.len() {
            if parsed.is(at, "auth") && at + 2 < parsed.len() {
                if !self.admit(parsed.at(at + 1), parsed.at(at + 2)) {
                    return self.refuse(WRONG_PASSWORD);
                }
                at += 3;
            } else if parsed.is(at, "setname") && at + 1 < parsed.len() {
                name = Some(parsed.at(at + 1));
                at += 2;
            } else {
                return self.refuse("ERR Syntax error in HELLO option");
            }
        }
        if !self.is_known() {
            return self.refuse(NO_AUTH);
        }
        if name.is_some_and(|name| !is_name(name)) {
            return self.refuse(BAD_NAME);
        }
        self.protocol = asked;
        self.name = name.map_or_else(|| std::mem::take(&mut self.name), <[u8]>::to_vec);
        encode::map(&mut self.out, 7, asked);
        for text in ["server", "redis", "version", VERSION, "proto"] {
            encode::bulk(&mut self.out, text.as_bytes());
        }
        encode::integer(&mut self.out, if asked == Protocol::Resp3 { 3 } else { 2 });
        encode::bulk(&mut self.out, b"id");
        encode::integer(&mut self.out, self.id);
        for text in ["mode", "cluster", "role", "replica", "modules"] {
            encode::bulk(&mut self.out, text.as_bytes());
        }
        encode::array(&mut self.out, 0);
        Step::Next
    }

    /// What libraries say of themselves; anything else the leader answers.
    fn client(&mut self, parsed: Arguments<'_>) -> Step {
        match (parsed.at(1).to_ascii_lowercase().as_slice(), parsed.len()) {
            (b"id", 2) => encode::integer(&mut self.out, self.id),
            (b"getname", 2) => encode::bulk(&mut self.out, &self.name),
            (b"setname", 3) if is_name(parsed.at(2)) => {
                self.name = parsed.at(2).to_vec();
                self.ok();
            }
            (b"setname", 3) => return self.refuse(BAD_NAME),
            (b"setinfo", 4) => self.ok(),
            _ => return Step::PassOn,
        }
        Step::Next
    }

    fn commands(&mut self) {
        let mut all = Vec::new();
        described::own(Described::All, &[], &mut all);
        match self.protocol {
            Protocol::Resp3 => self.out.append(&mut all),
            Protocol::Resp2 => reply::down_convert(&all, Shape::Plain, &mut self.out),
        }
    }

    /// What clients look for in a replica.
    fn info(&mut self, parsed: Arguments<'_>) {
        let names = parsed.iter().skip(1).take(64);
        let names: Vec<String> =
            names.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        let map = self.by.view.borrow_mut().map();
        let (host, port) = map.master().map_or(("", 0), |at| (&at.host, at.port));
        let link = if port > 0 { "up" } else { "down" };
        let text = format!(
            "# Server\r\nredis_version:{VERSION}\r\nredis_mode:cluster\r\nprocess_id:{}\r\n\r\n\
             # Clients\r\nconnected_clients:1\r\n\r\n# Persistence\r\nloading:0\r\n\r\n\
             # Replication\r\nrole:slave\r\nmaster_host:{host}\r\nmaster_port:{port}\r\n\
             master_link_status:{link}\r\nslave_read_only:1\r\nconnected_slaves:0\r\n\r\n\
             # Cluster\r\ncluster_enabled:1\r\n\r\n# Keyspace\r\n",
            std::process::id()
        );
        encode::text(&mut self.out, &info::sections(&text, &names), self.protocol);
    }

    fn role(&mut self) {
        let map = self.by.view.borrow_mut().map();
        let (host, port) = map.master().map_or(("", 0), |at| (&at.host, at.port));
        encode::array(&mut self.out, 5);
        encode::bulk(&mut self.out, b"slave");
        encode::bulk(&mut self.out, host.as_bytes());
        encode::integer(&mut self.out, port.into());
        encode::bulk(&mut self.out, if port > 0 { b"connected" } else { b"connect" });
        encode::integer(&mut self.out, 0);
    }
}
