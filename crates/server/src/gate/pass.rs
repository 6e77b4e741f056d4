//! Who asks, and what the gates have found out and lent.

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;
use std::time::Instant;

use dunlin_http::{FieldLines, Request};

use super::bandwidth::{ConnectionPace, Pacer, Sender};
use super::concurrency::Place;
use super::network::{Network, forwarded_address};
use crate::transport::{Ends, Peer, Transport};

/// The other side of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Client {
    pub(crate) address: Peer,
    pub(crate) encrypted: bool,
    /// What it asks may be asked again by others (RFC 8470).
    pub(crate) early: bool,
    /// The server itself asks, to find out who somebody is.
    pub(crate) is_subrequest: bool,
}

impl Client {
    /// The other side of that connection.
    pub(crate) fn of(address: Peer, stream: &Transport) -> Self {
        let (encrypted, early) = (stream.is_encrypted(), stream.is_early());
        Self { address, encrypted, early, is_subrequest: false }
    }

    /// The client behind proxies, as they tell of it, when they are trusted.
    pub(crate) fn behind(self, request: &Request<'_>, trusted: &[Network]) -> Self {
        let is_trusted = match self.address {
            Peer::Ip(address) => trusted.iter().any(|network| network.contains(address)),
            // Only those whom the socket's permissions let in.
            Peer::Unix => !trusted.is_empty(),
        };
        if !is_trusted {
            return self;
        }
        match forwarded_address(request, trusted) {
            Some((address, encrypted)) => {
                let encrypted = encrypted.unwrap_or(self.encrypted);
                Self { address: Peer::Ip(address), encrypted, ..self }
            }
            None => self,
        }
    }
}

/// One request at the gates of its route, and afterwards: it lives until the exchange has ended,
/// however it ends.
#[derive(Debug)]
pub(crate) struct Pass {
    /// The client, which may be behind proxies that are trusted.
    pub(crate) client: Client,
    /// When it came to the gates.
    pub(crate) asked: Instant,
    user: OnceCell<Arc<str>>,
    passed: Cell<Option<Instant>>,
    /// Of the connection: the other side's and the own. Known to those who wait.
    ends: OnceCell<Option<Ends>>,
    /// What the answer has besides the handler's fields.
    fields: RefCell<FieldLines>,
    /// Its place among those that may run at once.
    place: OnceCell<Place>,
    /// Its place among those who share a bandwidth; `None` when it needs none, as its answer leaves at once.
    sender: OnceCell<Option<Sender>>,
}

impl Pass {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            asked: Instant::now(),
            user: OnceCell::new(),
            passed: Cell::new(None),
            ends: OnceCell::new(),
            fields: RefCell::default(),
            place: OnceCell::new(),
            sender: OnceCell::new(),
        }
    }

    /// The authenticated user.
    pub(crate) fn user(&self) -> Option<&str> {
        self.user.get().map(|user| &**user)
    }

    /// The first who says so wins.
    pub(crate) fn set_user(&self, user: impl Into<Arc<str>>) {
        // A second gate that authenticates has nothing to add.
        let _ = self.user.set(user.into());
    }

    /// When the request passed, if it had to wait.
    pub(crate) fn passed(&self) -> Option<Instant> {
        self.passed.get()
    }

    pub(crate) fn set_passed(&self, now: Instant) {
        self.passed.set(Some(now));
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
    pub(crate) fn tell(&self, fields: &mut FieldLines) {
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
    pub(super) fn hold(&self, place: Place) {
        // A route has one throttle.
        let _ = self.place.set(place);
    }
}
