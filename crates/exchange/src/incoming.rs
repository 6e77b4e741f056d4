//! The parts of a request that a handler has besides its head.

use std::pin::Pin;
use std::rc::Rc;

use dunlin_http::BodyLength;
use dunlin_net::address::{Peer, SocketAddresses};
use dunlin_telemetry::ScriptContext;
use dunlin_tls::{Policy, TlsInfo};

use super::{Client, EarlyHints, Received, Response, stream};

/// The response of a handler that takes time.
pub type ResponseFuture = Pin<Box<dyn Future<Output = Response>>>;

/// Bytes of a client that wait for the other side of its tunnel.
const TUNNEL: usize = 64 * 1024;

/// The client's side of a connection that may switch to another protocol.
#[derive(Debug)]
pub struct Tunnel {
    /// The bytes that the client sends.
    pub client: stream::Receiver,
    /// The value of [`Response::upgrade`] with status 101.
    pub upgrade: Option<stream::Sender>,
}

/// The parts of a request that a streaming handler has besides its head. They are passed on boxed, so that the futures that hold
/// it stay small.
pub struct Incoming {
    /// The request body; what the client sends through the tunnel, if it has requested one with extended CONNECT.
    pub body: stream::Receiver,
    /// Length of the body, as the head states it.
    pub length: BodyLength,
    /// The whole body, if it was received before the handler runs.
    pub received: Option<Received>,
    /// Addresses of the connection; `None` for a Unix socket.
    pub ends: Option<SocketAddresses>,
    /// The connection uses TLS.
    pub encrypted: bool,
    /// Properties of the TLS session.
    pub tls: Option<TlsInfo>,
    /// Internal redirects by scripts so far.
    pub redirects: u8,
    /// Collects what the script reports about the request.
    pub script_context: Rc<ScriptContext>,
    /// Interim responses to send before the final response.
    pub early_hints: EarlyHints,
}

impl Incoming {
    /// Returns a copy without the body, for a handler that responds after another has failed.
    pub fn without_body(&self) -> Box<Self> {
        Box::new(Self {
            body: stream::empty(),
            length: BodyLength::None,
            received: None,
            ends: self.ends,
            encrypted: self.encrypted,
            tls: self.tls.clone(),
            redirects: self.redirects,
            script_context: Rc::clone(&self.script_context),
            early_hints: self.early_hints.clone(),
        })
    }

    /// Takes what the client sends once its connection uses another protocol. It is the body of an extended CONNECT. For a
    /// request of HTTP/1.1, whose body comes before it, the adapter gets the sender with the response
    /// ([`Response::upgrade`]).
    pub fn take_tunnel(&mut self, is_extended_connect: bool) -> Tunnel {
        if is_extended_connect {
            let client = std::mem::replace(&mut self.body, stream::empty());
            return Tunnel { client, upgrade: None };
        }
        let (sender, client) = stream::channel_of_connection(TUNNEL);
        Tunnel { client, upgrade: Some(sender) }
    }

    /// Drops the body.
    #[inline]
    pub fn with_empty_body(self) -> Self {
        Self { body: stream::empty(), length: BodyLength::None, received: None, ..self }
    }

    /// Returns the client of the connection.
    #[inline]
    pub fn client(&self) -> Client {
        let address = self.ends.map_or(Peer::Unix, |ends| Peer::of(ends.remote));
        Client {
            address,
            encrypted: self.encrypted,
            early: false,
            via_proxy: false,
            is_subrequest: false,
            // The request was admitted to its site when it arrived.
            policy: Policy::EXEMPT,
        }
    }
}
