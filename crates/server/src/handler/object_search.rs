//! The search for objects, as far as it makes no response.

use std::sync::Arc;

use dunlin_config::ObjectRoot;
use dunlin_files::cache::resource::Resource;
use dunlin_files::cache::shared_cache::Key;
use dunlin_files::objects::bucket::Bucket;
use dunlin_files::objects::resolve::{self, ObjectResolver};
use dunlin_files::search::{Found, Wanted};

use crate::route::sites::Site;
use crate::worker::WorkerContext;

/// Returns the parameters of a search; `None` if the configuration has no such bucket.
pub(super) fn resolver(
    ctx: &WorkerContext,
    site: usize,
    root: &Arc<ObjectRoot>,
    (previous, keep, is_whole): (Option<Arc<Resource>>, bool, bool),
) -> Option<ObjectResolver> {
    let shared = &ctx.files.shared;
    let bucket: &Arc<Bucket> = shared.buckets.of(root)?;
    let (context, root, bucket) =
        (Arc::clone(&shared.context), Arc::clone(root), Arc::clone(bucket));
    Some(ObjectResolver { context, site, root, bucket, previous, keep, is_whole })
}

/// Returns the object at the decoded `path`, with its whole content; for pages of errors.
pub(super) async fn whole(
    ctx: &WorkerContext,
    site: &Site,
    root: &Arc<ObjectRoot>,
    path: &[u8],
) -> Option<Arc<Resource>> {
    let key = Key { site: site.serial, path: path.into() };
    let previous = ctx.files.shared.cache.get(&key);
    if let Some(resource) = &previous
        && resource.validity.is_fresh(ctx.clock.now())
    {
        return previous.filter(|resource| resource.identity.remote.is_none());
    }
    let resolver = resolver(ctx, site.serial, root, (previous, true, true))?;
    let config = site.config();
    let wanted = Wanted { site: config, route: &config.route(path), path, query: None };
    match resolve::resolve(&wanted, &resolver).await {
        Ok(Found::File(resource)) if resource.identity.remote.is_none() => Some(resource),
        _ => None,
    }
}
