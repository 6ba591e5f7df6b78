//! TLS on either side of a socket: what people write, and what is made of the files.
//!
//! TLS 1.3 and 1.2 are spoken, by rustls. What was made of files is made anew when their contents
//! change (`live.rs`): connections keep what they began with. Sessions are resumed, so that a
//! client that comes back costs no signature; other keys or authorities end that.

mod client;
mod live;
mod server;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use evenkeel_settings::common::file;
use evenkeel_settings::{Mismatch, Setting, Table, Value};
use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};
use rustls_pki_types::ServerName;

pub use client::ClientTls;
pub use live::{CHECKED_EVERY, keep_fresh};
pub use server::ServerTls;

/// Both that are in use; two ends that know 1.3 agree on that.
static VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];

/// A certificate and its key, PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Our certificate, then those between it and the authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// `tls` of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTlsFiles {
    /// One or more. A client gets the first that is valid for the name it asks for (SNI), else the
    /// first.
    pub identities: Vec<Identity>,
    /// The authorities of clients' certificates; `None` when none is asked for.
    pub client_ca: Option<PathBuf>,
    /// Whether clients without a certificate come in all the same, and are told apart later.
    pub is_client_optional: bool,
}

/// `tls` towards servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientTlsFiles {
    /// The authorities of the servers' certificates; `None` = those of the operating system.
    pub ca: Option<PathBuf>,
    /// The name in the servers' certificates, also sent as SNI; `None` = the address of each.
    pub name: Option<String>,
    /// Ours, for servers that ask for one.
    pub identity: Option<Identity>,
}

impl ServerTlsFiles {
    /// Reads a table `tls`: `certificate` and `key`, one of each or lists of the same length, and
    /// `client_ca`.
    pub fn read(table: &mut Table<'_>) -> Self {
        let certificates = one_or_more(table.key("certificate"));
        let keys = one_or_more(table.key("key"));
        if table.is_sound() && certificates.len() != keys.len() {
            let expected = format!("{}, one for each certificate", certificates.len());
            table.problem("key", Mismatch::new(format!("{} keys", keys.len()), expected));
        }
        let identity = |(certificate, key)| Identity { certificate, key };
        Self {
            identities: certificates.into_iter().zip(keys).map(identity).collect(),
            client_ca: written(table.key("client_ca")),
            is_client_optional: false,
        }
    }
}

impl ClientTlsFiles {
    /// Reads a table `tls`: `ca`, `name`, `certificate` and `key`.
    pub fn read(table: &mut Table<'_>) -> Self {
        let is_name = |name: &String| ServerName::try_from(name.as_str()).is_ok();
        let name = table.key("name").text().check("a name as in a certificate", is_name);
        let (certificate, key) = (written(table.key("certificate")), written(table.key("key")));
        let alone = |came: &str, other: &str| {
            Mismatch::new(format!("{came} alone"), format!("its {other} too"))
        };
        match (&certificate, &key) {
            (Some(_), None) => table.problem("certificate", alone("certificate", "key")),
            (None, Some(_)) => table.problem("key", alone("key", "certificate")),
            _ => {}
        }
        Self {
            ca: written(table.key("ca")),
            name: name.optional(),
            identity: certificate.zip(key).map(|(certificate, key)| Identity { certificate, key }),
        }
    }
}

fn written(setting: Setting<'_>) -> Option<PathBuf> {
    setting.value().is_some().then(|| file(setting))
}

fn one_or_more(setting: Setting<'_>) -> Vec<PathBuf> {
    match setting.value() {
        Some(Value::List(_)) => {
            let some = setting.list(file).check("one or more files", |files| !files.is_empty());
            some.required()
        }
        _ => vec![file(setting)],
    }
}
