//! The rustls configuration of a site.

use std::sync::Arc;

use dunlin_config::Tls;
use rustls::pki_types::CertificateDer;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::{CipherSuite, ServerConfig, version};

use super::certificate::load;
use super::clock::WallClock;
use super::kept_sessions::KeptSessions;
use super::policy::{Policy, Requirements};

/// The TLS configuration of a site.
pub(crate) struct SiteConfig {
    /// `None` if the site does not permit TLS 1.3.
    http3: Option<Arc<ServerConfig>>,
    http2: Arc<ServerConfig>,
    http1: Arc<ServerConfig>,
    /// The policy that every successful handshake meets.
    pub(crate) policy: Policy,
    suites: Vec<CipherSuite>,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    /// Kept for the configuration that follows this one.
    _sessions: Arc<KeptSessions>,
}

impl SiteConfig {
    /// Returns the rustls configuration for listeners with or without HTTP/2.
    pub(crate) fn config(&self, http2: bool) -> Arc<ServerConfig> {
        Arc::clone(if http2 { &self.http2 } else { &self.http1 })
    }

    /// Returns the rustls configuration for QUIC connections; `None` if the site does not permit TLS 1.3.
    pub(crate) fn http3(&self) -> Option<Arc<ServerConfig>> {
        self.http3.clone()
    }

    /// Returns `true` if a handshake that met another policy also meets this one. `certificates` are those of the client.
    pub(crate) fn is_met_by(
        &self,
        suite: Option<CipherSuite>,
        certificates: &[CertificateDer<'_>],
    ) -> bool {
        suite.is_some_and(|suite| self.suites.contains(&suite))
            && self.verifier.as_ref().is_none_or(|verifier| match certificates {
                [own, others @ ..] => {
                    let now = WallClock.current_time();
                    now.is_some_and(|now| verifier.verify_client_cert(own, others, now).is_ok())
                }
                [] => !verifier.client_auth_mandatory(),
            })
    }

    /// Returns `true` if client certificates are requested.
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
    let sessions =
        KeptSessions::of(settings, &required, name).map_err(|error| format!("{name}: {error}"))?;
    let http1 = server_config(settings, &required, verifier.clone(), &sessions)?;
    let mut http2 = http1.clone();
    http2.alpn_protocols.insert(0, b"h2".to_vec());
    Ok(Arc::new(SiteConfig {
        http3: required.versions.contains(&&version::TLS13).then(|| Arc::new(for_quic(&http1))),
        http1: Arc::new(http1),
        http2: Arc::new(http2),
        policy: required.policy(),
        suites: required.suites(),
        verifier,
        _sessions: sessions,
    }))
}

fn server_config(
    settings: &Tls,
    required: &Requirements,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    sessions: &KeptSessions,
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
    sessions.apply(&mut config);
    config.send_tls13_tickets = 1;
    // Most responses are ready before the last message of the handshake.
    config.send_half_rtt_data = settings.clients.is_none();
    Ok(config)
}

/// Returns the configuration for QUIC connections.
fn for_quic(config: &ServerConfig) -> ServerConfig {
    let mut config = config.clone();
    config.alpn_protocols = vec![b"h3".to_vec()];
    if config.max_early_data_size > 0 {
        // QUIC has early data of any length or none (RFC 9001 §4.6.1). Flow control limits it.
        config.max_early_data_size = u32::MAX;
    }
    config
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
