//! Coded forms of a file: a sibling that stands beside it, or one made once and kept.

use std::sync::Arc;

use dunlin_http::semantics::Coding;

use super::load;
use super::open::open;
use super::render::{self, Description};
use super::resolve::Mode;
use crate::cache::stored::Facts;
use crate::cache::{Representation, Resource, Stored, StoredFile};
use crate::config::EtagKind;
use crate::event_loop::Shared;
use crate::handler::compress;

/// Below this size the fields that a coding needs outweigh what it saves.
const SMALLEST: u64 = 256;

/// Whether there may be a form of `resource` in that coding.
#[inline]
pub(super) fn is_possible(resource: &Resource, coding: Coding) -> bool {
    let settings = &resource.settings;
    settings.precompressed.contains(&coding) && !compress::is_compressed(&resource.media_type)
        || is_made(resource, coding)
}

fn is_made(resource: &Resource, coding: Coding) -> bool {
    let settings = &resource.settings;
    let length = resource.identity.length;
    settings.compress.contains(&coding)
        && (SMALLEST..=settings.compress_size).contains(&length)
        && compress::compressible(&resource.media_type)
}

/// Makes the form of `resource` in that coding, or finds that there is none worth having.
/// For the blocking pool.
pub(super) fn make(shared: &Shared, resource: &Resource, coding: Coding) -> Option<Representation> {
    sibling(shared, resource, coding).or_else(|| {
        // Without a cache the work would be done anew for each request.
        let made = is_made(resource, coding) && resource.settings.cache.enabled;
        made.then(|| compressed(shared, resource, coding)).flatten()
    })
}

/// `NAME.gz` and the like, when it is not older than the original.
fn sibling(shared: &Shared, resource: &Resource, coding: Coding) -> Option<Representation> {
    let settings = &resource.settings;
    if !settings.precompressed.contains(&coding) {
        return None;
    }
    let root = shared.roots.get(&settings.root).ok()?;
    let mut file = resource.file.to_vec();
    file.extend_from_slice(coding.suffix()?.as_bytes());
    let fd = open(&root, &file, settings.symlinks, Mode::Blocking).ok()?;
    let facts = Facts::of(&fd).ok()?;
    let original = &resource.facts;
    let newer =
        (facts.modified, facts.modified_nanos) >= (original.modified, original.modified_nanos);
    if !newer || facts.file_type() != rustix::fs::FileType::RegularFile {
        return None;
    }
    let live = StoredFile::live(fd, facts, settings.sendfile);
    let small = settings.cache.enabled && facts.size <= settings.cache.file;
    let (stored, sha256) = if small || settings.etag == EtagKind::Sha256 {
        let live = Stored::File(Arc::new(live));
        let content = load::read_to_end(&live).ok()?;
        let sha256 = (settings.etag == EtagKind::Sha256).then(|| compress::sha256(&content));
        (if small { Stored::lasting(content) } else { live }, sha256)
    } else {
        (Stored::File(Arc::new(live)), None)
    };
    Some(describe(shared, resource, coding, stored, facts.size, &facts, sha256))
}

fn compressed(shared: &Shared, resource: &Resource, coding: Coding) -> Option<Representation> {
    let content = load::read_to_end(&resource.identity.body).ok()?;
    let coded = match compress::compress(coding, &content) {
        Ok(coded) => coded,
        Err(error) => {
            tracing::error!("compressing {}: {error}", String::from_utf8_lossy(&resource.file));
            return None;
        }
    };
    // What saves less than a twentieth is not worth a client's time.
    if coded.len() as u64 > resource.identity.length / 20 * 19 {
        return None;
    }
    let length = coded.len() as u64;
    let sha256 = resource.identity.sha256.map(|_| compress::sha256(&coded));
    let facts = &resource.facts;
    Some(describe(shared, resource, coding, Stored::lasting(coded), length, facts, sha256))
}

fn describe(
    shared: &Shared,
    resource: &Resource,
    coding: Coding,
    stored: Stored,
    length: u64,
    facts: &Facts,
    sha256: Option<[u8; 32]>,
) -> Representation {
    let settings = &resource.settings;
    let description = Description {
        settings,
        media_type: &resource.media_type,
        coding,
        etag: load::entity_tag(settings, facts, sha256.as_ref(), coding),
        last_modified: resource.identity.last_modified,
        length,
        sha256,
    };
    render::representation(description, stored, shared.server_field())
}
