//! Limits of connections besides the most there may be: how many an address may have, and from how many
//! on others are closed to make room for new ones.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::transport::Peer;

/// How many connections each address has, over all workers. Of IPv6 a network of /64 counts as one.
#[derive(Debug)]
pub(crate) struct PerAddress {
    /// [`usize::MAX`] when there is no limit.
    most: AtomicUsize,
    hasher: RandomState,
    /// Only those that have any.
    shards: [Mutex<HashMap<Peer, usize>>; SHARDS],
    refused: AtomicU64,
    told: AtomicBool,
}

/// One connection among those of its address.
#[derive(Debug)]
pub(crate) struct AddressPlace {
    table: Arc<PerAddress>,
    address: Peer,
}

const SHARDS: usize = 16;

impl PerAddress {
    /// `None` for no limit.
    pub(crate) fn new(most: Option<usize>) -> Self {
        Self {
            most: AtomicUsize::new(most.unwrap_or(usize::MAX)),
            hasher: RandomState::new(),
            shards: Default::default(),
            refused: AtomicU64::new(0),
            told: AtomicBool::new(false),
        }
    }

    /// Those who have more by now keep them.
    pub(crate) fn set_most(&self, most: Option<usize>) {
        self.most.store(most.unwrap_or(usize::MAX), Ordering::Relaxed);
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.most.load(Ordering::Relaxed) != usize::MAX
    }

    /// A place for a connection of that address; `None` when it has as many as it may.
    pub(crate) fn enter(self: &Arc<Self>, peer: Peer) -> Option<AddressPlace> {
        let address = peer.network();
        let mut shard = self.shard(address);
        let count = shard.entry(address).or_insert(0);
        let most = self.most.load(Ordering::Relaxed);
        if *count < most {
            *count += 1;
            return Some(AddressPlace { table: Arc::clone(self), address });
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        if !self.told.swap(true, Ordering::Relaxed) {
            tracing::warn!(%peer, most, "an address has as many connections as it may; further ones are closed");
        }
        None
    }

    /// Connections that were closed at once.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// A state is whole after every statement, so that a panic elsewhere spoils nothing.
    fn shard(&self, address: Peer) -> MutexGuard<'_, HashMap<Peer, usize>> {
        let number = self.hasher.hash_one(address) as usize % SHARDS;
        self.shards[number].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AddressPlace {
    fn drop(&mut self) {
        let mut shard = self.table.shard(self.address);
        let Some(count) = shard.get_mut(&self.address) else { return };
        *count -= 1;
        if *count == 0 {
            shard.remove(&self.address);
        }
    }
}

/// Closes connections that may be closed when there are many, of all workers the one with the lowest rank first.
#[derive(Debug)]
pub(crate) struct Eviction {
    /// With more connections than this, each new one has another one closed.
    soft: AtomicUsize,
    workers: Box<[PerWorker]>,
    evicted: AtomicU64,
}

/// What workers know of each other.
#[derive(Debug, Default)]
struct PerWorker {
    /// The rank of the connection that is the first to be closed; see [`crate::connections`].
    first_victim: AtomicU64,
    /// How many it is to close.
    wanted: AtomicUsize,
    asked: Notify,
}

impl Eviction {
    pub(crate) fn new(soft: usize, workers: usize) -> Self {
        let for_worker =
            || PerWorker { first_victim: AtomicU64::new(u64::MAX), ..Default::default() };
        let soft = AtomicUsize::new(soft);
        Self {
            soft,
            workers: (0..workers).map(|_| for_worker()).collect(),
            evicted: AtomicU64::new(0),
        }
    }

    /// How many workers there are.
    pub(crate) fn workers(&self) -> usize {
        self.workers.len().max(1)
    }

    pub(crate) fn set_soft(&self, soft: usize) {
        self.soft.store(soft, Ordering::Relaxed);
    }

    /// A new connection makes it this many.
    pub(crate) fn make_room(&self, open: usize) {
        if open > self.soft.load(Ordering::Relaxed) {
            self.evict_one();
        }
    }

    /// Has the worker whose connection has the lowest rank close it, if there is any.
    pub(crate) fn evict_one(&self) {
        let rank = |worker: &&PerWorker| worker.first_victim.load(Ordering::Relaxed);
        if let Some(worker) = self.workers.iter().min_by_key(rank) {
            worker.wanted.fetch_add(1, Ordering::Relaxed);
            worker.asked.notify_one();
        }
    }

    /// Waits until worker `number` is to close some, and says how many.
    pub(crate) async fn asked(&self, number: usize) -> usize {
        let worker = &self.workers[number];
        loop {
            worker.asked.notified().await;
            let wanted = worker.wanted.swap(0, Ordering::Relaxed);
            if wanted > 0 {
                return wanted;
            }
        }
    }

    /// Whether another worker has a connection that is to be closed before the first one of worker `number`.
    pub(crate) fn is_another_first(&self, number: usize) -> bool {
        let rank = |worker: &PerWorker| worker.first_victim.load(Ordering::Relaxed);
        let own = self.workers.get(number).map_or(0, rank);
        self.workers.iter().any(|worker| rank(worker) < own)
    }

    /// Sets the rank of the first connection that worker `number` may close, [`u64::MAX`] when there is none.
    pub(crate) fn set_first_victim(&self, number: usize, rank: u64) {
        self.workers[number].first_victim.store(rank, Ordering::Relaxed);
    }

    pub(crate) fn count(&self, evicted: usize) {
        self.evicted.fetch_add(evicted as u64, Ordering::Relaxed);
    }

    /// Connections that were closed to make room.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_so_many_connections_and_others_have_theirs() {
        let table = Arc::new(PerAddress::new(Some(2)));
        let enter = |address: &str| {
            table.enter(Peer::Ip(address.parse::<std::net::IpAddr>().unwrap().to_canonical()))
        };
        let first = enter("192.0.2.1").unwrap();
        let _second = enter("192.0.2.1").unwrap();
        assert!(enter("192.0.2.1").is_none() && enter("::ffff:192.0.2.1").is_none());
        assert!(enter("192.0.2.2").is_some());
        drop(first);
        assert!(enter("192.0.2.1").is_some());
        let _network = [enter("2001:db8::1").unwrap(), enter("2001:db8::2").unwrap()];
        assert!(enter("2001:db8::3").is_none() && enter("2001:db8:0:1::3").is_some());
        assert_eq!(table.refused(), 3);
    }

    #[test]
    fn the_loop_with_the_lowest_rank_is_asked() {
        let eviction = Eviction::new(10, 3);
        eviction.set_first_victim(0, 500);
        eviction.set_first_victim(1, 300);
        let wanted = || -> Vec<_> {
            eviction.workers.iter().map(|worker| worker.wanted.load(Ordering::Relaxed)).collect()
        };
        eviction.make_room(10);
        assert_eq!(wanted(), [0, 0, 0]);
        eviction.make_room(11);
        assert!(eviction.is_another_first(0) && !eviction.is_another_first(1));
        eviction.set_first_victim(1, u64::MAX);
        eviction.make_room(11);
        assert_eq!(wanted(), [1, 1, 0]);
    }
}
