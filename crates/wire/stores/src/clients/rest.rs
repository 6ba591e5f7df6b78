//! JSON over HTTP/1.1, and over TLS where the URL says `https`.
//!
//! For the few requests of a control loop: one connection for each, unless a caller keeps the last
//! one ([`Client::call_on`]) or a [`Session`]. Every request ends within a time. Needs a worker's
//! runtime ([`worker_runtime`](evenkeel_runtime::accept::worker_runtime)).

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use evenkeel_runtime::pem;
use evenkeel_settings::{Mismatch, Setting};
use http::{Method, Request, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls_pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;

use crate::clients::error::RemoteError;

/// More than any answer of a control interface has.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// Where a server is: `http://host:port` or `https://host:port`, without a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    host: String,
    port: u16,
    is_tls: bool,
}

impl Endpoint {
    /// Reads a URL.
    ///
    /// # Errors
    /// When it has no scheme, host or port, or a path or user.
    pub fn parse(url: &str) -> Result<Self, ClientError> {
        let wrong = || ClientError::Url(url.to_owned());
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong()),
        };
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(ClientError::UserInUrl);
        }
        let host = uri.host().ok_or_else(wrong)?.to_owned();
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(wrong());
        }
        Ok(Self { host, port: uri.port_u16().ok_or_else(wrong)?, is_tls })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}:{}", self.host, self.port)
    }
}

/// Why a client cannot be made of what was configured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// This is no URL of a server.
    #[error("\"{0}\": http://host:port or https://host:port was expected")]
    Url(String),
    /// The URL names a user.
    #[error(
        "http://host:port was expected, without user and password in it: they have keys of their \
         own"
    )]
    UserInUrl,
    /// A file cannot be read or is not what it should be; the error names it.
    #[error("{0}")]
    File(#[from] io::Error),
}

/// Whom to believe and who to be on `https`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TlsFiles<'a> {
    /// Certificates of the authorities that servers are believed by, PEM.
    pub authority: &'a Path,
    /// The own certificate and its key, PEM, where servers want one.
    pub identity: Option<(&'a Path, &'a Path)>,
}

/// How requests are made.
#[derive(Clone)]
pub struct Client {
    /// From its beginning to the last byte of the answer.
    deadline: Duration,
    tls: Option<TlsConnector>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client within {:?}, TLS: {}", self.deadline, self.tls.is_some())
    }
}

/// What came back.
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The body; null when it is empty, a string when it is no JSON.
    pub body: Value,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// Such as POST.
    pub method: Method,
    /// From its first slash.
    pub path: &'a str,
    /// What is sent as JSON.
    pub body: Option<&'a Value>,
    /// The header of this name.
    pub authorization: Option<&'a str>,
}

impl<'a> Call<'a> {
    /// A POST.
    pub const fn post(path: &'a str, body: &'a Value) -> Self {
        Self { method: Method::POST, path, body: Some(body), authorization: None }
    }

    /// A GET.
    pub const fn get(path: &'a str) -> Self {
        Self { method: Method::GET, path, body: None, authorization: None }
    }
}

impl Client {
    /// Without TLS: servers must be `http`.
    pub const fn plain(deadline: Duration) -> Self {
        Self { deadline, tls: None }
    }

    /// With TLS 1.3 for servers that are `https`.
    ///
    /// # Errors
    /// When a file cannot be read or is not what it should be, with its path.
    pub fn with_tls(deadline: Duration, files: TlsFiles<'_>) -> Result<Self, ClientError> {
        let roots = pem::roots(files.authority, &pem::read(files.authority)?)?;
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("the provider has TLS 1.3")
            .with_root_certificates(roots);
        let config = match files.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = pem::certificates(certificate, &pem::read(certificate)?)?;
                let key = pem::key(key, &pem::read(key)?)?;
                let wrong = |error: rustls::Error| pem::at(certificate, &error.to_string());
                builder.with_client_auth_cert(chain, key).map_err(wrong)?
            }
        };
        Ok(Self { deadline, tls: Some(TlsConnector::from(Arc::new(config))) })
    }

    /// One request on a connection of its own.
    ///
    /// # Errors
    /// When no whole answer comes in time; a status that says no is an answer.
    pub async fn call(&self, server: &Endpoint, call: Call<'_>) -> Result<Answer, RemoteError> {
        self.within(server, async { Session::open(self, server).await?.exchange(call).await }).await
    }

    /// One request on the connection that the last one has left, if that is open still; it is kept
    /// for the next one if there is an answer. Requests at the same time have their own.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn call_on(
        &self,
        kept: &RefCell<Option<Session>>,
        server: &Endpoint,
        call: Call<'_>,
    ) -> Result<Answer, RemoteError> {
        let exchange = async {
            let mut session = match kept.take().filter(Session::is_open) {
                Some(session) => session,
                None => Session::open(self, server).await?,
            };
            let answer = session.exchange(call).await?;
            kept.replace(Some(session));
            Ok(answer)
        };
        self.within(server, exchange).await
    }

    /// Runs a request with the time limit.
    async fn within<T>(
        &self,
        server: &Endpoint,
        exchange: impl Future<Output = Result<T, RemoteError>>,
    ) -> Result<T, RemoteError> {
        let late =
            || RemoteError::passing(format!("{server}: no answer within {:?}", self.deadline));
        tokio::time::timeout(self.deadline, exchange).await.unwrap_or_else(|_| Err(late()))
    }
}

/// A connection that is kept for many requests, one after another.
#[derive(Debug)]
pub struct Session {
    client: Client,
    server: Endpoint,
    sender: SendRequest<Full<Bytes>>,
    driver: AbortHandle,
}

impl Session {
    /// Connects.
    ///
    /// # Errors
    /// When that does not succeed in time.
    pub async fn connect(client: &Client, server: &Endpoint) -> Result<Self, RemoteError> {
        client.within(server, Self::open(client, server)).await
    }

    /// One request. After an error the session is of no more use.
    ///
    /// # Errors
    /// When no whole answer comes in time.
    pub async fn call(&mut self, call: Call<'_>) -> Result<Answer, RemoteError> {
        let (client, server) = (self.client.clone(), self.server.clone());
        client.within(&server, self.exchange(call)).await
    }

    /// Whether the server has not closed it, as far as that is known.
    pub fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    async fn open(client: &Client, server: &Endpoint) -> Result<Self, RemoteError> {
        let failed = |error: &dyn fmt::Display| {
            RemoteError::passing(format!(
                "{server}: {error} (is it running, and is this its address?)"
            ))
        };
        let host = server.host.trim_start_matches('[').trim_end_matches(']');
        let stream =
            TcpStream::connect((host, server.port)).await.map_err(|error| failed(&error))?;
        stream.set_nodelay(true).map_err(|error| failed(&error))?;
        if !server.is_tls {
            return Self::over(client, server, stream).await;
        }
        let Some(tls) = &client.tls else {
            let message = format!("{server}: https needs a CA certificate");
            return Err(RemoteError::lasting(message));
        };
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| RemoteError::lasting(format!("{server}: {error}")))?;
        let stream = tls.connect(name, stream).await.map_err(|error| failed(&error))?;
        Self::over(client, server, stream).await
    }

    async fn over<S>(client: &Client, server: &Endpoint, stream: S) -> Result<Self, RemoteError>
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| RemoteError::passing(format!("{server}: {error}")))?;
        // How the connection ends shows in the requests on it.
        let driver = tokio::task::spawn_local(async { drop(connection.await) }).abort_handle();
        Ok(Self { client: client.clone(), server: server.clone(), sender, driver })
    }

    async fn exchange(&mut self, call: Call<'_>) -> Result<Answer, RemoteError> {
        let Endpoint { host, port, .. } = &self.server;
        let mut request = Request::builder()
            .method(call.method)
            .uri(call.path)
            .header(header::HOST, format!("{host}:{port}"))
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = call.authorization {
            request = request.header(header::AUTHORIZATION, token);
        }
        let body = call.body.map(Value::to_string).unwrap_or_default();
        let server = &self.server;
        let request = request
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| RemoteError::lasting(format!("{server}: {error}")))?;
        let broken = |error: &dyn fmt::Display| {
            RemoteError::passing(format!("{server}: {error} (did the connection break?)"))
        };
        self.sender.ready().await.map_err(|error| broken(&error))?;
        let answer = self.sender.send_request(request).await.map_err(|error| broken(&error))?;
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        let bytes = body.map_err(|error| broken(&error))?.to_bytes();
        let text = || Value::String(String::from_utf8_lossy(&bytes).trim().to_owned());
        let body = match &bytes[..] {
            [] => Value::Null,
            bytes => serde_json::from_slice(bytes).unwrap_or_else(|_| text()),
        };
        Ok(Answer { status, body })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Where a server is; `https` needs somebody to believe.
pub fn url(setting: Setting<'_>, has_authority: bool) -> String {
    let expected = "http://host:port or https://host:port, without a path";
    let parse = |text: &str| match Endpoint::parse(text) {
        Ok(_) if text.starts_with("https:") && !has_authority => {
            let hint = "set ca_file = \"FILE\"";
            Err(Mismatch::new(format!("{text:?}"), "a ca_file for https").with_hint(hint))
        }
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err(Mismatch::new(format!("{text:?}"), expected)),
    };
    setting.parsed(expected, String::new(), parse).required()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_scheme_a_host_and_a_port_and_no_path() {
        let read = Endpoint::parse("https://store.example:2379/").unwrap();
        assert_eq!(read.to_string(), "https://store.example:2379");
        for wrong in ["store:2379", "ftp://a:1", "http://a", "http://a:1/v3", "http://a:1/?x=1"] {
            let error = Endpoint::parse(wrong).unwrap_err().to_string();
            assert!(error.contains(wrong) && error.contains("http://host:port"), "{error}");
        }
    }
}
