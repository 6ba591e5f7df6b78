//! Who this site is, and who its peers are: certificates of one private authority.
//!
//! Both ends of a connection show a certificate, and a site is the one whose name its certificate
//! has among its DNS names, letter by letter (no wildcards). Nothing else says who somebody is:
//! not an address, not what is in a row. TLS 1.3 only; sessions are not resumed, so that every
//! connection is authenticated by the certificates that are in force when it is made.
//!
//! The files are read again when they change. With an authority file that holds two authorities,
//! old and new, a whole mesh can move from one to the other without a stop.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use evenkeel_geo::epoch::SiteId;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use evenkeel_runtime::pem::{self, at};

/// The protocol both ends must name (ALPN): other releases that frame differently will not.
const PROTOCOL: &[u8] = b"evenkeel-redirect/2";

/// Where certificates are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Files {
    /// The site's certificate and what is between it and the authority, PEM.
    pub certificate: PathBuf,
    /// Its private key, PEM (PKCS #8, SEC 1 or PKCS #1).
    pub key: PathBuf,
    /// The certificates of the authority or authorities that peers are believed by, PEM.
    pub authority: PathBuf,
}

/// The bytes of all files, to see whether they have changed.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Contents([Vec<u8>; 3]);

/// What connections are made and taken with.
#[derive(Clone)]
pub(super) struct Identity {
    pub(super) connector: TlsConnector,
    pub(super) acceptor: TlsAcceptor,
    contents: Contents,
}

impl Files {
    /// Reads the files and checks that peers will believe them.
    pub(super) fn load(&self, names: &[String], me: SiteId) -> io::Result<Identity> {
        self.identity(self.read()?, names, me)
    }

    /// The first of the coming days, up to this one, by whose end peers believe the certificate no
    /// more; `None` when it is good for longer.
    pub(super) fn expires_within(
        &self,
        days_max: u32,
        names: &[String],
        me: SiteId,
    ) -> io::Result<Option<u32>> {
        let Contents([certificate, _, authority]) = self.read()?;
        let (chain, roots) = self.chain(&certificate, &authority)?;
        let provider = Arc::new(ring::default_provider());
        let is_believed = |day: u32| {
            let since = UnixTime::now().as_secs() + 86_400 * u64::from(day);
            let when = UnixTime::since_unix_epoch(Duration::from_secs(since));
            self.check(&chain, &roots, &provider, names, me, when).is_ok()
        };
        Ok((1..=days_max).find(|day| !is_believed(*day)))
    }

    /// The identity of the files as they are now; `None` when they have not changed.
    pub(super) fn reload(
        &self,
        present: &Identity,
        names: &[String],
        me: SiteId,
    ) -> io::Result<Option<Identity>> {
        let contents = self.read()?;
        if contents == present.contents {
            return Ok(None);
        }
        self.identity(contents, names, me).map(Some)
    }

    fn read(&self) -> io::Result<Contents> {
        let read = |path: &Path| {
            pem::read(path).map_err(|error| {
                let hint = "`evenkeel certificates` makes what a site needs";
                io::Error::new(error.kind(), format!("{error} ({hint})"))
            })
        };
        Ok(Contents([read(&self.certificate)?, read(&self.key)?, read(&self.authority)?]))
    }

    fn identity(&self, contents: Contents, names: &[String], me: SiteId) -> io::Result<Identity> {
        let Contents([certificate, key, authority]) = &contents;
        let (chain, roots) = self.chain(certificate, authority)?;
        let key = pem::key(&self.key, key)?;
        let provider = Arc::new(ring::default_provider());
        self.check(&chain, &roots, &provider, names, me, UnixTime::now())?;
        let unfit = |error: rustls::Error| {
            at(&self.certificate, &format!("{error} (is {} its key?)", self.key.display()))
        };
        let client = client(&roots, &provider, chain.clone(), key.clone_key()).map_err(unfit)?;
        let server = server(roots, provider, chain, key).map_err(unfit)?;
        Ok(Identity {
            connector: TlsConnector::from(Arc::new(client)),
            acceptor: TlsAcceptor::from(Arc::new(server)),
            contents,
        })
    }

    /// The site's certificates, and those of the authorities.
    fn chain(
        &self,
        certificate: &[u8],
        authority: &[u8],
    ) -> io::Result<(Vec<CertificateDer<'static>>, Arc<RootCertStore>)> {
        let roots = Arc::new(pem::roots(&self.authority, authority)?);
        Ok((pem::certificates(&self.certificate, certificate)?, roots))
    }

    /// What the peers will check, so that a mistake is seen where it was made.
    fn check(
        &self,
        chain: &[CertificateDer<'static>],
        roots: &Arc<RootCertStore>,
        provider: &Arc<CryptoProvider>,
        names: &[String],
        me: SiteId,
        when: UnixTime,
    ) -> io::Result<()> {
        let wrong = |words: &str| at(&self.certificate, words);
        let own = &chain[0];
        identify(own, names)
            .and_then(|site| if site == me { Ok(()) } else { Err(Stranger::OtherSite) })
            .map_err(|stranger| {
                let name = &names[me.index()];
                wrong(&format!("{stranger}, expected the name of this site, {name}"))
            })?;
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::clone(roots), Arc::clone(provider));
        let verifier = verifier.build().map_err(|error| at(&self.authority, &error.to_string()))?;
        let name = server_name(&names[me.index()])?;
        let verified = verifier.verify_server_cert(own, &chain[1..], &name, &[], when);
        verified.map(drop).map_err(|error| {
            let authority = self.authority.display();
            wrong(&format!("{error} (is it of the authority in {authority}, and in its time?)"))
        })
    }
}

fn client(
    roots: &Arc<RootCertStore>,
    provider: &Arc<CryptoProvider>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ClientConfig, rustls::Error> {
    let mut config = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(Arc::clone(roots))
        .with_client_auth_cert(chain, key)?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn server(
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, rustls::Error> {
    let clients = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider));
    let clients = clients.build().map_err(|error| rustls::Error::General(error.to_string()))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// Why a certificate is not that of a site.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Stranger {
    #[error("a certificate that names none of the sites")]
    NoSite,
    #[error("a certificate that names more than one site")]
    SeveralSites,
    /// Than it should be of, or this one.
    #[error("a certificate of another site")]
    OtherSite,
    /// There is none, or the other protocol is spoken.
    #[error("no certificate that can be read")]
    Unread,
}

/// The site at the other end of an established connection.
pub(super) fn peer(connection: &rustls::CommonState, names: &[String]) -> Result<SiteId, Stranger> {
    let first = connection.peer_certificates().and_then(<[_]>::first);
    let certificate = first.ok_or(Stranger::Unread)?;
    if connection.alpn_protocol() != Some(PROTOCOL) {
        return Err(Stranger::Unread);
    }
    identify(certificate, names)
}

/// The one site whose name is among the certificate's.
fn identify(certificate: &CertificateDer<'_>, names: &[String]) -> Result<SiteId, Stranger> {
    let certificate = webpki::EndEntityCert::try_from(certificate).map_err(|_| Stranger::Unread)?;
    let said: Vec<&str> = certificate.valid_dns_names().collect();
    let is_said = |name: &String| said.iter().any(|said| said.eq_ignore_ascii_case(name));
    let mut sites = names.iter().enumerate().filter(|(_, name)| is_said(name));
    match (sites.next(), sites.next()) {
        (Some((index, _)), None) => Ok(SiteId::new(index)),
        (Some(_), Some(_)) => Err(Stranger::SeveralSites),
        (None, _) => Err(Stranger::NoSite),
    }
}

/// A site's name as TLS writes it.
pub(super) fn server_name(site: &str) -> io::Result<ServerName<'static>> {
    match ServerName::try_from(site.to_owned()) {
        Ok(name @ ServerName::DnsName(_)) => Ok(name),
        _ => {
            let words = format!("{site:?} cannot be in a certificate, expected a DNS name");
            Err(io::Error::new(io::ErrorKind::InvalidInput, words))
        }
    }
}
