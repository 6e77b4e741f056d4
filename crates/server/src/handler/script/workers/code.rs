//! Which code a worker runs, and whether it is still what stands on the disk.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::time::{ClockId, clock_gettime};

use super::pool::Pool;
use crate::config::{Local, ScriptKind};
use crate::handler::script::environment;
use crate::handler::script::stamp::Watched;

/// What a worker was started from.
#[derive(Debug)]
pub(super) struct Code {
    /// The time of the start: what changed later was not there yet.
    started: (i64, i64),
    /// Device and inode of the directory, which is another one when a release is switched by a symlink.
    directory: Option<(u64, u64)>,
    /// The files that the configuration names.
    named: Watched,
}

impl Code {
    /// What a worker of `pool` would be started from now.
    pub(super) fn of(pool: &Pool) -> Self {
        // Not the coarse clock: files may have finer times than its ticks.
        let now = clock_gettime(ClockId::Realtime);
        Self {
            started: (now.tv_sec, now.tv_nsec),
            directory: identity(&pool.rules.directory),
            named: Watched::new(named_files(pool)),
        }
    }

    /// Whether a file that the configuration names is another one now.
    pub(super) fn has_other_files(&self) -> bool {
        self.named.changed().is_some()
    }

    /// The first of what the worker was made of that is another now. `loaded` are the files that its application has
    /// loaded, as far as it has reported them.
    pub(super) fn changed(&self, pool: &Pool, pid: i32, loaded: &[PathBuf]) -> Option<PathBuf> {
        let directory = &pool.rules.directory;
        if identity(directory) != self.directory {
            return Some(directory.clone());
        }
        if let Some(path) = self.named.changed() {
            return Some(path.to_owned());
        }
        let mapped = mapped_files(pid);
        // What lies beside the sockets is the server's own.
        let mut files =
            mapped.iter().chain(loaded).filter(|path| !path.starts_with(&pool.directory));
        files.find(|path| self.is_newer(path)).cloned()
    }

    /// Whether the file was changed, or put where it is, after the start.
    fn is_newer(&self, path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|facts| {
            facts.is_file() && (facts.ctime(), facts.ctime_nsec()) > self.started
        })
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let facts = fs::metadata(path).ok()?;
    Some((facts.dev(), facts.ino()))
}

/// The program, the interpreter, and what else of the command line is a file.
fn named_files(pool: &Pool) -> Vec<PathBuf> {
    let Local { command, application, .. } = &pool.local;
    let directory = &pool.rules.directory;
    let mut files: Vec<PathBuf> = Vec::new();
    if !pool.program.as_os_str().is_empty() {
        files.push(pool.program.to_path_buf());
    }
    if let Some((program, arguments)) = command.split_first() {
        files.extend(in_path(program));
        files.extend(arguments.iter().map(|word| directory.join(word)));
    }
    if pool.rules.kind == ScriptKind::Psgi {
        files.push(directory.join(application));
    }
    files.retain(|path| path.is_file());
    files
}

/// Where the program is that a command names.
fn in_path(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(program.into());
    }
    let path = environment::path();
    let folders = path.as_bytes().split(|&byte| byte == b':').map(OsStr::from_bytes);
    folders.map(|folder| Path::new(folder).join(program)).find(|path| path.is_file())
}

/// The files whose code the process has mapped. The name of one that was replaced is that of its successor.
fn mapped_files(pid: i32) -> Vec<PathBuf> {
    let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let mut files = Vec::new();
    for line in maps.split(|&byte| byte == b'\n') {
        let is_code =
            line.split(|&byte| byte == b' ').nth(1).is_some_and(|mode| mode.contains(&b'x'));
        let Some(slash) = memchr::memchr(b'/', line).filter(|_| is_code) else { continue };
        let path = &line[slash..];
        let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
        files.push(PathBuf::from(OsStr::from_bytes(path)));
    }
    files
}
