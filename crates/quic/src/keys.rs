//! The secrets of a server's endpoints.

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};

use aws_lc_rs::{hkdf, hmac, rand};
use quinn_proto::crypto::{AeadKey, CryptoError, HandshakeTokenKey, HmacKey};

use crate::connection_id::ChecksumKey;

/// The number of bytes of a secret.
pub const SECRET: usize = 32;

/// The keys of stateless resets, of Retry tokens and of connection IDs. Endpoints with the same secret accept each other's:
/// those of all workers, of the process that follows this one, and of a fleet.
///
/// The secret of a fleet is known some time after the start. From then on, what is issued has its keys; connection IDs that
/// were issued before stay valid.
#[derive(Clone)]
pub struct Keys(Arc<Both>);

struct Both {
    own: Derived,
    shared: OnceLock<Derived>,
}

/// What follows from a secret.
struct Derived {
    secret: [u8; SECRET],
    reset: hmac::Key,
    token: hkdf::Prk,
    checksum: ChecksumKey,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").finish_non_exhaustive()
    }
}

impl Keys {
    /// Returns keys of a random secret.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn random() -> io::Result<Self> {
        let mut secret = [0; SECRET];
        let none = |_| io::Error::other("the system has no random numbers");
        rand::fill(&mut secret).map_err(none)?;
        Ok(Self::of(&secret))
    }

    /// Derives the keys of a secret.
    pub fn of(secret: &[u8; SECRET]) -> Self {
        Self(Arc::new(Both { own: Derived::of(secret), shared: OnceLock::new() }))
    }

    /// Sets the secret of a fleet. It stays the same until the process ends.
    pub fn share(&self, secret: &[u8; SECRET]) {
        self.0.shared.get_or_init(|| Derived::of(secret));
    }

    /// Returns `true` if the secret of a fleet is set.
    pub fn is_shared(&self) -> bool {
        self.0.shared.get().is_some()
    }

    /// Returns the secret of this server, and that of its fleet.
    pub fn secrets(&self) -> ([u8; SECRET], Option<[u8; SECRET]>) {
        (self.0.own.secret, self.0.shared.get().map(|shared| shared.secret))
    }

    /// Returns the keys of what is issued.
    fn current(&self) -> &Derived {
        self.0.shared.get().unwrap_or(&self.0.own)
    }

    /// Returns the key of the checksums in new connection IDs.
    pub(crate) fn checksum(&self) -> ChecksumKey {
        self.current().checksum
    }

    /// Returns the keys of the checksums in connection IDs.
    pub(crate) fn checksums(&self) -> impl Iterator<Item = ChecksumKey> {
        let shared = self.0.shared.get().map(|shared| shared.checksum);
        shared.into_iter().chain([self.0.own.checksum])
    }
}

impl Derived {
    fn of(secret: &[u8; SECRET]) -> Self {
        let derive = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let derived = |label: &str| hmac::sign(&derive, label.as_bytes());
        let mut checksum = [0; 16];
        checksum.copy_from_slice(&derived("dunlin quic connection id").as_ref()[..16]);
        let reset = derived("dunlin quic stateless reset");
        Self {
            secret: *secret,
            reset: hmac::Key::new(hmac::HMAC_SHA256, reset.as_ref()),
            token: hkdf::Salt::new(hkdf::HKDF_SHA256, &[])
                .extract(derived("dunlin quic token").as_ref()),
            checksum: ChecksumKey(checksum),
        }
    }
}

/// The tokens of stateless resets.
impl HmacKey for Keys {
    fn sign(&self, data: &[u8], signature_out: &mut [u8]) {
        HmacKey::sign(&self.current().reset, data, signature_out);
    }

    fn signature_len(&self) -> usize {
        HmacKey::signature_len(&self.current().reset)
    }

    fn verify(&self, data: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        HmacKey::verify(&self.current().reset, data, signature)
    }
}

/// The tokens by which clients show that they receive what is sent to their address.
impl HandshakeTokenKey for Keys {
    fn aead_from_hkdf(&self, random_bytes: &[u8]) -> Box<dyn AeadKey> {
        self.current().token.aead_from_hkdf(random_bytes)
    }
}
