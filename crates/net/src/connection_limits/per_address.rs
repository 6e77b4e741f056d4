//! The limit of connections of each address.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::address::Peer;

/// The number of connections of each address, over all workers. A /64 network of IPv6 counts as one address.
#[derive(Debug)]
pub struct PerAddress {
    /// [`usize::MAX`] when there is no limit.
    max: AtomicUsize,
    hasher: RandomState,
    /// Addresses that have connections.
    shards: [Mutex<HashMap<Peer, usize>>; SHARDS],
    rejected: AtomicU64,
    /// The log has a warning that the limit was reached.
    is_reported: AtomicBool,
}

/// The permit of one connection among those of its address.
#[derive(Debug)]
pub struct AddressPermit {
    table: Arc<PerAddress>,
    address: Peer,
}

const SHARDS: usize = 16;

impl PerAddress {
    /// Creates a limit of `max` connections; [`None`] for no limit.
    pub fn new(max: Option<usize>) -> Self {
        Self {
            max: AtomicUsize::new(max.unwrap_or(usize::MAX)),
            hasher: RandomState::new(),
            shards: Default::default(),
            rejected: AtomicU64::new(0),
            is_reported: AtomicBool::new(false),
        }
    }

    /// Replaces the limit. Addresses that have more connections keep them.
    pub fn set_max(&self, max: Option<usize>) {
        self.max.store(max.unwrap_or(usize::MAX), Ordering::Relaxed);
    }

    /// Returns `true` if there is a limit.
    #[inline]
    pub fn is_limited(&self) -> bool {
        self.max.load(Ordering::Relaxed) != usize::MAX
    }

    /// Returns a permit for a connection of `peer`; [`None`] when its address has as many connections as the limit permits.
    pub fn acquire(self: &Arc<Self>, peer: Peer) -> Option<AddressPermit> {
        let address = peer.network();
        let mut shard = self.shard(address);
        let count = shard.entry(address).or_insert(0);
        let max = self.max.load(Ordering::Relaxed);
        if *count < max {
            *count += 1;
            return Some(AddressPermit { table: Arc::clone(self), address });
        }
        self.rejected.fetch_add(1, Ordering::Relaxed);
        if !self.is_reported.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                %peer,
                max,
                "an address has reached its limit of connections; further ones are closed"
            );
        }
        None
    }

    /// Returns the number of connections that were closed because of the limit.
    pub fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    /// The table is consistent after every statement, so that a panic of another thread does not matter.
    fn shard(&self, address: Peer) -> MutexGuard<'_, HashMap<Peer, usize>> {
        let number = self.hasher.hash_one(address) as usize % SHARDS;
        self.shards[number].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AddressPermit {
    fn drop(&mut self) {
        let mut shard = self.table.shard(self.address);
        let Some(count) = shard.get_mut(&self.address) else { return };
        *count -= 1;
        if *count == 0 {
            shard.remove(&self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_a_limit_of_its_own() {
        let table = Arc::new(PerAddress::new(Some(2)));
        let acquire = |address: &str| {
            table.acquire(Peer::Ip(address.parse::<std::net::IpAddr>().unwrap().to_canonical()))
        };
        let first = acquire("192.0.2.1").unwrap();
        let _second = acquire("192.0.2.1").unwrap();
        assert!(acquire("192.0.2.1").is_none() && acquire("::ffff:192.0.2.1").is_none());
        assert!(acquire("192.0.2.2").is_some());
        drop(first);
        assert!(acquire("192.0.2.1").is_some());
        let _network = [acquire("2001:db8::1").unwrap(), acquire("2001:db8::2").unwrap()];
        assert!(acquire("2001:db8::3").is_none() && acquire("2001:db8:0:1::3").is_some());
        assert_eq!(table.rejected(), 3);
    }
}
