//! The keys of the next key phase (RFC 9001 §6), which most connections never need.
//!
//! quinn-proto has them in advance. They are derived when the first packet of the next phase is to be read or written; an attacker
//! who sends such packets causes that once.

use std::sync::{Arc, OnceLock};

use bytes::BytesMut;
use quinn_proto::crypto::{CryptoError, KeyPair, PacketKey};
use rustls::quic::{PacketKeySet, Secrets};

use super::padding::WithoutPadding;

/// The secrets of a connection, and the keys of the phase that was taken last.
pub(super) enum NextKeys {
    /// No phase was taken.
    Secrets(Secrets),
    Phase(Arc<Phase>),
}

/// A key phase.
pub(super) struct Phase {
    secrets: Secrets,
    keys: OnceLock<PacketKeySet>,
}

/// A key of a phase in one direction.
struct Key {
    phase: Arc<Phase>,
    is_remote: bool,
}

impl NextKeys {
    /// Returns the keys of the next phase.
    pub(super) fn next(&mut self) -> KeyPair<Box<dyn PacketKey>> {
        let secrets = match self {
            Self::Secrets(secrets) => secrets.clone(),
            Self::Phase(phase) => {
                let mut secrets = phase.secrets.clone();
                // The secrets advance with the keys.
                drop(secrets.next_packet_keys());
                secrets
            }
        };
        let phase = Arc::new(Phase { secrets, keys: OnceLock::new() });
        *self = Self::Phase(Arc::clone(&phase));
        KeyPair {
            local: Box::new(Key { phase: Arc::clone(&phase), is_remote: false }),
            remote: Box::new(WithoutPadding(Key { phase, is_remote: true })),
        }
    }
}

impl Key {
    fn key(&self) -> &impl PacketKey {
        let keys = self.phase.keys.get_or_init(|| self.phase.secrets.clone().next_packet_keys());
        if self.is_remote { &keys.remote } else { &keys.local }
    }
}

impl PacketKey for Key {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        self.key().encrypt(packet, buf, header_len);
    }

    fn decrypt(
        &self,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        self.key().decrypt(packet, header, payload)
    }

    fn tag_len(&self) -> usize {
        self.key().tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.key().confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.key().integrity_limit()
    }
}
