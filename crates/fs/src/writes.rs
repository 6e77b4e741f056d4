//! Writes to open files, which the times of a file do not show.
//!
//! A file's change time advances with each write, but also with `chmod`, `touch` and new links. inotify distinguishes them. Its
//! queue is read only when the metadata of a file has changed.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

/// The watch of an open file.
#[derive(Debug)]
pub(super) struct Writes {
    watch: i32,
    /// The count of its writes that is known.
    seen: Mutex<u64>,
}

/// All watched files of the process; `None` if the system has no further inotify instance.
static WATCHED: LazyLock<Option<Watched>> = LazyLock::new(|| {
    let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
    Some(Watched { inotify, state: Mutex::default() })
});

#[derive(Debug)]
struct Watched {
    inotify: OwnedFd,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    files: HashMap<i32, Entry>,
    /// Times that notifications were lost: each may have been a write to any file.
    overflows: u64,
}

/// A watched file. All who watch it share the watch.
#[derive(Debug, Default)]
struct Entry {
    writes: u64,
    users: usize,
}

impl Writes {
    /// Begins to watch an open file. Returns `None` where that is not possible.
    pub(super) fn watch(fd: impl AsFd) -> Option<Self> {
        let watched = WATCHED.as_ref()?;
        let mut state = watched.lock();
        let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
        let watch = inotify::add_watch(&watched.inotify, path, WatchFlags::MODIFY).ok()?;
        watched.read(&mut state);
        state.files.entry(watch).or_default().users += 1;
        let seen = Mutex::new(state.count(watch));
        Some(Self { watch, seen })
    }

    /// Returns `true` if the file was written to since the last call, or may have been.
    pub(super) fn has_new(&self) -> bool {
        let Some(watched) = WATCHED.as_ref() else { return true };
        let mut state = watched.lock();
        watched.read(&mut state);
        let count = state.count(self.watch);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *seen, count) != count
    }
}

impl Drop for Writes {
    fn drop(&mut self) {
        let Some(watched) = WATCHED.as_ref() else { return };
        let mut state = watched.lock();
        let Some(entry) = state.files.get_mut(&self.watch) else { return };
        entry.users -= 1;
        if entry.users == 0 {
            state.files.remove(&self.watch);
            // It fails only when the watch is already gone.
            let _ = inotify::remove_watch(&watched.inotify, self.watch);
        }
    }
}

impl Watched {
    /// Takes the pending notifications.
    fn read(&self, state: &mut State) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        while let Ok(event) = reader.next() {
            let events = event.events();
            if events.contains(ReadFlags::QUEUE_OVERFLOW) {
                state.overflows += 1;
            } else if events.contains(ReadFlags::MODIFY)
                && let Some(entry) = state.files.get_mut(&event.wd())
            {
                entry.writes += 1;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn count(&self, watch: i32) -> u64 {
        self.overflows + self.files.get(&watch).map_or(0, |entry| entry.writes)
    }
}
