//! What one path is to a client: a file's representations with everything that heads need.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use dunlin_http::FieldLines;
use dunlin_http::semantics::{Coding, EntityTag};

use super::store::Key;
use super::stored::{Facts, Stored};
use super::watch::Version;
use crate::config::Settings;

/// A file as a path of a site gives it, with its coded forms as far as they were asked for.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) key: Key,
    pub(crate) settings: Arc<Settings>,
    /// Path of the file beneath the route's root, without a leading slash.
    pub(crate) file: Box<[u8]>,
    pub(crate) facts: Facts,
    pub(crate) media_type: Box<str>,
    pub(crate) identity: Representation,
    /// By [`coded_slot`]: not asked for yet, or none, or the coded form.
    coded: [OnceLock<Option<Representation>>; 3],
    pub(crate) version: Arc<Version>,
    /// It was answered with before.
    answered: AtomicBool,
}

/// One form of a resource, ready to be sent.
#[derive(Debug)]
pub(crate) struct Representation {
    pub(crate) coding: Coding,
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
    pub(crate) body: Stored,
    pub(crate) sha256: Option<[u8; 32]>,
}

impl Resource {
    pub(crate) fn new(
        key: Key,
        settings: Arc<Settings>,
        file: &[u8],
        facts: Facts,
        media_type: &str,
        identity: Representation,
        version: Arc<Version>,
    ) -> Self {
        Self {
            key,
            settings,
            file: file.into(),
            facts,
            media_type: media_type.into(),
            identity,
            coded: [const { OnceLock::new() }; 3],
            version,
            answered: AtomicBool::new(false),
        }
    }

    /// The same without its content, for ever.
    pub(crate) fn heads(&self) -> Self {
        let identity = self.identity.without_body();
        let version = Arc::new(Version::default());
        version.trust_until(u64::MAX);
        let (key, settings) = (self.key.clone(), Arc::clone(&self.settings));
        Self::new(key, settings, &self.file, self.facts, &self.media_type, identity, version)
    }

    /// The form in that coding: `None` when it was never asked for, `Some(None)` when there is
    /// none.
    #[inline]
    pub(crate) fn representation(&self, coding: Coding) -> Option<Option<&Representation>> {
        match coded_slot(coding) {
            None => Some(Some(&self.identity)),
            Some(slot) => self.coded[slot].get().map(Option::as_ref),
        }
    }

    /// The form in that coding, made by `make` when this is the first to ask; others who ask
    /// meanwhile wait for it.
    pub(crate) fn representation_or_make(
        &self,
        coding: Coding,
        make: impl FnOnce() -> Option<Representation>,
    ) -> Option<&Representation> {
        match coded_slot(coding) {
            None => Some(&self.identity),
            Some(slot) => self.coded[slot].get_or_init(make).as_ref(),
        }
    }

    /// Whether it is worth a lasting copy: it is sent from where that costs more, a copy of it is
    /// not larger than `most`, and this is not the first time that it is asked for.
    pub(crate) fn is_worth_a_copy(&self, most: u64) -> bool {
        let Stored::File(file) = &self.identity.body else { return false };
        file.can_be_bettered()
            && self.identity.length <= most
            && self.answered.swap(true, Ordering::Relaxed)
    }

    /// Bytes of memory and number of descriptors that keeping it takes.
    pub(crate) fn cost(&self) -> (usize, usize) {
        // Maps, keys and heads beside the content.
        const OVERHEAD: usize = 2048;
        let coded = self.coded.iter().filter_map(|slot| slot.get()?.as_ref());
        coded
            .chain([&self.identity])
            .map(|form| form.body.cost())
            .fold((OVERHEAD, 0), |(bytes, descriptors), (b, d)| (bytes + b, descriptors + d))
    }
}

impl Representation {
    /// The same fields, which go on stating the length of the body that is not there.
    fn without_body(&self) -> Self {
        Self {
            block: Bytes::copy_from_slice(&self.block[..self.head_length]),
            body: Stored::Memory(Bytes::new()),
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

fn coded_slot(coding: Coding) -> Option<usize> {
    match coding {
        Coding::Identity => None,
        Coding::Gzip => Some(0),
        Coding::Brotli => Some(1),
        Coding::Zstd => Some(2),
    }
}
