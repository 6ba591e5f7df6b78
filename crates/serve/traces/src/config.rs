//! `[traces]`: where spans go, and of which requests.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use evenkeel_proxy::requests::traces::Sampling;
use evenkeel_runtime::tls::{ClientTls, ClientTlsFiles};
use evenkeel_settings::common::HOUR;
use evenkeel_settings::{Mismatch, Table};
use http::Uri;

/// Where the specification of OTLP has traces.
const PATH: &str = "/v1/traces";
const SERVICE: &str = "evenkeel";
const EXPECTED: &str = "a URL such as \"http://127.0.0.1:4318/v1/traces\"";

/// `[traces]`
#[derive(Debug, Clone, PartialEq)]
pub struct TracesConfig {
    /// The collector.
    pub otlp: Endpoint,
    /// Which requests are exported.
    pub sampling: Sampling,
    /// `service.name` of the spans; default `evenkeel`.
    pub service: String,
    /// Whom to believe over `https`; `None` = the authorities of the operating system.
    pub tls: Option<ClientTlsFiles>,
}

/// A URL of OTLP over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The host, without brackets.
    pub host: String,
    /// The port; 80 or 443 where none is written.
    pub port: u16,
    /// Whether TLS is spoken.
    pub is_tls: bool,
    /// The path and, where there is one, the query; `/v1/traces` where none is written.
    pub path: String,
}

impl TracesConfig {
    /// Reads the table.
    pub fn read(table: &mut Table<'_>) -> Self {
        let nowhere = Endpoint { host: String::new(), port: 0, is_tls: false, path: String::new() };
        let otlp = table.key("otlp").parsed(EXPECTED, nowhere, Endpoint::parse).required();
        let sample = table.key("sample").probability().or(0.01);
        let slow = table.key("slow").duration().between(Duration::from_micros(1)..=HOUR);
        let sampling = Sampling { sample, slow: slow.optional() };
        let service = table.key("service").text();
        let is_name = |name: &String| (1..=255).contains(&name.len());
        let service = service.check("1 to 255 bytes", is_name).or(SERVICE.to_owned());
        let tls = table.key("tls").table(ClientTlsFiles::read).optional();
        if tls.is_some() && !otlp.is_tls && table.is_sound() {
            let wrong = Mismatch::new("tls beside http://", "https:// in otlp, or no tls");
            table.problem("tls", wrong);
        }
        Self { otlp, sampling, service, tls }
    }

    /// Reads the files of `https`; `None` for `http`.
    ///
    /// # Errors
    /// When one cannot be used; the error names it and its table.
    pub fn load_tls(&self) -> io::Result<Option<ClientTls>> {
        if !self.otlp.is_tls {
            return Ok(None);
        }
        let nobody = || ClientTlsFiles { ca: None, name: None, identity: None };
        let mut files = self.tls.clone().unwrap_or_else(nobody);
        if files.name.is_none() && self.otlp.host.parse::<IpAddr>().is_err() {
            files.name = Some(self.otlp.host.clone());
        }
        let of_table =
            |error: io::Error| io::Error::new(error.kind(), format!("[traces]: TLS: {error}"));
        ClientTls::load(&files, &[b"http/1.1"]).map(Some).map_err(of_table)
    }
}

impl Endpoint {
    fn parse(text: &str) -> Result<Self, Mismatch> {
        let wrong = || Mismatch::new(format!("{text:?}"), EXPECTED);
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong()),
        };
        let authority = uri.authority().ok_or_else(wrong)?;
        if authority.as_str().contains('@') {
            let came = "a user in the URL";
            return Err(Mismatch::new(came, EXPECTED).with_hint("a collector beside it can log in"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        if host.is_empty() || port == 0 {
            return Err(wrong());
        }
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let path = if path == "/" { PATH } else { path }.to_owned();
        Ok(Self { host, port, is_tls, path })
    }

    /// The host as `Host` has it.
    pub(crate) fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_and_has_the_path_of_the_specification_where_none_is_written() {
        let read = |text: &str| Endpoint::parse(text).map(|it| it.to_string());
        assert_eq!(read("http://127.0.0.1:4318").unwrap(), "http://127.0.0.1:4318/v1/traces");
        assert_eq!(read("https://otel.example/x?y=1").unwrap(), "https://otel.example:443/x?y=1");
        assert_eq!(read("http://[::1]:4318/").unwrap(), "http://[::1]:4318/v1/traces");
        for wrong in ["", "localhost:4318", "grpc://a:1", "http://", "http://a:0", "http://u:p@a"] {
            assert!(Endpoint::parse(wrong).is_err(), "{wrong}");
        }
    }
}
