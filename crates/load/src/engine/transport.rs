//! A connection's bytes, plain or through TLS. Nothing here waits.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::sys::socket::sockopt::IpBindAddressNoPort;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, connect, ipproto, recv,
    send, socket_with, sockopt,
};

use super::job::Tls;
use super::tally::Windows;

/// A connection's socket, and its TLS session when it has one.
pub(super) struct Transport {
    socket: OwnedFd,
    session: Option<Box<rustls::ClientConnection>>,
    /// TLS records that the socket had no room for.
    blocked: bool,
}

/// What is asked of a new socket.
pub(super) struct Asked {
    pub(super) to: SocketAddr,
    pub(super) from: Option<IpAddr>,
    pub(super) no_delay: bool,
    /// Bytes per second at which it will be read: its buffer is made to fit.
    pub(super) pace: Option<u64>,
}

/// Bytes of the smallest receive buffer that can be asked for; Linux grants twice as many.
pub(crate) const LEAST_BUFFER: usize = 2304;
/// Connections of each thread whose window is looked at: all are made in the same way.
const LOOKED_AT: u32 = 64;

impl Transport {
    /// Begins to connect.
    pub(super) fn open(asked: &Asked, tls: Option<&Tls>) -> io::Result<Self> {
        let family = if asked.to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
        sockopt::set_tcp_nodelay(&socket, asked.no_delay)?;
        if let Some(rate) = asked.pace {
            // Set before connecting, so that the window which the server sees never holds more
            // than a second or two: without it the kernel would take a megabyte at once.
            sockopt::set_socket_recv_buffer_size(&socket, (rate as usize).max(LEAST_BUFFER))?;
        }
        if let Some(from) = asked.from {
            sockopt::set_socket_reuseaddr(&socket, true)?;
            // The port is chosen with the connection: one that is taken by a connection to elsewhere will
            // do, and the kernel need not look for one that nobody has. A kernel without it takes longer.
            let _ = nix::sys::socket::setsockopt(&socket, IpBindAddressNoPort, &true);
            bind(&socket, &SocketAddr::new(from, 0))?;
        }
        match connect(&socket, &asked.to) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let session = match tls {
            None => None,
            Some(tls) => {
                let made = rustls::ClientConnection::new(Arc::clone(&tls.config), tls.name.clone());
                Some(Box::new(made.map_err(io::Error::other)?))
            }
        };
        Ok(Self { socket, session, blocked: false })
    }

    /// Has the system tell what the server can send ahead, for the first connections.
    pub(super) fn look_at_window(&self, windows: &mut Windows) {
        if windows.asked < LOOKED_AT {
            windows.asked += 1;
            windows.largest =
                windows.largest.max(dunlin_sock_diag::receive_window(self.socket.as_fd()).ok());
        }
    }

    pub(super) fn is_tls(&self) -> bool {
        self.session.is_some()
    }

    /// Whether the handshake is over; true without TLS.
    pub(super) fn is_ready(&self) -> bool {
        self.session.as_ref().is_none_or(|session| !session.is_handshaking())
    }

    /// Whether the session continues an earlier one.
    pub(super) fn is_resumed(&self) -> bool {
        let kind = self.session.as_ref().and_then(|session| session.handshake_kind());
        kind == Some(rustls::HandshakeKind::Resumed)
    }

    /// The error that connecting ended in, if any.
    pub(super) fn connect_error(&self) -> Option<io::Error> {
        match sockopt::socket_error(&self.socket) {
            Ok(Ok(())) => None,
            Ok(Err(error)) | Err(error) => Some(error.into()),
        }
    }

    /// Goes on with the handshake as far as the socket allows.
    pub(super) fn handshake(&mut self) -> io::Result<()> {
        let mut nothing = [0; 0];
        self.flush()?;
        match self.pull(&mut nothing) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        self.flush()
    }

    /// Reads what has arrived; 0 at the end.
    #[inline]
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.session.is_some() {
            return self.pull(buffer);
        }
        let (_, count) = recv(&self.socket, buffer, RecvFlags::empty())?;
        Ok(count)
    }

    /// Throws away up to `buffer.len()` bytes that have arrived, without copying them; only
    /// without TLS.
    pub(super) fn discard(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (_, count) = recv(&self.socket, buffer, RecvFlags::TRUNC)?;
        Ok(count)
    }

    /// Writes as much as the socket takes.
    #[inline]
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(session) = &mut self.session else {
            return Ok(send(&self.socket, bytes, SendFlags::NOSIGNAL)?);
        };
        if self.blocked {
            self.flush()?;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let taken = session.writer().write(bytes)?;
        self.flush()?;
        Ok(taken)
    }

    /// Sends the TLS records that are waiting.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let Some(session) = &mut self.session else { return Ok(()) };
        self.blocked = false;
        while session.wants_write() {
            match session.write_tls(&mut Socket(self.socket.as_fd())) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.blocked = true;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Decrypts what has arrived into `buffer`.
    fn pull(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(session) = &mut self.session else { return Ok(0) };
        loop {
            if !buffer.is_empty() {
                match session.reader().read(buffer) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    result => return result,
                }
            }
            if session.read_tls(&mut Socket(self.socket.as_fd()))? == 0 {
                return Ok(0);
            }
            session.process_new_packets().map_err(io::Error::other)?;
            if session.wants_write() {
                let _ = session.write_tls(&mut Socket(self.socket.as_fd()));
            }
            if buffer.is_empty() && !session.is_handshaking() {
                return Ok(0);
            }
        }
    }
}

impl AsFd for Transport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

struct Socket<'a>(BorrowedFd<'a>);

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (_, count) = recv(self.0, buffer, RecvFlags::empty())?;
        Ok(count)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
