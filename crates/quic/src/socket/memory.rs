//! A socket without a network, for tests.

use std::cell::RefCell;
use std::net::SocketAddr;

use quinn_proto::Transmit;

/// What is sent is kept.
#[derive(Debug)]
pub(crate) struct MemorySocket {
    pub(crate) local: SocketAddr,
    sent: RefCell<Vec<(SocketAddr, Vec<u8>)>>,
}

impl MemorySocket {
    pub(crate) fn new(local: SocketAddr) -> Self {
        Self { local, sent: RefCell::default() }
    }

    pub(crate) fn send(&self, transmit: &Transmit, contents: &[u8]) {
        let segment = transmit.segment_size.unwrap_or(contents.len()).max(1);
        let datagrams = contents.chunks(segment).map(|part| (transmit.destination, part.to_vec()));
        self.sent.borrow_mut().extend(datagrams);
    }

    /// Takes the datagrams that were sent to an address.
    pub(crate) fn take(&self, to: SocketAddr) -> Vec<Vec<u8>> {
        let mut sent = self.sent.borrow_mut();
        let taken = sent.extract_if(.., |(destination, _)| *destination == to);
        taken.map(|(_, datagram)| datagram).collect()
    }
}
