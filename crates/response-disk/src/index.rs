//! The index of the files, by URL.

use std::hash::BuildHasher;

use dunlin_admission::store::{Cost, Inserted, Store};
use dunlin_response_cache::key::Key;
use dunlin_response_cache::memory::{MAX_VARIANTS, Purge};
use dunlin_response_cache::presented::Presented;
use dunlin_response_cache::stored::{StoredHead, has_tag};
use dunlin_response_cache::vary::Vary;
use hashbrown::{DefaultHashBuilder, HashSet};
use smallvec::SmallVec;

/// Bytes that a file system allocates at a time: files occupy multiples of them.
const BLOCK: u64 = 4096;
/// The most removals that are kept until all files are read. If there are more, no further files are used.
const MAX_REMOVALS: usize = 100_000;

/// The file of a response.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) number: u64,
    /// The bytes that the file occupies.
    pub(crate) bytes: u64,
    vary: Vary,
    tags: Box<[u8]>,
}

/// The files of the responses for one URL, the newest one first.
pub(crate) type Places = SmallVec<[Place; 1]>;

/// The entries that are removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal {
    /// All responses for a URL.
    Url(Key),
    /// The entries of a purge, of one site or of all.
    Purge(Option<usize>, Purge),
}

/// The files by URL, within bounds.
#[derive(Debug)]
pub(crate) struct Index {
    hasher: DefaultHashBuilder,
    pub(crate) store: Store<Key, Places>,
    /// The sites that there are. Responses of others are removed.
    sites: HashSet<usize>,
    /// There are responses to QUERY.
    has_queries: bool,
    /// The removals that apply to files that were not read yet; `None` when all are read.
    unread: Option<Removals>,
}

/// The removals before all files were read.
#[derive(Debug, Default)]
struct Removals {
    urls: HashSet<Key>,
    purges: Vec<(Option<usize>, Purge)>,
    /// There were too many: no file that was not read yet is used.
    has_overflowed: bool,
}

impl Place {
    pub(crate) fn new(number: u64, length: u64, head: &StoredHead) -> Self {
        let bytes = length.next_multiple_of(BLOCK);
        Self { number, bytes, vary: head.vary.clone(), tags: head.tags() }
    }
}

impl Index {
    /// Creates an empty index of at most `bytes` bytes of files and `entries` URLs.
    pub(crate) fn new(bytes: u64, entries: usize, sites: HashSet<usize>) -> Self {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let store = Store::new(Cost { bytes, entries, descriptors: 0 });
        let hasher = DefaultHashBuilder::default();
        Self { hasher, store, sites, has_queries: false, unread: Some(Removals::default()) }
    }

    /// Returns the file of the response that a request selects, or `Err(true)` if there are responses for other values of the
    /// selecting fields. Counts the use.
    pub(crate) fn find(&mut self, key: &Key, request: &dyn Presented) -> Result<&Place, bool> {
        let hash = self.count(key);
        let places = self.store.get(hash, key).ok_or(false)?;
        places.iter().find(|place| place.vary.matches(request)).ok_or(true)
    }

    /// Returns the newest file of a URL. Counts the use.
    pub(crate) fn find_first(&mut self, key: &Key) -> Option<&Place> {
        let hash = self.count(key);
        self.store.get(hash, key)?.first()
    }

    /// Counts a use of a URL. Returns its hash.
    pub(crate) fn count(&mut self, key: &Key) -> u64 {
        let hash = self.hasher.hash_one(key);
        self.store.count(hash);
        hash
    }

    /// Returns `true` if the admission policy accepts a response.
    pub(crate) fn admits(&mut self, key: &Key) -> bool {
        let hash = self.hasher.hash_one(key);
        self.sites.contains(&key.site)
            && (self.store.get(hash, key).is_some()
                || self.store.has_room()
                || self.store.would_displace(hash))
    }

    /// Returns `true` if a file is the one of a response for that URL.
    pub(crate) fn has(&self, key: &Key, number: u64) -> bool {
        let places = self.store.get(self.hasher.hash_one(key), key);
        places.is_some_and(|places| places.iter().any(|place| place.number == number))
    }

    /// Adds a file. Returns the numbers of those that it replaces, and of those that made room for it or, if it was not admitted, its
    /// own.
    pub(crate) fn insert(&mut self, key: Key, place: Place) -> Outcome {
        let hash = self.hasher.hash_one(&key);
        let number = place.number;
        let mut outcome = Outcome::default();
        if !self.sites.contains(&key.site) {
            outcome.removed.push(number);
            return outcome;
        }
        self.has_queries |= key.url.contains(&b'\n');
        let mut places = Places::from_iter([place]);
        for other in self.store.get(hash, &key).into_iter().flatten() {
            if other.number == number {
                continue;
            }
            let is_same = places.first().is_some_and(|place| place.vary.is_same(&other.vary));
            match is_same || places.len() >= MAX_VARIANTS {
                true => outcome.removed.push(other.number),
                false => places.push(other.clone()),
            }
        }
        let cost = cost(&places);
        match self.store.insert((hash, key), places, cost) {
            Inserted::Stored { evicted, .. } => {
                outcome.is_stored = true;
                outcome.evicted = evicted.len();
                let files = evicted.iter().flat_map(|(places, _)| places);
                outcome.removed.extend(files.map(|place| place.number));
            }
            Inserted::Rejected => outcome.removed = vec![number],
        }
        outcome
    }

    /// Adds a file that another process has written, unless there is a newer one. Returns the numbers of the files to remove.
    pub(crate) fn insert_read(&mut self, key: Key, place: Place) -> Outcome {
        let hash = self.hasher.hash_one(&key);
        let is_unwanted =
            self.unread.as_ref().is_none_or(|removals| removals.concern(&key, &place));
        let mut others = self.store.get(hash, &key).into_iter().flatten();
        let is_old =
            others.any(|other| other.vary.is_same(&place.vary) && other.number > place.number);
        if is_unwanted || is_old {
            return Outcome { removed: vec![place.number], ..Outcome::default() };
        }
        self.insert(key, place)
    }

    /// All files are read.
    pub(crate) fn end_reading(&mut self) {
        self.unread = None;
    }

    /// Forgets a file that cannot be used.
    pub(crate) fn forget(&mut self, key: &Key, number: u64) {
        let hash = self.hasher.hash_one(key);
        let Some(mut places) = self.store.remove(hash, key) else { return };
        places.retain(|place| place.number != number);
        if !places.is_empty() {
            let cost = cost(&places);
            self.store.insert((hash, key.clone()), places, cost);
        }
    }

    /// Begins the removal of URLs: those that are found by their keys are removed. Returns them, the numbers of their files, and
    /// whether there may be others, which [`Disk::remove`](crate::Disk::remove) looks for in steps.
    pub(crate) fn begin_removal(&mut self, removal: &Removal) -> (Vec<Key>, Vec<u64>, bool) {
        if let Some(unread) = &mut self.unread {
            unread.add(removal);
        }
        let Removal::Url(key) = removal else { return (Vec::new(), Vec::new(), true) };
        let places = self.store.remove(self.hasher.hash_one(key), key);
        let keys = places.is_some().then(|| key.clone()).into_iter().collect();
        let files = places.iter().flatten().map(|place| place.number).collect();
        (keys, files, self.has_queries)
    }

    /// Removes the responses of all other sites. Returns the numbers of their files.
    pub(crate) fn retain_sites(&mut self, sites: HashSet<usize>) -> Vec<u64> {
        self.sites = sites;
        let sites = &self.sites;
        let removed = self.store.remove_if(|key, _, _| !sites.contains(&key.site));
        removed.iter().flatten().map(|place| place.number).collect()
    }

    /// Adds sites.
    pub(crate) fn add_sites(&mut self, sites: impl IntoIterator<Item = usize>) {
        self.sites.extend(sites);
    }

    /// Forgets all files.
    pub(crate) fn clear(&mut self) {
        self.store.remove_if(|_, _, _| true);
    }

    /// Returns the bytes of the files, and URLs.
    pub(crate) fn usage(&self) -> (u64, usize) {
        let used = self.store.used();
        (used.bytes as u64, used.entries)
    }
}

/// The changes that an insertion has made.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) is_stored: bool,
    /// The number of URLs that made room.
    pub(crate) evicted: usize,
    /// The numbers of files that are not in use.
    pub(crate) removed: Vec<u64>,
}

fn cost(places: &Places) -> Cost {
    let bytes = places.iter().map(|place| place.bytes).sum::<u64>();
    Cost { bytes: usize::try_from(bytes).unwrap_or(usize::MAX), entries: 1, descriptors: 0 }
}

impl Removal {
    /// Returns `true` if it concerns a URL with these files.
    pub(crate) fn concerns_any(&self, key: &Key, places: &Places) -> bool {
        places.iter().any(|place| self.concerns(key, &place.tags))
    }

    /// Returns `true` if it concerns a response with these tags.
    fn concerns(&self, key: &Key, tags: &[u8]) -> bool {
        match self {
            Self::Url(url) => url.site == key.site && url.url == without_content(&key.url),
            Self::Purge(site, purge) => {
                site.is_none_or(|site| site == key.site)
                    && is_url(&key.url)
                    && purge.concerns(&key.url, |tag| has_tag(tags, tag))
            }
        }
    }
}

impl Removals {
    fn add(&mut self, removal: &Removal) {
        if self.urls.len() + self.purges.len() >= MAX_REMOVALS {
            *self = Self { has_overflowed: true, ..Self::default() };
        }
        if self.has_overflowed {
            return;
        }
        match removal {
            Removal::Url(key) => {
                self.urls.insert(key.clone());
            }
            Removal::Purge(site, purge) => self.purges.push((*site, purge.clone())),
        }
    }

    fn concern(&self, key: &Key, place: &Place) -> bool {
        let url = Key { site: key.site, url: without_content(&key.url) };
        let is_purged = |(site, purge): &(Option<usize>, Purge)| {
            Removal::Purge(*site, purge.clone()).concerns(key, &place.tags)
        };
        self.has_overflowed
            || self.urls.contains(&url)
            || self.urls.contains(key)
            || self.purges.iter().any(is_purged)
    }
}

/// Returns `true` if a key is the URL of a response. Those of other content have no scheme, and purges do not concern them.
fn is_url(key: &[u8]) -> bool {
    key.starts_with(b"http://") || key.starts_with(b"https://")
}

/// Returns the URL of a key, without what identifies the content of a QUERY.
fn without_content(url: &[u8]) -> Box<[u8]> {
    url.split(|&byte| byte == b'\n').next().unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_removals_than_are_kept_concern_objects_too() {
        let key = |number: usize| Key { site: 1, url: format!("a/{number}").into_bytes().into() };
        let place = Place { number: 1, bytes: 1, vary: Vary::default(), tags: Box::default() };
        let mut removals = Removals::default();
        removals.add(&Removal::Purge(None, Purge::Everything));
        for number in 1..MAX_REMOVALS {
            removals.add(&Removal::Url(key(number)));
        }
        assert!(removals.concern(&key(1), &place) && !removals.concern(&key(0), &place));
        removals.add(&Removal::Url(key(MAX_REMOVALS)));
        assert!(removals.concern(&key(1), &place) && removals.concern(&key(0), &place));
    }
}
