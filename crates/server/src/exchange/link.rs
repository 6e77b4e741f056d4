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
use dunlin_net::connections::Waiting;
use dunlin_telemetry::{ConnectionStart, ReadTimes};
use dunlin_tls::{Certificates, Policy, PolicyMatch, TlsInfo, Transport};
use tokio::io::ReadBuf;

use super::{CachedReply, Exchange, INLINE_BODY};
use crate::route::dispatch::dispatch;
use crate::route::reply::{CachedResponse, Direction, Routed};
use crate::route::route_match::TargetSource;
use crate::route::sites::CacheEntry;
use crate::worker::{Completion, DeferredRecord, WorkerContext};

/// An accepted connection, whose protocol adapter has not started.
pub(crate) struct Accepted {
    pub(crate) peer: Peer,
    /// The number of the listener.
    pub(crate) listener: u64,
    /// The addresses of client and server from a PROXY header.
    pub(crate) proxied: Option<Box<SocketAddresses>>,
    pub(crate) permit: Permit,
    /// When the connection began; `None` when no consumer of records needs it.
    pub(crate) connection_start: Option<ConnectionStart>,
    /// Bytes that were read behind a PROXY header.
    pub(crate) arrived: Vec<u8>,
    /// The line that announces HTTP/3 to the client.
    pub(crate) alternative: Option<Rc<str>>,
}

/// What carries a connection, as far as the facts depend on it.
pub(crate) trait Carrier {
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

/// Properties of the connection that a handler gets.
pub(super) struct ConnectionView<'a> {
    pub(super) facts: &'a ConnectionFacts,
    pub(super) ends: Option<SocketAddresses>,
    /// The client understands interim responses.
    pub(super) has_interim_responses: bool,
}

/// A connection without its transport and its protocol.
pub(crate) struct Link {
    pub(crate) ctx: Rc<WorkerContext>,
    pub(crate) facts: ConnectionFacts,
    /// Addresses of client and server: from a proxy, or from the system at their first use.
    ends: Option<Box<SocketAddresses>>,
    pub(crate) slot: usize,
    /// The number of requests that were received.
    pub(crate) requests: u64,
    /// When the bytes in process were read, if telemetry needs it.
    pub(crate) read_times: Option<ReadTimes>,
    /// The start of the connection, until its first request.
    pub(crate) connection_start: Option<ConnectionStart>,
    /// Pace of the connection's responses, once a bandwidth limit applied.
    pub(crate) pace: Option<ConnectionPace>,
    /// The line of the first response that announces HTTP/3 to the client (RFC 7838 §3), until it is sent.
    pub(crate) alternative: Option<Rc<str>>,
    _permit: Permit,
}

impl Link {
    /// Creates the link of a connection, and returns the bytes that have arrived.
    pub(crate) fn new(
        ctx: Rc<WorkerContext>,
        carrier: &impl Carrier,
        accepted: Accepted,
    ) -> (Self, Vec<u8>) {
        let Accepted { peer, listener, proxied, permit, connection_start, arrived, alternative } =
            accepted;
        let slot = ctx.connections.add(ctx.clock.now(), peer.network());
        let serial = ctx.next_serial();
        let (policy, tls) = (carrier.policy(), carrier.tls().map(Rc::new));
        let link = Self {
            facts: ConnectionFacts { peer, listener, serial, policy, tls },
            ctx,
            ends: proxied,
            slot,
            requests: 0,
            read_times: None,
            connection_start,
            pace: None,
            alternative,
            _permit: permit,
        };
        (link, arrived)
    }

    /// Returns the addresses of client and server.
    ///
    /// # Errors
    /// When the client has closed the connection.
    pub(crate) fn ends(&mut self, carrier: &impl Carrier) -> io::Result<Option<SocketAddresses>> {
        if self.ends.is_none() {
            self.ends = carrier.ends()?.map(Box::new);
        }
        Ok(self.ends.as_deref().copied())
    }

    /// Takes the configuration that has superseded that of the connection.
    #[inline]
    pub(crate) fn take_newer_configuration(&mut self) {
        if let Some(newer) = self.ctx.superseded_by() {
            self.ctx = newer;
        }
    }

    /// Reads received bytes; no bytes at the end of the stream.
    #[inline]
    pub(crate) fn poll_read(
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
    pub(crate) fn set_read_times(&mut self, is_new: bool) {
        if self.ctx.has_telemetry() {
            self.read_times = Some(ReadTimes::after_read(self.read_times, is_new));
        }
    }

    /// Renews what the TLS handshake has shown.
    pub(crate) fn renew_facts(&mut self, carrier: &impl Carrier) {
        self.facts.policy = carrier.policy();
        self.facts.tls = carrier.tls().map(Rc::new);
    }

    /// Returns the client.
    #[inline]
    pub(crate) fn client(&self) -> Client {
        Client::of(&self.facts)
    }

    /// Routes a request. A connection on which it is misdirected because a policy has changed is compared with the new one.
    ///
    /// # Errors
    /// As [`dispatch`].
    pub(crate) fn dispatch(
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

    /// Prepares the context of a request for telemetry, if that is needed. `context` is that of the checks.
    #[inline]
    pub(crate) fn begin(
        &mut self,
        request: &Request<'_>,
        context: Option<Rc<RequestContext>>,
    ) -> Option<Rc<RequestContext>> {
        let (read_times, start) = (self.read_times, &mut self.connection_start);
        self.ctx.begin_telemetry(request, &self.facts, context, read_times, start)
    }

    /// Returns a cached response, paced if a bandwidth limit applies.
    #[inline]
    pub(super) fn cached<H: Deref<Target = CacheEntry>>(
        &mut self,
        cached: CachedResponse<H>,
        context: Option<Rc<RequestContext>>,
        method: Method,
    ) -> CachedReply<H> {
        let pacer = self.pacer(context.as_deref(), &cached, method);
        let keeps_head = self.ctx.logs_response_fields;
        CachedReply { cached, context, pacer, keeps_head }
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

    /// Records an exchange of whose response body `bytes` were sent.
    pub(crate) fn record(&self, exchange: &mut Exchange, bytes: u64, completion: Completion) {
        if let Some(log) = exchange.log.take() {
            self.record_log(&log, bytes, exchange.received(), completion);
        }
    }

    /// Records a response of whose body `bytes` were sent. `received` counts what the client has sent through a tunnel.
    pub(crate) fn record_log(
        &self,
        log: &DeferredRecord,
        bytes: u64,
        received: Option<u64>,
        completion: Completion,
    ) {
        let mut outcome = log.outcome.finish(bytes, completion).or_client_closed();
        outcome.received = received;
        self.ctx.record(&log.request.as_request(), &self.facts, &log.context, &outcome);
    }

    /// Returns the time of the worker's clock, in milliseconds.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.ctx.clock.now()
    }

    /// Sets what the connection waits for, and until when.
    #[inline]
    pub(crate) fn wait(&self, waiting: Waiting, deadline: u64) {
        self.ctx.connections.wait(self.slot, waiting, deadline);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.ctx.connections.remove(self.slot);
    }
}
