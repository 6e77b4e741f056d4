//! Requests for another protocol: with `Upgrade` (RFC 9110 §7.8) or by extended CONNECT (RFC 8441). An upstream of HTTP/1.1 gets
//! both as GET with `Upgrade`, one of HTTP/2 the latter as it is.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

use dunlin_exchange::{Incoming, Response, Tunnel, stream};
use dunlin_http::websocket::handshake;
use dunlin_http::{FieldLines, FieldName, Request, ResponseHead, Version};

use crate::call::Call;
use crate::failure::{Failure, Kind};
use crate::hop_fields::listed_options;
use crate::upload::Upload;

/// A request for another protocol.
pub(crate) struct UpgradeRequest<'a> {
    /// The value of `Upgrade`.
    protocol: &'a [u8],
    is_extended_connect: bool,
    /// The key that the server makes for an upstream: over HTTP/2, clients send none.
    key: Option<String>,
    /// The client's side, until the protocol is switched.
    tunnel: Cell<Option<Tunnel>>,
}

impl<'a> UpgradeRequest<'a> {
    /// Returns the other protocol that the request names; `None` if it is an ordinary request.
    ///
    /// # Errors
    /// If it is an extended CONNECT for a protocol that is not forwarded.
    pub(crate) fn requested(
        call: &Call<'a>,
        incoming: &mut Incoming,
    ) -> Result<Option<Self>, Failure> {
        let is_extended_connect = call.request.protocol().is_some();
        let protocol = match call.request.protocol() {
            Some(protocol) => Some(protocol).filter(|protocol| !is_http(protocol)),
            None => upgrade(call),
        };
        let Some(protocol) = protocol else {
            let reason = "the protocol of an extended CONNECT is not forwarded";
            let failure = || Failure::new(Kind::NoTunnel, reason);
            return if is_extended_connect { Err(failure()) } else { Ok(None) };
        };
        let is_websocket = protocol.eq_ignore_ascii_case(b"websocket");
        Ok(Some(Self {
            protocol,
            is_extended_connect,
            key: (is_extended_connect && is_websocket).then(random_key),
            tunnel: Cell::new(Some(incoming.take_tunnel(is_extended_connect))),
        }))
    }

    /// Returns the protocol, if an upstream of HTTP/2 gets an extended CONNECT. The requests of HTTP/1.1 are ordinary ones
    /// for it.
    pub(crate) fn extended_connect(&self) -> Option<&'a [u8]> {
        self.is_extended_connect.then_some(self.protocol)
    }

    /// Returns the body of the extended CONNECT that an upstream of HTTP/2 gets: what the client sends.
    pub(crate) fn as_body(&self) -> Option<Upload> {
        self.tunnel.take().map(|tunnel| Upload::tunnel(tunnel.client))
    }

    /// Takes the body back for an upstream of HTTP/1.1, which gets it as a tunnel.
    pub(crate) fn take_back(&self, upload: &mut Option<Upload>) {
        if let Some(Upload::Stream { source, is_begun: false, .. }) = upload.take() {
            self.tunnel.set(Some(Tunnel { client: source, upgrade: None }));
        }
        *upload = Some(Upload::none());
    }

    /// Adds the fields for an upstream.
    pub(crate) fn add_fields(&self, fields: &mut FieldLines) {
        fields.push("Connection", "Upgrade");
        fields.push("Upgrade", self.protocol);
        if let Some(key) = &self.key {
            fields.set("Sec-WebSocket-Key", key);
            fields.set("Sec-WebSocket-Version", handshake::VERSION);
        }
    }

    /// Checks the head of the upstream's response.
    ///
    /// # Errors
    /// If the client would take another meaning from it than the upstream.
    pub(crate) fn check(&self, head: &ResponseHead) -> Result<(), Failure> {
        // By HTTP/2, any success is a tunnel.
        if !self.is_extended_connect || head.version == Version::Http2 {
            return Ok(());
        }
        let error = |reason| Err(Failure::new(Kind::Upgrade, reason));
        match head.status {
            101 => {}
            // To the client, any of these is a tunnel.
            200..300 => return error("it has responded without switching to the protocol"),
            _ => return Ok(()),
        }
        let expected = self.key.as_ref().map(|key| handshake::accept(key.as_bytes()));
        let accepts = expected.is_none_or(|expected| {
            head.fields.get("Sec-WebSocket-Accept") == Some(expected.as_bytes())
        });
        if accepts { Ok(()) } else { error("its Sec-WebSocket-Accept is not that of the key") }
    }

    /// Switches the protocol: sets what the client's adapter needs, and returns what the client sends.
    pub(crate) fn begin(&self, response: &mut Response, head: &ResponseHead) -> stream::Receiver {
        let tunnel = self.tunnel.take();
        if self.is_extended_connect {
            response.fields.remove("Sec-WebSocket-Accept");
        } else if let Some(protocol) = head.fields.get("Upgrade") {
            response.fields.push("Upgrade", protocol);
        }
        let Some(Tunnel { client, upgrade }) = tunnel else { return stream::empty() };
        response.upgrade = upgrade;
        client
    }
}

/// Returns the value of `Upgrade`, if the client of an HTTP/1.1 connection wants to switch. The request may have a body,
/// which comes before the bytes of the other protocol.
fn upgrade<'r>(call: &Call<'r>) -> Option<&'r [u8]> {
    let request: &Request<'r> = &call.request;
    let protocols = request.field(FieldName::Upgrade)?;
    let is_listed = |option: &[u8]| option.eq_ignore_ascii_case(b"upgrade");
    let can_switch = request.version() == Version::Http11
        && !request.is_repeated(FieldName::Upgrade)
        && listed_options(&call.request).into_iter().any(is_listed);
    (can_switch && !is_http(protocols)).then_some(protocols)
}

/// Returns `true` if one of the protocols is HTTP or TLS. Requests on such a connection would evade all checks.
fn is_http(protocols: &[u8]) -> bool {
    protocols.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).any(|name| {
        let lower = name.to_ascii_lowercase();
        lower.starts_with(b"h2") || lower.starts_with(b"http") || lower.starts_with(b"tls")
    })
}

fn random_key() -> String {
    // The keys of a `RandomState` are random.
    let mut nonce = [0; 16];
    nonce[..8].copy_from_slice(&RandomState::new().hash_one(0).to_ne_bytes());
    nonce[8..].copy_from_slice(&RandomState::new().hash_one(1).to_ne_bytes());
    handshake::key(nonce)
}
