//! The store of responses in memory, which all workers share, within bounds that the file cache shares.
//!
//! An entry has the responses for one URL, each for other values of the selecting request fields. The module
//! [`dunlin_admission::store`] describes what is admitted and evicted.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};

use dunlin_admission::common::{Cache, CommonStore, Entries, Entry, Id};
use dunlin_admission::store::Cost;
use dunlin_http::semantics::path;
use smallvec::SmallVec;

use crate::key::{self, Key};
use crate::presented::Presented;
use crate::stored::Stored;

/// The most responses for one URL. The oldest one makes room for another.
pub const MAX_VARIANTS: usize = 32;

/// The responses for one URL, the newest one first.
#[derive(Debug)]
struct Variants {
    stored: SmallVec<[Arc<Stored>; 1]>,
    counters: Arc<Counters>,
}

/// Responses by URL, within bounds.
#[derive(Debug)]
pub struct Memory {
    store: Arc<CommonStore>,
    /// Responses to QUERY were stored.
    has_queries: AtomicBool,
    /// Counts what was stored and removed; see [`Memory::changes`].
    changes: AtomicU64,
    /// Counters for metrics.
    pub counters: Arc<Counters>,
}

/// Counters since the start.
#[derive(Debug, Default)]
pub struct Counters {
    /// Responses that were stored.
    pub stored: AtomicU64,
    /// Responses that were not stored, as they are used less than those in the store.
    pub rejected: AtomicU64,
    /// Entries that made room for others.
    pub evicted: AtomicU64,
    /// Entries that were purged or invalidated.
    pub purged: AtomicU64,
}

/// The result of [`Memory::find`].
#[derive(Debug)]
pub enum Found {
    /// The newest response that the request selects.
    Response(Arc<Stored>),
    /// There are responses for other values of the selecting fields only.
    OtherVariants,
    /// There is no response for the URL.
    Nothing,
}

/// The responses that are purged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purge {
    /// Those whose path is this one, for every query, or begins with it.
    Path {
        /// The path in the form of keys.
        path: Box<[u8]>,
        /// All paths that begin with it.
        is_prefix: bool,
    },
    /// Those with this tag.
    Tag(Box<[u8]>),
    /// All.
    Everything,
}

impl Entry for Variants {
    fn evicted(&self, _: Cost) {
        self.counters.evicted.fetch_add(1, Ordering::Relaxed);
    }
}

impl Key {
    fn id(&self) -> Id<'_> {
        id(self.site, &self.url)
    }
}

impl Memory {
    /// No responses in that store, which other caches may share.
    pub fn new(store: Arc<CommonStore>) -> Self {
        let (has_queries, changes) = (AtomicBool::new(false), AtomicU64::new(0));
        Self { store, has_queries, changes, counters: Arc::default() }
    }

    /// Returns a number that changes before a call returns that has stored or removed responses. What was found since is still
    /// what [`Memory::find`] would find, or was evicted.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Returns the store.
    pub fn store(&self) -> &Arc<CommonStore> {
        &self.store
    }

    /// Returns the hash of the key with these parts.
    pub fn hash(&self, site: usize, url: &[u8]) -> u64 {
        self.store.hash(id(site, url))
    }

    /// Finds the response for a request of that URL. A request that is `sampled` counts as a use of its key.
    pub fn find(
        &self,
        (site, url): (usize, &[u8]),
        request: &dyn Presented,
        sampled: bool,
    ) -> Found {
        let id = id(site, url);
        let hash = self.store.hash(id);
        let mut entries = self.store.lock();
        if sampled {
            entries.count(hash);
        }
        let Some(variants) = CommonStore::get::<Variants>(&entries, hash, id) else {
            return Found::Nothing;
        };
        let found = variants.stored.iter().find(|stored| stored.head.vary.matches(request));
        found.map_or(Found::OtherVariants, |stored| Found::Response(Arc::clone(stored)))
    }

    /// Stores a response. It replaces the one for the same values of the selecting fields. Returns `false` if it exceeds the
    /// bounds or is used less than what is cached.
    pub fn insert(&self, key: &Key, stored: &Arc<Stored>) -> bool {
        let is_stored = self.insert_into(self.store.lock(), key, stored);
        let counter = if is_stored { &self.counters.stored } else { &self.counters.rejected };
        counter.fetch_add(1, Ordering::Relaxed);
        is_stored
    }

    fn insert_into(
        &self,
        entries: MutexGuard<'_, Entries>,
        key: &Key,
        stored: &Arc<Stored>,
    ) -> bool {
        let id = key.id();
        let hash = self.store.hash(id);
        if is_query(&key.url) {
            self.has_queries.store(true, Ordering::Relaxed);
        }
        let mut all: SmallVec<[Arc<Stored>; 1]> = SmallVec::from_iter([Arc::clone(stored)]);
        if let Some(others) = CommonStore::get::<Variants>(&entries, hash, id) {
            let is_other = |other: &&Arc<Stored>| !other.head.vary.is_same(&stored.head.vary);
            all.extend(others.stored.iter().filter(is_other).take(MAX_VARIANTS - 1).cloned());
        }
        let bytes = key.url.len() + all.iter().map(|stored| stored.size()).sum::<usize>();
        let cost = Cost { bytes, entries: 1, descriptors: 0 };
        let variants = Variants { stored: all, counters: Arc::clone(&self.counters) };
        let is_stored = self.store.insert(entries, (hash, id), Arc::new(variants), cost).is_ok();
        self.note_change();
        is_stored
    }

    /// Stores a response that was stored before, unless there is one for the same values of the selecting fields, which is newer.
    /// Returns the one that is stored.
    ///
    /// # Errors
    /// The response, if it is not stored.
    pub fn restore(&self, key: &Key, stored: Arc<Stored>) -> Result<Arc<Stored>, Arc<Stored>> {
        let entries = self.store.lock();
        let hash = self.store.hash(key.id());
        if let Some(others) = CommonStore::get::<Variants>(&entries, hash, key.id()) {
            let is_same = |other: &&Arc<Stored>| other.head.vary.is_same(&stored.head.vary);
            if let Some(newer) = others.stored.iter().find(is_same) {
                return Ok(Arc::clone(newer));
            }
        }
        match self.insert_into(entries, key, &stored) {
            true => Ok(stored),
            false => Err(stored),
        }
    }

    /// Removes all responses for a URL.
    pub fn remove(&self, key: &Key) {
        let hash = self.store.hash(key.id());
        let mut removed = usize::from(self.store.lock().remove(hash, &key.id().to_key()).is_some());
        if self.has_queries.load(Ordering::Relaxed) && !is_query(&key.url) {
            removed += self.remove_if(|site, url, _| {
                let rest = url.strip_prefix(&*key.url);
                site == key.site && rest.is_some_and(|rest| rest.starts_with(b"\n"))
            });
        }
        self.note_change();
        self.counters.purged.fetch_add(removed as u64, Ordering::Relaxed);
    }

    /// Removes responses of the site with that number, or of all sites, in steps between which other threads use the store. Returns
    /// the URLs.
    pub fn purge(&self, site: Option<usize>, purge: &Purge) -> Vec<Key> {
        let keys = RefCell::new(Vec::new());
        let count = self.remove_if(|of, url, variants| {
            let mut heads = variants.stored.iter().map(|stored| &stored.head);
            let is_out = site.is_none_or(|site| of == site)
                && heads.any(|head| purge.concerns(url, |tag| head.has_tag(tag)));
            if is_out {
                keys.borrow_mut().push(Key { site: of, url: url.into() });
            }
            is_out
        });
        self.counters.purged.fetch_add(count as u64, Ordering::Relaxed);
        keys.into_inner()
    }

    /// Removes the responses of sites for which `has` returns false.
    pub fn retain_sites(&self, has: impl Fn(usize) -> bool) {
        self.remove_if(|site, _, _| !has(site));
    }

    /// Current bytes and URLs.
    pub fn usage(&self) -> (usize, usize) {
        let used = self.store.used_by(Cache::Responses);
        (used.bytes, used.entries)
    }

    /// Removes the entries whose site, URL and responses `is_out` accepts. Returns their number.
    fn remove_if(&self, is_out: impl Fn(usize, &[u8], &Variants) -> bool) -> usize {
        let is_out = |key: &dunlin_admission::common::Key, variants: &Variants, _| {
            is_out(key.site, &key.name, variants)
        };
        let removed = self.store.remove_if(Cache::Responses, is_out).len();
        self.note_change();
        removed
    }
}

fn id(site: usize, url: &[u8]) -> Id<'_> {
    Id { cache: Cache::Responses, site, name: url }
}

/// Returns `true` if a key is of a QUERY.
fn is_query(url: &[u8]) -> bool {
    url.contains(&b'\n')
}

impl Purge {
    /// Those for a path in any spelling, or with `*` at its end for all paths that begin with it.
    pub fn of_path(path: &str) -> Self {
        let (path, is_prefix) = path.strip_suffix('*').map_or((path, false), |path| (path, true));
        // The last segment of a prefix is not a whole one.
        let last = path.rfind('/').map_or(0, |slash| slash + 1);
        let (directory, rest) = if is_prefix { path.split_at(last) } else { (path, "") };
        // A percent sign that begins no encoding stands for itself.
        let normal = |path: &str| match key::normal(path.as_bytes()) {
            Some(normal) => normal.into_owned(),
            None => path::encode(path.as_bytes()).into_bytes(),
        };
        let rest = normal(&format!("/-{rest}"));
        let path = [&normal(directory), rest.get(2..).unwrap_or_default()].concat();
        match (&*path, is_prefix) {
            (b"/", true) => Self::Everything,
            (path, is_prefix) => Self::Path { path: path.into(), is_prefix },
        }
    }

    /// Returns `true` if it concerns a response for that URL, which has the tags for which `has_tag` returns true.
    pub fn concerns(&self, url: &[u8], has_tag: impl Fn(&[u8]) -> bool) -> bool {
        match self {
            Self::Path { path, is_prefix: false } => *key::path(url) == **path,
            Self::Path { path, is_prefix: true } => key::path(url).starts_with(path),
            Self::Tag(tag) => has_tag(tag),
            Self::Everything => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::freshness::Received;
    use crate::presented::Unchanged;
    use crate::storable::{Requested, Rules};
    use crate::stored::StoredHead;
    use crate::testing::{fields, request};
    use bytes::Bytes;
    use dunlin_http::Method;

    fn stored(pairs: &[(&str, &str)], request_fields: &str, body: &'static str) -> Arc<Stored> {
        let requested = Requested { method: Method::Get, is_authenticated: false, no_store: false };
        let rules = Rules { set_cookie: false, is_heuristic: true, lifetime: None, max_body: 1000 };
        let request = request("GET", "/", request_fields);
        let received = Received { date: None, unix: 784_111_777, at: 0, delay: 0 };
        let pairs: Vec<_> = pairs.iter().copied().chain([("Cache-Control", "max-age=9")]).collect();
        let head = StoredHead::new(
            requested,
            &Unchanged(request.as_request()),
            (200, &fields(&pairs)),
            received,
            &rules,
        );
        Arc::new(Stored { head: head.expect("stored"), body: Bytes::from_static(body.as_bytes()) })
    }

    fn empty(bytes: usize, entries: usize) -> Memory {
        Memory::new(CommonStore::new(Cost { bytes, entries, descriptors: 0 }))
    }

    fn key(site: usize, url: &str) -> Key {
        Key { site, url: url.as_bytes().into() }
    }

    fn body(memory: &Memory, site: usize, url: &str, request_fields: &str) -> Option<String> {
        let request = request("GET", "/", request_fields);
        match memory.find((site, url.as_bytes()), &Unchanged(request.as_request()), true) {
            Found::Response(stored) => Some(String::from_utf8_lossy(&stored.body).into()),
            Found::OtherVariants => Some("other".into()),
            Found::Nothing => None,
        }
    }

    #[test]
    fn each_variant_of_a_url_is_found_and_replaced() {
        let memory = empty(1 << 20, 100);
        let vary = [("Vary", "A")];
        let one = "A: 1\r\n";
        let two = "A: 2\r\n";
        assert!(memory.insert(&key(1, "u"), &stored(&vary, one, "first")));
        assert_eq!(body(&memory, 1, "u", one).as_deref(), Some("first"));
        assert_eq!(body(&memory, 1, "u", two).as_deref(), Some("other"));
        assert_eq!(body(&memory, 2, "u", one), None);
        assert_eq!(body(&memory, 1, "v", one), None);
        memory.insert(&key(1, "u"), &stored(&vary, two, "second"));
        memory.insert(&key(1, "u"), &stored(&vary, one, "third"));
        assert_eq!(body(&memory, 1, "u", one).as_deref(), Some("third"));
        assert_eq!(body(&memory, 1, "u", two).as_deref(), Some("second"));
        assert_eq!(memory.usage().1, 1);
        memory.remove(&key(1, "u"));
        assert_eq!((body(&memory, 1, "u", one), memory.usage()), (None, (0, 0)));
    }

    #[test]
    fn the_number_of_variants_is_bounded() {
        let memory = empty(1 << 20, 100);
        for number in 0..2 * MAX_VARIANTS {
            let line = format!("A: {number}\r\n");
            memory.insert(&key(1, "u"), &stored(&[("Vary", "A")], &line, "x"));
        }
        assert_eq!(body(&memory, 1, "u", "A: 0\r\n").as_deref(), Some("other"));
        assert_eq!(body(&memory, 1, "u", "A: 32\r\n").as_deref(), Some("x"));
        assert_eq!(body(&memory, 1, "u", "A: 63\r\n").as_deref(), Some("x"));
    }

    #[test]
    fn the_bounds_hold() {
        let memory = empty(10_000, 5);
        for number in 0..20 {
            memory.insert(&key(1, &format!("u{number}")), &stored(&[], "", "x"));
            let (bytes, entries) = memory.usage();
            assert!(bytes <= 10_000 && entries <= 5, "{bytes} {entries}");
        }
        let counters = &memory.counters;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        assert_eq!(count(&counters.stored) + count(&counters.rejected), 20);
        assert!(!empty(100, 5).insert(&key(1, "u"), &stored(&[], "", "x")));
    }

    #[test]
    fn a_purge_names_a_path_in_any_spelling() {
        for (text, urls, others) in [
            (
                "/a b",
                &["http://a/a%20b", "http://a/a%20b?q"][..],
                &["http://a/a", "http://a/a%20b/"][..],
            ),
            ("/a%20b", &["http://a/a%20b"], &["http://a/a%2520b"]),
            ("/%61/../b", &["http://a/b"], &["http://a/a/b"]),
            ("/b/*", &["http://a/b/", "http://a/b/c"], &["http://a/b", "http://a/bc"]),
            ("/b/.*", &["http://a/b/.x"], &["http://a/b/x"]),
            ("/b/%78*", &["http://a/b/x", "http://a/b/xy"], &["http://a/b/y"]),
            ("/b/100%*", &["http://a/b/100%25", "http://a/b/100%25x"], &["http://a/b/100"]),
            ("/a/b", &["http://a/a/b"], &["http://a/a%2Fb"]),
            ("/a%2fb", &["http://a/a%2Fb"], &["http://a/a/b"]),
            ("/*", &["http://a/", "http://a/x"], &[]),
        ] {
            let purge = Purge::of_path(text);
            let concerns = |url: &str| purge.concerns(url.as_bytes(), |_| false);
            assert!(urls.iter().all(|url| concerns(url)), "{text} {purge:?}");
            assert!(!others.iter().any(|url| concerns(url)), "{text} {purge:?}");
        }
    }

    #[test]
    fn responses_are_purged_by_path_tag_and_site() {
        let filled = || {
            let memory = empty(1 << 20, 100);
            memory.insert(&key(1, "http://a/x"), &stored(&[("Cache-Tag", "t, u")], "", ""));
            memory.insert(&key(1, "http://a/x?q"), &stored(&[], "", ""));
            memory.insert(&key(1, "http://a/x/y"), &stored(&[("Cache-Tag", "t")], "", ""));
            memory.insert(&key(2, "http://b/x"), &stored(&[("Surrogate-Key", "v t")], "", ""));
            memory
        };
        let path = |path: &str, is_prefix| Purge::Path { path: path.as_bytes().into(), is_prefix };
        let tag = |tag: &str| Purge::Tag(tag.as_bytes().into());
        for (site, purge, expected) in [
            (None, path("/x", false), 3),
            (Some(1), path("/x", false), 2),
            (None, path("/x", true), 4),
            (None, path("/y", true), 0),
            (None, tag("t"), 3),
            (None, tag("u"), 1),
            (Some(2), tag("t"), 1),
            (None, tag("w"), 0),
            (Some(1), Purge::Everything, 3),
        ] {
            let memory = filled();
            assert_eq!(memory.purge(site, &purge).len(), expected, "{site:?} {purge:?}");
            assert_eq!(memory.usage().1, 4 - expected);
        }
        let memory = filled();
        memory.retain_sites(|site| site == 2);
        assert_eq!(memory.usage().1, 1);
    }
}
