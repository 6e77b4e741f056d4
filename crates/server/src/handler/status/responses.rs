//! The part of the report about the response cache.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::worker::SharedState;

/// The response cache.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Responses {
    /// Requests since the start, by result: `hit`, `stale`, `revalidated`, `collapsed`, `miss` and `bypass`.
    pub requests: Vec<(String, u64)>,
    /// Responses that were stored.
    pub stored: u64,
    /// Responses that were not stored, as they are used less than those in the store.
    pub rejected: u64,
    /// URLs whose responses made room for others.
    pub evicted: u64,
    /// URLs whose responses were purged or invalidated.
    pub purged: u64,
    /// URLs with stored responses.
    pub urls: u64,
    /// Used memory in bytes.
    pub bytes: u64,
    /// Maximum of the memory that files and responses use, in bytes; 0 if no route caches responses.
    pub max_bytes: u64,
    /// Requests upstream whose responses may be stored.
    pub in_flight: u64,
    /// Bytes of their bodies.
    pub in_flight_bytes: u64,
    /// The responses and objects on disk.
    pub disk: Disk,
}

/// The responses and objects on disk.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Disk {
    /// URLs with responses, and objects.
    pub urls: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Maximum of the bytes of the files; 0 if there is no directory.
    pub max_bytes: u64,
    /// Responses and objects that were read.
    pub read: u64,
    /// Responses and objects that were written.
    pub written: u64,
    /// Those that were not written, as they are used less than those on disk, or as the disk was too slow.
    pub rejected: u64,
    /// Those that could not be written.
    pub failed: u64,
    /// URLs and objects that made room for others.
    pub evicted: u64,
    /// Files that were not as they were written.
    pub damaged: u64,
}

impl Disk {
    fn new(disk: &dunlin_response_disk::Disk) -> Self {
        let (bytes, urls) = disk.usage();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &disk.counters;
        Self {
            urls: urls as u64,
            bytes,
            max_bytes: disk.bounds().0,
            read: count(&counters.read),
            written: count(&counters.written),
            rejected: count(&counters.rejected),
            failed: count(&counters.failed),
            evicted: count(&counters.evicted),
            damaged: count(&counters.damaged),
        }
    }
}

impl Responses {
    /// Returns the requests that needed no response from upstream, and all that concern the cache.
    pub fn hits(&self) -> (u64, u64) {
        let sum = |is_it: fn(&str) -> bool| {
            self.requests.iter().filter(|(result, _)| is_it(result)).map(|(_, count)| count).sum()
        };
        (sum(|result| HITS.contains(&result)), sum(|result| result != BYPASS))
    }

    pub(super) fn new(shared: &SharedState) -> Self {
        let disk = shared.disk.as_ref().map_or_else(Disk::default, |disk| Disk::new(&disk.disk));
        let Some(cache) = &shared.responses else {
            return Self {
                disk,
                requests: RESULTS.map(|name| (name.to_owned(), 0)).into(),
                ..Self::default()
            };
        };
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (counts, counters) = (&cache.counts, &cache.memory.counters);
        let requests = [
            &counts.hits,
            &counts.stale,
            &counts.revalidated,
            &counts.collapsed,
            &counts.misses,
            &counts.bypassed,
        ];
        let requests = RESULTS.iter().zip(requests);
        let (bytes, urls) = cache.memory.usage();
        let (in_flight, in_flight_bytes) = cache.flights.usage();
        Self {
            requests: requests
                .map(|(name, counter)| ((*name).to_owned(), count(counter)))
                .collect(),
            stored: count(&counters.stored),
            rejected: count(&counters.rejected),
            evicted: count(&counters.evicted),
            purged: count(&counters.purged),
            urls: urls as u64,
            bytes: bytes as u64,
            max_bytes: cache.memory.store().bounds().bytes as u64,
            in_flight: in_flight as u64,
            in_flight_bytes,
            disk,
        }
    }
}

const RESULTS: [&str; 6] = ["hit", "stale", "revalidated", "collapsed", "miss", BYPASS];
const HITS: [&str; 3] = ["hit", "stale", "collapsed"];
const BYPASS: &str = "bypass";
