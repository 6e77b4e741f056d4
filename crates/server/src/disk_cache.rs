//! The directory of cached responses and objects, and the work on it that may block.

mod objects;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dunlin_config::Config;
use dunlin_files::objects::{client, disk};
use dunlin_net::{blocking, clock};
use dunlin_response_cache::key::Key;
use dunlin_response_cache::record::Now;
use dunlin_response_cache::stored::Stored;
use dunlin_response_disk::{Disk, Removal};
use tokio::sync::oneshot;

use crate::route::sites::Sites;

/// The most bytes of content that wait to be written, however large the memory of the caches is.
const MAX_WAITING: u64 = 64 << 20;
/// Content that waits to be written may take this part of the memory of the caches, besides it.
const PART_WAITING: u64 = 4;

/// The responses and objects on disk. Files are read on threads of the pool for files, and written and removed on one thread, in the order of its
/// jobs: what is removed after a write was decided is removed after it.
#[derive(Debug)]
pub(crate) struct DiskCache {
    pub(crate) disk: Arc<Disk>,
    pools: Arc<blocking::Pools>,
    /// The numbers that sites have on disk, by their serial numbers.
    sites: Mutex<HashMap<usize, usize>>,
    /// The most bytes of content that wait to be written.
    max_waiting: u64,
}

impl DiskCache {
    /// Returns the directory that the configuration names; `None` if it names none or has nothing to keep there. Keeps
    /// `before` if it has the same one and the same bounds.
    pub(crate) fn new(
        sites: &Sites,
        config: &Config,
        before: Option<&Arc<Self>>,
        pools: &Arc<blocking::Pools>,
    ) -> Option<Arc<Self>> {
        if !config.keeps_responses() {
            return None;
        }
        let cache = &config.server.cache;
        let directory = cache.disk.as_ref()?;
        let bounds = (directory.size, cache.entries);
        let numbers = numbers(sites, config);
        let all = || numbers.values().copied().chain(buckets(config));
        let max_waiting = (cache.size as u64 / PART_WAITING).min(MAX_WAITING);
        let is_same = |tier: &&Arc<Self>| {
            tier.disk.directory() == directory.path
                && tier.disk.bounds() == bounds
                && tier.max_waiting == max_waiting
        };
        if let Some(before) = before.filter(is_same) {
            before.disk.add_sites(all());
            before.sites().extend(numbers);
            return Some(Arc::clone(before));
        }
        Some(Arc::new(Self {
            disk: Disk::new(directory.path.clone(), bounds, all()),
            pools: Arc::clone(pools),
            sites: Mutex::new(numbers),
            max_waiting,
        }))
    }

    /// Begins to use the directory, which `before` leaves unless it is the same. The user to which the server switches has to be
    /// there.
    pub(crate) fn takes_over(this: Option<&Arc<Self>>, before: Option<&Arc<Self>>) {
        if this.map(Arc::as_ptr) == before.map(Arc::as_ptr) {
            return;
        }
        if let Some(before) = before {
            before.disk.close();
        }
        if let Some(this) = this
            && let Err(error) = dunlin_response_disk::start(&this.disk, now)
        {
            tracing::error!("cache directory: a thread cannot be started: {error}");
        }
    }

    /// Returns the key of a response on disk; `None` if the site is no longer configured.
    pub(crate) fn key(&self, key: &Key) -> Option<Key> {
        let site = *self.sites().get(&key.site)?;
        Some(Key { site, url: key.url.clone() })
    }

    /// Reads a file.
    pub(crate) async fn read(&self, key: &Key, file: (u64, u64)) -> Option<Stored> {
        let (disk, key, now) = (Arc::clone(&self.disk), key.clone(), now());
        self.pools.files.run(move || disk.read(&key, file, now)).await.ok()?
    }

    /// Schedules writing a response, unless too many bytes would wait for that.
    pub(crate) fn write(&self, key: &Key, stored: &Arc<Stored>) {
        if let Some(key) = self.key(key) {
            self.write_stored(key, Arc::clone(stored));
        }
    }

    /// Schedules writing content whose key has the number that its site has on disk.
    fn write_stored(&self, key: Key, stored: Arc<Stored>) {
        let size = stored.size() as u64;
        let waiting = self.pools.responses.weight();
        if waiting > 0 && waiting.saturating_add(size) > self.max_waiting {
            self.disk.counters.rejected.fetch_add(1, Ordering::Relaxed);
            // What is there is older.
            self.remove(&Removal::Url(key));
            return;
        }
        let (disk, now) = (Arc::clone(&self.disk), now());
        // If no thread can be started, which the pool logs, the response stays in memory alone.
        let _ = self.pools.responses.submit(size, move || {
            disk.wait_for_start();
            disk.write(&key, &stored, now);
        });
    }

    /// Removes the responses for a URL.
    pub(crate) fn remove_url(&self, key: &Key) {
        if let Some(key) = self.key(key) {
            self.remove(&Removal::Url(key));
        }
    }

    /// Removes responses; their files shortly after. Returns the URLs, and what resolves when the files are removed.
    pub(crate) fn remove(&self, removal: &Removal) -> (Vec<Key>, oneshot::Receiver<()>) {
        let (done, removed) = oneshot::channel();
        let (keys, files) = self.disk.remove(removal);
        // Without a job no response waits to be written.
        if !files.is_empty() || self.pools.responses.weight() > 0 {
            let (disk, removal) = (Arc::clone(&self.disk), removal.clone());
            let _ = self.pools.responses.submit(0, move || {
                disk.remove_files(&files);
                // Also remove responses written since.
                disk.remove_files(&disk.remove(&removal).1);
                // The caller may not wait.
                let _ = done.send(());
            });
        }
        (keys, removed)
    }

    /// Removes the responses of the sites whose serial number is not accepted, and the objects of buckets that `config` does not have.
    pub(crate) fn retain(&self, has: impl Fn(usize) -> bool, config: &Config) {
        let mut sites = self.sites();
        sites.retain(|serial, _| has(*serial));
        let files = self.disk.retain_sites(sites.values().copied().chain(buckets(config)));
        if !files.is_empty() {
            let disk = Arc::clone(&self.disk);
            let _ = self.pools.responses.submit(0, move || disk.remove_files(&files));
        }
    }

    /// Returns the number that a site has on disk.
    pub(crate) fn number(&self, serial: usize) -> Option<usize> {
        self.sites().get(&serial).copied()
    }

    /// Waits until nothing waits to be written, at most for `limit`. Blocks.
    pub(crate) fn finish_writing(&self, limit: Duration) {
        self.pools.responses.wait_until_finished(limit);
    }

    fn sites(&self) -> MutexGuard<'_, HashMap<usize, usize>> {
        self.sites.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a number of each site that is the same in each process while its configuration does not change, by its serial
/// number.
fn numbers(sites: &Sites, config: &Config) -> HashMap<usize, usize> {
    let texts = config.site_texts();
    let number = |index: usize| Some(disk::number(texts.get(index)?));
    sites.iter().filter_map(|site| Some((site.serial, number(site.index)?))).collect()
}

/// Returns the numbers that the buckets of the configuration have on disk.
fn buckets(config: &Config) -> HashSet<usize> {
    let roots = config.sites.iter().flat_map(|site| site.object_roots());
    roots.map(|root| client::number(root)).collect()
}

fn now() -> Now {
    let unix = clock::since_1970().as_millis() as u64;
    Now { monotonic: clock::monotonic_millis(), unix }
}
