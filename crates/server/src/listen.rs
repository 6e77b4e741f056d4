//! Accepting connections.

pub(crate) mod quic;

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use dunlin_config::Listen;
use dunlin_net::address::{Peer, SocketAddresses};
use dunlin_net::clock;
use dunlin_net::connection_limits::limiter::EVICTION_INTERVAL;
pub(crate) use dunlin_net::connection_limits::limiter::{
    ConnectionLimiter, ConnectionLimits, Permit,
};
use dunlin_net::listener::Listener;
pub(crate) use dunlin_net::listener::{ListenSocket, bind, bind_unix, probe};
use dunlin_net::log_limiter::LogLimiter;
use dunlin_net::proxy_protocol::{self, Addresses};
use dunlin_net::stream::Stream;
use dunlin_quic::Endpoint;
use dunlin_telemetry::ConnectionStart;
use dunlin_telemetry::metrics::Handshake;
use dunlin_tls::Transport;
use rustix::io::Errno;
use tokio::sync::Notify;

use crate::drive::Start;
use crate::drive::connection::Connection;
use crate::exchange::link::Accepted;
use crate::worker::{SharedState, Worker, WorkerContext};

/// A `[[listen]]` entry on one worker.
#[derive(Debug)]
pub(crate) struct ListenerHandle {
    /// The entry's settings; a reload changes them.
    rules: RefCell<Listen>,
    is_closed: Cell<bool>,
    closed: Notify,
    /// The line that announces HTTP/3 to clients.
    alternative: RefCell<Option<Rc<str>>>,
}

impl ListenerHandle {
    pub(crate) fn new(rules: Listen) -> Rc<Self> {
        let rules = RefCell::new(rules);
        Rc::new(Self {
            rules,
            is_closed: Cell::new(false),
            closed: Notify::new(),
            alternative: RefCell::default(),
        })
    }

    /// Sets the endpoint for HTTP/3.
    pub(crate) fn set_endpoint(&self, endpoint: &Endpoint) {
        // Clients keep it for a day.
        let line = |port| format!("Alt-Svc: h3=\":{port}\"; ma=86400\r\n").into();
        self.alternative.replace(endpoint.local_addr().map(|address| line(address.port())));
    }

    /// Returns the line that announces HTTP/3 to clients; `None` while the listener has none.
    fn alternative(&self) -> Option<Rc<str>> {
        let is_wanted = self.rules.borrow().http3.is_wanted();
        self.alternative.borrow().as_ref().filter(|_| is_wanted).map(Rc::clone)
    }

    pub(crate) fn change(&self, rules: Listen) {
        self.rules.replace(rules);
    }

    /// Stops accepting, once the connections in the backlog are accepted.
    pub(crate) fn close(&self) {
        self.is_closed.set(true);
        self.closed.notify_waiters();
    }

    /// Resolves when the listener is closed, or the worker drains.
    async fn shut(&self, worker: &Worker) {
        let closed = self.closed.notified();
        if self.is_closed.get() {
            return;
        }
        tokio::select! {
            () = closed => {}
            () = worker.drained() => {}
        }
    }
}

/// Connections to close at a time when descriptors run short.
const AT_A_TIME: usize = 32;

/// Accepts connections and starts their tasks, until the listener is closed or the worker drains.
pub(crate) async fn accept(
    worker: Rc<Worker>,
    handle: Rc<ListenerHandle>,
    socket: ListenSocket,
) -> io::Result<()> {
    let listener = Listener::new(socket)?;
    // The task holds no configuration while it waits.
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = handle.shut(&worker) => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                let descriptor = stream.descriptor();
                if !admit(&worker, &handle, stream, peer).await {
                    break;
                }
                let Some(ctx) = worker.current() else { break };
                if ctx.shared.limiter.lacks_descriptors(descriptor) {
                    wait_for_room(&ctx, &"nearly all descriptors are taken", &listener).await;
                }
            }
            Err(error) => {
                let Some(ctx) = worker.current() else { break };
                pause_after(&ctx, &error, &listener).await;
            }
        }
    }
    if handle.is_closed.get()
        && let Some(ctx) = worker.current()
    {
        for (stream, peer) in listener.into_waiting()? {
            begin(&ctx, stream, peer, ctx.shared.limiter.extra_permit(), &handle);
        }
    }
    Ok(())
}

/// Serves a connection as soon as the limit of connections permits; `false` if the worker has ended before that.
pub(crate) async fn admit(
    worker: &Worker,
    handle: &ListenerHandle,
    stream: Stream,
    peer: Peer,
) -> bool {
    let Some(ctx) = worker.current() else { return false };
    let limiter = Arc::clone(&ctx.shared.limiter);
    drop(ctx);
    // Later connections wait in the backlog until this one has a permit.
    let permit = match handle.rules.borrow().admin {
        true => None,
        false => Some(limiter.permit()),
    };
    let permit = tokio::select! {
        biased;
        permit = async { permit?.await.into() } => permit,
        // A connection that was accepted is served.
        () = handle.shut(worker) => None,
    };
    let permit = permit.unwrap_or_else(|| limiter.extra_permit());
    let Some(ctx) = worker.current() else { return false };
    limiter.eviction().make_room(limiter.open());
    begin(&ctx, stream, peer, permit, handle);
    true
}

/// Starts the task of a connection, unless its address has too many.
fn begin(
    ctx: &Rc<WorkerContext>,
    stream: Stream,
    peer: Peer,
    mut permit: Permit,
    handle: &ListenerHandle,
) {
    ctx.wake_ticker();
    ctx.metrics.accepted();
    let protocols = Protocols::of(&handle.rules.borrow());
    // Behind a proxy, the limit applies to the client's own address.
    if !protocols.admin && !protocols.proxy_protocol && !permit.belongs_to(peer) {
        return;
    }
    let connection_start = ctx.has_telemetry().then(ConnectionStart::now);
    let listener = handle.rules.borrow().number;
    let accepted = Accepted {
        peer,
        listener,
        proxied: None,
        permit,
        connection_start,
        arrived: Vec::new(),
        alternative: handle.alternative(),
    };
    let preparing = Preparing { accepted, protocols };
    if protocols.tls || protocols.proxy_protocol {
        tokio::task::spawn_local(preparing.prepare(Rc::clone(ctx), stream));
    } else {
        preparing.drive(ctx, Transport::Plain(stream), protocols.start());
    }
}

/// The protocols of a listener.
#[derive(Debug, Clone, Copy)]
struct Protocols {
    tls: bool,
    http2: bool,
    /// Connections begin with a PROXY header.
    proxy_protocol: bool,
    /// Requests are commands for the server.
    admin: bool,
}

impl Protocols {
    fn of(rules: &Listen) -> Self {
        let Listen { tls, http2, proxy_protocol, admin, .. } = *rules;
        Self { tls, http2, proxy_protocol, admin }
    }

    /// Returns the first protocol of a connection without TLS.
    fn start(self) -> Start {
        match (self.admin, self.http2) {
            (true, _) => Start::Admin,
            (false, true) => Start::Either,
            (false, false) => Start::Http1,
        }
    }
}

/// A connection whose protocol adapter has not started.
struct Preparing {
    accepted: Accepted,
    protocols: Protocols,
}

impl Preparing {
    /// Starts the protocol adapter in a task of its own: the task of the handshake is larger than a connection needs.
    fn drive(self, ctx: &Rc<WorkerContext>, stream: Transport, start: Start) {
        tokio::task::spawn_local(Connection::new(Rc::clone(ctx), stream, self.accepted, start));
    }

    /// Reads the PROXY header and does the TLS handshake, as the listener requires.
    async fn prepare(self, ctx: Rc<WorkerContext>, stream: Stream) {
        // A worker that drains waits for it as for any connection.
        let slot = ctx.connections.add(ctx.clock.now(), self.accepted.peer.network());
        tokio::select! {
            () = self.make_ready(&ctx, stream) => {}
            () = ctx.closing() => {}
            () = ctx.connections.evicted(slot) => {}
        }
        ctx.connections.remove(slot);
    }

    async fn make_ready(mut self, ctx: &Rc<WorkerContext>, mut stream: Stream) {
        let limit = Duration::from_millis(ctx.http1.head_timeout);
        if self.protocols.proxy_protocol {
            match clock::timeout(limit, self.read_proxy_header(ctx, &mut stream)).await {
                Some(Ok((addresses, arrived))) => {
                    self.accepted.arrived = arrived;
                    let ends = addresses.map(|(remote, local)| SocketAddresses { remote, local });
                    if let Some(ends) = ends {
                        self.accepted.peer = Peer::of(ends.remote);
                    }
                    self.accepted.proxied = ends.map(Box::new);
                    if !self.accepted.permit.belongs_to(self.accepted.peer) {
                        return;
                    }
                }
                Some(Err(error)) => {
                    return tracing::warn!(peer = %self.accepted.peer, "PROXY protocol: {error}");
                }
                None => {
                    return tracing::warn!(peer = %self.accepted.peer, "PROXY protocol: the header timed out");
                }
            }
        }
        if self.protocols.tls {
            self.encrypt(ctx, stream).await;
        } else {
            ctx.wake_ticker();
            let start = self.protocols.start();
            self.drive(ctx, Transport::Plain(stream), start);
        }
    }

    /// Reads the PROXY header, and the bytes behind it that came with it.
    async fn read_proxy_header(
        &self,
        ctx: &WorkerContext,
        stream: &mut Stream,
    ) -> io::Result<(Addresses, Vec<u8>)> {
        let trusted = &ctx.shared.config.server.trusted_proxies;
        // A process that may write to a Unix socket is trusted.
        if let Some(address) = self.accepted.peer.ip()
            && !trusted.is_empty()
            && !trusted.iter().any(|network| network.contains(address))
        {
            let what = "the address is not in trusted_proxies";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        proxy_protocol::read(stream).await
    }

    /// Does the TLS handshake and starts the protocol adapter.
    async fn encrypt(mut self, ctx: &Rc<WorkerContext>, stream: Stream) {
        let SharedState { config, certificates, .. } = &*ctx.shared;
        let limit = Duration::from_millis(ctx.http1.head_timeout);
        let arrived = std::mem::take(&mut self.accepted.arrived);
        let (number, http2) = (self.accepted.listener, self.protocols.http2);
        let listener = dunlin_tls::Listener { number, http2 };
        let handshake = dunlin_tls::handshake(stream, arrived, config, certificates, listener);
        let peer = self.accepted.peer;
        match clock::timeout(limit, handshake).await {
            Some(Ok(mut session)) if session.is_acme_challenge() => session.close(),
            Some(Ok(session)) => {
                ctx.wake_ticker();
                if self.accepted.alternative.is_some()
                    && !session.may_use_http3(config, certificates)
                {
                    self.accepted.alternative = None;
                }
                let resumed = session.is_resumed();
                ctx.metrics.handshake(if resumed { Handshake::Resumed } else { Handshake::Full });
                if let Some(connection_start) = &mut self.accepted.connection_start {
                    connection_start.secured = Some(clock::now());
                }
                let start = if session.has_http2() { Start::Http2 } else { Start::Http1 };
                self.drive(ctx, Transport::Tls(Box::new(session)), start);
            }
            Some(Err(error)) => {
                ctx.metrics.handshake(Handshake::Failed);
                log_failed_handshake(peer, &error);
            }
            None => {
                ctx.metrics.handshake(Handshake::Late);
                tracing::debug!(%peer, "TLS handshake: timed out");
            }
        }
    }
}

/// Logs why a handshake failed. A rejected client certificate is logged at level `info`, at most once a second: the
/// client learns only that there was an error.
fn log_failed_handshake(peer: Peer, error: &io::Error) {
    static LOG_LIMITER: LogLimiter = LogLimiter::new();
    match dunlin_tls::client_rejection(error) {
        Some(reason) if LOG_LIMITER.is_due() => {
            tracing::info!(%peer, "TLS handshake: the client certificate is rejected: {reason}");
        }
        _ => tracing::debug!(%peer, "TLS handshake: {error}"),
    }
}

/// Waits after an error that concerns all connections: a lack of descriptors or memory.
async fn pause_after(ctx: &WorkerContext, error: &io::Error, listener: &impl AsFd) {
    let lacking = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    if lacking.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error())) {
        wait_for_room(ctx, error, listener).await;
    }
}

/// Waits until descriptors are free again, and logs that once. New connections wait in the backlog.
async fn wait_for_room(ctx: &WorkerContext, why: &dyn std::fmt::Display, listener: &impl AsFd) {
    let limiter = &ctx.shared.limiter;
    if !limiter.set_paused(true) {
        tracing::error!("accepting is paused until file descriptors are free: {why}");
        // Cached files release their descriptors.
        ctx.shared.files.cache.clear();
        ctx.sweep();
    }
    loop {
        (0..AT_A_TIME).for_each(|_| limiter.eviction().evict_one());
        clock::sleep(EVICTION_INTERVAL).await;
        // The lowest free descriptor shows how many are in use.
        let probe = rustix::io::fcntl_dupfd_cloexec(listener, 0);
        if probe.is_ok_and(|free| !limiter.lacks_descriptors(free.as_raw_fd())) {
            break;
        }
    }
    if limiter.set_paused(false) {
        tracing::info!("file descriptors are available again; accepting resumes");
    }
}
