//! The contents of large directories, kept for the next page.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::contents::Contents;
use dunlin_config::Symlinks;
use dunlin_fs::metadata::FileMetadata;

/// The time for which contents are used: names and their number follow from the times of the directory, but sizes and times
/// of files do not.
const KEEP: Duration = Duration::from_secs(10);

/// Memory of all contents together in bytes. It has room for one directory of the maximum size.
pub(super) const MAX_BYTES: usize = 64 << 20;

/// The contents of large directories that were read last.
#[derive(Debug, Default)]
pub struct ListingCache {
    /// The latest is the last.
    kept: Mutex<Vec<Kept>>,
}

/// The properties that determine the names of a listing, besides the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListingKey {
    pub(super) root: PathBuf,
    /// The decoded path of the directory.
    pub(super) path: Box<[u8]>,
    pub(super) hidden: bool,
    pub(super) symlinks: Symlinks,
}

/// A directory that was read.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) key: ListingKey,
    /// The metadata of the directory before it was read.
    pub(super) directory: FileMetadata,
    /// Every later change gives the directory other times, so that requests that arrive later may use the contents.
    pub(super) is_settled: bool,
    /// The time before [`Kept::directory`] was obtained.
    pub(super) started: Instant,
    pub(super) contents: Arc<Contents>,
}

impl ListingCache {
    /// Returns the contents of the directory for a request that arrived at this time: they were read later, or the directory
    /// has not changed since.
    pub(super) fn get(
        &self,
        key: &ListingKey,
        directory: &FileMetadata,
        arrived: Instant,
    ) -> Option<Arc<Contents>> {
        let entries = self.lock();
        let kept = entries.iter().find(|kept| kept.key == *key)?;
        let is_same =
            (kept.directory.device, kept.directory.inode) == (directory.device, directory.inode);
        let is_later = is_same && kept.started >= arrived;
        let is_unchanged = kept.is_settled && kept.directory.same_content(directory);
        let is_recent = arrived.saturating_duration_since(kept.started) < KEEP;
        (is_later || is_unchanged && is_recent).then(|| Arc::clone(&kept.contents))
    }

    /// Adds contents and evicts the oldest others as far as the memory requires.
    pub(super) fn insert(&self, new: Kept) {
        let mut entries = self.lock();
        let mut evicted: Vec<Kept> = entries.extract_if(.., |kept| kept.key == new.key).collect();
        entries.push(new);
        let bytes: usize = entries.iter().map(|kept| kept.contents.bytes()).sum();
        let mut excess = bytes.saturating_sub(MAX_BYTES);
        evicted.extend(entries.extract_if(.., |kept| {
            let is_evicted = excess > 0;
            excess = excess.saturating_sub(kept.contents.bytes());
            is_evicted
        }));
        // Freeing takes longer than other threads should wait.
        drop(entries);
        drop(evicted);
    }

    /// Releases contents that are too old to be used.
    pub fn expire(&self, now: Instant) {
        let is_old = |kept: &mut Kept| now.saturating_duration_since(kept.started) >= KEEP;
        let expired: Vec<Kept> = self.lock().extract_if(.., is_old).collect();
        drop(expired);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Kept>> {
        // No code panics under the lock.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRECTORY: FileMetadata = FileMetadata {
        device: 1,
        inode: 2,
        size: 3,
        modified: 4,
        modified_nanos: 5,
        changed: 6,
        changed_nanos: 7,
        links: 8,
        mode: 0o40755,
    };

    fn key(path: &[u8]) -> ListingKey {
        let symlinks = Symlinks::Beneath;
        ListingKey { root: "/srv".into(), path: path.into(), hidden: false, symlinks }
    }

    fn kept(path: &[u8], started: Instant, names: usize) -> Kept {
        let mut contents = Contents::default();
        for _ in 0..names {
            contents.push(&[b'x'; 255], false, 0, 0);
        }
        let contents = Arc::new(contents);
        Kept { key: key(path), directory: DIRECTORY, is_settled: true, started, contents }
    }

    #[test]
    fn contents_are_used_while_the_directory_is_unchanged_and_for_a_short_time() {
        let (cache, start) = (ListingCache::default(), Instant::now());
        let (later, late) = (start + KEEP / 2, start + KEEP);
        cache.insert(kept(b"/a/", start, 1));
        let is_used = |path: &[u8], directory: FileMetadata, arrived| {
            cache.get(&key(path), &directory, arrived).is_some()
        };
        assert!(is_used(b"/a/", DIRECTORY, later));
        assert!(!is_used(b"/b/", DIRECTORY, later));
        assert!(!is_used(b"/a/", DIRECTORY, late));
        for changed in [
            FileMetadata { inode: 9, ..DIRECTORY },
            FileMetadata { modified_nanos: 9, ..DIRECTORY },
            FileMetadata { changed_nanos: 9, ..DIRECTORY },
        ] {
            assert!(!is_used(b"/a/", changed, later));
        }
        cache.expire(later);
        assert!(is_used(b"/a/", DIRECTORY, later));
        cache.expire(late);
        assert!(cache.lock().is_empty());
    }

    #[test]
    fn contents_read_after_the_request_are_used_though_the_directory_changes() {
        let (cache, start) = (ListingCache::default(), Instant::now());
        cache.insert(Kept { is_settled: false, ..kept(b"/a/", start, 1) });
        let changed = FileMetadata { changed_nanos: 9, ..DIRECTORY };
        let another = FileMetadata { inode: 9, ..DIRECTORY };
        assert!(cache.get(&key(b"/a/"), &changed, start).is_some());
        assert!(cache.get(&key(b"/a/"), &another, start).is_none());
        let after = start + Duration::from_nanos(1);
        assert!(cache.get(&key(b"/a/"), &DIRECTORY, after).is_none(), "it may change unnoticed");
    }

    #[test]
    fn the_oldest_contents_are_evicted() {
        let (cache, start) = (ListingCache::default(), Instant::now());
        let half = MAX_BYTES / 2 / 300;
        for path in [b"/a/", b"/b/", b"/c/", b"/b/"] {
            cache.insert(kept(path, start, half));
        }
        let paths: Vec<_> = cache.lock().iter().map(|kept| kept.key.path.to_vec()).collect();
        assert_eq!(paths, [b"/c/", b"/b/"]);
    }
}
