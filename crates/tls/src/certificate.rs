//! Builds the rustls configuration of a site from its certificate files.

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use dunlin_config::Tls;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, ServerSessionMemoryCache,
};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::{CipherSuite, CommonState, ServerConfig};
use x509_parser::certificate::X509Certificate;
use x509_parser::error::X509Error;
use x509_parser::extensions::GeneralName;
use x509_parser::time::ASN1Time;

use super::clock::{Tickets, WallClock, after_1970};
use super::policy::{Policy, Requirements};

/// The cryptography provider of all TLS connections.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// Maximum length of a client's early data in bytes.
const EARLY_DATA: u32 = 16 * 1024;
/// Maximum number of stored sessions of a site with early data.
const SESSIONS: usize = 10_000;

/// The TLS configuration of a site.
pub(crate) struct SiteConfig {
    http2: Arc<ServerConfig>,
    http1: Arc<ServerConfig>,
    /// The policy that every successful handshake meets.
    pub(crate) policy: Policy,
    suites: Vec<CipherSuite>,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
}

impl SiteConfig {
    /// The rustls configuration for listeners with or without HTTP/2.
    pub(crate) fn config(&self, http2: bool) -> Arc<ServerConfig> {
        Arc::clone(if http2 { &self.http2 } else { &self.http1 })
    }

    /// Whether a handshake that met another policy also meets this one.
    pub(crate) fn is_met_by(&self, tls: &CommonState) -> bool {
        let suite = tls.negotiated_cipher_suite().map(|suite| suite.suite());
        suite.is_some_and(|suite| self.suites.contains(&suite))
            && self.verifier.as_ref().is_none_or(|verifier| match tls.peer_certificates() {
                Some([own, others @ ..]) => {
                    let now = WallClock.current_time();
                    now.is_some_and(|now| verifier.verify_client_cert(own, others, now).is_ok())
                }
                _ => !verifier.client_auth_mandatory(),
            })
    }

    /// Whether client certificates are requested.
    pub(crate) fn verifies_clients(&self) -> bool {
        self.verifier.is_some()
    }
}

/// Loads the TLS configuration of the site `name`.
///
/// # Errors
/// The file that cannot be used, and why.
pub(crate) fn site_config(settings: &Tls, name: &str) -> Result<Arc<SiteConfig>, String> {
    let required = Requirements::read(settings)?;
    let verifier = required.verifier()?;
    let http1 = server_config(settings, &required, verifier.clone(), name)?;
    let mut http2 = http1.clone();
    http2.alpn_protocols.insert(0, b"h2".to_vec());
    Ok(Arc::new(SiteConfig {
        http1: Arc::new(http1),
        http2: Arc::new(http2),
        policy: required.policy(),
        suites: required.suites(),
        verifier,
    }))
}

fn server_config(
    settings: &Tls,
    required: &Requirements,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    name: &str,
) -> Result<ServerConfig, String> {
    let provider = &required.provider;
    let mut keys = Vec::new();
    for (certificate, key) in &settings.certificates {
        keys.push(Arc::new(load(provider, certificate, key, settings.ocsp.as_deref())?));
    }
    let builder = ServerConfig::builder_with_details(Arc::clone(provider), Arc::new(WallClock))
        .with_protocol_versions(&required.versions)
        .map_err(|error| error.to_string())?;
    let builder = match verifier {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(verifier),
    };
    let mut config = builder.with_cert_resolver(Arc::new(Keys(keys)));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.ignore_client_order = settings.ciphers.is_some();
    // Sessions are resumed by tickets, whose keys change every six hours; the server stores nothing. A ticket is valid for
    // this site only, so that a resumed session has met its policy.
    if settings.early_data {
        // A session can be resumed once, so that early data cannot be replayed.
        config.session_storage = ServerSessionMemoryCache::new(SESSIONS);
        config.max_early_data_size = EARLY_DATA;
    } else {
        let tickets = Tickets::new().map_err(|error| format!("{name}: {error}"))?;
        config.ticketer = Arc::new(tickets);
        config.session_storage = Arc::new(NoServerSessionStorage {});
    }
    config.send_tls13_tickets = 1;
    // Most responses are ready before the last message of the handshake.
    config.send_half_rtt_data = settings.clients.is_none();
    Ok(config)
}

fn load(
    provider: &CryptoProvider,
    certificate: &Path,
    key: &Path,
    ocsp: Option<&Path>,
) -> Result<CertifiedKey, String> {
    let chain = chain(certificate)?;
    let text = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| format!("key {}: {}", key.display(), describe(&error)))?;
    let signing = provider
        .key_provider
        .load_private_key(text)
        .map_err(|error| format!("key {}: {error}", key.display()))?;
    let mut certified = CertifiedKey::new(chain, signing);
    certified.keys_match().map_err(|error| match error {
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

/// The certificates in a file in PEM form.
///
/// # Errors
/// When the file has none or cannot be read; the message names it.
pub(crate) fn chain(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |error| format!("certificate {}: {}", file.display(), describe(&error));
    let chain: Vec<_> = CertificateDer::pem_file_iter(file)
        .map_err(wrong)?
        .collect::<Result<_, _>>()
        .map_err(wrong)?;
    if chain.is_empty() {
        return Err(format!("certificate {}: it holds no certificate in PEM form", file.display()));
    }
    Ok(chain)
}

/// Describes an error of a file in PEM form.
pub(crate) fn describe(error: &rustls::pki_types::pem::Error) -> String {
    use rustls::pki_types::pem::Error;
    match error {
        Error::Io(error) => error.to_string(),
        Error::NoItemsFound => "it holds none in PEM form".to_owned(),
        error => error.to_string(),
    }
}

/// A site's certificates, the preferred first.
#[derive(Debug)]
struct Keys(Vec<Arc<CertifiedKey>>);

impl ResolvesServerCert for Keys {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let schemes = hello.signature_schemes();
        let fit = self.0.iter().find(|key| key.key.choose_scheme(schemes).is_some());
        // Without a suitable one, the handshake fails with an alert.
        fit.or(self.0.first()).cloned()
    }
}

/// Checks that a file holds a certificate and its key.
///
/// # Errors
/// When it does not; the message names the file.
pub(crate) fn check_pair(file: &Path) -> Result<(), String> {
    load(&provider(), file, file, None).map(drop)
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

/// The validity period of the first certificate of a file.
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
    let chain = chain(file)?;
    let first = chain.first().map(AsRef::as_ref).unwrap_or_default();
    let certificate = x509_parser::parse_x509_certificate(first)
        .map(|(_, certificate): (_, X509Certificate<'_>)| certificate)
        .map_err(|error| format!("certificate {}: {error}", file.display()))?;
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
                _ => None,
            })
            .collect(),
    })
}

/// A time in human-readable form.
pub(crate) fn date(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let time = ASN1Time::from_timestamp(i64::try_from(seconds).unwrap_or_default());
    time.and_then(|time| time.to_rfc2822().map_err(|_| X509Error::InvalidDate))
        .unwrap_or_else(|error| error.to_string())
}
