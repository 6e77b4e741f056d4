//! Paths of the file: relative ones, and those in a chroot.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use crate::error::Source;
use crate::jail::Jail;

/// Resolves the paths of the file.
pub(super) struct Paths<'a> {
    source: &'a Source<'a>,
    /// The directory that the server is or will be in.
    jail: Option<Jail>,
    /// Whether they are to be called as they are in there.
    inside: bool,
    /// Those that are not in it.
    outside: RefCell<Vec<PathBuf>>,
}

impl<'a> Paths<'a> {
    pub(super) fn new(source: &'a Source<'a>, jail: Option<Jail>, inside: bool) -> Self {
        Self { source, jail, inside, outside: RefCell::default() }
    }

    /// Returns the chroot that the process is or will be in.
    pub(super) fn jail(&self) -> Option<&Jail> {
        self.jail.as_ref()
    }

    /// Returns the paths that are not in the chroot.
    pub(super) fn take_outside(&self) -> Vec<PathBuf> {
        self.outside.take()
    }

    /// Paths in the file are relative to the file.
    pub(super) fn absolute(&self, path: &Path) -> PathBuf {
        let whole = absolute(self.source, path);
        let Some(jail) = &self.jail else { return whole };
        if jail.within(&whole).is_none() {
            self.outside.borrow_mut().push(path.to_owned());
        }
        self.translated(&whole)
    }

    /// What a path of outside is called here.
    pub(super) fn translated(&self, whole: &Path) -> PathBuf {
        let jail = self.jail.as_ref().filter(|_| self.inside);
        jail.and_then(|jail| jail.within(whole)).unwrap_or_else(|| whole.to_owned())
    }

    /// A path that the file does not name: it is inside, if there is an inside.
    pub(super) fn by_default(&self, path: &str) -> PathBuf {
        let root = self.jail.as_ref().map_or(Path::new("/"), Jail::directory);
        self.translated(&root.join(path))
    }
}

/// A path of the file, from outside.
pub(super) fn absolute(source: &Source<'_>, path: &Path) -> PathBuf {
    // A file that is named without a folder is in the working directory, which has no empty name.
    let folder = source.path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let joined = folder.unwrap_or(Path::new(".")).join(path);
    match Jail::entered() {
        Some(jail) => jail.whole(&joined),
        None => std::path::absolute(&joined).unwrap_or(joined),
    }
}
