//! The parts of a request that a handler has besides its head.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;

use dunlin_http::BodyLength;
use dunlin_net::address::{Peer, SocketAddresses};
use dunlin_net::clock;
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
    /// The documents that pages may include.
    pub includes: Includes,
}

/// The documents that a page may include: a number for the page and all that it includes together, and a depth.
#[derive(Debug, Clone, Default)]
pub struct Includes {
    /// The response is wanted as its handler has it: a page describes the document.
    pub is_description: bool,
    depth: u8,
    /// `None` until a page is sent.
    left: Option<Rc<Cell<u16>>>,
}

/// The depth of documents that include each other.
const MAX_DEPTH: u8 = 10;
/// The documents that a response includes at most.
const MAX_DOCUMENTS: u16 = 500;

impl Includes {
    /// Returns those of a page that is sent.
    #[must_use]
    pub fn of_page(self) -> Self {
        let left = self.left.unwrap_or_else(|| Rc::new(Cell::new(MAX_DOCUMENTS)));
        Self { left: Some(left), ..self }
    }

    /// Returns those of a document that the page includes; `None` if it may not be included.
    pub fn enter(&self) -> Option<Self> {
        let left = self.left.as_ref().filter(|_| self.depth < MAX_DEPTH)?;
        left.set(left.get().checked_sub(1)?);
        Some(Self { depth: self.depth + 1, ..self.clone() })
    }
}

impl Incoming {
    /// Creates the parts of a request that has no body, and to which the client gets no interim responses. `encrypted`: the
    /// client uses TLS.
    pub fn without_content(
        ends: Option<SocketAddresses>,
        encrypted: bool,
        tls: Option<TlsInfo>,
    ) -> Box<Self> {
        Box::new(Self {
            body: stream::empty(),
            length: BodyLength::None,
            received: None,
            ends,
            encrypted,
            tls,
            includes: Includes::default(),
            redirects: 0,
            script_context: Rc::new(ScriptContext::new(clock::now(), None)),
            early_hints: EarlyHints::new(false),
        })
    }

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
            includes: self.includes.clone(),
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
            // The site is known already.
            listener: 0,
            encrypted: self.encrypted,
            early: false,
            via_proxy: false,
            is_subrequest: false,
            // The request was admitted to its site when it arrived.
            policy: Policy::EXEMPT,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_bounded_together_and_in_depth() {
        assert!(Includes::default().enter().is_none(), "no page is sent");
        let page = Includes::default().of_page();
        let mut deep = page.clone();
        for _ in 0..MAX_DEPTH {
            deep = deep.enter().expect("a document");
        }
        assert!(deep.enter().is_none());
        let others = (0..1_000).filter(|_| page.enter().is_some()).count();
        assert_eq!(others, usize::from(MAX_DOCUMENTS - u16::from(MAX_DEPTH)));
        assert!(deep.of_page().enter().is_none());
    }
}
