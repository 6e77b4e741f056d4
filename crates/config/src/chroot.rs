//! The chroot: the directory that becomes the root directory of the server, and the translation of paths.
//!
//! A configuration names files as they are named from outside. Inside, they have other names: paths are translated
//! once, when they are read.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

/// A chroot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chroot {
    /// The directory, as it is named from outside.
    directory: PathBuf,
    /// The working directory of the start: relative paths of the command line refer to it.
    folder: PathBuf,
}

/// The chroot of this process. It cannot be left.
static ENTERED: OnceLock<Chroot> = OnceLock::new();

/// Environment variables that pass the chroot to a new process.
const VARIABLES: [&str; 2] = ["DUNLIN_CHROOT", "DUNLIN_FOLDER"];

impl Chroot {
    /// Creates the chroot at `directory`, for a process that is outside.
    pub(super) fn new(directory: &Path) -> Self {
        let folder = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        Self { directory: folder.join(directory), folder }
    }

    /// Returns the chroot that this process has entered.
    pub fn entered() -> Option<&'static Self> {
        ENTERED.get()
    }

    /// Records that the process has entered the chroot.
    pub fn enter(self) {
        // The first call wins: a process enters at most one chroot.
        let _ = ENTERED.set(self);
    }

    /// Restores the chroot of a process that was started inside, from [`Chroot::variables`].
    pub fn continue_inside() {
        if let [Some(directory), Some(folder)] = VARIABLES.map(std::env::var_os) {
            Self { directory: directory.into(), folder: folder.into() }.enter();
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

    /// Returns the absolute path from outside.
    pub(super) fn whole(&self, path: &Path) -> PathBuf {
        self.folder.join(path)
    }

    /// Returns the name of the file inside; `None` if it is not inside.
    pub fn within(&self, path: &Path) -> Option<PathBuf> {
        let whole = self.whole(path);
        let rest = whole.strip_prefix(&self.directory).ok()?;
        let climbs = rest.components().any(|part| part == Component::ParentDir);
        (!climbs).then(|| Path::new("/").join(rest))
    }
}

/// Returns the name by which this process reaches the file that `path` names from outside.
///
/// # Errors The process cannot reach the file.
pub(super) fn reach(path: &Path) -> Result<PathBuf, String> {
    match Chroot::entered() {
        None => Ok(path.to_owned()),
        Some(chroot) => chroot.within(path).ok_or_else(|| {
            format!(
                "it is outside of {}, which the server cannot leave (chroot)",
                chroot.directory.display()
            )
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lose_the_directory_outside() {
        let chroot = Chroot { directory: "/srv/chroot".into(), folder: "/srv/chroot/etc".into() };
        let within = |path: &str| chroot.within(Path::new(path));
        assert_eq!(within("/srv/chroot/a/b"), Some("/a/b".into()));
        assert_eq!(within("/srv/chroot"), Some("/".into()));
        assert_eq!(within("x.toml"), Some("/etc/x.toml".into()));
        for outside in ["/srv", "/srv/chrooted/a", "/etc/passwd", "/srv/chroot/../a", "../../../a"]
        {
            assert_eq!(within(outside), None, "{outside}");
        }
    }
}
