//! All keys of a server, page by page, database by database.

use std::io;

use crate::connect::Link;
use crate::fencing;
use evenkeel_stores::resp::databases;
use evenkeel_stores::resp::reply::{elements, payload};
use evenkeel_stores::store::keys::RESERVED;

/// Keys the server is asked to enumerate at once.
const COUNT: &[u8] = b"500";

/// An enumeration. What is there from its beginning to its end comes at least once.
pub struct AllKeys {
    link: Link,
    /// How many databases are looked through.
    databases: u8,
    /// That of the next page; as many as there are when all pages have come.
    database: u8,
    cursor: Vec<u8>,
}

impl AllKeys {
    /// Of so many databases, on this connection, which is in database 0.
    pub fn new(link: Link, databases: u8) -> Self {
        Self { link, databases, database: 0, cursor: b"0".to_vec() }
    }

    /// The places ([`databases::place`]) of the keys of the next page, without ours; `None` behind
    /// the last.
    ///
    /// # Errors
    /// When the server does not answer, or with something else.
    pub async fn page(&mut self) -> io::Result<Option<Vec<Vec<u8>>>> {
        if self.is_over() {
            return Ok(None);
        }
        let database = self.database;
        if database > 0 && self.cursor == b"0" {
            self.link.expect_ok(&[b"SELECT", database.to_string().as_bytes()]).await?;
        }
        let page = self.link.ask(&[b"SCAN", &self.cursor, b"COUNT", COUNT]).await?;
        let mut parts = elements(&page);
        let (Some(next), Some(keys)) = (parts.next().and_then(payload), parts.next()) else {
            return Err(io::Error::other("SCAN was not answered with a page"));
        };
        self.cursor = next.to_vec();
        if next == b"0" {
            self.database += 1;
        }
        let keys = elements(keys).filter_map(payload).filter(|key| !key.starts_with(RESERVED));
        Ok(Some(keys.map(|key| databases::place(database, key).into_owned()).collect()))
    }

    /// Whether the last page has come.
    pub fn is_over(&self) -> bool {
        self.database >= self.databases
    }

    /// The connection, for what is of no database.
    pub const fn link(&mut self) -> &mut Link {
        &mut self.link
    }

    /// Whether all that was told until now was the server's data ([`fencing::still_signed`]).
    ///
    /// # Errors
    /// When somebody emptied it meanwhile.
    pub async fn still_signed(&mut self) -> io::Result<()> {
        if self.databases > 1 {
            self.link.expect_ok(&[b"SELECT", b"0"]).await?;
        }
        fencing::still_signed(&mut self.link).await
    }
}
