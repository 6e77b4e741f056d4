//! The authorities that the server's own HTTP client trusts.

use std::path::Path;
use std::sync::Arc;

use dunlin_client::AnyCertificate;
use rustls::client::WebPkiServerVerifier;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, RootCertStore};

use super::certificate::{load, provider};
use super::clock::WallClock;
use super::pem;
use super::trusted_itself::TrustedItself;

/// Whose certificates a client accepts.
#[derive(Debug, Clone, Copy)]
pub enum Trust<'f> {
    /// Those of the authorities that the system trusts.
    System,
    /// Those of the authorities in a file, and those that this file has itself.
    File(&'f Path),
    /// All, of any issuer and for any name.
    Any,
}

/// Returns the configuration of a client that trusts servers whose certificates are signed by the authorities in the file
/// `authority`, or by those that the system trusts. A certificate that this file has itself is accepted as that of a server, too.
/// It offers HTTP/2.
///
/// # Errors
/// If no authority can be trusted: the reason.
pub fn client_config(authority: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
    client_config_with(authority.map_or(Trust::System, Trust::File), None)
}

/// Returns the same for a client that authenticates itself, if a server requests it, by the certificate and the key in two
/// files.
///
/// # Errors
/// As [`client_config`]; or the certificate and its key cannot be used: the message names the file.
pub fn client_config_with(
    trust: Trust<'_>,
    identity: Option<(&Path, &Path)>,
) -> Result<Arc<ClientConfig>, String> {
    let provider = provider();
    let builder = ClientConfig::builder_with_details(Arc::clone(&provider), Arc::new(WallClock))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match trust {
        Trust::File(file) => {
            let roots = Arc::new(roots(Some(file))?);
            let chains =
                WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider)).build();
            let chains =
                chains.map_err(|error| format!("authority {}: {error}", file.display()))?;
            let trusted = pem::certificates(file)?;
            let verifier = Arc::new(TrustedItself { chains, trusted });
            builder.dangerous().with_custom_certificate_verifier(verifier)
        }
        Trust::System => builder.with_root_certificates(roots(None)?),
        Trust::Any => {
            let verifier = Arc::new(AnyCertificate::new(Arc::clone(&provider)));
            builder.dangerous().with_custom_certificate_verifier(verifier)
        }
    };
    let mut config = match identity {
        Some((certificate, key)) => {
            let certified = load(&provider, certificate, key, None)?;
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified)))
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Returns the configuration of a client that trusts the authorities in the file `authority` besides those of the system. It
/// offers HTTP/2.
///
/// # Errors
/// If the file cannot be used, or no authority can be trusted: the reason.
pub fn client_config_besides(authority: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
    let mut trusted = system();
    if let Some(file) = authority {
        add(&mut trusted, file)?;
    }
    let builder = ClientConfig::builder_with_details(provider(), Arc::new(WallClock))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let mut config = builder.with_root_certificates(usable(trusted)?).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Returns the authorities in the file `authority`, or those that the system trusts.
///
/// # Errors
/// If the file cannot be used, or the system trusts no authority.
pub(crate) fn roots(authority: Option<&Path>) -> Result<RootCertStore, String> {
    let Some(file) = authority else { return usable(system()) };
    let mut roots = RootCertStore::empty();
    add(&mut roots, file)?;
    Ok(roots)
}

/// Returns the authorities that the system trusts. Those that cannot be parsed are ignored; the others are usable.
fn system() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

fn add(roots: &mut RootCertStore, file: &Path) -> Result<(), String> {
    let wrong = |error| format!("authority {}: {error}", file.display());
    pem::certificates(file)?.into_iter().try_for_each(|it| roots.add(it)).map_err(wrong)
}

fn usable(roots: RootCertStore) -> Result<RootCertStore, String> {
    if roots.is_empty() {
        return Err("the system has no list of authorities; install ca-certificates".into());
    }
    Ok(roots)
}
