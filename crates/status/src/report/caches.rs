//! The file cache and the response cache.

use serde::{Deserialize, Serialize};

/// The file cache.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Cache {
    /// Responses from the cache since the start.
    pub hits: u64,
    /// Responses that were not in the cache.
    pub misses: u64,
    /// Bytes of the files that came from the cache.
    pub hit_bytes: u64,
    /// Bytes of the files that the cache did not have.
    pub miss_bytes: u64,
    /// Files that were admitted to the cache.
    pub admitted: u64,
    /// Requests for files that are used less than those in the cache.
    pub rejected: u64,
    /// Files that were removed from the cache.
    pub evictions: u64,
    /// By reason: `room` for files that are used more often, a `changed` file, `descriptors` for connections, and
    /// `cleared` by a reload or when everything was checked again.
    pub eviction: Vec<(String, u64)>,
    /// Files in the cache.
    pub files: u64,
    /// Used memory in bytes.
    pub bytes: u64,
    /// Maximum of used memory in bytes.
    pub max_bytes: u64,
    /// File descriptors of cached files.
    pub descriptors: u64,
}

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

impl Responses {
    /// The results of requests.
    pub const RESULTS: [&str; 6] = ["hit", "stale", "revalidated", "collapsed", "miss", BYPASS];

    /// Returns the requests that needed no response from upstream, and all that concern the cache.
    pub fn hits(&self) -> (u64, u64) {
        let sum = |is_it: fn(&str) -> bool| {
            self.requests.iter().filter(|(result, _)| is_it(result)).map(|(_, count)| count).sum()
        };
        (sum(|result| HITS.contains(&result)), sum(|result| result != BYPASS))
    }
}

const HITS: [&str; 3] = ["hit", "stale", "collapsed"];
const BYPASS: &str = "bypass";
