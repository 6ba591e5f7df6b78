//! A connection to one server, for requests one after another.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::super::talk::{lost, within};
use super::wire::{Frame, next};
use crate::clients::error::RemoteError;

/// A connection. Every request ends within a time; after an error it is of no more use.
#[derive(Debug)]
pub struct Session {
    server: String,
    deadline: Duration,
    stream: TcpStream,
    /// What came and is not read yet; a frame at most, and what came with its end.
    unread: Vec<u8>,
    version: (u32, u32),
    inbox: String,
    asked: u64,
}

impl Session {
    /// Connects.
    ///
    /// # Errors
    /// When there is no answer in time, the server wants TLS, or it does not let us in.
    pub async fn open(
        server: &str,
        deadline: Duration,
        user: Option<&(String, String)>,
    ) -> Result<Self, RemoteError> {
        let opened = within(server, deadline, async {
            let stream = TcpStream::connect(server).await.map_err(|error| {
                let likely = "is it running, and is this its address?";
                RemoteError::passing(format!("{server}: {error} ({likely})"))
            })?;
            stream.set_nodelay(true).map_err(|error| lost(server, &error))?;
            let mut session = Self {
                server: server.to_owned(),
                deadline,
                stream,
                unread: Vec::new(),
                version: (0, 0),
                inbox: String::new(),
                asked: 0,
            };
            session.greet(user).await?;
            Ok(session)
        });
        opened.await
    }

    /// The server's version, major and minor.
    pub const fn version(&self) -> (u32, u32) {
        self.version
    }

    /// A request and its answer.
    ///
    /// # Errors
    /// When nobody answers in time.
    pub async fn ask(&mut self, subject: &str, payload: &[u8]) -> Result<Vec<u8>, RemoteError> {
        let server = self.server.clone();
        within(&server, self.deadline, self.exchange(subject, payload)).await
    }

    async fn greet(&mut self, user: Option<&(String, String)>) -> Result<(), RemoteError> {
        let Frame::Info(info) = self.frame().await? else {
            let message = format!("{}: it does not begin with INFO", self.server);
            return Err(RemoteError::passing(message));
        };
        if info.get("tls_required") == Some(&Value::Bool(true)) {
            let message = format!("{}: it wants TLS, not spoken here", self.server);
            return Err(RemoteError::passing(message));
        }
        let text = |key: &str| info.get(key).and_then(Value::as_str).unwrap_or_default();
        let mut version = text("version").split('.').map_while(|part| part.parse().ok());
        self.version = (version.next().unwrap_or(0), version.next().unwrap_or(0));
        // The number of a connection is the server's own, so both together are nobody else's.
        let number = info.get("client_id").and_then(Value::as_u64).unwrap_or_default();
        let name = |letter: &char| letter.is_ascii_alphanumeric();
        let server: String = text("server_id").chars().filter(name).take(64).collect();
        self.inbox = format!("_INBOX.evenkeel.{server}.{number}");
        let mut connect = json!({
            "verbose": false, "pedantic": false, "tls_required": false, "lang": "rust",
            "version": env!("CARGO_PKG_VERSION"), "protocol": 1, "headers": true,
            "no_responders": true, "name": "evenkeel",
        });
        if let Some((name, password)) = user {
            connect["user"] = json!(name);
            connect["pass"] = json!(password);
        }
        let hello = format!("CONNECT {connect}\r\nSUB {}.* 1\r\nPING\r\n", self.inbox);
        self.send(hello.as_bytes()).await?;
        loop {
            match self.frame().await? {
                Frame::Pong => return Ok(()),
                Frame::Refused(why) => {
                    return Err(RemoteError::passing(format!("{}: {why}", self.server)));
                }
                _ => {}
            }
        }
    }

    async fn exchange(&mut self, subject: &str, payload: &[u8]) -> Result<Vec<u8>, RemoteError> {
        self.asked += 1;
        let inbox = format!("{}.{}", self.inbox, self.asked);
        let mut bytes = format!("PUB {subject} {inbox} {}\r\n", payload.len()).into_bytes();
        bytes.extend(payload);
        bytes.extend(b"\r\n");
        self.send(&bytes).await?;
        loop {
            match self.frame().await? {
                Frame::Message { subject: to, status: Some(503), .. } if to == inbox => {
                    let message = format!("{}: nobody answers {subject}", self.server);
                    return Err(RemoteError::passing(message));
                }
                Frame::Message { subject: to, payload, .. } if to == inbox => return Ok(payload),
                Frame::Refused(why) => {
                    return Err(RemoteError::lasting(format!("{}: {why}", self.server)));
                }
                _ => {}
            }
        }
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), RemoteError> {
        self.stream.write_all(bytes).await.map_err(|error| lost(&self.server, &error))
    }

    /// The next frame; pings are answered.
    async fn frame(&mut self) -> Result<Frame, RemoteError> {
        loop {
            let read = next(&self.unread)
                .map_err(|error| RemoteError::passing(format!("{}: {error}", self.server)))?;
            match read {
                Some((frame, used)) => {
                    self.unread.drain(..used);
                    if frame != Frame::Ping {
                        return Ok(frame);
                    }
                    self.send(b"PONG\r\n").await?;
                }
                None => {
                    let read = self.stream.read_buf(&mut self.unread).await;
                    match read.map_err(|error| lost(&self.server, &error))? {
                        0 => return Err(lost(&self.server, &"it closed the connection")),
                        _ => continue,
                    }
                }
            }
        }
    }
}
