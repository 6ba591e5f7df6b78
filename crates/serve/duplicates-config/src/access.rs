//! Who clients may be, and who the service is to servers of Redis: passwords, their files, ACL
//! files.

use std::io;
use std::path::{Path, PathBuf};

use evenkeel_redis_acl::{DEFAULT, FILE_BYTES_MAX, Users};
use evenkeel_settings::common::file;
use evenkeel_settings::{Mismatch, Table};

/// Bytes of a password.
const PASSWORD_BYTES_MAX: usize = 16 << 10;
/// Errors of an ACL file that are told at once.
const ERRORS_MAX: usize = 10;

/// A password.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// As it stands in the configuration.
    Text(String),
    /// The first line of this file.
    File(PathBuf),
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(_) => f.write_str("Text"), // nobody reads it in a log
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

impl Secret {
    /// `password` or `password_file`, with what stands before these names.
    pub(super) fn read(table: &mut Table<'_>, before: &str) -> Option<Self> {
        let (text_key, file_key) = (format!("{before}password"), format!("{before}password_file"));
        let text = table.key(&text_key).text().optional();
        let path = table.key(&file_key);
        let path = path.value().is_some().then(|| file(path));
        if text.is_some() && path.is_some() {
            let expected = format!("{text_key} or {file_key}, not both");
            table.problem(&file_key, Mismatch::new("two passwords", expected));
        }
        path.map(Self::File).or(text.map(Self::Text))
    }

    /// What it is now.
    ///
    /// # Errors
    /// When its file cannot be read, or has no first line of 1 byte to 16 KiB.
    pub fn load(&self) -> io::Result<String> {
        let path = match self {
            Self::Text(text) => return Ok(text.clone()),
            Self::File(path) => path,
        };
        let text = std::fs::read_to_string(path).map_err(|error| at(path, &error.to_string()))?;
        let line = text.lines().next().unwrap_or_default();
        if line.is_empty() || line.len() > PASSWORD_BYTES_MAX {
            let words = format!(
                "a first line of {} bytes, expected a password of 1 byte to 16 KiB",
                line.len()
            );
            return Err(at(path, &words));
        }
        Ok(line.to_owned())
    }
}

/// What clients must say, and what they may do then.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientAccess {
    /// That of the user `default`.
    pub password: Option<Secret>,
    /// Users as Redis's `aclfile` has them.
    pub acl_file: Option<PathBuf>,
}

impl ClientAccess {
    pub(super) fn read(table: &mut Table<'_>) -> Self {
        let acl_file = table.key("acl_file");
        let acl_file = acl_file.value().is_some().then(|| file(acl_file));
        Self { password: Secret::read(table, ""), acl_file }
    }

    /// The users, as the files have them now.
    ///
    /// # Errors
    /// When a file cannot be read; all that is wrong with an ACL file, with its lines.
    pub fn load(&self) -> io::Result<Users> {
        let password = self.password.as_ref().map(Secret::load).transpose()?;
        let Some(path) = &self.acl_file else { return Ok(Users::alone(password.as_deref())) };
        let length = std::fs::metadata(path).map_err(|error| at(path, &error.to_string()))?.len();
        if length > FILE_BYTES_MAX as u64 {
            return Err(at(path, &format!("{length} bytes, expected at most {FILE_BYTES_MAX}")));
        }
        let text = std::fs::read_to_string(path).map_err(|error| at(path, &error.to_string()))?;
        Users::parse(&text, password.as_deref()).map_err(|errors| {
            let mut words: Vec<String> =
                errors.iter().take(ERRORS_MAX).map(ToString::to_string).collect();
            if errors.len() > ERRORS_MAX {
                words.push(format!("and {} more", errors.len() - ERRORS_MAX));
            }
            at(path, &words.join("; "))
        })
    }
}

/// As whom the service logs in to servers of Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreLogin {
    /// The user.
    pub user: String,
    /// Its password.
    pub password: Secret,
}

impl StoreLogin {
    /// `store_user`, `store_password`, `store_password_file`.
    pub(super) fn read(table: &mut Table<'_>) -> Option<Self> {
        let user = table.key("store_user").text().optional();
        let password = Secret::read(table, "store_");
        if user.is_some() && password.is_none() {
            let expected = "store_password or store_password_file too";
            table.problem("store_user", Mismatch::new("a user without a password", expected));
        }
        let user = user.unwrap_or_else(|| DEFAULT.to_owned());
        password.map(|password| Self { user, password })
    }

    pub(super) fn load(&self) -> io::Result<Login> {
        Ok(Login { user: self.user.clone(), password: self.password.load()? })
    }
}

/// What a server of Redis wants to hear first.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The user.
    pub user: String,
    /// Its password.
    pub password: String,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Login").field(&self.user).finish()
    }
}

fn at(path: &Path, words: &str) -> io::Error {
    io::Error::other(format!("{}: {words}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_files_is_said_with_their_paths() {
        let folder = std::env::temp_dir().join(format!("evenkeel-access-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, text: &str| {
            std::fs::write(folder.join(name), text).unwrap();
            folder.join(name)
        };
        let error = |access: ClientAccess| {
            let said = access.load().unwrap_err().to_string();
            said.replace(&format!("{}/", folder.display()), "")
        };
        let with_password =
            |path| ClientAccess { password: Some(Secret::File(path)), acl_file: None };
        let good = with_password(write("good", "secret\nmore")).load().unwrap();
        assert!(good.who(b"default", b"secret").is_some() && good.nobody().is_none());
        assert!(error(with_password(folder.join("none"))).starts_with("none: No such file"));
        let said = error(with_password(write("empty", "\n")));
        assert_eq!(said, "empty: a first line of 0 bytes, expected a password of 1 byte to 16 KiB");
        let with_users = |path| ClientAccess { password: None, acl_file: Some(path) };
        let said = error(with_users(write("acl", "user default off\nuser a +nope\nuser b foo")));
        assert!(said.starts_with("acl: line 2: rule '+nope'"), "{said}");
        assert!(said.contains("; line 3: rule 'foo'"), "{said}");
        let many = "x\n".repeat(ERRORS_MAX + 5);
        let said = error(with_users(write("many", &many)));
        assert!(said.ends_with("; and 6 more"), "{said}"); // those, and that nobody is `default`
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
