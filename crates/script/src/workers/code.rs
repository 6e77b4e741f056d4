//! Detects whether the code that a worker runs has changed on disk.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::time::{ClockId, clock_gettime};

use super::settings::PoolSettings;
use crate::file_version::WatchedFiles;
use crate::search_path::search_path;
use dunlin_config::{Local, ScriptKind};

/// The code that a worker was started from.
#[derive(Debug)]
pub(super) struct Code {
    /// The time of the start. Later changes are not in the worker.
    started: (i64, i64),
    /// Device and inode of the directory. They change when a release is switched by a symlink.
    directory: Option<(u64, u64)>,
    /// The files that the configuration names.
    named: WatchedFiles,
}

impl Code {
    /// Creates the code that a worker of `pool` would be started from now.
    pub(super) fn of(pool: &PoolSettings) -> Self {
        // The coarse clock is too coarse: file times are finer than its ticks.
        let now = clock_gettime(ClockId::Realtime);
        Self {
            started: (now.tv_sec, now.tv_nsec),
            directory: identity(&pool.rules.directory),
            named: WatchedFiles::new(named_files(pool)),
        }
    }

    /// Returns `true` if a file that the configuration names has changed.
    pub(super) fn has_other_files(&self) -> bool {
        self.named.changed().is_some()
    }

    /// Returns the first file or directory that has changed since the start. `loaded` are the files that the application has
    /// reported.
    pub(super) fn changed(
        &self,
        pool: &PoolSettings,
        pid: i32,
        loaded: &HashSet<PathBuf>,
    ) -> Option<PathBuf> {
        let directory = &pool.rules.directory;
        if identity(directory) != self.directory {
            return Some(directory.clone());
        }
        if let Some(path) = self.named.changed() {
            return Some(path.to_owned());
        }
        let mapped = mapped_files(pid);
        // The server's own files are next to the sockets.
        let mut files =
            mapped.iter().chain(loaded).filter(|path| !path.starts_with(&pool.directory));
        files.find(|path| self.is_newer(path)).cloned()
    }

    /// Returns `true` if the file was changed or put in place after the start.
    fn is_newer(&self, path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|metadata| {
            metadata.is_file() && (metadata.ctime(), metadata.ctime_nsec()) > self.started
        })
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// Returns the program, the interpreter and the other files on the command line.
fn named_files(pool: &PoolSettings) -> Vec<PathBuf> {
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

/// Returns the path of the program that a command names.
fn in_path(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(program.into());
    }
    let path = search_path();
    let folders = path.as_bytes().split(|&byte| byte == b':').map(OsStr::from_bytes);
    folders.map(|folder| Path::new(folder).join(program)).find(|path| path.is_file())
}

/// Returns the files whose code the process has mapped. For a file that was replaced, the path names its replacement.
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
