//! A connection to a worker: a Unix or a TCP socket.

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use tokio::net::{TcpStream, UnixStream};

/// A connection to a worker.
#[derive(Debug)]
pub(in super::super) enum WorkerSocket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl WorkerSocket {
    /// Returns the same connection, registered with this worker thread.
    pub(in super::super) fn reregister(self) -> io::Result<Self> {
        Ok(match self {
            Self::Unix(stream) => Self::Unix(UnixStream::from_std(stream.into_std()?)?),
            Self::Tcp(stream) => Self::Tcp(TcpStream::from_std(stream.into_std()?)?),
        })
    }

    /// Returns `true` if an idle connection can carry another request: nothing has arrived on it, and the worker has not
    /// closed it. Bytes that arrived would otherwise be read as the response to the next request. The system is queried,
    /// because the runtime may not have polled the socket since.
    pub(in super::super) fn is_reusable(&self) -> bool {
        let fd = match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        };
        match recv(fd, &mut [0_u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN) => true,
            Ok((count, _)) if count > 0 => {
                tracing::warn!(
                    "a FastCGI worker sent data after the end of its response; its connection is closed"
                );
                false
            }
            _ => false,
        }
    }

    pub(super) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.try_read(buffer),
            Self::Tcp(stream) => stream.try_read(buffer),
        }
    }

    pub(super) async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.readable().await,
            Self::Tcp(stream) => stream.readable().await,
        }
    }

    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.try_write(bytes),
            Self::Tcp(stream) => stream.try_write(bytes),
        }
    }

    /// Waits until the socket takes bytes, and writes as many as it takes.
    pub(super) async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.try_write(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => return result,
            }
            match self {
                Self::Unix(stream) => stream.writable().await?,
                Self::Tcp(stream) => stream.writable().await?,
            }
        }
    }
}
