//! Programs of a site, which are never sent as files: no route sends their source, under any name.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{fstat, stat};

use super::shared::Shared;
use dunlin_config::{Settings, SourceRule, original};
use dunlin_fs::metadata::FileMetadata;
use dunlin_fs::roots::Root;

/// The file to be sent.
struct Candidate {
    /// The path by which it was requested.
    named: PathBuf,
    /// The real path.
    real: PathBuf,
    identity: (u64, u64),
    is_executable: bool,
}

/// Returns `true` if `fd`, opened as `file` beneath `root`, is a program of a route of the site. The first such request for a
/// pair of routes is logged.
pub(super) fn is_source(
    shared: &Shared,
    settings: &Settings,
    root: &Root,
    file: &[u8],
    fd: impl AsFd,
    metadata: &FileMetadata,
) -> bool {
    let open = |path: &Path| shared.root(path);
    let Some(rule) = source_of(settings, &open, root, file, &fd, metadata) else { return false };
    let site = settings.sources.as_ref().map_or("", |sources| &sources.site);
    let (runs, sends) = (&rule.route, &settings.pattern);
    if shared.sources.is_new(site, runs, sends) {
        tracing::warn!(
            "{}: not sent as text by route {sends:?}, because route {runs:?} runs it; move it out of {}, or set \
             serve_source = true if its source is public",
            Candidate::new(root, file, &fd, metadata).real.display(),
            settings.root.display(),
        );
    }
    true
}

/// The routes that were reported: the one that runs a program, and the one that would have sent it.
#[derive(Debug, Default)]
pub(crate) struct Reported(Mutex<HashSet<[String; 3]>>);

impl Reported {
    /// Returns `true` if these routes of the site have not been reported together before.
    fn is_new(&self, site: &str, runs: &str, sends: &str) -> bool {
        let mut reported = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reported.insert([site, runs, sends].map(str::to_owned))
    }
}

/// Returns the rule by which `fd`, opened as `file` beneath `root`, is a program of a route of the site. `open` opens the
/// directories of rules.
pub(super) fn source_of<'s>(
    settings: &'s Settings,
    open: &OpenRoot<'_>,
    root: &Root,
    file: &[u8],
    fd: impl AsFd,
    metadata: &FileMetadata,
) -> Option<&'s SourceRule> {
    let sources = settings.sources.as_ref()?;
    let candidate = Candidate::new(root, file, fd, metadata);
    sources.rules.iter().find(|rule| candidate.is_of(rule, open, root))
}

/// Opens a directory that the configuration names.
type OpenRoot<'a> = dyn Fn(&Path) -> io::Result<Arc<Root>> + 'a;

impl Candidate {
    fn new(root: &Root, file: &[u8], fd: impl AsFd, metadata: &FileMetadata) -> Self {
        let named = Path::new(OsStr::from_bytes(&root.path)).join(OsStr::from_bytes(file));
        let link = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
        // Without /proc, as in a chroot, resolve the path again.
        let real = std::fs::read_link(link).or_else(|_| named.canonicalize());
        Self {
            real: real.unwrap_or_else(|_| named.clone()),
            named,
            identity: (metadata.device, metadata.inode),
            is_executable: is_executable(metadata.mode),
        }
    }

    fn is_of(&self, rule: &SourceRule, open: &OpenRoot<'_>, root: &Root) -> bool {
        let is_named = |file: &PathBuf| {
            let found = stat(file).ok().filter(|found| is_regular(found.st_mode));
            found.is_some_and(|found| (found.st_dev, found.st_ino) == self.identity)
        };
        if rule.files.iter().any(is_named) {
            return true;
        }
        if rule.directory.as_os_str().is_empty() {
            return false;
        }
        let by_name = |path: &Path| rule.has_extension(path.as_os_str().as_bytes());
        if !rule.extensions.is_empty() && !by_name(&self.named) && !by_name(&self.real) {
            return false;
        }
        // The directory of remote workers may not exist on this machine.
        let directory = open(&rule.directory).ok();
        let place = directory.as_ref().map_or(&*rule.directory, |root| root.place());
        let leads_there = |path: &Path| {
            path.starts_with(place) || directory.as_ref().is_some_and(|to| is_beneath(path, to))
        };
        if !leads_there(&self.named) && !leads_there(&self.real) {
            return false;
        }
        // Every file in a directory of programs belongs to them, unless the site's files are in the same directory.
        let is_shared = root.place().starts_with(place)
            || directory.as_ref().is_some_and(|to| is_beneath(root.place(), to));
        !rule.extensions.is_empty() || !is_shared || self.is_executable || self.is_of_executable()
    }

    /// Returns `true` if it is a compressed variant of an executable file.
    fn is_of_executable(&self) -> bool {
        let original = original(self.real.as_os_str().as_bytes());
        let found = original.and_then(|path| stat(Path::new(OsStr::from_bytes(path))).ok());
        found.is_some_and(|found| is_regular(found.st_mode) && is_executable(found.st_mode))
    }
}

/// Returns `true` if the directory is an ancestor of `path` under any name, for example through another mount.
fn is_beneath(path: &Path, directory: &Root) -> bool {
    let Ok(wanted) = fstat(&directory.fd) else { return false };
    let is_it = |path: &Path| {
        stat(path).is_ok_and(|found| (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino))
    };
    path.ancestors().any(is_it)
}

fn is_regular(mode: u32) -> bool {
    rustix::fs::FileType::from_raw_mode(mode) == rustix::fs::FileType::RegularFile
}

fn is_executable(mode: u32) -> bool {
    mode & 0o111 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_of_routes_is_reported_once() {
        let reported = Reported::default();
        assert!(reported.is_new("a", "*.php", "/*") && !reported.is_new("a", "*.php", "/*"));
        assert!(reported.is_new("a", "*.py", "/*") && reported.is_new("b", "*.php", "/*"));
    }
}
