//! Who a client is and what it may do: `AUTH`, `ACL`, and the users of the configuration.
//!
//! Users are read from `acl_file` at the start and by `ACL LOAD`, which is all that changes them:
//! `ACL SETUSER` would change those of this process alone. What a file that is wrong says is told,
//! and the users stay as they are. Connections of users that were changed or are gone are ended, as
//! Redis does it.
//!
//! **One list for all engines of a process**: groups of partitions and doors read it before they
//! take a command ([`Inner::heed_users`]). So once `ACL LOAD` is answered, no command is taken by
//! rights of before, whatever door it comes by.

use std::sync::Arc;

use evenkeel_redis_acl::{Context, DEFAULT, Denied, Log, User, Users};
use tokio::sync::watch;

use super::Inner;
use super::access::unix_ms;
use super::types::{ClientId, ParsedCommand};
use evenkeel_stores::resp::commands::{self, Command, integer, refusals};
use evenkeel_stores::resp::encode;
use evenkeel_stores::resp::request::{Limits, RequestParser};

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the \
    default user. Are you sure your configuration is correct?";
const SUBCOMMANDS: &[&str] =
    &["whoami", "users", "list", "getuser", "dryrun", "log", "cat", "genpass", "help"];
const DISCARDED: &str = "EXECABORT Transaction discarded because of: ";
/// Entries that `ACL LOG` tells of if it is not said.
const LOG_ENTRIES: usize = 10;

/// Who clients may be, for all engines and doors of a process.
pub type SharedUsers = Arc<watch::Sender<Arc<Users>>>;

/// What was refused to users, and who may do everything.
#[derive(Debug)]
pub(super) struct Permissions {
    log: Log,
    /// Who clients may be, for all of the process; and what this engine has heard of it.
    shared: SharedUsers,
    heard: watch::Receiver<Arc<Users>>,
    /// In whose name parts of a command are sent, which was permitted as a whole.
    pub(super) own: Arc<User>,
}

impl Permissions {
    /// Where these are who clients may be.
    pub(super) fn of(shared: SharedUsers) -> Self {
        let own = Users::alone(None);
        let own = Arc::clone(own.nobody().expect("it needs no password"));
        let mut heard = shared.subscribe();
        heard.mark_changed(); // the first command takes what has come meanwhile
        Self { log: Log::default(), shared, heard, own }
    }
}

/// Who clients may be at this moment.
pub(super) fn now(shared: &SharedUsers) -> Arc<Users> {
    Arc::clone(&shared.borrow())
}

impl Inner {
    /// Takes the users as they are now, if somebody has loaded them; whether somebody had. Clients
    /// of those that were changed or are gone are ended; `me`, who has loaded them, once that is
    /// said.
    #[inline]
    pub(super) fn heed_users(&mut self, me: Option<ClientId>) -> bool {
        let has_changed = self.permissions.heard.has_changed().unwrap_or(false);
        if has_changed {
            self.take_users(me);
        }
        has_changed
    }

    #[cold]
    fn take_users(&mut self, me: Option<ClientId>) {
        self.users = Arc::clone(&self.permissions.heard.borrow_and_update());
        let clients = self.clients.iter().filter(|(_, client)| !client.is_part());
        let is_changed = |user: &Arc<User>| self.users.lacks(user);
        let changed = clients.filter(|(_, client)| client.user.as_ref().is_some_and(is_changed));
        let changed: Vec<ClientId> = changed.map(|(key, client)| client.id(key)).collect();
        for other in changed {
            match me {
                Some(me) => self.end_client(other, me),
                None => self.drop_client(other),
            }
        }
    }

    /// Refuses a command that its user may not give, or not with these keys; whether it did.
    #[inline]
    pub(super) fn is_denied(
        &mut self,
        id: ClientId,
        command: &Command,
        parsed: ParsedCommand<'_>,
    ) -> bool {
        let client = self.clients.get(id.key).filter(|client| client.is(id));
        let user = client.and_then(|client| client.user.as_ref());
        let denied = user.and_then(|user| user.check(command, parsed.arguments()).err());
        denied.is_some_and(|denied| self.deny(id, &denied))
    }

    #[cold]
    fn deny(&mut self, id: ClientId, denied: &Denied) -> bool {
        let now = self.now;
        let Some(client) = self.client(id) else { return true };
        let context = match client.transaction {
            Some(_) => Context::Transaction,
            None => Context::Alone,
        };
        let name = client.user.as_ref().map(|user| user.name().to_owned());
        let line = client.line(id.serial, now).to_string();
        // Whoever may not say EXEC is out of its transaction all the same.
        let is_exec = *denied == Denied::Command("exec".to_owned());
        let is_aborted = is_exec && client.transaction.take().is_some();
        let who = (name.as_deref().unwrap_or(DEFAULT), line.trim_end().to_owned());
        self.permissions.log.denied(who, (denied, context), unix_ms());
        let mut said = denied.reply();
        if is_aborted {
            self.unwatch(id);
            said.insert_str(0, DISCARDED);
        }
        self.refuse(id, &said);
        true
    }

    /// `AUTH [user] password`
    pub(super) fn auth(&mut self, id: ClientId, parsed: ParsedCommand<'_>) {
        if parsed.len() > 3 {
            return self.refuse(id, "ERR syntax error");
        }
        if parsed.len() == 2 && self.users.nobody().is_some() {
            return self.refuse(id, NO_PASSWORD);
        }
        let user = if parsed.len() == 3 { parsed.argument(1) } else { DEFAULT.as_bytes() };
        if self.admit(id, (user, parsed.argument(parsed.len() - 1)), "AUTH") {
            self.ok(id);
        }
    }

    /// A client becomes this user, if it says its password; otherwise it is told.
    pub(super) fn admit(
        &mut self,
        id: ClientId,
        (user, password): (&[u8], &[u8]),
        command: &'static str,
    ) -> bool {
        let found = self.users.who(user, password).cloned();
        let (is_right, now) = (found.is_some(), self.now);
        let Some(client) = self.client(id) else { return false };
        if is_right {
            client.user = found;
            return true;
        }
        let line = client.line(id.serial, now).to_string();
        let name = String::from_utf8_lossy(user).into_owned();
        let who = (name.as_str(), line.trim_end().to_owned());
        self.permissions.log.unknown(who, command, unix_ms());
        self.refuse(id, WRONG_PASSWORD);
        false
    }

    /// `ACL …`
    pub(super) fn acl(&mut self, id: ClientId, parsed: ParsedCommand<'_>) {
        let what = parsed.argument(1).to_ascii_lowercase();
        let has_file = self.config.access.acl_file.is_some();
        match (what.as_slice(), parsed.len()) {
            (b"whoami", 2) => {
                let user = self.client(id).and_then(|client| client.user.clone());
                let name = user.map_or(DEFAULT.to_owned(), |user| user.name().to_owned());
                self.reply_now(id, |out, _| encode::bulk(out, name.as_bytes()));
            }
            (b"users", 2) => self.tell_users(id, |user| user.name().to_owned()),
            (b"list", 2) => self.tell_users(id, User::describe),
            (b"getuser", 3) => {
                let user = self.users.get(parsed.argument(2)).cloned();
                self.reply_now(id, |out, protocol| match user {
                    Some(user) => user.write(protocol, out),
                    None => encode::null(out, protocol),
                });
            }
            (b"dryrun", 4..) => self.dry_run(id, parsed),
            (b"log", 2 | 3) => self.acl_log(id, parsed),
            (b"load", 2) if has_file => self.load_users(id),
            (b"deluser", 3..) if self.knows_none(parsed) => {
                self.reply_now(id, |out, _| encode::integer(out, 0)); // there is none of these
            }
            (b"cat", 2 | 3) | (b"genpass", 2 | 3) | (b"help", 2) => self.ask_one(id, parsed),
            (b"load" | b"setuser" | b"deluser" | b"save", _) => {
                self.refuse(id, if has_file { refusals::USERS } else { refusals::NO_USERS });
            }
            _ => self.refuse_subcommand(id, "acl", SUBCOMMANDS, parsed),
        }
    }

    fn knows_none(&self, parsed: ParsedCommand<'_>) -> bool {
        parsed.arguments().iter().skip(2).all(|name| self.users.get(name).is_none())
    }

    fn tell_users(&mut self, id: ClientId, tell: impl Fn(&User) -> String) {
        let told: Vec<String> = self.users.iter().map(tell).collect();
        let words: Vec<&[u8]> = told.iter().map(String::as_bytes).collect();
        self.reply_now(id, |out, _| encode::command(out, &words));
    }

    /// `ACL DRYRUN user command [argument…]`
    fn dry_run(&mut self, id: ClientId, parsed: ParsedCommand<'_>) {
        let Some(user) = self.users.get(parsed.argument(2)).cloned() else {
            let name = String::from_utf8_lossy(parsed.argument(2)).into_owned();
            return self.refuse(id, &format!("ERR User '{name}' not found"));
        };
        let words: Vec<&[u8]> = parsed.arguments().iter().skip(3).collect();
        let Some(command) = commands::lookup(words[0]) else {
            let name = String::from_utf8_lossy(words[0]).into_owned();
            return self.refuse(id, &format!("ERR Command '{name}' not found"));
        };
        if !command.accepts(words.len()) {
            return self.refuse_as(id, |out| commands::wrong_arity(command, out));
        }
        let (mut bytes, mut parser) = (Vec::new(), RequestParser::new(Limits::MAX));
        encode::command(&mut bytes, &words);
        if !matches!(parser.parse(&bytes), Ok(Some(_))) {
            return self.refuse(id, "ERR syntax error");
        }
        match user.check(command, parser.arguments(&bytes)) {
            Ok(()) => self.ok(id),
            Err(denied) => {
                let text = denied.to_string();
                self.reply_now(id, |out, _| encode::bulk(out, text.as_bytes()));
            }
        }
    }

    /// `ACL LOG [count | RESET]`
    fn acl_log(&mut self, id: ClientId, parsed: ParsedCommand<'_>) {
        if parsed.arguments().is(2, "reset") {
            self.permissions.log.reset();
            return self.ok(id);
        }
        let count = parsed.arguments().get(2).map_or(Some(LOG_ENTRIES as i64), integer);
        let Some(count) = count.and_then(|count| usize::try_from(count).ok()) else {
            return self.refuse(id, "ERR value is out of range, must be positive");
        };
        let now = unix_ms();
        let log = std::mem::take(&mut self.permissions.log);
        self.reply_now(id, |out, protocol| log.write(count, now, protocol, out));
        self.permissions.log = log;
    }

    /// `ACL LOAD`: who gives it waits for the file, and so does everybody, as at Redis.
    fn load_users(&mut self, id: ClientId) {
        let users = match self.config.access.load() {
            Ok(users) => users,
            Err(error) => {
                tracing::warn!(%error, "users stay as they are");
                return self.refuse(id, &format!("ERR {error} (the users stay as they are)"));
            }
        };
        tracing::info!(users = users.iter().len(), "users were loaded");
        self.permissions.shared.send_replace(Arc::new(users));
        self.ok(id);
        self.heed_users(Some(id));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use super::super::world::World;
    use super::Permissions;

    const ADMIN: &str = "user default off\nuser admin on >root ~* &* +@all\n";

    #[test]
    fn users_that_one_engine_loads_are_heard_by_all_before_their_next_command() {
        let folder = std::env::temp_dir().join(format!("evenkeel-users-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("users.acl");
        let write = |more: &str| fs::write(&file, format!("{ADMIN}{more}")).unwrap();
        write("user ann on >one ~* +@all\nuser bob on >two ~* +@all");
        let begin = || World::start(1, |config| config.access.acl_file = Some(file.clone()));
        let (mut world, mut other) = (begin(), begin());
        {
            // Two groups of one process.
            let shared = Arc::clone(&world.engine.borrow().permissions.shared);
            other.engine.borrow().permissions = Permissions::of(shared);
        }
        let admin = world.client();
        assert!(world.tell(admin, &["AUTH", "admin", "root"]));
        let (here, ann, bob) = (world.client(), other.client(), other.client());
        assert!(world.tell(here, &["AUTH", "ann", "one"]));
        assert!(other.tell(ann, &["AUTH", "ann", "one"]));
        assert!(other.tell(bob, &["AUTH", "bob", "two"]));
        assert_eq!(other.heard(ann), "+OK\r\n");
        write("user ann on >other ~* +@all\nuser bob on >two ~* +@all");
        assert!(world.tell(admin, &["ACL", "LOAD"]));
        assert_eq!(world.heard(admin), "+OK\r\n+OK\r\n");
        assert!(world.engine.borrow().client(here).is_none(), "she is gone here");
        assert!(other.tell(ann, &["ECHO", "rights of before"]));
        assert!(other.engine.borrow().client(ann).is_none(), "and there");
        assert!(other.tell(bob, &["PING"]));
        assert_eq!(other.heard(bob), "+OK\r\n+PONG\r\n");
        let late = other.client();
        assert!(other.tell(late, &["AUTH", "ann", "one"]));
        assert!(other.heard(late).starts_with("-WRONGPASS "));
        write("nonsense");
        assert!(world.tell(admin, &["ACL", "LOAD"]));
        assert!(world.heard(admin).contains("the users stay as they are"));
        assert!(other.tell(bob, &["PING"]));
        assert_eq!(other.heard(bob), "+PONG\r\n");
        fs::remove_dir_all(&folder).unwrap();
    }
}
