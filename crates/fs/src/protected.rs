//! Files that are never sent under any name: the configuration, files of users, and private keys.
//!
//! They are identified by device and inode, which are looked up again whenever an opened file could have become one or
//! ceased to be one: the file system gives the number of a file that was replaced to a new one.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::stat;

use super::failure::Failure;
use super::metadata::FileMetadata;
use super::mode::Mode;

/// The protected files of a configuration.
#[derive(Debug)]
pub struct Protected {
    paths: Vec<PathBuf>,
    identities: RwLock<Identities>,
}

#[derive(Debug)]
struct Identities {
    /// Device and inode.
    files: HashSet<(u64, u64)>,
    /// Time of the lookup.
    at: SystemTime,
}

/// The time for which identities are valid: a symlink to a protected file may get another target.
const HOLDS: Duration = Duration::from_secs(1);
/// Granularity of the kernel's clock for file times.
const GRAIN: Duration = Duration::from_millis(50);

impl Protected {
    /// Protects the files at `paths`.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        let identities = RwLock::new(Identities::look_up(&paths));
        Self { paths, identities }
    }

    /// Returns `true` if `other` protects all of its paths.
    pub fn is_within(&self, other: &Self) -> bool {
        self.paths.iter().all(|path| other.paths.contains(path))
    }

    /// Rejects a protected file, whose metadata was read from its open descriptor, as missing.
    ///
    /// # Errors
    /// [`Failure::Missing`] for a protected file; [`Failure::WouldBlock`] when `mode` forbids waiting for a disk.
    pub fn check(&self, file: &FileMetadata, mode: Mode) -> Result<(), Failure> {
        if !self.covers(file, mode)? {
            return Ok(());
        }
        tracing::warn!(
            inode = file.inode,
            "a request for the configuration, a users' file or a private key got a 404; keep these files \
             out of directories that are served"
        );
        Err(Failure::Missing)
    }

    /// Returns whether the file is protected.
    ///
    /// # Errors
    /// [`Failure::WouldBlock`] when `mode` forbids waiting for a disk.
    pub fn covers(&self, file: &FileMetadata, mode: Mode) -> Result<bool, Failure> {
        let identity = (file.device, file.inode);
        {
            let identities = self.identities.read().unwrap_or_else(PoisonError::into_inner);
            if !identities.files.contains(&identity) && identities.holds_for(file) {
                return Ok(false);
            }
        }
        if mode == Mode::Inline {
            return Err(Failure::WouldBlock);
        }
        let identities = Identities::look_up(&self.paths);
        let covers = identities.files.contains(&identity);
        *self.identities.write().unwrap_or_else(PoisonError::into_inner) = identities;
        Ok(covers)
    }
}

impl Identities {
    fn look_up(paths: &[PathBuf]) -> Self {
        let at = SystemTime::now();
        let identity = |path: &PathBuf| stat(path).ok().map(|stat| (stat.st_dev, stat.st_ino));
        Self { files: paths.iter().filter_map(identity).collect(), at }
    }

    /// Returns `true` if the file cannot have become a protected one since the lookup: creating, linking and renaming a file
    /// change its ctime.
    fn holds_for(&self, file: &FileMetadata) -> bool {
        let seconds = u64::try_from(file.changed).unwrap_or_default();
        let nanos = file.changed_nanos.min(999_999_999);
        let changed = UNIX_EPOCH.checked_add(Duration::new(seconds, nanos) + GRAIN);
        let is_recent = SystemTime::now().duration_since(self.at).is_ok_and(|age| age < HOLDS);
        is_recent && changed.is_some_and(|changed| changed < self.at)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    #[test]
    fn the_inode_of_a_replaced_file_is_not_protected() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let metadata = |name: &str| FileMetadata::of(File::open(path(name)).unwrap()).unwrap();
        fs::write(path("users"), "1").unwrap();
        let protected = Protected::new(vec![path("users")]);
        let before = metadata("users");
        fs::write(path("users.new"), "2").unwrap();
        fs::rename(path("users.new"), path("users")).unwrap();
        // A new file that has got the number of the first one.
        assert_eq!(protected.covers(&before, Mode::Inline), Err(Failure::WouldBlock));
        assert_eq!(protected.covers(&before, Mode::Blocking), Ok(false));
        assert_eq!(protected.covers(&metadata("users"), Mode::Blocking), Ok(true));
        fs::remove_file(path("users")).unwrap();
        assert_eq!(protected.covers(&before, Mode::Blocking), Ok(false));
    }

    #[test]
    fn a_protected_file_is_recognized_by_every_name_and_after_a_replacement() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("dunlin.toml"), "1").unwrap();
        fs::write(path("page"), "2").unwrap();
        let protected = Protected::new(vec![path("dunlin.toml"), path("missing")]);
        let is_sent = |name: &str| {
            let file = FileMetadata::of(File::open(path(name)).unwrap()).unwrap();
            protected.check(&file, Mode::Blocking).is_ok()
        };
        assert!(!is_sent("dunlin.toml") && is_sent("page"));
        fs::hard_link(path("dunlin.toml"), path("hard")).unwrap();
        std::os::unix::fs::symlink("dunlin.toml", path("soft")).unwrap();
        assert!(!is_sent("hard") && !is_sent("soft"));
        fs::write(path("new"), "3").unwrap();
        assert!(is_sent("new"));
        fs::hard_link(path("new"), path("other")).unwrap();
        fs::rename(path("new"), path("dunlin.toml")).unwrap();
        assert!(!is_sent("dunlin.toml") && !is_sent("other") && is_sent("page"));
        fs::write(path("missing"), "4").unwrap();
        assert!(!is_sent("missing"));
    }
}
