//! The API server: where it is, who we are there, and one request.
//!
//! Every request has a connection of its own, and reads the token and the authority anew: the
//! kubelet replaces a token before it expires, and there are one or two requests in a minute.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use evenkeel_dns::Resolver;
use evenkeel_runtime::dial::dial;
use evenkeel_runtime::tls::{ClientTls, ClientTlsFiles};
use evenkeel_settings::Mismatch;
use evenkeel_settings::address::{HostPort, Target};
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::task::AbortHandle;

use crate::WatchError;

/// Where a pod has its service account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Of an answer that says no, so much is read.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// Of its words, so many characters are told.
const REFUSAL_CHARS_MAX: usize = 300;

/// Tokens have 1 to 2 KiB.
const TOKEN_BYTES_MAX: u64 = 64 << 10;

/// Where the API server is, and who we are there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Api {
    /// That of the cluster of this pod, by its service account.
    OfPod,
    /// Another one.
    At {
        /// Where it is.
        server: Target,
        /// Whether it speaks TLS.
        is_tls: bool,
        /// The file with a bearer token; `None` = without.
        token_file: Option<PathBuf>,
        /// The file with the authorities of its certificate; `None` = those of the system.
        ca: Option<PathBuf>,
    },
}

impl Api {
    /// What [`Api::parse`] expects.
    pub const EXPECTED: &'static str =
        "https://host:port or http://host:port without a path, such as https://10.0.0.1:6443";

    /// Reads a URL: where the server is, and whether it speaks TLS.
    ///
    /// # Errors
    /// With the likely cause.
    pub fn parse(url: &str) -> Result<(Target, bool), Mismatch> {
        let wrong =
            |hint: String| Mismatch::new(format!("{url:?}"), Self::EXPECTED).with_hint(hint);
        let (is_tls, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => return Err(wrong("the scheme is missing".to_owned())),
        };
        let at = rest.strip_suffix('/').unwrap_or(rest);
        if at.contains(['/', '?', '@']) {
            let words = "a path, a query or a user does not belong here";
            return Err(wrong(words.to_owned()));
        }
        let target = Target::parse(at).map_err(|error| wrong(error.to_string()))?;
        Ok((target, is_tls))
    }

    /// The namespace of this pod.
    ///
    /// # Errors
    /// When it is in none.
    pub(crate) fn namespace() -> Result<String, WatchError> {
        let path = Path::new(ACCOUNT).join("namespace");
        let read = read_short(&path).map_err(WatchError::NoNamespace)?;
        Ok(read.trim().to_owned())
    }

    /// As it is now.
    fn look(&self) -> Result<Access, WatchError> {
        let (server, is_tls, token_file, ca) = match self.clone() {
            Self::At { server, is_tls, token_file, ca } => (server, is_tls, token_file, ca),
            Self::OfPod => {
                let [token, ca] = ["token", "ca.crt"].map(|name| Path::new(ACCOUNT).join(name));
                (of_pod()?, true, Some(token), Some(ca))
            }
        };
        let token = token_file.map(|file| bearer(&file)).transpose();
        let token = token.map_err(WatchError::File)?;
        let name = match &server {
            Target::Name(name) => Some(name.host.trim_end_matches('.').to_owned()),
            Target::Address(_) => None,
        };
        let files = ClientTlsFiles { ca, name, identity: None };
        let tls = is_tls.then(|| ClientTls::load(&files, &[b"http/1.1"])).transpose();
        Ok(Access { server, token, tls: tls.map_err(WatchError::File)? })
    }
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OfPod => f.write_str("of this cluster"),
            Self::At { server, .. } => server.fmt(f),
        }
    }
}

fn of_pod() -> Result<Target, WatchError> {
    let variable = |name: &str| std::env::var(name).map_err(|_| WatchError::NoCluster);
    let host = variable("KUBERNETES_SERVICE_HOST")?;
    let port = variable("KUBERNETES_SERVICE_PORT")?;
    let port: u16 = port.parse().map_err(|_| WatchError::NoCluster)?;
    Ok(match host.parse::<IpAddr>() {
        Ok(ip) => Target::Address(SocketAddr::new(ip, port)),
        Err(_) => Target::Name(HostPort { host, port }),
    })
}

fn read_short(path: &Path) -> io::Result<String> {
    use io::Read as _;
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(named)?;
    file.take(TOKEN_BYTES_MAX).read_to_string(&mut text).map_err(named)?;
    Ok(text)
}

/// What a file with a token makes a request say.
fn bearer(path: &Path) -> io::Result<HeaderValue> {
    let token = read_short(path)?;
    let wrong = || {
        let words = format!("{}: no token: it is empty or has several lines", path.display());
        io::Error::new(io::ErrorKind::InvalidData, words)
    };
    let token = Some(token.trim()).filter(|token| !token.is_empty()).ok_or_else(wrong)?;
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| wrong())?;
    value.set_sensitive(true);
    Ok(value)
}

/// What a request needs.
struct Access {
    server: Target,
    token: Option<HeaderValue>,
    tls: Option<ClientTls>,
}

/// An answer that said yes. Its connection ends with it.
pub(crate) struct Answer {
    pub(crate) server: String,
    pub(crate) body: Incoming,
    driver: AbortHandle,
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Answer {
    /// The whole body, of at most so many bytes.
    pub(crate) async fn collect(mut self, bytes_max: usize) -> Result<Bytes, WatchError> {
        let server = self.server.clone();
        let read = Limited::new(&mut self.body, bytes_max).collect().await;
        let broken = |error: Box<dyn std::error::Error + Send + Sync>| WatchError::Broken {
            server,
            error: io::Error::other(error),
        };
        Ok(read.map_err(broken)?.to_bytes())
    }
}

/// Asks for a path; what is no 200 is an error. `head` is the time until the head of the answer.
pub(crate) async fn get(
    api: &Api,
    path: &str,
    resolver: &Resolver,
    head: Duration,
) -> Result<Answer, WatchError> {
    let server = api.to_string();
    let asked = tokio::time::timeout(head, ask(api, path, resolver)).await;
    let response =
        asked.unwrap_or_else(|_| Err(WatchError::Silent { server: server.clone(), within: head }));
    let (response, driver) = response?;
    let status = response.status();
    let answer = Answer { server: server.clone(), body: response.into_body(), driver };
    if status == StatusCode::OK {
        return Ok(answer);
    }
    let words = tokio::time::timeout(head, answer.collect(REFUSAL_BYTES_MAX)).await;
    let words = words.ok().and_then(Result::ok).unwrap_or_default();
    Err(WatchError::Refused { server, status: status.as_u16(), message: refusal(&words, status) })
}

/// The words of a `Status`, or what came instead of one.
fn refusal(body: &[u8], status: StatusCode) -> String {
    #[derive(Deserialize)]
    struct Said {
        message: String,
    }
    let message = serde_json::from_slice(body).map(|said: Said| said.message);
    let message = message.unwrap_or_else(|_| String::from_utf8_lossy(body).into_owned());
    let visible = message.trim().chars().map(|it| if it.is_control() { ' ' } else { it });
    let message: String = visible.take(REFUSAL_CHARS_MAX).collect();
    if message.is_empty() { status.to_string() } else { message }
}

async fn ask(
    api: &Api,
    path: &str,
    resolver: &Resolver,
) -> Result<(Response<Incoming>, AbortHandle), WatchError> {
    let looked = tokio::task::spawn_blocking({
        let api = api.clone();
        move || api.look()
    });
    let access = looked.await.map_err(|error| WatchError::File(io::Error::other(error)))??;
    let broken = |error: io::Error| WatchError::Broken { server: access.server.to_string(), error };
    let mut last = None;
    let mut stream = None;
    for at in addresses(&access.server, resolver).await? {
        match dial(at, access.tls.as_ref()).await {
            Ok(open) => {
                stream = Some(open);
                break;
            }
            Err(error) => last = Some(error),
        }
    }
    let no_address = || io::Error::other("it has no address");
    let stream = stream.ok_or_else(|| broken(last.unwrap_or_else(no_address)))?;
    let handshake = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|it| broken(said(&it)))?;
    // How the connection ends shows in the answer on it.
    let driver = tokio::spawn(async { drop(connection.await) }).abort_handle();
    let mut request = Request::get(path)
        .header(header::HOST, access.server.to_string())
        .header(header::ACCEPT, "application/json")
        .header(header::USER_AGENT, concat!("evenkeel/", env!("CARGO_PKG_VERSION")));
    if let Some(token) = &access.token {
        request = request.header(header::AUTHORIZATION, token);
    }
    let request = request.body(Empty::<Bytes>::new());
    let request = request.map_err(|it| broken(io::Error::other(it)))?;
    let response = sender.send_request(request).await.map_err(|it| broken(said(&it)))?;
    Ok((response, driver))
}

/// What an error and its cause say.
pub(crate) fn said(error: &hyper::Error) -> io::Error {
    let cause = std::error::Error::source(error).map(|it| format!(": {it}")).unwrap_or_default();
    io::Error::other(format!("{error}{cause}"))
}

async fn addresses(server: &Target, resolver: &Resolver) -> Result<Vec<SocketAddr>, WatchError> {
    let name = match server {
        Target::Address(at) => return Ok(vec![*at]),
        Target::Name(name) => name,
    };
    let nowhere = |error| WatchError::Lookup { host: name.host.clone(), error };
    let found = resolver.addresses(&name.host).await.map_err(|error| nowhere(Some(error)))?;
    match found.records.is_empty() {
        true => Err(nowhere(None)),
        false => Ok(found.records.iter().map(|ip| SocketAddr::new(*ip, name.port)).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_read_and_a_slip_is_explained() {
        let read = |url: &str| Api::parse(url).map(|(at, is_tls)| format!("{at} {is_tls}"));
        assert_eq!(read("https://10.0.0.1:6443").unwrap(), "10.0.0.1:6443 true");
        assert_eq!(read("https://[::1]:6443/").unwrap(), "[::1]:6443 true");
        assert_eq!(read("http://localhost:8001").unwrap(), "localhost:8001 false");
        for (url, words) in [
            ("10.0.0.1:6443", "scheme"),
            ("https://api.test", "port is missing"),
            ("https://api.test:1/apis", "a path"),
            ("https://me@api.test:1", "a user"),
        ] {
            let error = read(url).unwrap_err().to_string();
            assert!(error.contains(words), "{url}: {error}");
        }
    }

    #[test]
    fn a_refusal_is_told_in_the_words_of_the_server() {
        let of = |body: &str| refusal(body.as_bytes(), StatusCode::FORBIDDEN);
        assert_eq!(of(r#"{"kind":"Status","message":"no\nway","code":403}"#), "no way");
        assert_eq!(of("  an HTML page"), "an HTML page");
        assert_eq!(of(""), "403 Forbidden");
        assert_eq!(of(&"x".repeat(1_000)).len(), REFUSAL_CHARS_MAX);
    }

    #[test]
    fn a_token_has_one_line() {
        let folder = evenkeel_testkit::folder::Folder::new("kubernetes-token");
        let file = folder.file("token");
        std::fs::write(&file, "abc\n").unwrap();
        assert_eq!(bearer(&file).unwrap(), "Bearer abc");
        for text in ["", "a\nb"] {
            std::fs::write(&file, text).unwrap();
            let error = bearer(&file).unwrap_err().to_string();
            assert!(error.contains("no token") && error.contains("token:"), "{error}");
        }
        assert!(bearer(&folder.file("none")).unwrap_err().to_string().contains("none"));
    }
}
