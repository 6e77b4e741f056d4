//! The file that holds the number of the server's process.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::process;

use nix::unistd::{Gid, Uid};
use rustix::fs::OFlags;

/// The file that the configuration names.
#[derive(Debug, Clone)]
pub(super) struct PidFile {
    path: PathBuf,
}

impl PidFile {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the number of this process, unless it is there.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn write(&self) -> io::Result<()> {
        if self.is_own() {
            return Ok(());
        }
        let number = format!("{}\n", process::id());
        // In one step where the folder may be written: a reader sees a whole number.
        let new = self.path.with_added_extension("new");
        let replaced = fs::write(&new, &number).and_then(|()| fs::rename(&new, &self.path));
        match replaced {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let mut file = self.open()?;
                file.write_all(number.as_bytes())?;
                file.set_len(number.len() as u64)
            }
            result => result,
        }
    }

    /// Lets that user write to the file later, in a folder that the user may not write to.
    ///
    /// # Errors
    /// When it is no file of its own, or this process may not do that.
    pub(super) fn give_to(&self, uid: Uid, gid: Gid) -> io::Result<()> {
        let file = self.open()?;
        let facts = file.metadata()?;
        // The folder may be that user's already: what stands there may be a link to anything.
        if !facts.is_file() || facts.nlink() != 1 {
            return Err(io::Error::other("it is no file, or has other names"));
        }
        fchown(&file, Some(uid.as_raw()), Some(gid.as_raw()))
    }

    /// Removes it, or empties it where the folder may not be written, unless it is another process's.
    pub(super) fn remove(&self) {
        if !self.is_own() || fs::remove_file(&self.path).is_ok() {
            return;
        }
        if let Err(error) = self.open().and_then(|file| file.set_len(0)) {
            tracing::warn!("pid_file {} stays behind: {error}", self.path.display());
        }
    }

    fn is_own(&self) -> bool {
        let own = process::id().to_string();
        fs::read_to_string(&self.path).is_ok_and(|text| text.trim() == own)
    }

    fn open(&self) -> io::Result<File> {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        File::options().write(true).custom_flags(flags.bits() as i32).open(&self.path)
    }
}
