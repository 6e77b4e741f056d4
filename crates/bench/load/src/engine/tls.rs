//! TLS configuration of the generator.

use std::fmt;
use std::sync::Arc;

use dunlin_client::AnyCertificate;
use rustls::pki_types::ServerName;
use url::Url;

use crate::plan::Plan;

/// Configuration of TLS sessions.
pub(super) struct Tls {
    pub(super) config: Arc<rustls::ClientConfig>,
    pub(super) name: ServerName<'static>,
}

impl Tls {
    pub(super) fn new(plan: &Plan, url: &Url) -> Result<Self, String> {
        let text = |error: &dyn fmt::Display| error.to_string();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| text(&error))?;
        let mut config = if plan.insecure {
            let any = Arc::new(AnyCertificate::new(provider));
            builder.dangerous().with_custom_certificate_verifier(any).with_no_client_auth()
        } else {
            let mut roots = rustls::RootCertStore::empty();
            let found = rustls_native_certs::load_native_certs();
            for certificate in found.certs {
                // Ignore certificates that rustls does not understand.
                let _ = roots.add(certificate);
            }
            builder.with_root_certificates(roots).with_no_client_auth()
        };
        config.enable_early_data = plan.early_data;
        config.alpn_protocols = vec![plan.protocol.alpn().to_vec()];
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let name = plan.server_name.as_deref().unwrap_or(host).to_owned();
        let name = ServerName::try_from(name).map_err(|error| text(&error))?;
        Ok(Self { config: Arc::new(config), name })
    }
}
