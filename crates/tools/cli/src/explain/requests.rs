//! `evenkeel explain --admin URL`: what became of requests, from a running process.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use evenkeel_http::{Body, Request};
use evenkeel_runtime::tls::{ClientTls, ClientTlsFiles};
use http::header::{AUTHORIZATION, HOST, HeaderValue};
use http::uri::Scheme;
use http::{StatusCode, Uri};
use serde::Deserialize;
use serde_json::Value;

use super::RequestsArguments;
use crate::output;

const LIMIT: Duration = Duration::from_secs(10);
/// A thousand requests with eight candidates each are some 2 MB.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// What is told of each.
#[derive(Deserialize)]
struct Told {
    id: String,
    at_unix_ms: u64,
    upstream: String,
    request: String,
    status: Option<u16>,
    total_ms: f64,
    remarks: Vec<String>,
    words: String,
}

#[derive(Deserialize)]
struct Document {
    found: usize,
    requests: Vec<Told>,
}

pub(super) fn run(arguments: &RequestsArguments) -> anyhow::Result<ExitCode> {
    let url = &arguments.admin;
    let answer = ask(arguments).with_context(|| format!("--admin {url}"))?;
    let broken = || format!("--admin {url}: its answer is not that of /api/v1/requests");
    if arguments.json {
        output::json(&serde_json::from_str::<Value>(&answer).with_context(broken)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let document: Document = serde_json::from_str(&answer).with_context(broken)?;
    if document.requests.is_empty() {
        match &arguments.id {
            Some(id) => eprintln!(
                "no request {id} is kept: the last 4096 of each worker are, slow and failed ones \
                 for longer"
            ),
            None if arguments.slow => {
                eprintln!("no slow request is kept: none took longer than most do");
            }
            None if arguments.failed => eprintln!("no failed request is kept"),
            None => eprintln!("no request is kept that was slow, failed, hedged or sampled"),
        }
        return Ok(ExitCode::from(1));
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    for told in &document.requests {
        output::line!("{}", line(told, now))?;
        output::line!("  {}", told.words)?;
    }
    let untold = document.found - document.requests.len().min(document.found);
    if untold > 0 {
        eprintln!("{untold} more; --limit shows more of them");
    }
    Ok(ExitCode::SUCCESS)
}

/// Such as "3 s ago, 44 ms, 200: shop GET /cart (id 4bf9, slow, hedged)".
fn line(told: &Told, now: Duration) -> String {
    let ago = now.saturating_sub(Duration::from_millis(told.at_unix_ms)).as_secs();
    let status = told.status.map_or_else(String::new, |status| format!(", {status}"));
    let id = (!told.id.is_empty()).then(|| format!("id {}", told.id));
    let about: Vec<String> = id.into_iter().chain(told.remarks.iter().cloned()).collect();
    let about = if about.is_empty() { String::new() } else { format!(" ({})", about.join(", ")) };
    let Told { total_ms, upstream, request, .. } = told;
    format!("{ago} s ago, {total_ms:.1} ms{status}: {upstream} {request}{about}")
}

fn path(arguments: &RequestsArguments) -> String {
    let mut query = format!("limit={}", arguments.limit);
    if arguments.slow {
        query.push_str("&slow");
    }
    if arguments.failed {
        query.push_str("&failed");
    }
    if let Some(id) = &arguments.id {
        query.push_str("&id=");
        id.bytes().for_each(|byte| match byte {
            b'-' | b'.' | b'_' | b'~' => query.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => query.push(char::from(byte)),
            _ => query.push_str(&format!("%{byte:02X}")),
        });
    }
    format!("/api/v1/requests?{query}")
}

fn ask(arguments: &RequestsArguments) -> anyhow::Result<String> {
    let target = Target::read(arguments)?;
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = path(arguments).parse().context("the id of the request")?;
    request.headers_mut().insert(HOST, &HeaderValue::try_from(&target.authority)?);
    if let Some(file) = &arguments.token_file {
        let token = token(file)?;
        request.headers_mut().insert(AUTHORIZATION, &token);
    }
    let server = (target.address, target.tls);
    let (status, body) = evenkeel_http::fetch(server, request, LIMIT, ANSWER_BYTES_MAX)?;
    let body = String::from_utf8_lossy(&body).into_owned();
    match status {
        StatusCode::OK => Ok(body),
        StatusCode::UNAUTHORIZED => match &arguments.token_file {
            Some(file) => bail!(
                "the token of {} is refused, expected that of [admin] token_file",
                file.display()
            ),
            None => bail!("it asks for a token: --token-file FILE with that of [admin] token_file"),
        },
        status => bail!("got {status}: {}", body.trim_end()),
    }
}

fn token(file: &Path) -> anyhow::Result<HeaderValue> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("--token-file: cannot read {}", file.display()))?;
    let token = text.lines().next().unwrap_or_default().trim();
    let mut value = HeaderValue::try_from(format!("Bearer {token}"))
        .with_context(|| format!("{}: the first line is no token", file.display()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Where to ask.
struct Target {
    authority: String,
    address: SocketAddr,
    tls: Option<ClientTls>,
}

impl Target {
    fn read(arguments: &RequestsArguments) -> anyhow::Result<Self> {
        let expected = "expected http://HOST:PORT or https://HOST:PORT";
        let url: Uri = arguments.admin.parse().with_context(|| expected.to_owned())?;
        let (Some(scheme), Some(authority)) = (url.scheme(), url.authority()) else {
            bail!("{expected}");
        };
        let is_https = match scheme {
            it if *it == Scheme::HTTPS => true,
            it if *it == Scheme::HTTP => false,
            _ => bail!("{expected}"),
        };
        let port = authority.port_u16().unwrap_or(if is_https { 443 } else { 80 });
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let mut addresses = (host, port).to_socket_addrs().context("cannot resolve the host")?;
        let address = addresses.next().context("the host has no address")?;
        let files = ClientTlsFiles {
            ca: arguments.ca.clone(),
            name: host.parse::<std::net::IpAddr>().is_err().then(|| host.to_owned()),
            identity: None,
        };
        let tls = is_https.then(|| ClientTls::load(&files, &[b"http/1.1"])).transpose()?;
        Ok(Self { authority: authority.to_string(), address, tls })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_told_in_two_lines() {
        let told = Told {
            id: "4bf9".to_owned(),
            at_unix_ms: 7_000,
            upstream: "shop".to_owned(),
            request: "GET /cart".to_owned(),
            status: Some(200),
            total_ms: 44.04,
            remarks: vec!["slow".to_owned(), "hedged".to_owned()],
            words: String::new(),
        };
        assert_eq!(
            line(&told, Duration::from_secs(10)),
            "3 s ago, 44.0 ms, 200: shop GET /cart (id 4bf9, slow, hedged)"
        );
    }
}
