//! The TLS sessions of QUIC connections (RFC 9001), by rustls.
//!
//! The TLS of quinn-proto has one configuration for all clients. A server of sites selects one by the ClientHello, and needs
//! what was negotiated; the session of this module provides both.

mod next_keys;
mod padding;
mod server;
mod session;

pub use self::server::{ChooseConfig, Chosen, ServerCrypto};
pub use self::session::{HandshakeSummary, NoInitialSuite};

use quinn_proto::Side;
use quinn_proto::crypto::{KeyPair, Keys, PacketKey};
use rustls::quic::{self, Suite, Version};

use self::padding::WithoutPadding;

/// The version of QUIC that a number on the wire names.
fn version_of(number: u32) -> Option<Version> {
    match number {
        1 => Some(Version::V1),
        _ => None,
    }
}

/// Returns the keys of Initial packets, which the client's first connection ID determines (RFC 9001 §5.2).
fn initial_keys(suite: &Suite, version: Version, id: &[u8], side: Side) -> Keys {
    packet_keys(suite.keys(id, side.into(), version))
}

fn packet_keys(keys: quic::Keys) -> Keys {
    Keys {
        header: KeyPair {
            local: Box::new(keys.local.header),
            remote: Box::new(keys.remote.header),
        },
        packet: pair(keys.local.packet, keys.remote.packet),
    }
}

fn pair(
    local: Box<dyn quic::PacketKey>,
    remote: Box<dyn quic::PacketKey>,
) -> KeyPair<Box<dyn PacketKey>> {
    KeyPair { local: Box::new(local), remote: Box::new(WithoutPadding(remote)) }
}
