//! A server's TLS session, which selects its configuration when the ClientHello is complete.

use std::any::Any;
use std::fmt;
use std::io;
use std::mem;
use std::sync::Arc;

use quinn_proto::crypto::{
    ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, Session,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectionId, Side, TransportError, TransportErrorCode};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::pki_types::CertificateDer;
use rustls::quic::{KeyChange, ServerConnection, Suite, Version};
use rustls::server::Acceptor;
use rustls::{AlertDescription, CipherSuite, HandshakeKind, NamedGroup};

use super::next_keys::NextKeys;
use super::server::{ChooseConfig, Chosen};
use super::{initial_keys, packet_keys};

/// What a handshake has negotiated; see [`quinn_proto::crypto::Session::handshake_data`].
#[derive(Clone)]
pub struct HandshakeSummary {
    /// The name that the client has sent.
    pub server_name: Option<String>,
    /// The cipher suite; `None` while it is not negotiated.
    pub suite: Option<CipherSuite>,
    /// The group of the key exchange.
    pub group: Option<NamedGroup>,
    /// The client resumes a session.
    pub is_resumed: bool,
    /// The verified certificates of the client, its own first.
    pub client_certificates: Vec<CertificateDer<'static>>,
    /// The tag of the configuration that was chosen.
    pub tag: Arc<dyn Any + Send + Sync>,
}

impl fmt::Debug for HandshakeSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandshakeSummary")
            .field("server_name", &self.server_name)
            .field("suite", &self.suite)
            .finish_non_exhaustive()
    }
}

/// The provider has no cipher suite for Initial packets.
#[derive(Debug, Clone, Copy)]
pub struct NoInitialSuite;

impl fmt::Display for NoInitialSuite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the TLS library has no cipher suite TLS13_AES_128_GCM_SHA256, which QUIC requires",
        )
    }
}

impl std::error::Error for NoInitialSuite {}

/// Returns the suite of Initial packets.
pub(super) fn initial_suite(provider: &CryptoProvider) -> Option<Suite> {
    let is_initial = |suite: &&rustls::SupportedCipherSuite| {
        suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256
    };
    provider.cipher_suites.iter().find(is_initial)?.tls13()?.quic_suite()
}

/// Maximum length of a ClientHello in bytes.
const MAX_HELLO: usize = 32 * 1024;

/// The session of a server.
pub(super) struct ServerSession {
    version: Version,
    initial: Suite,
    state: State,
}

enum State {
    /// The ClientHello is not complete.
    Hello {
        received: Vec<u8>,
        parameters: Vec<u8>,
        chooser: Arc<dyn ChooseConfig>,
    },
    Chosen(Box<ChosenSession>),
    /// The handshake is complete, and TLS has nothing left to do: what it holds is released.
    Complete(Box<CompleteSession>),
}

struct CompleteSession {
    summary: HandshakeSummary,
    next: NextKeys,
}

struct ChosenSession {
    tls: ServerConnection,
    next: Option<NextKeys>,
    tag: Arc<dyn Any + Send + Sync>,
    /// The caller knows that there is data of the handshake.
    has_reported: bool,
}

impl ServerSession {
    pub(super) fn new(
        chooser: Arc<dyn ChooseConfig>,
        initial: Suite,
        version: Version,
        parameters: &TransportParameters,
    ) -> Self {
        let mut encoded = Vec::new();
        parameters.write(&mut encoded);
        let state = State::Hello { received: Vec::new(), parameters: encoded, chooser };
        Self { version, initial, state }
    }

    fn chosen(&self) -> Option<&ChosenSession> {
        match &self.state {
            State::Hello { .. } | State::Complete(_) => None,
            State::Chosen(chosen) => Some(chosen),
        }
    }

    fn chosen_mut(&mut self) -> Option<&mut ChosenSession> {
        match &mut self.state {
            State::Hello { .. } | State::Complete(_) => None,
            State::Chosen(chosen) => Some(chosen),
        }
    }

    /// Releases the state of TLS, once the handshake is complete and its last message is written.
    fn complete(&mut self) {
        let Some(chosen) = self.chosen_mut().filter(|chosen| !chosen.tls.is_handshaking()) else {
            return;
        };
        if let Some(next) = chosen.next.take() {
            let summary = chosen.summary();
            self.state = State::Complete(Box::new(CompleteSession { summary, next }));
        }
    }

    /// Adds a part of the ClientHello. Chooses the configuration when it is complete.
    fn read_hello(&mut self, part: &[u8]) -> Result<(), TransportError> {
        let State::Hello { received, parameters, chooser } = &mut self.state else { return Ok(()) };
        received.extend_from_slice(part);
        let Some(length) = hello_length(received) else { return Ok(()) };
        if length > MAX_HELLO {
            return Err(alert(AlertDescription::DecodeError, "the ClientHello is too long"));
        }
        if received.len() < length {
            return Ok(());
        }
        let Chosen { config, tag } = choose(&received[..length], &**chooser)?;
        let tls = ServerConnection::new(config, self.version, mem::take(parameters))
            .map_err(|error| alert(AlertDescription::InternalError, &error.to_string()))?;
        let received = mem::take(received);
        let chosen = ChosenSession { tls, next: None, tag, has_reported: false };
        self.state = State::Chosen(Box::new(chosen));
        self.read(&received)
    }

    fn read(&mut self, data: &[u8]) -> Result<(), TransportError> {
        let Some(chosen) = self.chosen_mut() else { return Ok(()) };
        chosen.tls.read_hs(data).map_err(|error| match chosen.tls.alert() {
            Some(description) => alert(description, &error.to_string()),
            None => TransportError {
                code: TransportErrorCode::PROTOCOL_VIOLATION,
                frame: None,
                reason: format!("TLS: {error}"),
            },
        })
    }
}

impl ChosenSession {
    fn summary(&self) -> HandshakeSummary {
        let certificates = self.tls.peer_certificates().unwrap_or_default();
        HandshakeSummary {
            server_name: self.tls.server_name().map(str::to_owned),
            suite: self.tls.negotiated_cipher_suite().map(|suite| suite.suite()),
            group: self.tls.negotiated_key_exchange_group().map(SupportedKxGroup::name),
            is_resumed: self.tls.handshake_kind() == Some(HandshakeKind::Resumed),
            client_certificates: certificates.iter().map(|der| der.clone().into_owned()).collect(),
            tag: Arc::clone(&self.tag),
        }
    }
}

/// Returns the length of the first handshake message with its header (RFC 8446 §4).
fn hello_length(received: &[u8]) -> Option<usize> {
    let [_, high, middle, low, ..] = received else { return None };
    Some(4 + usize::from(*high) * 65_536 + usize::from(*middle) * 256 + usize::from(*low))
}

/// Chooses the configuration by a ClientHello.
fn choose(hello: &[u8], chooser: &dyn ChooseConfig) -> Result<Chosen, TransportError> {
    let mut acceptor = Acceptor::default();
    for fragment in hello.chunks(MAX_FRAGMENT) {
        // The header of a record of TLS 1.0 (RFC 8446 §5.1).
        let length = (fragment.len() as u16).to_be_bytes();
        let header = [22, 3, 1, length[0], length[1]];
        for mut bytes in [&header[..], fragment] {
            while !bytes.is_empty() {
                acceptor
                    .read_tls(&mut bytes)
                    .map_err(|error| alert(AlertDescription::InternalError, &error.to_string()))?;
            }
        }
    }
    match acceptor.accept() {
        Ok(Some(accepted)) => chooser.choose(&accepted.client_hello()).ok_or_else(|| {
            let why = "no site with a certificate has the requested server name";
            alert(AlertDescription::UnrecognisedName, why)
        }),
        Ok(None) => Err(alert(AlertDescription::DecodeError, "the ClientHello is malformed")),
        Err((error, _)) => Err(alert(AlertDescription::DecodeError, &error.to_string())),
    }
}

/// Maximum length of the content of a record.
const MAX_FRAGMENT: usize = 1 << 14;

/// The error of QUIC for an alert of TLS (RFC 9001 §4.8).
fn alert(description: AlertDescription, reason: &str) -> TransportError {
    let code = TransportErrorCode::crypto(description.into());
    TransportError { code, frame: None, reason: reason.to_owned() }
}

impl Session for ServerSession {
    fn initial_keys(&self, id: &ConnectionId, side: Side) -> Keys {
        initial_keys(&self.initial, self.version, id, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        match &self.state {
            State::Hello { .. } => None,
            State::Chosen(chosen) => Some(Box::new(chosen.summary())),
            State::Complete(complete) => Some(Box::new(complete.summary.clone())),
        }
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        let keys = self.chosen()?.tls.zero_rtt_keys()?;
        Some((Box::new(keys.header), Box::new(keys.packet)))
    }

    fn early_data_accepted(&self) -> Option<bool> {
        None
    }

    fn is_handshaking(&self) -> bool {
        match &self.state {
            State::Hello { .. } => true,
            State::Chosen(chosen) => chosen.tls.is_handshaking(),
            State::Complete(_) => false,
        }
    }

    fn read_handshake(&mut self, data: &[u8]) -> Result<bool, TransportError> {
        match &self.state {
            State::Hello { .. } => self.read_hello(data)?,
            State::Chosen(_) => self.read(data)?,
            // A client sends no message after its Finished (RFC 9001 §4.4, §6).
            State::Complete(_) => {
                return Err(alert(
                    AlertDescription::UnexpectedMessage,
                    "the handshake is complete",
                ));
            }
        }
        let reported = self.chosen_mut().map(|chosen| mem::replace(&mut chosen.has_reported, true));
        Ok(reported == Some(false))
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let encoded = self.chosen().and_then(|chosen| chosen.tls.quic_transport_parameters());
        let Some(encoded) = encoded else { return Ok(None) };
        let parameters = TransportParameters::read(Side::Server, &mut io::Cursor::new(encoded));
        Ok(Some(parameters?))
    }

    fn write_handshake(&mut self, out: &mut Vec<u8>) -> Option<Keys> {
        let chosen = self.chosen_mut()?;
        let keys = match chosen.tls.write_hs(out) {
            Some(KeyChange::Handshake { keys }) => keys,
            Some(KeyChange::OneRtt { keys, next }) => {
                chosen.next = Some(NextKeys::Secrets(next));
                keys
            }
            None => {
                if out.is_empty() {
                    self.complete();
                }
                return None;
            }
        };
        Some(packet_keys(keys))
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        match &mut self.state {
            State::Hello { .. } => None,
            State::Chosen(chosen) => Some(chosen.next.as_mut()?.next()),
            State::Complete(complete) => Some(complete.next.next()),
        }
    }

    fn is_valid_retry(&self, _original: &ConnectionId, _header: &[u8], _payload: &[u8]) -> bool {
        // Only clients receive Retry packets.
        false
    }

    fn export_keying_material(
        &self,
        _output: &mut [u8],
        _label: &[u8],
        _context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        // No protocol above needs it.
        Err(ExportKeyingMaterialError)
    }
}
