//! Accepting connections.

mod proxy;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use self::proxy::Addresses;
use crate::drive::http1::{Connection, Start};
use crate::event_loop::{Loop, Shared};
use crate::tls;
use crate::transport::Transport;

/// Opens a listening socket. Several may share one address, one for each loop; the kernel deals
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
    // Inherited by each accepted socket: one system call for the life of the listener.
    socket.set_tcp_nodelay(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(backlog)?;
    Ok(socket.into())
}

/// Whether `address` is free for this process alone: sharing among loops would let another server
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

/// How many connections are open, over all loops.
#[derive(Debug)]
pub(crate) struct Gauge {
    open: AtomicUsize,
    most: usize,
    freed: Notify,
    /// Descriptors from this number on are for files of those who are connected already.
    ceiling: RawFd,
    descriptors_said: AtomicBool,
}

/// One connection's place among those that may be open.
#[derive(Debug)]
pub(crate) struct Permit {
    gauge: Arc<Gauge>,
}

impl Gauge {
    /// `most` connections at once, in a process that may have `descriptors`.
    pub(crate) fn new(most: usize, descriptors: usize) -> Self {
        let reserve = (descriptors / 8).min(64);
        Self {
            ceiling: RawFd::try_from(descriptors - reserve).unwrap_or(RawFd::MAX),
            open: AtomicUsize::new(0),
            most,
            freed: Notify::new(),
            descriptors_said: AtomicBool::new(false),
        }
    }

    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// A place, as soon as there is one. Until then nobody accepts: newcomers wait in the
    /// kernel's backlog.
    async fn permit(self: &Arc<Self>) -> Permit {
        loop {
            let freed = self.freed.notified();
            if self.open.fetch_add(1, Ordering::AcqRel) < self.most {
                return Permit { gauge: Arc::clone(self) };
            }
            self.open.fetch_sub(1, Ordering::AcqRel);
            // A place can have been freed between the two lines above.
            if self.open.load(Ordering::Acquire) >= self.most {
                freed.await;
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.gauge.open.fetch_sub(1, Ordering::AcqRel) >= self.gauge.most {
            self.gauge.freed.notify_waiters();
        }
    }
}

/// What is spoken on a listener.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Speech {
    pub(crate) tls: bool,
    pub(crate) http2: bool,
    /// A proxy tells of the client first.
    pub(crate) proxy_protocol: bool,
}

/// Accepts connections and starts their drivers, until the loop drains.
pub(crate) async fn accept(ctx: Rc<Loop>, listener: TcpListener, speech: Speech) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        let permit = tokio::select! {
            permit = ctx.shared.gauge.permit() => permit,
            () = ctx.drained() => return Ok(()),
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = ctx.drained() => return Ok(()),
        };
        match accepted {
            Ok((stream, peer)) => {
                ctx.wake_ticker();
                let descriptor = stream.as_raw_fd();
                let accepted =
                    Accepted { peer: peer.ip().to_canonical(), proxied: None, permit, speech };
                if speech.tls || speech.proxy_protocol {
                    tokio::task::spawn_local(accepted.prepare(Rc::clone(&ctx), stream));
                } else {
                    let start = if speech.http2 { Start::Either } else { Start::Http1 };
                    accepted.drive(&ctx, Transport::Tcp(stream), start);
                }
                if descriptor >= ctx.shared.gauge.ceiling {
                    wait_for_room(&ctx, &"nearly all descriptors are taken", &listener).await;
                }
            }
            Err(error) => pause_after(&ctx, &error, &listener).await,
        }
    }
}

/// A connection whose driver has not begun.
pub(crate) struct Accepted {
    pub(crate) peer: IpAddr,
    /// What a proxy said of the client.
    pub(crate) proxied: Option<Box<(SocketAddr, SocketAddr)>>,
    pub(crate) permit: Permit,
    speech: Speech,
}

impl Accepted {
    /// Starts the driver: a task of its own, because that of what came before is larger than a
    /// connection needs.
    fn drive(self, ctx: &Rc<Loop>, stream: Transport, start: Start) {
        tokio::task::spawn_local(Connection::new(Rc::clone(ctx), stream, self, start));
    }

    /// Does what has to be done before the driver may begin.
    async fn prepare(mut self, ctx: Rc<Loop>, mut stream: TcpStream) {
        let limit = Duration::from_millis(ctx.http1.head_timeout);
        if self.speech.proxy_protocol {
            let told = tokio::time::timeout(limit, self.hear_proxy(&ctx, &mut stream));
            let told = tokio::select! {
                told = told => told,
                () = ctx.drained() => return,
            };
            match told {
                Ok(Ok(addresses)) => {
                    if let Some((client, _)) = &addresses {
                        self.peer = client.ip().to_canonical();
                    }
                    self.proxied = addresses.map(Box::new);
                }
                Ok(Err(error)) => {
                    return tracing::warn!(peer = %self.peer, "PROXY protocol: {error}");
                }
                Err(_) => {
                    return tracing::warn!(peer = %self.peer, "PROXY protocol: it took too long");
                }
            }
        }
        if self.speech.tls {
            return self.encrypt(ctx, stream).await;
        }
        ctx.wake_ticker();
        let start = if self.speech.http2 { Start::Either } else { Start::Http1 };
        self.drive(&ctx, Transport::Tcp(stream), start);
    }

    async fn hear_proxy(&self, ctx: &Loop, stream: &mut TcpStream) -> io::Result<Addresses> {
        let trusted = &ctx.shared.config.server.trusted_proxies;
        if !trusted.is_empty() && !trusted.iter().any(|network| network.contains(self.peer)) {
            let what = "the address is none of trusted_proxies";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        proxy::read(stream).await
    }

    /// Does the handshake and starts the driver.
    async fn encrypt(self, ctx: Rc<Loop>, stream: TcpStream) {
        let Shared { config, certificates, .. } = &*ctx.shared;
        let limit = Duration::from_millis(ctx.http1.head_timeout);
        let handshake = tls::handshake(stream, config, certificates, self.speech.http2);
        let handshake = tokio::time::timeout(limit, handshake);
        let session = tokio::select! {
            session = handshake => session,
            () = ctx.drained() => return,
        };
        let peer = self.peer;
        match session {
            Ok(Ok(mut session)) if session.was_proof() => session.close(),
            Ok(Ok(session)) => {
                ctx.wake_ticker();
                let start = if session.has_http2() { Start::Http2 } else { Start::Http1 };
                self.drive(&ctx, Transport::Tls(Box::new(session)), start);
            }
            Ok(Err(error)) => tracing::debug!(%peer, "TLS handshake: {error}"),
            Err(_) => tracing::debug!(%peer, "TLS handshake: it took too long"),
        }
    }
}

/// What went wrong with one connection concerns nobody else; a lack of descriptors or memory
/// concerns all.
async fn pause_after(ctx: &Loop, error: &io::Error, listener: &impl AsFd) {
    let lacking = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    if lacking.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error())) {
        wait_for_room(ctx, error, listener).await;
    }
}

/// Waits until descriptors are free again. It is said once; newcomers wait in the backlog.
async fn wait_for_room(ctx: &Loop, why: &dyn std::fmt::Display, listener: &impl AsFd) {
    let gauge = &ctx.shared.gauge;
    if !gauge.descriptors_said.swap(true, Ordering::Relaxed) {
        tracing::error!("accepting pauses until there is room: {why}");
        // Files kept open only to be fast give way.
        ctx.shared.store.clear();
        ctx.sweep();
    }
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        // The lowest free number tells how many are taken.
        let probe = rustix::io::fcntl_dupfd_cloexec(listener, 0);
        if probe.is_ok_and(|free| free.as_raw_fd() < gauge.ceiling) {
            break;
        }
    }
    if gauge.descriptors_said.swap(false, Ordering::Relaxed) {
        tracing::info!("there is room again; accepting goes on");
    }
}
