//! Objects that are on disk and not in memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dunlin_net::clock::monotonic_millis;

use super::bucket::Bucket;
use super::claim::CacheClaim;
use super::disk::ObjectFile;

use super::load::{self, Context};
use super::restoration::Restoration;
use crate::cache::resource::Resource;

/// The end of the reading of a file, also if the job that does it ends without a result.
struct Ending {
    bucket: Arc<Bucket>,
    key: String,
    claim: CacheClaim,
    resource: Option<Arc<Resource>>,
    restoration: Arc<Restoration>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.bucket.end_restoration(&self.key, &self.claim);
        self.restoration.resource.set(self.resource.take());
    }
}

impl Bucket {
    /// Returns the resource of an object that is on disk. It is fresh only if this process has received it not long ago;
    /// otherwise the store has to confirm it. The cache has it, if it is worth that.
    pub(super) async fn restore(
        self: &Arc<Self>,
        context: &Arc<Context>,
        key: &str,
        claim: &CacheClaim,
    ) -> Option<Arc<Resource>> {
        let disk = context.disk.as_ref()?;
        let (restoration, file) = self.begin_restoration(&**disk, key, claim)?;
        if let Some(file) = file {
            let mut ending = Ending {
                bucket: Arc::clone(self),
                key: key.to_owned(),
                claim: claim.clone(),
                resource: None,
                restoration: Arc::clone(&restoration),
            };
            let context = Arc::clone(context);
            let pool = context.pools.files.clone();
            let job = move || {
                let Ending { bucket, key, claim, restoration, .. } = &ending;
                ending.resource = bucket.read(&context, key, claim, (file, restoration));
            };
            // If no thread can be started, which the pool logs, or too many jobs wait, the job is dropped, and the reading ends.
            let _ = pool.submit(0, job);
        }
        restoration.resource.wait().await
    }

    /// Reads a file, and makes the resource.
    fn read(
        &self,
        context: &Context,
        key: &str,
        claim: &CacheClaim,
        (file, restoration): (ObjectFile, &Restoration),
    ) -> Option<Arc<Resource>> {
        if !self.client.reserve(file.bytes, context.room()) {
            return None;
        }
        let stored = context.disk.as_ref().and_then(|disk| disk.read(self.name(key), file));
        let resource = stored.filter(|it| it.content.len() as u64 <= claim.limit).map(|stored| {
            let object = load::object(&self.client, key, &stored.metadata);
            let resource = load::whole(context, claim, object, stored.content.into());
            let revalidate = self.client.revalidate();
            let left = if file.is_recent { revalidate.saturating_sub(stored.age) } else { 0 };
            resource.validity.set_fresh_until(monotonic_millis() + left);
            Arc::new(resource)
        });
        self.client.release(file.bytes);
        let resource = resource?;
        context.cache.insert(&resource);
        // A notification expires what is in the cache, which this may have missed.
        if restoration.is_outdated.load(Ordering::Relaxed) {
            resource.validity.set_fresh_until(monotonic_millis());
        }
        Some(resource)
    }
}
