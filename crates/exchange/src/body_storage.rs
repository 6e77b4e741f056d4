//! Request bodies that are received before their handler runs, and the limits of memory and disk for all of them.

use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dunlin_config::{Config, Site};

/// The usage of all bodies, over all worker threads.
#[derive(Debug)]
pub struct Storage {
    /// Memory of slow bodies, in bytes.
    memory: Use,
    /// Bytes in temporary files.
    files: Use,
    /// When the log last reported rejected bodies.
    reported: Mutex<Option<Instant>>,
}

#[derive(Debug)]
struct Use {
    max: AtomicU64,
    now: AtomicU64,
}

/// The usage of one body. Dropping it releases the room.
#[derive(Debug)]
pub struct Share {
    storage: Arc<Storage>,
    memory: u64,
    file: u64,
}

/// A body that was received completely.
#[derive(Debug)]
pub struct Received {
    /// The file that holds it. Without one, [`Incoming::body`](super::Incoming::body) holds it.
    pub file: Option<File>,
    /// The body's share of the storage; `None` for a body that arrived with the first bytes.
    pub share: Option<Share>,
}

/// Memory for bodies that did not arrive completely with their first bytes.
const MEMORY: u64 = 32 << 20;
/// The default limit of files is at least this, and at least this multiple of the largest body.
const FILES: u64 = 1 << 30;
const LARGEST_BODIES: u64 = 4;

/// Interval of log lines about rejected bodies.
const PAUSE: Duration = Duration::from_secs(60);

impl Storage {
    /// Creates the storage with the limits of a configuration.
    pub fn new(config: &Config) -> Self {
        Self {
            memory: Use::new(MEMORY),
            files: Use::new(limit(config)),
            reported: Mutex::default(),
        }
    }

    /// Applies a new configuration. Stored bodies stay.
    pub fn set(&self, config: &Config) {
        self.files.max.store(limit(config), Ordering::Relaxed);
    }

    /// Returns an empty share for a body.
    pub fn share(self: &Arc<Self>) -> Share {
        Share { storage: Arc::clone(self), memory: 0, file: 0 }
    }

    /// Returns `true` if `bytes` more fit into files. If not, the body is to be rejected, which the log reports.
    pub fn has_room(&self, bytes: u64) -> bool {
        let has_room = self.files.has_room(bytes);
        if !has_room {
            self.report();
        }
        has_room
    }

    /// Logs that a body is rejected, at most once in [`PAUSE`].
    fn report(&self) {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.is_some_and(|at| at.elapsed() < PAUSE) {
            return;
        }
        *reported = Some(Instant::now());
        drop(reported);
        tracing::warn!(
            spool_size = self.files.max.load(Ordering::Relaxed),
            stored = self.files.now.load(Ordering::Relaxed),
            "request bodies are rejected with status 503: their temporary files have reached `spool_size`; raise \
             it or lower `body_size`"
        );
    }
}

fn limit(config: &Config) -> u64 {
    let largest = || config.sites.iter().filter_map(|site: &Arc<Site>| site.largest_body()).max();
    let default = || FILES.max(largest().unwrap_or(0).saturating_mul(LARGEST_BODIES));
    config.server.spool_size.unwrap_or_else(default)
}

impl Use {
    fn new(max: u64) -> Self {
        Self { max: AtomicU64::new(max), now: AtomicU64::new(0) }
    }

    fn has_room(&self, bytes: u64) -> bool {
        let free = self.max.load(Ordering::Relaxed);
        self.now.load(Ordering::Relaxed).checked_add(bytes).is_some_and(|all| all <= free)
    }

    fn take(&self, bytes: u64) -> bool {
        let max = self.max.load(Ordering::Relaxed);
        let add = |now: u64| now.checked_add(bytes).filter(|&all| all <= max);
        self.now.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.now.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Share {
    /// Reserves memory; false if there is none.
    pub fn take_memory(&mut self, bytes: u64) -> bool {
        let taken = self.storage.memory.take(bytes);
        self.memory += if taken { bytes } else { 0 };
        taken
    }

    /// Reduces the reserved memory.
    pub fn shrink_memory(&mut self, bytes: u64) {
        let unused = self.memory.saturating_sub(bytes);
        self.memory -= unused;
        self.storage.memory.give_back(unused);
    }

    /// Reserves room in files; false if there is none.
    pub fn take_file(&mut self, bytes: u64) -> bool {
        let taken = self.storage.files.take(bytes);
        match taken {
            true => self.file += bytes,
            false => self.storage.report(),
        }
        taken
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.storage.memory.give_back(self.memory);
        self.storage.files.give_back(self.file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn storage(memory: u64, files: u64) -> Arc<Storage> {
        let (memory, files) = (Use::new(memory), Use::new(files));
        Arc::new(Storage { memory, files, reported: Mutex::default() })
    }

    #[test]
    fn shares_of_all_bodies_are_within_the_limits_and_are_given_back() {
        let storage = storage(10, 100);
        let (mut first, mut second) = (storage.share(), storage.share());
        assert!(first.take_memory(10) && !second.take_memory(1));
        assert!(first.take_file(60) && !second.take_file(41) && second.take_file(40));
        assert!(!storage.has_room(1));
        first.shrink_memory(4);
        assert!(second.take_memory(6) && !second.take_memory(1));
        drop(first);
        assert!(storage.has_room(60) && !storage.has_room(61));
        drop(second);
        assert!(storage.has_room(100) && !storage.has_room(u64::MAX));
    }
}
