//! Files of routes with `cache = false`: each request checks the metadata and reads the content, but the response fields are
//! built once for each version of a file.

use std::rc::Rc;
use std::sync::Arc;

use dunlin_http::Request;
use dunlin_http::semantics::{ContentCoding, Method};

use super::cache::resource::Resource;
use super::cache::worker_cache::CacheEntry;
use super::load::{MAX_UNCACHED_READ, read};
use super::select::plain_coding;
use super::shared::Shared;
use super::worker::Worker;
use dunlin_config::EtagKind;
use dunlin_fs::content::{ContentFile, StoredContent};
use dunlin_fs::failure::Failure;
use dunlin_fs::metadata::FileMetadata;
use dunlin_fs::mode::Mode;
use dunlin_fs::open::open;

/// Maximum number of files whose fields a worker keeps, about 1.5 KB each.
pub(super) const MAX_ENTRIES: usize = 2048;

/// The entry for an uncached file and its content, for a response with the complete file. `site` and `path` identify the
/// requested path, `route` its route. Returns `None` if the file has changed since its fields were built, if the response is
/// another, and on errors.
pub fn find<R>(
    worker: &Worker<R>,
    request: &Request<'_>,
    (site, path): (usize, &[u8]),
    route: &Arc<R>,
) -> Option<(Rc<CacheEntry<R>>, StoredContent)> {
    let entry = worker.heads.borrow().get(site, path, worker.clock.now()).cloned()?;
    let is_plain = plain_coding(request, &entry) == Some(ContentCoding::Identity);
    if !is_plain || !Arc::ptr_eq(&entry.route, route) {
        return None;
    }
    let is_head = request.method() == Method::Head;
    let content = content(&worker.shared, &entry.resource, is_head).ok().flatten()?;
    Some((entry, content))
}

/// The content to send; `None` when the file has changed.
fn content(
    shared: &Shared,
    known: &Resource,
    is_head: bool,
) -> Result<Option<StoredContent>, Failure> {
    let settings = &known.settings;
    let root = shared.root(&settings.root).map_err(|_| Failure::Broken)?;
    let fd = open(&root, &known.file, settings.symlinks, Mode::Inline)?;
    // It may have become a link to a protected file.
    shared.protected.check(&fd, Mode::Inline)?;
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

/// Keeps the fields of a file that is sent, if the response depends only on the file.
pub fn learn<R>(
    worker: &Worker<R>,
    request: &Request<'_>,
    (site, path): (usize, &[u8]),
    route: &Arc<R>,
    resource: &Arc<Resource>,
) {
    let settings = &resource.settings;
    let is_own = path.strip_prefix(b"/") == Some(&*resource.file);
    let is_found = settings.try_files.is_empty() && settings.records.is_none();
    // The weak entity tag of a recently changed file becomes strong later.
    let lasts =
        resource.is_settled() && settings.etag != EtagKind::Sha256 && settings.expires.is_none();
    if !(is_own && is_found && lasts) {
        return;
    }
    let heads = Arc::new(resource.heads());
    let entry = CacheEntry::new((site, path), Arc::clone(route), heads, None);
    if plain_coding(request, &entry) == Some(ContentCoding::Identity) {
        worker.heads.borrow_mut().insert(&worker.shared.cache, entry);
    }
}
