//! Endpoints without sockets, for tests: datagrams are in lists, and the test moves the time.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use bytes::BytesMut;
use quinn_proto::ServerConfig;

use crate::connection_id::Place;
use crate::endpoint::Endpoint;
use crate::group::Group;
use crate::inbox::Datagram;
use crate::keys::Keys;
use crate::socket::{MemorySocket, Socket};

impl Endpoint {
    /// Creates an endpoint with the address `local` and no socket.
    ///
    /// # Errors
    /// When the system has no descriptor for a timer.
    pub fn in_memory(
        local: SocketAddr,
        place: Place,
        keys: &Keys,
        server: Option<Arc<ServerConfig>>,
    ) -> io::Result<Rc<Self>> {
        let socket = Socket::Memory(MemorySocket::new(local));
        let group = Arc::new(Group::default());
        Self::with(socket, (false, Vec::new()), place, keys, server, &group)
    }

    /// Delivers a datagram of that address.
    pub fn deliver(&self, remote: SocketAddr, bytes: &[u8]) {
        let bytes = BytesMut::from(bytes);
        self.inbox.push(Datagram { remote, local: None, ecn: None, bytes });
    }

    /// Takes the datagrams that were sent to an address.
    pub fn take_sent(&self, to: SocketAddr) -> Vec<Vec<u8>> {
        match &self.socket {
            Socket::Memory(socket) => socket.take(to),
            Socket::Udp { .. } => Vec::new(),
        }
    }

    /// Handles the deadlines that have passed by the time of the test.
    pub fn tick(&self) {
        self.changed.notify_one();
    }
}
