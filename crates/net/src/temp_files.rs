//! The directory for temporary files: request bodies, copies of the file cache, sockets of workers.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;

/// Directories for large files, after `TMPDIR`. /tmp is often in memory.
const FOR_FILES: [&str; 2] = ["/var/tmp", "/tmp"];
/// Directories for sockets, whose paths must be short, after `TMPDIR`.
const FOR_SOCKETS: [&str; 2] = ["/tmp", "/var/tmp"];

/// The log has a warning that `TMPDIR` is not used.
static REPORTED: AtomicBool = AtomicBool::new(false);

/// No directory can hold temporary files: each with its error.
#[derive(Debug)]
struct Unusable(Vec<Reason>);

/// Creates an unlinked file for reading and writing.
///
/// # Errors
/// When no directory can hold it; the message names each directory with its reason.
pub fn file() -> io::Result<File> {
    reported(first_usable(&FOR_FILES, |directory| tempfile::tempfile_in(directory)))
}

/// Returns a directory that can hold temporary files.
///
/// # Errors
/// As for [`file()`].
pub fn for_files() -> io::Result<PathBuf> {
    reported(first_usable(&FOR_FILES, |directory| {
        tempfile::tempfile_in(directory).map(|_| directory.to_owned())
    }))
}

/// Creates a directory that is accessible only to the user of this process. Dropping it removes it.
///
/// # Errors
/// As for [`file()`].
pub fn directory(prefix: &str) -> io::Result<TempDir> {
    use std::os::unix::fs::PermissionsExt;
    let own = std::fs::Permissions::from_mode(0o700);
    reported(first_usable(&FOR_SOCKETS, |directory| {
        tempfile::Builder::new().prefix(prefix).permissions(own.clone()).tempdir_in(directory)
    }))
}

/// Creates a temporary file to find out whether `TMPDIR` is usable. Returns a warning when another directory is used
/// instead.
///
/// # Errors
/// When no directory is usable.
pub fn check() -> io::Result<Option<String>> {
    let (_, unusable) = first_usable(&FOR_FILES, |directory| tempfile::tempfile_in(directory))?;
    Ok(unusable.map(|(directory, error)| text(&directory, &error)))
}

/// Returns the warning of `dunlin check` about `TMPDIR`, if any. With scripts, an unusable directory is an error at start.
pub fn warning() -> Option<String> {
    check().ok().flatten()
}

/// Returns the same at start and reload; logs the warning.
///
/// # Errors
/// When no directory is usable.
pub fn check_and_report() -> io::Result<()> {
    if let Some(warning) = check()? {
        REPORTED.store(true, Ordering::Relaxed);
        tracing::warn!("{warning}");
    }
    Ok(())
}

fn text(directory: &Path, error: &io::Error) -> String {
    format!(
        "TMPDIR {} cannot hold temporary files: {}; /var/tmp or /tmp is used instead",
        directory.display(),
        reason(error)
    )
}

/// Returns the error without the path that `tempfile` adds to it.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" at path ").next().map_or_else(String::new, str::to_owned)
}

/// A directory with the reason why it cannot be used.
type Reason = (PathBuf, io::Error);

/// Returns the result of `create` in the first usable directory, and why that is not `TMPDIR`, if it is set.
fn first_usable<T>(
    others: &[&str],
    create: impl Fn(&Path) -> io::Result<T>,
) -> io::Result<(T, Option<Reason>)> {
    let named = std::env::var_os("TMPDIR").map(PathBuf::from);
    let is_named = named.is_some();
    let mut unusable = Vec::new();
    for directory in named.into_iter().chain(others.iter().map(PathBuf::from)) {
        match create(&directory) {
            Ok(created) => {
                return Ok((created, unusable.into_iter().next().filter(|_| is_named)));
            }
            // Another directory would fail in the same way.
            Err(error) if lacks_descriptors(&error) => return Err(error),
            Err(error) => unusable.push((directory, error)),
        }
    }
    let kind = unusable.first().map_or(io::ErrorKind::Other, |(_, error)| error.kind());
    Err(io::Error::new(kind, Unusable(unusable)))
}

/// Logs once that `TMPDIR` cannot be used.
fn reported<T>(created: io::Result<(T, Option<Reason>)>) -> io::Result<T> {
    let (created, unusable) = created?;
    if let Some((directory, error)) = unusable
        && !REPORTED.swap(true, Ordering::Relaxed)
    {
        tracing::warn!("{}", text(&directory, &error));
    }
    Ok(created)
}

/// Returns `true` if the process or the system has run out of descriptors.
pub fn lacks_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no directory can hold temporary files: ")?;
        for (number, (directory, error)) in self.0.iter().enumerate() {
            let separator = if number > 0 { ", " } else { "" };
            write!(f, "{separator}{}: {}", directory.display(), reason(error))?;
        }
        Ok(())
    }
}

impl std::error::Error for Unusable {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_usable_directory_is_used_and_the_error_names_all() {
        let folder = tempfile::tempdir().unwrap();
        let good = folder.path().to_str().unwrap();
        let created = first_usable(&["/proc/none", good], |directory| {
            tempfile::tempfile_in(directory).map(|_| directory.to_owned())
        });
        assert!(created.is_ok());
        let error = first_usable(&["/proc/none"], |_| Err::<(), _>(io::Error::other("unusable")));
        assert!(error.unwrap_err().to_string().contains("/proc/none: unusable"));
    }
}
