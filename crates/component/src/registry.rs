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
    is_followed: bool,
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
    names: Mutex<HashMap<Vec<u8>, Arc<Slot>>>,
}

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

/// Interval at which files are looked at.
const INTERVAL: Duration = Duration::from_millis(500);
/// The extension of components.
const EXTENSION: &str = "wasm";

impl Launcher {
    /// Has a component compiled, and waits for it.
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
        self.lock().directory = state.to_owned();
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
        self.list(path, &directory)?;
        self.lock().directories.insert(path.to_owned(), directory);
        Ok(())
    }

    /// Brings the names of a directory up to date, and loads what is new.
    fn list(&self, path: &Path, directory: &Directory) -> io::Result<()> {
        let mut names = HashMap::new();
        for entry in path.read_dir()? {
            let file = entry?.path();
            let (Some(name), Some(extension)) = (file.file_stem(), file.extension()) else {
                continue;
            };
            if extension == OsStr::new(EXTENSION) {
                names.insert(name.as_bytes().to_vec(), self.slot(&file));
            }
        }
        let before = directory.lock().clone();
        let state = self.lock().directory.clone();
        for (name, slot) in &names {
            if !before.contains_key(name)
                && let Err(why) = slot.refresh(&self.launcher, &state)
            {
                tracing::error!(script = &*slot.label, "the component cannot be loaded: {why}");
            }
        }
        let gone: Vec<_> =
            before.into_iter().filter(|(name, _)| !names.contains_key(name)).collect();
        *directory.lock() = names;
        let mut state = self.lock();
        gone.iter().for_each(|(_, slot)| drop(state.slots.remove(&slot.path)));
        Ok(())
    }

    /// Starts the thread that looks for changes, once.
    fn start_following(self: &Arc<Self>) -> io::Result<()> {
        let mut state = self.lock();
        if state.is_followed {
            return Ok(());
        }
        let this = Arc::downgrade(self);
        thread::Builder::new().name("components".into()).spawn(move || follow(&this))?;
        state.is_followed = true;
        Ok(())
    }

    /// Looks for changes now.
    fn look(&self) {
        let (slots, directories, directory) = {
            let state = self.lock();
            let slots: Vec<_> = state.slots.values().cloned().collect();
            let directories: Vec<_> =
                state.directories.iter().map(|(path, it)| (path.clone(), Arc::clone(it))).collect();
            (slots, directories, state.directory.clone())
        };
        for slot in slots {
            slot.follow(&self.launcher, &directory);
        }
        for (path, directory) in directories {
            // A directory that cannot be read now keeps its components.
            let _ = self.list(&path, &directory);
        }
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

    fn lock(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Arc<Slot>>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks for changes until the server ends.
fn follow(components: &Weak<Components>) {
    loop {
        thread::sleep(INTERVAL);
        let Some(components) = components.upgrade() else { return };
        components.look();
    }
}

/// The scripts of a configuration that are components, each once.
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
