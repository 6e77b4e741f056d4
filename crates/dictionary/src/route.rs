//! The dictionary for the pages of a route: from samples to a dictionary, and from one to the next.
//!
//! Samples are collected in rounds. The first rounds end with a dictionary; after the time of [`Terms::rotation`], another round shows
//! whether a dictionary of the present pages is worth that clients load it. Earlier dictionaries stay usable.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use super::history::History;
use super::train::{MAX_SAMPLES, Sample, coded_length, train};
use super::url_match::UrlMatch;
use super::{Hash, dcz, fields, sha256};

/// The dictionaries of a route. Its times are milliseconds of one clock.
#[derive(Debug)]
pub struct RouteDictionary {
    site: Box<str>,
    terms: Terms,
    urls: UrlMatch,
    state: Mutex<State>,
}

/// What a route states of its dictionary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// The path of the URLs for which clients use it, in which `*` is any text.
    pub path: Box<str>,
    /// The time after which it may be replaced.
    pub rotation: Duration,
}

/// A dictionary.
#[derive(Debug)]
pub struct Version {
    /// The SHA-256 of its content.
    pub hash: Hash,
    /// Its content.
    pub content: Bytes,
    /// The path of its URL.
    pub path: Box<str>,
    /// The value of `Use-As-Dictionary` with it.
    pub offer: Box<str>,
}

/// Permission to sample a response, and the memory for it. Dropping it gives it to another response.
#[derive(Debug)]
pub struct Slot {
    owner: Arc<RouteDictionary>,
    round: u64,
    visitor: u64,
    url: u64,
    /// `None` after the end.
    memory: Option<Memory>,
}

/// A dictionary that is to be made of the samples of a round. Dropping it leaves them for another attempt.
#[derive(Debug)]
pub struct Making(Arc<RouteDictionary>);

/// The memory of a sample, in the bound for all routes.
#[derive(Debug)]
struct Memory(());

#[derive(Debug, Default)]
struct State {
    /// The newest first.
    versions: VecDeque<Arc<Version>>,
    loading: Loading,
    samples: Vec<Sample>,
    memory: Vec<Memory>,
    /// The visitor and the URL of each sample that is collected or was.
    begun: Vec<(u64, u64)>,
    /// The number of the round.
    round: u64,
    /// The time of the next round, or of the first sample of this one.
    since: u64,
    /// A dictionary is being made of the samples.
    is_made: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Loading {
    #[default]
    Needed,
    Begun,
    Done,
}

/// The paths of dictionaries begin with this.
pub const PREFIX: &str = "/.dunlin/dictionary/";
/// Bytes of a sample, at most.
pub const MAX_SAMPLE: usize = 32 << 10;
/// An upper estimate of the memory in bytes that [`Making::run`] takes.
pub const MAKING_MEMORY: u64 = 32 << 20;
/// Bytes of the samples of all routes.
const MAX_SAMPLED: usize = 16 << 20;
/// Dictionaries of a route that are usable, with the present one.
const MAX_VERSIONS: usize = 4;
/// Samples after which a first dictionary is made, and after as many more another attempt.
const FIRST: usize = 6;
/// Samples of one visitor, and of one URL, in a round.
const OF_ONE: usize = 4;
/// A round with fewer samples ends after this time.
const ROUND: u64 = 600_000;
/// The time between two rounds without result, if there is no dictionary.
const RETRY: u64 = 60_000;

static SAMPLED: AtomicUsize = AtomicUsize::new(0);

impl RouteDictionary {
    /// Creates the dictionaries of a route of `site`, which is without one.
    pub fn new(site: &str, terms: &Terms) -> Self {
        let urls = UrlMatch::new(&terms.path);
        Self { site: site.into(), terms: terms.clone(), urls, state: Mutex::default() }
    }

    /// Returns what the route states.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Returns `true` if clients use the dictionary for the path of a URL.
    pub fn matches(&self, path: &[u8]) -> bool {
        self.urls.matches(path)
    }

    /// Returns the dictionary for clients that have none.
    pub fn current(&self) -> Option<Arc<Version>> {
        self.lock().versions.front().cloned()
    }

    /// Returns a dictionary that clients may have.
    pub fn find(&self, hash: &Hash) -> Option<Arc<Version>> {
        self.lock().versions.iter().find(|version| version.hash == *hash).cloned()
    }

    /// Returns the dictionary at a path.
    pub fn at_path(&self, path: &[u8]) -> Option<Arc<Version>> {
        self.lock().versions.iter().find(|version| version.path.as_bytes() == path).cloned()
    }

    /// Has the dictionaries be read again: the caller could not call [`RouteDictionary::load`].
    pub fn load_later(&self) {
        self.lock().loading = Loading::Needed;
    }

    /// Returns `true` if the caller is to call [`RouteDictionary::load`], once.
    pub fn needs_load(&self) -> bool {
        let mut state = self.lock();
        let is_needed = state.loading == Loading::Needed;
        if is_needed {
            state.loading = Loading::Begun;
        }
        is_needed
    }

    /// Reads the dictionaries that were made before a restart, once the history knows them. Reads files.
    pub fn load(&self, history: &History, now: u64) {
        let Some(found) = history.named(&self.site, &self.name()) else {
            self.lock().loading = Loading::Needed;
            return;
        };
        // What is read last is used last: the newest.
        let newest = found.iter().take(MAX_VERSIONS).rev();
        let contents: Vec<Bytes> = newest.filter_map(|found| history.read(found)).collect();
        let mut state = self.lock();
        state.loading = Loading::Done;
        for content in contents.into_iter().rev() {
            let version = self.version(content);
            if state.versions.len() < MAX_VERSIONS
                && !state.versions.iter().any(|other| other.hash == version.hash)
            {
                state.versions.push_back(Arc::new(version));
            }
        }
        if !state.versions.is_empty() {
            state.since = now + self.rotation();
        }
    }

    /// Returns the permission to sample a response to a visitor, if one is wanted.
    pub fn begin_sample(self: &Arc<Self>, visitor: u64, url: u64, now: u64) -> Option<Slot> {
        let mut state = self.lock();
        let is_wanted = state.loading == Loading::Done && !state.is_made && now >= state.since;
        if !is_wanted || state.begun.len() >= MAX_SAMPLES {
            return None;
        }
        let count = |is_same: &dyn Fn(&(u64, u64)) -> bool| {
            state.begun.iter().filter(|of| is_same(of)).count()
        };
        let of_url = if self.urls.is_exact() { 0 } else { count(&|(_, other)| *other == url) };
        if of_url >= OF_ONE || count(&|(other, _)| *other == visitor) >= OF_ONE {
            return None;
        }
        let memory = Memory::take()?;
        if state.begun.is_empty() {
            state.since = now;
        }
        state.begun.push((visitor, url));
        let (owner, round) = (Arc::clone(self), state.round);
        Some(Slot { owner, round, visitor, url, memory: Some(memory) })
    }

    fn make(&self, history: &History, now: u64) {
        let (samples, current) = {
            let state = self.lock();
            (state.samples.clone(), state.versions.front().cloned())
        };
        // Who gets one URL only may be one visitor by a link that others have followed.
        let urls = if self.urls.is_exact() { 1 } else { 2 };
        let made =
            train(&samples, urls).filter(|made| is_worth_it(made, current.as_deref(), &samples));
        let made = made.filter(|made| history.keep_named(&self.site, &self.name(), made));
        let mut state = self.lock();
        let is_first = state.versions.is_empty();
        match made {
            Some(content) => {
                let version = self.version(content.into());
                state.versions.retain(|other| other.hash != version.hash);
                state.versions.push_front(Arc::new(version));
                state.versions.truncate(MAX_VERSIONS);
            }
            None if is_first && samples.len() < MAX_SAMPLES && now < state.since + ROUND => return,
            None => {}
        }
        state.end_round();
        state.since = now + if state.versions.is_empty() { RETRY } else { self.rotation() };
    }

    fn rotation(&self) -> u64 {
        u64::try_from(self.terms.rotation.as_millis()).unwrap_or(u64::MAX / 2)
    }

    /// Returns the name in the history. Nothing else is at this path.
    fn name(&self) -> Vec<u8> {
        [PREFIX.as_bytes(), self.terms.path.as_bytes()].concat()
    }

    fn version(&self, content: Bytes) -> Version {
        let hash = sha256(&content);
        let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        let offer = fields::use_as_dictionary(self.urls.as_url_pattern(), &[]);
        let offer = format!("{offer}, id=\"{}\", type=raw", &hex[..16]);
        Version { hash, content, path: format!("{PREFIX}{hex}").into(), offer: offer.into() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Version {
    /// Returns what content that is coded with it begins with.
    pub fn header(&self) -> [u8; dcz::HEADER] {
        dcz::header(&self.hash)
    }
}

impl Making {
    /// Makes the dictionary, and keeps it if it is worth that clients load it. It takes about 0.2 s. Writes a file.
    pub fn run(self, history: &History, now: u64) {
        self.0.make(history, now);
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        self.0.lock().is_made = false;
    }
}

impl State {
    fn end_round(&mut self) {
        self.samples.clear();
        self.memory.clear();
        self.begun.clear();
        self.round += 1;
    }
}

impl Slot {
    /// Adds the response to the samples. Returns the dictionary that is to be made now, if any.
    pub fn end(mut self, content: Bytes, now: u64) -> Option<Making> {
        let owner = Arc::clone(&self.owner);
        let (visitor, url) = (self.visitor, self.url);
        let mut state = owner.lock();
        if state.round != self.round || state.is_made {
            drop(state);
            return None;
        }
        state.memory.extend(self.memory.take());
        state.samples.push(Sample { visitor, url, content });
        let count = state.samples.len();
        let is_first = state.versions.is_empty();
        state.is_made = count >= MAX_SAMPLES
            || is_first && count.is_multiple_of(FIRST)
            || now > state.since + ROUND;
        state.is_made.then(|| Making(Arc::clone(&owner)))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.memory.take().is_none() {
            return;
        }
        let mut state = self.owner.lock();
        let own = (self.visitor, self.url);
        if state.round == self.round
            && let Some(at) = state.begun.iter().position(|of| *of == own)
        {
            state.begun.swap_remove(at);
        }
    }
}

impl Memory {
    fn take() -> Option<Self> {
        let before = SAMPLED.fetch_add(MAX_SAMPLE, Ordering::Relaxed);
        // Dropping it returns the bytes.
        let taken = Self(());
        (before + MAX_SAMPLE <= MAX_SAMPLED).then_some(taken)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        SAMPLED.fetch_sub(MAX_SAMPLE, Ordering::Relaxed);
    }
}

/// Returns `true` if a dictionary makes the samples a tenth smaller than the present one does, or none.
fn is_worth_it(made: &[u8], current: Option<&Version>, samples: &[Sample]) -> bool {
    let now = current.map_or(&b""[..], |version| &version.content);
    match (coded_length(made, samples), coded_length(now, samples)) {
        (Ok(with), Ok(now)) => with.saturating_mul(10) < now.saturating_mul(9),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Bounds;

    const HOUR: u64 = 3_600_000;

    fn made(path: &str) -> Arc<RouteDictionary> {
        let terms = Terms { path: path.into(), rotation: Duration::from_secs(3600) };
        Arc::new(RouteDictionary::new("a.example", &terms))
    }

    fn history(directory: Option<&std::path::Path>) -> History {
        let history =
            History::new(directory.map(Into::into), Bounds { bytes: 1 << 20, versions: 100 });
        history.load();
        history
    }

    fn loaded(path: &str, history: &History) -> Arc<RouteDictionary> {
        let dictionary = made(path);
        assert!(dictionary.needs_load() && !dictionary.needs_load());
        dictionary.load(history, 0);
        dictionary
    }

    /// A page of a design.
    fn page(design: u64, number: u64) -> Bytes {
        let line = |n: u64| {
            format!(
                "<p class=\"{:x}\">line {n}</p>\n",
                (design << 32 | n).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            )
        };
        let own = |n: u64| {
            format!("<i>{:x}</i>\n", (number << 40 | n).wrapping_mul(0x9e37_79b9_7f4a_7c15))
        };
        (0..60).map(line).chain((0..20).map(own)).collect::<String>().into()
    }

    /// Samples pages; returns the number of those after which a dictionary was to be made.
    fn sample(
        dictionary: &Arc<RouteDictionary>,
        history: &History,
        design: u64,
        now: u64,
    ) -> Option<u64> {
        for number in 0..MAX_SAMPLES as u64 {
            let slot = dictionary.begin_sample(number, number % 9, now)?;
            if let Some(making) = slot.end(page(design, number), now) {
                making.run(history, now);
                return Some(number + 1);
            }
        }
        None
    }

    #[test]
    fn a_dictionary_follows_the_pages() {
        let history = history(None);
        let dictionary = loaded("/blog/*", &history);
        assert!(dictionary.current().is_none());
        assert_eq!(sample(&dictionary, &history, 1, 5), Some(6));
        let first = dictionary.current().unwrap();
        assert_eq!(
            &*first.offer,
            format!("match=\"/blog/*\", id=\"{}\", type=raw", &first.path[PREFIX.len()..][..16])
        );
        assert_eq!(first.hash, sha256(&first.content));
        assert!(dictionary.begin_sample(1, 1, HOUR).is_none(), "it is new");
        // The pages are the same: it stays.
        assert_eq!(sample(&dictionary, &history, 1, 2 * HOUR), Some(24));
        assert_eq!(dictionary.current().unwrap().hash, first.hash);
        assert_eq!(sample(&dictionary, &history, 2, 4 * HOUR), Some(24));
        let second = dictionary.current().unwrap();
        assert_ne!(second.hash, first.hash);
        for version in [&first, &second] {
            assert_eq!(dictionary.find(&version.hash).unwrap().content, version.content);
            assert_eq!(dictionary.at_path(version.path.as_bytes()).unwrap().hash, version.hash);
        }
        for design in 3..8 {
            sample(&dictionary, &history, design, 2 * HOUR * design);
        }
        assert!(dictionary.find(&first.hash).is_none() && dictionary.find(&second.hash).is_none());
        assert_eq!(dictionary.lock().versions.len(), MAX_VERSIONS);
    }

    #[test]
    fn dictionaries_survive_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let before = history(Some(directory.path()));
        let dictionary = loaded("/*", &before);
        sample(&dictionary, &before, 1, 5);
        sample(&dictionary, &before, 2, 2 * HOUR);
        let hashes = |dictionary: &RouteDictionary| {
            dictionary.lock().versions.iter().map(|version| version.hash).collect::<Vec<_>>()
        };
        assert_eq!(hashes(&dictionary).len(), 2);
        for _ in 0..2 {
            let after = history(Some(directory.path()));
            assert_eq!(hashes(&loaded("/*", &after)), hashes(&dictionary));
            assert!(hashes(&loaded("/other/*", &after)).is_empty());
        }
        // Nothing is sampled before the directory was read.
        let unknown =
            History::new(Some(directory.path().into()), Bounds { bytes: 1 << 20, versions: 100 });
        let early = loaded("/*", &unknown);
        assert!(early.begin_sample(1, 1, 5).is_none() && early.needs_load());
    }

    #[test]
    fn one_visitor_and_one_url_have_a_share_of_the_samples() {
        let history = history(None);
        let dictionary = loaded("/*", &history);
        let slots: Vec<Slot> =
            (0..30).filter_map(|url| dictionary.begin_sample(1, url, 0)).collect();
        assert_eq!(slots.len(), OF_ONE);
        let of_url: Vec<Slot> =
            (0..30).filter_map(|visitor| dictionary.begin_sample(visitor + 9, 77, 0)).collect();
        assert_eq!(of_url.len(), OF_ONE);
        let others: Vec<Slot> =
            (0..99).filter_map(|n| dictionary.begin_sample(100 + n, 100 + n, 0)).collect();
        assert_eq!(slots.len() + of_url.len() + others.len(), MAX_SAMPLES);
        // Responses that did not end leave their places to others.
        drop(others);
        assert!(dictionary.begin_sample(500, 500, 0).is_some());
        let exact = loaded("/", &history);
        let same: Vec<Slot> =
            (0..30).filter_map(|visitor| exact.begin_sample(visitor, 1, 0)).collect();
        assert_eq!(same.len(), MAX_SAMPLES);
    }

    #[test]
    fn pages_without_anything_in_common_have_no_dictionary() {
        let history = history(None);
        let dictionary = loaded("/*", &history);
        let mut attempts = 0;
        for number in 0..MAX_SAMPLES as u64 {
            let slot = dictionary.begin_sample(number, number, 0).unwrap();
            if let Some(making) = slot.end(page(number, number), 0) {
                attempts += 1;
                making.run(&history, 0);
            }
        }
        assert_eq!((attempts, dictionary.current().is_none()), (4, true));
        assert!(dictionary.begin_sample(1, 1, RETRY - 1).is_none());
        assert!(dictionary.begin_sample(1, 1, RETRY).is_some());
        assert_eq!(history.usage().0, 0);
    }
}
