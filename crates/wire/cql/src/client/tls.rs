//! TLS towards nodes.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls_pki_types::ServerName;
use tokio_rustls::TlsConnector;

use super::config::CqlTls;
use super::versions::VERSIONS;
use evenkeel_runtime::pem::{self, at};

/// What connections to nodes are encrypted with: TLS 1.3 or 1.2, and no node without a certificate
/// of the authority in its name.
#[derive(Clone)]
pub struct NodeTls {
    connector: TlsConnector,
    name: Option<ServerName<'static>>,
}

impl NodeTls {
    /// Reads the files.
    ///
    /// # Errors
    /// When one cannot be read or is not what it should be, with its path.
    pub fn load(files: &CqlTls) -> io::Result<Self> {
        let authority = &files.authority;
        let roots = pem::roots(authority, &pem::read(authority)?)?;
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&VERSIONS)
            .map_err(io::Error::other)?
            .with_root_certificates(roots);
        let config = match &files.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = pem::certificates(certificate, &pem::read(certificate)?)?;
                let secret = pem::key(key, &pem::read(key)?)?;
                builder.with_client_auth_cert(chain, secret).map_err(|error| {
                    at(certificate, &format!("{error} (is {} its key?)", key.display()))
                })?
            }
        };
        let name = files.name.as_deref().map(|name| {
            ServerName::try_from(name.to_owned()).map_err(|_| {
                let words = format!("{name:?} cannot be in a certificate, expected a DNS name");
                io::Error::new(io::ErrorKind::InvalidInput, words)
            })
        });
        let name = name.transpose()?;
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name })
    }

    pub(super) fn connector(&self) -> &TlsConnector {
        &self.connector
    }

    /// What the certificate of the node at this address must say.
    pub(super) fn name_of(&self, address: IpAddr) -> ServerName<'static> {
        self.name.clone().unwrap_or(ServerName::IpAddress(address.into()))
    }
}

impl fmt::Debug for NodeTls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "NodeTls({:?})", self.name)
    }
}
