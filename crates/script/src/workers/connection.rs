//! Connections to workers that are kept open between requests.

use std::io;
use std::thread::ThreadId;

use super::super::cgiplus::streams::Streams;
use super::super::socket::connection::WorkerSocket;

/// An open connection to an idle worker. It stays registered with the worker thread that used it last, which then uses it again without a
/// system call.
#[derive(Debug)]
pub(in super::super) struct PooledConnection {
    /// The thread of that worker.
    pub(super) owner: ThreadId,
    connection: Connection,
}

#[derive(Debug)]
enum Connection {
    Socket(WorkerSocket),
    Streams(Streams),
}

impl PooledConnection {
    /// Returns a socket that is registered with this worker thread.
    pub(in super::super) fn socket(socket: WorkerSocket) -> Self {
        Self { owner: std::thread::current().id(), connection: Connection::Socket(socket) }
    }

    /// Streams that are registered with this worker thread.
    pub(in super::super) fn streams(streams: Streams) -> Self {
        Self { owner: std::thread::current().id(), connection: Connection::Streams(streams) }
    }

    /// Returns the socket, registered with this worker thread.
    ///
    /// # Errors
    /// When it cannot be registered, or the connection is not a socket.
    pub(in super::super) fn into_socket(self) -> io::Result<WorkerSocket> {
        let is_registered = self.is_registered();
        match self.connection {
            Connection::Socket(socket) if is_registered => Ok(socket),
            Connection::Socket(socket) => socket.reregister(),
            Connection::Streams(_) => Err(io::Error::other("the worker has streams, not a socket")),
        }
    }

    /// Returns the streams, registered with this worker thread.
    ///
    /// # Errors
    /// When they cannot be registered, or the connection is a socket.
    pub(in super::super) fn into_streams(self) -> io::Result<Streams> {
        let is_registered = self.is_registered();
        match self.connection {
            Connection::Streams(streams) if is_registered => Ok(streams),
            Connection::Streams(streams) => streams.reregister(),
            Connection::Socket(_) => Err(io::Error::other("the worker has a socket, not streams")),
        }
    }

    fn is_registered(&self) -> bool {
        self.owner == std::thread::current().id()
    }
}
