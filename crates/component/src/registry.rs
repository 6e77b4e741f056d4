//! The components of the server: loaded before a configuration is used, and followed when their files change.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use dunlin_config::{Config, Mapping, Script};

use crate::changes::{Bell, Changes};
use crate::compile;
use crate::counts::StopKind;
use crate::slot::Slot;

/// The components of the server, over all generations of its configuration.
pub struct Components {
    launcher: Launcher,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    slots: HashMap<PathBuf, Arc<Slot>>,
    directories: HashMap<PathBuf, Arc<Directory>>,
    /// The directory of state in the configuration.
    directory: PathBuf,
    /// `cache.notify` of the configuration.
    notify: bool,
    /// Of the thread that follows the files, once it runs.
    bell: Option<Arc<Bell>>,
}

/// Starts the process that compiles.
pub struct Launcher {
    /// The program of the server; `None` if it cannot be reached.
    pub program: Option<PathBuf>,
    /// Starts a process.
    pub start: StartProcess,
}

/// Starts a process, wherever the server may start one.
pub type StartProcess = Box<dyn Fn(Command) -> io::Result<Child> + Send + Sync>;

/// A directory of components.
#[derive(Default)]
pub(crate) struct Directory {
    /// By the name of the file without its extension.
    names: Mutex<Names>,
    /// New files that may not be complete yet.
    arriving: Mutex<Names>,
}

type Names = HashMap<Vec<u8>, Arc<Slot>>;

/// A component in a report.
#[derive(Debug, Clone)]
pub struct ComponentReport {
    /// The path of its file.
    pub name: String,
    /// The interface that it exports.
    pub kind: &'static str,
    /// Instances that handle a request or are kept.
    pub live: u64,
    /// Requests that a new instance handled.
    pub fresh: u64,
    /// Requests that a kept instance handled.
    pub reused: u64,
    /// Requests that were rejected because all instances were in use.
    pub rejected: u64,
    /// Requests whose instance was stopped, by reason.
    pub stops: Vec<(&'static str, u64)>,
    /// Largest memory of an instance in bytes.
    pub memory_peak: u64,
    /// Time that its compilation took, in seconds.
    pub compile_seconds: f64,
    /// Versions of the file that replaced another.
    pub swaps: u64,
    /// Why the newest version of the file is not loaded.
    pub error: Option<String>,
}

/// Interval at which files whose changes the system does not report are polled.
const INTERVAL: Duration = Duration::from_millis(500);
/// Time without a change after which a file is complete.
const SETTLE: Duration = Duration::from_millis(200);
/// The extension of components.
const EXTENSION: &str = "wasm";

impl Launcher {
    /// Requests the compilation of a component, and waits for it.
    ///
    /// # Errors
    /// Why it could not be compiled.
    pub(crate) fn compile(&self, state: &Path, file: &Path) -> Result<(), String> {
        let program = self.program.as_ref().ok_or(
            "the server's own program cannot be reached (chroot): run `dunlin compile` before the start",
        )?;
        let mut command = Command::new(program);
        command
            .args(compile::arguments(state, file))
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let child = (self.start)(command).map_err(|error| {
            format!("{}: the compiler cannot be started: {error}", program.display())
        })?;
        let done = child.wait_with_output().map_err(|error| error.to_string())?;
        if done.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&done.stderr);
        let last = text.lines().rfind(|line| !line.trim().is_empty());
        Err(last.map_or_else(
            || format!("the compiler has ended: {}", done.status),
            |line| line.trim().trim_start_matches("dunlin: ").to_owned(),
        ))
    }
}

impl Components {
    /// Creates the components of a server. None is loaded.
    pub fn new(launcher: Launcher) -> Arc<Self> {
        Arc::new(Self { launcher, state: Mutex::default() })
    }

    /// Loads the components of a configuration, and has those compiled that the cache lacks. It takes as long as that: from
    /// milliseconds to many seconds. From then on, their files are followed.
    ///
    /// # Errors
    /// The first component that the configuration names and that cannot be loaded, and why. Files in directories that cannot
    /// be loaded are logged.
    pub fn prepare(self: &Arc<Self>, config: &Config) -> Result<(), String> {
        let scripts = scripts(config);
        if scripts.is_empty() {
            return Ok(());
        }
        let state = &*config.server.state;
        {
            let mut shared = self.lock();
            shared.directory = state.to_owned();
            shared.notify = config.server.cache.notify;
        }
        for script in &scripts {
            let path = &script.directory;
            if script.mapping != Mapping::Program {
                self.read(path)
                    .map_err(|error| format!("components {}: {error}", path.display()))?;
                continue;
            }
            let slot = self.slot(path);
            if let Err(why) = slot.refresh(&self.launcher, state) {
                let why = format!("component {}: {why}", slot.label);
                if slot.current().is_err() {
                    return Err(why);
                }
                tracing::error!("{why}; the version before stays in use");
            }
        }
        self.start_following().map_err(|error| format!("components: a thread: {error}"))
    }

    /// Drops what `config` does not use.
    pub fn retain(&self, config: &Config) {
        let scripts = scripts(config);
        let mut state = self.lock();
        let is_used = |path: &Path| scripts.iter().any(|script| script.directory == path);
        state.directories.retain(|path, _| is_used(path));
        state.slots.retain(|path, _| is_used(path) || path.parent().is_some_and(is_used));
        state.ring();
    }

    /// Describes all components.
    pub fn report(&self) -> Vec<ComponentReport> {
        let mut slots: Vec<_> = self.lock().slots.values().cloned().collect();
        slots.sort_by(|a, b| a.path.cmp(&b.path));
        slots.iter().map(|slot| report(slot)).collect()
    }

    /// Returns the component file at `path`.
    pub(crate) fn slot(&self, path: &Path) -> Arc<Slot> {
        let mut state = self.lock();
        let slot = state.slots.entry(path.to_owned()).or_insert_with(|| Slot::new(path));
        Arc::clone(slot)
    }

    /// Returns the directory of components at `path`; `None` if it was not read.
    pub(crate) fn known(&self, path: &Path) -> Option<Arc<Directory>> {
        self.lock().directories.get(path).cloned()
    }

    /// Reads a directory of components, and loads them.
    fn read(&self, path: &Path) -> io::Result<()> {
        let directory = self.known(path).unwrap_or_default();
        let state = self.lock().directory.clone();
        let names: Names =
            list(path)?.into_iter().map(|(name, file)| (name, self.slot(&file))).collect();
        let before = directory.lock().clone();
        for (name, slot) in &names {
            if !before.contains_key(name)
                && let Err(why) = slot.refresh(&self.launcher, &state)
            {
                tracing::error!(script = &*slot.label, "the component cannot be loaded: {why}");
            }
        }
        self.replace(&directory, names);
        self.lock().directories.insert(path.to_owned(), directory);
        Ok(())
    }

    /// Brings the names of a directory up to date, and loads new files that are complete. Returns false if some are not.
    fn update(&self, path: &Path, directory: &Directory, state: &Path) -> io::Result<bool> {
        let mut arriving = directory.arriving.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, seen) = (directory.lock().clone(), std::mem::take(&mut *arriving));
        let mut names = Names::new();
        for (name, file) in list(path)? {
            if before.contains_key(&name) {
                names.insert(name, self.slot(&file));
                continue;
            }
            let slot = seen.get(&name).map_or_else(|| Slot::new(&file), Arc::clone);
            if slot.follow(&self.launcher, state) {
                let slot = self.lock().slots.entry(file).or_insert(slot).clone();
                names.insert(name, slot);
            } else {
                arriving.insert(name, slot);
            }
        }
        self.replace(directory, names);
        Ok(arriving.is_empty())
    }

    /// Replaces the names of a directory, and drops the slots of those that are gone.
    fn replace(&self, directory: &Directory, names: Names) {
        let mut before = directory.lock();
        let old = std::mem::replace(&mut *before, names);
        let mut state = self.lock();
        for (name, slot) in old {
            if !before.contains_key(&name) {
                state.slots.remove(&slot.path);
            }
        }
    }

    /// Starts the thread that looks for changes, once, and has it look now.
    fn start_following(self: &Arc<Self>) -> io::Result<()> {
        let mut state = self.lock();
        if state.bell.is_none() {
            let bell = Arc::new(Bell::new()?);
            let changes = Changes::new(Arc::clone(&bell));
            let this = Arc::downgrade(self);
            let run = move || follow(&this, changes);
            thread::Builder::new().name("components".into()).spawn(run)?;
            state.bell = Some(bell);
        }
        state.ring();
        Ok(())
    }

    /// Looks for changes now, and has `changes` report later ones. Returns false if a file is still being changed.
    fn look(&self, changes: &mut Changes) -> bool {
        let (slots, directories, state, notify) = {
            let state = self.lock();
            let slots: Vec<_> = state.slots.values().cloned().collect();
            let directories: Vec<_> =
                state.directories.iter().map(|(path, it)| (path.clone(), Arc::clone(it))).collect();
            (slots, directories, state.directory.clone(), state.notify)
        };
        // Before the files are checked, so that no change is missed.
        let files = slots.iter().map(|slot| &*slot.path);
        changes.follow(files, directories.iter().map(|(path, _)| &**path), notify);
        let mut is_settled = true;
        for slot in slots {
            is_settled &= slot.follow(&self.launcher, &state);
        }
        for (path, directory) in directories {
            // A directory that cannot be read now keeps its components.
            is_settled &= self.update(&path, &directory, &state).unwrap_or(true);
        }
        is_settled
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Directory {
    /// Returns the component of a name.
    pub(crate) fn find(&self, name: &[u8]) -> Option<Arc<Slot>> {
        self.lock().get(name).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Notifies the thread to check for changes now.
    fn ring(&self) {
        if let Some(bell) = &self.bell {
            bell.ring();
        }
    }
}

impl Drop for Components {
    fn drop(&mut self) {
        self.lock().ring();
    }
}

/// Looks for changes until the server ends.
fn follow(components: &Weak<Components>, mut changes: Changes) {
    loop {
        let Some(shared) = components.upgrade() else { return };
        let is_settled = shared.look(&mut changes);
        drop(shared);
        if is_settled {
            changes.wait(INTERVAL);
        } else {
            thread::sleep(SETTLE);
        }
    }
}

/// Returns the components in a directory: their names and files.
fn list(path: &Path) -> io::Result<Vec<(Vec<u8>, PathBuf)>> {
    let mut found = Vec::new();
    for entry in path.read_dir()? {
        let file = entry?.path();
        if let (Some(name), Some(extension)) = (file.file_stem(), file.extension())
            && extension == OsStr::new(EXTENSION)
        {
            found.push((name.as_bytes().to_vec(), file));
        }
    }
    Ok(found)
}

/// Returns the scripts of a configuration that are components, each once.
fn scripts(config: &Config) -> Vec<Arc<Script>> {
    let mut scripts: Vec<Arc<Script>> = Vec::new();
    for settings in config.sites.iter().flat_map(|site| site.table().values()) {
        if let Some(script) = settings.handler.script()
            && script.component().is_some()
            && !scripts.iter().any(|other| other.directory == script.directory)
        {
            scripts.push(Arc::clone(script));
        }
    }
    scripts
}

fn report(slot: &Slot) -> ComponentReport {
    let (state, counts) = (slot.report(), &slot.counts);
    let stops = StopKind::ALL
        .map(|kind| (kind.as_str(), counts.stops[kind as usize].load(Ordering::Relaxed)));
    ComponentReport {
        name: slot.label.to_string(),
        kind: state.kind,
        live: counts.live.load(Ordering::Relaxed),
        fresh: counts.fresh.load(Ordering::Relaxed),
        reused: counts.reused.load(Ordering::Relaxed),
        rejected: counts.rejected.load(Ordering::Relaxed),
        stops: stops.into(),
        memory_peak: counts.memory_peak.load(Ordering::Relaxed),
        compile_seconds: state.compiled.as_secs_f64(),
        swaps: state.swaps,
        error: state.error,
    }
}
