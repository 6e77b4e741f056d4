//! Byte streams without encryption: TCP, Unix sockets, and streams in memory for tests.

pub mod memory;

use std::fmt;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_cork, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_quickack,
};
use rustix::net::{RecvFlags, SendFlags, recv};
use socket2::SockRef;
use tokio::io::{AsyncRead, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::address::SocketAddresses;

/// The byte stream of a connection. All operations are non-blocking.
pub enum Stream {
    /// A TCP socket.
    Tcp(TcpStream),
    /// A Unix socket.
    Unix(UnixStream),
    /// A stream in memory. Without the feature `testing` no value of this variant exists.
    Memory(memory::ServerEnd),
}

/// The time between the questions whether a client is still there.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);

/// States if more bytes follow a write immediately. The kernel then keeps the last, incomplete segment until they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    /// The segment is sent.
    No,
    /// The kernel waits for more bytes.
    Follows,
}

impl Stream {
    fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Tcp(tcp) => Some(tcp),
            _ => None,
        }
    }

    /// Returns the socket; [`None`] for a stream in memory.
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Tcp(tcp) => Some(tcp.as_fd()),
            Self::Unix(unix) => Some(unix.as_fd()),
            Self::Memory(_) => None,
        }
    }

    /// Returns the number of the socket's descriptor; -1 for a stream in memory.
    #[inline]
    pub fn descriptor(&self) -> RawFd {
        self.socket().map_or(-1, |socket| socket.as_raw_fd())
    }

    /// Returns the addresses of both ends; [`None`] for a Unix socket.
    ///
    /// # Errors
    /// When the client has closed the connection.
    #[inline]
    pub fn ends(&self) -> io::Result<Option<SocketAddresses>> {
        match self {
            Self::Tcp(tcp) => {
                Ok(Some(SocketAddresses { remote: tcp.peer_addr()?, local: tcp.local_addr()? }))
            }
            Self::Unix(_) => Ok(None),
            Self::Memory(memory) => Ok(Some(memory.ends())),
        }
    }

    /// Reads received bytes; no bytes at the end of the stream.
    #[inline]
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(tcp) => poll_read_tcp(tcp, cx, buffer),
            Self::Unix(unix) => Pin::new(unix).poll_read(cx, buffer),
            Self::Memory(memory) => memory.poll_read(cx, buffer),
        }
    }

    /// Returns `true` if there may be received bytes that have not been read. It is exact for TCP: whether the runtime has
    /// reported an event since the last read that emptied the socket.
    #[inline]
    pub fn may_be_readable(&self, cx: &mut Context<'_>) -> bool {
        self.tcp().is_none_or(|tcp| tcp.poll_read_ready(cx).is_ready())
    }

    /// Writes some of `bytes`.
    ///
    /// # Errors
    /// `WouldBlock` when there is no room.
    #[inline]
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(tcp) => tcp.try_write(bytes),
            Self::Unix(unix) => unix.try_write(bytes),
            Self::Memory(memory) => memory.try_write(bytes),
        }
    }

    /// Writes some of `bytes` by a bare system call.
    ///
    /// # Errors
    /// `WouldBlock` when there is no room.
    #[inline]
    pub fn send(&self, bytes: &[u8], more: More) -> io::Result<usize> {
        let flags = match more {
            More::No => SendFlags::NOSIGNAL,
            More::Follows => SendFlags::NOSIGNAL | SendFlags::MORE,
        };
        match self {
            Self::Memory(memory) => memory.try_write(bytes),
            _ => self.attempt_write(|socket| Ok(rustix::net::send(socket, bytes, flags)?)),
        }
    }

    /// Writes some bytes of `slices`.
    ///
    /// # Errors
    /// `WouldBlock` when there is no room.
    #[inline]
    pub fn send_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Memory(memory) => memory.try_write_vectored(slices),
            _ => self.attempt_write(|socket| Ok(rustix::io::writev(socket, slices)?)),
        }
    }

    /// Sends up to `count` bytes of `file` from `offset` on, and advances `offset`.
    ///
    /// # Errors
    /// `WouldBlock` when there is no room.
    #[inline]
    pub fn send_file(&self, file: impl AsFd, offset: &mut u64, count: usize) -> io::Result<usize> {
        match self {
            Self::Memory(memory) => memory.send_file(file.as_fd(), offset, count),
            _ => self.attempt_write(|socket| {
                Ok(rustix::fs::sendfile(socket, &file, Some(offset), count)?)
            }),
        }
    }

    /// Records that the socket is full after a short write, so that the next attempt waits for an event.
    #[inline]
    pub fn clear_writable(&self) {
        let _ = self.attempt_write(|_| -> io::Result<()> { Err(io::ErrorKind::WouldBlock.into()) });
    }

    /// Runs an operation that fails with `WouldBlock` when the socket has no room, if the runtime has not reported that
    /// already.
    #[inline]
    fn attempt_write<R>(
        &self,
        operation: impl FnOnce(BorrowedFd<'_>) -> io::Result<R>,
    ) -> io::Result<R> {
        match self {
            Self::Tcp(tcp) => tcp.try_io(Interest::WRITABLE, || operation(tcp.as_fd())),
            Self::Unix(unix) => unix.try_io(Interest::WRITABLE, || operation(unix.as_fd())),
            Self::Memory(_) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Waits until the stream has room.
    #[inline]
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(tcp) => tcp.poll_write_ready(cx),
            Self::Unix(unix) => unix.poll_write_ready(cx),
            Self::Memory(memory) => memory.poll_write_ready(cx),
        }
    }

    /// Limits the number of bytes that the kernel accepts beyond those for which the client has room.
    pub fn bound_unsent(&self, bytes: u32) {
        if let Some(tcp) = self.tcp() {
            // Without the option the response takes more wake-ups.
            let _ = SockRef::from(tcp).set_tcp_notsent_lowat(bytes);
        }
    }

    /// Returns the bytes in the kernel that the client has not acknowledged; [`None`] when that is unknown.
    pub fn unacknowledged(&self) -> Option<u32> {
        match self {
            Self::Tcp(tcp) => crate::sock_diag::unacknowledged(tcp.as_fd()).ok(),
            Self::Unix(_) => None,
            Self::Memory(memory) => Some(memory.unacknowledged()),
        }
    }

    /// Sets `TCP_CORK`: the kernel sends full segments only. Returns whether the option was set.
    #[inline]
    pub fn cork(&self, corked: bool) -> bool {
        self.tcp().is_some_and(|tcp| set_tcp_cork(tcp, corked).is_ok())
    }

    /// Makes the kernel acknowledge at once. A client that sends a message in parts may hold back the next part until the
    /// previous one is acknowledged, which the kernel would delay by 40 ms.
    #[inline]
    pub fn acknowledge(&self) {
        if let Some(tcp) = self.tcp() {
            let _ = set_tcp_quickack(tcp, true);
        }
    }

    /// Has the kernel probe from time to time whether the client is still there, for one that has closed its sending side. That
    /// of a client that has closed the connection resets it then, as soon as it has forgotten it.
    pub fn probe(&self) {
        let Some(tcp) = self.tcp() else { return };
        let _ = set_socket_keepalive(tcp, true)
            .and_then(|()| set_tcp_keepidle(tcp, PROBE_INTERVAL))
            .and_then(|()| set_tcp_keepintvl(tcp, PROBE_INTERVAL));
    }

    /// Returns `true` if the connection has ended in both directions: the client has reset it, or closed its Unix socket.
    pub fn is_closed(&self) -> bool {
        let Some(socket) = self.socket() else {
            return matches!(self, Self::Memory(memory) if memory.is_closed());
        };
        let mut fds = [PollFd::from_borrowed_fd(socket, PollFlags::empty())];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&at_once)).is_ok()
            && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    /// Closes the sending side.
    ///
    /// # Errors
    /// When the client has reset the connection.
    pub fn shut_down(&self) -> io::Result<()> {
        match self {
            Self::Tcp(tcp) => SockRef::from(tcp).shutdown(Shutdown::Write),
            Self::Unix(unix) => SockRef::from(unix).shutdown(Shutdown::Write),
            Self::Memory(memory) => memory.shut_down(),
        }
    }

    /// Makes closing the connection discard bytes in flight and reset it, so that the client sees that the response is
    /// incomplete.
    pub fn break_off(&self) {
        let discard = Some(Duration::ZERO);
        let _ = match self {
            Self::Tcp(tcp) => SockRef::from(tcp).set_linger(discard),
            Self::Unix(unix) => SockRef::from(unix).set_linger(discard),
            Self::Memory(memory) => memory.break_off(),
        };
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Self::poll_read(self.get_mut(), cx, buffer)
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Tcp(_) => "Tcp",
            Self::Unix(_) => "Unix",
            Self::Memory(_) => "Memory",
        };
        f.debug_tuple(name).field(&self.descriptor()).finish()
    }
}

/// [`AsyncRead`] for a TCP socket by a bare system call: the function of the C library also checks for thread cancellation.
#[inline]
fn poll_read_tcp(
    tcp: &TcpStream,
    cx: &mut Context<'_>,
    buffer: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    loop {
        ready!(tcp.poll_read_ready(cx))?;
        let room = buffer.initialize_unfilled();
        let mut received = None;
        let result = tcp.try_io(Interest::READABLE, || {
            let (count, _) = recv(tcp, &mut *room, RecvFlags::empty())?;
            received = Some(count);
            // A short read has emptied the socket: the next read waits for an event.
            match count > 0 && count < room.len() {
                true => Err(io::ErrorKind::WouldBlock.into()),
                false => Ok(()),
            }
        });
        match (received, result) {
            (Some(count), _) => {
                buffer.advance(count);
                return Poll::Ready(Ok(()));
            }
            (None, Err(error)) if error.kind() != io::ErrorKind::WouldBlock => {
                return Poll::Ready(Err(error));
            }
            (None, _) => {}
        }
    }
}
