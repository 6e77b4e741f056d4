//! WebSockets of ASGI applications (RFC 6455). The server speaks the protocol: it reads and writes frames, responds to
//! pings and closes. The application server gets and sends messages, as [`record`]s in the bodies of its request and its
//! response. It has accepted the WebSocket if the head of its response switches.

mod incoming;
mod outgoing;
mod record;

use std::rc::Rc;
use std::sync::Arc;

use dunlin_exchange::{Body, Incoming, Received, Response, Stream, StreamKind, Tunnel, stream};
use dunlin_http::semantics::Method;
use dunlin_http::websocket::handshake;
use dunlin_http::{BodyLength, FieldName, Request, Version};
use dunlin_net::watchdog::Watchdog;

use self::incoming::Messages;
use self::outgoing::Frames;
use super::Application;
use super::websocket_state::WebSocketState;
use crate::backend;
use crate::call::Call;
use crate::failure::Failure;
use crate::outcome::Outcome;
use crate::resolved_script::ResolvedScript;

/// The handshake of a request for a WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Handshake {
    /// It is valid.
    Valid,
    /// It is malformed.
    Malformed,
    /// The client uses another version of the protocol.
    OtherVersion,
}

/// Returns `true` if the request is for a WebSocket (RFC 6455 §4.1, RFC 8441 §5).
pub(in super::super) fn is_requested(call: &Call<'_>, incoming: &Incoming) -> bool {
    let request = &call.request;
    if let Some(protocol) = request.protocol() {
        return protocol.eq_ignore_ascii_case(b"websocket");
    }
    let lists = |name, wanted: &[u8]| {
        let mut members = request.values(name).flat_map(|value| value.split(|&byte| byte == b','));
        members.any(|member| member.trim_ascii().eq_ignore_ascii_case(wanted))
    };
    request.method() == Method::Get
        && request.version() == Version::Http11
        && incoming.length == BodyLength::None
        && call.error.is_none()
        && lists(FieldName::Connection, b"upgrade")
        && lists(FieldName::Upgrade, b"websocket")
}

/// Forwards a request for a WebSocket to an application.
///
/// # Errors
/// Why there is no response.
pub(in super::super) async fn respond(
    call: &Call<'_>,
    mut incoming: Box<Incoming>,
    located: &ResolvedScript,
    name: &Arc<str>,
) -> Result<Outcome, Failure> {
    match handshake(&call.request) {
        Handshake::Valid => {}
        Handshake::Malformed => return Ok(Outcome::Response(Response::new(400))),
        Handshake::OtherVersion => {
            let mut response = Response::new(426);
            response.fields.push("Sec-WebSocket-Version", handshake::VERSION);
            return Ok(Outcome::Response(response));
        }
    }
    let Tunnel { client, upgrade } = incoming.take_tunnel(call.request.protocol().is_some());
    let shared = Rc::new(WebSocketState::new());
    let messages = Messages::new(client, call.rules.message_size, Rc::clone(&shared));
    incoming.body = stream::from_source(Box::new(messages));
    // There is nothing to wait for before the application begins.
    incoming.length = BodyLength::Chunked;
    incoming.received = Some(Received { file: None, share: None });
    let backend = Application { websocket: Some(Rc::clone(&shared)) };
    let outcome = backend::respond(backend, call, incoming, located, name).await?;
    Ok(match outcome {
        Outcome::Response(mut response) if response.status == 101 => {
            let body = response.body.take_stream().map(|stream| stream.source);
            let watchdog = Watchdog::new(&call.scripts.ctx.deadlines);
            let limit = call.rules.tunnel_timeout;
            let frames = Frames::new(body.unwrap_or_else(stream::empty), shared, watchdog, limit);
            let source = stream::from_source(Box::new(frames));
            let (length, kind) = (None, StreamKind::Endless);
            response.body = Body::streamed(Stream { source, length, kind });
            if upgrade.is_some() {
                response.fields.push("Upgrade", "websocket");
                let key = key(&call.request).unwrap_or_default();
                response.fields.push("Sec-WebSocket-Accept", handshake::accept(key));
            }
            response.upgrade = upgrade;
            Outcome::Response(response)
        }
        outcome => outcome,
    })
}

/// Checks the fields of the handshake. Extended CONNECT has no key.
fn handshake(request: &Request<'_>) -> Handshake {
    let is_extended_connect = request.protocol().is_some();
    match field(request, b"sec-websocket-version") {
        Some(version) if version == handshake::VERSION.as_bytes() => {}
        None if is_extended_connect => {}
        _ => return Handshake::OtherVersion,
    }
    match key(request) {
        _ if is_extended_connect => Handshake::Valid,
        Some(key) if handshake::is_key(key) => Handshake::Valid,
        _ => Handshake::Malformed,
    }
}

fn key<'r>(request: &Request<'r>) -> Option<&'r [u8]> {
    field(request, b"sec-websocket-key")
}

/// Returns the value of the only field with this name.
fn field<'r>(request: &Request<'r>, wanted: &[u8]) -> Option<&'r [u8]> {
    let mut found = request.fields().filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
    let value = found.next().map(|(_, value)| value);
    value.filter(|_| found.next().is_none())
}
