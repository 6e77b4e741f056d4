//! Listening sockets: opening them, their options, and accepting connections on a worker.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::TcpStream;

use crate::address::Peer;
use crate::stream::Stream;

/// Opens a listening socket. Workers each have one for the same address; the kernel distributes connections among them.
///
/// # Errors
/// When the kernel rejects the address: it is in use, not of this machine, or not permitted.
pub fn bind(address: SocketAddr, backlog: i32) -> io::Result<TcpListener> {
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

/// Unsent bytes that the kernel accepts for a connection (`TCP_NOTSENT_LOWAT`). By default it accepts a megabyte and more,
/// even when the client reads 4 KB/s: thousands of slow readers then use all socket memory. The value is below one pipe
/// buffer (64 KB), so that `sendfile` stops after its first.
const MAX_UNSENT: u32 = 48 * 1024;
/// The limit for a large response while at most [`FEW`] connections are open: the kernel sends more as soon as the client
/// has room, without a wake-up of the worker.
const FEW_UNSENT: u32 = 1024 * 1024;
const FEW: usize = 256;

/// Returns the number of unsent bytes of a large response that the kernel accepts while `open` connections are open.
#[inline]
pub fn most_unsent(open: usize) -> u32 {
    if open <= FEW { FEW_UNSENT } else { MAX_UNSENT }
}

/// Sets the options that accepted sockets inherit: one call for the life of the listener.
///
/// # Errors
/// When the kernel rejects an option.
pub fn tune(listener: SockRef<'_>) -> io::Result<()> {
    listener.set_tcp_nodelay(true)?;
    listener.set_tcp_notsent_lowat(MAX_UNSENT)
}

/// Checks that no other process listens on `address`. With `SO_REUSEPORT` alone, another server of the same user could
/// share it unnoticed.
///
/// # Errors
/// As [`bind`].
pub fn probe(address: SocketAddr) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())
}

/// Opens a Unix socket with the permissions `mode`. The file of a server that has ended is replaced.
///
/// # Errors
/// `AddrInUse` when a server listens there, or the file is not a socket (with a message); otherwise the error of the system
/// call.
pub fn bind_unix(path: &Path, mode: u32, backlog: i32) -> io::Result<UnixListener> {
    use std::os::unix::fs::FileTypeExt;
    let in_use = |what| Err(io::Error::new(io::ErrorKind::AddrInUse, what));
    if let Ok(metadata) = path.symlink_metadata() {
        let kind = metadata.file_type();
        match UnixStream::connect(path) {
            Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
            Err(_) if kind.is_symlink() => {
                return in_use(
                    "a symlink is there, and no program listens at its target; remove it",
                );
            }
            Err(_) if !kind.is_socket() => {
                return in_use(
                    "a file that is not a socket is there; remove it, or name another path",
                );
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path)?;
            }
            // Other errors occur again below.
            Err(_) => {}
        }
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&socket2::SockAddr::unix(path)?)?;
    // No client can connect before the socket listens: the first permissions are never used.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    socket.listen(backlog)?;
    Ok(socket.into())
}

/// A listening socket.
#[derive(Debug)]
pub enum ListenSocket {
    /// A TCP socket.
    Tcp(TcpListener),
    /// A Unix socket.
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
    /// Duplicates the descriptor.
    ///
    /// # Errors
    /// When there is no descriptor left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(socket) => Self::Tcp(socket.try_clone()?),
            Self::Unix(socket) => Self::Unix(socket.try_clone()?),
        })
    }
}

/// A listening socket that is registered with the worker's runtime.
#[derive(Debug)]
pub enum Listener {
    /// A TCP socket.
    Tcp(tokio::net::TcpListener),
    /// A Unix socket.
    Unix(tokio::net::UnixListener),
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
    /// Registers a socket.
    ///
    /// # Errors
    /// When the runtime cannot register it.
    pub fn new(socket: ListenSocket) -> io::Result<Self> {
        Ok(match socket {
            ListenSocket::Tcp(socket) => Self::Tcp(tokio::net::TcpListener::from_std(socket)?),
            ListenSocket::Unix(socket) => Self::Unix(tokio::net::UnixListener::from_std(socket)?),
        })
    }

    /// Accepts a connection.
    ///
    /// # Errors
    /// Those of accept(2): of this connection, or a lack of descriptors or memory.
    #[inline]
    pub async fn accept(&self) -> io::Result<(Stream, Peer)> {
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

    /// Stops listening and returns the connections in the backlog, which closing the socket would reset.
    ///
    /// # Errors
    /// When an accepted connection cannot be registered.
    pub fn into_waiting(self) -> io::Result<Vec<(Stream, Peer)>> {
        let mut waiting = Vec::new();
        match self {
            Self::Tcp(listener) => {
                let listener = listener.into_std()?;
                // An error ends the worker: the backlog is empty, or there is no descriptor for the next connection.
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
