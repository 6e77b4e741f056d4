//! Files of routes that keep no content: what the disk says of a file is asked for with each request and its
//! content read anew, but the fields of the answer are made once for each version of the file.

use std::sync::Arc;

use dunlin_http::Request;
use dunlin_http::semantics::{ContentCoding, Method};

use super::load::{READ_ANYWAY, read};
use super::open::open;
use super::plain_coding;
use super::resolve::Mode;
use super::search::Failure;
use crate::cache::content::FileMetadata;
use crate::cache::worker_cache::CacheEntry;
use crate::cache::{ContentFile, Resource, StoredContent};
use crate::config::EtagKind;
use crate::route::{CachedResponse, Reply, Subject};
use crate::worker::WorkerContext;

/// Files of which one worker keeps the fields, some 1.5 KB each.
pub(crate) const MAX_ENTRIES: usize = 2048;

/// Answers with the whole file, when it is what it was when its fields were made. Everything else, errors
/// too, is left to the search for the file.
pub(super) fn answer(
    ctx: &WorkerContext,
    request: &Request<'_>,
    subject: &Subject<'_>,
) -> Option<Reply> {
    let (site, now) = (subject.site.serial, ctx.clock.now());
    let entry = ctx.head_cache.borrow().get(site, subject.path, now).cloned()?;
    let is_plain = plain_coding(request, &entry) == Some(ContentCoding::Identity);
    if !is_plain || !Arc::ptr_eq(&entry.settings, subject.settings) {
        return None;
    }
    let content = content(ctx, &entry.resource, request.method() == Method::Head).ok().flatten()?;
    let (coding, content) = (ContentCoding::Identity, Some(content));
    let cached = CachedResponse { entry, coding, not_modified: false, cache: "off", content };
    Some(Reply::Cached(cached))
}

/// What is to be sent of the file; `None` when it is another than `known`.
fn content(
    ctx: &WorkerContext,
    known: &Resource,
    is_head: bool,
) -> Result<Option<StoredContent>, Failure> {
    let settings = &known.settings;
    let root = ctx.shared.root(&settings.root).map_err(|_| Failure::Broken)?;
    let fd = open(&root, &known.file, settings.symlinks, Mode::Inline)?;
    // It may be a protected file by now, under another name than this.
    ctx.shared.protected.check(&fd, Mode::Inline)?;
    let is_known =
        || FileMetadata::of(&fd).is_ok_and(|metadata| metadata.same_file(&known.metadata));
    let length = known.metadata.size;
    if is_head || length > READ_ANYWAY {
        let is_known = is_known();
        let live = ContentFile::live(fd, known.metadata, settings.sendfile);
        return Ok(is_known.then(|| StoredContent::File(Arc::new(live))));
    }
    // What is the same afterwards was the same all the time since its fields were made.
    let bytes = read(&fd, length, Mode::Inline)?;
    let is_whole = bytes.len() as u64 == length;
    Ok((is_whole && is_known()).then(|| StoredContent::Memory(bytes.into())))
}

/// Keeps the fields of a file that was just answered with, if the next request can be answered in the same
/// way by looking at the file alone.
pub(super) fn learn(
    ctx: &WorkerContext,
    request: &Request<'_>,
    subject: &Subject<'_>,
    resource: &Arc<Resource>,
) {
    let settings = subject.settings;
    let is_own = subject.path.strip_prefix(b"/") == Some(&*resource.file);
    let is_found = settings.try_files.is_empty() && settings.records.is_none();
    // A weak tag becomes a strong one when the file has settled.
    let lasts =
        resource.is_settled() && settings.etag != EtagKind::Sha256 && settings.expires.is_none();
    if !(is_own && is_found && lasts) {
        return;
    }
    let entry =
        CacheEntry::new((subject.site.serial, subject.path), Arc::new(resource.heads()), None);
    if plain_coding(request, &entry) == Some(ContentCoding::Identity) {
        ctx.head_cache.borrow_mut().insert(&ctx.shared.cache, entry);
    }
}
