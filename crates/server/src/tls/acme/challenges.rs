//! What proves to an authority that a name is this server's, for as long as it asks.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};

use crate::tls::certificate::provider;
use crate::tls::clock::WallClock;

/// The protocol that a client of TLS-ALPN-01 offers, alone (RFC 8737 §4).
pub(crate) const ALPN: &[u8] = b"acme-tls/1";
/// Where the answers of HTTP-01 are asked for (RFC 8555 §8.3).
const PLACE: &[u8] = b"/.well-known/acme-challenge/";

/// The answers that are to be given now.
#[derive(Debug, Default)]
pub(crate) struct Challenges {
    state: RwLock<Answers>,
}

#[derive(Debug, Default)]
struct Answers {
    /// Of HTTP-01, by token.
    texts: HashMap<String, String>,
    /// Of TLS-ALPN-01, by name.
    handshakes: HashMap<String, Arc<ServerConfig>>,
}

/// An answer that is given until this is dropped.
#[derive(Debug)]
pub(super) struct Shown {
    challenges: Arc<Challenges>,
    what: What,
}

#[derive(Debug)]
enum What {
    Text(String),
    Handshake(String),
}

/// One for all configurations: an order that is under way when another one comes into force can be met.
static OF_PROCESS: LazyLock<Arc<Challenges>> = LazyLock::new(Arc::default);

impl Challenges {
    /// The answers of this process.
    pub(crate) fn of_process() -> Arc<Self> {
        Arc::clone(&OF_PROCESS)
    }

    /// The answer to a request for this path, if it is one that is waited for.
    pub(crate) fn text(&self, path: &[u8]) -> Option<String> {
        let token = std::str::from_utf8(path.strip_prefix(PLACE)?).ok()?;
        self.read().texts.get(token).cloned()
    }

    /// What a client that asks for the proof that `name` is this server's is answered with.
    pub(crate) fn handshake(&self, name: &str) -> Option<Arc<ServerConfig>> {
        self.read().handshakes.get(&name.to_ascii_lowercase()).cloned()
    }

    /// Answers HTTP-01 from now on.
    pub(super) fn show_text(self: &Arc<Self>, token: &str, answer: &str) -> Shown {
        self.write().texts.insert(token.to_owned(), answer.to_owned());
        Shown { challenges: Arc::clone(self), what: What::Text(token.to_owned()) }
    }

    /// Answers TLS-ALPN-01 from now on; `digest` is the SHA-256 of the key authorization.
    ///
    /// # Errors
    /// What is wrong with the name.
    pub(super) fn show_handshake(
        self: &Arc<Self>,
        name: &str,
        digest: &[u8; 32],
    ) -> Result<Shown, String> {
        let config = proving(name, digest)?;
        self.write().handshakes.insert(name.to_owned(), Arc::new(config));
        Ok(Shown { challenges: Arc::clone(self), what: What::Handshake(name.to_owned()) })
    }

    fn read(&self) -> RwLockReadGuard<'_, Answers> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Answers> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let mut answers = self.challenges.write();
        match &self.what {
            What::Text(token) => drop(answers.texts.remove(token)),
            What::Handshake(name) => drop(answers.handshakes.remove(name)),
        }
    }
}

/// The certificate that RFC 8737 §3 asks for, and nothing besides.
fn proving(name: &str, digest: &[u8; 32]) -> Result<ServerConfig, String> {
    let wrong = |error: rcgen::Error| format!("{name}: {error}");
    let key = KeyPair::generate().map_err(wrong)?;
    let mut parameters = CertificateParams::new(vec![name.to_owned()]).map_err(wrong)?;
    parameters.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let certificate = parameters.self_signed(&key).map_err(wrong)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let wrong = |error: rustls::Error| format!("{name}: {error}");
    let provider = provider();
    let key = provider.key_provider.load_private_key(key).map_err(wrong)?;
    // The extension is critical and known to authorities only: nobody else would take this for a certificate.
    let certified = CertifiedKey::new(vec![certificate.der().clone()], key);
    let mut config = ServerConfig::builder_with_details(provider, Arc::new(WallClock))
        .with_safe_default_protocol_versions()
        .map_err(wrong)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(config)
}
