//! The side of a listener.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls_pki_types::ServerName;
use webpki::EndEntityCert;

use super::live::{Contents, Live};
use super::{Identity, ServerTlsFiles, VERSIONS};
use crate::pem::{self, at};

/// What a listener speaks TLS with. Clones are the same.
#[derive(Debug, Clone)]
pub struct ServerTls(Arc<Live<ServerConfig>>);

impl PartialEq for ServerTls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl ServerTls {
    /// Reads the files. `alpn` are the protocols that are spoken, the preferred first; none = not
    /// said.
    ///
    /// # Errors
    /// When one cannot be read or is not what it should be, with its path.
    pub fn load(files: &ServerTlsFiles, alpn: &[&[u8]]) -> io::Result<Self> {
        let pairs = files.identities.iter().flat_map(|one| [&one.certificate, &one.key]);
        let paths: Vec<PathBuf> = pairs.chain(&files.client_ca).cloned().collect();
        let (files, alpn) = (files.clone(), alpn.iter().map(|name| name.to_vec()).collect());
        let made = Live::open(paths, move |contents| config(&files, &alpn, contents))?;
        Ok(Self(made))
    }

    /// What a client that comes now is spoken to with.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.0.current()
    }

    /// Looks at the files now; whether they have changed. See [`super::keep_fresh`].
    ///
    /// # Errors
    /// When they have, and cannot be used. What was in use stays so.
    pub fn look(&self) -> io::Result<bool> {
        self.0.look()
    }
}

fn config(
    files: &ServerTlsFiles,
    alpn: &Vec<Vec<u8>>,
    contents: &Contents,
) -> io::Result<ServerConfig> {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&VERSIONS)
        .map_err(io::Error::other)?;
    let builder = match &files.client_ca {
        Some(path) => {
            let bytes = contents.last().expect("every file has its contents, this one the last");
            let roots = Arc::new(pem::roots(path, bytes)?);
            let mut verifier =
                WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider));
            if files.is_client_optional {
                verifier = verifier.allow_unauthenticated();
            }
            let verifier = verifier.build().map_err(|error| at(path, &error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
        None => builder.with_no_client_auth(),
    };
    let keys = files.identities.iter().zip(contents.chunks(2));
    let keys = keys.map(|(identity, bytes)| certified(identity, bytes, &provider).map(Arc::new));
    let mut config = builder.with_cert_resolver(Arc::new(BySni(keys.collect::<Result<_, _>>()?)));
    config.alpn_protocols.clone_from(alpn);
    config.ticketer = ring::Ticketer::new().map_err(io::Error::other)?;
    Ok(config)
}

/// A certificate with its key, from the bytes of its two files.
fn certified(
    Identity { certificate, key }: &Identity,
    bytes: &[Vec<u8>],
    provider: &CryptoProvider,
) -> io::Result<CertifiedKey> {
    let chain = pem::certificates(certificate, &bytes[0])?;
    let secret = pem::key(key, &bytes[1])?;
    CertifiedKey::from_der(chain, secret, provider)
        .map_err(|error| unlike(certificate, key, &error))
}

pub(super) fn unlike(certificate: &Path, key: &Path, error: &rustls::Error) -> io::Error {
    at(certificate, &format!("{error} (is {} its key?)", key.display()))
}

/// The certificates of a listener, the default first.
#[derive(Debug)]
struct BySni(Vec<Arc<CertifiedKey>>);

impl ResolvesServerCert for BySni {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let [only] = self.0.as_slice() else {
            let asked = hello.server_name().and_then(|name| ServerName::try_from(name).ok());
            let fits =
                |key: &&Arc<CertifiedKey>| asked.as_ref().is_some_and(|asked| is_for(key, asked));
            return self.0.iter().find(fits).or(self.0.first()).cloned();
        };
        Some(Arc::clone(only))
    }
}

fn is_for(key: &CertifiedKey, name: &ServerName<'_>) -> bool {
    let certificate = key.cert.first().and_then(|der| EndEntityCert::try_from(der).ok());
    certificate.is_some_and(|known| known.verify_is_valid_for_subject_name(name).is_ok())
}
