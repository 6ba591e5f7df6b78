//! What must be the same of two clients before they may share a connection.

use std::fmt;
use std::sync::Arc;

use crate::Version;
use bytes::Bytes;

/// How a client speaks: a connection to a node is shared only among clients that speak alike.
///
/// A node keeps protocol version, keyspace and user for each connection, so requests of clients
/// that differ in one of them would be understood as another's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dialect {
    /// The version of the native protocol.
    pub version: Version,
    /// The keyspace of names without one, letter by letter as the node knows it (no quotes).
    pub keyspace: Option<Arc<str>>,
    /// Who asks; `None` where nodes let everybody in.
    pub login: Option<Arc<Login>>,
}

impl Dialect {
    /// The same client in another keyspace, or in none.
    #[must_use]
    pub fn in_keyspace(&self, keyspace: Option<Arc<str>>) -> Self {
        Self { keyspace, ..self.clone() }
    }
}

/// A client's login, to be replayed on connections that are opened for it.
///
/// Those can be that have the same answers on every connection: of one message, as those of
/// `PasswordAuthenticator` (SASL PLAIN), and of several where every node asks the same.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Login {
    /// The class that the node named in `AUTHENTICATE` when the client logged in.
    pub authenticator: String,
    /// The client's first `AUTH_RESPONSE`, without its length.
    pub token: Bytes,
    /// What it was asked then, in turn; nothing where one message is enough.
    pub further: Vec<Challenge>,
}

/// A question of a login, and the client's answer; both without their lengths.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Challenge {
    /// What was in `AUTH_CHALLENGE`.
    pub question: Bytes,
    /// What was in the `AUTH_RESPONSE` to it.
    pub answer: Bytes,
}

impl Login {
    /// A login by name and password, as `PasswordAuthenticator` takes it.
    pub fn plain(user: &str, password: &str) -> Self {
        let token = [b"\0", user.as_bytes(), b"\0", password.as_bytes()].concat();
        let authenticator = "org.apache.cassandra.auth.PasswordAuthenticator".to_owned();
        Self { authenticator, token: token.into(), further: Vec::new() }
    }
}

impl fmt::Debug for Login {
    /// Leaves the token out: it has the password in it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, further) = (self.token.len(), &self.further);
        write!(formatter, "Login({}, {bytes} bytes, {further:?})", self.authenticator)
    }
}

impl fmt::Debug for Challenge {
    /// Leaves both out, for the same reason.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Challenge({} bytes)", self.answer.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_login_is_sasl_plain_and_tells_nobody() {
        let login = Login::plain("cassandra", "s3cret");
        assert_eq!(&login.token[..], b"\0cassandra\0s3cret");
        assert!(!format!("{login:?}").contains("s3cret"));
        let (question, answer) = (Bytes::new(), Bytes::from_static(b"s3cret"));
        let login = Login { further: vec![Challenge { question, answer }], ..login };
        assert!(
            !format!("{login:?}").contains("s3cret") && format!("{login:?}").contains("6 bytes")
        );
    }
}
