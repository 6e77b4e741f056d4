//! Requests to one bucket, and what is known of the store that has it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dunlin_config::{ObjectRoot, StoreRules};
use dunlin_net::log_limiter::LogLimiter;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::disk;
use super::health::Health;
use super::store::{GetRequest, Got, ListPage, ListRequest, ObjectStore, StoreError};

/// The client of a bucket.
#[derive(Debug)]
pub struct Client {
    /// The URL of the bucket, for logs and the status.
    pub name: Arc<str>,
    /// The [`number`] of the bucket.
    pub(super) number: usize,
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) rules: Arc<StoreRules>,
    /// The thread for object stores.
    pub(crate) handle: Handle,
    pub(super) health: Health,
    /// Counters since the start.
    pub counters: StoreCounters,
    /// Bytes of all objects that are arriving for the cache.
    arriving: AtomicU64,
}

/// Counters since the start.
#[derive(Debug, Default)]
pub struct StoreCounters {
    /// Requests for objects.
    pub gets: AtomicU64,
    /// Those of them whose response was that the object has not changed.
    pub not_modified: AtomicU64,
    /// Requests for listings.
    pub lists: AtomicU64,
    /// Requests without a response, with an error as response, or whose body ended early.
    pub errors: AtomicU64,
    /// Bytes of bodies.
    pub bytes: AtomicU64,
    /// Requests of clients that waited for the response to the request of another client.
    pub joined: AtomicU64,
    /// Uses of a cached object that the store did not confirm in time.
    pub stale: AtomicU64,
}

/// Returns the URL of the bucket of `root`.
pub(super) fn name(root: &ObjectRoot) -> String {
    format!("{}://{}", root.scheme.as_str(), root.bucket)
}

/// Returns a number of the bucket of `root` that is the same in each process, for objects on disk.
pub fn number(root: &ObjectRoot) -> usize {
    let endpoint = root.store.endpoint.as_deref().unwrap_or_default();
    disk::number(&format!("{}\n{endpoint}", name(root)))
}

impl Client {
    /// Creates the client of the bucket of `root`.
    pub(super) fn new(root: &ObjectRoot, store: Arc<dyn ObjectStore>, handle: Handle) -> Arc<Self> {
        Arc::new(Self {
            name: name(root).into(),
            number: number(root),
            store,
            rules: Arc::clone(&root.store),
            handle,
            health: Health::default(),
            counters: StoreCounters::default(),
            arriving: AtomicU64::new(0),
        })
    }

    /// Returns `true` if the store does not respond.
    pub fn is_down(&self) -> bool {
        self.health.is_down()
    }

    /// Milliseconds for which an object is used without a request.
    pub(super) fn revalidate(&self) -> u64 {
        self.rules.revalidate.as_millis() as u64
    }

    /// Reserves memory for an object that arrives; `false` if more than `room` bytes would arrive at once. One object has room
    /// in any case.
    pub(super) fn reserve(&self, size: u64, room: u64) -> bool {
        let before = self.arriving.fetch_add(size, Ordering::Relaxed);
        let fits = before == 0 || before.saturating_add(size) <= room;
        if !fits {
            self.release(size);
        }
        fits
    }

    /// Releases what was reserved.
    pub(super) fn release(&self, size: u64) {
        self.arriving.fetch_sub(size, Ordering::Relaxed);
    }

    /// Requests an object, with the limit on the time until the response begins.
    pub(super) async fn get(&self, request: GetRequest) -> Result<Got, StoreError> {
        self.counters.gets.fetch_add(1, Ordering::Relaxed);
        let result = timeout(self.rules.timeout, self.store.get(request)).await;
        let result = result.unwrap_or_else(|_| Err(self.too_late()));
        if matches!(result, Ok(Got::NotModified)) {
            self.counters.not_modified.fetch_add(1, Ordering::Relaxed);
        }
        self.judge(result)
    }

    /// Requests a page of a listing.
    pub(super) async fn list(&self, request: ListRequest) -> Result<ListPage, StoreError> {
        self.counters.lists.fetch_add(1, Ordering::Relaxed);
        let result = timeout(self.rules.timeout, self.store.list(request)).await;
        self.judge(result.unwrap_or_else(|_| Err(self.too_late())))
    }

    fn too_late(&self) -> StoreError {
        let seconds = self.rules.timeout.as_secs_f64();
        StoreError::Failed(format!("there is no response within {seconds} s"))
    }

    /// Records whether the store responds.
    fn judge<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        match &result {
            Err(StoreError::Failed(error)) => {
                self.counters.errors.fetch_add(1, Ordering::Relaxed);
                self.health.failed(&self.name, error);
            }
            Err(StoreError::Invalid(error)) => {
                static LOG_LIMITER: LogLimiter = LogLimiter::new();
                self.counters.errors.fetch_add(1, Ordering::Relaxed);
                if LOG_LIMITER.is_due() {
                    tracing::error!("object store {}: {error}", self.name);
                }
            }
            Err(StoreError::Denied) => {
                static LOG_LIMITER: LogLimiter = LogLimiter::new();
                self.health.responded(&self.name);
                if LOG_LIMITER.is_due() {
                    tracing::info!(
                        "object store {}: access to an object is denied; without the permission to list the bucket, a store \
                         responds in this way to requests for missing objects, too",
                        self.name
                    );
                }
            }
            _ => self.health.responded(&self.name),
        }
        result
    }
}
