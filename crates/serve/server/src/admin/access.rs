//! Who is answered, where administration is reached from elsewhere.
//!
//! A token (`Authorization: Bearer`, or the password of `Basic`, which browsers ask for) or a
//! certificate of `tls.client_ca`; what is public is answered without. On the loopback nothing is
//! asked for unless it is configured.

use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;

use crate::config::{AdminConfig, PublicPath};
use evenkeel_http::{Client, Fields};
use evenkeel_runtime::pem::at;
use evenkeel_runtime::tls::ServerTls;

/// A shorter token could be guessed.
const TOKEN_BYTES_MIN: usize = 16;

/// Who is answered what.
#[derive(Debug, Default)]
pub(crate) struct Access {
    token: Option<Vec<u8>>,
    /// Whether a certificate of the client does, which its TLS has checked.
    is_by_certificate: bool,
    public: Vec<PublicPath>,
    /// With what clients are spoken to.
    pub(crate) tls: Option<ServerTls>,
}

impl Access {
    /// Reads the files of `[admin]`.
    ///
    /// # Errors
    /// When one cannot be used, with its path.
    pub(crate) fn load(config: &AdminConfig) -> io::Result<Self> {
        let tls = config.tls.as_ref();
        let tls = tls.map(|files| ServerTls::load(files, &[b"http/1.1"])).transpose();
        let of_admin = |error: io::Error| io::Error::new(error.kind(), format!("[admin] {error}"));
        Ok(Self {
            token: config.token_file.as_deref().map(token).transpose().map_err(of_admin)?,
            is_by_certificate: config.asks_certificates(),
            public: config.public.clone(),
            tls: tls.map_err(of_admin)?,
        })
    }

    /// Whether anything is asked for.
    pub(super) const fn is_guarded(&self) -> bool {
        self.token.is_some() || self.is_by_certificate
    }

    /// Whether this path is answered to everybody.
    pub(super) fn is_public(&self, path: &str) -> bool {
        self.public.iter().any(|public| path.strip_prefix('/') == Some(public.name()))
    }

    /// Whether this client may have what is not public.
    pub(super) fn knows(&self, headers: &Fields, client: &Client) -> bool {
        let by_token = self.token.as_deref().is_some_and(|token| {
            let mut said = headers.get_all(AUTHORIZATION).filter_map(|said| {
                let (scheme, said) = said.to_str()?.split_once(' ')?;
                presented(scheme, said.trim())
            });
            said.any(|said| is_same(&said, token))
        });
        by_token || self.is_by_certificate && client.is_certified
    }
}

/// The first line of a file.
fn token(file: &Path) -> io::Result<Vec<u8>> {
    let text = std::fs::read_to_string(file).map_err(|error| at(file, &error.to_string()))?;
    let token = text.lines().next().unwrap_or_default().trim();
    if token.len() < TOKEN_BYTES_MIN {
        let words = format!(
            "got a token of {} characters, expected {TOKEN_BYTES_MIN} or more in the first line",
            token.len()
        );
        return Err(at(file, &words));
    }
    Ok(token.as_bytes().to_vec())
}

fn presented(scheme: &str, said: &str) -> Option<Vec<u8>> {
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(said.as_bytes().to_vec());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = STANDARD.decode(said).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    Some(decoded[colon + 1..].to_vec())
}

/// In a time that does not depend on where they differ.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differing = one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b));
    std::hint::black_box(differing) == 0 && one.len() == other.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn access() -> Access {
        let token = Some(b"0123456789abcdef".to_vec());
        Access { token, public: vec![PublicPath::Healthz], ..Access::default() }
    }

    fn knows(access: &Access, said: &[&str], is_certified: bool) -> bool {
        let mut headers = Fields::new();
        for said in said {
            headers.append(AUTHORIZATION, &HeaderValue::from_str(said).unwrap());
        }
        let client = Client::new(([127, 0, 0, 1], 1).into());
        access.knows(&headers, &Client { is_certified, ..client })
    }

    #[test]
    fn a_token_is_known_in_either_scheme_and_nothing_else() {
        let access = access();
        let basic =
            |user_and_password: &str| format!("Basic {}", STANDARD.encode(user_and_password));
        assert!(knows(&access, &["Bearer 0123456789abcdef"], false));
        assert!(knows(&access, &["bearer  0123456789abcdef"], false));
        assert!(knows(&access, &[&basic("anybody:0123456789abcdef")], false));
        let wrong =
            ["Bearer 0123456789abcdeF", "Bearer 0123456789abcde", "Bearer ", "Basic", "Basic ="];
        for said in wrong {
            assert!(!knows(&access, &[said], false), "{said}");
        }
        assert!(!knows(&access, &[&basic("0123456789abcdef")], false), "no password");
        assert!(!knows(&access, &["Digest 0123456789abcdef"], false));
        assert!(!knows(&access, &[], true), "no certificate was asked for");
    }

    #[test]
    fn a_certificate_does_where_one_was_asked_for() {
        let access = Access { is_by_certificate: true, ..access() };
        assert!(knows(&access, &[], true));
        assert!(!knows(&access, &[], false));
        assert!(knows(&access, &["Bearer 0123456789abcdef"], false));
    }

    #[test]
    fn only_what_is_listed_is_public() {
        assert!(access().is_public("/healthz"));
        assert!(!access().is_public("/metrics") && !access().is_public("/healthz/"));
        assert!(access().is_guarded() && !Access::default().is_guarded());
    }
}
