//! Clients within the process: the same sessions, without a socket between.
//!
//! An application in Rust that runs the service itself saves the hop to a proxy: its commands go
//! through a pipe in memory to the service's thread, from there straight to the duplicates. It is
//! the arrangement of the paper, whose multicast is a library of the client (Zoolander, section
//! 3.2); what is decided is decided by the same lines as for a client of Redis.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;

use tokio::io::{AsyncWriteExt as _, DuplexStream};

use evenkeel_runtime::accept::Dialer;
use evenkeel_store_link::inbox::Inbox;
use evenkeel_stores::resp::encode;
use evenkeel_stores::resp::reply::{ReplyScanner, integer, payload};

/// Opens sessions with one service; from any thread. They count among its clients.
#[derive(Clone, Debug)]
pub struct SessionOpener(pub(super) Dialer);

impl SessionOpener {
    /// A session. It speaks RESP3 and is as consistent as the service's configuration says.
    ///
    /// # Errors
    /// When the service has ended, or wants a password that is not this one.
    pub async fn enter(&self, password: Option<&str>) -> io::Result<Session> {
        let ended = |_| io::Error::other("the service of duplicates has ended");
        let stream = self.0.connect().map_err(ended)?;
        let mut session = Session { stream, inbox: Inbox::default(), waiting: 0 };
        let hello = match password {
            Some(password) => {
                session.ask(&[b"HELLO", b"3", b"AUTH", b"default", password.as_bytes()]).await
            }
            None => session.ask(&[b"HELLO", b"3"]).await,
        };
        hello.map(|_| session)
    }
}

/// One session: what it wrote it sees. Commands may be sent before earlier ones are answered.
#[derive(Debug)]
pub struct Session {
    stream: DuplexStream,
    inbox: Inbox,
    /// Commands without an answer yet.
    waiting: usize,
}

impl Session {
    /// Sends a command; [`Session::receive`] has its answer, after those of earlier ones.
    ///
    /// # Errors
    /// When the service has ended or cut this session off.
    pub async fn send(&mut self, command: &[&[u8]]) -> io::Result<()> {
        let mut bytes = Vec::new();
        encode::command(&mut bytes, command);
        self.stream.write_all(&bytes).await?;
        self.waiting += 1;
        Ok(())
    }

    /// The next answer, as RESP3 has it; [`evenkeel_stores::resp::reply`] takes it apart.
    ///
    /// # Errors
    /// When the service has ended; an answer that is an error, with its words.
    ///
    /// # Panics
    /// When nothing was sent: it would wait for ever.
    pub async fn receive(&mut self) -> io::Result<Vec<u8>> {
        assert!(self.waiting > 0, "an answer to nothing");
        let mut scanner = ReplyScanner::default();
        loop {
            let scanned = scanner.scan(self.inbox.filled()).map_err(io::Error::other)?;
            if let Some(length) = scanned {
                let reply = self.inbox.filled()[..length].to_vec();
                self.inbox.consume(length);
                self.waiting -= 1;
                return match reply.first() {
                    Some(b'-' | b'!') => {
                        let words = payload(&reply).unwrap_or_default();
                        Err(io::Error::other(String::from_utf8_lossy(words).into_owned()))
                    }
                    _ => Ok(reply),
                };
            }
            let (inbox, stream) = (&mut self.inbox, &mut self.stream);
            let count = poll_fn(|context| inbox.poll_read(Pin::new(stream), context)).await?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// One command and its answer.
    ///
    /// # Errors
    /// As [`Session::send`] and [`Session::receive`].
    ///
    /// # Panics
    /// When answers to earlier commands were not received.
    pub async fn ask(&mut self, command: &[&[u8]]) -> io::Result<Vec<u8>> {
        assert_eq!(self.waiting, 0, "earlier answers come first");
        self.send(command).await?;
        self.receive().await
    }

    /// Several commands in one go, and their answers in order; an answer that is an error is one.
    ///
    /// # Errors
    /// When the service has ended or cut this session off.
    ///
    /// # Panics
    /// When answers to earlier commands were not received.
    pub async fn ask_all(
        &mut self,
        commands: &[&[&[u8]]],
    ) -> io::Result<VecDeque<io::Result<Vec<u8>>>> {
        assert_eq!(self.waiting, 0, "earlier answers come first");
        let mut answers = VecDeque::new();
        for part in commands.chunks(64) {
            for command in part {
                self.send(command).await?;
            }
            for _ in part {
                let answer = self.receive().await;
                let is_cut = |error: &io::Error| error.kind() != io::ErrorKind::Other;
                if answer.as_ref().is_err_and(is_cut) {
                    return answer.map(|_| answers);
                }
                answers.push_back(answer);
            }
        }
        Ok(answers)
    }

    /// The value of a key; `None` = there is none.
    ///
    /// # Errors
    /// As [`Session::ask`].
    pub async fn value(&mut self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let reply = self.ask(&[b"GET", key]).await?;
        Ok(payload(&reply).map(<[u8]>::to_vec))
    }

    /// Gives a key a value.
    ///
    /// # Errors
    /// As [`Session::ask`].
    pub async fn store(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.ask(&[b"SET", key, value]).await.map(drop)
    }

    /// Removes a key; whether it was there.
    ///
    /// # Errors
    /// As [`Session::ask`].
    pub async fn remove(&mut self, key: &[u8]) -> io::Result<bool> {
        let reply = self.ask(&[b"DEL", key]).await?;
        Ok(integer(&reply) == Some(1))
    }

    /// What this session has seen, for [`Session::adopt`] of another.
    ///
    /// # Errors
    /// As [`Session::ask`].
    pub async fn token(&mut self) -> io::Result<Vec<u8>> {
        let reply = self.ask(&[b"EK.TOKEN"]).await?;
        Ok(payload(&reply).unwrap_or_default().to_vec())
    }

    /// Sees at least what the session of this token had seen.
    ///
    /// # Errors
    /// As [`Session::ask`]; a token of another history is `STALE`.
    pub async fn adopt(&mut self, token: &[u8]) -> io::Result<()> {
        self.ask(&[b"EK.SESSION", token]).await.map(drop)
    }
}
