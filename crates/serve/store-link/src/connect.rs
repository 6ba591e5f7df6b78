//! Reaching one duplicate, and asking it things before it is used.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use crate::inbox::Inbox;
use evenkeel_duplicates_config::Connector;
use evenkeel_duplicates_config::access::Login;
use evenkeel_runtime::dial::dial;
use evenkeel_stores::resp::encode;
use evenkeel_stores::resp::reply::{ReplyScanner, elements, field, payload};
use evenkeel_stores::store::keys::SET_ACROSS_SLOTS;

/// How long a connection, and each answer before it is used, may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long it may take to empty a duplicate, or to list its keys.
const LONG_PATIENCE: Duration = Duration::from_secs(60);

/// What bytes go over: TCP, encrypted or not, or a pipe to a store in this process.
pub trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

/// A connection that is asked one thing after the other.
pub struct Link {
    stream: Box<dyn Stream>,
    inbox: Inbox,
    address: String,
    patience: Duration,
    /// What it said of itself.
    hello: Vec<u8>,
}

/// Connects, speaks RESP3 and says who we are: `label` is the connection's name there.
///
/// # Errors
/// When it is not reached within 2 s, or answers something else than a Redis.
pub async fn connect(connector: &Connector, label: &str) -> io::Result<Link> {
    let mut link = reach(connector).await?;
    link.greet(connector, label).await?;
    Ok(link)
}

/// Connects and says nothing.
///
/// # Errors
/// When it is not reached within 2 s.
pub async fn reach(connector: &Connector) -> io::Result<Link> {
    let stream: Box<dyn Stream> = match connector {
        Connector::Host(host) => Box::new(host.connect()?),
        Connector::Remote(remote) => Box::new(remote.host().await?.connect()?),
        Connector::Tcp { address, tls, .. } => {
            let connecting = dial(*address, tls.as_ref());
            let connected = tokio::time::timeout(PATIENCE, connecting).await;
            let stream = connected.map_err(|_| io::ErrorKind::TimedOut.into()).and_then(|it| it);
            Box::new(stream.map_err(|error| {
                let cause = match (tls, error.kind()) {
                    (None, _) => "is it running?",
                    (Some(_), io::ErrorKind::ConnectionRefused) => "is its TLS port open?",
                    (Some(_), _) => "does it speak TLS there, by a certificate of store_tls.ca?",
                };
                io::Error::new(error.kind(), format!("{address}: {error} ({cause})"))
            })?)
        }
    };
    Ok(Link {
        stream,
        inbox: Inbox::default(),
        address: connector.to_string(),
        patience: PATIENCE,
        hello: Vec::new(),
    })
}

/// What is said first: who we are, if that is asked.
pub fn hello(connector: &Connector) -> Vec<&[u8]> {
    let mut hello: Vec<&[u8]> = vec![b"HELLO", b"3"];
    if let Some(Login { user, password }) = connector.login() {
        hello.extend([b"AUTH", user.as_bytes(), password.as_bytes()]);
    }
    hello
}

impl Link {
    async fn greet(&mut self, connector: &Connector, label: &str) -> io::Result<()> {
        let hello = hello(connector);
        let reply = self.ask(&hello).await?;
        if reply.first() == Some(&b'-') {
            return Err(self.unexpected(&hello[..1], &reply));
        }
        self.hello = reply;
        self.expect_ok(&[b"CLIENT", b"SETNAME", label.as_bytes()]).await
    }

    /// Sends one command and waits for its answer, which may be an error of Redis.
    ///
    /// # Errors
    /// When no whole answer comes in time: 2 s, unless [`Link::wait_long`] or [`Link::wait_for`]
    /// gave it longer.
    pub async fn ask(&mut self, command: &[&[u8]]) -> io::Result<Vec<u8>> {
        let mut answers = self.ask_each(&[command]).await?;
        Ok(answers.pop().expect("each has an answer"))
    }

    /// Sends commands in the same bytes and waits for all of their answers.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub async fn ask_each<'a, C: AsRef<[&'a [u8]]>>(
        &mut self,
        commands: &[C],
    ) -> io::Result<Vec<Vec<u8>>> {
        let mut bytes = Vec::new();
        commands.iter().for_each(|command| encode::command(&mut bytes, command.as_ref()));
        let patience = self.patience;
        let asked = async {
            self.stream.write_all(&bytes).await?;
            self.stream.flush().await?;
            let mut answers = Vec::with_capacity(commands.len());
            for _ in commands {
                answers.push(self.answer().await?);
            }
            Ok(answers)
        };
        match tokio::time::timeout(patience, asked).await {
            Ok(answers) => answers,
            Err(_) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!(
                    "{}: no answer to {} within {} s",
                    self.address,
                    String::from_utf8_lossy(commands[0].as_ref()[0]),
                    self.patience.as_secs()
                ),
            )),
        }
    }

    /// Asks for a key's value.
    ///
    /// # Errors
    /// When it does not answer; its own error (`LOADING`, most of the time) is no value.
    pub async fn get(&mut self, key: &[u8]) -> io::Result<Vec<u8>> {
        let reply = self.ask(&[b"GET", key]).await?;
        match reply.first() {
            Some(b'-' | b'!') => Err(io::Error::other(format!(
                "{}: {}",
                self.address,
                String::from_utf8_lossy(&reply).trim_end()
            ))),
            _ => Ok(reply),
        }
    }

    async fn answer(&mut self) -> io::Result<Vec<u8>> {
        let mut scanner = ReplyScanner::default();
        loop {
            let scanned = scanner.scan(self.inbox.filled());
            if let Some(length) = scanned.map_err(io::Error::other)? {
                let reply = self.inbox.filled()[scanner.body()].to_vec();
                self.inbox.consume(length);
                if reply.first() == Some(&b'>') {
                    continue;
                }
                return Ok(reply);
            }
            let (inbox, stream) = (&mut self.inbox, &mut self.stream);
            let count = poll_fn(|context| inbox.poll_read(Pin::new(stream), context)).await?;
            if count == 0 {
                let text = format!("{}: it closed the connection", self.address);
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
            }
        }
    }

    /// Sends a command that must be answered with OK.
    ///
    /// # Errors
    /// When it is answered otherwise, or not at all.
    pub async fn expect_ok(&mut self, command: &[&[u8]]) -> io::Result<()> {
        let reply = self.ask(command).await?;
        if reply == b"+OK\r\n" { Ok(()) } else { Err(self.unexpected(command, &reply)) }
    }

    /// Sends commands as one transaction; false when a watched key has changed, and nothing was
    /// done. Keys that it sets may have any slots, also at a node of Redis Cluster.
    ///
    /// # Errors
    /// When one of them is refused or fails.
    pub async fn transaction(&mut self, commands: &[&[&[u8]]]) -> io::Result<bool> {
        self.expect_ok(&[b"MULTI"]).await?;
        for command in commands {
            let reply = match (self.is_node(), *command) {
                (true, [b"SET", key, value]) => {
                    self.ask(&[b"EVAL", SET_ACROSS_SLOTS, b"0", key, value]).await?
                }
                _ => self.ask(command).await?,
            };
            if reply != b"+QUEUED\r\n" {
                return Err(self.unexpected(command, &reply));
            }
        }
        let reply = self.ask(&[b"EXEC"]).await?;
        if matches!(reply.first(), Some(b'_')) {
            return Ok(false);
        }
        let failed = elements(&reply).find(|element| element.first() == Some(&b'-'));
        if reply.first() != Some(&b'*') || failed.is_some() {
            return Err(self.unexpected(&[b"EXEC"], failed.unwrap_or(&reply)));
        }
        Ok(true)
    }

    fn unexpected(&self, command: &[&[u8]], reply: &[u8]) -> io::Error {
        let came: String = String::from_utf8_lossy(reply).trim_end().chars().take(200).collect();
        let command = String::from_utf8_lossy(command[0]);
        let text = format!("{}: {command} was answered with {came:?}, expected OK", self.address);
        io::Error::other(text)
    }

    /// From now on it is asked what takes longer the more it has: it has 60 s for an answer.
    pub const fn wait_long(&mut self) {
        self.patience = LONG_PATIENCE;
    }

    /// From now on it has so long for an answer.
    pub const fn wait_for(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Its answer to HELLO.
    pub fn hello(&self) -> &[u8] {
        &self.hello
    }

    /// Whether it is a node of a Redis Cluster.
    pub fn is_node(&self) -> bool {
        field(&self.hello, b"mode").and_then(payload) == Some(b"cluster")
    }

    /// Where it is reached, as the configuration says it.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The connection, when nothing is owed on it.
    ///
    /// # Errors
    /// When something came that nobody asked for.
    pub fn into_stream(self) -> io::Result<Box<dyn Stream>> {
        if self.inbox.filled().is_empty() {
            return Ok(self.stream);
        }
        let text = format!("{}: it sent an answer to nothing (is it a Redis?)", self.address);
        Err(io::Error::new(io::ErrorKind::InvalidData, text))
    }
}
