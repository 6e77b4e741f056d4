//! Accepting connections.

mod proxy;

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use self::proxy::Addresses;
use crate::cache::SharedCache;
use crate::config::Listen;
use crate::connection_limits::{AddressPlace, Eviction, PerAddress};
use crate::drive::http1::{Connection, Start};
use crate::telemetry::ConnectionStart;
use crate::telemetry::metrics::Handshake;
use crate::tls;
use crate::transport::{Ends, Peer, Transport};
use crate::worker::{SharedState, Worker, WorkerContext};

/// Opens a listening socket. Several may share one address, one for each worker; the kernel deals
/// connections out among them.
///
/// # Errors
/// Whatever the kernel says of the address: taken, not of this machine, not permitted.
pub(crate) fn bind(address: SocketAddr, backlog: i32) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    tune(SockRef::from(&socket))?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(backlog)?;
    Ok(socket.into())
}

/// Bytes that the kernel takes for a connection beyond what its client has room for. Left to itself it takes
/// a megabyte and more, even of those who read 4 KB/s: thousands of slow readers then use up the
/// memory that all connections have. Less than one turn of a pipe (64 KB), so that `sendfile` stops behind its first.
const MOST_UNSENT: u32 = 48 * 1024;
/// The same of a large answer while at most so many connections are open: what the kernel has, it sends as soon as
/// the client has taken something, without the worker's turn in between.
const FEW_UNSENT: u32 = 1024 * 1024;
const FEW: usize = 256;

/// Bytes of a large answer that the kernel is to take ahead while so many connections are open.
pub(crate) fn most_unsent(open: usize) -> u32 {
    if open <= FEW { FEW_UNSENT } else { MOST_UNSENT }
}

/// Sets what each accepted socket inherits: one call for the life of the listener.
///
/// # Errors
/// What the kernel says.
pub(crate) fn tune(listener: SockRef<'_>) -> io::Result<()> {
    listener.set_tcp_nodelay(true)?;
    listener.set_tcp_notsent_lowat(MOST_UNSENT)
}

/// Whether `address` is free for this process alone: sharing among workers would let another server
/// of the same user listen there too, unnoticed.
///
/// # Errors
/// As [`bind`].
pub(crate) fn probe(address: SocketAddr) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())
}

/// Opens a Unix socket for those who may write to its file. A file that a server left behind is
/// replaced.
///
/// # Errors
/// `AddrInUse` when somebody listens there, or when the file is no socket; else what the system says.
pub(crate) fn bind_unix(path: &Path, mode: u32, backlog: i32) -> io::Result<UnixListener> {
    match UnixStream::connect(path) {
        Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            use std::os::unix::fs::FileTypeExt;
            if !path.symlink_metadata()?.file_type().is_socket() {
                return Err(io::Error::new(
                    io::ErrorKind::AddrInUse,
                    "a file that is no socket is there",
                ));
            }
            std::fs::remove_file(path)?;
        }
        // What else is in the way is told by what follows.
        Err(_) => {}
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&socket2::SockAddr::unix(path)?)?;
    // Nobody can connect before it listens, so that no other permissions are ever of use.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    socket.listen(backlog)?;
    Ok(socket.into())
}

/// A socket that is listened on.
#[derive(Debug)]
pub(crate) enum ListenSocket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl AsFd for ListenSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Unix(socket) => socket.as_fd(),
        }
    }
}

impl ListenSocket {
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(socket) => Self::Tcp(socket.try_clone()?),
            Self::Unix(socket) => Self::Unix(socket.try_clone()?),
        })
    }
}

/// What one worker accepts from by one entry of the configuration.
#[derive(Debug)]
pub(crate) struct ListenerHandle {
    /// How connections are treated; changes when the configuration does.
    rules: RefCell<Listen>,
    is_closed: Cell<bool>,
    closed: Notify,
}

impl ListenerHandle {
    pub(crate) fn new(rules: Listen) -> Rc<Self> {
        let rules = RefCell::new(rules);
        Rc::new(Self { rules, is_closed: Cell::new(false), closed: Notify::new() })
    }

    pub(crate) fn change(&self, rules: Listen) {
        self.rules.replace(rules);
    }

    /// Accepts who has come by now, and nobody after.
    pub(crate) fn close(&self) {
        self.is_closed.set(true);
        self.closed.notify_waiters();
    }

    /// Resolves when it is closed, or the worker is asked to stop.
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

/// How many connections are open, over all workers.
#[derive(Debug)]
pub(crate) struct ConnectionLimiter {
    open: AtomicUsize,
    most: AtomicUsize,
    pub(crate) eviction: Eviction,
    pub(crate) per_address: Arc<PerAddress>,
    freed: Notify,
    /// Descriptors from this number on are for files of those who are connected already.
    ceiling: RawFd,
    descriptors_said: AtomicBool,
    /// Notified when the workers are to close the descriptors that the cache keeps.
    release: Notify,
}

/// One connection's place among those that may be open.
#[derive(Debug)]
pub(crate) struct Permit {
    limiter: Arc<ConnectionLimiter>,
    /// Its place among those of its address.
    address: Option<Box<AddressPlace>>,
}

/// Limits of connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionLimits {
    /// At once, over all workers.
    pub(crate) most: usize,
    /// From so many on, others are closed to make room.
    pub(crate) soft: usize,
    /// Of each address.
    pub(crate) per_address: Option<usize>,
}

/// While all places are taken, another connection is closed to make room this often.
const RETRY: Duration = Duration::from_millis(100);
/// So many connections are closed at a time when descriptors run short.
const AT_A_TIME: usize = 32;

impl ConnectionLimiter {
    /// For so many workers, in a process that may have `descriptors`.
    pub(crate) fn new(limits: ConnectionLimits, workers: usize, descriptors: usize) -> Self {
        let reserve = (descriptors / 8).min(64);
        Self {
            eviction: Eviction::new(limits.soft, workers),
            per_address: Arc::new(PerAddress::new(limits.per_address)),
            ceiling: RawFd::try_from(descriptors - reserve).unwrap_or(RawFd::MAX),
            open: AtomicUsize::new(0),
            most: AtomicUsize::new(limits.most),
            freed: Notify::new(),
            descriptors_said: AtomicBool::new(false),
            release: Notify::new(),
        }
    }

    /// Has all workers close the descriptors that the cache keeps, because none is left for something else.
    pub(crate) fn release_descriptors(&self, cache: &SharedCache) {
        cache.release_descriptors();
        self.release.notify_waiters();
    }

    /// Waits until this worker is to close the descriptors that it keeps.
    pub(crate) async fn release_requested(&self) {
        self.release.notified().await;
    }

    /// From now on `most` connections at once.
    pub(crate) fn set(&self, limits: ConnectionLimits) {
        self.most.store(limits.most, Ordering::Release);
        self.eviction.set_soft(limits.soft);
        self.per_address.set_most(limits.per_address);
        self.freed.notify_waiters();
    }

    /// The most connections at once.
    pub(crate) fn most(&self) -> usize {
        self.most.load(Ordering::Acquire)
    }

    /// Whether no further connection can be accepted before one is closed.
    pub(crate) fn is_full(&self) -> bool {
        self.open() >= self.most() || self.descriptors_said.load(Ordering::Relaxed)
    }

    /// How many connections of one address may be without a complete request, of those of one worker.
    pub(crate) fn unfinished_per_address(&self) -> usize {
        (self.most() / 2 / self.eviction.workers()).max(1)
    }

    /// A place for somebody who has to be heard even when there is none.
    fn extra_permit(self: &Arc<Self>) -> Permit {
        self.open.fetch_add(1, Ordering::AcqRel);
        Permit { limiter: Arc::clone(self), address: None }
    }

    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// A place for somebody who waits, as soon as there is one.
    async fn permit(self: &Arc<Self>) -> Permit {
        loop {
            let freed = self.freed.notified();
            if self.open.fetch_add(1, Ordering::AcqRel) < self.most() {
                return Permit { limiter: Arc::clone(self), address: None };
            }
            self.open.fetch_sub(1, Ordering::AcqRel);
            // A place can have been freed between the two lines above.
            if self.open.load(Ordering::Acquire) >= self.most() {
                self.eviction.evict_one();
                // Either a place is free, or another connection may have become idle.
                let _ = tokio::time::timeout(RETRY, freed).await;
            }
        }
    }
}

impl Permit {
    /// Counts the connection as one of `peer`'s; false when that has as many as it may.
    fn belongs_to(&mut self, peer: Peer) -> bool {
        let table = &self.limiter.per_address;
        if !table.is_limited() {
            return true;
        }
        self.address = table.enter(peer).map(Box::new);
        self.address.is_some()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.limiter.open.fetch_sub(1, Ordering::AcqRel) >= self.limiter.most() {
            self.limiter.freed.notify_waiters();
        }
    }
}

/// Accepts connections and starts their drivers, until the door is closed or the worker drains.
pub(crate) async fn accept(
    worker: Rc<Worker>,
    handle: Rc<ListenerHandle>,
    socket: ListenSocket,
) -> io::Result<()> {
    let listener = Listener::new(socket)?;
    // Nothing of the configuration is held while nobody comes.
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = handle.shut(&worker) => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                let Some(ctx) = worker.current() else { break };
                let limiter = Arc::clone(&ctx.shared.limiter);
                drop(ctx);
                let descriptor = stream.as_raw_fd();
                // Those behind it wait in the backlog until it has a place.
                let permit = match handle.rules.borrow().admin {
                    true => None,
                    false => Some(limiter.permit()),
                };
                let permit = tokio::select! {
                    permit = async { permit?.await.into() } => permit,
                    // Who has come this far is served.
                    () = handle.shut(&worker) => None,
                };
                let permit = permit.unwrap_or_else(|| limiter.extra_permit());
                let Some(ctx) = worker.current() else { break };
                limiter.eviction.make_room(limiter.open());
                begin(&ctx, stream, peer, permit, &handle);
                if descriptor >= ctx.shared.limiter.ceiling {
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

/// Has a connection served.
fn begin(
    ctx: &Rc<WorkerContext>,
    stream: Stream,
    peer: Peer,
    mut permit: Permit,
    handle: &ListenerHandle,
) {
    ctx.wake_ticker();
    ctx.metrics.accepted();
    let speech = Speech::of(&handle.rules.borrow());
    // Behind a proxy, the client's own address counts.
    if !speech.admin && !speech.proxy_protocol && !permit.belongs_to(peer) {
        return;
    }
    let connection_start = ctx.has_telemetry().then(ConnectionStart::now);
    let accepted =
        Accepted { peer, proxied: None, permit, connection_start, arrived: Vec::new(), speech };
    if speech.tls || speech.proxy_protocol {
        tokio::task::spawn_local(accepted.prepare(Rc::clone(ctx), stream));
    } else {
        accepted.drive(ctx, stream.into(), speech.start());
    }
}

/// What is spoken on a listener.
#[derive(Debug, Clone, Copy)]
struct Speech {
    tls: bool,
    http2: bool,
    /// A proxy tells of the client first.
    proxy_protocol: bool,
    /// Requests are commands to the server.
    admin: bool,
}

impl Speech {
    fn of(rules: &Listen) -> Self {
        let Listen { tls, http2, proxy_protocol, admin, .. } = *rules;
        Self { tls, http2, proxy_protocol, admin }
    }

    /// What a connection without TLS begins with.
    fn start(self) -> Start {
        match (self.admin, self.http2) {
            (true, _) => Start::Admin,
            (false, true) => Start::Either,
            (false, false) => Start::Http1,
        }
    }
}

/// A connection whose driver has not begun.
pub(crate) struct Accepted {
    pub(crate) peer: Peer,
    /// What a proxy said of the addresses of client and server.
    pub(crate) proxied: Option<Box<Ends>>,
    pub(crate) permit: Permit,
    /// When it began, when anybody wants to know.
    pub(crate) connection_start: Option<ConnectionStart>,
    /// What was read with a PROXY header and belongs to the client.
    pub(crate) arrived: Vec<u8>,
    speech: Speech,
}

impl Accepted {
    /// Starts the driver: a task of its own, because that of what came before is larger than a
    /// connection needs.
    fn drive(self, ctx: &Rc<WorkerContext>, stream: Transport, start: Start) {
        tokio::task::spawn_local(Connection::new(Rc::clone(ctx), stream, self, start));
    }

    /// Does what has to be done before the driver may begin.
    async fn prepare(self, ctx: Rc<WorkerContext>, stream: Stream) {
        // It counts as a connection, so that a worker that drains waits for it.
        let slot = ctx.connections.add(ctx.clock.now(), self.peer.network());
        tokio::select! {
            () = self.make_ready(&ctx, stream) => {}
            () = ctx.closing() => {}
            () = ctx.connections.evicted(slot) => {}
        }
        ctx.connections.remove(slot);
    }

    async fn make_ready(mut self, ctx: &Rc<WorkerContext>, mut stream: Stream) {
        let limit = Duration::from_millis(ctx.http1.head_timeout);
        if self.speech.proxy_protocol {
            match tokio::time::timeout(limit, self.hear_proxy(ctx, &mut stream)).await {
                Ok(Ok((addresses, arrived))) => {
                    self.arrived = arrived;
                    let ends = addresses.map(|(remote, local)| Ends { remote, local });
                    if let Some(ends) = ends {
                        self.peer = Peer::of(ends.remote);
                    }
                    self.proxied = ends.map(Box::new);
                    if !self.permit.belongs_to(self.peer) {
                        return;
                    }
                }
                Ok(Err(error)) => {
                    return tracing::warn!(peer = %self.peer, "PROXY protocol: {error}");
                }
                Err(_) => {
                    return tracing::warn!(peer = %self.peer, "PROXY protocol: it took too long");
                }
            }
        }
        match stream {
            Stream::Tcp(stream) if self.speech.tls => self.encrypt(ctx, stream).await,
            stream => {
                ctx.wake_ticker();
                let start = self.speech.start();
                self.drive(ctx, stream.into(), start);
            }
        }
    }

    /// Reads the PROXY header, and what has arrived behind it.
    async fn hear_proxy(
        &self,
        ctx: &WorkerContext,
        stream: &mut Stream,
    ) -> io::Result<(Addresses, Vec<u8>)> {
        let trusted = &ctx.shared.config.server.trusted_proxies;
        // Whoever may write to a Unix socket is trusted.
        if let Some(address) = self.peer.ip()
            && !trusted.is_empty()
            && !trusted.iter().any(|network| network.contains(address))
        {
            let what = "the address is none of trusted_proxies";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        match stream {
            Stream::Tcp(stream) => proxy::read(stream).await,
            Stream::Unix(stream) => proxy::read(stream).await,
        }
    }

    /// Does the handshake and starts the driver.
    async fn encrypt(mut self, ctx: &Rc<WorkerContext>, stream: TcpStream) {
        let SharedState { config, certificates, .. } = &*ctx.shared;
        let limit = Duration::from_millis(ctx.http1.head_timeout);
        let arrived = std::mem::take(&mut self.arrived);
        let handshake = tls::handshake(stream, arrived, config, certificates, self.speech.http2);
        let peer = self.peer;
        match tokio::time::timeout(limit, handshake).await {
            Ok(Ok(mut session)) if session.was_proof() => session.close(),
            Ok(Ok(session)) => {
                ctx.wake_ticker();
                let resumed = session.is_resumed();
                ctx.metrics.handshake(if resumed { Handshake::Resumed } else { Handshake::Full });
                if let Some(connection_start) = &mut self.connection_start {
                    connection_start.secured = Some(Instant::now());
                }
                let start = if session.has_http2() { Start::Http2 } else { Start::Http1 };
                self.drive(ctx, Transport::Tls(Box::new(session)), start);
            }
            Ok(Err(error)) => {
                ctx.metrics.handshake(Handshake::Failed);
                tracing::debug!(%peer, "TLS handshake: {error}");
            }
            Err(_) => {
                ctx.metrics.handshake(Handshake::Late);
                tracing::debug!(%peer, "TLS handshake: it took too long");
            }
        }
    }
}

impl From<Stream> for Transport {
    fn from(stream: Stream) -> Self {
        match stream {
            Stream::Tcp(stream) => Self::Tcp(stream),
            Stream::Unix(stream) => Self::Unix(stream),
        }
    }
}

/// A listening socket that is registered with this worker.
enum Listener {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

/// A socket that was accepted.
enum Stream {
    Tcp(TcpStream),
    Unix(tokio::net::UnixStream),
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Self::Tcp(stream) => stream.as_raw_fd(),
            Self::Unix(stream) => stream.as_raw_fd(),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

impl Listener {
    fn new(socket: ListenSocket) -> io::Result<Self> {
        Ok(match socket {
            ListenSocket::Tcp(socket) => Self::Tcp(tokio::net::TcpListener::from_std(socket)?),
            ListenSocket::Unix(socket) => Self::Unix(tokio::net::UnixListener::from_std(socket)?),
        })
    }

    async fn accept(&self) -> io::Result<(Stream, Peer)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok((Stream::Tcp(stream), Peer::of(peer)))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                Ok((Stream::Unix(stream), Peer::Unix))
            }
        }
    }

    /// Those who have connected and were not accepted yet: closing the socket would break them off.
    fn into_waiting(self) -> io::Result<Vec<(Stream, Peer)>> {
        let mut waiting = Vec::new();
        match self {
            Self::Tcp(listener) => {
                let listener = listener.into_std()?;
                // Any error is the end: there is nobody left, or no descriptor for them.
                while let Ok((stream, peer)) = listener.accept() {
                    stream.set_nonblocking(true)?;
                    waiting.push((Stream::Tcp(TcpStream::from_std(stream)?), Peer::of(peer)));
                }
            }
            Self::Unix(listener) => {
                let listener = listener.into_std()?;
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true)?;
                    let stream = tokio::net::UnixStream::from_std(stream)?;
                    waiting.push((Stream::Unix(stream), Peer::Unix));
                }
            }
        }
        Ok(waiting)
    }
}

/// What went wrong with one connection concerns nobody else; a lack of descriptors or memory
/// concerns all.
async fn pause_after(ctx: &WorkerContext, error: &io::Error, listener: &impl AsFd) {
    let lacking = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    if lacking.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error())) {
        wait_for_room(ctx, error, listener).await;
    }
}

/// Waits until descriptors are free again. It is said once; newcomers wait in the backlog.
async fn wait_for_room(ctx: &WorkerContext, why: &dyn std::fmt::Display, listener: &impl AsFd) {
    let limiter = &ctx.shared.limiter;
    if !limiter.descriptors_said.swap(true, Ordering::Relaxed) {
        tracing::error!("accepting pauses until there is room: {why}");
        // Files kept open only to be fast give way.
        ctx.shared.cache.clear();
        ctx.sweep();
    }
    loop {
        (0..AT_A_TIME).for_each(|_| limiter.eviction.evict_one());
        tokio::time::sleep(RETRY).await;
        // The lowest free number tells how many are taken.
        let probe = rustix::io::fcntl_dupfd_cloexec(listener, 0);
        if probe.is_ok_and(|free| free.as_raw_fd() < limiter.ceiling) {
            break;
        }
    }
    if limiter.descriptors_said.swap(false, Ordering::Relaxed) {
        tracing::info!("there is room again; accepting goes on");
    }
}
