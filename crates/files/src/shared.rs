//! The state of the file side that all workers share.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::cache::resource::Resource;
use super::cache::shared_cache::{Cost, SharedCache};
use super::dictionaries::counters::DictionaryCounters;
use super::dictionaries::turns::Turns;
use super::listing::cache::ListingCache;
use super::objects::disk::ObjectDisk;
use super::objects::load::Context;
use super::objects::registry::Buckets;
use super::source::Reported;
use dunlin_admission::common::CommonStore;
use dunlin_config::{Config, Server};
use dunlin_dav::locks::Locks;
use dunlin_dictionary::history::{self, History};
use dunlin_fs::protected::Protected;
use dunlin_fs::roots::{Lookup, Root, Roots};
use dunlin_fs::watch::Watch;
use dunlin_net::blocking::Pools;

/// The state of one configuration. No request for a file in a worker's cache locks any of it.
#[derive(Debug)]
pub struct Shared {
    /// The second level of the cache.
    pub cache: Arc<SharedCache>,
    /// `None` if change notification is switched off or not available.
    pub watch: Option<Arc<Watch>>,
    /// The contents of large directories.
    pub listings: Arc<ListingCache>,
    /// The buckets of roots in object storage.
    pub buckets: Arc<Buckets>,
    /// The means by which resources of objects are made.
    pub context: Arc<Context>,
    /// The open root directories.
    pub roots: Arc<Roots>,
    /// Files that are never sent.
    pub protected: Arc<Protected>,
    /// Threads for work that may block.
    pub pools: Arc<Pools>,
    /// Versions of files that clients may have as dictionaries.
    pub history: Arc<History>,
    /// The turns of compression with dictionaries.
    pub(super) turns: Arc<Turns>,
    /// Counters of dictionaries for the status page.
    pub dictionaries: Arc<DictionaryCounters>,
    /// The locks of WebDAV.
    pub locks: Arc<Mutex<Locks>>,
    /// Programs whose source was requested.
    pub(super) sources: Reported,
    /// Time until a watched file is checked, in milliseconds.
    pub(super) revalidate: u64,
    /// Responses have the field `Server`.
    pub(super) server_field: bool,
}

impl Shared {
    /// Returns the state of the first configuration. `disk` has the objects that are on disk.
    pub fn first(config: &Config, pools: Arc<Pools>, disk: Option<Arc<dyn ObjectDisk>>) -> Self {
        let server = &config.server;
        let watch = server.cache.notify.then(Watch::new).and_then(|watch| {
            watch
                .inspect_err(|error| {
                    tracing::warn!(
                        "inotify is not available ({error}): files are checked once a second"
                    );
                })
                .ok()
        });
        let cache = Arc::new(SharedCache::new(CommonStore::new(bounds(server))));
        Self {
            context: context(&cache, &pools, disk, server),
            cache,
            buckets: Arc::default(),
            watch: watch.map(Arc::new),
            listings: Arc::default(),
            roots: Arc::default(),
            protected: Arc::new(Protected::new(config.protected_files())),
            history: history(config, &pools, None),
            turns: Arc::default(),
            dictionaries: Arc::default(),
            pools,
            locks: Arc::default(),
            sources: Reported::default(),
            revalidate: server.cache.revalidate.as_millis() as u64,
            server_field: server.server_field,
        }
    }

    /// Returns the state of the next configuration. It keeps the cache unless its bounds have changed. `disk` has the objects
    /// that are on disk.
    pub fn next(&self, config: &Config, disk: Option<Arc<dyn ObjectDisk>>) -> Self {
        let bounds = bounds(&config.server);
        let cache = match bounds == self.cache.store().bounds() {
            true => Arc::clone(&self.cache),
            false => Arc::new(SharedCache::new(CommonStore::new(bounds))),
        };
        Self {
            context: context(&cache, &self.pools, disk, &config.server),
            cache,
            buckets: Arc::default(),
            watch: self.watch.clone(),
            // Files that are protected from now on may be counted in what was read.
            listings: Arc::default(),
            roots: Arc::clone(&self.roots),
            protected: Arc::new(Protected::new(config.protected_files())),
            history: history(config, &self.pools, Some(&self.history)),
            turns: Arc::clone(&self.turns),
            dictionaries: Arc::clone(&self.dictionaries),
            pools: Arc::clone(&self.pools),
            locks: Arc::clone(&self.locks),
            sources: Reported::default(),
            revalidate: config.server.cache.revalidate.as_millis() as u64,
            server_field: config.server.server_field,
        }
    }

    /// Removes what only the configuration of `before` uses: cached files of sites for which `has_site` returns false, and
    /// roots for which `has_root` returns false.
    pub fn release(
        &self,
        before: &Self,
        has_site: impl Fn(usize) -> bool,
        has_root: impl Fn(&Path) -> bool,
    ) {
        self.cache.retain_sites(has_site);
        // Files that are protected from now on may be cached.
        if !self.protected.is_within(&before.protected) {
            self.cache.clear();
        }
        self.roots.retain(has_root);
    }

    /// Returns the directory to which `path`, a path of the configuration, resolves.
    ///
    /// # Errors
    /// When the directory cannot be opened.
    pub fn root(&self, path: &Path) -> io::Result<Arc<Root>> {
        let trusted = self.revalidate.min(1000);
        let Lookup { root, has_moved } = self.roots.get(path, self.watch.as_deref(), trusted);
        if has_moved {
            self.invalidate_all();
        }
        root
    }

    /// Checks whether the paths of the configuration resolve to the same directories as before.
    pub fn check_roots(&self) {
        for path in self.roots.paths() {
            // The next request that uses the root reports the error.
            let _ = self.root(&path);
        }
    }

    /// Makes the next use of each file and script check its path again.
    pub fn expire_all(&self) {
        self.roots.revalidate();
        self.cache.expire_all();
    }

    /// Invalidates all that was read from files: each file and script is looked up again, from its root on.
    pub fn invalidate_all(&self) {
        self.roots.revalidate();
        if let Some(watch) = &self.watch {
            watch.clear();
        }
        self.cache.clear();
    }

    /// Reads pending change notifications.
    pub fn read_changes(&self) {
        if let Some(watch) = &self.watch {
            watch.read(|| self.invalidate_all());
        }
    }

    /// Returns `true` if another worker may have read notifications that have not taken effect; [`Shared::read_changes`]
    /// waits for it.
    #[inline]
    pub fn is_reading_changes(&self) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.is_being_read())
    }

    /// Reads pending notifications of mounts and unmounts.
    pub fn read_mounts(&self) {
        if let Some(watch) = &self.watch
            && watch.read_mounts()
        {
            self.invalidate_all();
        }
    }

    /// Returns `true` if a copy on disk should replace the stored content of `resource`. Records that the resource was sent.
    pub fn is_worth_a_copy(&self, resource: &Resource) -> bool {
        resource.is_worth_a_copy(self.cache.largest_copy())
    }
}

fn context(
    cache: &Arc<SharedCache>,
    pools: &Arc<Pools>,
    disk: Option<Arc<dyn ObjectDisk>>,
    server: &Server,
) -> Arc<Context> {
    let (cache, pools) = (Arc::clone(cache), Arc::clone(pools));
    Arc::new(Context { cache, disk, pools, server_field: server.server_field })
}

/// Returns the history of files, `before` if it has the same directory and bounds. The versions in its directory are read by a thread.
fn history(config: &Config, pools: &Pools, before: Option<&Arc<History>>) -> Arc<History> {
    let cache = &config.server.cache;
    let directory = cache.disk.as_ref().filter(|_| config.keeps_dictionaries());
    let directory = directory.map(|disk| disk.path.join("dictionaries"));
    let bounds = history::Bounds { bytes: cache.dictionaries, versions: cache.entries };
    let is_same = |before: &&Arc<History>| before.settings() == (directory.as_deref(), bounds);
    if let Some(before) = before.filter(is_same) {
        return Arc::clone(before);
    }
    let made = Arc::new(History::new(directory, bounds));
    let loaded = Arc::clone(&made);
    // If no thread can be started, which the pool logs, the history begins without versions.
    let _ = pools.files.submit(0, move || loaded.load());
    made
}

fn bounds(server: &Server) -> Cost {
    let cache = &server.cache;
    Cost { bytes: cache.size, entries: cache.entries, descriptors: cache.descriptors }
}
