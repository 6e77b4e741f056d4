//! The endpoints of all workers for one address, and the processes before this one that have connections at it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use dunlin_net::clock;
use siphasher::sip::SipHasher13;
use std::hash::{Hash, Hasher};
use std::os::fd::OwnedFd;
use tokio::sync::Notify;

use crate::inbox::{Datagram, Inbox};
use crate::relay::Predecessor;
use crate::socket::Received;

/// The endpoints of all workers for one address.
#[derive(Debug, Default)]
pub struct Group {
    inboxes: RwLock<Vec<(u8, Arc<Inbox>)>>,
    /// Another process reads the sockets.
    is_paused: AtomicBool,
    /// A worker has stopped reading.
    stopped: Notify,
    /// The processes before this one.
    predecessors: RwLock<Vec<Predecessor>>,
    has_predecessors: AtomicBool,
    /// The number of workers among whom those with sockets distribute new clients; 0 if each has a socket of its own.
    spread: u8,
}

/// The time for which [`Group::pause`] waits for workers.
const PAUSE: Duration = Duration::from_secs(1);

impl Group {
    /// Creates the group of a process that takes over from others, of which each is named by its generation. It is paused
    /// if there are any, until [`Group::resume`].
    pub fn following(predecessors: Vec<Predecessor>) -> Self {
        Self {
            is_paused: AtomicBool::new(!predecessors.is_empty()),
            has_predecessors: AtomicBool::new(!predecessors.is_empty()),
            predecessors: RwLock::new(predecessors),
            ..Self::default()
        }
    }

    /// Has those with sockets distribute new clients among `workers`, because there are fewer sockets.
    #[must_use]
    pub fn spread(mut self, workers: usize) -> Self {
        self.spread = workers.try_into().unwrap_or(u8::MAX);
        self
    }

    /// Adds the endpoint of a worker.
    pub(crate) fn join(&self, worker: u8) -> Arc<Inbox> {
        let inbox = Arc::new(Inbox::default());
        let mut inboxes = self.inboxes.write().unwrap_or_else(PoisonError::into_inner);
        inboxes.push((worker, Arc::clone(&inbox)));
        inbox
    }

    pub(crate) fn leave(&self, inbox: &Arc<Inbox>) {
        let mut inboxes = self.inboxes.write().unwrap_or_else(PoisonError::into_inner);
        inboxes.retain(|(_, other)| !Arc::ptr_eq(other, inbox));
        drop(inboxes);
        self.stopped.notify_one();
    }

    /// Passes a datagram to all endpoints of a worker. Returns `false` if the worker has none.
    pub(crate) fn pass(&self, worker: u8, datagram: &Datagram) -> bool {
        let inboxes = self.inboxes.read().unwrap_or_else(PoisonError::into_inner);
        let mut found = false;
        for (_, inbox) in inboxes.iter().filter(|(number, _)| *number == worker) {
            inbox.push(datagram.clone());
            found = true;
        }
        found
    }

    /// Returns the worker of a new client if clients are distributed here.
    pub(crate) fn worker_of(&self, remote: SocketAddr) -> Option<u8> {
        if self.spread == 0 {
            return None;
        }
        let mut hasher = SipHasher13::new();
        remote.hash(&mut hasher);
        Some((hasher.finish() % u64::from(self.spread)) as u8)
    }

    /// Returns `true` if workers read the sockets.
    pub(crate) fn reads(&self) -> bool {
        !self.is_paused.load(Ordering::Acquire)
    }

    /// Notes that a worker has begun or stopped reading.
    pub(crate) fn set_reading(&self, inbox: &Inbox, is_reading: bool) {
        if inbox.set_reading(is_reading) && !is_reading {
            self.stopped.notify_one();
        }
    }

    /// Has all workers stop reading the sockets, and waits until they have.
    pub async fn pause(&self) {
        self.is_paused.store(true, Ordering::Release);
        self.wake();
        let stopped = async {
            while self.is_any_reading() {
                self.stopped.notified().await;
            }
        };
        if clock::timeout(PAUSE, stopped).await.is_none() {
            tracing::warn!("QUIC: a busy worker still reads datagrams of the next process");
        }
    }

    /// Has all workers read the sockets.
    pub fn resume(&self) {
        self.is_paused.store(false, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        let inboxes = self.inboxes.read().unwrap_or_else(PoisonError::into_inner);
        inboxes.iter().for_each(|(_, inbox)| inbox.wake());
    }

    fn is_any_reading(&self) -> bool {
        let inboxes = self.inboxes.read().unwrap_or_else(PoisonError::into_inner);
        inboxes.iter().any(|(_, inbox)| inbox.is_reading())
    }

    /// Returns `true` if there are processes before this one that have connections.
    #[inline]
    pub(crate) fn has_predecessors(&self) -> bool {
        self.has_predecessors.load(Ordering::Relaxed)
    }

    /// Forwards datagrams to the process of a generation. Returns `false` if there is none.
    pub(crate) fn forward(&self, generation: u8, received: &Received<'_>) -> bool {
        if !self.has_predecessors() {
            return false;
        }
        let mut predecessors = self.predecessors.write().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = predecessors.iter().position(|one| one.generation() == generation) else {
            return false;
        };
        let has_taken = predecessors[at].forward(received);
        if !has_taken {
            // Its process has ended.
            predecessors.swap_remove(at);
            self.has_predecessors.store(!predecessors.is_empty(), Ordering::Relaxed);
        }
        has_taken
    }

    /// Returns the generations of the processes before this one, and duplicates of the ways to them.
    pub fn predecessors(&self) -> Vec<(u8, OwnedFd)> {
        let predecessors = self.predecessors.read().unwrap_or_else(PoisonError::into_inner);
        predecessors.iter().filter_map(|one| Some((one.generation(), one.duplicate()?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;

    #[test]
    fn datagrams_are_passed_to_the_worker_that_has_joined() {
        let group = Group::default();
        let inbox = group.join(1);
        let datagram = Datagram {
            remote: ([127, 0, 0, 1], 1).into(),
            local: None,
            ecn: None,
            bytes: BytesMut::from(&b"x"[..]),
        };
        assert!(group.pass(1, &datagram));
        assert!(!group.pass(2, &datagram));
        assert_eq!(inbox.take().len(), 1);
        group.leave(&inbox);
        assert!(!group.pass(1, &datagram));
    }

    #[test]
    fn clients_are_distributed_where_there_are_fewer_sockets() {
        let group = Group::default().spread(3);
        let workers = (1..1000).map(|port| group.worker_of(([127, 0, 0, 1], port).into()));
        let mut counts = [0; 3];
        workers.flatten().for_each(|worker| counts[usize::from(worker)] += 1);
        assert!(counts.iter().all(|count| *count > 250), "{counts:?}");
        assert_eq!(Group::default().worker_of(([127, 0, 0, 1], 1).into()), None);
    }
}
