//! The byte stream of a connection: TCP, TLS over TCP, or a Unix socket. Protocol adapters read and write plain bytes.
//! Tests have a stream in memory (`memory`).

#[cfg(test)]
pub(crate) mod memory;

use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::sockopt::{set_tcp_cork, set_tcp_quickack};
use rustix::net::{RecvFlags, recv};
use socket2::SockRef;
use tokio::io::{AsyncRead, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

pub(crate) use dunlin_net::address::{Ends, Peer, UNIX};

use crate::config::Config;
use crate::tls::{Certificates, Policy, Session, Standing, TlsInfo};

/// The byte stream of a connection.
pub(crate) enum Transport {
    Tcp(TcpStream),
    Tls(Box<Session>),
    Unix(UnixStream),
    #[cfg(test)]
    Memory(memory::ServerEnd),
}

/// Bytes that one write encrypts at most: all that an adapter collects for one write.
const STRETCH: usize = 192 * 1024;

impl Transport {
    fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Tcp(tcp) => Some(tcp),
            Self::Tls(session) => Some(&session.tcp),
            _ => None,
        }
    }

    fn session(&self) -> Option<&Session> {
        match self {
            Self::Tls(session) => Some(session),
            _ => None,
        }
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Limits how many bytes the kernel accepts beyond what the client has room for.
    pub(crate) fn bound_unsent(&self, bytes: u32) {
        if let Some(tcp) = self.tcp() {
            // Without the option the response takes more wake-ups.
            let _ = SockRef::from(tcp).set_tcp_notsent_lowat(bytes);
        }
    }

    /// Bytes in the kernel that the client has not acknowledged; `None` when that is unknown.
    pub(crate) fn unacknowledged(&self) -> Option<u32> {
        match self {
            #[cfg(test)]
            Self::Memory(memory) => Some(memory.unacknowledged()),
            _ => dunlin_sock_diag::unacknowledged(self.tcp()?.as_fd()).ok(),
        }
    }

    /// Sets `TCP_CORK`: the kernel sends full segments only. Returns whether the option is set.
    pub(crate) fn cork(&self, corked: bool) -> bool {
        let Self::Tcp(tcp) = self else { return false };
        set_tcp_cork(tcp, corked).is_ok()
    }

    /// Whether the received bytes may be a replay, because the TLS handshake has not ended.
    #[inline]
    pub(crate) fn is_early(&self) -> bool {
        self.session().is_some_and(Session::is_early)
    }

    /// The policy that the TLS handshake met.
    #[inline]
    pub(crate) fn policy(&self) -> Policy {
        self.session().map_or(Policy::UNENCRYPTED, Session::policy)
    }

    /// Compares the TLS handshake with the current policy of the site that the client named.
    pub(crate) fn renew_policy(
        &mut self,
        config: &Config,
        certificates: &Certificates,
    ) -> Standing {
        match self {
            Self::Tls(session) => session.renew_policy(config, certificates),
            _ => Standing::Unchanged,
        }
    }

    /// Properties of the encryption; `None` without TLS.
    pub(crate) fn tls(&self) -> Option<TlsInfo> {
        self.session().map(Session::info)
    }

    /// The addresses of both ends; `None` for a Unix socket.
    ///
    /// # Errors
    /// When the client has closed the connection.
    pub(crate) fn ends(&self) -> io::Result<Option<Ends>> {
        match self {
            #[cfg(test)]
            Self::Memory(memory) => Ok(Some(memory.ends())),
            _ => {
                let Some(tcp) = self.tcp() else { return Ok(None) };
                Ok(Some(Ends { remote: tcp.peer_addr()?, local: tcp.local_addr()? }))
            }
        }
    }

    /// Reads received bytes; no bytes at the end of the stream.
    #[inline]
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(tcp) => poll_read_tcp(tcp, cx, buffer),
            Self::Tls(session) => session.poll_read(cx, buffer),
            Self::Unix(unix) => Pin::new(unix).poll_read(cx, buffer),
            #[cfg(test)]
            Self::Memory(memory) => memory.poll_read(cx, buffer),
        }
    }

    /// Whether the runtime may have reported bytes that have not been read.
    pub(crate) fn is_told_to_read(&self, cx: &mut Context<'_>) -> bool {
        match self {
            Self::Tcp(tcp) => tcp.poll_read_ready(cx).is_ready(),
            _ => true,
        }
    }

    /// Writes some of `bytes` now.
    ///
    /// # Errors
    /// `WouldBlock` when there is no room.
    pub(crate) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(tcp) => tcp.try_write(bytes),
            Self::Unix(unix) => unix.try_write(bytes),
            Self::Tls(session) => {
                if !session.make_room()? {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                let bytes = &bytes[..bytes.len().min(STRETCH)];
                // What the socket does not take now precedes the next write.
                session.write(&[io::IoSlice::new(bytes)])
            }
            #[cfg(test)]
            Self::Memory(memory) => memory.try_write(bytes),
        }
    }

    /// Waits until the socket has room.
    pub(crate) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(tcp) => tcp.poll_write_ready(cx),
            Self::Tls(session) => session.tcp.poll_write_ready(cx),
            Self::Unix(unix) => unix.poll_write_ready(cx),
            #[cfg(test)]
            Self::Memory(memory) => memory.poll_write_ready(cx),
        }
    }

    /// Waits until the socket has all written bytes.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tls(session) => session.poll_flush(cx),
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Writes `bytes` from `at` on, until the socket has all of them.
    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        at: &mut usize,
    ) -> Poll<io::Result<()>> {
        while *at < bytes.len() {
            match self.try_write(&bytes[*at..]) {
                Ok(count) => *at += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.poll_write_ready(cx))?;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        self.poll_flush(cx)
    }

    /// Whether the socket has all written bytes.
    pub(crate) fn is_flushed(&self) -> bool {
        self.session().is_none_or(Session::is_flushed)
    }

    /// Written bytes that the socket has not taken.
    pub(crate) fn unsent(&self) -> usize {
        self.session().map_or(0, Session::unsent)
    }

    /// Bytes of ciphertext that the socket has taken: progress that the count of plain bytes does not show.
    pub(crate) fn written(&self) -> u64 {
        self.session().map_or(0, Session::written)
    }

    /// Makes the kernel acknowledge at once. A client that sends a message in parts may hold back the next part until the
    /// previous one is acknowledged, which the kernel would delay by 40 ms.
    pub(crate) fn acknowledge(&self) {
        if let Some(tcp) = self.tcp() {
            let _ = set_tcp_quickack(tcp, true);
        }
    }

    /// Closes the sending side.
    pub(crate) fn shut_down(&mut self) -> io::Result<()> {
        self.end();
        match self {
            Self::Tcp(tcp) => SockRef::from(&*tcp).shutdown(Shutdown::Write),
            Self::Tls(session) => SockRef::from(&session.tcp).shutdown(Shutdown::Write),
            Self::Unix(unix) => SockRef::from(&*unix).shutdown(Shutdown::Write),
            #[cfg(test)]
            Self::Memory(memory) => memory.shut_down(),
        }
    }

    /// Makes closing the connection discard bytes in flight and reset it, so that the client sees that the response is
    /// incomplete.
    pub(crate) fn break_off(&self) {
        let discard = Some(Duration::ZERO);
        let _ = match self {
            Self::Tcp(tcp) => SockRef::from(tcp).set_linger(discard),
            Self::Tls(session) => SockRef::from(&session.tcp).set_linger(discard),
            Self::Unix(unix) => SockRef::from(unix).set_linger(discard),
            #[cfg(test)]
            Self::Memory(memory) => memory.break_off(),
        };
    }

    /// Ends the connection in order, after the last response: with TLS, sends `close_notify`.
    pub(crate) fn end(&mut self) {
        if let Self::Tls(session) = self {
            session.close();
        }
    }
}

/// [`AsyncRead`] for a TCP socket by a bare system call: the function of the C library also checks for thread cancellation.
#[inline]
pub(crate) fn poll_read_tcp(
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
