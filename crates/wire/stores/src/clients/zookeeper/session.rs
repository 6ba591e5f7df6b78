//! A session with one server of an ensemble.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::super::talk::{lost, within};
use super::wire::{
    Credentials, MESSAGE_BYTES_MAX, Request, STATUS_BYTES_MAX, Status, connect, connected,
    error_of_code, reply, status,
};
use crate::clients::error::RemoteError;

/// Messages that a server may send unasked before the reply that is waited for.
const UNASKED_MAX: usize = 64;

/// A connection on which a session lives. Every request ends within a time; after an error that is
/// no answer the connection is of no more use, the session may go on elsewhere.
#[derive(Debug)]
pub struct Session {
    server: String,
    stream: TcpStream,
    deadline: Duration,
    xid: i32,
    credentials: Credentials,
}

/// Why a request has no result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The server answered with this error.
    Code(i32),
    /// There was no answer.
    Lost(RemoteError),
}

impl Refusal {
    /// In words, of one server.
    pub fn at(self, server: &str) -> RemoteError {
        match self {
            Self::Lost(error) => error,
            Self::Code(code) => {
                let RemoteError { message, may_pass } = error_of_code(code);
                RemoteError { message: format!("{server}: {message}"), may_pass }
            }
        }
    }
}

impl Session {
    /// Connects, for a new session or to go on with one.
    ///
    /// # Errors
    /// When there is no answer in time (which may pass), or the session has ended (which does not).
    pub async fn open(
        server: &str,
        deadline: Duration,
        timeout: Duration,
        resumed: &Credentials,
    ) -> Result<Self, RemoteError> {
        let opened = within(server, deadline, async {
            let mut stream = reach(server).await?;
            let sent = stream.write_all(&connect(timeout, resumed)).await;
            sent.map_err(|error| lost(server, &error))?;
            let answer = message(server, &mut stream).await?;
            let session = connected(&answer).map_err(|error| lost(server, &error))?;
            Ok((stream, session))
        });
        let (stream, session) = opened.await?;
        let ended = || RemoteError::lasting(format!("{server}: the session has ended"));
        let credentials = session.ok_or_else(ended)?;
        Ok(Self { server: server.to_owned(), stream, deadline, xid: 0, credentials })
    }

    /// Where it is.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// What it takes to go on with it elsewhere.
    pub const fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// One request; the body of its reply.
    ///
    /// # Errors
    /// What the server refused with, or that it did not answer.
    pub async fn ask(&mut self, request: Request<'_>) -> Result<Vec<u8>, Refusal> {
        self.xid = self.xid.wrapping_add(1).max(1);
        let xid = request.xid(self.xid);
        let Self { server, stream, deadline, .. } = self;
        let answered = within(server, *deadline, async {
            let sent = stream.write_all(&request.encode(xid)).await;
            sent.map_err(|error| lost(server, &error))?;
            for _ in 0..UNASKED_MAX {
                let answer = message(server, stream).await?;
                let reply = reply(&answer).map_err(|error| lost(server, &error))?;
                if reply.xid == xid {
                    return Ok((reply.error, reply.body.to_vec()));
                }
            }
            let message = format!("{server}: {UNASKED_MAX} messages came that answer nothing");
            Err(RemoteError::passing(message))
        });
        match answered.await {
            Ok((0, body)) => Ok(body),
            Ok((code, _)) => Err(Refusal::Code(code)),
            Err(error) => Err(Refusal::Lost(error)),
        }
    }

    /// Ends the session; whether the server confirmed that. Otherwise it ends by itself, some time
    /// later.
    pub async fn close(mut self) -> bool {
        self.ask(Request::Close).await.is_ok()
    }
}

/// Asks a server what it does (`srvr`, which servers answer by default).
///
/// # Errors
/// When it does not answer in time, or does not serve.
pub async fn ask_status(server: &str, deadline: Duration) -> Result<Status, RemoteError> {
    within(server, deadline, async {
        let mut stream = reach(server).await?;
        stream.write_all(b"srvr").await.map_err(|error| lost(server, &error))?;
        let mut text = Vec::new();
        let most = STATUS_BYTES_MAX as u64;
        let read = stream.take(most).read_to_end(&mut text).await;
        read.map_err(|error| lost(server, &error))?;
        status(&String::from_utf8_lossy(&text))
            .map_err(|error| RemoteError::passing(format!("{server}: {error}")))
    })
    .await
}

async fn reach(server: &str) -> Result<TcpStream, RemoteError> {
    let stream = TcpStream::connect(server).await.map_err(|error| {
        RemoteError::passing(format!("{server}: {error} (is it running, and is this its address?)"))
    })?;
    stream.set_nodelay(true).map_err(|error| lost(server, &error))?;
    Ok(stream)
}

/// One message of a server, without its length.
async fn message(server: &str, stream: &mut TcpStream) -> Result<Vec<u8>, RemoteError> {
    let length = stream.read_u32().await.map_err(|error| lost(server, &error))?;
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > MESSAGE_BYTES_MAX {
        return Err(RemoteError::passing(format!(
            "{server}: a message of {length} bytes came, at most {MESSAGE_BYTES_MAX} were expected \
             (is it ZooKeeper?)"
        )));
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await.map_err(|error| lost(server, &error))?;
    Ok(bytes)
}
