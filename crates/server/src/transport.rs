//! What carries a connection's bytes: TCP, TLS over it, or a Unix socket. Drivers see plain bytes.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::net::sockopt::{set_tcp_cork, set_tcp_quickack};
use rustix::net::{RecvFlags, recv};
use socket2::SockRef;
use tokio::io::{AsyncRead, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::config::Config;
use crate::tls::{Certificates, Policy, Session, Standing, TlsInfo};

/// A connection's bytes.
pub(crate) enum Transport {
    Tcp(TcpStream),
    Tls(Box<Session>),
    Unix(UnixStream),
}

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Peer {
    /// A client that has an address.
    Ip(IpAddr),
    /// A process of this machine, by a Unix socket: it has no address.
    Unix,
}

impl Peer {
    /// A client at that address.
    pub(crate) fn of(address: SocketAddr) -> Self {
        Self::Ip(address.ip().to_canonical())
    }

    /// What stands for one client among addresses: of IPv6 the network of /64, of which each client has
    /// all addresses to itself.
    pub(crate) fn network(self) -> Self {
        match self {
            Self::Ip(IpAddr::V6(address)) => {
                let network = address.to_bits() >> 64 << 64;
                Self::Ip(IpAddr::V6(Ipv6Addr::from_bits(network)))
            }
            other => other,
        }
    }

    /// Its address, if it has one.
    pub(crate) fn ip(self) -> Option<IpAddr> {
        match self {
            Self::Ip(address) => Some(address),
            Self::Unix => None,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Unix => f.write_str(UNIX),
        }
    }
}

/// What stands for the address of a client that has none, as in other servers.
pub(crate) const UNIX: &str = "unix:";

/// The two ends of a connection by TCP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub(crate) remote: SocketAddr,
    pub(crate) local: SocketAddr,
}

/// What is encrypted at a time: all that a driver collects for one write.
const STRETCH: usize = 192 * 1024;

impl Transport {
    fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Tcp(tcp) => Some(tcp),
            Self::Tls(session) => Some(&session.tcp),
            Self::Unix(_) => None,
        }
    }

    fn socket(&self) -> SockRef<'_> {
        match self {
            Self::Tcp(tcp) => tcp.into(),
            Self::Tls(session) => (&session.tcp).into(),
            Self::Unix(unix) => unix.into(),
        }
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Has the kernel take so many bytes beyond what the client has room for.
    pub(crate) fn bound_unsent(&self, bytes: u32) {
        if let Some(tcp) = self.tcp() {
            // Without it the answer leaves all the same, in more turns.
            let _ = SockRef::from(tcp).set_tcp_notsent_lowat(bytes);
        }
    }

    /// Bytes that the kernel has for the client and the client has not acknowledged; `None` when it does not tell.
    pub(crate) fn unacknowledged(&self) -> Option<u32> {
        dunlin_sock_diag::unacknowledged(self.tcp()?.as_fd()).ok()
    }

    /// Has the kernel send full segments alone until this is taken back: whether it does.
    pub(crate) fn cork(&self, corked: bool) -> bool {
        let Self::Tcp(tcp) = self else { return false };
        set_tcp_cork(tcp, corked).is_ok()
    }

    /// Whether what was read may be sent again by others: the handshake of TLS has not ended.
    #[inline]
    pub(crate) fn is_early(&self) -> bool {
        match self {
            Self::Tcp(_) | Self::Unix(_) => false,
            Self::Tls(session) => session.is_early(),
        }
    }

    /// The policy that the handshake of TLS met.
    #[inline]
    pub(crate) fn policy(&self) -> Policy {
        match self {
            Self::Tcp(_) | Self::Unix(_) => Policy::UNENCRYPTED,
            Self::Tls(session) => session.policy(),
        }
    }

    /// Compares the handshake of TLS with the present policy of the site that it named.
    pub(crate) fn renew_policy(
        &mut self,
        config: &Config,
        certificates: &Certificates,
    ) -> Standing {
        match self {
            Self::Tcp(_) | Self::Unix(_) => Standing::Unchanged,
            Self::Tls(session) => session.renew_policy(config, certificates),
        }
    }

    /// What is known of the encryption; `None` when there is none.
    pub(crate) fn tls(&self) -> Option<TlsInfo> {
        match self {
            Self::Tcp(_) | Self::Unix(_) => None,
            Self::Tls(session) => Some(session.info()),
        }
    }

    /// The addresses of both ends; `None` by a Unix socket.
    ///
    /// # Errors
    /// When the client is gone.
    pub(crate) fn ends(&self) -> io::Result<Option<Ends>> {
        let Some(tcp) = self.tcp() else { return Ok(None) };
        Ok(Some(Ends { remote: tcp.peer_addr()?, local: tcp.local_addr()? }))
    }

    /// Reads what has come; nothing at the other side's end.
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
        }
    }

    /// Whether the worker may have been told of bytes that have not been read.
    pub(crate) fn is_told_to_read(&self, cx: &mut Context<'_>) -> bool {
        match self {
            Self::Tcp(tcp) => tcp.poll_read_ready(cx).is_ready(),
            Self::Tls(_) | Self::Unix(_) => true,
        }
    }

    /// Sends some of `bytes` now.
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
                // What is not taken now goes before whatever comes next.
                session.write(&[io::IoSlice::new(bytes)])
            }
        }
    }

    /// Waits for room in the socket.
    pub(crate) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(tcp) => tcp.poll_write_ready(cx),
            Self::Tls(session) => session.tcp.poll_write_ready(cx),
            Self::Unix(unix) => unix.poll_write_ready(cx),
        }
    }

    /// Waits until the socket has all that was written.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(_) | Self::Unix(_) => Poll::Ready(Ok(())),
            Self::Tls(session) => session.poll_flush(cx),
        }
    }

    /// Sends `bytes` from `at` on, until the socket has all of them.
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

    /// Whether the socket has all that was written.
    pub(crate) fn is_flushed(&self) -> bool {
        match self {
            Self::Tcp(_) | Self::Unix(_) => true,
            Self::Tls(session) => session.is_flushed(),
        }
    }

    /// Bytes that were written and are not with the socket.
    pub(crate) fn unsent(&self) -> usize {
        match self {
            Self::Tcp(_) | Self::Unix(_) => 0,
            Self::Tls(session) => session.unsent(),
        }
    }

    /// What tells of progress that callers do not see: bytes of ciphertext that are gone.
    pub(crate) fn written(&self) -> u64 {
        match self {
            Self::Tcp(_) | Self::Unix(_) => 0,
            Self::Tls(session) => session.written(),
        }
    }

    /// Has the kernel acknowledge at once: a client that sends a message in parts may hold back the
    /// next part until this one is acknowledged, which the kernel would put off for 40 ms.
    pub(crate) fn acknowledge(&self) {
        if let Some(tcp) = self.tcp() {
            let _ = set_tcp_quickack(tcp, true);
        }
    }

    /// Says that nothing more comes.
    pub(crate) fn shut_down(&mut self) -> io::Result<()> {
        if let Self::Tls(session) = self {
            session.close();
        }
        self.socket().shutdown(std::net::Shutdown::Write)
    }

    /// Has the end of the connection discard what is in flight, so that a cut answer is seen to be cut.
    pub(crate) fn break_off(&self) {
        let _ = self.socket().set_linger(Some(std::time::Duration::ZERO));
    }

    /// Ends the connection in order, after its last answer.
    pub(crate) fn end(&mut self) {
        if let Self::Tls(session) = self {
            session.close();
        }
    }
}

/// What [`AsyncRead`] does for a socket, by a bare system call: the C library's has to see to it, each time,
/// that the thread may be cancelled.
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
            // Less than there is room for was all that there is: the next read can wait to be told.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_an_address_or_a_network_of_ipv6() {
        let same = |a: &str, b: &str| {
            let peer = |text: &str| Peer::of(SocketAddr::new(text.parse().unwrap(), 0)).network();
            peer(a) == peer(b)
        };
        assert!(same("2001:db8::1", "2001:db8::ffff:0:0:1"));
        assert!(!same("2001:db8::1", "2001:db8:0:1::1"));
        assert!(!same("192.0.2.1", "192.0.2.2"));
        assert!(same("192.0.2.1", "::ffff:192.0.2.1"));
    }
}
