//! Reads directories.

use std::borrow::Cow;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat2, statat,
};

use super::Entry;
use super::contents::Contents;
use dunlin_config::{Settings, Symlinks};
use dunlin_fs::metadata::FileMetadata;
use dunlin_fs::protected::Protected;

/// The part of a directory that is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Maximum number of names, including those that are not listed.
    pub(super) names: usize,
    /// Maximum memory of the entries in bytes.
    pub(super) bytes: usize,
}

/// Reads a directory by the rules of a route.
#[derive(Debug)]
pub(super) struct DirectoryReader<'a> {
    /// The directory.
    pub(super) directory: &'a File,
    /// List names that begin with a dot.
    pub(super) hidden: bool,
    pub(super) links: Links<'a>,
    /// Files that are not listed, because a request for them gets 404.
    pub(super) protected: &'a Protected,
}

/// The treatment of symlinks: a listing must not reveal targets that requests cannot reach.
#[derive(Debug)]
pub(super) enum Links<'a> {
    /// Omitted.
    Omit,
    /// Listed as their targets, if these are beneath `root`.
    Beneath {
        /// The root of the route.
        root: OwnedFd,
        /// Path of the directory beneath the root, with a final slash unless it is empty.
        path: Cow<'a, [u8]>,
    },
    /// Listed as their targets.
    Follow,
}

impl DirectoryReader<'_> {
    /// Reads the regular files and directories within `bounds`, sorted by name.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub(super) fn read(&self, bounds: Bounds) -> io::Result<Contents> {
        let mut contents = Contents::default();
        let mut names = 0;
        for entry in Dir::read_from(self.directory)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            if names == bounds.names || contents.bytes() >= bounds.bytes {
                contents.truncated = true;
                break;
            }
            names += 1;
            let is_hidden = !self.hidden && name.starts_with(b".");
            if !is_hidden && let Some((directory, stat)) = self.stat(entry.file_name()) {
                contents.push(name, directory, size(directory, &stat), modified(&stat));
            }
        }
        contents.sort();
        Ok(contents)
    }

    /// Returns the entry with this name as it is now; `None` if it is not listed.
    pub(super) fn entry(&self, name: &[u8]) -> Option<Entry> {
        let (directory, stat) = self.stat(&CString::new(name).ok()?)?;
        let (size, modified) = (size(directory, &stat), modified(&stat));
        Some(Entry { name: name.to_vec(), directory, size, modified })
    }

    /// Returns whether `name` is a directory, and its metadata; `None` if it is not listed.
    fn stat(&self, name: &CStr) -> Option<(bool, Stat)> {
        // The name may have been removed, or be a dangling symlink.
        let stat = self.links.stat(self.directory, name)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Some((true, stat)),
            FileType::RegularFile => {
                let mode = dunlin_fs::mode::Mode::Blocking;
                let is_listed =
                    self.protected.covers(&FileMetadata::from(&stat), mode) == Ok(false);
                is_listed.then_some((false, stat))
            }
            _ => None,
        }
    }
}

impl<'a> Links<'a> {
    /// Returns the symlinks that requests of the route can follow. `path` is the decoded path of the directory.
    ///
    /// # Errors
    /// When the root cannot be opened.
    pub(super) fn of(settings: &Settings, path: &'a [u8]) -> io::Result<Self> {
        Ok(match settings.symlinks {
            Symlinks::Deny => Self::Omit,
            Symlinks::Follow => Self::Follow,
            Symlinks::Beneath => {
                let root = open_root(&settings.root)?;
                let mut path = settings.file_path(path).unwrap_or_default();
                if let Some(rest) = path.strip_prefix(b"/") {
                    path = Cow::Owned(rest.to_vec());
                }
                Self::Beneath { root, path }
            }
        })
    }

    /// Returns the metadata of `name`, through a symlink if that is permitted.
    fn stat(&self, directory: &File, name: &CStr) -> Option<Stat> {
        let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            return Some(stat);
        }
        match self {
            Self::Omit => None,
            Self::Follow => statat(directory, name, AtFlags::empty()).ok(),
            Self::Beneath { root, path } => {
                let path = [path, name.to_bytes()].concat();
                let flags = OFlags::PATH | OFlags::CLOEXEC;
                let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
                fstat(openat2(root.as_fd(), path, flags, Mode::empty(), resolve).ok()?).ok()
            }
        }
    }
}

fn open_root(root: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(open(root, flags, Mode::empty())?)
}

fn size(directory: bool, stat: &Stat) -> u64 {
    if directory { 0 } else { stat.st_size.max(0) as u64 }
}

fn modified(stat: &Stat) -> i64 {
    stat.st_mtime
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const ALL: Bounds = Bounds { names: 100, bytes: 1 << 20 };

    fn names(directory: &File, hidden: bool, links: Links<'_>, bounds: Bounds) -> (String, bool) {
        let protected = Protected::new(Vec::new());
        let reader = DirectoryReader { directory, hidden, links, protected: &protected };
        let contents = reader.read(bounds).unwrap();
        let names: Vec<_> = contents.names().map(String::from_utf8_lossy).collect();
        (names.join(" "), contents.truncated)
    }

    #[test]
    fn symlinks_are_listed_only_where_they_would_be_served() {
        let folder = tempfile::tempdir().unwrap();
        let (root, outside) = (folder.path().join("root"), folder.path().join("outside"));
        std::fs::create_dir_all(root.join("sub")).unwrap();
        for path in [&outside, &root.join("inside"), &root.join("sub/file")] {
            std::fs::write(path, "x").unwrap();
        }
        symlink("../../outside", root.join("sub/out")).unwrap();
        symlink("../inside", root.join("sub/in")).unwrap();
        symlink("nowhere", root.join("sub/broken")).unwrap();
        let directory = File::open(root.join("sub")).unwrap();
        let names = |links: Links<'_>| names(&directory, false, links, ALL).0;
        assert_eq!(names(Links::Omit), "file");
        let beneath =
            Links::Beneath { root: File::open(&root).unwrap().into(), path: b"sub/".into() };
        assert_eq!(names(beneath), "file in");
        assert_eq!(names(Links::Follow), "file in out");
    }

    #[test]
    fn reading_ends_at_its_bounds() {
        let folder = tempfile::tempdir().unwrap();
        for name in [".a", "b", "c"] {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        let directory = File::open(folder.path()).unwrap();
        let read = |hidden, bounds| names(&directory, hidden, Links::Omit, bounds);
        assert_eq!(read(false, ALL), ("b c".to_owned(), false));
        assert_eq!(read(true, ALL), (".a b c".to_owned(), false));
        assert!(!read(false, Bounds { names: 3, ..ALL }).1);
        assert!(read(false, Bounds { names: 2, ..ALL }).1, "a name that is not listed counts");
        let (names, truncated) = read(true, Bounds { bytes: 1, ..ALL });
        assert!(truncated && names.trim_start_matches('.').len() == 1, "{names}");
    }
}
