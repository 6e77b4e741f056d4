//! Datagrams that arrived at the socket of another worker, or in another process.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use bytes::BytesMut;
use quinn_proto::EcnCodepoint;
use tokio::sync::Notify;

/// A datagram with what is known of its way.
#[derive(Debug, Clone)]
pub(crate) struct Datagram {
    pub(crate) remote: SocketAddr,
    pub(crate) local: Option<IpAddr>,
    pub(crate) ecn: Option<EcnCodepoint>,
    pub(crate) bytes: BytesMut,
}

/// Bytes that wait for a worker at most. Further datagrams are lost, as when the kernel's buffer is full.
const CAPACITY: usize = 1 << 20;

/// The datagrams that wait for a worker.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    waiting: Mutex<Waiting>,
    arrival: Notify,
    /// The worker reads its sockets.
    is_reading: AtomicBool,
}

#[derive(Debug, Default)]
struct Waiting {
    datagrams: VecDeque<Datagram>,
    bytes: usize,
}

impl Inbox {
    /// Adds a datagram, unless too many wait.
    pub(crate) fn push(&self, datagram: Datagram) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let length = datagram.bytes.len() + size_of::<Datagram>();
        if waiting.bytes + length > CAPACITY {
            return;
        }
        waiting.bytes += length;
        waiting.datagrams.push_back(datagram);
        drop(waiting);
        self.wake();
    }

    /// Has the worker look at its inbox, and at whether it reads its sockets.
    pub(crate) fn wake(&self) {
        self.arrival.notify_one();
    }

    /// Resolves when there may be datagrams.
    pub(crate) async fn arrival(&self) {
        self.arrival.notified().await;
    }

    /// Returns all datagrams.
    pub(crate) fn take(&self) -> VecDeque<Datagram> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *waiting).datagrams
    }

    /// Sets whether the worker reads its sockets. Returns `true` if that has changed.
    pub(crate) fn set_reading(&self, is_reading: bool) -> bool {
        self.is_reading.swap(is_reading, Ordering::AcqRel) != is_reading
    }

    pub(crate) fn is_reading(&self) -> bool {
        self.is_reading.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inbox_is_bounded() {
        let inbox = Inbox::default();
        let datagram = || Datagram {
            remote: ([127, 0, 0, 1], 1).into(),
            local: None,
            ecn: None,
            bytes: BytesMut::from(&[0; 1000][..]),
        };
        (0..5000).for_each(|_| inbox.push(datagram()));
        let held: usize = inbox.take().iter().map(|datagram| datagram.bytes.len()).sum();
        assert!((900_000..=CAPACITY).contains(&held), "{held}");
        inbox.push(datagram());
        assert_eq!(inbox.take().len(), 1);
    }
}
