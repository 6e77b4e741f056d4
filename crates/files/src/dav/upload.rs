//! PUT: a file that a client sends. It replaces the previous one when it is complete.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use dunlin_fs::metadata::FileMetadata;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fchmod, fsync, openat, renameat, unlinkat};

use super::conditions::Changed;
use super::tree::{Entry, failed, temporary_name};
use super::{DavRequest, Outcome, Performed, Tree, properties, tree_path};

/// A file that is received.
#[derive(Debug)]
pub struct Upload {
    tree: Arc<Tree>,
    path: Vec<u8>,
    new: NewFile,
}

/// A file without its name. Dropping it removes it.
#[derive(Debug)]
pub(super) struct NewFile {
    entry: Entry,
    temporary: Vec<u8>,
    file: File,
    is_named: bool,
}

impl Upload {
    /// Creates the file that will replace that of the request.
    ///
    /// # Errors
    /// The response, if it cannot be replaced.
    pub fn begin(tree: Arc<Tree>, request: &DavRequest) -> Result<Self, Outcome> {
        if request.path.ends_with(b"/") {
            // A collection.
            return Err(Outcome::of(405));
        }
        let path = tree_path(&request.path);
        tree.check_permitted(&path, false)?;
        let found = tree.find(&path)?;
        if found.as_ref().is_some_and(|item| item.is_collection) {
            return Err(Outcome::of(405));
        }
        let is_member = found.is_none();
        let changed = Changed { path: &path, with_members: false, is_member };
        tree.check_conditions(request, &path, &[changed])?;
        let entry = tree.entry(&path)?;
        tree.check_new_name(&path, &entry)?;
        let new = NewFile::create(entry)?;
        Ok(Self { tree, path, new })
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// The response, if they cannot be stored.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Outcome> {
        self.new.file.write_all(bytes).map_err(failed)
    }

    /// Replaces the file of the request.
    ///
    /// # Errors
    /// The response, if it cannot be replaced.
    pub fn finish(self, request: &DavRequest) -> Performed {
        let found = self.tree.find(&self.path)?;
        // It may have been locked or changed in the meantime.
        let is_member = found.is_none();
        let changed = Changed { path: &self.path, with_members: false, is_member };
        self.tree.check_conditions(request, &self.path, &[changed])?;
        let before = found.map(|item| (item.fd, item.metadata));
        let status = if before.is_some() { 204 } else { 201 };
        self.new.replace(before.as_ref())?;
        Ok(Outcome::of(status))
    }
}

impl NewFile {
    /// Creates a file beside the entry that it will have.
    pub(super) fn create(entry: Entry) -> Result<Self, Outcome> {
        let temporary = temporary_name();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o666);
        let file = openat(&entry.directory, &*temporary, flags, mode).map_err(failed)?;
        Ok(Self { entry, temporary, file: file.into(), is_named: false })
    }

    pub(super) fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Gives the file its name, in place of `before`, whose permissions and properties it gets.
    pub(super) fn replace(
        mut self,
        before: Option<&(OwnedFd, FileMetadata)>,
    ) -> Result<(), Outcome> {
        if let Some((fd, metadata)) = before {
            fchmod(&self.file, Mode::from_raw_mode(metadata.mode & 0o777)).map_err(failed)?;
            properties::copy(fd, &self.file).map_err(failed)?;
        }
        fsync(&self.file).map_err(failed)?;
        let Entry { directory, name } = &self.entry;
        renameat(directory, &*self.temporary, directory, &**name).map_err(failed)?;
        self.is_named = true;
        // It makes the name durable. The file is there in any case.
        let _ = fsync(directory);
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_named {
            // A file that cannot be removed stays hidden.
            let _ = unlinkat(&self.entry.directory, &*self.temporary, AtFlags::empty());
        }
    }
}

impl Tree {
    /// Returns the error for a name that a file may not have: that of a program, of a protected file, or of something that
    /// is no file.
    pub(super) fn check_new_name(&self, path: &[u8], entry: &Entry) -> Result<(), Outcome> {
        let kind = entry.kind()?;
        match kind {
            None => {}
            Some(FileType::RegularFile) => {
                return self.check_removable(path, FileType::RegularFile);
            }
            Some(_) => return Err(Outcome::of(403)),
        }
        self.check_program_name(path, entry)
    }

    /// Returns the error for a new name by which a route of the site would run the file. `entry` is one of any directory.
    pub(super) fn check_program_name(&self, path: &[u8], entry: &Entry) -> Result<(), Outcome> {
        let file = path.strip_prefix(b"/").unwrap_or(path);
        // The name decides: the metadata is that of no file.
        let metadata = FileMetadata::of(&entry.directory).map_err(failed)?;
        let plain = FileMetadata { mode: 0o644, ..metadata };
        match self.is_program(file, &entry.directory, &plain) {
            true => Err(Outcome::of(403)),
            false => Ok(()),
        }
    }
}
