//! Certificates of sites, signed by an authority of the test's own.

use std::path::{Path, PathBuf};

use evenkeel_net::redirect::Files;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

/// An authority of certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for these names and its key, PEM.
    pub(crate) fn issue(&self, names: &[&str]) -> (String, String) {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).unwrap();
        let (server, client) =
            (ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth);
        params.extended_key_usages = vec![server, client];
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }

    /// Writes the files of one site.
    pub(crate) fn write(&self, directory: &Path, names: &[&str]) -> Files {
        std::fs::create_dir_all(directory).unwrap();
        let (certificate, key) = self.issue(names);
        let write = |name: &str, text: &str| -> PathBuf {
            let path = directory.join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        Files {
            certificate: write("site.pem", &certificate),
            key: write("site.key", &key),
            authority: write("authority.pem", &self.pem()),
        }
    }
}
