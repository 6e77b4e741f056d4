//! Responses to pending ACME challenges.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};

use super::storage::SharedChallenge;
use crate::certificate::provider;
use crate::clock::WallClock;

/// The only ALPN protocol that a TLS-ALPN-01 client offers (RFC 8737 §4).
pub(crate) const ALPN: &[u8] = b"acme-tls/1";
/// The path prefix of HTTP-01 (RFC 8555 §8.3).
const HTTP01_PREFIX: &[u8] = b"/.well-known/acme-challenge/";

/// Maximum of responses that those of other servers may fill. Each has a certificate, or two texts.
const MAX_SHARED: usize = 1_000;
/// Maximum length of a token, a response or a name in bytes. A key authorization has fewer than 200.
const MAX_TEXT: usize = 1_024;

/// The responses to pending challenges.
#[derive(Debug, Default)]
pub struct Challenges {
    state: RwLock<Responses>,
}

#[derive(Debug, Default)]
struct Responses {
    /// HTTP-01 responses by token.
    texts: HashMap<String, String>,
    /// TLS-ALPN-01 configurations by name.
    handshakes: HashMap<String, Arc<ServerConfig>>,
}

/// A published response. Dropping it removes the response.
#[derive(Debug)]
pub struct Published {
    challenges: Arc<Challenges>,
    key: Key,
}

#[derive(Debug)]
enum Key {
    /// The token.
    Text(String),
    /// The host name, and its configuration, which that of another order may have replaced.
    Handshake(String, Arc<ServerConfig>),
}

/// Shared by all configurations, so that an order that is running during a reload can complete.
static OF_PROCESS: LazyLock<Arc<Challenges>> = LazyLock::new(Arc::default);

impl Challenges {
    /// Returns the responses of this process.
    pub fn of_process() -> Arc<Self> {
        Arc::clone(&OF_PROCESS)
    }

    /// Returns the HTTP-01 response for a path, if it is pending.
    pub fn text(&self, path: &[u8]) -> Option<String> {
        let token = std::str::from_utf8(path.strip_prefix(HTTP01_PREFIX)?).ok()?;
        self.read().texts.get(token).cloned()
    }

    /// Returns the TLS-ALPN-01 configuration for `name`, if it is pending.
    pub fn handshake(&self, name: &str) -> Option<Arc<ServerConfig>> {
        self.read().handshakes.get(&name.to_ascii_lowercase()).cloned()
    }

    /// Publishes the response to a challenge of another server, which the shared storage has.
    ///
    /// # Errors
    /// As [`publish`](Self::publish), or when it is longer than a response can be, or one too many.
    pub fn publish_shared(
        self: &Arc<Self>,
        challenge: &SharedChallenge,
    ) -> Result<Published, String> {
        let count = {
            let Responses { texts, handshakes } = &*self.read();
            texts.len() + handshakes.len()
        };
        if count >= MAX_SHARED {
            return Err(format!("there are {count} already"));
        }
        if challenge.texts().iter().any(|text| text.len() > MAX_TEXT) {
            return Err(format!("it has a text of more than {MAX_TEXT} bytes"));
        }
        self.publish(challenge)
    }

    /// Publishes the response to a challenge.
    ///
    /// # Errors
    /// When a certificate is needed and cannot be created.
    pub fn publish(self: &Arc<Self>, challenge: &SharedChallenge) -> Result<Published, String> {
        match challenge {
            SharedChallenge::Http { token, response } => Ok(self.publish_text(token, response)),
            SharedChallenge::Tls { name, digest } => self.publish_handshake(name, digest),
        }
    }

    /// Publishes an HTTP-01 response.
    pub(crate) fn publish_text(self: &Arc<Self>, token: &str, response: &str) -> Published {
        self.write().texts.insert(token.to_owned(), response.to_owned());
        Published { challenges: Arc::clone(self), key: Key::Text(token.to_owned()) }
    }

    /// Publishes a TLS-ALPN-01 response for a name or an address. `digest` is the SHA-256 of the key authorization.
    ///
    /// # Errors
    /// When the certificate cannot be created.
    pub(crate) fn publish_handshake(
        self: &Arc<Self>,
        name: &str,
        digest: &[u8; 32],
    ) -> Result<Published, String> {
        let config = challenge_config(name, digest)?;
        let config = Arc::new(config);
        let name = name.parse().map_or_else(|_| name.to_owned(), reverse_name);
        self.write().handshakes.insert(name.clone(), Arc::clone(&config));
        Ok(Published { challenges: Arc::clone(self), key: Key::Handshake(name, config) })
    }

    fn read(&self) -> RwLockReadGuard<'_, Responses> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Responses> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        let mut responses = self.challenges.write();
        match &self.key {
            Key::Text(token) => drop(responses.texts.remove(token)),
            Key::Handshake(name, config) => {
                let is_it =
                    responses.handshakes.get(name).is_some_and(|it| Arc::ptr_eq(it, config));
                drop(is_it.then(|| responses.handshakes.remove(name)));
            }
        }
    }
}

/// Returns the name by which an authority requests the certificate for an address (RFC 8738 §6).
fn reverse_name(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(address) => {
            let digits = address.octets().into_iter().rev().flat_map(|byte| [byte & 15, byte >> 4]);
            let digits: String = digits.map(|digit| format!("{digit:x}.")).collect();
            format!("{digits}ip6.arpa")
        }
    }
}

/// Returns a configuration with the certificate of RFC 8737 §3 only.
fn challenge_config(name: &str, digest: &[u8; 32]) -> Result<ServerConfig, String> {
    let wrong = |error: rcgen::Error| format!("{name}: {error}");
    let key = KeyPair::generate().map_err(wrong)?;
    let mut parameters = CertificateParams::new(vec![name.to_owned()]).map_err(wrong)?;
    parameters.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let certificate = parameters.self_signed(&key).map_err(wrong)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let wrong = |error: rustls::Error| format!("{name}: {error}");
    let provider = provider();
    let key = provider.key_provider.load_private_key(key).map_err(wrong)?;
    // The extension is critical and known to authorities only, so no other client accepts this certificate.
    let certified = CertifiedKey::new(vec![certificate.der().clone()], key);
    let mut config = ServerConfig::builder_with_details(provider, Arc::new(WallClock))
        .with_safe_default_protocol_versions()
        .map_err(wrong)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_response_for_an_address_has_its_reverse_name() {
        let challenges = Arc::new(Challenges::default());
        for (address, name) in [
            ("192.0.2.1", "1.2.0.192.in-addr.arpa"),
            (
                "2001:db8::1a",
                "a.1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa",
            ),
        ] {
            let published = challenges.publish_handshake(address, &[0; 32]).unwrap();
            assert!(challenges.handshake(name).is_some(), "{name}");
            assert!(challenges.handshake(address).is_none());
            drop(published);
            assert!(challenges.handshake(name).is_none());
        }
    }

    #[test]
    fn the_storage_can_publish_no_endless_responses() {
        let challenges = Arc::new(Challenges::default());
        let http = |token: &str, response: &str| SharedChallenge::Http {
            token: token.into(),
            response: response.into(),
        };
        let long = "x".repeat(MAX_TEXT + 1);
        for challenge in [http(&long, "a"), http("a", &long)] {
            assert!(challenges.publish_shared(&challenge).is_err());
        }
        let publish = |number: usize| challenges.publish_shared(&http(&number.to_string(), "a"));
        let published: Vec<_> =
            (0..2 * MAX_SHARED).filter_map(|number| publish(number).ok()).collect();
        assert_eq!(published.len(), MAX_SHARED);
        assert!(challenges.publish(&http("own", "a")).is_ok());
        drop(published);
        assert!(publish(1).is_ok());
    }
}
