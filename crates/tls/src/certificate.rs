//! Reading certificates and keys from files.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::InconsistentKeys;
use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use x509_parser::certificate::X509Certificate;
use x509_parser::error::X509Error;
use x509_parser::extensions::GeneralName;
use x509_parser::time::ASN1Time;
use x509_parser::x509::X509Version;

use super::clock::after_1970;
use super::{pem, record_cipher};

/// Returns the cryptography provider of all TLS connections.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    record_cipher::install(&mut provider);
    Arc::new(provider)
}

/// Loads a certificate chain and its key.
///
/// # Errors
/// The file that cannot be used, and why.
pub(crate) fn load(
    provider: &CryptoProvider,
    certificate: &Path,
    key: &Path,
    ocsp: Option<&Path>,
) -> Result<CertifiedKey, String> {
    let chain = pem::certificates(certificate)?;
    let signing = pem::signing_key(provider, key)?;
    let mut certified = CertifiedKey::new(chain, signing);
    keys_match(&certified).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            format!("key {} is not that of certificate {}", key.display(), certificate.display())
        }
        error => format!("certificate {}: {error}", certificate.display()),
    })?;
    if let Some(file) = ocsp {
        let response = std::fs::read(file);
        certified.ocsp =
            Some(response.map_err(|error| format!("ocsp {}: {error}", file.display()))?);
    }
    Ok(certified)
}

/// Checks that a certificate is that of its key.
///
/// # Errors
/// It is that of another key, or malformed.
fn keys_match(certified: &CertifiedKey) -> Result<(), rustls::Error> {
    let first = certified.end_entity_cert()?;
    let parsed = x509_parser::parse_x509_certificate(first);
    match parsed {
        // `openssl x509 -req` makes certificates of version 1, which webpki does not read. It is for the clients to accept them.
        Ok((_, parsed)) if parsed.version() == X509Version::V1 => {
            let own = certified.key.public_key().ok_or(InconsistentKeys::Unknown)?;
            match own.as_ref() == parsed.public_key().raw {
                true => Ok(()),
                false => Err(InconsistentKeys::KeyMismatch.into()),
            }
        }
        _ => certified.keys_match(),
    }
}

/// Checks that files hold a certificate and its key.
///
/// # Errors
/// When they do not; the message names the file.
pub fn check_pair(certificate: &Path, key: &Path) -> Result<(), String> {
    load(&provider(), certificate, key, None).map(drop)
}

/// The validity period of a certificate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Validity {
    pub(crate) from: SystemTime,
    pub(crate) until: SystemTime,
    /// A byte that differs among certificates.
    pub(crate) spread: u8,
}

/// Properties of the first certificate of a file.
pub(crate) struct CertificateInfo {
    pub(crate) validity: Validity,
    /// The host names that it covers.
    pub(crate) names: Vec<String>,
}

/// Returns the validity period of the first certificate of a file.
///
/// # Errors
/// When the file cannot be read or parsed; the message names it.
pub(crate) fn validity(file: &Path) -> Result<Validity, String> {
    info(file).map(|info| info.validity)
}

/// Properties of the first certificate of a file.
///
/// # Errors
/// When the file cannot be read or parsed; the message names it.
pub(crate) fn info(file: &Path) -> Result<CertificateInfo, String> {
    let chain = pem::certificates(file)?;
    let first = chain.first().map(AsRef::as_ref).unwrap_or_default();
    let certificate = x509_parser::parse_x509_certificate(first)
        .map(|(_, certificate): (_, X509Certificate<'_>)| certificate)
        .map_err(|_| {
            format!("certificate {}: it is not a valid X.509 certificate", file.display())
        })?;
    let time = |time: ASN1Time| after_1970(u64::try_from(time.timestamp()).unwrap_or_default());
    let validity = certificate.validity();
    let names = certificate.subject_alternative_name().ok().flatten();
    let names = names.iter().flat_map(|names| &names.value.general_names);
    Ok(CertificateInfo {
        validity: Validity {
            from: time(validity.not_before),
            until: time(validity.not_after),
            spread: first.last().copied().unwrap_or_default(),
        },
        names: names
            .filter_map(|name| match name {
                GeneralName::DNSName(name) => Some((*name).to_owned()),
                GeneralName::IPAddress(bytes) => address(bytes).map(|address| address.to_string()),
                _ => None,
            })
            .collect(),
    })
}

/// Returns the address of a subject alternative name (RFC 5280 §4.2.1.6).
pub(crate) fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

/// Returns a time in human-readable form.
pub(crate) fn date(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let time = ASN1Time::from_timestamp(i64::try_from(seconds).unwrap_or_default());
    time.and_then(|time| time.to_rfc2822().map_err(|_| X509Error::InvalidDate))
        .unwrap_or_else(|error| error.to_string())
}
