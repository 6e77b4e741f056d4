//! Who asks, and what the gates have found out and lent.

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;
use std::time::Instant;

use dunlin_http::{FieldLines, Request};

use super::bandwidth::{ConnectionPace, Pacer, Sender};
use super::concurrency::Permit;
use super::forwarding::Forwarded;
use crate::config::Server;
use crate::tls::Policy;
use crate::transport::{Ends, Peer, Transport};

/// The other side of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Client {
    pub(crate) address: Peer,
    pub(crate) encrypted: bool,
    /// What it asks may be asked again by others (RFC 8470).
    pub(crate) early: bool,
    /// The request comes from a trusted proxy.
    pub(crate) via_proxy: bool,
    /// The server itself makes the request, for forward authentication.
    pub(crate) is_subrequest: bool,
    /// The policy that the connection's handshake met.
    pub(crate) policy: Policy,
}

impl Client {
    /// The other side of that connection.
    pub(crate) fn of(address: Peer, stream: &Transport) -> Self {
        let (encrypted, early) = (stream.is_encrypted(), stream.is_early());
        let policy = stream.policy();
        Self { address, encrypted, early, via_proxy: false, is_subrequest: false, policy }
    }

    /// The client of a request that the server makes itself while it responds to one that was admitted to its site.
    pub(crate) fn admitted(self) -> Self {
        Self { policy: Policy::EXEMPT, ..self }
    }

    /// The client behind trusted proxies, as they name it. Once that has been found out it stays.
    pub(crate) fn behind(self, request: &Request<'_>, server: &Server) -> Self {
        let trusted = &server.trusted_proxies;
        let is_trusted = match self.address {
            _ if self.via_proxy || self.is_subrequest => false,
            Peer::Ip(address) => trusted.iter().any(|network| network.contains(address)),
            // The permissions of the socket decide who may connect.
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
    /// By another service, which may use any scheme, or none of HTTP's.
    Forward,
}

/// One request at the gates of its route, and afterwards: it lives until the exchange has ended,
/// however it ends.
#[derive(Debug)]
pub(crate) struct RequestContext {
    /// The client, which may be behind proxies that are trusted.
    pub(crate) client: Client,
    /// When it came to the gates.
    pub(crate) routed_at: Instant,
    user: OnceCell<(Arc<str>, Scheme)>,
    admitted_at: Cell<Option<Instant>>,
    /// Of the connection: the other side's and the own. Known to those who wait.
    ends: OnceCell<Option<Ends>>,
    /// What the answer has besides the handler's fields.
    fields: RefCell<FieldLines>,
    /// Its place among those that may run at once.
    permit: OnceCell<Permit>,
    /// Its place among those who share a bandwidth; `None` when it needs none, as its answer leaves at once.
    sender: OnceCell<Option<Sender>>,
}

impl RequestContext {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            routed_at: Instant::now(),
            user: OnceCell::new(),
            admitted_at: Cell::new(None),
            ends: OnceCell::new(),
            fields: RefCell::default(),
            permit: OnceCell::new(),
            sender: OnceCell::new(),
        }
    }

    /// The authenticated user.
    pub(crate) fn user(&self) -> Option<&str> {
        self.user.get().map(|(user, _)| &**user)
    }

    /// How the user was authenticated.
    pub(crate) fn scheme(&self) -> Option<Scheme> {
        self.user.get().map(|(_, scheme)| *scheme)
    }

    /// The first who says so wins.
    pub(crate) fn set_user(&self, user: impl Into<Arc<str>>, scheme: Scheme) {
        // A second gate that authenticates has nothing to add.
        let _ = self.user.set((user.into(), scheme));
    }

    /// When the request passed, if it had to wait.
    pub(crate) fn admitted_at(&self) -> Option<Instant> {
        self.admitted_at.get()
    }

    pub(crate) fn set_admitted_at(&self, now: Instant) {
        self.admitted_at.set(Some(now));
    }

    /// The addresses of the connection's other side and the own, for those who wait; `None` when
    /// nobody knows.
    pub(crate) fn ends(&self) -> Option<Ends> {
        self.ends.get().copied().flatten()
    }

    pub(crate) fn set_ends(&self, ends: Option<Ends>) {
        // They are the same for the whole request.
        let _ = self.ends.set(ends);
    }

    /// Adds a field to the answer.
    pub(crate) fn add_field(&self, name: &str, value: impl AsRef<[u8]>) {
        self.fields.borrow_mut().push(name, value);
    }

    /// Whether the answer has fields besides the handler's.
    pub(crate) fn has_fields(&self) -> bool {
        !self.fields.borrow().as_bytes().is_empty()
    }

    /// Adds to the answer what the gates say of it.
    pub(crate) fn append_fields(&self, fields: &mut FieldLines) {
        fields.extend(&self.fields.borrow());
    }

    /// Has the answer sent as fast as the throttle lets it; `None` when it leaves at once.
    pub(super) fn throttle(&self, sender: Option<Sender>) {
        // A route has one throttle.
        let _ = self.sender.set(sender);
    }

    /// Whether the throttle has said how fast the answer may leave.
    pub(super) fn is_throttled(&self) -> bool {
        self.sender.get().is_some()
    }

    /// What slows the answer's body down, if anything does: nothing, when `short` bytes that are there may be
    /// sent at once.
    pub(crate) fn pacer(
        &self,
        connection: &mut Option<ConnectionPace>,
        short: Option<usize>,
        now: impl FnOnce() -> Instant,
    ) -> Option<Pacer> {
        let sender = self.sender.get()?.as_ref()?;
        sender.pacer(connection.get_or_insert_default(), short.map(|bytes| (bytes, now())))
    }

    /// Keeps the place until the exchange ends.
    pub(super) fn hold_permit(&self, permit: Permit) {
        // A route has one throttle.
        let _ = self.permit.set(permit);
    }
}
