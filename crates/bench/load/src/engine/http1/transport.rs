//! The byte stream of a connection, plain or TLS. All operations are non-blocking.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::sys::socket::sockopt::IpBindAddressNoPort;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, connect, ipproto, recv,
    send, socket_with, sockopt,
};

use crate::engine::job::Job;
use crate::engine::tally::Windows;

/// A socket with an optional TLS session.
pub(super) struct Transport {
    socket: OwnedFd,
    session: Option<Box<rustls::ClientConnection>>,
    /// TLS records wait for room in the socket's buffer.
    blocked: bool,
}

/// The smallest receive buffer that can be requested, in bytes. Linux grants twice as many.
pub(crate) const MIN_RECEIVE_BUFFER: usize = 2304;
/// Connections of each worker whose window is sampled. All have the same options.
const SAMPLED_WINDOWS: u32 = 64;

impl Transport {
    /// Begins to open the connection with that number.
    pub(super) fn open(job: &Job, number: u64) -> io::Result<Self> {
        let family = if job.address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
        sockopt::set_tcp_nodelay(&socket, job.plan.request.no_delay)?;
        if let Some(bits) = job.plan.modem_bits_per_second {
            // Set before connecting, so that the window never holds more than a second or two of data. The kernel would
            // buffer a megabyte otherwise.
            sockopt::set_socket_recv_buffer_size(
                &socket,
                (bits as usize / 8).max(MIN_RECEIVE_BUFFER),
            )?;
        }
        let sources = &job.plan.source_addresses;
        if !sources.is_empty() {
            let from = sources[number as usize % sources.len()];
            sockopt::set_socket_reuseaddr(&socket, true)?;
            // Let connect(2) choose the port, which can then be shared with connections to other destinations. Without
            // this option bind(2) looks for a completely unused port, which takes longer.
            let _ = nix::sys::socket::setsockopt(&socket, IpBindAddressNoPort, &true);
            bind(&socket, &SocketAddr::new(from, 0))?;
        }
        match connect(&socket, &job.address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let session = match &job.tls {
            None => None,
            Some(tls) => {
                let made = rustls::ClientConnection::new(Arc::clone(&tls.config), tls.name.clone());
                Some(Box::new(made.map_err(io::Error::other)?))
            }
        };
        Ok(Self { socket, session, blocked: false })
    }

    /// Samples the receive window, for the first connections.
    pub(super) fn sample_window(&self, windows: &mut Windows) {
        if windows.sampled < SAMPLED_WINDOWS {
            windows.sampled += 1;
            windows.largest = windows
                .largest
                .max(dunlin_net::sock_diag::receive_window(self.socket.as_fd()).ok());
        }
    }

    pub(super) fn is_tls(&self) -> bool {
        self.session.is_some()
    }

    /// Returns `true` if the handshake is over; true without TLS.
    pub(super) fn is_ready(&self) -> bool {
        self.session.as_ref().is_none_or(|session| !session.is_handshaking())
    }

    /// Returns `true` if the session was resumed.
    pub(super) fn is_resumed(&self) -> bool {
        let kind = self.session.as_ref().and_then(|session| session.handshake_kind());
        kind == Some(rustls::HandshakeKind::Resumed)
    }

    /// Returns the error of connecting, if any.
    pub(super) fn connect_error(&self) -> Option<io::Error> {
        match sockopt::socket_error(&self.socket) {
            Ok(Ok(())) => None,
            Ok(Err(error)) | Err(error) => Some(error.into()),
        }
    }

    /// Continues the handshake as far as the socket permits.
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

    /// Reads received bytes; 0 at the end of the stream.
    #[inline]
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.session.is_some() {
            return self.pull(buffer);
        }
        let (_, count) = recv(&self.socket, buffer, RecvFlags::empty())?;
        Ok(count)
    }

    /// Discards up to `buffer.len()` received bytes without copying them; only without TLS.
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

    /// Sends buffered TLS records.
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

    /// Decrypts received bytes into `buffer`.
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
