//! Encoded variants of a file: a precompressed sibling, or a variant that is compressed once and cached.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use dunlin_coding::MIN_LENGTH;
use dunlin_http::semantics::ContentCoding;

use super::cache::resource::{
    EncodedVariant, Object, Origin, Representation, Resource, SearchGuard, SiblingVersion,
};
use super::digest::sha256;
use super::load;
use super::objects::siblings;
use super::render::{self, Description};
use super::shared::Shared;
use super::source::is_source;
use super::validators::{self, Basis, coded_tag};
use dunlin_config::{EtagKind, Settings};
use dunlin_fs::content::{ContentFile, StoredContent};
use dunlin_fs::failure::Failure;
use dunlin_fs::follow;
use dunlin_fs::metadata::FileMetadata;
use dunlin_fs::mode::Mode;
use dunlin_fs::open::open;
use dunlin_fs::roots::Root;
use dunlin_net::clock::monotonic_millis;

/// Queue weight (see [`dunlin_coding::memory`]) above which requests do not wait for compression: about two dozen small files,
/// or one of 2 MB.
const MAX_AWAITED_WEIGHT: u64 = 8 << 20;

/// Returns `true` if a variant of `resource` in this content coding may exist.
#[inline]
pub(super) fn is_possible(resource: &Resource, coding: ContentCoding) -> bool {
    let settings = &resource.settings;
    if resource.content_type.coding != ContentCoding::Identity {
        return false;
    }
    settings.precompressed.contains(&coding) && !resource.content_type.is_compressed
        || is_made(resource, coding)
}

fn is_made(resource: &Resource, coding: ContentCoding) -> bool {
    let settings = &resource.settings;
    let length = resource.identity.length;
    settings.compress.contains(&coding)
        && resource.identity.remote.is_none()
        && (MIN_LENGTH..=settings.compress_size).contains(&length)
        && resource.content_type.is_compressible
}

/// Finds a sibling of `resource` in this content coding, or compresses it, or finds that neither is worthwhile.
///
/// Returns when the result is known, or when it takes long: then compression continues in the background, or a later
/// request starts it if the queue is full.
pub async fn search(shared: &Arc<Shared>, resource: &Arc<Resource>, coding: ContentCoding) {
    if resource.identity.remote.is_some() && !resource.settings.precompressed.contains(&coding) {
        return;
    }
    if let Some(search) = resource.begin_search(coding) {
        if let Some(object) = resource.object() {
            find_object(shared, object, search, coding);
            return resource.searched(coding).await;
        }
        let for_job = Arc::clone(shared);
        // If the pool rejects the job, dropping the guard ends the search.
        let _ = shared.pools.files.submit(0, move || find(&for_job, search, coding));
    }
    resource.searched(coding).await;
}

/// Looks for a sibling, and submits compression if there is none.
fn find(shared: &Arc<Shared>, search: SearchGuard, coding: ContentCoding) {
    let resource = Arc::clone(search.resource());
    let opened = open_sibling(shared, &resource, coding);
    let found = opened.as_ref().map(|sibling| SiblingVersion::File(sibling.metadata));
    let form = opened.and_then(|opened| sibling(shared, &resource, coding, opened));
    conclude(shared, search, coding, form, found);
}

/// Requests the sibling of an object, and submits compression if there is none.
fn find_object(shared: &Arc<Shared>, object: &Object, search: SearchGuard, coding: ContentCoding) {
    // Dropping the guard ends the search: a reload has removed the bucket.
    let Some(client) = shared.buckets.client(&object.bucket).cloned() else { return };
    let (shared, handle) = (Arc::clone(shared), client.handle.clone());
    handle.spawn(async move {
        let resource = Arc::clone(search.resource());
        let is_wanted = resource.settings.precompressed.contains(&coding);
        let (form, sibling) = match is_wanted {
            true => siblings::find(&client, &shared.context, &resource, coding).await,
            false => (None, None),
        };
        conclude(&shared, search, coding, form, sibling);
    });
}

/// Ends a search with the sibling that was found, or submits compression.
fn conclude(
    shared: &Arc<Shared>,
    search: SearchGuard,
    coding: ContentCoding,
    form: Option<Representation>,
    found: Option<SiblingVersion>,
) {
    let resource = Arc::clone(search.resource());
    // Without a cache, every request would repeat the work.
    let is_made = is_made(&resource, coding) && resource.settings.cache.enabled;
    if form.is_some() || !is_made {
        return finish(shared, search, EncodedVariant { form, sibling: found });
    }
    let pool = &shared.pools.compression;
    if pool.weight() > MAX_AWAITED_WEIGHT {
        search.continue_in_background();
    }
    let for_job = Arc::clone(shared);
    let weight = dunlin_coding::memory(coding, resource.identity.length);
    // If the pool rejects the job, dropping the guard ends the search without a result.
    let _ = pool.submit(weight, move || {
        let form = compressed(&for_job, &resource, coding);
        finish(&for_job, search, EncodedVariant { form, sibling: found });
    });
}

fn finish(shared: &Shared, search: SearchGuard, encoded: EncodedVariant) {
    let resource = Arc::clone(search.resource());
    search.finish(encoded);
    shared.cache.recount(&resource);
}

/// Returns whether all siblings that were searched for are unchanged.
///
/// # Errors
/// [`Failure::WouldBlock`] when `mode` forbids waiting for a disk.
pub(super) fn has_same_siblings(
    shared: &Shared,
    root: &Root,
    resource: &Resource,
    mode: Mode,
) -> Result<bool, Failure> {
    for &coding in &resource.settings.precompressed {
        let Some(EncodedVariant { sibling: then, .. }) = resource.encoded(coding) else { continue };
        let name = sibling_name(resource, coding);
        let now = match open_checked(shared, root, &name, &resource.settings, mode) {
            Ok((_, metadata)) => Some(metadata),
            Err(Failure::WouldBlock) => return Err(Failure::WouldBlock),
            Err(_) => None,
        };
        let is_same = match (then, &now) {
            (Some(SiblingVersion::File(then)), Some(now)) => then.same_file(now),
            (then, now) => then.is_none() && now.is_none(),
        };
        if !is_same {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A precompressed file beside the original.
struct Sibling {
    root: Arc<Root>,
    file: Vec<u8>,
    fd: OwnedFd,
    metadata: FileMetadata,
    /// Time of opening, since 1970.
    seen: Duration,
}

fn sibling_name(resource: &Resource, coding: ContentCoding) -> Vec<u8> {
    [&*resource.file, coding.suffix().unwrap_or_default().as_bytes()].concat()
}

fn open_sibling(shared: &Shared, resource: &Resource, coding: ContentCoding) -> Option<Sibling> {
    let settings = &resource.settings;
    if !settings.precompressed.contains(&coding) {
        return None;
    }
    let root = shared.root(&settings.root).ok()?;
    let file = sibling_name(resource, coding);
    let seen = validators::now();
    let (fd, metadata) = open_checked(shared, &root, &file, settings, Mode::Blocking).ok()?;
    Some(Sibling { root, file, fd, metadata, seen })
}

/// Opens a file, unless it is protected or a program.
fn open_checked(
    shared: &Shared,
    root: &Root,
    file: &[u8],
    settings: &Settings,
    mode: Mode,
) -> Result<(OwnedFd, FileMetadata), Failure> {
    let fd = open(root, file, settings.symlinks, mode)?;
    let metadata = FileMetadata::of(&fd).map_err(|_| Failure::Broken)?;
    shared.protected.check(&metadata, mode)?;
    // It may be a link to a program.
    if is_source(shared, settings, root, file, &fd, &metadata) {
        return Err(Failure::Missing);
    }
    Ok((fd, metadata))
}

/// Returns the representation of a sibling (`NAME.gz`), if it is not older than the original.
fn sibling(
    shared: &Shared,
    resource: &Resource,
    coding: ContentCoding,
    sibling: Sibling,
) -> Option<Representation> {
    let settings = &resource.settings;
    let Sibling { root, file, fd, metadata, seen } = sibling;
    let file_system = root.file_system(&fd, &metadata);
    let basis = Basis { settings, metadata: &metadata, file_system, seen };
    let now = monotonic_millis();
    let watched = metadata.links <= 1
        && file_system.notifies
        && shared
            .watch
            .as_deref()
            .is_some_and(|watch| follow::follow_real(watch, &root, &fd, &file, &resource.validity));
    if !watched {
        resource.set_unwatched_sibling();
        resource.validity.limit_fresh_until(now + load::UNWATCHED);
    }
    if !basis.is_settled() {
        resource.validity.limit_fresh_until(now + load::until_settled(&basis));
    }
    let Origin::File(original) = &resource.origin else { return None };
    let newer = (metadata.modified, metadata.modified_nanos)
        >= (original.modified, original.modified_nanos);
    if !newer || metadata.file_type() != rustix::fs::FileType::RegularFile {
        return None;
    }
    let live = ContentFile::live(fd, metadata, settings.sendfile);
    let small = settings.cache.enabled && metadata.size <= settings.cache.file;
    let (stored, sha256) = if small || settings.etag == EtagKind::Sha256 {
        let live = StoredContent::File(Arc::new(live));
        let content = load::read_to_end(&live).ok()?;
        let sha256 = (settings.etag == EtagKind::Sha256).then(|| sha256(&content));
        // Without a cache, the copy that was hashed is sent.
        let is_copied = small || !settings.cache.enabled;
        (if is_copied { StoredContent::on_disk(content) } else { live }, sha256)
    } else {
        (StoredContent::File(Arc::new(live)), None)
    };
    let last_modified = basis.last_modified().max(resource.identity.last_modified);
    let description = Description {
        settings,
        content_type: &resource.content_type,
        coding,
        etag: basis.entity_tag(sha256.as_ref(), coding),
        last_modified,
        length: metadata.size,
        sha256,
        is_settled: basis.is_settled(),
        keep: settings.cache.enabled,
    };
    Some(render::representation(description, stored, shared.server_field))
}

fn compressed(
    shared: &Shared,
    resource: &Resource,
    coding: ContentCoding,
) -> Option<Representation> {
    let length = resource.identity.length;
    let encoded = load::with_reader(&resource.identity.body, |content| {
        dunlin_coding::compress(coding, content, length)
    });
    let encoded = match encoded {
        Ok(encoded) => encoded,
        Err(error) => {
            tracing::error!("compressing {}: {error}", String::from_utf8_lossy(&resource.file));
            return None;
        }
    };
    // Savings below 5 % are not worth the decompression.
    if encoded.len() as u64 > length / 20 * 19 {
        return None;
    }
    let original = &resource.identity;
    let sha256 = original.sha256.map(|_| sha256(&encoded));
    let description = Description {
        settings: &resource.settings,
        content_type: &resource.content_type,
        coding,
        etag: original.etag.as_ref().map(|tag| coded_tag(tag, sha256.as_ref(), coding)),
        last_modified: original.last_modified,
        length: encoded.len() as u64,
        sha256,
        is_settled: original.is_settled,
        keep: resource.is_cached(),
    };
    Some(render::representation(description, StoredContent::on_disk(encoded), shared.server_field))
}
