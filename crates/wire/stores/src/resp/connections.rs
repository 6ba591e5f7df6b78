//! `CLIENT`: what connections may be called, which of them are meant, and how they are listed.
//!
//! **Source**: `networking.c` of Redis 7.0.15; the tests ask a real server for its words.

use std::fmt;

use super::commands::integer;
use super::request::Arguments;

/// Why a filter cannot be read, in Redis's words.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FilterError {
    /// A word that is none of its options, or an option without its value.
    #[error("ERR syntax error")]
    Syntax,
    /// A type of client that there is not.
    #[error("ERR Unknown client type '{0}'")]
    UnknownType(String),
    /// A number of a client to be listed.
    #[error("ERR Invalid client ID")]
    InvalidId,
    /// A number of a client to be killed.
    #[error("ERR client-id should be greater than 0")]
    IdBelowOne,
    /// A user that there is not.
    #[error("ERR No such user '{0}'")]
    NoSuchUser(String),
}

/// Whether a client has said this secret. It takes as long for a wrong one as for a right one,
/// whatever they share.
pub fn is_same_secret(expected: &[u8], said: &[u8]) -> bool {
    let differs = expected.iter().zip(said.iter().chain(std::iter::repeat(&0)));
    let differences = differs.fold(0, |all, (a, b)| all | (a ^ b));
    differences == 0 && expected.len() == said.len()
}

/// Whether this may be the name of a connection, or of the library it belongs to.
pub fn is_name(name: &[u8]) -> bool {
    name.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

/// What a connection is to a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A client that asks and is answered.
    Normal,
    /// One that listens to channels.
    PubSub,
    /// A server that gives or gets a copy: none of ours is.
    Replication,
}

impl Kind {
    fn parse(name: &[u8]) -> Result<Self, FilterError> {
        let words = ["normal", "pubsub", "slave", "replica", "master"];
        match words.iter().position(|word| name.eq_ignore_ascii_case(word.as_bytes())) {
            Some(0) => Ok(Self::Normal),
            Some(1) => Ok(Self::PubSub),
            Some(_) => Ok(Self::Replication),
            None => Err(FilterError::UnknownType(String::from_utf8_lossy(name).into_owned())),
        }
    }
}

/// Which connections are meant; what is `None` does not matter.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// One of these numbers.
    pub ids: Option<Vec<u64>>,
    /// The client's address.
    pub address: Option<String>,
    /// The address it reached.
    pub local: Option<String>,
    /// Whose it is.
    pub user: Option<String>,
    /// What it is.
    pub kind: Option<Kind>,
    /// Not the connection that says it.
    pub skips_me: bool,
    /// An address alone: the answer is OK, or that there is none.
    pub is_old_form: bool,
}

impl Filter {
    /// Of `CLIENT LIST [TYPE type | ID id…]`.
    ///
    /// # Errors
    /// In Redis's words.
    pub fn of_list(arguments: Arguments<'_>) -> Result<Self, FilterError> {
        let filter = Self::default();
        if arguments.len() == 4 && arguments.is(2, "type") {
            return Ok(Self { kind: Some(Kind::parse(arguments.at(3))?), ..filter });
        }
        if arguments.len() > 3 && arguments.is(2, "id") {
            let id = |text| {
                let id = integer(text).ok_or(FilterError::InvalidId)?;
                Ok(u64::try_from(id).unwrap_or(0))
            };
            let ids = arguments.iter().skip(3).map(id).collect::<Result<_, FilterError>>()?;
            return Ok(Self { ids: Some(ids), ..filter });
        }
        if arguments.len() == 2 { Ok(filter) } else { Err(FilterError::Syntax) }
    }

    /// Of `CLIENT KILL address` and `CLIENT KILL [ID id] [ADDR address] …`.
    ///
    /// # Errors
    /// In Redis's words.
    pub fn of_kill(
        arguments: Arguments<'_>,
        is_user: impl Fn(&[u8]) -> bool,
    ) -> Result<Self, FilterError> {
        let text = |at: usize| arguments.get(at).map(|it| String::from_utf8_lossy(it).into_owned());
        let mut filter = Self { skips_me: true, ..Self::default() };
        if arguments.len() == 3 {
            (filter.address, filter.is_old_form) = (text(2), true);
            filter.skips_me = false;
            return Ok(filter);
        }
        for at in (2..arguments.len()).step_by(2) {
            let Some(value) = arguments.get(at + 1) else { return Err(FilterError::Syntax) };
            let words = ["id", "type", "addr", "laddr", "user", "skipme"];
            match words.iter().position(|word| arguments.is(at, word)) {
                Some(0) => {
                    let id = integer(value).and_then(|id| u64::try_from(id).ok());
                    let id = id.filter(|id| *id > 0);
                    let id = id.ok_or(FilterError::IdBelowOne)?;
                    filter.ids = Some(vec![id]);
                }
                Some(1) => filter.kind = Some(Kind::parse(value)?),
                Some(2) => filter.address = text(at + 1),
                Some(3) => filter.local = text(at + 1),
                Some(4) if is_user(value) => filter.user = text(at + 1),
                Some(4) => {
                    let user = String::from_utf8_lossy(value).into_owned();
                    return Err(FilterError::NoSuchUser(user));
                }
                Some(5) if arguments.is(at + 1, "yes") => filter.skips_me = true,
                Some(5) if arguments.is(at + 1, "no") => filter.skips_me = false,
                _ => return Err(FilterError::Syntax),
            }
        }
        Ok(filter)
    }

    /// Whether this connection is meant.
    pub fn meets(&self, line: &Line, is_me: bool) -> bool {
        self.ids.as_ref().is_none_or(|ids| ids.contains(&line.id))
            && self.address.as_ref().is_none_or(|address| *address == line.address)
            && self.local.as_ref().is_none_or(|local| *local == line.local)
            && self.user.as_ref().is_none_or(|user| *user == line.user)
            && self.kind.is_none_or(|kind| kind == line.kind)
            && !(self.skips_me && is_me)
    }
}

/// One connection, as it is listed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "each is the field of that name")]
pub struct Line {
    pub id: u64,
    pub address: String,
    pub local: String,
    pub name: String,
    pub age_s: u64,
    pub idle_s: u64,
    pub kind: Kind,
    pub database: u8,
    /// Commands since MULTI; -1 outside of it.
    pub multi: i64,
    /// Bytes of answers that wait for it.
    pub out_bytes: usize,
    pub command: &'static str,
    pub query_bytes: usize,
    pub protocol: u8,
    pub user: String,
    pub lib_name: String,
    pub lib_version: String,
    pub tracked: Tracked,
}

/// How a connection tracks what it reads (`CLIENT TRACKING`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tracked {
    /// It does.
    pub is_on: bool,
    /// Whoever should be told in its place is gone.
    pub is_broken: bool,
    /// It is told of keys by their prefixes.
    pub is_bcast: bool,
    /// Who is told in its place; 0: itself, -1: it does not track.
    pub redirect: i64,
}

impl Default for Tracked {
    fn default() -> Self {
        Self { is_on: false, is_broken: false, is_bcast: false, redirect: -1 }
    }
}

impl Tracked {
    const fn flags(self) -> &'static str {
        match (self.is_on, self.is_broken, self.is_bcast) {
            (false, ..) => "",
            (_, false, false) => "t",
            (_, true, false) => "tR",
            (_, false, true) => "tB",
            (_, true, true) => "tRB",
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = match (self.kind, self.multi) {
            (Kind::PubSub, _) => "P",
            (_, -1) if self.tracked.is_on => "",
            (_, -1) => "N",
            _ => "x",
        };
        let tracks = self.tracked.flags();
        writeln!(
            f,
            "id={} addr={} laddr={} fd=0 name={} age={} idle={} flags={flags}{tracks} db={} \
             sub=0 psub=0 ssub=0 multi={} qbuf={} qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 \
             rbp=0 obl={} oll=0 omem={} tot-mem={} events=r cmd={} user={} redir={} resp={} \
             lib-name={} lib-ver={}",
            self.id,
            self.address,
            self.local,
            self.name,
            self.age_s,
            self.idle_s,
            self.database,
            self.multi,
            self.query_bytes,
            self.out_bytes,
            self.out_bytes,
            self.out_bytes,
            self.command,
            self.user,
            self.tracked.redirect,
            self.protocol,
            self.lib_name,
            self.lib_version,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::request::RequestParser;

    fn with<T>(line: &str, read: impl FnOnce(Arguments<'_>) -> T) -> T {
        let (mut parser, line) = (RequestParser::default(), format!("{line}\r\n"));
        parser.parse(line.as_bytes()).unwrap().expect("it is whole");
        read(parser.arguments(line.as_bytes()))
    }

    fn kill(line: &str) -> Result<Filter, String> {
        with(line, |arguments| Filter::of_kill(arguments, |name| name == b"default"))
            .map_err(|error| error.to_string())
    }

    fn line(id: u64, address: &str) -> Line {
        Line {
            id,
            address: address.to_owned(),
            local: "127.0.0.1:6379".to_owned(),
            name: String::new(),
            age_s: 1,
            idle_s: 0,
            kind: Kind::Normal,
            database: 3,
            multi: -1,
            out_bytes: 0,
            command: "client|list",
            query_bytes: 26,
            protocol: 2,
            user: "default".to_owned(),
            lib_name: String::new(),
            lib_version: String::new(),
            tracked: Tracked::default(),
        }
    }

    #[test]
    fn a_filter_meets_what_it_names() {
        let one = line(7, "10.0.0.1:5000");
        for (words, is_met) in [
            ("client kill 10.0.0.1:5000", true),
            ("client kill 10.0.0.1:5001", false),
            ("client kill ID 7", true),
            ("client kill id 8", false),
            ("client kill TYPE normal", true),
            ("client kill TYPE pubsub", false),
            ("client kill ADDR 10.0.0.1:5000 LADDR 127.0.0.1:6379 USER default", true),
            ("client kill LADDR 127.0.0.1:1 ID 7", false),
        ] {
            assert_eq!(kill(words).unwrap().meets(&one, false), is_met, "{words}");
        }
        assert!(!kill("client kill ID 7").unwrap().meets(&one, true), "not who says it");
        assert!(kill("client kill ID 7 SKIPME no").unwrap().meets(&one, true));
        assert!(kill("client kill 10.0.0.1:5000").unwrap().meets(&one, true));
        let listed = with("client list id 6 7", Filter::of_list).unwrap();
        assert!(listed.meets(&one, true) && !listed.meets(&line(8, ""), true));
    }

    #[test]
    fn what_is_wrong_is_said_as_redis_does() {
        for (words, expected) in [
            ("client kill ID x", "ERR client-id should be greater than 0"),
            ("client kill ID 0", "ERR client-id should be greater than 0"),
            ("client kill TYPE what", "ERR Unknown client type 'what'"),
            ("client kill USER bob", "ERR No such user 'bob'"),
            ("client kill SKIPME maybe", "ERR syntax error"),
            ("client kill ID 1 ADDR", "ERR syntax error"),
            ("client kill WHAT 1", "ERR syntax error"),
        ] {
            assert_eq!(kill(words), Err(expected.to_owned()), "{words}");
        }
        for (words, expected) in [
            ("client list type what", "ERR Unknown client type 'what'"),
            ("client list id x", "ERR Invalid client ID"),
            ("client list what", "ERR syntax error"),
        ] {
            assert_eq!(
                with(words, Filter::of_list).map_err(|error| error.to_string()),
                Err(expected.to_owned()),
                "{words}"
            );
        }
    }

    #[test]
    fn a_line_has_every_field_that_redis_has() {
        let text = line(7, "10.0.0.1:5000").to_string();
        let fields: Vec<&str> =
            text.split(' ').filter_map(|it| Some(it.split_once('=')?.0)).collect();
        // CLIENT LIST of Redis 7.0.15, and the two of 7.2.
        let expected = "id addr laddr fd name age idle flags db sub psub ssub multi qbuf qbuf-free \
                        argv-mem multi-mem rbs rbp obl oll omem tot-mem events cmd user redir resp \
                        lib-name lib-ver";
        assert_eq!(fields, expected.split(' ').collect::<Vec<_>>());
        assert!(is_name(b"a-b") && is_name(b"") && !is_name(b"a b") && !is_name(b"a\n"));
    }
}
