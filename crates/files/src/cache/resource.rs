//! A cached file: its representations, with everything that response heads need.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use dunlin_http::FieldLines;
use dunlin_http::semantics::{ContentCoding, EntityTag};
use tokio::sync::Notify;

use super::shared_cache::{Cost, Key};
use crate::dictionaries::forms::Dictionaries;
use crate::media_type::ContentType;
use crate::objects::remote::RemoteContent;
use crate::objects::store::{ObjectMetadata, Version};
use dunlin_config::Settings;
use dunlin_fs::content::StoredContent;
use dunlin_fs::metadata::FileMetadata;
use dunlin_fs::validity::Validity;

/// The file behind a path of a site, with those of its encoded variants that were requested so far.
#[derive(Debug)]
pub struct Resource {
    /// The key in the shared cache.
    pub key: Key,
    /// The settings of the route.
    pub settings: Arc<Settings>,
    /// Path of the file beneath the route's root, without a leading slash.
    pub file: Box<[u8]>,
    /// The source of the content.
    pub(crate) origin: Origin,
    /// The content type by the name of the file.
    pub content_type: ContentType,
    /// The representation without content coding.
    pub identity: Representation,
    /// By [`variant_slot`]; empty until the variant is requested for the first time.
    encoded: [OnceLock<EncodedVariant>; 3],
    search: Search,
    /// `None` if it is no dictionary and depends on none.
    pub(crate) dictionaries: Option<Box<Dictionaries>>,
    /// A precompressed sibling is not watched for changes.
    has_unwatched_sibling: AtomicBool,
    /// The resource still describes the file.
    pub validity: Arc<Validity>,
    /// It was sent before.
    was_sent: AtomicBool,
    /// The shared cache has or had it.
    is_cached: AtomicBool,
}

/// The result of a search for an encoded variant.
#[derive(Debug)]
pub(crate) struct EncodedVariant {
    /// `None` when there is no variant worth sending.
    pub(crate) form: Option<Representation>,
    /// The version of the sibling (`NAME.gz`) when it was found, whether it is used or not.
    pub(crate) sibling: Option<SiblingVersion>,
}

/// A version of a precompressed sibling.
#[derive(Debug)]
pub(crate) enum SiblingVersion {
    /// The metadata of the file.
    File(FileMetadata),
    /// The version of the object.
    Object(Version),
}

/// The source of a resource's content.
#[derive(Debug)]
pub(crate) enum Origin {
    /// A file, with its metadata when the content was read.
    File(FileMetadata),
    /// An object.
    Object(Arc<Object>),
}

/// An object in object storage.
#[derive(Debug)]
pub(crate) struct Object {
    /// The URL of its bucket.
    pub(crate) bucket: Arc<str>,
    /// The key, as the store has it.
    pub(crate) key: String,
    /// The properties of the object when the content was read.
    pub(crate) metadata: ObjectMetadata,
}

/// A representation of a resource, ready to be sent.
#[derive(Debug)]
pub struct Representation {
    /// The content coding.
    pub coding: ContentCoding,
    /// A number that is unique among all representations.
    pub serial: u64,
    /// The fields of the 200 response with the empty line, followed by the body when it is in memory: contiguous, so
    /// that one copy sends both.
    pub block: Bytes,
    /// Offset of the body in `block`.
    pub head_length: usize,
    /// The fields of the 304 with the empty line.
    pub head_not_modified: Box<[u8]>,
    /// The fields of the 200 response without `Content-Length`, for all other responses.
    pub fields: FieldLines,
    /// The entity tag.
    pub etag: Option<EntityTag>,
    /// Seconds since 1970.
    pub last_modified: Option<u64>,
    /// Length of the body in bytes.
    pub length: u64,
    /// The body; empty if there is `remote`.
    pub body: StoredContent,
    /// The body, if it is not here. Each response streams it.
    pub remote: Option<Arc<dyn RemoteContent>>,
    /// SHA-256 of the body, if the route has entity tags of this kind.
    pub sha256: Option<[u8; 32]>,
    /// Every later change of the file changes its metadata.
    pub is_settled: bool,
}

impl Resource {
    /// Creates a resource without encoded variants.
    pub(crate) fn new(
        key: Key,
        settings: Arc<Settings>,
        file: &[u8],
        origin: Origin,
        content_type: ContentType,
        identity: Representation,
        validity: Arc<Validity>,
    ) -> Self {
        Self {
            key,
            dictionaries: None,
            settings,
            file: file.into(),
            origin,
            content_type,
            identity,
            encoded: [const { OnceLock::new() }; 3],
            search: Search::default(),
            has_unwatched_sibling: AtomicBool::new(false),
            validity,
            was_sent: AtomicBool::new(false),
            is_cached: AtomicBool::new(false),
        }
    }

    /// Returns the representation in that content coding: `None` when it was not searched for yet, `Some(None)` when there is
    /// none.
    #[inline]
    pub fn representation(&self, coding: ContentCoding) -> Option<Option<&Representation>> {
        match variant_slot(coding) {
            None => Some(Some(&self.identity)),
            Some(slot) => self.encoded[slot].get().map(|encoded| encoded.form.as_ref()),
        }
    }

    /// Returns the object that the content comes from.
    #[inline]
    pub(crate) fn object(&self) -> Option<&Arc<Object>> {
        match &self.origin {
            Origin::File(_) => None,
            Origin::Object(object) => Some(object),
        }
    }

    /// Begins the search for a variant. `None` when its result is known or a search runs.
    pub(crate) fn begin_search(self: &Arc<Self>, coding: ContentCoding) -> Option<SearchGuard> {
        let slot = variant_slot(coding)?;
        let mut phases = self.search.phases.lock().unwrap_or_else(PoisonError::into_inner);
        if phases[slot] != Phase::Idle || self.encoded[slot].get().is_some() {
            return None;
        }
        phases[slot] = Phase::Awaited;
        Some(SearchGuard { resource: Arc::clone(self), slot })
    }

    /// Waits until the result of the search is known, or the search continues in the background.
    pub(crate) async fn searched(&self, coding: ContentCoding) {
        let Some(slot) = variant_slot(coding) else { return };
        loop {
            let mut changed = std::pin::pin!(self.search.changed.notified());
            changed.as_mut().enable();
            if self.search.phase(slot) != Phase::Awaited {
                return;
            }
            changed.await;
        }
    }

    /// Returns the result of the search for a variant, if one has ended.
    pub(crate) fn encoded(&self, coding: ContentCoding) -> Option<&EncodedVariant> {
        self.encoded[variant_slot(coding)?].get()
    }

    /// Returns `true` if every later change of the file or of a sibling changes its metadata.
    pub(crate) fn is_settled(&self) -> bool {
        let mut encoded = self.encoded.iter().filter_map(|slot| slot.get()?.form.as_ref());
        self.identity.is_settled && encoded.all(|form| form.is_settled)
    }

    /// Records that a sibling is not watched for changes.
    pub(crate) fn set_unwatched_sibling(&self) {
        self.has_unwatched_sibling.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if a sibling is not watched for changes.
    pub(crate) fn has_unwatched_sibling(&self) -> bool {
        self.has_unwatched_sibling.load(Ordering::Relaxed)
    }

    /// Records that the shared cache has it.
    pub(crate) fn set_cached(&self) {
        self.is_cached.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if the shared cache has or had it. Otherwise it serves one request.
    pub fn is_cached(&self) -> bool {
        self.is_cached.load(Ordering::Relaxed)
    }

    /// Returns `true` if a copy on disk should replace the stored content: the copy is cheaper to send, has at most `max`
    /// bytes, and this is not the first request for the resource.
    pub(crate) fn is_worth_a_copy(&self, max: u64) -> bool {
        let StoredContent::File(file) = &self.identity.body else { return false };
        file.is_worth_copying()
            && self.identity.length <= max
            && self.was_sent.swap(true, Ordering::Relaxed)
    }

    /// Returns what it occupies.
    pub(crate) fn cost(&self) -> Cost {
        // Maps, keys and heads, in addition to the content.
        const OVERHEAD: usize = 2048;
        let encoded = self.encoded.iter().filter_map(|slot| slot.get()?.form.as_ref());
        let with_dictionaries = self.dictionaries.as_ref().map(|forms| forms.cost());
        let (bytes, descriptors) = encoded
            .chain([&self.identity])
            .map(|form| form.body.cost())
            .chain(with_dictionaries)
            .fold((OVERHEAD, 0), |(bytes, descriptors), (b, d)| (bytes + b, descriptors + d));
        Cost { bytes, entries: 1, descriptors }
    }
}

/// The state of the searches for encoded variants, by [`variant_slot`].
#[derive(Debug, Default)]
struct Search {
    phases: Mutex<[Phase; 3]>,
    changed: Notify,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    /// No search runs.
    #[default]
    Idle,
    /// Requests wait for the result.
    Awaited,
    /// Requests get another representation until it ends.
    Background,
}

/// A running search. Dropping it ends the search, with or without a result.
#[derive(Debug)]
pub(crate) struct SearchGuard {
    resource: Arc<Resource>,
    slot: usize,
}

impl Search {
    fn phase(&self, slot: usize) -> Phase {
        self.phases.lock().unwrap_or_else(PoisonError::into_inner)[slot]
    }

    fn set(&self, slot: usize, phase: Phase) {
        self.phases.lock().unwrap_or_else(PoisonError::into_inner)[slot] = phase;
        self.changed.notify_waiters();
    }
}

impl SearchGuard {
    /// Returns the resource whose variant is searched for.
    pub(crate) fn resource(&self) -> &Arc<Resource> {
        &self.resource
    }

    /// Stops making requests wait: they continue with another representation.
    pub(crate) fn continue_in_background(&self) {
        self.resource.search.set(self.slot, Phase::Background);
    }

    /// Ends the search with its result.
    pub(crate) fn finish(self, encoded: EncodedVariant) {
        // Only one search runs at a time, and only while the slot is empty.
        let _ = self.resource.encoded[self.slot].set(encoded);
    }
}

impl Drop for SearchGuard {
    fn drop(&mut self) {
        self.resource.search.set(self.slot, Phase::Idle);
    }
}

impl Representation {
    /// Returns the serial of a new representation.
    pub(crate) fn next_serial() -> u64 {
        static LAST: AtomicU64 = AtomicU64::new(0);
        LAST.fetch_add(1, Ordering::Relaxed) + 1
    }
}

#[inline]
fn variant_slot(coding: ContentCoding) -> Option<usize> {
    match coding {
        ContentCoding::Identity => None,
        ContentCoding::Gzip => Some(0),
        ContentCoding::Brotli => Some(1),
        ContentCoding::Zstd => Some(2),
    }
}
