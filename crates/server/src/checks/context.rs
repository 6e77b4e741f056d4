//! The client of a request, and what the checks found out about it and granted to it.

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;
use std::time::Instant;

use dunlin_http::{FieldLines, Request};

use super::bandwidth::{ConnectionPace, Pacer, Sender};
use super::concurrency::Permit;
use super::forwarding::Forwarded;
use crate::clock;
use crate::config::Server;
use crate::tls::Policy;
use crate::transport::{Ends, Peer, Transport};

/// The client of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Client {
    pub(crate) address: Peer,
    pub(crate) encrypted: bool,
    /// The request came as TLS early data, which others can replay (RFC 8470).
    pub(crate) early: bool,
    /// The request came from a trusted proxy.
    pub(crate) via_proxy: bool,
    /// The server makes the request itself, for forward authentication.
    pub(crate) is_subrequest: bool,
    /// The TLS policy that the connection's handshake satisfied.
    pub(crate) policy: Policy,
}

impl Client {
    /// Returns the client of a connection.
    pub(crate) fn of(address: Peer, stream: &Transport) -> Self {
        let (encrypted, early) = (stream.is_encrypted(), stream.is_early());
        let policy = stream.policy();
        Self { address, encrypted, early, via_proxy: false, is_subrequest: false, policy }
    }

    /// Exempts a request that the server makes itself from the TLS policy, as its original request satisfied it.
    pub(crate) fn admitted(self) -> Self {
        Self { policy: Policy::EXEMPT, ..self }
    }

    /// Resolves the client behind trusted proxies. Does nothing when it is resolved already.
    pub(crate) fn behind(self, request: &Request<'_>, server: &Server) -> Self {
        let trusted = &server.trusted_proxies;
        let is_trusted = match self.address {
            _ if self.via_proxy || self.is_subrequest => false,
            Peer::Ip(address) => trusted.iter().any(|network| network.contains(address)),
            // The permissions of the socket file decide which processes can connect.
            Peer::Unix => !trusted.is_empty(),
        };
        if !is_trusted {
            return self;
        }
        let proxy = Self { via_proxy: true, ..self };
        match server.forwarded_field.read(request, trusted) {
            Some(Forwarded { address, encrypted }) => {
                let encrypted = encrypted.unwrap_or(self.encrypted);
                Self { address: Peer::Ip(address), encrypted, ..proxy }
            }
            None => proxy,
        }
    }
}

/// How a user was authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// Basic authentication (RFC 7617).
    Basic,
    /// By another service, with any scheme.
    Forward,
}

/// What the checks know about one request and have granted to it. It lives until the exchange ends, for
/// whatever reason; dropping it returns the permits.
#[derive(Debug)]
pub(crate) struct RequestContext {
    /// The client, resolved through trusted proxies.
    pub(crate) client: Client,
    /// When routing was done and the first check ran.
    pub(crate) routed_at: Instant,
    user: OnceCell<(Arc<str>, Scheme)>,
    admitted_at: Cell<Option<Instant>>,
    /// Remote and local address of the connection; set for requests that wait.
    ends: OnceCell<Option<Ends>>,
    /// Response fields that checks add to the handler's.
    fields: RefCell<FieldLines>,
    /// Permit of the concurrency limit.
    permit: OnceCell<Permit>,
    /// Share of the bandwidth limit; `None` when the response was sent without pacing.
    sender: OnceCell<Option<Sender>>,
}

impl RequestContext {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            routed_at: clock::now(),
            user: OnceCell::new(),
            admitted_at: Cell::new(None),
            ends: OnceCell::new(),
            fields: RefCell::default(),
            permit: OnceCell::new(),
            sender: OnceCell::new(),
        }
    }

    /// Returns the authenticated user.
    pub(crate) fn user(&self) -> Option<&str> {
        self.user.get().map(|(user, _)| &**user)
    }

    /// Returns how the user was authenticated.
    pub(crate) fn scheme(&self) -> Option<Scheme> {
        self.user.get().map(|(_, scheme)| *scheme)
    }

    /// Sets the authenticated user. The first call wins.
    pub(crate) fn set_user(&self, user: impl Into<Arc<str>>, scheme: Scheme) {
        // A second authentication check does not replace the user.
        let _ = self.user.set((user.into(), scheme));
    }

    /// Returns when the request was admitted, if it had to wait.
    pub(crate) fn admitted_at(&self) -> Option<Instant> {
        self.admitted_at.get()
    }

    pub(crate) fn set_admitted_at(&self, now: Instant) {
        self.admitted_at.set(Some(now));
    }

    /// Returns the remote and local address of the connection; `None` when they are unknown.
    pub(crate) fn ends(&self) -> Option<Ends> {
        self.ends.get().copied().flatten()
    }

    pub(crate) fn set_ends(&self, ends: Option<Ends>) {
        // The addresses do not change during a request.
        let _ = self.ends.set(ends);
    }

    /// Adds a response field.
    pub(crate) fn add_field(&self, name: &str, value: impl AsRef<[u8]>) {
        self.fields.borrow_mut().push(name, value);
    }

    /// Returns `true` if checks have added response fields.
    pub(crate) fn has_fields(&self) -> bool {
        !self.fields.borrow().as_bytes().is_empty()
    }

    /// Appends the response fields that checks have added.
    pub(crate) fn append_fields(&self, fields: &mut FieldLines) {
        fields.extend(&self.fields.borrow());
    }

    /// Sets the bandwidth share that paces the response; `None` when it is sent without pacing.
    pub(super) fn throttle(&self, sender: Option<Sender>) {
        // A route has one throttle.
        let _ = self.sender.set(sender);
    }

    /// Returns `true` if the bandwidth limit has decided about this request.
    pub(super) fn is_throttled(&self) -> bool {
        self.sender.get().is_some()
    }

    /// Returns the pacer of the response body. `None` if the route has no bandwidth limit, or if the limit allows to
    /// send all `short` bytes of a body that is in memory now.
    pub(crate) fn pacer(
        &self,
        connection: &mut Option<ConnectionPace>,
        short: Option<usize>,
        now: impl FnOnce() -> Instant,
    ) -> Option<Pacer> {
        let sender = self.sender.get()?.as_ref()?;
        sender.pacer(connection.get_or_insert_default(), short.map(|bytes| (bytes, now())))
    }

    /// Holds the permit until the exchange ends.
    pub(super) fn hold_permit(&self, permit: Permit) {
        // A route has one throttle.
        let _ = self.permit.set(permit);
    }
}
