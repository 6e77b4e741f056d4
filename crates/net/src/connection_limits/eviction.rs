//! The choice of the worker that closes a connection to make room for a new one.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Selects the worker whose connection has the lowest rank of all workers to close it.
#[derive(Debug)]
pub struct Eviction {
    /// While more connections than this are open, each new one evicts another.
    soft: AtomicUsize,
    workers: Box<[PerWorker]>,
    evicted: AtomicU64,
}

/// The part of the state that workers see of each other.
#[derive(Debug, Default)]
struct PerWorker {
    /// The rank of the connection that this worker evicts first; see [`crate::connections`].
    first_victim: AtomicU64,
    /// Connections that this worker is to evict.
    requested: AtomicUsize,
    has_requests: Notify,
}

impl Eviction {
    /// For a number of workers. From `soft` open connections on, each new one evicts another.
    pub fn new(soft: usize, workers: usize) -> Self {
        let for_worker =
            || PerWorker { first_victim: AtomicU64::new(u64::MAX), ..Default::default() };
        let soft = AtomicUsize::new(soft);
        Self {
            soft,
            workers: (0..workers).map(|_| for_worker()).collect(),
            evicted: AtomicU64::new(0),
        }
    }

    /// Returns the number of workers.
    pub fn workers(&self) -> usize {
        self.workers.len().max(1)
    }

    /// Replaces the limit from which on each new connection evicts another.
    pub fn set_soft(&self, soft: usize) {
        self.soft.store(soft, Ordering::Relaxed);
    }

    /// Evicts a connection if more than the soft limit are open: `open`, with the new one.
    #[inline]
    pub fn make_room(&self, open: usize) {
        if open > self.soft.load(Ordering::Relaxed) {
            self.evict_one();
        }
    }

    /// Requests that the worker whose connection has the lowest rank evicts it.
    pub fn evict_one(&self) {
        let rank = |worker: &&PerWorker| worker.first_victim.load(Ordering::Relaxed);
        if let Some(worker) = self.workers.iter().min_by_key(rank) {
            worker.requested.fetch_add(1, Ordering::Relaxed);
            worker.has_requests.notify_one();
        }
    }

    /// Waits for requests to worker `number`. Returns the number of connections that it is to evict.
    pub async fn requested(&self, number: usize) -> usize {
        let worker = &self.workers[number];
        loop {
            worker.has_requests.notified().await;
            let requested = worker.requested.swap(0, Ordering::Relaxed);
            if requested > 0 {
                return requested;
            }
        }
    }

    /// Returns `true` if another worker has a connection of a lower rank than the first one of worker `number`.
    pub fn is_another_first(&self, number: usize) -> bool {
        let rank = |worker: &PerWorker| worker.first_victim.load(Ordering::Relaxed);
        let own = self.workers.get(number).map_or(0, rank);
        self.workers.iter().any(|worker| rank(worker) < own)
    }

    /// Sets the rank of the connection that worker `number` evicts first; [`u64::MAX`] when there is none.
    pub fn set_first_victim(&self, number: usize, rank: u64) {
        self.workers[number].first_victim.store(rank, Ordering::Relaxed);
    }

    /// Adds to the number of evicted connections.
    pub fn count(&self, evicted: usize) {
        self.evicted.fetch_add(evicted as u64, Ordering::Relaxed);
    }

    /// Returns the number of connections that were evicted since the start.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worker_with_the_lowest_rank_evicts() {
        let eviction = Eviction::new(10, 3);
        eviction.set_first_victim(0, 500);
        eviction.set_first_victim(1, 300);
        let requested = || -> Vec<_> {
            let workers = eviction.workers.iter();
            workers.map(|worker| worker.requested.load(Ordering::Relaxed)).collect()
        };
        eviction.make_room(10);
        assert_eq!(requested(), [0, 0, 0]);
        eviction.make_room(11);
        assert!(eviction.is_another_first(0) && !eviction.is_another_first(1));
        eviction.set_first_victim(1, u64::MAX);
        eviction.make_room(11);
        assert_eq!(requested(), [1, 1, 0]);
    }
}
