//! Converted files that are stored beside their sources.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{
    AtFlags, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, fchmod, fsync, futimens,
    openat, openat2, renameat, unlinkat,
};

/// Writes `converted` to `FILE.stmlf` beside `file`, a path beneath `root`, by an atomic rename: readers see either the
/// previous file or the complete new one, even after a crash.
///
/// `source` is the metadata of the file *before* it was read. The new file gets its permissions and its modification time,
/// so that a source that changes during or after the conversion is newer than the converted file.
///
/// # Errors
/// When the directory does not permit one of the steps. The temporary file is removed.
pub(crate) fn write_copy(
    root: impl AsFd,
    file: &[u8],
    source: &Stat,
    converted: &mut impl Read,
) -> io::Result<()> {
    let (directory, name) = match memchr::memrchr(b'/', file) {
        Some(slash) => (&file[..slash], &file[slash + 1..]),
        None => (&b"."[..], file),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat2(root, directory, flags, Mode::empty(), ResolveFlags::BENEATH)?;
    let temporary = temporary_name();
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let out = openat(&directory, temporary.as_str(), flags, Mode::RUSR | Mode::WUSR)?;
    let renamed = fill(out, source, converted).and_then(|()| {
        renameat(&directory, temporary.as_str(), &directory, &*[name, b".stmlf"].concat())?;
        Ok(())
    });
    if let Err(error) = renamed {
        // Report the first error. A temporary file that cannot be removed stays hidden.
        let _ = unlinkat(&directory, temporary.as_str(), AtFlags::empty());
        return Err(error);
    }
    fsync(&directory)?; // makes the rename durable
    Ok(())
}

fn fill(file: OwnedFd, source: &Stat, converted: &mut impl Read) -> io::Result<()> {
    let mut file = File::from(file);
    io::copy(converted, &mut file)?;
    fchmod(&file, Mode::from_raw_mode(source.st_mode & 0o777))?;
    let modified = Timespec { tv_sec: source.st_mtime, tv_nsec: source.st_mtime_nsec as _ };
    futimens(&file, &Timestamps { last_access: modified, last_modification: modified })?;
    fsync(&file)?;
    Ok(())
}

/// Returns a name for a temporary file: hidden, so that it is never served, and independent of the length of the source's
/// name.
fn temporary_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!(".stmlf-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::time::{Duration, SystemTime};

    use rustix::fs::fstat;

    use super::*;

    #[test]
    fn converted_files_have_the_mode_and_time_of_the_source() {
        let folder = tempfile::tempdir().unwrap();
        let sub = folder.path().join("sub");
        fs::create_dir(&sub).unwrap();
        let source = sub.join("REPORT.TXT");
        fs::write(&source, b"\x01\0a\0").unwrap();
        let modified = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_000_000);
        let file = File::options().write(true).open(&source).unwrap();
        file.set_modified(modified).unwrap();
        fchmod(&file, Mode::from_raw_mode(0o640)).unwrap();
        let before = fstat(&file).unwrap();
        let directory = File::open(folder.path()).unwrap();
        for text in ["first\n", "a\n"] {
            write_copy(&directory, b"sub/REPORT.TXT", &before, &mut text.as_bytes()).unwrap();
        }
        let beside = sub.join("REPORT.TXT.stmlf");
        assert_eq!(fs::read(&beside).unwrap(), b"a\n");
        let metadata = fs::metadata(&beside).unwrap();
        assert_eq!(metadata.modified().unwrap(), modified);
        assert_eq!(metadata.permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(&sub).unwrap().count(), 2, "no temporary file is left");
    }

    #[test]
    fn a_failed_write_leaves_no_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("X.stmlf")).unwrap();
        let directory = File::open(folder.path()).unwrap();
        let source = fstat(&directory).unwrap();
        write_copy(&directory, b"X", &source, &mut &b"a\n"[..]).unwrap_err();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
