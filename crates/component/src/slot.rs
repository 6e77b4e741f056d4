//! A component file: the version of it that handles requests, and how it is replaced when the file changes.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::cache::{Cache, Entry};
use crate::compile;
use crate::counts::Counts;
use crate::engine::{Concurrency, Runtime};
use crate::loaded::Loaded;
use crate::registry::Launcher;

/// A component file.
pub(crate) struct Slot {
    /// The path of the file, for the log.
    pub(crate) label: Arc<str>,
    pub(crate) path: PathBuf,
    pub(crate) counts: Arc<Counts>,
    state: Mutex<State>,
    /// Nanoseconds of compilation so far.
    compiled: AtomicU64,
    /// Versions that replaced another.
    swaps: AtomicU64,
}

#[derive(Default)]
struct State {
    current: Option<Arc<Loaded>>,
    /// The version of the file that was loaded, or could not be.
    tried: Option<Version>,
    /// The version that the last look has found.
    seen: Option<Version>,
    /// Why the newest version is not loaded.
    error: Option<String>,
}

/// The version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

/// The state of a component file, for reports.
pub(crate) struct SlotReport {
    pub(crate) kind: &'static str,
    pub(crate) error: Option<String>,
    pub(crate) compiled: Duration,
    pub(crate) swaps: u64,
}

impl Version {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

impl Slot {
    /// Creates the slot of a file. Nothing is loaded.
    pub(crate) fn new(path: &Path) -> Arc<Self> {
        Arc::new(Self {
            label: path.display().to_string().into(),
            path: path.to_owned(),
            counts: Arc::default(),
            state: Mutex::default(),
            compiled: AtomicU64::new(0),
            swaps: AtomicU64::new(0),
        })
    }

    /// Returns the version that handles requests.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn current(&self) -> Result<Arc<Loaded>, String> {
        let state = self.lock();
        match (&state.current, &state.error) {
            (Some(current), _) => Ok(Arc::clone(current)),
            (None, Some(error)) => Err(error.clone()),
            (None, None) => Err("it is not loaded yet".into()),
        }
    }

    /// Loads the file if it has changed. The version before handles requests until that is done, and goes on if it fails.
    ///
    /// # Errors
    /// Why the file as it is now cannot be loaded.
    pub(crate) fn refresh(&self, launcher: &Launcher, state: &Path) -> Result<(), String> {
        let found = self.path.metadata();
        let version = found.as_ref().ok().map(Version::of);
        {
            let mut slot = self.lock();
            slot.seen = version;
            if slot.tried == version && (slot.current.is_some() || slot.error.is_some()) {
                return slot.error.clone().map_or(Ok(()), Err);
            }
            slot.tried = version;
        }
        let loaded = found.map_err(|error| without_number(&error)).and_then(|_| {
            let began = Instant::now();
            let loaded = self.load(launcher, state);
            loaded.inspect(|(_, is_new)| {
                if *is_new {
                    let nanos = began.elapsed().as_nanos() as u64;
                    self.compiled.fetch_add(nanos, Ordering::Relaxed);
                }
            })
        });
        let mut slot = self.lock();
        match loaded {
            Ok((loaded, _)) => {
                if slot.current.replace(loaded).is_some() {
                    self.swaps.fetch_add(1, Ordering::Relaxed);
                    tracing::info!(
                        script = &*self.label,
                        "the component has changed and is replaced"
                    );
                }
                slot.error = None;
                Ok(())
            }
            Err(why) => {
                slot.error = Some(why.clone());
                Err(why)
            }
        }
    }

    /// As [`Slot::refresh`], once a change is complete: the file is the same as at the last call. Returns false if it is not.
    /// Logs a failure.
    pub(crate) fn follow(&self, launcher: &Launcher, state: &Path) -> bool {
        let version = self.path.metadata().ok().as_ref().map(Version::of);
        {
            let mut slot = self.lock();
            let is_stable = std::mem::replace(&mut slot.seen, version) == version;
            if !is_stable || slot.tried == version {
                return is_stable;
            }
        }
        if let Err(why) = self.refresh(launcher, state) {
            let has_old = self.lock().current.is_some();
            let what = if has_old { "; the version before stays in use" } else { "" };
            tracing::error!(script = &*self.label, "the component cannot be loaded: {why}{what}");
        }
        true
    }

    /// Loads the file, and has it compiled if the cache lacks it. Also returns whether it was compiled.
    fn load(&self, launcher: &Launcher, state: &Path) -> Result<(Arc<Loaded>, bool), String> {
        let bytes = compile::read(&self.path)?;
        let cache = Cache::open(state)?;
        let entries = cache.entries(&bytes)?;
        drop(bytes);
        if let Some(loaded) = self.load_code(&entries)? {
            return Ok((loaded, false));
        }
        launcher.compile(state, &self.path)?;
        let loaded = self.load_code(&entries)?;
        let loaded = loaded.ok_or_else(|| "it changed while it was compiled".to_owned())?;
        Ok((loaded, true))
    }

    /// Loads the code from the cache; `None` if it is not there, or damaged.
    fn load_code(&self, entries: &[Entry; 2]) -> Result<Option<Arc<Loaded>>, String> {
        let entries = Concurrency::ALL.into_iter().zip(entries);
        for (concurrency, entry) in entries.filter(|(_, entry)| entry.exists()) {
            let runtime = Runtime::get(concurrency)?;
            match entry.load(&runtime.engine) {
                Ok(Some(component)) => return Loaded::new(runtime, &component).map(Some),
                Ok(None) => {}
                Err(why) => {
                    tracing::warn!(script = &*self.label, "compiled again: {why}");
                    entry.remove();
                }
            }
        }
        Ok(None)
    }

    /// Returns the state for reports.
    pub(crate) fn report(&self) -> SlotReport {
        let state = self.lock();
        SlotReport {
            kind: state.current.as_ref().map_or("none", |current| current.program.kind()),
            error: state.error.clone(),
            compiled: Duration::from_nanos(self.compiled.load(Ordering::Relaxed)),
            swaps: self.swaps.load(Ordering::Relaxed),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn without_number(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
