//! Accepting connections.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::unix::AsyncFd;
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::drive::http1::Connection;
use crate::event_loop::Loop;

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
    descriptors_said: AtomicBool,
}

/// One connection's place among those that may be open.
#[derive(Debug)]
pub(crate) struct Permit {
    gauge: Arc<Gauge>,
}

impl Gauge {
    pub(crate) fn new(most: usize) -> Self {
        Self {
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

/// Accepts connections and starts their drivers, until the loop drains.
pub(crate) async fn accept(ctx: Rc<Loop>, listener: TcpListener) -> io::Result<()> {
    let listener = AsyncFd::new(listener)?;
    loop {
        let permit = tokio::select! {
            permit = ctx.shared.gauge.permit() => permit,
            () = ctx.drained() => return Ok(()),
        };
        let mut ready = tokio::select! {
            ready = listener.readable() => ready?,
            () = ctx.drained() => return Ok(()),
        };
        match ready.try_io(|listener| {
            Ok(acceptfrom_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?)
        }) {
            Ok(Ok((socket, address))) => {
                let peer = address.and_then(|address| SocketAddr::try_from(address).ok());
                let (Some(peer), Ok(stream)) =
                    (peer, TcpStream::from_std(std::net::TcpStream::from(socket)))
                else {
                    continue;
                };
                ctx.shared.gauge.descriptors_said.store(false, Ordering::Relaxed);
                ctx.wake_ticker();
                tokio::task::spawn_local(Connection::new(
                    Rc::clone(&ctx),
                    stream,
                    peer.ip().to_canonical(),
                    permit,
                ));
            }
            Ok(Err(error)) => pause_after(&ctx, &error).await,
            // Another loop or process took it.
            Err(_) => {}
        }
    }
}

/// What went wrong with one connection concerns nobody else; what is lacking for all is said once
/// and waited for.
async fn pause_after(ctx: &Loop, error: &io::Error) {
    let lacking = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    if !lacking.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error())) {
        return;
    }
    if !ctx.shared.gauge.descriptors_said.swap(true, Ordering::Relaxed) {
        tracing::error!("accepting pauses until there is room: {error}");
    }
    // Files kept open only to be fast give way to connections.
    ctx.shared.store.clear();
    ctx.sweep();
    tokio::time::sleep(Duration::from_millis(100)).await;
}
