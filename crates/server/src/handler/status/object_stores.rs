//! The part of the report about object stores.

use std::sync::atomic::{AtomicU64, Ordering};

use dunlin_files::objects::registry::Buckets;
use serde::{Deserialize, Serialize};

/// A bucket of an object store.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ObjectStore {
    /// Its URL.
    pub name: String,
    /// It responds.
    pub is_available: bool,
    /// Requests for objects.
    pub gets: u64,
    /// Those of them whose response was that the object has not changed.
    pub not_modified: u64,
    /// Requests for listings.
    pub lists: u64,
    /// Requests without a response, with an error as response, or whose body ended early.
    pub errors: u64,
    /// Bytes of bodies.
    pub bytes: u64,
    /// Requests of clients that waited for the response to the request of another client.
    pub joined: u64,
    /// Uses of a cached object that the store did not confirm in time.
    pub stale: u64,
}

/// Returns the buckets of the configuration, by name.
pub(super) fn report(buckets: &Buckets) -> Vec<ObjectStore> {
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let of = buckets.iter().map(|bucket| {
        let client = &bucket.client;
        let counters = &client.counters;
        ObjectStore {
            name: client.name.to_string(),
            is_available: !client.is_down(),
            gets: count(&counters.gets),
            not_modified: count(&counters.not_modified),
            lists: count(&counters.lists),
            errors: count(&counters.errors),
            bytes: count(&counters.bytes),
            joined: count(&counters.joined),
            stale: count(&counters.stale),
        }
    });
    let mut all: Vec<_> = of.collect();
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}
