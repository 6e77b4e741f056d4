//! The state of the response cache that all workers share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dunlin_config::Config;
use dunlin_response_cache::flight::Flights;
use dunlin_response_cache::key::Key;
use dunlin_response_cache::marks::Marks;
use dunlin_response_cache::memory::{Memory, Purge};

use crate::route::sites::Sites;

/// The bodies on their way may hold this part of the memory for responses.
const PART_IN_FLIGHT: u64 = 4;

/// The response cache.
#[derive(Debug)]
pub(crate) struct ResponseCache {
    pub(crate) memory: Memory,
    pub(crate) flights: Arc<Flights>,
    /// URLs whose requests do not wait for each other.
    pub(crate) marks: Marks,
    pub(crate) counts: Counts,
}

/// Requests by their outcome, since the start.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) hits: AtomicU64,
    pub(crate) stale: AtomicU64,
    pub(crate) revalidated: AtomicU64,
    pub(crate) collapsed: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) bypassed: AtomicU64,
}

impl ResponseCache {
    /// The cache for these sites; `None` if none of their routes needs one. Keeps `before` if its bounds are the same.
    pub(crate) fn for_sites(
        sites: &Sites,
        config: &Config,
        before: Option<&Arc<Self>>,
    ) -> Option<Arc<Self>> {
        if !sites.iter().any(|site| site.caches_responses()) {
            return None;
        }
        let cache = &config.server.cache;
        let bounds = (cache.responses, cache.entries);
        if let Some(before) = before.filter(|before| before.memory.bounds() == bounds) {
            return Some(Arc::clone(before));
        }
        Some(Arc::new(Self {
            memory: Memory::new(cache.responses, cache.entries),
            flights: Flights::new(cache.responses as u64 / PART_IN_FLIGHT),
            marks: Marks::default(),
            counts: Counts::default(),
        }))
    }

    /// Removes what is stored for a URL, and keeps what is on its way from being stored.
    pub(crate) fn invalidate(&self, key: &Key) {
        self.flights.invalidate(key);
        self.memory.remove(key);
    }

    /// Removes responses of the site with that number, or of all sites, and keeps those that are on their way from being
    /// stored. Returns the number of URLs.
    pub(crate) fn purge(&self, site: Option<usize>, purge: &Purge) -> usize {
        self.flights.purge(site, purge);
        self.memory.purge(site, purge)
    }
}

/// Counts one.
pub(super) fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
