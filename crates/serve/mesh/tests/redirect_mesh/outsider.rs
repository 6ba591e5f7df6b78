//! Somebody who speaks to a site by hand: with any certificate or none, in any words.

use std::net::SocketAddr;
use std::sync::Arc;

use evenkeel_geo::epoch::{AnswerHashes, Report, Row, SiteId, SiteSet, wire};
use evenkeel_mesh::frame::Frame;
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// What an outsider shows of itself: a certificate and its key.
pub(crate) type Shown<'a> = Option<&'a (String, String)>;

/// A connection by hand.
pub(crate) struct Outsider(TlsStream<TcpStream>);

impl Outsider {
    /// Connects to the site of this name, whatever is thought of our own certificate there.
    pub(crate) async fn connect(
        to: SocketAddr,
        name: &str,
        authority: &str,
        shown: Shown<'_>,
    ) -> std::io::Result<Self> {
        Self::connect_in(&rustls::version::TLS13, to, name, authority, shown).await
    }

    /// The same in this version of TLS.
    pub(crate) async fn connect_in(
        version: &'static rustls::SupportedProtocolVersion,
        to: SocketAddr,
        name: &str,
        authority: &str,
        shown: Shown<'_>,
    ) -> std::io::Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
        let config =
            rustls::ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
                .with_protocol_versions(&[version])
                .unwrap()
                .with_root_certificates(roots);
        let mut config = match shown {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                config.with_client_auth_cert(chain, key).unwrap()
            }
        };
        config.alpn_protocols = vec![b"evenkeel-redirect/2".to_vec()];
        let stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(name.to_owned()).unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.map(Self)
    }

    /// Sends bytes; an error when the other end has closed.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.write_all(bytes).await?;
        self.0.flush().await
    }

    /// Reads until the other end closes, and gives what came.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        let mut came = Vec::new();
        let _ = self.0.read_to_end(&mut came).await;
        came
    }

    /// Reads this many bytes.
    pub(crate) async fn read(&mut self, bytes: usize) -> Vec<u8> {
        let mut came = vec![0; bytes];
        self.0.read_exact(&mut came).await.unwrap();
        came
    }
}

/// A row of a site that could be believed.
pub(crate) fn row(site: usize, sites: usize, epoch: u64, settings: u32) -> Row {
    Row {
        site: SiteId::new(site),
        epoch,
        settings,
        received: SiteSet::EMPTY,
        answers: [None::<AnswerHashes>; 2],
        report: Report::empty(sites),
    }
}

/// A row as a frame.
pub(crate) fn framed(row: &Row) -> Vec<u8> {
    Frame::Row(&wire::encode(row).unwrap()).bytes()
}
