//! A request for an object: its response is received once for all that wait for it.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dunlin_net::clock::monotonic_millis;
use tokio::time::{sleep, timeout};

use super::bucket::Bucket;
use super::claim::{CacheClaim, RequestedObject};
use super::client::Client;
use super::content::{Downloading, StreamedBody};
use super::download::Download;
use super::load::{self, Context};
use super::once::SharedOnce;
use super::remote::Broken;
use super::siblings;
use super::store::{GetRequest, Got, ObjectBody, ObjectMetadata, StoreError};
use crate::cache::resource::Resource;
use crate::cache::shared_cache::Key;

/// A request in progress.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(super) wanted: RequestedObject,
    /// The outcome derived from the response head.
    head: SharedOnce<FetchResult>,
    /// The response takes so long that requests with a stale object do not wait for it.
    late: SharedOnce<()>,
    /// The content is in the cache, or will never be.
    finished: Arc<SharedOnce<()>>,
    claims: Mutex<Claims>,
    /// The largest object that a claim wants whole.
    limit: AtomicU64,
    /// The object has changed since it was requested.
    is_outdated: AtomicBool,
}

#[derive(Debug, Default)]
struct Claims {
    open: Vec<CacheClaim>,
    loaded: Vec<Arc<Resource>>,
}

/// The outcome derived from the response head.
#[derive(Debug, Clone)]
pub(super) enum FetchResult {
    /// The version is still the current one.
    NotModified,
    /// An object that arrives for the cache.
    Downloading(Arc<ObjectMetadata>, Arc<Download>),
    /// An object that is streamed to each client.
    Streamed(Arc<ObjectMetadata>, Arc<StreamedBody>),
    /// The object does not exist, or the request failed.
    Failed(StoreError),
}

/// The end of a request. Should the task that has it end otherwise, those that wait for the request get an error.
struct FetchEnd {
    flight: Arc<Flight>,
    bucket: Arc<Bucket>,
}

impl Drop for FetchEnd {
    fn drop(&mut self) {
        let Self { flight, bucket } = self;
        bucket.finish(flight);
        if flight.head.get().is_none() {
            flight.head.set(FetchResult::Failed(StoreError::abandoned()));
        }
        flight.finished.set(());
    }
}

impl FetchEnd {
    /// Ends the request with this result.
    fn finish(self, result: FetchResult) {
        self.bucket.finish(&self.flight);
        self.flight.head.set(result);
    }
}

/// The time for which requests with a stale object wait for the store.
const STALE_TIMEOUT: Duration = Duration::from_secs(1);

impl Flight {
    pub(super) fn new(wanted: RequestedObject) -> Arc<Self> {
        Arc::new(Self {
            wanted,
            head: SharedOnce::default(),
            late: SharedOnce::default(),
            finished: Arc::default(),
            claims: Mutex::default(),
            limit: AtomicU64::new(0),
            is_outdated: AtomicBool::new(false),
        })
    }

    /// Registers a claim to insert the object into the cache, too.
    pub(super) fn claim(&self, claim: Option<CacheClaim>) {
        let Some(claim) = claim else { return };
        self.limit.fetch_max(claim.limit, Ordering::Relaxed);
        let mut claims = self.lock();
        let is_there = claims.open.iter().any(|other| other.key == claim.key)
            || claims.loaded.iter().any(|resource| resource.key == claim.key);
        if !is_there {
            claims.open.push(claim);
        }
    }

    /// Waits for the head of the response.
    pub(super) async fn head(&self) -> FetchResult {
        self.head.wait().await
    }

    /// Waits for the head of the response, but not long.
    pub(super) async fn head_in_time(&self) -> Option<FetchResult> {
        tokio::select! {
            biased;
            head = self.head.wait() => Some(head),
            () = self.late.wait() => None,
        }
    }

    /// Returns the content as it arrives.
    pub(super) fn content(&self, download: Arc<Download>) -> Downloading {
        Downloading { download, finished: Arc::clone(&self.finished) }
    }

    /// Waits until the content is in the cache, or will never be.
    pub(super) async fn finished(&self) {
        self.finished.wait().await;
    }

    /// Returns the resource that was made for this place in the cache.
    pub(super) fn loaded(&self, key: &Key) -> Option<Arc<Resource>> {
        self.lock().loaded.iter().find(|resource| resource.key == *key).cloned()
    }

    /// Returns `true` if all content has arrived, and is about to be in the cache.
    pub(super) fn is_received(&self) -> bool {
        match self.head.get() {
            Some(FetchResult::Downloading(metadata, download)) => {
                download.length() >= metadata.size
            }
            _ => false,
        }
    }

    /// Records that the object has changed since it was requested.
    pub(super) fn set_outdated(&self) {
        self.is_outdated.store(true, Ordering::Relaxed);
    }

    /// Sends the request and receives the response, on the thread for object stores.
    pub(super) async fn fetch(self: &Arc<Self>, bucket: &Arc<Bucket>, context: &Arc<Context>) {
        let end = FetchEnd { flight: Arc::clone(self), bucket: Arc::clone(bucket) };
        let RequestedObject { key, unless } = &self.wanted;
        let request = GetRequest { key: key.clone(), unless: unless.clone(), ..Default::default() };
        let mut got = std::pin::pin!(bucket.client.get(request));
        let in_time = tokio::select! {
            biased;
            result = &mut got => Some(result),
            () = sleep(STALE_TIMEOUT) => None,
        };
        let result = match in_time {
            Some(result) => result,
            None => {
                self.late.set(());
                got.await
            }
        };
        match result {
            Ok(Got::NotModified) => {
                self.revalidate(&bucket.client).await;
                end.finish(FetchResult::NotModified);
            }
            Ok(Got::Object(metadata, body)) => {
                bucket.set_present(key);
                self.receive(end, context, metadata, body).await;
            }
            Err(error) => {
                if error == StoreError::Missing {
                    bucket.set_absent(key);
                }
                if !matches!(error, StoreError::Failed(_)) {
                    bucket.remove_from_disk(context, key);
                }
                end.finish(FetchResult::Failed(error));
            }
        }
    }

    /// Keeps what the cache has of the object, unless a sibling has changed.
    async fn revalidate(&self, client: &Client) {
        let open = std::mem::take(&mut self.lock().open);
        for held in open.into_iter().filter_map(|claim| claim.held) {
            if siblings::are_unchanged(client, &held).await {
                held.validity.set_fresh_until(self.fresh_until(client));
            } else {
                held.validity.invalidate();
            }
        }
    }

    /// Returns `true` if the object has changed since it was requested.
    pub(super) fn is_outdated(&self) -> bool {
        self.is_outdated.load(Ordering::Relaxed)
    }

    /// Until when the object is fresh that the store has confirmed now.
    fn fresh_until(&self, client: &Client) -> u64 {
        monotonic_millis() + if self.is_outdated() { 0 } else { client.revalidate() }
    }

    async fn receive(
        self: &Arc<Self>,
        end: FetchEnd,
        context: &Arc<Context>,
        metadata: ObjectMetadata,
        body: Box<dyn ObjectBody>,
    ) {
        let client = Arc::clone(&end.bucket.client);
        let (size, metadata) = (metadata.size, Arc::new(metadata));
        let is_whole =
            size <= self.limit.load(Ordering::Relaxed) && client.reserve(size, context.room());
        if !is_whole {
            self.load(&client, context, &metadata, None);
            end.finish(FetchResult::Streamed(metadata, StreamedBody::new(body)));
            return;
        }
        let download = Arc::new(Download::default());
        self.head.set(FetchResult::Downloading(Arc::clone(&metadata), Arc::clone(&download)));
        let result = receive_body(&client, &download, size, body).await;
        client.release(size);
        if result.is_err() {
            // A client that repeats its request must not join this one.
            drop(end);
            download.end(result);
            return;
        }
        download.end(result);
        let (this, context) = (Arc::clone(self), Arc::clone(context));
        let pool = context.pools.files.clone();
        let job = move || {
            this.load(&client, &context, &metadata, Some(&download));
            if let Some(disk) = &context.disk {
                end.bucket.keep_on_disk(&**disk, &this, &metadata, download.to_vec().into());
            }
            drop(end);
        };
        // If no thread can be started, which the pool logs, the job is dropped, and the request ends with it.
        let _ = pool.submit(0, job);
    }

    /// Makes the resources of all claims and inserts them into the cache.
    fn load(
        &self,
        client: &Arc<Client>,
        context: &Context,
        metadata: &ObjectMetadata,
        download: Option<&Download>,
    ) {
        let open = std::mem::take(&mut self.lock().open);
        for claim in open {
            if download.is_none() && metadata.size <= claim.limit {
                // There was no room for it now; another request may find room.
                continue;
            }
            let object = load::object(client, &self.wanted.key, metadata);
            let resource = Arc::new(match download {
                Some(download) => load::whole(context, &claim, object, download.to_vec()),
                None => load::streamed(context, &claim, object, client, None),
            });
            resource.validity.set_fresh_until(self.fresh_until(client));
            context.cache.insert(&resource);
            // A notification expires what is in the cache, which this may have missed.
            if self.is_outdated() {
                resource.validity.set_fresh_until(monotonic_millis());
            }
            self.lock().loaded.push(resource);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Claims> {
        // No code panics under the lock.
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn receive_body(
    client: &Client,
    download: &Download,
    size: u64,
    mut body: Box<dyn ObjectBody>,
) -> Result<(), Broken> {
    loop {
        let next = timeout(client.rules.timeout, poll_fn(|cx| body.poll_next(cx))).await;
        match next {
            Ok(Some(Ok(bytes))) => {
                client.counters.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                download.push(bytes);
                if download.length() <= size {
                    continue;
                }
            }
            Ok(None) if download.length() == size => return Ok(()),
            _ => {}
        }
        client.counters.errors.fetch_add(1, Ordering::Relaxed);
        return Err(Broken);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::thread;

    use dunlin_config::{Config, Overrides};

    use super::*;
    use crate::objects::store::{Later, ListPage, ListRequest, ObjectStore};

    /// A store that has nothing.
    #[derive(Debug)]
    struct Empty;

    impl ObjectStore for Empty {
        fn get(&self, _request: GetRequest) -> Later<Result<Got, StoreError>> {
            Box::pin(async { Err(StoreError::Missing) })
        }

        fn list(&self, _request: ListRequest) -> Later<Result<ListPage, StoreError>> {
            Box::pin(async { Ok(ListPage::default()) })
        }

        fn has_prefixes(&self) -> bool {
            true
        }
    }

    #[tokio::test]
    async fn those_that_wait_for_a_request_get_an_error_if_its_task_panics() {
        let text = "[[listen]]\naddress = '127.0.0.1:0'\n[[site]]\nroot = 's3://bucket'\n";
        let config = Config::parse(text, Path::new("x"), &Overrides::default()).unwrap();
        let root = config.sites.only().unwrap().object_roots().next().cloned().unwrap();
        let handle = tokio::runtime::Handle::current();
        let bucket = Bucket::new(Client::new(&root, Arc::new(Empty), handle));
        let flight = Flight::new(RequestedObject { key: "a".into(), unless: None });
        let end = FetchEnd { flight: Arc::clone(&flight), bucket };
        let task = thread::spawn(move || {
            let _end = end;
            panic!("as a defect would");
        });
        assert!(task.join().is_err());
        assert!(matches!(flight.head().await, FetchResult::Failed(StoreError::Failed(_))));
        flight.finished().await;
    }
}
