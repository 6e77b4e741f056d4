//! Change notification by inotify: a cached file is never older than the last change, and requests need no check of
//! the file system.
//!
//! Each directory on the path to a cached file is watched. A change to a name invalidates everything that was read by
//! that name. A change to a directory on the path, a mount over it, or an overflow of the kernel's queue invalidates
//! everything.
//!
//! Every worker polls the notification descriptor and reads it when it becomes ready. The kernel reports descriptors in
//! the order in which they became ready, so a worker sees a change before a request that came after it. But if another
//! worker has taken the notification, the kernel reports nothing: [`Watch::is_being_read`] shows that it may not have been
//! applied yet.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use hashbrown::HashMap;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use smallvec::SmallVec;

use super::mounts::Mounts;
use super::path_steps::{self, Step};
use super::validity::Validity;

/// Watches the directories that cached files came from.
#[derive(Debug)]
pub struct Watch {
    inotify: OwnedFd,
    /// `None` where /proc is not mounted.
    mounts: Option<Mounts>,
    state: Mutex<State>,
    /// Held until the notifications that were read have taken effect.
    reading: Mutex<()>,
    /// Threads that hold `reading` or wait for it.
    readers: AtomicUsize,
    /// See [`Watch::clearings`].
    clearings: AtomicU64,
    /// Number of invalidations so far.
    pub invalidations: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Watches of directories that contain cached files.
    by_path: HashMap<Box<[u8]>, i32>,
    /// Watches of directories that a path only passes through; see [`NAMES`].
    passages: HashMap<Box<[u8]>, i32>,
    directories: HashMap<i32, Directory>,
    /// The limit of the kernel was reached and reported.
    limit_reported: bool,
}

#[derive(Debug, Default)]
struct Directory {
    names: HashMap<Box<[u8]>, Name>,
    /// The data that was read from the list of names.
    listings: SmallVec<[Weak<Validity>; 1]>,
}

#[derive(Debug, Default)]
struct Name {
    /// A watched path passes through it.
    is_passage: bool,
    /// The data that was read by this name.
    dependents: SmallVec<[Weak<Validity>; 1]>,
}

impl Name {
    fn add(&mut self, validity: &Arc<Validity>) {
        self.dependents.retain(|validity| validity.strong_count() > 0);
        self.dependents.push(Arc::downgrade(validity));
    }
}

const CHANGES: WatchFlags = WatchFlags::MODIFY
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF);

/// Events of directories that a path only passes through. Directories such as /tmp change often.
const NAMES: WatchFlags = WatchFlags::MOVED_FROM
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::MASK_ADD);

/// Events that change the list of a directory's names.
const LIST: ReadFlags = ReadFlags::MOVED_FROM
    .union(ReadFlags::MOVED_TO)
    .union(ReadFlags::CREATE)
    .union(ReadFlags::DELETE);

impl Watch {
    /// # Errors
    /// When `inotify_init` fails.
    pub fn new() -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let mounts = Mounts::open()
            .inspect_err(|error| {
                tracing::info!(
                    "/proc/self/mountinfo: {error}; mounts take effect only after `cache.revalidate`"
                );
            })
            .ok();
        let (clearings, invalidations) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self {
            inotify,
            mounts,
            state: Mutex::default(),
            reading: Mutex::default(),
            readers: AtomicUsize::new(0),
            clearings,
            invalidations,
        })
    }

    /// Invalidates `validity` when the name `file` in `directory` or the path from `root` to it changes. `directory` and
    /// `root` are absolute, and `directory` is `root` or beneath it. Call it before opening the file. Returns false when
    /// changes cannot be watched.
    pub fn follow(
        &self,
        root: &[u8],
        directory: &[u8],
        file: &[u8],
        validity: &Arc<Validity>,
    ) -> bool {
        let mut state = self.lock();
        let Some(watch) = self.watch_directory(&mut state, root, directory) else {
            return false;
        };
        if let Some(directory) = state.directories.get_mut(&watch) {
            directory.names.entry(file.into()).or_default().add(validity);
        }
        true
    }

    /// Invalidates `validity` when a name appears in the absolute `directory` or disappears from it. Call it before the names
    /// are read. Returns false when changes cannot be watched.
    pub fn follow_names(&self, directory: &[u8], validity: &Arc<Validity>) -> bool {
        let mut state = self.lock();
        let Some(watch) = self.watch_directory(&mut state, directory, directory) else {
            return false;
        };
        if let Some(directory) = state.directories.get_mut(&watch) {
            directory.listings.retain(|validity| validity.strong_count() > 0);
            directory.listings.push(Arc::downgrade(validity));
        }
        true
    }

    /// Invalidates everything when the absolute `path` resolves to another file: a directory on it was replaced, or a
    /// symlink got another target.
    pub fn follow_path(&self, path: &[u8]) {
        let steps = path_steps::steps(path);
        let mut state = self.lock();
        for step in steps {
            if let Some(name) = self.passage(&mut state, &step) {
                name.is_passage = true;
            }
        }
    }

    /// Invalidates `validity` when a symlink on `path` gets another target, and everything when a directory on it is
    /// replaced. Returns false when changes of a part of the path cannot be watched.
    pub fn follow_symlinks(&self, path: &[u8], validity: &Arc<Validity>) -> bool {
        let steps = path_steps::steps(path);
        let mut state = self.lock();
        let mut is_whole = true;
        for step in steps {
            let Some(name) = self.passage(&mut state, &step) else {
                is_whole = false;
                continue;
            };
            if step.is_symlink {
                name.add(validity);
            } else {
                name.is_passage = true;
            }
        }
        is_whole
    }

    fn passage<'s>(&self, state: &'s mut State, step: &Step) -> Option<&'s mut Name> {
        let watch = match state.passages.get(&*step.directory) {
            Some(&watch) => watch,
            None => {
                let watch = inotify::add_watch(&self.inotify, &*step.directory, NAMES).ok()?;
                state.passages.insert((&*step.directory).into(), watch);
                watch
            }
        };
        let directory = state.directories.entry(watch).or_default();
        Some(directory.names.entry((&*step.name).into()).or_default())
    }

    /// Undoes [`Watch::follow`] for a name that does not exist.
    pub fn forget(&self, directory: &[u8], file: &[u8]) {
        let mut state = self.lock();
        let Some(&watch) = state.by_path.get(directory) else { return };
        let Some(directory) = state.directories.get_mut(&watch) else { return };
        if let Some(name) = directory.names.get_mut(file) {
            name.dependents.retain(|validity| validity.strong_count() > 0);
            if name.dependents.is_empty() && !name.is_passage {
                directory.names.remove(file);
            }
        }
    }

    /// Returns a duplicate of the notification descriptor, for a worker to poll.
    pub fn duplicate(&self) -> io::Result<File> {
        Ok(File::from(self.inotify.try_clone()?))
    }

    /// Returns a descriptor that becomes ready with each mount and unmount, for a worker to poll.
    pub fn duplicate_mounts(&self) -> Option<io::Result<File>> {
        self.mounts.as_ref().map(Mounts::duplicate)
    }

    /// Reads mounts and unmounts since the last call. Returns true when the caches must be cleared.
    pub fn read_mounts(&self) -> bool {
        let Some(mounts) = &self.mounts else { return false };
        let mut state = self.lock();
        let is_concerned = mounts.changed().iter().any(|point| state.leads_through(point));
        if is_concerned {
            self.invalidate_all(&mut state);
        }
        is_concerned
    }

    /// Returns the number of times that everything was invalidated. A worker that finds no pending notification sees the number
    /// that the reading worker left.
    pub fn clearings(&self) -> u64 {
        self.clearings.load(Ordering::Acquire)
    }

    /// Invalidates everything and removes all watches.
    pub fn clear(&self) {
        self.invalidate_all(&mut self.lock());
    }

    /// Reads pending notifications, and calls `clear` when the caches must be cleared. All notifications that were pending
    /// have taken effect when this returns, also those that another thread has read.
    pub fn read(&self, clear: impl FnOnce()) {
        // Before the first notification is taken, after which the kernel does not report it to other workers.
        self.readers.fetch_add(1, Ordering::SeqCst);
        {
            let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
            if self.take_pending() {
                clear();
            }
        }
        self.readers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Returns `true` if a thread may have read notifications that have not taken effect. A worker that then calls
    /// [`Watch::read`] waits for it.
    #[inline]
    pub fn is_being_read(&self) -> bool {
        self.readers.load(Ordering::SeqCst) > 0
    }

    /// Takes and applies pending notifications. Returns true when the caches must be cleared.
    fn take_pending(&self) -> bool {
        let mut state = self.lock();
        let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        let mut clears = false;
        while let Ok(event) = reader.next() {
            let name = event.file_name().map(std::ffi::CStr::to_bytes);
            clears |= self.apply(&mut state, event.wd(), event.events(), name);
        }
        if clears {
            self.invalidate_all(&mut state);
        }
        clears
    }

    fn invalidate_all(&self, state: &mut State) {
        self.clearings.fetch_add(1, Ordering::Release);
        for (_, directory) in state.directories.drain() {
            self.invalidate(directory.listings);
            for name in directory.names.into_values() {
                self.invalidate(name.dependents);
            }
        }
        for (_, watch) in state.by_path.drain().chain(state.passages.drain()) {
            // It fails only when the watch is already gone.
            let _ = inotify::remove_watch(&self.inotify, watch);
        }
    }

    fn apply(&self, state: &mut State, watch: i32, events: ReadFlags, name: Option<&[u8]>) -> bool {
        if events.contains(ReadFlags::QUEUE_OVERFLOW) {
            return true;
        }
        let Some(directory) = state.directories.get_mut(&watch) else {
            return false;
        };
        let own = ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT;
        if events.intersects(own | ReadFlags::IGNORED) {
            return true;
        }
        let Some(name) = name else {
            // Mode or owner of the directory itself.
            return events.contains(ReadFlags::ATTRIB);
        };
        if events.intersects(LIST) {
            self.invalidate(std::mem::take(&mut directory.listings));
        }
        // A precompressed sibling that appears or disappears changes the variants of the original.
        for original in std::iter::once(name).chain(original_of(name)) {
            let Some(entry) = directory.names.get_mut(original) else { continue };
            if entry.is_passage && original == name && !events.contains(ReadFlags::MODIFY) {
                return true;
            }
            self.invalidate(std::mem::take(&mut entry.dependents));
            directory.names.remove(original);
        }
        false
    }

    fn invalidate(&self, dependents: SmallVec<[Weak<Validity>; 1]>) {
        for validity in dependents.into_iter().filter_map(|validity| validity.upgrade()) {
            validity.invalidate();
            self.invalidations.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the watch of `path`. Adds watches of all directories from `root` to it.
    fn watch_directory(&self, state: &mut State, root: &[u8], path: &[u8]) -> Option<i32> {
        if let Some(&watch) = state.by_path.get(path) {
            return Some(watch);
        }
        if path.len() > root.len() && path.starts_with(root) {
            let slash = memchr::memrchr(b'/', path)?;
            let (parent, name) = (&path[..slash], &path[slash + 1..]);
            let parent = self.watch_directory(state, root, parent)?;
            let names = &mut state.directories.get_mut(&parent)?.names;
            names.entry(name.into()).or_default().is_passage = true;
        }
        match inotify::add_watch(&self.inotify, path, CHANGES | WatchFlags::ONLYDIR) {
            Ok(watch) => {
                state.by_path.insert(path.into(), watch);
                // Two paths of one directory share a watch and its names.
                state.directories.entry(watch).or_default();
                Some(watch)
            }
            Err(error) => {
                if error == rustix::io::Errno::NOSPC
                    && !std::mem::replace(&mut state.limit_reported, true)
                {
                    tracing::warn!(
                        "the limit on watched directories is reached: files in further directories are checked once a \
                         second; raise fs.inotify.max_user_watches"
                    );
                }
                None
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns `true` if a followed path passes through the absolute path `point`.
    fn leads_through(&self, point: &[u8]) -> bool {
        let slash = memchr::memrchr(b'/', point).unwrap_or(0);
        let (parent, name) =
            (&point[..slash.max(1).min(point.len())], &point[(slash + 1).min(point.len())..]);
        let is_through = |directory: &[u8]| {
            let rest = directory.strip_prefix(point.strip_suffix(b"/").unwrap_or(point));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        self.by_path.iter().chain(&self.passages).any(|(directory, watch)| {
            let has_name =
                || self.directories.get(watch).is_some_and(|d| d.names.contains_key(name));
            is_through(directory) || **directory == *parent && has_name()
        })
    }
}

/// Returns the name of the file of which this one may be a compressed or converted form.
fn original_of(name: &[u8]) -> Option<&[u8]> {
    [b".gz".as_slice(), b".br", b".zst", b".stmlf"]
        .iter()
        .find_map(|suffix| name.strip_suffix(*suffix))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_change_that_another_thread_has_taken_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("sub")).unwrap();
        std::fs::write(root.join("sub/file"), "old").unwrap();
        let watch = Arc::new(Watch::new().unwrap());
        let validity = Arc::new(Validity::default());
        let (root_bytes, directory) = (root.as_os_str().as_bytes(), root.join("sub"));
        assert!(watch.follow(root_bytes, directory.as_os_str().as_bytes(), b"file", &validity));
        // The change clears all caches, which is where the other thread is held.
        std::fs::rename(&directory, root.join("other")).unwrap();
        let ((taken, is_taken), (release, released)) = (mpsc::channel(), mpsc::channel());
        let cleared = Arc::new(AtomicU64::new(0));
        let other = {
            let (watch, cleared) = (Arc::clone(&watch), Arc::clone(&cleared));
            std::thread::spawn(move || {
                watch.read(|| {
                    taken.send(()).unwrap();
                    released.recv().unwrap();
                    cleared.store(1, Ordering::SeqCst);
                });
            })
        };
        is_taken.recv().unwrap();
        // The kernel does not report the notification any more, but it has not taken effect.
        assert!(watch.is_being_read());
        let waiting = {
            let (watch, cleared) = (Arc::clone(&watch), Arc::clone(&cleared));
            std::thread::spawn(move || {
                watch.read(|| panic!("nothing is left to read"));
                cleared.load(Ordering::SeqCst)
            })
        };
        release.send(()).unwrap();
        assert_eq!(waiting.join().unwrap(), 1, "the reader has waited");
        other.join().unwrap();
        assert!(!watch.is_being_read() && validity.is_invalidated());
    }
}
