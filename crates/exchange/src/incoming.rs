//! What a handler has of a request besides its head.

use std::pin::Pin;
use std::rc::Rc;

use dunlin_http::BodyLength;
use dunlin_net::address::{Ends, Peer};
use dunlin_telemetry::ScriptContext;
use dunlin_tls::{Policy, TlsInfo};

use super::{Client, EarlyHints, Received, Response, stream};

/// The response of a handler that takes time.
pub type ResponseFuture = Pin<Box<dyn Future<Output = Response>>>;

/// What a streaming handler has of the request besides its head. It is passed on boxed, so that the futures that hold
/// it stay small.
pub struct Incoming {
    /// The request body.
    pub body: stream::Receiver,
    /// Its length, as the head states it.
    pub length: BodyLength,
    /// The whole body, if it was received before the handler runs.
    pub received: Option<Received>,
    /// Addresses of the connection; `None` for a Unix socket.
    pub ends: Option<Ends>,
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
