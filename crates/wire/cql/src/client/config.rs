//! How nodes of a cluster are reached, as people write it: the login.

use std::path::PathBuf;

use evenkeel_settings::common::file;
use evenkeel_settings::{Mismatch, Table};

/// As whom a process logs in to the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CqlUser {
    /// The role.
    pub name: String,
    /// The file whose first line is its password.
    pub password_file: PathBuf,
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
