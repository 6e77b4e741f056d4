//! Versions of files that were sent as dictionaries, and dictionaries that the server has made, bounded, the least recently used of which make room.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;

use super::pattern::Pattern;
use super::record::{Key, MAX_HEAD, VersionName};
use super::{Hash, MAX_LENGTH, sha256};

/// Versions of files.
#[derive(Debug)]
pub struct History {
    state: Mutex<State>,
    bounds: Bounds,
    /// The directory of the records; `None` if they are in memory.
    directory: Option<PathBuf>,
    /// Counters since the start.
    pub counters: Counters,
}

/// The bounds of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of all versions.
    pub bytes: u64,
    /// Number of versions.
    pub versions: usize,
}

/// Counters since the start.
#[derive(Debug, Default)]
pub struct Counters {
    /// Versions that were kept.
    pub kept: AtomicU64,
    /// Versions that made room for others.
    pub evicted: AtomicU64,
    /// Records that were not as they were written, and failures of the disk.
    pub failures: AtomicU64,
}

/// A version that a client has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    key: Key,
    /// Length of its content in bytes.
    pub length: u64,
}

#[derive(Debug, Default)]
struct State {
    entries: BTreeMap<Key, Entry>,
    /// Keys by the time of their last use.
    by_use: BTreeMap<u64, Key>,
    uses: u64,
    bytes: u64,
    /// Nothing is written until then: the disk failed.
    pause: Option<Instant>,
    /// The records in the directory are known.
    is_loaded: bool,
}

#[derive(Debug)]
struct Entry {
    version: VersionName,
    length: u64,
    last_use: u64,
    /// The content, unless it is on disk.
    content: Option<Bytes>,
}

/// After a failure of the disk, nothing is written for this time.
const PAUSE: Duration = Duration::from_secs(30);

/// What a version takes besides its content, in bytes.
const OVERHEAD: u64 = 512;

impl History {
    /// Creates a history without versions; [`History::load`] reads those in `directory`.
    pub fn new(directory: Option<PathBuf>, bounds: Bounds) -> Self {
        Self { state: Mutex::default(), bounds, directory, counters: Counters::default() }
    }

    /// Returns the directory and the bounds.
    pub fn settings(&self) -> (Option<&Path>, Bounds) {
        (self.directory.as_deref(), self.bounds)
    }

    /// Returns the number of versions and the bytes of their content.
    pub fn usage(&self) -> (usize, u64) {
        let state = self.lock();
        (state.entries.len(), state.bytes)
    }

    /// Returns the version with this content that a client of the site may have for `path`.
    pub fn find(&self, site: &str, path: &[u8], content: &Hash) -> Option<Found> {
        let state = self.lock();
        let first = Key { content: *content, head: [0; 8] };
        let last = Key { content: *content, head: [0xff; 8] };
        let mut same = state.entries.range(first..=last);
        let (key, entry) = same.find(|(_, entry)| {
            let version = &entry.version;
            *version.site == *site && version.pattern.matches(path)
        })?;
        Some(Found { key: *key, length: entry.length })
    }

    /// Keeps a version of the file at `path`, and returns the pattern of its versions. `exists` returns `true` if there is a file at
    /// another path of its directory. Reads and writes files.
    pub fn keep(
        &self,
        site: &str,
        path: &[u8],
        content: &[u8],
        exists: impl Fn(&[u8]) -> bool,
    ) -> Option<Pattern> {
        let length = content.len() as u64;
        if length > MAX_LENGTH || length + OVERHEAD > self.bounds.bytes {
            return None;
        }
        let pattern = self.pattern(site, path, exists);
        let version =
            VersionName { site: site.into(), path: path.into(), pattern: pattern.clone() };
        self.keep_version(version, content).then_some(pattern)
    }

    /// Keeps a dictionary that is no file, under a name that no file of the site has. Returns `false` if that fails. Writes a file.
    pub fn keep_named(&self, site: &str, name: &[u8], content: &[u8]) -> bool {
        let pattern = Pattern::exact(name);
        let length = content.len() as u64;
        length <= MAX_LENGTH
            && length + OVERHEAD <= self.bounds.bytes
            && self.keep_version(
                VersionName { site: site.into(), path: name.into(), pattern },
                content,
            )
    }

    /// Returns the dictionaries of that name, those that were used last first, once the records of the directory are known.
    pub fn named(&self, site: &str, name: &[u8]) -> Option<Vec<Found>> {
        let state = self.lock();
        if self.directory.is_some() && !state.is_loaded {
            return None;
        }
        let keys = state.by_use.values().rev();
        let entries = keys.filter_map(|key| Some((key, state.entries.get(key)?)));
        let named = entries
            .filter(|(_, entry)| *entry.version.site == *site && *entry.version.path == *name);
        Some(named.map(|(key, entry)| Found { key: *key, length: entry.length }).collect())
    }

    fn keep_version(&self, version: VersionName, content: &[u8]) -> bool {
        let length = content.len() as u64;
        let Some(head) = version.head() else { return false };
        let key = Key::new(sha256(content), &head);
        {
            let mut state = self.lock();
            if state.entries.contains_key(&key) {
                state.touch(key);
                return true;
            }
            if state.pause.is_some_and(|until| Instant::now() < until) {
                return false;
            }
        }
        let in_memory = match &self.directory {
            None => Some(Bytes::copy_from_slice(content)),
            Some(directory) => {
                if let Err(error) = write(directory, &key.file_name(), &head, content) {
                    self.failed(&error);
                    return false;
                }
                None
            }
        };
        self.insert(key, version, length, in_memory);
        self.counters.kept.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Reads the content of a version. Returns `None`, and removes the version, if it is not as it was kept. Reads a file.
    pub fn read(&self, found: &Found) -> Option<Bytes> {
        let Found { key, length } = found;
        let in_memory = {
            let mut state = self.lock();
            let content = state.entries.get(key)?.content.clone();
            state.touch(*key);
            content
        };
        if in_memory.is_some() {
            return in_memory;
        }
        let path = self.directory.as_ref()?.join(key.file_name());
        match read(&path, key, *length) {
            Ok(content) => Some(content),
            Err(error) => {
                self.counters.failures.fetch_add(1, Ordering::Relaxed);
                tracing::warn!("dictionary {}: {error}; it is removed", path.display());
                self.remove(*key);
                None
            }
        }
    }

    /// Reads the heads of the records in the directory, the oldest first, and removes what is not a record. Reads files.
    pub fn load(&self) {
        self.load_records();
        self.lock().is_loaded = true;
    }

    fn load_records(&self) {
        let Some(directory) = &self.directory else { return };
        let mut records = match list(directory) {
            Ok(records) => records,
            // The first version creates the directory.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => return self.failed(&error),
        };
        records.sort_by_key(|(time, ..)| *time);
        for (_, key, path, size) in records {
            let parsed = read_head(&path).ok().flatten();
            let is_same = |(_, head): &(VersionName, Vec<u8>)| Key::new(key.content, head) == key;
            let Some((version, head)) = parsed.filter(is_same) else {
                self.counters.failures.fetch_add(1, Ordering::Relaxed);
                // What cannot be removed is not used.
                let _ = fs::remove_file(&path);
                continue;
            };
            let length = size.saturating_sub(head.len() as u64);
            if !self.lock().entries.contains_key(&key) {
                self.insert(key, version, length, None);
            }
        }
    }

    /// Returns the pattern of a path: by its hash, or by a version that no longer exists.
    fn pattern(&self, site: &str, path: &[u8], exists: impl Fn(&[u8]) -> bool) -> Pattern {
        let by_hash = Pattern::of(path);
        if !by_hash.is_exact() {
            return by_hash;
        }
        let state = self.lock();
        let stem = Pattern::stem(path);
        let of_site = state
            .entries
            .values()
            .filter(|entry| entry.version.path.starts_with(stem) && *entry.version.site == *site);
        let mut near: Vec<(Box<[u8]>, Pattern)> = Vec::new();
        for entry in of_site {
            let version = &entry.version;
            if !version.pattern.is_exact() && version.pattern.matches(path) {
                return version.pattern.clone();
            }
            near.extend(Pattern::between(&version.path, path).map(|it| (version.path.clone(), it)));
        }
        drop(state);
        let gone = near.into_iter().find(|(other, _)| !exists(other));
        gone.map_or(by_hash, |(_, pattern)| pattern)
    }

    fn insert(&self, key: Key, version: VersionName, length: u64, content: Option<Bytes>) {
        let mut removed = Vec::new();
        {
            let mut state = self.lock();
            state.uses += 1;
            let last_use = state.uses;
            let entry = Entry { version, length, last_use, content };
            if let Some(before) = state.entries.insert(key, entry) {
                state.by_use.remove(&before.last_use);
                state.bytes -= before.length + OVERHEAD;
            }
            state.by_use.insert(last_use, key);
            state.bytes += length + OVERHEAD;
            while state.bytes > self.bounds.bytes || state.entries.len() > self.bounds.versions {
                let Some((_, oldest)) = state.by_use.pop_first() else { break };
                state.remove(oldest);
                removed.push(oldest);
            }
        }
        self.counters.evicted.fetch_add(removed.len() as u64, Ordering::Relaxed);
        removed.iter().for_each(|key| self.remove_file(key));
    }

    fn remove(&self, key: Key) {
        self.lock().remove(key);
        self.remove_file(&key);
    }

    fn remove_file(&self, key: &Key) {
        if let Some(directory) = &self.directory {
            // Another process may have removed it.
            let _ = fs::remove_file(directory.join(key.file_name()));
        }
    }

    fn failed(&self, error: &io::Error) {
        self.counters.failures.fetch_add(1, Ordering::Relaxed);
        let directory = self.directory.as_deref().unwrap_or(Path::new(""));
        tracing::error!("dictionaries in {}: {error}", directory.display());
        self.lock().pause = Some(Instant::now() + PAUSE);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn touch(&mut self, key: Key) {
        self.uses += 1;
        if let Some(entry) = self.entries.get_mut(&key) {
            self.by_use.remove(&entry.last_use);
            entry.last_use = self.uses;
            self.by_use.insert(self.uses, key);
        }
    }

    fn remove(&mut self, key: Key) {
        if let Some(entry) = self.entries.remove(&key) {
            self.by_use.remove(&entry.last_use);
            self.bytes -= entry.length + OVERHEAD;
        }
    }
}

/// Writes a record aside and renames it. After a power failure it may be cut, which its SHA-256 shows.
fn write(directory: &Path, name: &str, head: &[u8], content: &[u8]) -> io::Result<()> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let aside = directory.join(format!(".{}-{number}", std::process::id()));
    let open = || File::options().write(true).create_new(true).mode(0o600).open(&aside);
    let mut file = match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
            open()?
        }
        result => result?,
    };
    let written = file.write_all(head).and_then(|()| file.write_all(content));
    let renamed = written.and_then(|()| fs::rename(&aside, directory.join(name)));
    renamed.inspect_err(|_| drop(fs::remove_file(&aside)))
}

/// Reads the content of a record, and marks the file as used.
fn read(path: &Path, key: &Key, length: u64) -> io::Result<Bytes> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "it is not as it was written");
    let file = File::open(path)?;
    let mut record = Vec::new();
    let max = length + MAX_HEAD as u64 + 1;
    (&file).take(max).read_to_end(&mut record)?;
    let (_, head) = VersionName::parse(&record).ok_or_else(wrong)?;
    let content = Bytes::from(record).slice(head..);
    if sha256(&content) != key.content {
        return Err(wrong());
    }
    // The order of uses after a restart is worth no error.
    let _ = file.set_modified(SystemTime::now());
    Ok(content)
}

fn read_head(path: &Path) -> io::Result<Option<(VersionName, Vec<u8>)>> {
    let mut start = Vec::new();
    File::open(path)?.take(MAX_HEAD as u64).read_to_end(&mut start)?;
    Ok(VersionName::parse(&start).map(|(version, length)| {
        start.truncate(length);
        (version, start)
    }))
}

/// Returns the records in a directory: time, key, path and size of each. Removes files that were not completed.
fn list(directory: &Path) -> io::Result<Vec<(SystemTime, Key, PathBuf, u64)>> {
    let mut records = Vec::new();
    for item in fs::read_dir(directory)? {
        let item = item?;
        let (name, path, metadata) = (item.file_name(), item.path(), item.metadata()?);
        let Some(name) = name.to_str().filter(|_| metadata.is_file()) else { continue };
        match Key::from_file_name(name) {
            Some(key) => records.push((metadata.modified()?, key, path, metadata.len())),
            None if name.starts_with('.') && is_old(&metadata) => drop(fs::remove_file(path)),
            None => {}
        }
    }
    Ok(records)
}

/// Returns `true` if no process writes the file any more.
fn is_old(metadata: &fs::Metadata) -> bool {
    let age = metadata.modified().ok().and_then(|time| time.elapsed().ok());
    age.is_some_and(|age| age > Duration::from_secs(600))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { bytes: 100_000, versions: 100 };
    const SITE: &str = "a.example";

    fn histories() -> [(History, Option<tempfile::TempDir>); 2] {
        let directory = tempfile::tempdir().unwrap();
        let on_disk = History::new(Some(directory.path().join("d")), BOUNDS);
        [(History::new(None, BOUNDS), None), (on_disk, Some(directory))]
    }

    fn keep(history: &History, path: &str, content: &[u8]) -> Option<String> {
        let pattern = history.keep(SITE, path.as_bytes(), content, |_| false);
        pattern.map(|pattern| pattern.to_url_pattern())
    }

    fn content(history: &History, path: &str, content: &[u8]) -> Option<Bytes> {
        history.read(&history.find(SITE, path.as_bytes(), &sha256(content))?)
    }

    #[test]
    fn a_version_is_found_for_the_same_file_and_its_next_versions_only() {
        for (history, _directory) in histories() {
            assert_eq!(keep(&history, "/app.3f2a.js", b"one").as_deref(), Some("/app.*.js"));
            for path in ["/app.3f2a.js", "/app.77ab.js"] {
                assert_eq!(content(&history, path, b"one").as_deref(), Some(&b"one"[..]), "{path}");
            }
            assert_eq!(content(&history, "/app.77ab.css", b"one"), None);
            assert_eq!(content(&history, "/app.77ab.js", b"two"), None);
            assert_eq!(history.find("b.example", b"/app.77ab.js", &sha256(b"one")), None);
            assert_eq!(history.usage(), (1, 3 + OVERHEAD));
        }
    }

    #[test]
    fn a_part_of_a_name_varies_if_the_predecessor_is_gone() {
        for (history, _directory) in histories() {
            let keep = |path: &str, exists: bool| {
                let pattern = history.keep(SITE, path.as_bytes(), path.as_bytes(), |_| exists);
                pattern.unwrap().to_url_pattern()
            };
            assert_eq!(keep("/lib-1.2.js", true), "/lib-1.2.js");
            assert_eq!(keep("/lib-1.3.js", true), "/lib-1.3.js");
            assert_eq!(keep("/lib-1.4.js", false), "/lib-1.*.js");
            // It is known from now on.
            assert_eq!(keep("/lib-1.5.js", true), "/lib-1.*.js");
        }
    }

    #[test]
    fn the_least_recently_used_versions_make_room() {
        let bounds = Bounds { bytes: 10 * (1_000 + OVERHEAD), versions: 8 };
        for directory in [None, Some(tempfile::tempdir().unwrap())] {
            let path = directory.as_ref().map(|directory| directory.path().join("d"));
            let history = History::new(path.clone(), bounds);
            let file = |number: u8| vec![number; 1_000];
            for number in 0..8 {
                keep(&history, "/a.js", &file(number));
            }
            assert!(content(&history, "/a.js", &file(0)).is_some());
            keep(&history, "/a.js", &file(8));
            assert!(content(&history, "/a.js", &file(0)).is_some());
            assert_eq!(content(&history, "/a.js", &file(1)), None);
            assert_eq!(history.usage().0, 8);
            keep(&history, "/a.js", &[9; 8_000]);
            assert!(history.usage().1 <= bounds.bytes);
            assert_eq!(keep(&history, "/a.js", &vec![1; 20_000]), None);
            let files = path.map(|path| fs::read_dir(path).unwrap().count());
            assert!(files.is_none_or(|files| files == history.usage().0));
        }
    }

    #[test]
    fn versions_survive_a_restart_and_damaged_ones_are_discarded() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("d");
        let history = History::new(Some(path.clone()), BOUNDS);
        history.load();
        for content in [b"one".as_slice(), b"two", b"three", b"four"] {
            keep(&history, "/lib-1.js", content);
        }
        let file = |content: &[u8]| {
            let found = history.find(SITE, b"/lib-1.js", &sha256(content)).unwrap();
            path.join(found.key.file_name())
        };
        let whole = fs::read(file(b"two")).unwrap();
        fs::write(file(b"two"), &whole[..whole.len() - 1]).unwrap();
        fs::write(file(b"three"), b"dunlin").unwrap();
        let changed = fs::read(file(b"four")).unwrap();
        fs::write(file(b"four"), [&changed[..changed.len() - 1], b"R"].concat()).unwrap();
        fs::write(path.join("other"), b"of somebody else").unwrap();

        let again = History::new(Some(path.clone()), BOUNDS);
        again.load();
        assert_eq!(again.usage().0, 3, "the record without a head is gone");
        assert_eq!(content(&again, "/lib-1.js", b"one").as_deref(), Some(&b"one"[..]));
        for damaged in [b"two".as_slice(), b"three", b"four"] {
            assert_eq!(content(&again, "/lib-1.js", damaged), None);
        }
        assert_eq!(again.usage().0, 1);
        assert_eq!(again.counters.failures.load(Ordering::Relaxed), 3);
        assert_eq!(fs::read_dir(&path).unwrap().count(), 2, "the other file is left alone");
        // It is kept again.
        keep(&again, "/lib-1.js", b"two");
        assert_eq!(content(&again, "/lib-1.js", b"two").as_deref(), Some(&b"two"[..]));
    }

    #[test]
    fn named_dictionaries_are_no_versions_of_files() {
        for (history, _directory) in histories() {
            history.load();
            for content in [b"one".as_slice(), b"two", b"one"] {
                assert!(history.keep_named(SITE, b"/name/v1.a1b2.x", content));
            }
            keep(&history, "/name/v1.a1b2.js", b"three");
            let read = |history: &History| {
                let named = history.named(SITE, b"/name/v1.a1b2.x").unwrap();
                named.iter().map(|found| history.read(found).unwrap()).collect::<Vec<_>>()
            };
            assert_eq!(read(&history), [&b"one"[..], b"two"]);
            assert_eq!(history.named("b.example", b"/name/v1.a1b2.x"), Some(Vec::new()));
            assert_eq!(content(&history, "/name/v1.ffff.x", b"one"), None);
            let Some(directory) = history.settings().0 else { continue };
            let again = History::new(Some(directory.into()), BOUNDS);
            assert_eq!(again.named(SITE, b"/name/v1.a1b2.x"), None, "they are not known yet");
            again.load();
            assert_eq!(read(&again).len(), 2);
            assert!(!again.keep_named(SITE, b"x", &[0; 200_000]));
        }
    }

    #[test]
    fn a_directory_that_cannot_be_written_has_no_versions() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, b"").unwrap();
        let history = History::new(Some(path.join("d")), BOUNDS);
        assert_eq!(keep(&history, "/a.js", b"one"), None);
        assert_eq!(keep(&history, "/a.js", b"one"), None);
        assert_eq!(history.usage(), (0, 0));
        assert_eq!(history.counters.failures.load(Ordering::Relaxed), 1, "it pauses");
    }
}
