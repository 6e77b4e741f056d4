//! ACME state on disk: accounts, certificates, and the outcome of the last attempts.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::clock::after_1970;

/// The outcome of the last attempts to obtain a certificate. The file exists only after a failure.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Failures since the last success.
    pub(crate) failures: u32,
    /// Failures in which the authority rejected the order.
    #[serde(rename = "refused")]
    pub(crate) rejected: u32,
    /// Consecutive failures to reach the authority.
    #[serde(rename = "unheard")]
    pub(crate) unreachable: u32,
    /// The last error.
    pub(crate) error: String,
    /// Seconds since 1970.
    pub(crate) failed_at: u64,
    pub(crate) next_try: u64,
}

impl Outcome {
    /// Adds a failure. `pause` returns the delay until the next attempt.
    pub(crate) fn failed(
        mut self,
        error: &str,
        is_unreachable: bool,
        pause: impl FnOnce(&Self) -> Duration,
    ) -> Self {
        self.failures = self.failures.saturating_add(1);
        self.rejected = self.rejected.saturating_add(u32::from(!is_unreachable));
        self.unreachable = if is_unreachable { self.unreachable.saturating_add(1) } else { 0 };
        error.clone_into(&mut self.error);
        let now = SystemTime::now();
        self.failed_at = seconds(now);
        self.next_try = seconds(now + pause(&self));
        self
    }

    /// Reads the file; `None` when it is missing or invalid.
    pub(crate) fn read(file: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(file).ok()?).ok()
    }

    pub(crate) fn failed_at(&self) -> SystemTime {
        after_1970(self.failed_at)
    }

    pub(crate) fn next_try(&self) -> SystemTime {
        after_1970(self.next_try)
    }

    pub(crate) fn write(&self, file: &Path) -> io::Result<()> {
        replace(file, &serde_json::to_vec_pretty(self)?, |_| Ok(()))
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Replaces the file atomically by `content`, readable only for the owner. `check` verifies the new file first.
///
/// # Errors
/// When it cannot be written, or the error of `check`.
pub(crate) fn replace(
    file: &Path,
    content: &[u8],
    check: impl FnOnce(&Path) -> Result<(), String>,
) -> io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let fresh = folder.join(name);
    // A crash may have left a file with another mode.
    let _ = fs::remove_file(&fresh);
    let mut options = fs::OpenOptions::new();
    let mut opened = options.write(true).create_new(true).mode(0o600).open(&fresh)?;
    opened.write_all(content)?;
    opened.sync_all()?;
    if let Err(what) = check(&fresh) {
        let _ = fs::remove_file(&fresh);
        return Err(io::Error::other(what));
    }
    fs::rename(&fresh, file)?;
    fs::File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_replaced_atomically() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a/b/c.pem");
        replace(&file, b"one", |_| Ok(())).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let folder_mode = fs::metadata(file.parent().unwrap()).unwrap().permissions().mode();
        assert_eq!(folder_mode & 0o777, 0o700);
        // A file that a crash has left is replaced.
        fs::write(file.with_extension("pem.new"), b"half").unwrap();
        assert!(replace(&file, b"bad", |_| Err("no".into())).is_err());
        assert_eq!(fs::read(&file).unwrap(), b"one");
        replace(&file, b"two", |_| Ok(())).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"two");
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn an_outcome_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.json");
        assert_eq!(Outcome::read(&file), None);
        let minute = |_: &Outcome| Duration::from_secs(60);
        let outcome =
            Outcome::default().failed("no response", true, minute).failed("no", false, minute);
        assert_eq!((outcome.failures, outcome.rejected, outcome.unreachable), (2, 1, 0));
        outcome.write(&file).unwrap();
        assert_eq!(Outcome::read(&file), Some(outcome.clone()));
        assert_eq!(outcome.next_try().duration_since(outcome.failed_at()).unwrap().as_secs(), 60);
    }
}
