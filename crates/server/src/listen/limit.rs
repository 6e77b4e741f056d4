//! The limit of open connections, over all workers.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::cache::SharedCache;
use crate::clock;
use crate::connection_limits::{AddressPlace, Eviction, PerAddress};
use crate::transport::Peer;

/// The number of open connections and its limits.
#[derive(Debug)]
pub(crate) struct ConnectionLimiter {
    open: AtomicUsize,
    most: AtomicUsize,
    pub(crate) eviction: Eviction,
    pub(crate) per_address: Arc<PerAddress>,
    freed: Notify,
    /// Descriptors from this number on are reserved for requests of open connections.
    ceiling: RawFd,
    /// Accepting pauses because descriptors run short, and that is logged.
    pub(super) has_reported_lack: AtomicBool,
    /// Notified when the workers are to close the descriptors of cached files.
    release: Notify,
}

/// The permit of one open connection.
#[derive(Debug)]
pub(crate) struct Permit {
    limiter: Arc<ConnectionLimiter>,
    /// The permit among the connections of its address.
    address: Option<Box<AddressPlace>>,
}

/// Limits of connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionLimits {
    /// Open connections, over all workers.
    pub(crate) most: usize,
    /// From this number on, idle connections are closed to make room.
    pub(crate) soft: usize,
    /// Open connections of each address.
    pub(crate) per_address: Option<usize>,
}

/// While the limit is reached, another connection is closed this often to make room.
pub(super) const RETRY: Duration = Duration::from_millis(100);
impl ConnectionLimiter {
    /// A limit for that many workers, in a process that may have `descriptors` open.
    pub(crate) fn new(limits: ConnectionLimits, workers: usize, descriptors: usize) -> Self {
        let reserve = (descriptors / 8).min(64);
        Self {
            eviction: Eviction::new(limits.soft, workers),
            per_address: Arc::new(PerAddress::new(limits.per_address)),
            ceiling: RawFd::try_from(descriptors - reserve).unwrap_or(RawFd::MAX),
            open: AtomicUsize::new(0),
            most: AtomicUsize::new(limits.most),
            freed: Notify::new(),
            has_reported_lack: AtomicBool::new(false),
            release: Notify::new(),
        }
    }

    /// Closes the descriptors of cached files on all workers, because another part of the server needs them.
    pub(crate) fn release_descriptors(&self, cache: &SharedCache) {
        cache.release_descriptors();
        self.release.notify_waiters();
    }

    /// Waits until this worker is to close the descriptors of its cached files.
    pub(crate) async fn release_requested(&self) {
        self.release.notified().await;
    }

    /// Replaces the limits.
    pub(crate) fn set(&self, limits: ConnectionLimits) {
        self.most.store(limits.most, Ordering::Release);
        self.eviction.set_soft(limits.soft);
        self.per_address.set_most(limits.per_address);
        self.freed.notify_waiters();
    }

    /// The largest number of open connections.
    pub(crate) fn most(&self) -> usize {
        self.most.load(Ordering::Acquire)
    }

    /// Whether a new descriptor is one of those that are reserved for open connections.
    pub(super) fn lacks_descriptors(&self, descriptor: RawFd) -> bool {
        descriptor >= self.ceiling
    }

    /// Whether no further connection can be accepted before one is closed.
    pub(crate) fn is_full(&self) -> bool {
        self.open() >= self.most() || self.has_reported_lack.load(Ordering::Relaxed)
    }

    /// The largest number of one worker's connections of one address that have no complete request.
    pub(crate) fn unfinished_per_address(&self) -> usize {
        (self.most() / 2 / self.eviction.workers()).max(1)
    }

    /// A permit beyond the limit, for a connection that has to be served.
    pub(super) fn extra_permit(self: &Arc<Self>) -> Permit {
        self.open.fetch_add(1, Ordering::AcqRel);
        Permit { limiter: Arc::clone(self), address: None }
    }

    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// A permit, as soon as the limit allows one.
    pub(super) async fn permit(self: &Arc<Self>) -> Permit {
        loop {
            let freed = self.freed.notified();
            if self.open.fetch_add(1, Ordering::AcqRel) < self.most() {
                return Permit { limiter: Arc::clone(self), address: None };
            }
            self.open.fetch_sub(1, Ordering::AcqRel);
            // A permit can have been returned between the two lines above.
            if self.open.load(Ordering::Acquire) >= self.most() {
                self.eviction.evict_one();
                // Either a permit is free, or another connection may have become idle.
                let _ = clock::timeout(RETRY, freed).await;
            }
        }
    }
}

impl Permit {
    /// Counts the connection as one of `peer`; false when the limit of that address is reached.
    pub(super) fn belongs_to(&mut self, peer: Peer) -> bool {
        let table = &self.limiter.per_address;
        if !table.is_limited() {
            return true;
        }
        self.address = table.enter(peer).map(Box::new);
        self.address.is_some()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.limiter.open.fetch_sub(1, Ordering::AcqRel) >= self.limiter.most() {
            self.limiter.freed.notify_waiters();
        }
    }
}
