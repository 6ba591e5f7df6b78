//! Certificates and private keys from PEM files, for everything that speaks TLS.

use std::io;
use std::path::Path;

use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// More than any certificate chain or key takes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The bytes of a file, as far as any certificate or key goes.
///
/// # Errors
/// When it cannot be read; the error names it.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    use io::Read as _;
    let opened = std::fs::File::open(path).map_err(|error| at(path, &error.to_string()))?;
    let mut bytes = Vec::new();
    opened.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The certificates in the bytes of this file, in their order; at least one.
///
/// # Errors
/// When there is none, or one that is not PEM; the error names the file.
pub fn certificates(path: &Path, bytes: &[u8]) -> io::Result<Vec<CertificateDer<'static>>> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    let read = read.map_err(|error| at(path, &format!("no certificates in PEM: {error}")))?;
    if read.is_empty() {
        return Err(at(path, "got no certificate, expected one or more in PEM"));
    }
    Ok(read)
}

/// The authorities in the bytes of this file.
///
/// # Errors
/// As [`certificates`], and when one cannot be an authority.
pub fn roots(path: &Path, bytes: &[u8]) -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for root in certificates(path, bytes)? {
        roots.add(root).map_err(|error| at(path, &error.to_string()))?;
    }
    Ok(roots)
}

/// The private key in the bytes of this file (PKCS #8, SEC 1 or PKCS #1).
///
/// # Errors
/// When there is none; the error names the file.
pub fn key(path: &Path, bytes: &[u8]) -> io::Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(bytes)
        .map_err(|error| at(path, &format!("no private key in PEM: {error}")))
}

/// An error about what a file holds.
pub fn at(path: &Path, words: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {words}", path.display()))
}
