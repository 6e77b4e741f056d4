//! What a connection has whatever carries it: the facts that others see, its slot, and the starts of its exchanges.

use std::io;
use std::ops::Deref;
use std::rc::Rc;
use std::task::{Context, Poll};

use dunlin_config::Config;
use dunlin_exchange::{Client, ConnectionFacts, RequestContext};
use dunlin_http::semantics::Method;
use dunlin_http::{Request, RequestError};
use dunlin_limits::bandwidth::{ConnectionPace, Pacer};
use dunlin_net::address::{Peer, SocketAddresses};
use dunlin_net::connection_limits::limiter::Permit;
use dunlin_telemetry::{ConnectionStart, ReadTimes};
use dunlin_tls::{Certificates, Policy, PolicyMatch, TlsInfo, Transport};
use tokio::io::ReadBuf;

use super::INLINE_BODY;
use super::exchange::{Arrival, Rejected, RejectedFrom, Started, begin, begin_fast, reject, start};
use crate::route::dispatch::dispatch;
use crate::route::reply::{CachedResponse, Direction, Routed};
use crate::route::route_match::TargetSource;
use crate::route::sites::{CacheEntry, Route};
use crate::worker::{Completion, DeferredRecord, WorkerContext};

/// An accepted connection, whose protocol adapter has not started.
pub(crate) struct Accepted {
    pub(crate) peer: Peer,
    /// The addresses of client and server from a PROXY header.
    pub(crate) proxied: Option<Box<SocketAddresses>>,
    pub(crate) permit: Permit,
    /// When the connection began; `None` when no consumer of records needs it.
    pub(crate) connection_start: Option<ConnectionStart>,
    /// Bytes that were read behind a PROXY header.
    pub(crate) arrived: Vec<u8>,
}

/// The protocol that a connection begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    Http1,
    /// HTTP/2, agreed by ALPN.
    Http2,
    /// The client's first bytes decide.
    Either,
    /// HTTP/1 with commands to the server.
    Admin,
}

/// The end of a connection's protocol.
pub(super) enum ConnectionEnd {
    /// Nothing more is sent or received.
    Closed,
    /// All bytes were sent; the client may still send.
    Linger,
    /// Bytes in flight are of no use.
    Abort,
    /// The connection goes on with HTTP/2, which begins with these bytes (RFC 9113 §3.3).
    Http2(Vec<u8>),
}

/// What carries a connection, as far as the facts depend on it.
pub(super) trait Carrier {
    /// See [`Transport::ends`].
    fn ends(&self) -> io::Result<Option<SocketAddresses>>;

    /// See [`Transport::policy`].
    fn policy(&self) -> Policy;

    /// See [`Transport::tls`].
    fn tls(&self) -> Option<TlsInfo>;

    /// See [`Transport::renew_policy`].
    fn renew_policy(&mut self, config: &Config, certificates: &Certificates) -> PolicyMatch;
}

impl Carrier for Transport {
    fn ends(&self) -> io::Result<Option<SocketAddresses>> {
        Self::ends(self)
    }

    fn policy(&self) -> Policy {
        Self::policy(self)
    }

    fn tls(&self) -> Option<TlsInfo> {
        Self::tls(self)
    }

    fn renew_policy(&mut self, config: &Config, certificates: &Certificates) -> PolicyMatch {
        Self::renew_policy(self, config, certificates)
    }
}

/// A connection without its transport and its protocol.
pub(super) struct Link {
    pub(super) ctx: Rc<WorkerContext>,
    pub(super) facts: ConnectionFacts,
    /// Addresses of client and server: from a proxy, or from the system at their first use.
    ends: Option<Box<SocketAddresses>>,
    pub(super) slot: usize,
    /// The number of requests that were received.
    pub(super) requests: u64,
    /// When the bytes in process were read, if telemetry needs it.
    pub(super) read_times: Option<ReadTimes>,
    /// The start of the connection, until its first request.
    pub(super) connection_start: Option<ConnectionStart>,
    /// Pace of the connection's responses, once a bandwidth limit applied.
    pub(super) pace: Option<ConnectionPace>,
    _permit: Permit,
}

impl Link {
    /// Creates the link of a connection, and returns the bytes that have arrived.
    pub(super) fn new(
        ctx: Rc<WorkerContext>,
        carrier: &impl Carrier,
        accepted: Accepted,
    ) -> (Self, Vec<u8>) {
        let Accepted { peer, proxied, permit, connection_start, arrived } = accepted;
        let slot = ctx.connections.add(ctx.clock.now(), peer.network());
        let serial = ctx.next_serial();
        let (policy, tls) = (carrier.policy(), carrier.tls().map(Rc::new));
        let link = Self {
            facts: ConnectionFacts { peer, serial, policy, tls },
            ctx,
            ends: proxied,
            slot,
            requests: 0,
            read_times: None,
            connection_start,
            pace: None,
            _permit: permit,
        };
        (link, arrived)
    }

    /// Returns the addresses of client and server.
    ///
    /// # Errors
    /// When the client has closed the connection.
    pub(super) fn ends(&mut self, carrier: &impl Carrier) -> io::Result<Option<SocketAddresses>> {
        if self.ends.is_none() {
            self.ends = carrier.ends()?.map(Box::new);
        }
        Ok(self.ends.as_deref().copied())
    }

    /// Takes the configuration that has superseded that of the connection.
    #[inline]
    pub(super) fn take_newer_configuration(&mut self) {
        if let Some(newer) = self.ctx.superseded_by() {
            self.ctx = newer;
        }
    }

    /// Reads received bytes; no bytes at the end of the stream.
    #[inline]
    pub(super) fn poll_read(
        &mut self,
        stream: &mut Transport,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let result = stream.poll_read(cx, buffer);
        if self.facts.is_early() && !stream.is_early() {
            self.renew_facts(stream);
        }
        result
    }

    /// Sets the read times of bytes that were just read. `is_new`: no bytes of the same message were read before.
    #[inline]
    pub(super) fn set_read_times(&mut self, is_new: bool) {
        if self.ctx.has_telemetry() {
            self.read_times = Some(ReadTimes::after_read(self.read_times, is_new));
        }
    }

    /// Renews what the TLS handshake has shown.
    fn renew_facts(&mut self, carrier: &impl Carrier) {
        self.facts.policy = carrier.policy();
        self.facts.tls = carrier.tls().map(Rc::new);
    }

    /// Returns the client.
    #[inline]
    pub(super) fn client(&self) -> Client {
        Client::of(&self.facts)
    }

    /// Routes a request. A connection on which it is misdirected because a policy has changed is compared with the new one.
    ///
    /// # Errors
    /// As [`dispatch`].
    pub(super) fn dispatch(
        &mut self,
        carrier: &mut impl Carrier,
        request: &Request<'_>,
        path_buffer: &mut Vec<u8>,
    ) -> Result<Routed, RequestError> {
        let origin = TargetSource::Client;
        let routed = dispatch(&self.ctx, self.client(), origin, request, path_buffer)?;
        if routed.direction == Direction::Right {
            return Ok(routed);
        }
        let shared = &self.ctx.shared;
        match carrier.renew_policy(&shared.config, &shared.certificates) {
            PolicyMatch::Unchanged => Ok(routed),
            PolicyMatch::Renewed => {
                self.renew_facts(carrier);
                dispatch(&self.ctx, self.client(), origin, request, path_buffer)
            }
            PolicyMatch::Unmet => Ok(Routed { direction: Direction::Ended, ..routed }),
        }
    }

    /// Prepares the context of a request that is not routed for telemetry, if that is needed.
    #[inline]
    pub(super) fn begin(&mut self, request: &Request<'_>) -> Option<Rc<RequestContext>> {
        let (read_times, connection_start) = (self.read_times, &mut self.connection_start);
        let arrival = Arrival { read_times, connection_start };
        begin(&self.ctx, request, &self.facts, None, arrival)
    }

    /// Prepares the context of a request to which the fast path responds, and publishes its start.
    #[inline]
    pub(super) fn begin_fast(
        &mut self,
        request: &Request<'_>,
        route: (usize, &Route),
        context: Option<Rc<RequestContext>>,
    ) -> Option<Rc<RequestContext>> {
        let (read_times, connection_start) = (self.read_times, &mut self.connection_start);
        let arrival = Arrival { read_times, connection_start };
        begin_fast(&self.ctx, request, &self.facts, route, context, arrival)
    }

    /// Starts the exchange of a routed request.
    pub(super) fn start(
        &mut self,
        request: &Request<'_>,
        routed: Routed,
        is_recorded: bool,
    ) -> Started {
        let (read_times, connection_start) = (self.read_times, &mut self.connection_start);
        let arrival = is_recorded.then_some(Arrival { read_times, connection_start });
        start(&self.ctx, request, &self.facts, routed, arrival)
    }

    /// Returns the pacer of a cached response; `None` if all of it may be sent at once.
    #[inline]
    pub(super) fn pacer<H: Deref<Target = CacheEntry>>(
        &mut self,
        context: Option<&RequestContext>,
        cached: &CachedResponse<H>,
        method: Method,
    ) -> Option<Pacer> {
        let context = context?;
        let length = cached.prebuilt(INLINE_BODY).map(|prebuilt| prebuilt.sent(method).len());
        context.pacer(&mut self.pace, length, || context.routed_at)
    }

    /// Returns the response to a request that is rejected. `request` is absent if its head was not read.
    pub(super) fn reject(
        &mut self,
        carrier: &impl Carrier,
        error: &RequestError,
        request: Option<&Request<'_>>,
        context: Option<&Rc<RequestContext>>,
        is_head: bool,
    ) -> Rejected {
        let ends = self.ends(carrier).ok().flatten();
        let origin = RejectedFrom { facts: &self.facts, ends };
        reject(&self.ctx, &origin, error, request, context, is_head)
    }

    /// Returns the response to a request that is rejected after its exchange has started.
    pub(super) fn reject_recorded(
        &mut self,
        carrier: &impl Carrier,
        error: &RequestError,
        log: Option<&DeferredRecord>,
        is_head: bool,
    ) -> Rejected {
        let request = log.map(|log| log.request.as_request());
        self.reject(carrier, error, request.as_ref(), log.map(|log| &log.context), is_head)
    }

    /// Records a response of whose body `bytes` were sent.
    pub(super) fn record(&self, log: &DeferredRecord, bytes: u64, completion: Completion) {
        let outcome = log.outcome.finish(bytes, completion).or_client_closed();
        self.ctx.record(&log.request.as_request(), &self.facts, &log.context, &outcome);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.ctx.connections.remove(self.slot);
    }
}
