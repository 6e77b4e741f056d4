//! The directory of responses, and the work on it that may block.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dunlin_config::Config;
use dunlin_net::{blocking, clock};
use dunlin_response_cache::key::Key;
use dunlin_response_cache::record::Now;
use dunlin_response_cache::stored::Stored;
use dunlin_response_disk::{Disk, Removal};
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;

use crate::route::sites::Sites;

/// The most bytes of responses that wait to be written, however large the memory of the caches is.
const MAX_WAITING: u64 = 64 << 20;

/// The responses on disk. Files are read on threads of the pool for files, and written and removed on one thread, in the order of its
/// jobs: what is removed after a write was decided is removed after it.
#[derive(Debug)]
pub(crate) struct Tier {
    pub(crate) disk: Arc<Disk>,
    pools: Arc<blocking::Pools>,
    /// The numbers that sites have on disk, by their serial numbers.
    sites: Mutex<HashMap<usize, usize>>,
}

impl Tier {
    /// The directory that the configuration names; `None` if it names none. Keeps `before` if it has the same one and the same
    /// bounds.
    pub(super) fn new(
        sites: &Sites,
        config: &Config,
        before: Option<&Arc<Self>>,
        pools: &Arc<blocking::Pools>,
    ) -> Option<Arc<Self>> {
        let cache = &config.server.cache;
        let directory = cache.disk.as_ref()?;
        let bounds = (directory.size, cache.entries);
        let numbers = numbers(sites, config);
        let is_same = |tier: &&Arc<Self>| {
            tier.disk.directory() == directory.path && tier.disk.bounds() == bounds
        };
        if let Some(before) = before.filter(is_same) {
            before.disk.add_sites(numbers.values().copied());
            before.sites().extend(numbers);
            return Some(Arc::clone(before));
        }
        Some(Arc::new(Self {
            disk: Disk::new(directory.path.clone(), bounds, numbers.values().copied()),
            pools: Arc::clone(pools),
            sites: Mutex::new(numbers),
        }))
    }

    /// Begins to use the directory. The user to which the server switches has to be there.
    pub(super) fn start(&self) {
        if let Err(error) = dunlin_response_disk::start(&self.disk, now) {
            tracing::error!("response cache: a thread cannot be started: {error}");
        }
    }

    /// The key of a response on disk; `None` if the site is none of the configuration any more.
    pub(super) fn key(&self, key: &Key) -> Option<Key> {
        let site = *self.sites().get(&key.site)?;
        Some(Key { site, url: key.url.clone() })
    }

    /// Reads a file.
    pub(super) async fn read(&self, key: &Key, file: (u64, u64)) -> Option<Stored> {
        let (disk, key, now) = (Arc::clone(&self.disk), key.clone(), now());
        self.pools.files.run(move || disk.read(&key, file, now)).await.ok()?
    }

    /// Has a response written, unless more than `max_waiting` bytes of responses would wait for that.
    pub(super) fn write(&self, key: &Key, stored: &Arc<Stored>, max_waiting: u64) {
        let Some(key) = self.key(key) else { return };
        let size = stored.size() as u64;
        let waiting = self.pools.responses.weight();
        if waiting > 0 && waiting.saturating_add(size) > max_waiting.min(MAX_WAITING) {
            self.disk.counters.rejected.fetch_add(1, Ordering::Relaxed);
            // What is there is older.
            self.remove(&Removal::Url(key));
            return;
        }
        let (disk, stored, now) = (Arc::clone(&self.disk), Arc::clone(stored), now());
        // If no thread can be started, which the pool logs, the response stays in memory alone.
        let _ = self.pools.responses.submit(size, move || {
            disk.wait_for_start();
            disk.write(&key, &stored, now);
        });
    }

    /// Removes the responses for a URL.
    pub(super) fn remove_url(&self, key: &Key) {
        if let Some(key) = self.key(key) {
            self.remove(&Removal::Url(key));
        }
    }

    /// Removes responses; their files shortly after. Returns the URLs, and what resolves when the files are removed.
    pub(super) fn remove(&self, removal: &Removal) -> (Vec<Key>, oneshot::Receiver<()>) {
        let (done, removed) = oneshot::channel();
        let (keys, files) = self.disk.remove(removal);
        // Without a job no response waits to be written.
        if !files.is_empty() || self.pools.responses.weight() > 0 {
            let (disk, removal) = (Arc::clone(&self.disk), removal.clone());
            let _ = self.pools.responses.submit(0, move || {
                disk.remove_files(&files);
                // Those that were written meanwhile.
                disk.remove_files(&disk.remove(&removal).1);
                // The caller may not wait.
                let _ = done.send(());
            });
        }
        (keys, removed)
    }

    /// Removes the responses of the sites whose serial number is not accepted.
    pub(super) fn retain_sites(&self, has: impl Fn(usize) -> bool) {
        let mut sites = self.sites();
        sites.retain(|serial, _| has(*serial));
        let files = self.disk.retain_sites(sites.values().copied());
        if !files.is_empty() {
            let disk = Arc::clone(&self.disk);
            let _ = self.pools.responses.submit(0, move || disk.remove_files(&files));
        }
    }

    /// The number that a site has on disk.
    pub(super) fn number(&self, serial: usize) -> Option<usize> {
        self.sites().get(&serial).copied()
    }

    /// Bytes of responses that wait to be written.
    pub(super) fn waiting(&self) -> u64 {
        self.pools.responses.weight()
    }

    fn sites(&self) -> MutexGuard<'_, HashMap<usize, usize>> {
        self.sites.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A number of each site that is the same in each process while its configuration does not change, by its serial number.
fn numbers(sites: &Sites, config: &Config) -> HashMap<usize, usize> {
    let texts = config.site_texts();
    let number = |text: &String| {
        let digest = Sha256::digest(text);
        digest.iter().take(size_of::<usize>()).fold(0, |sum, byte| sum << 8 | usize::from(*byte))
    };
    sites.iter().filter_map(|site| Some((site.serial, number(texts.get(site.index)?)))).collect()
}

fn now() -> Now {
    let unix = clock::since_1970().as_millis() as u64;
    Now { monotonic: clock::monotonic_millis(), unix }
}
