//! A certificate, and who speaks TLS by it in chosen versions.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustls::crypto::ring;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ProtocolVersion, ServerConfig, SupportedProtocolVersion};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::{TlsAcceptor, TlsConnector, client};

use evenkeel_runtime::pem;
use evenkeel_runtime::tls::{ClientTls, ClientTlsFiles, Identity, ServerTls, ServerTlsFiles};

/// What one end may speak, and what it agrees on with an end that speaks both.
pub static ENDS: [(&[&SupportedProtocolVersion], ProtocolVersion); 3] = [
    (&[&TLS12], ProtocolVersion::TLSv1_2),
    (&[&TLS13], ProtocolVersion::TLSv1_3),
    (&[&TLS12, &TLS13], ProtocolVersion::TLSv1_3),
];

/// A certificate of 127.0.0.1 by its own authority, in files that are gone when it is.
pub struct Certificate {
    folder: PathBuf,
}

impl Certificate {
    /// Makes it in a folder of its own.
    #[expect(clippy::new_without_default, reason = "it writes files")]
    pub fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("evenkeel-tls-{}-{number}", std::process::id());
        let this = Self { folder: std::env::temp_dir().join(name) };
        fs::create_dir_all(&this.folder).unwrap();
        let signed = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        fs::write(this.file(), signed.cert.pem()).unwrap();
        fs::write(this.key(), signed.signing_key.serialize_pem()).unwrap();
        this
    }

    /// The certificate, which is its own authority's too.
    pub fn file(&self) -> PathBuf {
        self.folder.join("certificate.pem")
    }

    /// Its private key.
    pub fn key(&self) -> PathBuf {
        self.folder.join("key.pem")
    }

    /// What nodes with this certificate are believed by.
    pub fn of_nodes(&self) -> ClientTls {
        let files = ClientTlsFiles { ca: Some(self.file()), name: None, identity: None };
        ClientTls::load(&files, &[]).unwrap()
    }

    /// What a server with this certificate speaks with.
    pub fn of_server(&self) -> ServerTls {
        let identity = Identity { certificate: self.file(), key: self.key() };
        let files = ServerTlsFiles {
            identities: vec![identity],
            client_ca: None,
            is_client_optional: false,
        };
        ServerTls::load(&files, &[]).unwrap()
    }

    /// Connects as a driver that speaks these versions.
    pub async fn connect(
        &self,
        address: SocketAddr,
        versions: &[&'static SupportedProtocolVersion],
    ) -> std::io::Result<client::TlsStream<TcpStream>> {
        let roots = pem::roots(&self.file(), &pem::read(&self.file())?)?;
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(address).await?;
        let name = "127.0.0.1".try_into().unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    /// TLS in these versions before a node without; what was agreed on comes out of the channel.
    pub async fn before(
        &self,
        node: SocketAddr,
        versions: &[&'static SupportedProtocolVersion],
    ) -> (SocketAddr, mpsc::UnboundedReceiver<ProtocolVersion>) {
        let chain = pem::certificates(&self.file(), &pem::read(&self.file()).unwrap()).unwrap();
        let key = pem::key(&self.key(), &pem::read(&self.key()).unwrap()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, agreed) = mpsc::unbounded_channel();
        tokio::task::spawn_local(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { return };
                let (acceptor, sender) = (acceptor.clone(), sender.clone());
                tokio::task::spawn_local(async move {
                    let Ok(mut client) = acceptor.accept(stream).await else { return };
                    let _ = sender.send(client.get_ref().1.protocol_version().unwrap());
                    let mut node = TcpStream::connect(node).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut node).await;
                });
            }
        });
        (address, agreed)
    }
}

impl Drop for Certificate {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
