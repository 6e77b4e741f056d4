//! The file with the PID of the server.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::process;

use nix::unistd::{Gid, Uid};
use rustix::fs::OFlags;

/// The file that the configuration names.
#[derive(Debug, Clone)]
pub struct PidFile {
    path: PathBuf,
}

impl PidFile {
    /// Creates the file at `path` when it is written first.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the PID of this process, unless the file has it already.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self) -> io::Result<()> {
        if self.is_own() {
            return Ok(());
        }
        let number = format!("{}\n", process::id());
        // Replace the file atomically where the directory is writable.
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

    /// Changes the owner, so that this user can write the file in a directory that is not writable for the user.
    ///
    /// # Errors
    /// When it is not a regular file with one link, or the process lacks the permission.
    pub fn give_to(&self, uid: Uid, gid: Gid) -> io::Result<()> {
        let file = self.open()?;
        let metadata = file.metadata()?;
        // The directory may belong to that user, who could have placed a link to any file there.
        if !metadata.is_file() || metadata.nlink() != 1 {
            return Err(io::Error::other("it is not a regular file with a single link"));
        }
        fchown(&file, Some(uid.as_raw()), Some(gid.as_raw()))
    }

    /// Removes the file, or truncates it where the directory is not writable. Does nothing when it names another process.
    pub fn remove(&self) {
        if !self.is_own() || fs::remove_file(&self.path).is_ok() {
            return;
        }
        if let Err(error) = self.open().and_then(|file| file.set_len(0)) {
            tracing::warn!("pid_file {} cannot be removed: {error}", self.path.display());
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
