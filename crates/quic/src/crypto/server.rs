//! The crypto of a server whose sites have a TLS configuration each.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use quinn_proto::crypto::{self, Keys, Session, UnsupportedVersion};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectionId, Side};
use rustls::quic::Suite;
use rustls::server::ClientHello;

use super::session::{NoInitialSuite, ServerSession, initial_suite};
use super::{initial_keys, version_of};

/// The choice of a TLS configuration by the ClientHello.
pub trait ChooseConfig: Send + Sync {
    /// Returns the configuration for a client; `None` if there is none, and the handshake fails with the alert
    /// `unrecognized_name`. The configuration has TLS 1.3 and a protocol in ALPN.
    fn choose(&self, hello: &ClientHello<'_>) -> Option<Chosen>;
}

/// A TLS configuration that was chosen.
pub struct Chosen {
    /// The configuration.
    pub config: Arc<rustls::ServerConfig>,
    /// What [`HandshakeSummary`](super::HandshakeSummary) returns.
    pub tag: Arc<dyn Any + Send + Sync>,
}

/// The crypto of a server, for [`quinn_proto::ServerConfig`].
pub struct ServerCrypto {
    chooser: Arc<dyn ChooseConfig>,
    initial: Suite,
}

impl fmt::Debug for ServerCrypto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerCrypto").finish_non_exhaustive()
    }
}

impl ServerCrypto {
    /// Creates the crypto of a server.
    ///
    /// # Errors
    /// When the provider has no cipher suite for Initial packets, `TLS13_AES_128_GCM_SHA256`.
    pub fn new(chooser: Arc<dyn ChooseConfig>) -> Result<Self, NoInitialSuite> {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        Ok(Self { chooser, initial: initial_suite(&provider).ok_or(NoInitialSuite)? })
    }
}

impl crypto::ServerConfig for ServerCrypto {
    fn initial_keys(&self, version: u32, id: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        let version = version_of(version).ok_or(UnsupportedVersion)?;
        Ok(initial_keys(&self.initial, version, id, Side::Server))
    }

    fn retry_tag(&self, _version: u32, original: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        retry_tag(original, packet)
    }

    fn start_session(
        self: Arc<Self>,
        version: u32,
        parameters: &TransportParameters,
    ) -> Box<dyn Session> {
        // The caller has had `initial_keys` for the version.
        let version = version_of(version).unwrap_or(rustls::quic::Version::V1);
        let chooser = Arc::clone(&self.chooser);
        Box::new(ServerSession::new(chooser, self.initial, version, parameters))
    }
}

/// Returns the integrity tag of a Retry packet (RFC 9001 §5.8).
fn retry_tag(original: &ConnectionId, packet: &[u8]) -> [u8; 16] {
    const KEY: [u8; 16] = [
        0xbe, 0x0c, 0x69, 0x0b, 0x9f, 0x66, 0x57, 0x5a, 0x1d, 0x76, 0x6b, 0x54, 0xe3, 0x68, 0xc8,
        0x4e,
    ];
    const NONCE: [u8; 12] =
        [0x46, 0x15, 0x99, 0xd3, 0x5d, 0x63, 0x2b, 0xf2, 0x23, 0x98, 0x25, 0xbb];
    let mut pseudo = Vec::with_capacity(1 + original.len() + packet.len());
    pseudo.push(original.len() as u8);
    pseudo.extend_from_slice(original);
    pseudo.extend_from_slice(packet);
    let nonce = Nonce::assume_unique_for_key(NONCE);
    let tag = UnboundKey::new(&AES_128_GCM, &KEY).and_then(|key| {
        LessSafeKey::new(key).seal_in_place_separate_tag(nonce, Aad::from(&pseudo), &mut [])
    });
    let mut result = [0; 16];
    // Only a key or a text of another length fails.
    if let Ok(tag) = tag {
        result.copy_from_slice(tag.as_ref());
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_of_a_retry_packet_is_that_of_the_rfc() {
        // RFC 9001 Appendix A.4.
        let original = ConnectionId::new(&[0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08]);
        let packet = [
            0xff, 0, 0, 0, 1, 0, 8, 0xf0, 0x67, 0xa5, 0x50, 0x2a, 0x42, 0x62, 0xb5, b't', b'o',
            b'k', b'e', b'n',
        ];
        let tag = [
            0x04, 0xa2, 0x65, 0xba, 0x2e, 0xff, 0x4d, 0x82, 0x90, 0x58, 0xfb, 0x3f, 0x0f, 0x24,
            0x96, 0xba,
        ];
        assert_eq!(retry_tag(&original, &packet), tag);
    }
}
