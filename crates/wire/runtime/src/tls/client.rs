//! The side of a client, towards replicas.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use evenkeel_settings::address::ServerAddress;
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;
use tokio_rustls::TlsConnector;

use super::live::{Contents, Live};
use super::server::unlike;
use super::{ClientTlsFiles, VERSIONS};
use crate::pem::{self, at};
use crate::stream::Stream;

/// What servers are spoken to with. Clones are the same, and resume each other's sessions.
#[derive(Debug, Clone)]
pub struct ClientTls {
    live: Arc<Live<ClientConfig>>,
    name: Option<ServerName<'static>>,
}

impl PartialEq for ClientTls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.live, &other.live)
    }
}

impl ClientTls {
    /// Reads the files. `alpn` as in [`super::ServerTls::load`].
    ///
    /// # Errors
    /// When one cannot be read or is not what it should be, with its path.
    pub fn load(files: &ClientTlsFiles, alpn: &[&[u8]]) -> io::Result<Self> {
        let name = files.name.as_deref().map(dns_name).transpose()?;
        let identity = files.identity.iter().flat_map(|one| [&one.certificate, &one.key]);
        let paths: Vec<PathBuf> = files.ca.iter().chain(identity).cloned().collect();
        let (files, alpn) = (files.clone(), alpn.iter().map(|name| name.to_vec()).collect());
        let live = Live::open(paths, move |contents| config(&files, &alpn, contents))?;
        Ok(Self { live, name })
    }

    /// Agrees on TLS with this server, whose certificate must be of the authority and in the name
    /// that was set, or else in its own.
    ///
    /// # Errors
    /// When that fails.
    pub async fn connect(&self, stream: Stream, server: ServerAddress) -> io::Result<Stream> {
        let name = match (&self.name, server) {
            (Some(name), _) => name.clone(),
            (None, ServerAddress::Inet(address)) => ServerName::IpAddress(address.ip().into()),
            (None, ServerAddress::Name { host, .. }) => dns_name(host.trim_end_matches('.'))?,
            (None, ServerAddress::Unix(_)) => dns_name("localhost")?,
        };
        let connector = TlsConnector::from(self.live.current());
        let stream = connector.connect(name, stream).await?;
        Ok(Stream::Tls(Box::new(stream.into())))
    }

    /// Looks at the files now; whether they have changed. See [`super::keep_fresh`].
    ///
    /// # Errors
    /// When they have, and cannot be used. What was in use stays so.
    pub fn look(&self) -> io::Result<bool> {
        self.live.look()
    }
}

fn dns_name(name: &str) -> io::Result<ServerName<'static>> {
    ServerName::try_from(name.to_owned()).map_err(|_| {
        let words = format!("{name:?} cannot be in a certificate, expected a DNS name");
        io::Error::new(io::ErrorKind::InvalidInput, words)
    })
}

fn config(
    files: &ClientTlsFiles,
    alpn: &Vec<Vec<u8>>,
    contents: &Contents,
) -> io::Result<ClientConfig> {
    let mut contents = contents.iter();
    let roots = match &files.ca {
        Some(path) => pem::roots(path, contents.next().map_or(&[], Vec::as_slice))?,
        None => of_the_system()?,
    };
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&VERSIONS)
        .map_err(io::Error::other)?
        .with_root_certificates(roots);
    let mut config = match (&files.identity, contents.next(), contents.next()) {
        (Some(identity), Some(chain), Some(secret)) => {
            let chain = pem::certificates(&identity.certificate, chain)?;
            let secret = pem::key(&identity.key, secret)?;
            let made = builder.with_client_auth_cert(chain, secret);
            made.map_err(|error| unlike(&identity.certificate, &identity.key, &error))?
        }
        _ => builder.with_no_client_auth(),
    };
    config.alpn_protocols.clone_from(alpn);
    Ok(config)
}

/// The authorities that the operating system trusts.
fn of_the_system() -> io::Result<RootCertStore> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (usable, _) = roots.add_parsable_certificates(found.certs);
    if usable == 0 {
        let why = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
        let words = format!("no certificate authorities of the system{why}, expected `ca`");
        return Err(at("tls".as_ref(), &words));
    }
    Ok(roots)
}
