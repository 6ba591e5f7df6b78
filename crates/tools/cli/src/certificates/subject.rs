//! What a certificate of an authority says of itself: its name and the identifier of its key, as
//! whatever it signs must repeat them.
//!
//! Only so much DER is read (X.690, definite lengths; RFC 5280, section 4.1). A library for all of
//! X.509 would be a tenth of what compiles before the first demo.

use rcgen::string::{Ia5String, PrintableString};
use rcgen::{DistinguishedName, DnType, DnValue, KeyIdMethod};

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const OCTET_STRING: u8 = 0x04;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;
/// Of the version, which comes first if it is there.
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// 2.5.29.14
const SUBJECT_KEY_IDENTIFIER: [u8; 3] = [0x55, 0x1d, 0x0e];

/// What is repeated in certificates that an authority signs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Subject {
    pub(super) name: DistinguishedName,
    /// `None` when the certificate has none.
    pub(super) key_identifier: Option<KeyIdMethod>,
}

impl Subject {
    /// Reads a certificate in DER; nothing when it is none, or has a name that cannot be repeated.
    pub(super) fn read(certificate: &[u8]) -> Option<Self> {
        let mut all = Der(certificate);
        let mut certificate = Der(all.expect(SEQUENCE)?);
        let mut signed = Der(certificate.expect(SEQUENCE)?);
        if signed.0.first() == Some(&VERSION) {
            signed.next()?;
        }
        // Serial number, algorithm, issuer, validity.
        for _ in 0..4 {
            signed.next()?;
        }
        let name = name(signed.expect(SEQUENCE)?)?;
        let mut key_identifier = None;
        while let Some((tag, content)) = signed.next() {
            if tag == EXTENSIONS {
                key_identifier = identifier_among(Der(content).expect(SEQUENCE)?);
            }
        }
        Some(Self { name, key_identifier })
    }
}

/// A sequence of sets of one pair each.
fn name(content: &[u8]) -> Option<DistinguishedName> {
    let mut name = DistinguishedName::new();
    let mut parts = Der(content);
    while !parts.0.is_empty() {
        let mut set = Der(parts.expect(SET)?);
        let mut pair = Der(set.expect(SEQUENCE)?);
        let kind = DnType::CustomDnType(object_identifier(pair.expect(OBJECT_IDENTIFIER)?)?);
        let (tag, text) = pair.next()?;
        let text = std::str::from_utf8(text).ok()?;
        let value = match tag {
            UTF8_STRING => DnValue::Utf8String(text.to_owned()),
            PRINTABLE_STRING => DnValue::PrintableString(PrintableString::try_from(text).ok()?),
            IA5_STRING => DnValue::Ia5String(Ia5String::try_from(text).ok()?),
            _ => return None,
        };
        // Two at once, and the same twice, cannot be written by the library.
        if !set.0.is_empty() || name.get(&kind).is_some() {
            return None;
        }
        name.push(kind, value);
    }
    Some(name)
}

fn identifier_among(extensions: &[u8]) -> Option<KeyIdMethod> {
    let mut extensions = Der(extensions);
    while let Some((_, extension)) = extensions.next() {
        let mut extension = Der(extension);
        if extension.expect(OBJECT_IDENTIFIER)? == SUBJECT_KEY_IDENTIFIER {
            let mut value = Der(extension.expect(OCTET_STRING)?);
            return Some(KeyIdMethod::PreSpecified(value.expect(OCTET_STRING)?.to_vec()));
        }
    }
    None
}

/// Numbers of base 128; the first byte holds two of them.
fn object_identifier(content: &[u8]) -> Option<Vec<u64>> {
    let mut numbers = Vec::new();
    let mut number = 0_u64;
    for byte in content {
        number = number.checked_mul(128)? + u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            numbers.push(number);
            number = 0;
        }
    }
    let first = numbers.first_mut()?;
    let root = (*first / 40).min(2);
    *first -= 40 * root;
    numbers.insert(0, root);
    Some(numbers)
}

/// Elements of DER that are not read yet.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The next element: its tag and content.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = if first < 0x80 {
            (usize::from(first), rest)
        } else {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let is_sound = (1..=4).contains(&bytes.len());
            let length = bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
            is_sound.then_some((length, rest))?
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }

    fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (found, content) = self.next()?;
        (found == tag).then_some(content)
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, CustomExtension, IsCa, Issuer, KeyPair};

    use super::*;

    fn params() -> CertificateParams {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_identifier_method = KeyIdMethod::PreSpecified(vec![7; 20]);
        params.distinguished_name = DistinguishedName::new();
        let own = |number| DnType::CustomDnType(vec![2, 5, 4, number]);
        let organisation = PrintableString::try_from("Keel, Sail and Sons").unwrap();
        let organisation = DnValue::PrintableString(organisation);
        params.distinguished_name.push(own(10), organisation);
        params.distinguished_name.push(own(3), "Kiël");
        // 1.2.840.113549.1.9.1, the address of a person: IA5, and numbers of several bytes.
        let address = DnType::CustomDnType(vec![1, 2, 840, 113_549, 1, 9, 1]);
        let text = DnValue::Ia5String(Ia5String::try_from("a@example.org").unwrap());
        params.distinguished_name.push(address, text);
        params
    }

    fn certificate(params: &CertificateParams) -> Vec<u8> {
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn a_name_and_a_key_are_read_as_they_were_written() {
        let params = params();
        let subject = Subject::read(&certificate(&params)).unwrap();
        assert_eq!(subject.name, params.distinguished_name);
        assert_eq!(subject.key_identifier, Some(params.key_identifier_method));
    }

    #[test]
    fn a_library_signs_the_same_for_the_authority_that_it_reads_itself() {
        let key = KeyPair::generate().unwrap();
        let pem = params().self_signed(&key).unwrap().pem();
        let again = || KeyPair::from_pem(&key.serialize_pem()).unwrap();
        let ours = super::super::issuer(&pem, again()).unwrap();
        let theirs = Issuer::from_ca_cert_pem(&pem, again()).unwrap();
        let mut site = CertificateParams::new(vec!["london".to_owned()]).unwrap();
        site.use_authority_key_identifier_extension = true;
        site.serial_number = Some(7.into());
        let [ours, theirs] = [&ours, &theirs].map(|issuer| {
            let certificate = site.signed_by(&key, issuer).unwrap();
            // Without the signature, which differs each time.
            let content = Der(certificate.der()).expect(SEQUENCE).unwrap().to_vec();
            Der(&content).expect(SEQUENCE).unwrap().to_vec()
        });
        assert_eq!(ours, theirs);
    }

    #[test]
    fn what_is_no_certificate_is_nothing_however_it_is_cut_or_bent() {
        let whole = certificate(&params());
        for length in 0..whole.len() {
            assert_eq!(Subject::read(&whole[..length]), None, "{length}");
        }
        for place in 0..whole.len() {
            let mut bent = whole.clone();
            bent[place] ^= 0xff;
            let _ = Subject::read(&bent); // it may be another name, but nothing panics
        }
        assert_eq!(Subject::read(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
        assert_eq!(Subject::read(&[0x30, 0x80]), None, "no length");
    }

    #[test]
    fn a_certificate_without_an_identifier_has_none() {
        let mut params = params();
        params.is_ca = IsCa::NoCa;
        let extension = CustomExtension::from_oid_content(&[1, 2, 3], vec![0x05, 0x00]);
        params.custom_extensions.push(extension);
        assert_eq!(Subject::read(&certificate(&params)).unwrap().key_identifier, None);
    }
}
