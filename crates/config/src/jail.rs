//! The directory that is all the files there are to the server (`chroot`), and what paths mean there.
//!
//! A configuration names files as they are called from outside. A server inside calls them otherwise:
//! paths are translated once, when they are read.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

/// Such a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Jail {
    /// What it is called from outside.
    directory: PathBuf,
    /// Where the server was started: relative paths of its command line are beneath it.
    folder: PathBuf,
}

/// The one that this process is in: there is no way back.
static ENTERED: OnceLock<Jail> = OnceLock::new();

/// Environment variables that pass the chroot to a new process.
const VARIABLES: [&str; 2] = ["DUNLIN_CHROOT", "DUNLIN_FOLDER"];

impl Jail {
    /// The one at `directory`, for a process that is outside.
    pub(super) fn new(directory: &Path) -> Self {
        let folder = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        Self { directory: folder.join(directory), folder }
    }

    /// The one that this process is in.
    pub fn entered() -> Option<&'static Self> {
        ENTERED.get()
    }

    /// The process is in it from now on.
    pub fn entered_by_now(self) {
        // Who is inside stays inside.
        let _ = ENTERED.set(self);
    }

    /// For a process that was started from inside: by [`Jail::variables`].
    pub fn continue_inside() {
        if let [Some(directory), Some(folder)] = VARIABLES.map(std::env::var_os) {
            Self { directory: directory.into(), folder: folder.into() }.entered_by_now();
        }
    }

    /// Returns the environment variables for a process that starts in the chroot.
    pub fn variables(&self) -> [(&'static str, OsString); 2] {
        let [directory, folder] = VARIABLES;
        [(directory, self.directory.clone().into()), (folder, self.folder.clone().into())]
    }

    /// Returns the directory, as it is named from outside.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The whole path, from outside.
    pub(super) fn whole(&self, path: &Path) -> PathBuf {
        self.folder.join(path)
    }

    /// What the file is called inside; `None` when it is not there.
    pub fn within(&self, path: &Path) -> Option<PathBuf> {
        let whole = self.whole(path);
        let rest = whole.strip_prefix(&self.directory).ok()?;
        let climbs = rest.components().any(|part| part == Component::ParentDir);
        (!climbs).then(|| Path::new("/").join(rest))
    }
}

/// What this process has to call the file that `path` is from outside.
///
/// # Errors
/// When it is not among those that the process has.
pub(super) fn reach(path: &Path) -> Result<PathBuf, String> {
    match Jail::entered() {
        None => Ok(path.to_owned()),
        Some(jail) => jail.within(path).ok_or_else(|| {
            format!(
                "it is outside of {}, which the server cannot leave (chroot)",
                jail.directory.display()
            )
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lose_what_is_outside() {
        let jail = Jail { directory: "/srv/jail".into(), folder: "/srv/jail/etc".into() };
        let within = |path: &str| jail.within(Path::new(path));
        assert_eq!(within("/srv/jail/a/b"), Some("/a/b".into()));
        assert_eq!(within("/srv/jail"), Some("/".into()));
        assert_eq!(within("x.toml"), Some("/etc/x.toml".into()));
        for outside in ["/srv", "/srv/jailer/a", "/etc/passwd", "/srv/jail/../a", "../../../a"] {
            assert_eq!(within(outside), None, "{outside}");
        }
    }
}
