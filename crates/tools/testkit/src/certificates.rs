//! Certificates, signed by an authority of the test's own.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};

/// An authority of certificates.
#[derive(Debug)]
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// Where the files of one side are, PEM.
#[derive(Clone, Debug)]
pub struct Files {
    /// Its certificate.
    pub certificate: PathBuf,
    /// The key of its certificate.
    pub key: PathBuf,
    /// Whose certificates it believes.
    pub authority: PathBuf,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    /// One that nobody else believes.
    ///
    /// # Panics
    /// When there are no random numbers.
    #[must_use]
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names are good names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // OpenSSL takes a certificate that is issued by its own name for a self-signed one.
        params.distinguished_name.push(DnType::CommonName, "an authority of tests");
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().expect("random numbers");
        Self(CertifiedIssuer::self_signed(params, key).expect("it can sign"))
    }

    /// Its own certificate, PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for these names (or addresses) and its key, PEM.
    ///
    /// # Panics
    /// When a name is none.
    #[must_use]
    pub fn issue(&self, names: &[&str]) -> (String, String) {
        self.issue_with(names, |_| ())
    }

    /// The same, with something about it changed.
    ///
    /// # Panics
    /// When a name is none.
    #[must_use]
    pub fn issue_with(
        &self,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> (String, String) {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).expect("names of hosts or addresses");
        let (server, client) =
            (ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth);
        params.extended_key_usages = vec![server, client];
        change(&mut params);
        let key = KeyPair::generate().expect("random numbers");
        (params.signed_by(&key, &self.0).expect("it can sign").pem(), key.serialize_pem())
    }

    /// Writes the files of one side.
    ///
    /// # Panics
    /// When a name is none or a file cannot be written.
    pub fn write(&self, folder: &Path, names: &[&str]) -> Files {
        fs::create_dir_all(folder).expect("the folder can be made");
        let (certificate, key) = self.issue(names);
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).expect("files can be written");
            path
        };
        Files {
            certificate: write("site.pem", &certificate),
            key: write("site.key", &key),
            authority: write("authority.pem", &self.pem()),
        }
    }
}
