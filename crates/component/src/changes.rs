//! Changes of component files: the system reports them by inotify. Files whose changes it does not report are polled.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dunlin_fs::file_system::FileSystem;
use dunlin_fs::validity::Validity;
use dunlin_fs::watch::Watch;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{Mode, OFlags};
use rustix::time::Timespec;

/// Ends a wait for changes.
pub(crate) struct Bell(OwnedFd);

impl Bell {
    /// # Errors
    /// When the process can open no more files.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(crate) fn ring(&self) {
        // It fails only if the counter is full, and then a wait ends as well.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    fn silence(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

/// The files and directories whose changes end a wait.
pub(crate) struct Changes {
    bell: Arc<Bell>,
    watch: Option<Watched>,
    followed: HashMap<PathBuf, Followed>,
}

/// The changes that the system reports.
struct Watched {
    watch: Watch,
    /// Ready when names change.
    names: File,
    /// Ready when mounts change.
    mounts: Option<File>,
    /// [`Watch::clearings`] when the files were followed.
    clearings: u64,
}

struct Followed {
    validity: Arc<Validity>,
    /// The system reports each change.
    is_reported: bool,
}

impl Changes {
    /// Follows nothing yet.
    pub(crate) fn new(bell: Arc<Bell>) -> Self {
        let watch = Watched::new()
            .inspect_err(|error| {
                tracing::info!(
                    "inotify is not available ({error}): components are polled twice a second"
                );
            })
            .ok();
        Self { bell, watch, followed: HashMap::new() }
    }

    /// Follows these absolute paths from now on, and no others. Without `notify` the system is not trusted to report their changes.
    pub(crate) fn follow<'a>(
        &mut self,
        files: impl Iterator<Item = &'a Path>,
        directories: impl Iterator<Item = &'a Path>,
        notify: bool,
    ) {
        let mut before = std::mem::take(&mut self.followed);
        let clearings = self.watch.as_ref().map(|watched| watched.watch.clearings());
        let is_cleared = self.watch.as_ref().map(|watched| watched.clearings) != clearings;
        let paths = files.map(|path| (path, false)).chain(directories.map(|path| (path, true)));
        for (path, is_directory) in paths {
            let old = before
                .remove(path)
                .filter(|old| !is_cleared && old.is_reported && !old.validity.is_invalidated());
            let followed = old.unwrap_or_else(|| {
                let validity = Arc::default();
                let is_reported = notify
                    && self
                        .watch
                        .as_ref()
                        .is_some_and(|watched| watched.follow(path, is_directory, &validity));
                Followed { validity, is_reported }
            });
            self.followed.insert(path.to_owned(), followed);
        }
        if let (Some(watched), Some(clearings)) = (&mut self.watch, clearings) {
            watched.clearings = clearings;
        }
    }

    /// Waits until something has changed, or it is notified. If the system does not report all changes, it waits for at most
    /// `interval`.
    pub(crate) fn wait(&self, interval: Duration) {
        let is_reported = self.followed.values().all(|followed| followed.is_reported);
        let timeout = if is_reported { None } else { Timespec::try_from(interval).ok() };
        loop {
            let mut descriptors = vec![PollFd::new(&self.bell.0, PollFlags::IN)];
            if let Some(watched) = &self.watch {
                descriptors.push(PollFd::new(&watched.names, PollFlags::IN));
                let mounts = watched.mounts.iter();
                descriptors.extend(mounts.map(|mounts| PollFd::new(mounts, PollFlags::PRI)));
            }
            match poll(&mut descriptors, timeout.as_ref()) {
                Ok(0) => return,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                // Without memory for the call, for example: as if nothing were reported.
                Err(_) => return std::thread::sleep(interval),
            }
            let is_rung = !descriptors[0].revents().is_empty();
            drop(descriptors);
            if is_rung {
                self.bell.silence();
            }
            if is_rung | self.has_changed() {
                return;
            }
        }
    }

    /// Returns `true` if what the system has reported concerns a followed path.
    fn has_changed(&self) -> bool {
        let Some(watched) = &self.watch else { return false };
        watched.watch.read(|| {});
        watched.watch.read_mounts();
        watched.watch.clearings() != watched.clearings
            || self.followed.values().any(|followed| followed.validity.is_invalidated())
    }
}

impl Watched {
    fn new() -> io::Result<Self> {
        let watch = Watch::new()?;
        let names = watch.duplicate()?;
        let mounts = watch.duplicate_mounts().transpose()?;
        // The mounts at the start.
        watch.read_mounts();
        let clearings = watch.clearings();
        Ok(Self { watch, names, mounts, clearings })
    }

    /// Invalidates `validity`, or everything, when the file at `path` or the names in the directory at `path` change. Returns
    /// false if the system does not report each change.
    fn follow(&self, path: &Path, is_directory: bool, validity: &Arc<Validity>) -> bool {
        let is_way_reported = self.watch.follow_symlinks(path.as_os_str().as_bytes(), validity);
        // What does not exist appears on the way to it.
        let Ok(real) = path.canonicalize() else { return is_way_reported };
        let is_reported = match (real.parent(), real.file_name()) {
            _ if is_directory => self.watch.follow_names(real.as_os_str().as_bytes(), validity),
            (Some(parent), Some(name)) => {
                let parent = parent.as_os_str().as_bytes();
                self.watch.follow(parent, parent, name.as_bytes(), validity)
            }
            _ => false,
        };
        is_way_reported && is_reported && notifies(&real)
    }
}

/// Returns `true` if only this system changes the files at `path`.
fn notifies(path: &Path) -> bool {
    let opened = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    opened.is_ok_and(|file| FileSystem::of(file.as_fd()).notifies)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::thread;
    use std::time::Instant;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    /// Waits while `change` is made, and returns whether that ended the wait.
    fn ends(changes: &Changes, change: impl FnOnce() + Send) -> bool {
        let bell = Arc::clone(&changes.bell);
        let (done, is_done) = std::sync::mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                change();
                if is_done.recv_timeout(Duration::from_secs(5)).is_err() {
                    bell.ring();
                }
            });
            let began = Instant::now();
            changes.wait(LONG);
            let _ = done.send(());
            began.elapsed() < Duration::from_secs(5)
        })
    }

    #[test]
    fn changes_of_files_of_links_and_of_names_end_a_wait() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for version in ["1", "2"] {
            fs::create_dir(at(version)).unwrap();
            fs::write(at(version).join("a.wasm"), version).unwrap();
        }
        symlink("1", at("current")).unwrap();
        let (file, missing) = (at("current").join("a.wasm"), at("missing.wasm"));
        let mut changes = Changes::new(Arc::new(Bell::new().unwrap()));
        let follow = |changes: &mut Changes| {
            changes.follow([&*file, &*missing].into_iter(), [&*at("2")].into_iter(), true);
            assert!(changes.followed.values().all(|followed| followed.is_reported));
        };
        let steps: [&(dyn Fn() + Sync); 6] = [
            &|| fs::write(at("1").join("a.wasm"), "longer").unwrap(),
            &|| fs::rename(at("2").join("a.wasm"), at("1").join("a.wasm")).unwrap(),
            &|| {
                symlink("2", at("next")).unwrap();
                fs::rename(at("next"), at("current")).unwrap();
            },
            &|| fs::write(&file, "again").unwrap(),
            &|| fs::write(at("2").join("b.wasm"), "").unwrap(),
            &|| fs::write(&missing, "here").unwrap(),
        ];
        for (number, step) in steps.into_iter().enumerate() {
            follow(&mut changes);
            // What the step before has caused besides its first event.
            changes.has_changed();
            follow(&mut changes);
            assert!(ends(&changes, step), "step {number}");
        }
    }
}
