//! `evenkeel certificates`: what the mesh between data centres authenticates by.

mod subject;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, ensure};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use self::subject::Subject;
use crate::output;

const DAY: Duration = Duration::from_secs(86_400);
/// Certificates are valid from a little earlier: clocks differ.
const EARLIER: Duration = Duration::from_secs(3_600);
const AUTHORITY_DAYS: u32 = 3_650;
const AUTHORITY: &str = "authority";

/// Make TLS certificates for data centres that share load (`[redirect]`).
///
/// Creates a private CA in the directory if there is none, then a new key and a certificate for
/// each SITE. Run it again to renew: running processes load changed files. Copy SITE.pem, SITE.key
/// and authority.pem to the site. Keep authority.key secret: it can sign new sites.
/// Example: evenkeel certificates --out certificates london ireland frankfurt
#[derive(Debug, clap::Args)]
pub(crate) struct CertificatesArguments {
    /// The directory for authority.pem, authority.key, SITE.pem and SITE.key.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Validity of the certificates of sites, in days.
    #[arg(long, default_value_t = 365, value_name = "DAYS",
          value_parser = clap::value_parser!(u32).range(1..=3_650))]
    days: u32,
    /// The names of the sites in the configuration.
    #[arg(required = true, value_name = "SITE")]
    sites: Vec<String>,
}

pub(crate) fn run(arguments: &CertificatesArguments) -> anyhow::Result<ExitCode> {
    let made = make(&arguments.out, arguments.days, &arguments.sites)?;
    for words in &made {
        output::line!("{words}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes what sites need into a directory, and says what that is.
pub(crate) fn make(out: &Path, days: u32, sites: &[String]) -> anyhow::Result<Vec<String>> {
    let mut made = Vec::new();
    for site in sites {
        check_name(site)?;
    }
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let authority = authority(out, &mut made)?;
    for site in sites {
        let key = KeyPair::generate().context("cannot make a key")?;
        let certificate = site_params(site, days)?.signed_by(&key, &authority)?;
        // The key first: until both are there the new one does not fit, and the old pair stays.
        write(&out.join(format!("{site}.key")), &key.serialize_pem(), 0o600)?;
        write(&out.join(format!("{site}.pem")), &certificate.pem(), 0o644)?;
        let path = out.join(format!("{site}.pem"));
        made.push(format!("{}: {site}, {days} days", path.display()));
    }
    Ok(made)
}

fn check_name(site: &str) -> anyhow::Result<()> {
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b);
    let is_name = (1..=64).contains(&site.len())
        && site.bytes().all(is_plain)
        && !site.starts_with(['-', '.'])
        && site != AUTHORITY;
    ensure!(
        is_name,
        "site {site:?}: expected 1 to 64 small letters, digits, hyphens and dots, a letter or \
         digit first, and not {AUTHORITY:?}"
    );
    Ok(())
}

/// The authority in the directory, made when it is not there.
fn authority(out: &Path, made: &mut Vec<String>) -> anyhow::Result<Issuer<'static, KeyPair>> {
    let (certificate, key) = (out.join("authority.pem"), out.join("authority.key"));
    if certificate.exists() || key.exists() {
        let read = |path: &Path| {
            fs::read_to_string(path).with_context(|| {
                let path = path.display();
                format!("cannot read {path}: an authority is a certificate and its key")
            })
        };
        let (pem, key_pem) = (read(&certificate)?, read(&key)?);
        let unfit = || format!("{} is no private key in PEM", key.display());
        let key = KeyPair::from_pem(&key_pem).with_context(unfit)?;
        let unfit =
            || format!("{} is no authority in PEM, or has an unusual name", certificate.display());
        return issuer(&pem, key).with_context(unfit);
    }
    let new = KeyPair::generate().context("cannot make a key")?;
    let key_pem = new.serialize_pem();
    let params = authority_params()?;
    let issuer = CertifiedIssuer::self_signed(params.clone(), new)?;
    write(&key, &key_pem, 0o600)?;
    write(&certificate, &issuer.pem(), 0o644)?;
    made.push(format!("{}: a new authority, {AUTHORITY_DAYS} days", certificate.display()));
    Ok(Issuer::new(params, KeyPair::from_pem(&key_pem)?))
}

/// The authority of this certificate, which may be anybody's.
fn issuer(pem: &str, key: KeyPair) -> Option<Issuer<'static, KeyPair>> {
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
    let Subject { name, key_identifier } = Subject::read(&certificate)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = name;
    params.key_identifier_method = key_identifier.unwrap_or(params.key_identifier_method);
    Some(Issuer::new(params, key))
}

fn authority_params() -> anyhow::Result<CertificateParams> {
    let mut params = params(Vec::new(), "Evenkeel sites", AUTHORITY_DAYS)?;
    // It signs sites and nothing that signs further.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn site_params(site: &str, days: u32) -> anyhow::Result<CertificateParams> {
    let mut params = params(vec![site.to_owned()], site, days)?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // A site both asks and answers.
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn params(names: Vec<String>, common: &str, days: u32) -> anyhow::Result<CertificateParams> {
    let mut params = CertificateParams::new(names)?;
    let now = SystemTime::now();
    params.not_before = (now - EARLIER).into();
    params.not_after = (now + DAY * days).into();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common);
    Ok(params)
}

/// Writes a file whole: who reads it meanwhile finds the old one or the new one.
fn write(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    let writing = || -> std::io::Result<()> {
        let _ = fs::remove_file(&new); // of a run that was interrupted
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    writing().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_a_configuration_may_have() {
        for name in ["london", "eu-west-1", "dc1.example.org", "1"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in ["", "London", "../london", "-x", "a b", "*", "authority", &"x".repeat(65)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_second_run_keeps_the_authority_and_renews_the_sites() {
        let out =
            std::env::temp_dir().join(format!("evenkeel-certificates-{}", std::process::id()));
        let _ = fs::remove_dir_all(&out);
        let run = |sites: &[&str]| {
            let sites = sites.iter().map(ToString::to_string).collect();
            run(&CertificatesArguments { out: out.clone(), days: 30, sites }).unwrap();
        };
        let read = |name: &str| fs::read_to_string(out.join(name)).unwrap();
        run(&["london", "ireland"]);
        let (authority, london) = (read("authority.pem"), read("london.pem"));
        run(&["london"]);
        assert_eq!(read("authority.pem"), authority);
        assert_ne!(read("london.pem"), london);
        assert!(read("london.key").contains("PRIVATE KEY"));
        let mode = |name: &str| {
            use std::os::unix::fs::PermissionsExt as _;
            fs::metadata(out.join(name)).unwrap().permissions().mode() & 0o777
        };
        assert_eq!([mode("london.key"), mode("authority.key")], [0o600; 2]);
        fs::remove_dir_all(&out).unwrap();
    }
}
