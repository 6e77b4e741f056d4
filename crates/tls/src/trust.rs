//! The authorities that the server's own HTTP client trusts.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};

use super::certificate::{chain, provider};
use super::clock::WallClock;

/// The configuration of a client that trusts servers whose certificates are signed by the authorities in the file
/// `authority`, or by those that the system trusts. It offers HTTP/2.
///
/// # Errors
/// If no authority can be trusted: the reason.
pub fn client_config(authority: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
    let mut config = ClientConfig::builder_with_details(provider(), Arc::new(WallClock))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots(authority)?)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The authorities in the file `authority`, or those that the system trusts.
///
/// # Errors
/// If the file cannot be used, or the system trusts no authority.
pub(crate) fn roots(authority: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    if let Some(file) = authority {
        for certificate in chain(file)? {
            let wrong = |error| format!("authority {}: {error}", file.display());
            roots.add(certificate).map_err(wrong)?;
        }
        return Ok(roots);
    }
    let system: Vec<CertificateDer<'static>> = rustls_native_certs::load_native_certs().certs;
    // Certificates that cannot be parsed are ignored; the others are usable.
    roots.add_parsable_certificates(system);
    if roots.is_empty() {
        return Err("the system has no list of authorities; install ca-certificates".into());
    }
    Ok(roots)
}
