//! Notification of changes on disk (inotify), so that a cached file is never older than the last
//! change, and no request has to ask the disk.
//!
//! Each directory on the way to a cached file is watched. A change to a name ends every version
//! that was read by that name; a change to a directory on the way, a mount over it, or an overflow of the
//! kernel's queue, ends everything.
//!
//! Every worker has the notification descriptor in its own set of polled descriptors and reads it
//! when it becomes ready. The kernel reports descriptors in the order in which they became ready:
//! a change that precedes a request is seen before that request.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use hashbrown::HashMap;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use smallvec::SmallVec;

use super::mounts::Mounts;
use super::path_steps::{self, Step};

/// One version of a file, as long as it is current. Whoever has looked at it need not look again as long as
/// [`Validity::epoch`] stays the same.
#[derive(Debug, Default)]
pub(crate) struct Validity {
    stale: AtomicBool,
    /// Set by use, cleared by the hand of the store's clock.
    used: AtomicBool,
    /// Until when, in milliseconds of the workers' clock, it may be used without asking the disk.
    fresh_until: AtomicU64,
}

/// See [`Validity::epoch`].
static EPOCH: AtomicU64 = AtomicU64::new(0);

impl Validity {
    /// A number that is another one after any version has ended, or was asked whether it was used.
    #[inline]
    pub(crate) fn epoch() -> u64 {
        EPOCH.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn is_invalidated(&self) -> bool {
        self.stale.load(Ordering::Acquire)
    }

    /// Whether it may be used now without asking the disk. `now` is in milliseconds.
    #[inline]
    pub(crate) fn is_fresh(&self, now: u64) -> bool {
        !self.is_invalidated() && now < self.fresh_until()
    }

    /// Until when it may be used without asking the disk, in milliseconds; that may become later.
    pub(crate) fn fresh_until(&self) -> u64 {
        self.fresh_until.load(Ordering::Relaxed)
    }

    pub(crate) fn set_fresh_until(&self, then: u64) {
        self.fresh_until.store(then, Ordering::Relaxed);
    }

    /// Moves the end of the trust forward to `then` if it is later, also for those who have looked at it.
    pub(crate) fn limit_fresh_until(&self, then: u64) {
        if self.fresh_until.fetch_min(then, Ordering::Relaxed) > then {
            EPOCH.fetch_add(1, Ordering::Release);
        }
    }

    #[inline]
    pub(crate) fn mark_used(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it was used since this was last asked.
    pub(crate) fn take_used(&self) -> bool {
        let was_used = self.used.swap(false, Ordering::Relaxed);
        if was_used {
            EPOCH.fetch_add(1, Ordering::Release);
        }
        was_used
    }

    pub(crate) fn invalidate(&self) {
        self.stale.store(true, Ordering::Release);
        EPOCH.fetch_add(1, Ordering::Release);
    }
}

/// Watches the directories that cached files came from.
#[derive(Debug)]
pub(crate) struct Watch {
    inotify: OwnedFd,
    /// Absent where there is no /proc.
    mounts: Option<Mounts>,
    state: Mutex<State>,
    /// See [`Watch::clearings`].
    clearings: AtomicU64,
    /// Versions that changes have ended so far.
    pub(crate) ended: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    by_path: HashMap<Box<[u8]>, i32>,
    /// Directories of which only the names matter; see [`NAMES`].
    ways: HashMap<Box<[u8]>, i32>,
    directories: HashMap<i32, Directory>,
    /// The kernel's limit was met and that was said.
    limit_said: bool,
}

#[derive(Debug, Default)]
struct Directory {
    names: HashMap<Box<[u8]>, Name>,
}

#[derive(Debug, Default)]
struct Name {
    /// It leads to other watched directories.
    on_the_way: bool,
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

/// What matters of a directory that is only passed through. A busy one, such as /tmp, is changed often.
const NAMES: WatchFlags = WatchFlags::MOVED_FROM
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::MASK_ADD);

impl Watch {
    /// # Errors
    /// When the kernel gives no notification descriptor.
    pub(crate) fn new() -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let mounts = Mounts::open()
            .inspect_err(|error| {
                tracing::info!(
                    "/proc/self/mountinfo: {error}; mounts are noticed after `revalidate`"
                );
            })
            .ok();
        let (clearings, ended) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self { inotify, mounts, state: Mutex::default(), clearings, ended })
    }

    /// Ends `version` as soon as the name `file` in `directory` changes in any way, or the way
    /// from `root` to it does. Both are absolute paths, `directory` below or equal to `root`.
    /// To be called before the file is opened. False when the change would not be seen.
    pub(crate) fn follow(
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

    /// Ends everything as soon as the absolute `path` leads elsewhere: by another directory in the place of one on the
    /// way, or by another target of a symlink there.
    pub(crate) fn follow_way(&self, path: &[u8]) {
        let steps = path_steps::steps(path);
        let mut state = self.lock();
        for step in steps {
            if let Some(name) = self.name_on_the_way(&mut state, &step) {
                name.on_the_way = true;
            }
        }
    }

    /// Ends `version` as soon as a symlink on the way to `path` leads elsewhere, and everything as soon as a directory
    /// there is replaced.
    pub(crate) fn follow_symlinks(&self, path: &[u8], validity: &Arc<Validity>) {
        let steps = path_steps::steps(path);
        let mut state = self.lock();
        for step in steps {
            let Some(name) = self.name_on_the_way(&mut state, &step) else { continue };
            if step.is_symlink {
                name.add(validity);
            } else {
                name.on_the_way = true;
            }
        }
    }

    fn name_on_the_way<'s>(&self, state: &'s mut State, step: &Step) -> Option<&'s mut Name> {
        let watch = match state.ways.get(&*step.directory) {
            Some(&watch) => watch,
            None => {
                let watch = inotify::add_watch(&self.inotify, &*step.directory, NAMES).ok()?;
                state.ways.insert((&*step.directory).into(), watch);
                watch
            }
        };
        let directory = state.directories.entry(watch).or_default();
        Some(directory.names.entry((&*step.name).into()).or_default())
    }

    /// Takes back what was asked by [`Watch::follow`] for names that led to nothing.
    pub(crate) fn forget(&self, directory: &[u8], file: &[u8]) {
        let mut state = self.lock();
        let Some(&watch) = state.by_path.get(directory) else { return };
        let Some(directory) = state.directories.get_mut(&watch) else { return };
        if let Some(name) = directory.names.get_mut(file) {
            name.dependents.retain(|validity| validity.strong_count() > 0);
            if name.dependents.is_empty() && !name.on_the_way {
                directory.names.remove(file);
            }
        }
    }

    /// Another descriptor of the same notifications, for a worker to poll.
    pub(crate) fn duplicate(&self) -> io::Result<File> {
        Ok(File::from(self.inotify.try_clone()?))
    }

    /// Another descriptor that becomes ready with each mount and unmount, for a worker to poll.
    pub(crate) fn duplicate_mounts(&self) -> Option<io::Result<File>> {
        self.mounts.as_ref().map(Mounts::duplicate)
    }

    /// Looks for mounts and unmounts since the last time. Returns true when everything kept has to go.
    pub(crate) fn read_mounts(&self) -> bool {
        let Some(mounts) = &self.mounts else { return false };
        let mut state = self.lock();
        let concerned = mounts.changed().iter().any(|point| state.leads_through(point));
        if concerned {
            self.end_all(&mut state);
        }
        concerned
    }

    /// How often everything was ended. A worker that finds no notification left sees the number that the one which read them has made.
    pub(crate) fn clearings(&self) -> u64 {
        self.clearings.load(Ordering::Acquire)
    }

    /// Ends every version, and follows nothing any more.
    pub(crate) fn clear(&self) {
        self.end_all(&mut self.lock());
    }

    /// Reads the notifications of the kernel. Returns true when everything kept has to go.
    pub(crate) fn read(&self) -> bool {
        // The lock is held from before the first read: a worker that finds nothing to read has
        // waited for the one that is still marking.
        let mut state = self.lock();
        let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        let mut everything = false;
        while let Ok(event) = reader.next() {
            let name = event.file_name().map(std::ffi::CStr::to_bytes);
            everything |= self.apply(&mut state, event.wd(), event.events(), name);
        }
        if everything {
            self.end_all(&mut state);
        }
        everything
    }

    fn end_all(&self, state: &mut State) {
        self.clearings.fetch_add(1, Ordering::Release);
        for (_, directory) in state.directories.drain() {
            for name in directory.names.into_values() {
                self.end(name.dependents);
            }
        }
        for (_, watch) in state.by_path.drain().chain(state.ways.drain()) {
            // A watch that is gone already is what is wanted.
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
            // The directory's own mode or owner.
            return events.contains(ReadFlags::ATTRIB);
        };
        // A coded sibling that comes or goes changes what the original is served as.
        for original in std::iter::once(name).chain(original_of(name)) {
            let Some(known) = directory.names.get_mut(original) else { continue };
            if known.on_the_way && original == name && !events.contains(ReadFlags::MODIFY) {
                return true;
            }
            self.end(std::mem::take(&mut known.dependents));
            directory.names.remove(original);
        }
        false
    }

    fn end(&self, dependents: SmallVec<[Weak<Validity>; 1]>) {
        for validity in dependents.into_iter().filter_map(|validity| validity.upgrade()) {
            validity.invalidate();
            self.ended.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The watch of `path`, with those of all directories on the way from `root`.
    fn watch_directory(&self, state: &mut State, root: &[u8], path: &[u8]) -> Option<i32> {
        if let Some(&watch) = state.by_path.get(path) {
            return Some(watch);
        }
        if path.len() > root.len() && path.starts_with(root) {
            let slash = memchr::memrchr(b'/', path)?;
            let (parent, name) = (&path[..slash], &path[slash + 1..]);
            let parent = self.watch_directory(state, root, parent)?;
            let names = &mut state.directories.get_mut(&parent)?.names;
            names.entry(name.into()).or_default().on_the_way = true;
        }
        match inotify::add_watch(&self.inotify, path, CHANGES | WatchFlags::ONLYDIR) {
            Ok(watch) => {
                state.by_path.insert(path.into(), watch);
                // Two names of one directory share a watch; what one of them knows stays.
                state.directories.entry(watch).or_default();
                Some(watch)
            }
            Err(error) => {
                if error == rustix::io::Errno::NOSPC
                    && !std::mem::replace(&mut state.limit_said, true)
                {
                    tracing::warn!(
                        "no more directories can be watched for changes (fs.inotify.max_user_watches); \
                         files in others are checked once a second"
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
    /// Whether a followed path leads through `point`, an absolute path.
    fn leads_through(&self, point: &[u8]) -> bool {
        let slash = memchr::memrchr(b'/', point).unwrap_or(0);
        let (parent, name) =
            (&point[..slash.max(1).min(point.len())], &point[(slash + 1).min(point.len())..]);
        let is_through = |directory: &[u8]| {
            let rest = directory.strip_prefix(point.strip_suffix(b"/").unwrap_or(point));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        self.by_path.iter().chain(&self.ways).any(|(directory, watch)| {
            let has_name =
                || self.directories.get(watch).is_some_and(|d| d.names.contains_key(name));
            is_through(directory) || **directory == *parent && has_name()
        })
    }
}

/// The name of the file that this one may be a coded or converted form of.
fn original_of(name: &[u8]) -> Option<&[u8]> {
    [b".gz".as_slice(), b".br", b".zst", b".stmlf"]
        .iter()
        .find_map(|suffix| name.strip_suffix(*suffix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_looked_at_a_version_looks_again_after_its_end_and_after_the_hand_has_passed() {
        let (validity, changes) = (Validity::default(), Validity::epoch());
        validity.set_fresh_until(5);
        assert!(validity.is_fresh(4) && !validity.is_fresh(5));
        validity.mark_used();
        assert!(validity.take_used(), "and it has to be told again that it is used");
        let passed = Validity::epoch();
        assert!(passed > changes);
        validity.invalidate();
        assert!(Validity::epoch() > passed && !validity.is_fresh(4));
    }
}
