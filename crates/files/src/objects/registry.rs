//! The buckets of a configuration.

use std::collections::HashMap;
use std::sync::Arc;

use dunlin_config::{Config, ObjectRoot, StoreScheme};

use super::bucket::Bucket;
use super::client::{self, Client};
use super::load::Context;
use super::store::ObjectStore;
use super::thread::Thread;

/// Opens the store of a root.
pub type Open = fn(&ObjectRoot) -> Result<Arc<dyn ObjectStore>, String>;

/// The buckets of a configuration, and the thread for requests to them.
#[derive(Debug, Default)]
pub struct Buckets {
    thread: Option<Arc<Thread>>,
    buckets: HashMap<(StoreScheme, String), Arc<Bucket>>,
}

impl Buckets {
    /// Returns the buckets of `config`. Those of `before` whose rules are the same are kept, unless their credentials are
    /// read from a file.
    ///
    /// # Errors
    /// The first store that cannot be used, and why.
    pub fn new(config: &Config, before: Option<&Self>, open: Open) -> Result<Self, String> {
        let mut new = Self {
            thread: before.and_then(|before| before.thread.clone()),
            buckets: HashMap::new(),
        };
        for root in config.sites.iter().flat_map(|site| site.object_roots()) {
            let key = (root.scheme, root.bucket.clone());
            if new.buckets.contains_key(&key) {
                continue;
            }
            let known = before.and_then(|before| before.buckets.get(&key));
            let is_kept = |bucket: &&Arc<Bucket>| {
                bucket.client.rules == root.store && root.store.credentials.is_none()
            };
            let bucket = match known.filter(is_kept) {
                Some(bucket) => Arc::clone(bucket),
                None => new.open(root, open)?,
            };
            new.buckets.insert(key, bucket);
        }
        Ok(new)
    }

    fn open(&mut self, root: &ObjectRoot, open: Open) -> Result<Arc<Bucket>, String> {
        let thread = match &self.thread {
            Some(thread) => Arc::clone(thread),
            None => {
                let thread = Thread::start()
                    .map_err(|error| format!("the thread for object stores: {error}"))?;
                Arc::clone(self.thread.insert(Arc::new(thread)))
            }
        };
        let name = client::name(root);
        // The clients of stores belong to the runtime in which they are made.
        let store = {
            let _guard = thread.handle().enter();
            open(root).map_err(|error| format!("object store {name}: {error}"))?
        };
        Ok(Bucket::new(Client::new(root, store, thread.handle().clone())))
    }

    /// Returns the bucket of a root of this configuration.
    pub fn of(&self, root: &ObjectRoot) -> Option<&Arc<Bucket>> {
        self.buckets.get(&(root.scheme, root.bucket.clone()))
    }

    /// Returns the client of the bucket with this URL.
    pub(crate) fn client(&self, name: &str) -> Option<&Arc<Client>> {
        self.iter().map(|bucket| &bucket.client).find(|client| *client.name == *name)
    }

    /// Returns all buckets.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Bucket>> {
        self.buckets.values()
    }

    /// Marks these objects for revalidation on next use, because they have changed. Returns whether a root is in the bucket.
    pub fn notify(&self, context: &Context, bucket: &str, keys: &[String]) -> bool {
        let mut named = self.buckets.iter().filter(|((_, name), _)| name == bucket).peekable();
        let is_known = named.peek().is_some();
        for (_, bucket) in named {
            keys.iter().for_each(|key| bucket.forget(key, context.disk.as_deref()));
            context.cache.expire_objects(&bucket.client.name, keys);
        }
        is_known
    }
}
