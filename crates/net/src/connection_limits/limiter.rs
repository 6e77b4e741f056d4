//! The limit of open connections.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use super::eviction::Eviction;
use super::per_address::{AddressPermit, PerAddress};
use crate::address::Peer;
use crate::clock;

/// The number of open connections and its limits, over all workers.
#[derive(Debug)]
pub struct ConnectionLimiter {
    open: AtomicUsize,
    max: AtomicUsize,
    eviction: Eviction,
    per_address: Arc<PerAddress>,
    freed: Notify,
    /// Descriptors from this number on are reserved for requests of open connections.
    ceiling: RawFd,
    /// Accepting pauses because descriptors run short.
    is_paused: AtomicBool,
    /// Notified when the workers are to close the descriptors of cached files.
    release: Notify,
}

/// The permit of one open connection.
#[derive(Debug)]
pub struct Permit {
    limiter: Arc<ConnectionLimiter>,
    /// The permit among the connections of its address.
    address: Option<Box<AddressPermit>>,
}

/// Limits of connections.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// Open connections, over all workers.
    pub max: usize,
    /// From this number on, idle connections are closed to make room.
    pub soft: usize,
    /// Open connections of each address.
    pub per_address: Option<usize>,
}

/// While a limit is reached, another connection is evicted at this interval.
pub const EVICTION_INTERVAL: Duration = Duration::from_millis(100);

impl ConnectionLimiter {
    /// Creates a limiter for a number of workers, in a process that may have `descriptors` open.
    pub fn new(limits: ConnectionLimits, workers: usize, descriptors: usize) -> Self {
        let reserve = (descriptors / 8).min(64);
        Self {
            eviction: Eviction::new(limits.soft, workers),
            per_address: Arc::new(PerAddress::new(limits.per_address)),
            ceiling: RawFd::try_from(descriptors - reserve).unwrap_or(RawFd::MAX),
            open: AtomicUsize::new(0),
            max: AtomicUsize::new(limits.max),
            freed: Notify::new(),
            is_paused: AtomicBool::new(false),
            release: Notify::new(),
        }
    }

    /// Selects connections to close.
    #[inline]
    pub fn eviction(&self) -> &Eviction {
        &self.eviction
    }

    /// Returns the number of connections of each address.
    #[inline]
    pub fn per_address(&self) -> &PerAddress {
        &self.per_address
    }

    /// Notifies all workers that another part of the server needs the descriptors of their cached files.
    pub fn request_release(&self) {
        self.release.notify_waiters();
    }

    /// Waits until this worker is to close the descriptors of its cached files.
    pub async fn release_requested(&self) {
        self.release.notified().await;
    }

    /// Replaces the limits.
    pub fn set(&self, limits: ConnectionLimits) {
        self.max.store(limits.max, Ordering::Release);
        self.eviction.set_soft(limits.soft);
        self.per_address.set_max(limits.per_address);
        self.freed.notify_waiters();
    }

    /// Returns the maximum number of open connections.
    #[inline]
    pub fn max(&self) -> usize {
        self.max.load(Ordering::Acquire)
    }

    /// Returns `true` if a new descriptor is one of those that are reserved for open connections.
    #[inline]
    pub fn lacks_descriptors(&self, descriptor: RawFd) -> bool {
        descriptor >= self.ceiling
    }

    /// Records whether accepting pauses because descriptors run short. Returns whether it did before.
    pub fn set_paused(&self, is_paused: bool) -> bool {
        self.is_paused.swap(is_paused, Ordering::Relaxed)
    }

    /// Returns `true` if no further connection can be accepted before one is closed.
    pub fn is_full(&self) -> bool {
        self.open() >= self.max() || self.is_paused.load(Ordering::Relaxed)
    }

    /// Returns the maximum number of one worker's connections of one address that have no complete request.
    pub fn unfinished_per_address(&self) -> usize {
        (self.max() / 2 / self.eviction.workers()).max(1)
    }

    /// Returns the number of open connections.
    #[inline]
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Returns a permit beyond the limit, for a connection that has to be served.
    pub fn extra_permit(self: &Arc<Self>) -> Permit {
        self.open.fetch_add(1, Ordering::AcqRel);
        Permit { limiter: Arc::clone(self), address: None }
    }

    /// Returns a permit, as soon as the limit allows one.
    #[inline]
    pub async fn permit(self: &Arc<Self>) -> Permit {
        loop {
            let freed = self.freed.notified();
            if self.open.fetch_add(1, Ordering::AcqRel) < self.max() {
                return Permit { limiter: Arc::clone(self), address: None };
            }
            self.open.fetch_sub(1, Ordering::AcqRel);
            // A permit can have been returned between the two lines above.
            if self.open.load(Ordering::Acquire) >= self.max() {
                self.eviction.evict_one();
                // Either a permit is free, or another connection may have become idle.
                let _ = clock::timeout(EVICTION_INTERVAL, freed).await;
            }
        }
    }
}

impl Permit {
    /// Counts the connection as one of `peer`; false when the limit of that address is reached.
    #[inline]
    pub fn belongs_to(&mut self, peer: Peer) -> bool {
        let table = &self.limiter.per_address;
        if !table.is_limited() {
            return true;
        }
        self.address = table.acquire(peer).map(Box::new);
        self.address.is_some()
    }
}

impl Drop for Permit {
    #[inline]
    fn drop(&mut self) {
        if self.limiter.open.fetch_sub(1, Ordering::AcqRel) >= self.limiter.max() {
            self.limiter.freed.notify_waiters();
        }
    }
}
