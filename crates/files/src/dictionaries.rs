//! Files as compression dictionaries (RFC 9842): a client that has an old version of a file gets the difference to the new one.
//!
//! A file is offered as a dictionary once a copy of it is kept. A form for a dictionary is made once, and kept with the file.

pub mod counters;
pub(crate) mod forms;
pub(crate) mod rules;
pub(crate) mod turns;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dunlin_coding::compress;
use dunlin_dictionary::history::Found;
use dunlin_dictionary::pattern::Pattern;
use dunlin_dictionary::{Hash, dcz, fields};
use dunlin_fs::content::StoredContent;
use dunlin_fs::mode::Mode;
use dunlin_fs::open::open;
use dunlin_http::semantics::{ContentCoding, EntityTag};
use dunlin_http::{FieldName, Request};
use tokio::sync::oneshot;

use self::forms::Form;
use super::cache::resource::{Representation, Resource};
use super::digest::sha256;
use super::load;
use super::render::{self, Description};
use super::shared::Shared;
use super::validators::hex;

/// Work that precedes a response.
#[derive(Debug)]
pub struct Work {
    resource: Arc<Resource>,
    /// A copy is to be kept.
    keeps: bool,
    /// The form for this dictionary is to be made.
    makes: Option<(Hash, Found)>,
}

/// Returns the dictionary that the client has and may use for the file.
fn available(request: &Request<'_>, resource: &Resource) -> Option<Hash> {
    if request.has(FieldName::Authorization) || !request.has(FieldName::AcceptEncoding) {
        return None;
    }
    let hash = fields::wanted(request)?;
    let allowed = resource.identity.fields.get("Access-Control-Allow-Origin");
    fields::is_readable(request, allowed).then_some(hash)
}

/// Returns what is to be done before the response to a request of a secure connection, if anything.
pub fn work(shared: &Shared, resource: &Arc<Resource>, request: &Request<'_>) -> Option<Work> {
    let dictionaries = resource.dictionaries.as_deref()?;
    if !resource.is_cached() {
        return None;
    }
    let keeps = !request.has(FieldName::Authorization)
        && !dictionaries.is_begun.load(Ordering::Relaxed)
        && !dictionaries.is_begun.swap(true, Ordering::Relaxed);
    let makes = available(request, resource).and_then(|hash| {
        let site = resource.settings.dictionary.as_deref()?;
        let found = shared.history.find(site, &resource.key.path, &hash)?;
        dictionaries.reserve(hash).then_some((hash, found))
    });
    (keeps || makes.is_some()).then(|| Work { resource: Arc::clone(resource), keeps, makes })
}

/// Returns the representation for the dictionary that the client has.
pub fn form(request: &Request<'_>, resource: &Resource) -> Option<Arc<Representation>> {
    let dictionaries = resource.dictionaries.as_deref()?;
    let hash = available(request, resource)?;
    let forms = dictionaries.forms();
    forms.iter().find_map(|(known, form)| match form {
        Form::Made(form) if *known == hash => Some(Arc::clone(form)),
        _ => None,
    })
}

/// Returns the value of `Use-As-Dictionary` for the response to a request of a secure connection.
pub fn offer<'r>(request: &Request<'_>, resource: &'r Resource) -> Option<&'r str> {
    let offer = resource.dictionaries.as_deref()?.offer.get()?.as_deref();
    offer.filter(|_| !request.has(FieldName::Authorization))
}

impl Work {
    /// Does the work on threads of pools, and waits for it unless it takes long.
    pub async fn run(mut self, shared: &Arc<Shared>) {
        if std::mem::take(&mut self.keeps) {
            let (for_job, resource) = (Arc::clone(shared), Arc::clone(&self.resource));
            // If the pool rejects the job, the file is not offered.
            let _ = shared.pools.files.run(move || keep(&for_job, &resource)).await;
        }
        let Some((_, found)) = &self.makes else { return };
        let length = self.resource.identity.length;
        let Some(turn) = shared.turns.wait(found.length + length).await else { return };
        let weight = dcz::memory(found.length, length) + found.length + length;
        let pool = &shared.pools.compression;
        let is_awaited = pool.weight() <= MAX_AWAITED_WEIGHT;
        let (done, end) = oneshot::channel::<()>();
        let for_job = Arc::clone(shared);
        // If the pool rejects the job, dropping the work ends the reservation.
        let submitted = pool.submit(weight, move || {
            self.make(&for_job);
            drop(turn);
            drop(done);
        });
        if submitted.is_ok() && is_awaited {
            // The channel is closed when the job has ended.
            let _ = end.await;
        }
    }

    fn make(mut self, shared: &Shared) {
        let Some((hash, found)) = self.makes.take() else { return };
        let form = match made(shared, &self.resource, &hash, &found) {
            Some(form) => Form::Made(Arc::new(form)),
            None => Form::Useless,
        };
        if let Some(dictionaries) = &self.resource.dictionaries {
            dictionaries.set(&hash, form);
        }
        shared.cache.recount(&self.resource);
    }
}

/// Weight of the pool above which requests do not wait: jobs of other codings take several seconds.
const MAX_AWAITED_WEIGHT: u64 = 128 << 20;

impl Drop for Work {
    fn drop(&mut self) {
        let Some(dictionaries) = &self.resource.dictionaries else { return };
        if self.keeps {
            dictionaries.is_begun.store(false, Ordering::Relaxed);
        }
        if let Some((hash, _)) = &self.makes {
            dictionaries.forms().retain(|(known, _)| known != hash);
        }
    }
}

/// Keeps a copy of the file, and offers it as a dictionary.
fn keep(shared: &Shared, resource: &Resource) {
    let Some(dictionaries) = &resource.dictionaries else { return };
    let pattern = kept(shared, resource);
    let value = pattern.map(|pattern| fields::use_as_dictionary(&pattern.to_url_pattern(), &[]));
    // Only one job keeps a copy.
    let _ = dictionaries.offer.set(value.map(Into::into));
}

fn kept(shared: &Shared, resource: &Resource) -> Option<Pattern> {
    let settings = &resource.settings;
    let site = settings.dictionary.as_deref()?;
    let content = load::read_to_end(&resource.identity.body).ok()?;
    let exists = |path: &[u8]| {
        let Some(file) = settings.file_path(path).filter(|_| resource.object().is_none()) else {
            return true;
        };
        let file = file.strip_prefix(b"/").unwrap_or(&file);
        let root = shared.root(&settings.root);
        root.is_ok_and(|root| open(&root, file, settings.symlinks, Mode::Blocking).is_ok())
    };
    shared.history.keep(site, &resource.key.path, &content, exists)
}

/// Returns the file compressed with a dictionary; `None` if that is not worth it.
fn made(
    shared: &Shared,
    resource: &Resource,
    hash: &Hash,
    found: &Found,
) -> Option<Representation> {
    let dictionary = shared.history.read(found)?;
    let content = load::read_to_end(&resource.identity.body).ok()?;
    let coded = dcz::compress(&dictionary, hash, &content)
        .inspect_err(|error| tracing::error!("compressing with a dictionary: {error}"))
        .ok()?;
    if coded.len() >= without(resource, &content, coded.len()) {
        return None;
    }
    let original = &resource.identity;
    let sha256 = original.sha256.map(|_| sha256(&coded));
    let description = Description {
        settings: &resource.settings,
        content_type: &resource.content_type,
        coding: ContentCoding::Identity,
        etag: original.etag.as_ref().map(|tag| tag_with(tag, hash)),
        last_modified: original.last_modified,
        length: coded.len() as u64,
        sha256,
        is_settled: original.is_settled,
        keep: false,
    };
    let stored = StoredContent::on_disk(coded);
    let mut form = render::representation(description, stored, shared.server_field);
    form.fields.set("Content-Encoding", dcz::NAME);
    Some(form)
}

/// Returns the length of the file in the best coding without a dictionary, as far as it matters for a form of `coded` bytes.
fn without(resource: &Resource, content: &[u8], coded: usize) -> usize {
    // A file of the same lines is several times smaller in any coding.
    if coded < content.len() / 8 {
        return content.len();
    }
    let codings = [ContentCoding::Zstd, ContentCoding::Brotli, ContentCoding::Gzip];
    let known = codings.iter().filter_map(|&coding| resource.representation(coding).flatten());
    known.map(|form| form.length as usize).min().unwrap_or_else(|| {
        let made = compress(ContentCoding::Zstd, &mut &*content, content.len() as u64);
        made.map_or(content.len(), |made| made.len())
    })
}

/// Returns the tag of the form for a dictionary.
fn tag_with(original: &EntityTag, hash: &Hash) -> EntityTag {
    let text = String::from_utf8_lossy(&original.opaque).into_owned();
    let text = format!("{text}-{}-{}", dcz::NAME, hex(&hash[..12]));
    EntityTag { weak: original.weak, ..EntityTag::strong(text) }
}
