//! What one path is to a client: a file's representations with everything that heads need.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use dunlin_http::FieldLines;
use dunlin_http::semantics::{ContentCoding, EntityTag};
use tokio::sync::Notify;

use super::content::{FileMetadata, StoredContent};
use super::shared_cache::Key;
use super::watch::Validity;
use crate::config::Settings;
use crate::handler::media_type::ContentType;

/// A file as a path of a site gives it, with its coded forms as far as they were asked for.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) key: Key,
    pub(crate) settings: Arc<Settings>,
    /// Path of the file beneath the route's root, without a leading slash.
    pub(crate) file: Box<[u8]>,
    pub(crate) metadata: FileMetadata,
    pub(crate) content_type: ContentType,
    pub(crate) identity: Representation,
    /// By [`coded_slot`]: empty until the form is requested for the first time.
    encoded: [OnceLock<EncodedVariant>; 3],
    search: Search,
    /// No notification comes when some sibling changes.
    has_unwatched_sibling: AtomicBool,
    pub(crate) validity: Arc<Validity>,
    /// It was answered with before.
    answered: AtomicBool,
}

/// The outcome of the search for a coded form.
#[derive(Debug)]
pub(crate) struct EncodedVariant {
    pub(crate) form: Option<Representation>,
    /// The file beside the original (`NAME.gz`) as it was found, whether it is used or not.
    pub(crate) sibling: Option<FileMetadata>,
}

/// One form of a resource, ready to be sent.
#[derive(Debug)]
pub(crate) struct Representation {
    pub(crate) coding: ContentCoding,
    /// A number that no other representation has had.
    pub(crate) serial: u64,
    /// The fields of the plain 200 with the empty line, and the body when it is in memory: one
    /// stretch, so that answering with it is one copy.
    pub(crate) block: Bytes,
    /// Where in `block` the body begins.
    pub(crate) head_length: usize,
    /// The fields of the 304 with the empty line.
    pub(crate) head_not_modified: Box<[u8]>,
    /// The fields of the plain 200 but for Content-Length, for every other answer.
    pub(crate) fields: FieldLines,
    pub(crate) etag: Option<EntityTag>,
    /// Seconds since 1970.
    pub(crate) last_modified: Option<u64>,
    pub(crate) length: u64,
    pub(crate) body: StoredContent,
    pub(crate) sha256: Option<[u8; 32]>,
    /// Any later change of the file gives it other metadata.
    pub(crate) is_settled: bool,
}

impl Resource {
    pub(crate) fn new(
        key: Key,
        settings: Arc<Settings>,
        file: &[u8],
        metadata: FileMetadata,
        content_type: ContentType,
        identity: Representation,
        validity: Arc<Validity>,
    ) -> Self {
        Self {
            key,
            settings,
            file: file.into(),
            metadata,
            content_type,
            identity,
            encoded: [const { OnceLock::new() }; 3],
            search: Search::default(),
            has_unwatched_sibling: AtomicBool::new(false),
            validity,
            answered: AtomicBool::new(false),
        }
    }

    /// The same without its content, for ever.
    pub(crate) fn heads(&self) -> Self {
        let identity = self.identity.without_body();
        let validity = Arc::new(Validity::default());
        validity.set_fresh_until(u64::MAX);
        let (key, settings) = (self.key.clone(), Arc::clone(&self.settings));
        let content_type = self.content_type.clone();
        Self::new(key, settings, &self.file, self.metadata, content_type, identity, validity)
    }

    /// The form in that coding: `None` when it was never asked for, `Some(None)` when there is
    /// none.
    #[inline]
    pub(crate) fn representation(&self, coding: ContentCoding) -> Option<Option<&Representation>> {
        match coded_slot(coding) {
            None => Some(Some(&self.identity)),
            Some(slot) => self.encoded[slot].get().map(|encoded| encoded.form.as_ref()),
        }
    }

    /// Marks the search for the form in that coding as begun. `None` when it is known already or being
    /// searched for.
    pub(crate) fn begin_search(self: &Arc<Self>, coding: ContentCoding) -> Option<SearchGuard> {
        let slot = coded_slot(coding)?;
        let mut phases = self.search.phases.lock().unwrap_or_else(PoisonError::into_inner);
        if phases[slot] != Phase::Idle || self.encoded[slot].get().is_some() {
            return None;
        }
        phases[slot] = Phase::Awaited;
        Some(SearchGuard { resource: Arc::clone(self), slot })
    }

    /// Waits until the form in that coding is known, or its search needs time that no request should wait for.
    pub(crate) async fn searched(&self, coding: ContentCoding) {
        let Some(slot) = coded_slot(coding) else { return };
        loop {
            let mut changed = std::pin::pin!(self.search.changed.notified());
            changed.as_mut().enable();
            if self.search.phase(slot) != Phase::Awaited {
                return;
            }
            changed.await;
        }
    }

    /// The outcome of the search for the form in that coding, if there was one.
    pub(crate) fn encoded(&self, coding: ContentCoding) -> Option<&EncodedVariant> {
        self.encoded[coded_slot(coding)?].get()
    }

    /// Whether a later change of the file, or of one beside it, is certain to be recognized by its metadata.
    pub(crate) fn is_settled(&self) -> bool {
        let mut encoded = self.encoded.iter().filter_map(|slot| slot.get()?.form.as_ref());
        self.identity.is_settled && encoded.all(|form| form.is_settled)
    }

    /// Notes that changes of some sibling are not notified.
    pub(crate) fn set_unwatched_sibling(&self) {
        self.has_unwatched_sibling.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_unwatched_sibling(&self) -> bool {
        self.has_unwatched_sibling.load(Ordering::Relaxed)
    }

    /// Whether it is worth a lasting copy: it is sent from where that costs more, a copy of it is
    /// not larger than `most`, and this is not the first time that it is asked for.
    pub(crate) fn is_worth_a_copy(&self, most: u64) -> bool {
        let StoredContent::File(file) = &self.identity.body else { return false };
        file.can_be_bettered()
            && self.identity.length <= most
            && self.answered.swap(true, Ordering::Relaxed)
    }

    /// Bytes of memory and number of descriptors that keeping it takes.
    pub(crate) fn cost(&self) -> (usize, usize) {
        // Maps, keys and heads beside the content.
        const OVERHEAD: usize = 2048;
        let encoded = self.encoded.iter().filter_map(|slot| slot.get()?.form.as_ref());
        encoded
            .chain([&self.identity])
            .map(|form| form.body.cost())
            .fold((OVERHEAD, 0), |(bytes, descriptors), (b, d)| (bytes + b, descriptors + d))
    }
}

/// The search for coded forms of a resource, by [`coded_slot`].
#[derive(Debug, Default)]
struct Search {
    phases: Mutex<[Phase; 3]>,
    changed: Notify,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    /// Not begun, or ended.
    #[default]
    Idle,
    /// Requests wait for the end.
    Awaited,
    /// Requests are served another form meanwhile.
    Background,
}

/// A search under way. It ends when this is dropped, with a result or without.
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
    pub(crate) fn resource(&self) -> &Arc<Resource> {
        &self.resource
    }

    /// Lets waiting requests go on without the form.
    pub(crate) fn continue_in_background(&self) {
        self.resource.search.set(self.slot, Phase::Background);
    }

    /// Ends the search with its result.
    pub(crate) fn finish(self, encoded: EncodedVariant) {
        // One search at a time sets the slot, and only while it is empty.
        let _ = self.resource.encoded[self.slot].set(encoded);
    }
}

impl Drop for SearchGuard {
    fn drop(&mut self) {
        self.resource.search.set(self.slot, Phase::Idle);
    }
}

impl Representation {
    /// The same fields, which go on stating the length of the body that is not there.
    fn without_body(&self) -> Self {
        Self {
            block: Bytes::copy_from_slice(&self.block[..self.head_length]),
            body: StoredContent::Memory(Bytes::new()),
            head_not_modified: self.head_not_modified.clone(),
            fields: self.fields.clone(),
            etag: self.etag.clone(),
            ..*self
        }
    }

    /// A number for a new one.
    pub(crate) fn next_serial() -> u64 {
        static LAST: AtomicU64 = AtomicU64::new(0);
        LAST.fetch_add(1, Ordering::Relaxed) + 1
    }
}

fn coded_slot(coding: ContentCoding) -> Option<usize> {
    match coding {
        ContentCoding::Identity => None,
        ContentCoding::Gzip => Some(0),
        ContentCoding::Brotli => Some(1),
        ContentCoding::Zstd => Some(2),
    }
}
