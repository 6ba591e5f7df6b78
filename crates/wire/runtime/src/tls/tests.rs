//! Servers and clients that meet within the process, with certificates that change.

use std::io;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::HandshakeKind;
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::{TlsAcceptor, TlsStream};

use super::*;
use crate::stream::Stream;

/// An authority, and a folder of its own for files.
struct World {
    folder: PathBuf,
    authority: Issuer<'static, KeyPair>,
    ca: PathBuf,
}

impl World {
    fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("evenkeel-tls-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = folder.join("ca.pem");
        std::fs::write(&ca, params.self_signed(&key).unwrap().pem()).unwrap();
        Self { folder, authority: Issuer::new(params, key), ca }
    }

    /// Writes a certificate for this name into two files of the same stem.
    fn identity(&self, stem: &str, name: &str) -> Identity {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let signed = params.signed_by(&key, &self.authority).unwrap();
        let path = |suffix: &str| self.folder.join(format!("{stem}{suffix}"));
        let identity = Identity { certificate: path(".pem"), key: path("-key.pem") };
        std::fs::write(&identity.certificate, signed.pem()).unwrap();
        std::fs::write(&identity.key, key.serialize_pem()).unwrap();
        identity
    }

    fn towards(&self, name: &str) -> ClientTlsFiles {
        let (ca, name) = (Some(self.ca.clone()), Some(name.to_owned()));
        ClientTlsFiles { ca, name, identity: None }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn server(identities: Vec<Identity>) -> ServerTlsFiles {
    ServerTlsFiles { identities, client_ca: None, is_client_optional: false }
}

/// What a client saw of the server it spoke to: its certificate, and how they agreed.
type Met = (CertificateDer<'static>, HandshakeKind);

/// A word goes there and back.
async fn meet(server: &ServerTls, client: &ClientTls) -> Result<Met, String> {
    let (near, far) = tokio::io::duplex(65_536);
    let accepted = async {
        let mut stream = TlsAcceptor::from(server.config()).accept(far).await?;
        let mut word = [0; 4];
        stream.read_exact(&mut word).await?;
        stream.write_all(&word).await?;
        stream.flush().await
    };
    let asked = async {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 1)).into();
        let mut stream = client.connect(Stream::Memory(near), address).await?;
        stream.write_all(b"word").await?;
        stream.flush().await?;
        let mut word = [0; 4];
        stream.read_exact(&mut word).await?;
        let Stream::Tls(tls) = stream else { panic!("it is encrypted") };
        let TlsStream::Client(tls) = *tls else { panic!("it is the client's side") };
        let (_, session) = tls.get_ref();
        let certificate = session.peer_certificates().unwrap()[0].clone().into_owned();
        Ok::<Met, io::Error>((certificate, session.handshake_kind().unwrap()))
    };
    let (accepted, asked) = tokio::join!(accepted, asked);
    accepted.map_err(|error| format!("server: {error}"))?;
    asked.map_err(|error| format!("client: {error}"))
}

fn certificate_in(file: &Path) -> CertificateDer<'static> {
    crate::pem::certificates(file, &std::fs::read(file).unwrap()).unwrap().remove(0)
}

#[tokio::test]
async fn a_client_gets_the_certificate_of_the_name_that_it_asks_for() {
    let world = World::new("sni");
    let first = world.identity("first", "first.example");
    let other = world.identity("other", "*.other.example");
    let both = server(vec![first.clone(), other.clone()]);
    let server = ServerTls::load(&both, &[]).unwrap();
    let asking = |name: &str| ClientTls::load(&world.towards(name), &[]).unwrap();
    let met = meet(&server, &asking("shop.other.example")).await.unwrap();
    assert_eq!(met.0, certificate_in(&other.certificate));
    let met = meet(&server, &asking("first.example")).await.unwrap();
    assert_eq!(met.0, certificate_in(&first.certificate));
    let refused = meet(&server, &asking("third.example")).await.unwrap_err();
    assert!(refused.contains("BadCertificate"), "{refused}");
}

#[tokio::test]
async fn certificates_that_change_are_used_from_then_on_and_broken_ones_are_not() {
    let world = World::new("rotation");
    let old = world.identity("server", "one.example");
    let before = certificate_in(&old.certificate);
    let server = ServerTls::load(&server(vec![old.clone()]), &[]).unwrap();
    let client = ClientTls::load(&world.towards("one.example"), &[]).unwrap();
    assert_eq!(meet(&server, &client).await.unwrap().0, before);
    assert!(!server.look().unwrap(), "nothing has changed");
    // A new certificate beside the old key.
    let old_key = std::fs::read(&old.key).unwrap();
    let new = world.identity("server", "one.example");
    let new_key = std::fs::read(&new.key).unwrap();
    std::fs::write(&new.key, old_key).unwrap();
    let error = server.look().unwrap_err().to_string();
    assert!(error.contains("server.pem") && error.contains("its key?"), "{error}");
    assert!(!server.look().unwrap(), "said once");
    let fresh = ClientTls::load(&world.towards("one.example"), &[]).unwrap();
    assert_eq!(meet(&server, &fresh).await.unwrap().0, before, "the one before stays in use");
    std::fs::remove_file(&new.key).unwrap();
    assert!(server.look().is_err() && !server.look().unwrap(), "gone is said once, too");
    std::fs::write(&new.key, new_key).unwrap();
    assert!(server.look().unwrap());
    let after = meet(&server, &fresh).await.unwrap();
    assert_eq!(after.0, certificate_in(&new.certificate));
    assert_ne!(after.0, before);
}

#[tokio::test]
async fn who_comes_back_resumes_its_session() {
    let world = World::new("resumption");
    let identity = world.identity("server", "one.example");
    let server = ServerTls::load(&server(vec![identity]), &[]).unwrap();
    let client = ClientTls::load(&world.towards("one.example"), &[]).unwrap();
    assert_eq!(meet(&server, &client).await.unwrap().1, HandshakeKind::Full);
    assert_eq!(meet(&server, &client.clone()).await.unwrap().1, HandshakeKind::Resumed);
}

#[tokio::test]
async fn where_an_authority_of_clients_is_named_nobody_comes_in_without_its_certificate() {
    let (world, other) = (World::new("clients"), World::new("strangers"));
    let identity = world.identity("server", "one.example");
    let files = ServerTlsFiles {
        identities: vec![identity],
        client_ca: Some(world.ca.clone()),
        is_client_optional: false,
    };
    let server = ServerTls::load(&files, &[]).unwrap();
    let as_client = |identity| {
        let files = ClientTlsFiles { identity, ..world.towards("one.example") };
        ClientTls::load(&files, &[]).unwrap()
    };
    assert!(meet(&server, &as_client(None)).await.is_err());
    let stranger = other.identity("client", "client.example");
    assert!(meet(&server, &as_client(Some(stranger))).await.is_err());
    let known = world.identity("client", "client.example");
    meet(&server, &as_client(Some(known))).await.unwrap();
}

#[test]
fn what_is_wrong_with_a_file_is_said_with_its_name() {
    let world = World::new("errors");
    let good = world.identity("good", "one.example");
    let other = world.identity("other", "one.example");
    let load = |certificate: &Path, key: &Path| {
        let (certificate, key) = (certificate.to_owned(), key.to_owned());
        ServerTls::load(&server(vec![Identity { certificate, key }]), &[]).unwrap_err().to_string()
    };
    let missing = world.folder.join("missing.pem");
    assert!(load(&missing, &good.key).contains("missing.pem"));
    let error = load(&good.key, &good.key);
    assert!(error.contains("good-key.pem: got no certificate"), "{error}");
    let error = load(&good.certificate, &good.certificate);
    assert!(error.contains("good.pem: no private key"), "{error}");
    let error = load(&good.certificate, &other.key);
    assert!(error.contains("good.pem") && error.contains("other-key.pem its key"), "{error}");
}
