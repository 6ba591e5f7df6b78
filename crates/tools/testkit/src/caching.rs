//! A client of Redis that keeps what it reads until it is told that it changed (`CLIENT TRACKING`,
//! RESP3), and believes no more than the order in which answers and messages come.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;

use super::redis::{Client, Reply, encoded};
use super::wait::PATIENCE;

/// What an answer will be the answer to.
#[derive(Debug)]
enum Asked {
    /// A read of a key, which is kept.
    Read(String),
    /// A write of a key.
    Write(String),
    Other,
}

/// One connection, and what was kept of what came on it.
#[derive(Debug)]
pub struct CachingClient {
    client: Client,
    asked: VecDeque<Asked>,
    /// Keys and what was read of them.
    pub keeps: BTreeMap<String, Reply>,
    /// It is not told of its own writes (`NOLOOP`).
    forgets_own: bool,
    /// Messages that came.
    pub told: usize,
}

impl CachingClient {
    /// Connects, and tracks in this way.
    ///
    /// # Errors
    /// When the connection ends, or tracking is refused.
    pub fn try_connect(address: SocketAddr, how: &[&str]) -> io::Result<Self> {
        let mut client = Client::try_connect(address, PATIENCE)?;
        let hello = client.try_ask(&["HELLO", "3"])?;
        let tracking = client.try_ask(&[&["CLIENT", "TRACKING", "ON"], how].concat())?;
        if !matches!(hello, Reply::Array(_)) || tracking != Reply::Simple("OK".to_owned()) {
            return Err(io::Error::other(format!("{hello:?}, {tracking:?}")));
        }
        let (asked, keeps) = (VecDeque::new(), BTreeMap::new());
        let forgets_own = how.contains(&"NOLOOP");
        Ok(Self { client, asked, keeps, forgets_own, told: 0 })
    }

    /// The same where somebody answers.
    ///
    /// # Panics
    /// When nobody does.
    #[must_use]
    #[track_caller]
    pub fn connect(address: SocketAddr, how: &[&str]) -> Self {
        Self::try_connect(address, how).unwrap_or_else(|error| panic!("{address}: {error}"))
    }

    /// Whether the other side has closed the connection, behind what it said last: all that was
    /// kept is to be forgotten.
    pub fn has_ended(&mut self) -> bool {
        while self.client.has_come() {
            match self.client.try_read() {
                Ok(reply) => self.take(reply),
                Err(_) => return true,
            }
        }
        self.client.has_ended()
    }

    /// Sends a read of this key, whose answer is kept.
    ///
    /// # Errors
    /// When the connection ends.
    pub fn try_get(&mut self, key: &str) -> io::Result<()> {
        self.send(&["GET", key], Asked::Read(key.to_owned()))
    }

    /// Sends a write of this key.
    ///
    /// # Errors
    /// When the connection ends.
    pub fn try_write(&mut self, key: &str, command: &[&str]) -> io::Result<()> {
        self.send(command, Asked::Write(key.to_owned()))
    }

    fn send(&mut self, command: &[&str], asked: Asked) -> io::Result<()> {
        self.client.try_send(&encoded(command))?;
        self.asked.push_back(asked);
        Ok(())
    }

    /// Hears all that it is owed, and told before the answer to a `PING`; the last answer before.
    ///
    /// # Errors
    /// When the connection ends.
    pub fn try_hear(&mut self) -> io::Result<Option<Reply>> {
        self.send(&["PING"], Asked::Other)?;
        let mut last = None;
        while !self.asked.is_empty() {
            let reply = self.client.try_read()?;
            if self.asked.len() > 1 && !matches!(reply, Reply::Push(_)) {
                last = Some(reply.clone());
            }
            self.take(reply);
        }
        Ok(last)
    }

    /// Waits for the next message.
    ///
    /// # Panics
    /// When an answer is owed, none comes, or something else does.
    #[track_caller]
    pub fn hear_message(&mut self) {
        assert!(self.asked.is_empty(), "answers come first");
        let message = self.client.read();
        assert!(matches!(message, Reply::Push(_)), "{message:?}");
        self.take(message);
    }

    /// Reads a key and keeps what comes.
    ///
    /// # Panics
    /// When the connection ends.
    #[track_caller]
    pub fn get(&mut self, key: &str) -> Reply {
        let came = self.try_get(key).and_then(|()| self.try_hear());
        came.unwrap_or_else(|error| panic!("{key}: {error}")).expect("an answer")
    }

    fn take(&mut self, reply: Reply) {
        if let Reply::Push(parts) = &reply {
            assert_eq!(parts.first(), Some(&Reply::bulk("invalidate")), "{reply:?}");
            self.told += 1;
            match &parts[1] {
                Reply::Null => self.keeps.clear(),
                Reply::Array(keys) => {
                    let keys = keys.iter().filter_map(Reply::text);
                    keys.for_each(|key| drop(self.keeps.remove(key)));
                }
                other => panic!("{other:?} are no keys"),
            }
            return;
        }
        match self.asked.pop_front() {
            Some(Asked::Read(key)) if !matches!(reply, Reply::Error(_)) => {
                self.keeps.insert(key, reply);
            }
            Some(Asked::Write(key)) if self.forgets_own => drop(self.keeps.remove(&key)),
            Some(_) => {}
            None => panic!("nobody asked for {reply:?}"),
        }
    }

    /// What it keeps that is not so, as another client reads it.
    ///
    /// # Errors
    /// When the connection ends.
    pub fn try_stale(&mut self, other: &mut Client) -> io::Result<Vec<String>> {
        self.try_hear()?;
        let mut stale = Vec::new();
        for (key, kept) in &self.keeps {
            let is = other.try_ask(&["GET", key])?;
            if is != *kept {
                stale.push(format!("{key}: {kept:?} is kept, {is:?} is so"));
            }
        }
        Ok(stale)
    }
}
