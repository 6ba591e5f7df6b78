//! Users of Redis: what its ACL files say, and what each user may do.
//!
//! An ACL file has one line for each user, `user NAME rule…`, with the rules of `ACL SETUSER`:
//! passwords (`>text`, `#sha256`), commands and categories (`+get`, `-@dangerous`, `+config|get`),
//! keys (`~pattern`, `%R~pattern`), channels (`&pattern`), selectors (`(+get ~other:*)`).
//!
//! **What is permitted is what Redis 7.0 permits**, with one exception: scripts and functions run
//! at a server that knows nothing of these users, so who runs one needs all keys, all channels and
//! every command that a script may call ([`Denied::Script`]).
//!
//! **Errors** of a file come all at once, each with its line, and nothing of such a file is taken.
//!
//! **Source**: Redis 7.0.15, `redis.io/docs/manual/security/acl`; tests compare decisions with a
//! running server.

mod log;
mod selector;
mod table;
#[cfg(test)]
mod tests;
mod user;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub use log::{Context, Log};
pub use user::User;

/// Who a client is that says nothing.
pub const DEFAULT: &str = "default";
/// Bytes an ACL file may have.
pub const FILE_BYTES_MAX: usize = 4 << 20;

/// All users of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Users {
    by_name: BTreeMap<String, Arc<User>>,
}

impl Users {
    /// One user, `default`, who may do everything with this password, or without any.
    pub fn alone(password: Option<&str>) -> Self {
        let mut by_name = BTreeMap::new();
        by_name.insert(DEFAULT.to_owned(), Arc::new(User::unlimited(password)));
        Self { by_name }
    }

    /// Those of an ACL file. `password` is that of `default`, if the configuration has one.
    ///
    /// # Errors
    /// All that is wrong with it. Also when `default` is nowhere: then anybody could do everything,
    /// which must be said.
    pub fn parse(text: &str, password: Option<&str>) -> Result<Self, Vec<AclError>> {
        let (mut by_name, mut errors) = (BTreeMap::new(), Vec::new());
        for (index, line) in text.lines().enumerate() {
            let at = index + 1;
            match parse_line(line) {
                Ok(None) => {}
                Ok(Some(user)) if by_name.contains_key(user.name()) => {
                    let name = user.name().to_owned();
                    errors.push(AclError { line: at, what: LineError::Twice(name) });
                }
                Ok(Some(user)) => drop(by_name.insert(user.name().to_owned(), Arc::new(user))),
                Err(what) => errors.push(AclError { line: at, what }),
            }
        }
        match (by_name.contains_key(DEFAULT), password) {
            (true, Some(_)) => errors.push(AclError { line: 0, what: LineError::TwoDefaults }),
            (false, None) => errors.push(AclError { line: 0, what: LineError::NoDefault }),
            (false, Some(_)) => by_name.extend(Self::alone(password).by_name),
            (true, None) => {}
        }
        if errors.is_empty() { Ok(Self { by_name }) } else { Err(errors) }
    }

    /// By name.
    pub fn get(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.by_name.get(str::from_utf8(name).ok()?)
    }

    /// Who a client is that says nothing, if that needs no password.
    pub fn nobody(&self) -> Option<&Arc<User>> {
        self.by_name.get(DEFAULT).filter(|user| user.needs_no_password())
    }

    /// Who says this.
    pub fn who(&self, name: &[u8], password: &[u8]) -> Option<&Arc<User>> {
        self.get(name).filter(|user| user.is(password))
    }

    /// Whether this user was changed or is gone, so that nothing may be done in its name.
    pub fn lacks(&self, user: &User) -> bool {
        self.get(user.name().as_bytes()).is_none_or(|now| **now != *user)
    }

    /// All, by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &User> {
        self.by_name.values().map(|user| &**user)
    }
}

/// `user NAME rule…`; `None` of a line without anything.
fn parse_line(line: &str) -> Result<Option<User>, LineError> {
    let line = line.trim();
    if line.is_empty() {
        return Ok(None);
    }
    let mut words = line.split_ascii_whitespace();
    if words.next() != Some("user") {
        return Err(LineError::NoUser);
    }
    let mut user = User::new(words.next().ok_or(LineError::NoName)?);
    let mut open: Option<String> = None;
    for word in words {
        let rule = match open.take() {
            Some(begun) => begun + " " + word,
            None => word.to_owned(),
        };
        if rule.starts_with('(') && !rule.ends_with(')') {
            open = Some(rule);
            continue;
        }
        // Of a password nothing is said.
        let shown = if rule.starts_with(['>', '<']) { &rule[..1] } else { &rule };
        user.take(&rule).map_err(|error| LineError::Rule(shown.to_owned(), error))?;
    }
    if let Some(open) = open {
        return Err(LineError::Rule(open, RuleError::Parenthesis));
    }
    user.settle();
    Ok(Some(user))
}

/// Why a user may not do something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denied {
    /// The command, or its subcommand.
    Command(String),
    /// It runs a script without being permitted all that a script may do.
    Script,
    /// This key, for what the command does with it.
    Key(Vec<u8>),
    /// This option of `SORT`, which reads keys that it does not name.
    Sort(&'static str),
    /// This channel, or pattern of channels.
    Channel(Vec<u8>),
}

impl Denied {
    /// How much of a command was permitted.
    const fn rank(&self) -> u8 {
        match self {
            Self::Command(_) => 0,
            Self::Script => 1,
            Self::Key(_) | Self::Sort(_) => 2,
            Self::Channel(_) => 3,
        }
    }

    /// What kind it is, for the log.
    const fn kind(&self) -> &'static str {
        match self {
            Self::Command(_) | Self::Script => "command",
            Self::Key(_) | Self::Sort(_) => "key",
            Self::Channel(_) => "channel",
        }
    }

    /// The error that a client gets, its code first, in Redis's words.
    pub fn reply(&self) -> String {
        match self {
            Self::Sort(option) => {
                format!("ERR {option} option of SORT denied due to insufficient ACL permissions.")
            }
            _ => format!("NOPERM {self}"),
        }
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = match self {
            Self::Command(name) => {
                return write!(f, "this user has no permissions to run the '{name}' command");
            }
            Self::Script => {
                return f.write_str(
                    "scripts are not looked into here: a user who runs one needs all keys (~*), \
                     all channels (&*) and every command that a script may call",
                );
            }
            Self::Sort(option) => {
                return write!(f, "option {option} of SORT reads keys that it does not name");
            }
            Self::Key(_) => "keys",
            Self::Channel(_) => "channels",
        };
        write!(f, "this user has no permissions to access one of the {names} used as arguments")
    }
}

/// What is wrong with an ACL file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AclError {
    /// The line, from 1; 0 where it is the file as a whole.
    pub line: usize,
    what: LineError,
}

impl fmt::Display for AclError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}", self.what),
            line => write!(f, "line {line}: {}", self.what),
        }
    }
}

/// What is wrong with one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum LineError {
    #[error("it does not begin with 'user' (expected: user NAME rule…)")]
    NoUser,
    #[error("'user' without a name")]
    NoName,
    #[error("user '{0}' stands there twice")]
    Twice(String),
    #[error("rule '{0}': {1}")]
    Rule(String, RuleError),
    #[error(
        "it has a user 'default', and the configuration has a password for that: leave one out"
    )]
    TwoDefaults,
    #[error(
        "it has no user 'default', who could then do everything without a password (write 'user \
         default off', or give the service a password)"
    )]
    NoDefault,
}

/// What is wrong with one rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum RuleError {
    #[error("syntax error (expected one of ACL SETUSER: on, >password, +command, ~pattern, …)")]
    Syntax,
    #[error("there is no such command (expected one of Redis 7.0)")]
    NoCommand,
    #[error("there is no such category (ACL CAT lists them)")]
    NoCategory,
    #[error("there is no such subcommand, or it is a first argument that is forbidden")]
    NoSubcommand,
    #[error("more than one first argument")]
    ManyArguments,
    #[error("a pattern behind ~* changes nothing (write resetkeys before it)")]
    BehindAllKeys,
    #[error("a pattern behind &* changes nothing (write resetchannels before it)")]
    BehindAllChannels,
    #[error("the user has no such password")]
    NoSuchPassword,
    #[error("a hash has 64 digits of 0-9 and a-f")]
    Hash,
    #[error("a parenthesis is not closed")]
    Parenthesis,
}
