//! Paths of the file: relative ones, and those in a chroot.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use crate::chroot::Chroot;
use crate::error::Source;

/// Resolves the paths of the file.
pub(super) struct Paths<'a> {
    source: &'a Source<'a>,
    /// The chroot that the server is or will be in.
    chroot: Option<Chroot>,
    /// Translate paths into the chroot.
    inside: bool,
    /// Paths that are outside of the chroot.
    outside: RefCell<Vec<PathBuf>>,
}

impl<'a> Paths<'a> {
    pub(super) fn new(source: &'a Source<'a>, chroot: Option<Chroot>, inside: bool) -> Self {
        Self { source, chroot, inside, outside: RefCell::default() }
    }

    /// Returns the chroot that the process is or will be in.
    pub(super) fn chroot(&self) -> Option<&Chroot> {
        self.chroot.as_ref()
    }

    /// Returns the paths that are not in the chroot.
    pub(super) fn take_outside(&self) -> Vec<PathBuf> {
        self.outside.take()
    }

    /// Makes a path of the file absolute: paths are relative to the file's directory.
    pub(super) fn absolute(&self, path: &Path) -> PathBuf {
        let whole = absolute(self.source, path);
        let Some(chroot) = &self.chroot else { return whole };
        if chroot.within(&whole).is_none() {
            self.outside.borrow_mut().push(path.to_owned());
        }
        self.translated(&whole)
    }

    /// Translates a path from outside of the chroot.
    pub(super) fn translated(&self, whole: &Path) -> PathBuf {
        let chroot = self.chroot.as_ref().filter(|_| self.inside);
        chroot.and_then(|chroot| chroot.within(whole)).unwrap_or_else(|| whole.to_owned())
    }

    /// Translates a path that is a default and not in the file. It is inside of the chroot, if there is one.
    pub(super) fn by_default(&self, path: &str) -> PathBuf {
        let root = self.chroot.as_ref().map_or(Path::new("/"), Chroot::directory);
        self.translated(&root.join(path))
    }
}

/// Makes a path of the file absolute, as it is named from outside of the chroot.
pub(super) fn absolute(source: &Source<'_>, path: &Path) -> PathBuf {
    // The parent of a bare file name is the empty path, which stands for the working directory.
    let folder = source.path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let joined = folder.unwrap_or(Path::new(".")).join(path);
    match Chroot::entered() {
        Some(chroot) => chroot.whole(&joined),
        None => std::path::absolute(&joined).unwrap_or(joined),
    }
}
