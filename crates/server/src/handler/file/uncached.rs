//! Files of routes with `cache = false`: each request checks the metadata and reads the content, but the response fields are
//! built once for each version of a file.

use std::sync::Arc;

use dunlin_http::Request;
use dunlin_http::semantics::{ContentCoding, Method};

use super::load::{MAX_UNCACHED_READ, read};
use super::plain_coding;
use crate::cache::Resource;
use crate::cache::worker_cache::CacheEntry;
use crate::config::EtagKind;
use crate::fs::content::{ContentFile, StoredContent};
use crate::fs::failure::Failure;
use crate::fs::metadata::FileMetadata;
use crate::fs::mode::Mode;
use crate::fs::open::open;
use crate::route::{CachedResponse, Reply, RouteMatch};
use crate::worker::WorkerContext;

/// Maximum number of files whose fields a worker keeps, about 1.5 KB each.
pub(crate) const MAX_ENTRIES: usize = 2048;

/// Responds with the complete file if it is unchanged since its fields were built. Returns `None` in all other cases,
/// including errors.
pub(super) fn answer(
    ctx: &WorkerContext,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
) -> Option<Reply> {
    let (site, now) = (matched.site.serial, ctx.clock.now());
    let entry = ctx.head_cache.borrow().get(site, matched.path, now).cloned()?;
    let is_plain = plain_coding(request, &entry) == Some(ContentCoding::Identity);
    if !is_plain || !Arc::ptr_eq(&entry.settings, matched.settings) {
        return None;
    }
    let content = content(ctx, &entry.resource, request.method() == Method::Head).ok().flatten()?;
    let (coding, content) = (ContentCoding::Identity, Some(content));
    let cached = CachedResponse { entry, coding, not_modified: false, cache: "off", content };
    Some(Reply::Cached(cached))
}

/// The content to send; `None` when the file has changed.
fn content(
    ctx: &WorkerContext,
    known: &Resource,
    is_head: bool,
) -> Result<Option<StoredContent>, Failure> {
    let settings = &known.settings;
    let root = ctx.shared.root(&settings.root).map_err(|_| Failure::Broken)?;
    let fd = open(&root, &known.file, settings.symlinks, Mode::Inline)?;
    // It may have become a link to a protected file.
    ctx.shared.protected.check(&fd, Mode::Inline)?;
    let is_unchanged =
        || FileMetadata::of(&fd).is_ok_and(|metadata| metadata.same_file(&known.metadata));
    let length = known.metadata.size;
    if is_head || length > MAX_UNCACHED_READ {
        let is_unchanged = is_unchanged();
        let live = ContentFile::live(fd, known.metadata, settings.sendfile);
        return Ok(is_unchanged.then(|| StoredContent::File(Arc::new(live))));
    }
    // Metadata that is equal after the read was equal during the read.
    let bytes = read(&fd, length, Mode::Inline)?;
    let is_whole = bytes.len() as u64 == length;
    Ok((is_whole && is_unchanged()).then(|| StoredContent::Memory(bytes.into())))
}

/// Keeps the fields of a file that was just sent, if the response depends on the file alone.
pub(super) fn learn(
    ctx: &WorkerContext,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    resource: &Arc<Resource>,
) {
    let settings = matched.settings;
    let is_own = matched.path.strip_prefix(b"/") == Some(&*resource.file);
    let is_found = settings.try_files.is_empty() && settings.records.is_none();
    // The weak entity tag of a recently changed file becomes strong later.
    let lasts =
        resource.is_settled() && settings.etag != EtagKind::Sha256 && settings.expires.is_none();
    if !(is_own && is_found && lasts) {
        return;
    }
    let entry =
        CacheEntry::new((matched.site.serial, matched.path), Arc::new(resource.heads()), None);
    if plain_coding(request, &entry) == Some(ContentCoding::Identity) {
        ctx.head_cache.borrow_mut().insert(&ctx.shared.cache, entry);
    }
}
