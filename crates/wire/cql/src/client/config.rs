//! How nodes of a cluster are reached, as people write it: login and encryption.

use std::path::PathBuf;

use evenkeel_settings::common::file;
use evenkeel_settings::{Mismatch, Setting, Table};
use rustls_pki_types::ServerName;

/// As whom a process logs in to the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CqlUser {
    /// The role.
    pub name: String,
    /// The file whose first line is its password.
    pub password_file: PathBuf,
}

/// Encryption towards the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CqlTls {
    /// The authority or authorities of the nodes' certificates, PEM.
    pub authority: PathBuf,
    /// The name in the nodes' certificates; `None` = the address of each.
    pub name: Option<String>,
    /// Our own certificate and its key, PEM, for nodes that ask for one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// As whom the process logs in: `user` and `password_file`, both or neither.
pub fn user(table: &mut Table<'_>) -> Option<CqlUser> {
    let name = table.key("user").text().optional();
    let password_file = table.key("password_file");
    let password_file = password_file.value().is_some().then(|| file(password_file));
    match (name, password_file) {
        (Some(name), Some(password_file)) => Some(CqlUser { name, password_file }),
        (None, None) => None,
        (Some(_), None) => {
            let expected = "password_file too: a file with the password in its first line";
            table.problem("user", Mismatch::new("user alone", expected));
            None
        }
        (None, Some(_)) => {
            let expected = "user too: the role with this password";
            table.problem("password_file", Mismatch::new("password_file alone", expected));
            None
        }
    }
}

/// A certificate and its key, both or neither.
pub fn identity(table: &mut Table<'_>) -> Option<(PathBuf, PathBuf)> {
    let written = |setting: Setting<'_>| setting.value().is_some().then(|| file(setting));
    match (written(table.key("certificate")), written(table.key("key"))) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        (Some(_), None) => {
            table.problem("certificate", Mismatch::new("certificate alone", "its key too"));
            None
        }
        (None, Some(_)) => {
            table.problem("key", Mismatch::new("key alone", "its certificate too"));
            None
        }
    }
}

impl CqlTls {
    /// Reads a table `tls`.
    pub fn read(table: &mut Table<'_>) -> Self {
        let is_name = |name: &String| ServerName::try_from(name.as_str()).is_ok();
        let name = table.key("name").text().check("a name as in a certificate", is_name);
        Self {
            authority: file(table.key("ca_file")),
            name: name.optional(),
            identity: identity(table),
        }
    }
}
