//! Why an attempt at a replica brought no answer.

use evenkeel_settings::address::ServerAddress;
use std::error::Error;
use std::fmt;
use std::io;

use http::StatusCode;

use super::answer::Failure;
use super::body::{Body, BodyError};
use super::message::Request;

/// Why an attempt brought no response head.
#[derive(Debug)]
pub struct SendError {
    kind: SendErrorKind,
    address: ServerAddress,
    request: Option<Box<Request<Body>>>,
    reused: bool,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// Kinds of failed attempts. Only [`SendErrorKind::Busy`] and [`SendErrorKind::RequestBody`]
/// are not the replica's doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendErrorKind {
    /// The connection could not be opened.
    Connect,
    /// The connection did not open in time.
    ConnectTimeout,
    /// This worker has as many connections to the replica as it may.
    Busy,
    /// The replica closed or reset the connection before it answered.
    Reset,
    /// The replica answered something that is not an acceptable HTTP response head.
    Malformed,
    /// The replica broke off between the head of its response and the body.
    Body,
    /// The client's request body broke off or was too long.
    RequestBody,
}

impl SendError {
    /// What went wrong.
    pub fn kind(&self) -> SendErrorKind {
        self.kind
    }

    /// The replica that was asked.
    pub fn address(&self) -> ServerAddress {
        self.address
    }

    /// Whether the replica may have seen some of the request; if not, any request is safe to
    /// send again.
    pub fn was_sent(&self) -> bool {
        self.request.is_none()
    }

    /// Whether a kept connection was used: a [`SendErrorKind::Reset`] is then most likely the
    /// end of that connection's idle time and says nothing about the replica's health.
    pub fn was_reused(&self) -> bool {
        self.reused
    }

    /// Whether nobody listens at the replica's address, or there is no such path.
    pub fn is_refused(&self) -> bool {
        let source = self.source.as_deref().and_then(|source| find::<io::Error>(source));
        self.kind == SendErrorKind::Connect
            && source.is_some_and(|error| {
                matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
            })
    }

    /// Whether it is there, and TLS could not be agreed on.
    pub fn is_of_tls(&self) -> bool {
        let source = self.source.as_deref().and_then(|source| find::<io::Error>(source));
        source.is_some_and(|error| error.kind() == io::ErrorKind::InvalidData)
    }

    /// The request, if none of it was sent.
    pub fn into_request(self) -> Option<Request<Body>> {
        self.request.map(|request| *request)
    }

    /// The status that tells the client, if nobody else can answer.
    pub fn status(&self) -> StatusCode {
        match self.kind {
            SendErrorKind::ConnectTimeout => StatusCode::GATEWAY_TIMEOUT,
            SendErrorKind::Busy => StatusCode::SERVICE_UNAVAILABLE,
            SendErrorKind::RequestBody => match self.body_error() {
                Some(BodyError::TooLarge { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
                _ => StatusCode::BAD_REQUEST,
            },
            SendErrorKind::Connect
            | SendErrorKind::Reset
            | SendErrorKind::Malformed
            | SendErrorKind::Body => StatusCode::BAD_GATEWAY,
        }
    }

    pub(super) fn new(kind: SendErrorKind, address: ServerAddress) -> SendError {
        SendError { kind, address, request: None, reused: false, source: None }
    }

    pub(super) fn because(self, source: impl Into<Box<dyn Error + Send + Sync>>) -> SendError {
        SendError { source: Some(source.into()), ..self }
    }

    pub(super) fn of(failure: Failure, address: ServerAddress) -> SendError {
        let (kind, cause, request) = match failure {
            Failure::Unsent(request, cause) => (SendErrorKind::Reset, cause, Some(request)),
            Failure::Reset(cause) => (SendErrorKind::Reset, cause, None),
            Failure::Malformed(cause) => (SendErrorKind::Malformed, cause, None),
            Failure::RequestBody(cause) => (SendErrorKind::RequestBody, cause, None),
        };
        SendError { request, ..SendError::new(kind, address).because(cause) }
    }

    /// The same, of a kept connection.
    pub(super) fn on_reused(self) -> SendError {
        SendError { reused: true, ..self }
    }

    /// The same, with a request of which nothing was processed.
    pub(super) fn with_unsent(self, request: Option<Request<Body>>) -> SendError {
        SendError { request: request.map(Box::new), ..self }
    }

    fn body_error(&self) -> Option<&BodyError> {
        find(self.source.as_deref()?)
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SendError { kind, address, source, .. } = self;
        let cause = source.as_deref().map(innermost);
        let cause = cause.as_deref().unwrap_or("no details");
        match kind {
            SendErrorKind::Connect if self.is_of_tls() => {
                write!(f, "replica {address}: no TLS: {cause}")
            }
            SendErrorKind::Connect => write!(f, "replica {address}: {cause} (is it running?)"),
            SendErrorKind::ConnectTimeout => {
                write!(f, "replica {address}: no connection {cause} (host down, or a firewall?)")
            }
            SendErrorKind::Busy => {
                write!(f, "replica {address}: all {cause} connections of this worker are in use")
            }
            SendErrorKind::Reset => {
                let when = if self.reused { "a kept connection" } else { "a new connection" };
                write!(f, "replica {address}: {when} broke before the answer: {cause}")
            }
            SendErrorKind::Malformed => {
                write!(f, "replica {address}: no HTTP response head: {cause}")
            }
            SendErrorKind::Body => {
                write!(f, "replica {address}: broke off after the response head: {cause}")
            }
            SendErrorKind::RequestBody => write!(f, "request to replica {address}: {cause}"),
        }
    }
}

impl Error for SendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// The error and its causes, outermost first.
fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}

/// The first error of type `E` among the causes.
pub(super) fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    chain(error).find_map(|error| error.downcast_ref())
}

/// What the last cause says; the ones before it mostly say "error".
fn innermost(error: &(dyn Error + Send + Sync + 'static)) -> String {
    match find::<io::Error>(error).map(io::Error::kind) {
        Some(io::ErrorKind::ConnectionRefused) => "connection refused".to_owned(),
        Some(io::ErrorKind::ConnectionReset) => "connection reset".to_owned(),
        _ => chain(error).last().map_or_else(String::new, ToString::to_string),
    }
}
