//! The sockets and secrets that go from process to process.

use std::fmt;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use dunlin_net::listener::ListenSocket;

/// Listening sockets for one address.
#[derive(Debug)]
pub struct Inherited {
    /// As the configuration names it.
    pub address: String,
    /// The sockets of the address, one for each worker.
    pub sockets: Vec<ListenSocket>,
    /// They belong to the service manager, which keeps them open when no server runs: the server must not remove the
    /// file of a Unix socket.
    pub is_managed: bool,
}

/// UDP sockets of one address.
#[derive(Debug)]
pub struct InheritedDatagrams {
    /// The address that they are bound to.
    pub address: SocketAddr,
    /// The sockets, in the order in which they were bound.
    pub sockets: Vec<UdpSocket>,
    /// They belong to the service manager.
    pub is_managed: bool,
    /// The processes that still have connections at the address, by their generation, and the ways to them.
    pub processes: Vec<(u8, OwnedFd)>,
}

/// The sockets that this process receives.
#[derive(Debug, Default)]
pub struct Inheritance {
    /// Listening sockets.
    pub listeners: Vec<Inherited>,
    /// UDP sockets.
    pub datagrams: Vec<InheritedDatagrams>,
}

impl Inheritance {
    /// Returns the UDP sockets of an address.
    pub fn take_datagrams(&mut self, address: SocketAddr) -> Option<InheritedDatagrams> {
        let at = self.datagrams.iter().position(|datagrams| datagrams.address == address)?;
        Some(self.datagrams.swap_remove(at))
    }

    /// Returns the UDP sockets of an address, to which others can be added.
    pub(crate) fn datagrams(&mut self, address: SocketAddr) -> &mut InheritedDatagrams {
        let found = self.datagrams.iter().position(|datagrams| datagrams.address == address);
        let at = found.unwrap_or(self.datagrams.len());
        if found.is_none() {
            let (sockets, processes) = (Vec::new(), Vec::new());
            self.datagrams.push(InheritedDatagrams {
                address,
                sockets,
                is_managed: false,
                processes,
            });
        }
        &mut self.datagrams[at]
    }
}

/// What makes datagrams of connections recognizable: it goes from process to process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct QuicSecrets {
    /// The generation of the process.
    pub generation: u8,
    /// The secret of the server.
    pub own: [u8; 32],
    /// The secret of its fleet.
    pub shared: Option<[u8; 32]>,
}

/// Without the secrets.
impl fmt::Debug for QuicSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicSecrets").field("generation", &self.generation).finish_non_exhaustive()
    }
}

impl QuicSecrets {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let shared = self.shared.as_ref().map_or(&[][..], |shared| shared);
        [&[self.generation], &self.own[..], shared].concat()
    }

    pub(crate) fn decode(text: &[u8]) -> Option<Self> {
        let (&generation, rest) = text.split_first()?;
        let (own, rest) = rest.split_first_chunk()?;
        let shared = rest.first_chunk().copied();
        Some(Self { generation, own: *own, shared })
    }
}

/// A listener that the new process gets.
#[derive(Debug)]
pub struct PassedListener {
    /// The address, as the configuration names it.
    pub address: String,
    /// Its sockets.
    pub sockets: Arc<[ListenSocket]>,
    /// They belong to the service manager.
    pub is_managed: bool,
    /// Its UDP sockets.
    pub datagrams: Option<PassedDatagrams>,
}

/// The UDP sockets of a listener; see [`InheritedDatagrams`].
#[derive(Debug)]
pub struct PassedDatagrams {
    /// The address that they are bound to.
    pub address: SocketAddr,
    /// The sockets, in the order in which they were bound.
    pub sockets: Arc<[UdpSocket]>,
    /// They belong to the service manager.
    pub is_managed: bool,
    /// The processes that still have connections at the address.
    pub processes: Vec<(u8, OwnedFd)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_read_as_they_were_written() {
        for shared in [None, Some([8; 32])] {
            let secrets = QuicSecrets { generation: 255, own: [7; 32], shared };
            assert_eq!(QuicSecrets::decode(&secrets.encode()), Some(secrets));
        }
        assert_eq!(QuicSecrets::decode(&[1; 20]), None);
    }
}
