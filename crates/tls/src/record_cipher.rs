//! Cipher suites that encrypt a record from the caller's plaintext directly into the caller's buffer.
//!
//! The encrypters of rustls copy the plaintext of a record into an allocation, encrypt it there, and copy the result into
//! the buffer of the caller. For the bodies of files, these copies cost more than the encryption. The suites of TLS 1.3
//! here are those of rustls with another encrypter: within [`encrypt_into`], it writes records of application data to the
//! end of the given buffer, and gives rustls an empty record. rustls still keeps keys and sequence numbers, and updates keys.

use std::cell::Cell;
use std::sync::LazyLock;

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, MAX_TAG_LEN, Nonce,
    UnboundKey,
};
use rustls::crypto::CryptoProvider;
use rustls::crypto::cipher::{
    AeadKey, Iv, MessageDecrypter, MessageEncrypter, OutboundChunks, OutboundOpaqueMessage,
    OutboundPlainMessage, PrefixedPayload, Tls13AeadAlgorithm, UnsupportedOperationError,
    make_tls13_aad,
};
use rustls::crypto::{CipherSuiteCommon, cipher};
use rustls::server::ServerConnectionData;
use rustls::unbuffered::{EncryptError, WriteTraffic};
use rustls::{
    CipherSuite, ConnectionTrafficSecrets, ContentType, Error, ProtocolVersion,
    SupportedCipherSuite, Tls13CipherSuite,
};

/// Length of the header of a record.
const HEADER: usize = 5;
/// Maximum plaintext length of a record (RFC 8446 §5.1).
pub(crate) const FULL: usize = 16 * 1024;
/// Upper bound on the overhead of a record in bytes: header, content type, tag.
const OVERHEAD: usize = HEADER + 1 + MAX_TAG_LEN;

/// Encrypted records, and buffers for the duration of one call.
#[derive(Default)]
pub(crate) struct Sealed {
    /// Records up to `end`. The rest was written before, so that it need not be initialized again.
    bytes: Vec<u8>,
    end: usize,
    /// What rustls writes besides: messages of the protocol, and the headers of empty records.
    other: Vec<u8>,
}

thread_local! {
    /// The buffer of the call of [`encrypt_into`] that is in progress on this thread.
    static TARGET: Cell<Option<Sealed>> = const { Cell::new(None) };
}

/// Replaces the encrypters of TLS 1.3 in `provider`.
pub(crate) fn install(provider: &mut CryptoProvider) {
    for suite in &mut provider.cipher_suites {
        let replacement = SUITES.iter().find(|other| other.suite() == suite.suite());
        *suite = replacement.copied().unwrap_or(*suite);
    }
}

/// The suites of TLS 1.3, for the lifetime of the process as rustls requires.
static SUITES: LazyLock<Vec<SupportedCipherSuite>> = LazyLock::new(|| {
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let suites = provider.cipher_suites.iter();
    suites.filter_map(SupportedCipherSuite::tls13).filter_map(replace).collect()
});

/// Returns the suite with the encrypter of this module; `None` if the algorithm is unknown.
fn replace(suite: &'static Tls13CipherSuite) -> Option<SupportedCipherSuite> {
    let algorithm = match suite.common.suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => &AES_128_GCM,
        CipherSuite::TLS13_AES_256_GCM_SHA384 => &AES_256_GCM,
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => &CHACHA20_POLY1305,
        _ => return None,
    };
    let common = &suite.common;
    Some(SupportedCipherSuite::Tls13(Box::leak(Box::new(Tls13CipherSuite {
        common: CipherSuiteCommon {
            suite: common.suite,
            hash_provider: common.hash_provider,
            confidentiality_limit: common.confidentiality_limit,
        },
        hkdf_provider: suite.hkdf_provider,
        aead_alg: Box::leak(Box::new(Aead { algorithm, original: suite.aead_alg })),
        quic: suite.quic,
    }))))
}

/// Encrypts `content` as records at the end of `sealed`. The connection uses TLS 1.3.
///
/// # Errors
/// When the keys are used up.
pub(crate) fn encrypt_into(
    traffic: &mut WriteTraffic<'_, ServerConnectionData>,
    content: &[u8],
    sealed: &mut Sealed,
) -> Result<(), EncryptError> {
    let records = content.len().div_ceil(FULL);
    sealed.reserve(content.len() + records * OVERHEAD);
    let start = sealed.end;
    let mut other = std::mem::take(&mut sealed.other);
    // The buffer of rustls is not touched where it writes nothing.
    let mut needed = content.len() + records * OVERHEAD;
    let result = loop {
        if other.len() < needed {
            other = vec![0; needed];
        }
        TARGET.set(Some(std::mem::take(sealed)));
        let result = traffic.encrypt(content, &mut other);
        *sealed = TARGET.take().unwrap_or_default();
        match result {
            // A KeyUpdate message precedes the records.
            Err(EncryptError::InsufficientSize(lack)) => needed = lack.required_size,
            result => break result,
        }
    };
    if let Ok(count) = result {
        sealed.insert(start, &other[..count - records * HEADER]);
    }
    sealed.other = other;
    result.map(drop)
}

impl Sealed {
    /// Removes all records.
    pub(crate) fn clear(&mut self) {
        self.end = 0;
    }

    /// Returns the records.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.end]
    }

    /// Appends ciphertext.
    pub(crate) fn append(&mut self, records: &[u8]) {
        self.reserve(records.len());
        self.bytes[self.end..][..records.len()].copy_from_slice(records);
        self.end += records.len();
    }

    /// Returns the room at the end, of at least `length` bytes. [`Sealed::extend`] takes over what is written there.
    pub(crate) fn room(&mut self, length: usize) -> &mut [u8] {
        self.reserve(length);
        &mut self.bytes[self.end..]
    }

    /// Takes over the first `length` bytes of the room.
    pub(crate) fn extend(&mut self, length: usize) {
        self.end += length;
    }

    fn reserve(&mut self, length: usize) {
        if self.bytes.len() < self.end + length {
            self.bytes.resize(self.end + length, 0);
        }
    }

    fn insert(&mut self, at: usize, message: &[u8]) {
        if !message.is_empty() {
            self.bytes.splice(at..at, message.iter().copied());
            self.end += message.len();
        }
    }
}

/// An algorithm of TLS 1.3 with the encrypter of this module.
struct Aead {
    algorithm: &'static Algorithm,
    original: &'static dyn Tls13AeadAlgorithm,
}

impl Tls13AeadAlgorithm for Aead {
    fn encrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageEncrypter> {
        match UnboundKey::new(self.algorithm, key.as_ref()) {
            Ok(unbound) => Box::new(Encrypter { key: LessSafeKey::new(unbound), iv }),
            // Not reached: rustls derives keys of `key_len` bytes.
            Err(_) => self.original.encrypter(key, iv),
        }
    }

    fn decrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageDecrypter> {
        self.original.decrypter(key, iv)
    }

    fn key_len(&self) -> usize {
        self.original.key_len()
    }

    fn extract_keys(
        &self,
        key: AeadKey,
        iv: Iv,
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        self.original.extract_keys(key, iv)
    }
}

/// Encrypts the records of one direction of a connection.
struct Encrypter {
    key: LessSafeKey,
    iv: Iv,
}

impl Encrypter {
    fn nonce(&self, sequence: u64) -> Nonce {
        Nonce::assume_unique_for_key(cipher::Nonce::new(&self.iv, sequence).0)
    }

    /// Encrypts a record of application data at the end of `sealed`.
    fn seal(&self, content: &[u8], sequence: u64, sealed: &mut Sealed) -> Result<(), Error> {
        let length = self.encrypted_payload_len(content.len());
        let room = &mut sealed.room(HEADER + length)[..HEADER + length];
        let (header, payload) = room.split_at_mut(HEADER);
        let aad = make_tls13_aad(length);
        header.copy_from_slice(&aad);
        let (encrypted, rest) = payload.split_at_mut(content.len());
        let content_type = ContentType::ApplicationData.to_array();
        self.key
            .seal_out_of_place_scatter(
                self.nonce(sequence),
                Aad::from(aad),
                content,
                encrypted,
                &content_type,
                rest,
            )
            .map_err(|_| Error::EncryptError)?;
        sealed.extend(HEADER + length);
        Ok(())
    }
}

impl MessageEncrypter for Encrypter {
    fn encrypt(
        &mut self,
        message: OutboundPlainMessage<'_>,
        sequence: u64,
    ) -> Result<OutboundOpaqueMessage, Error> {
        let (kind, version) = (ContentType::ApplicationData, ProtocolVersion::TLSv1_2);
        if message.typ == kind
            && let OutboundChunks::Single(content) = message.payload
            && let Some(mut sealed) = TARGET.take()
        {
            let result = self.seal(content, sequence, &mut sealed);
            TARGET.set(Some(sealed));
            return result.map(|()| {
                OutboundOpaqueMessage::new(kind, version, PrefixedPayload::with_capacity(0))
            });
        }
        let length = self.encrypted_payload_len(message.payload.len());
        let mut payload = PrefixedPayload::with_capacity(length);
        payload.extend_from_chunks(&message.payload);
        payload.extend_from_slice(&message.typ.to_array());
        let aad = Aad::from(make_tls13_aad(length));
        self.key
            .seal_in_place_append_tag(self.nonce(sequence), aad, &mut payload)
            .map_err(|_| Error::EncryptError)?;
        Ok(OutboundOpaqueMessage::new(kind, version, payload))
    }

    fn encrypted_payload_len(&self, length: usize) -> usize {
        length + 1 + self.key.algorithm().tag_len()
    }
}

#[cfg(test)]
mod tests;
