//! Opens files beneath a root. The kernel resolves every path and rejects those that leave the root.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2, readlinkat};
use rustix::io::Errno;

use super::failure::Failure;
use super::mode::Mode as Waiting;
use super::roots::Root;
use dunlin_config::Symlinks;
use dunlin_net::log_limiter::LogLimiter;

/// Opens `path` (relative to `root`, no leading slash) for reading.
pub fn open(
    root: &Root,
    path: &[u8],
    symlinks: Symlinks,
    waiting: Waiting,
) -> Result<OwnedFd, Failure> {
    // NONBLOCK: opening a FIFO must not block until another process opens it for writing.
    open_as(root, path, symlinks, waiting, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)
}

/// Opens the directory `path` for reading its entries.
pub fn open_directory(
    root: &Root,
    path: &[u8],
    symlinks: Symlinks,
    waiting: Waiting,
) -> Result<OwnedFd, Failure> {
    open_as(root, path, symlinks, waiting, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// Opens `path` for metadata only.
pub fn open_path(
    root: &Root,
    path: &[u8],
    symlinks: Symlinks,
    waiting: Waiting,
) -> Result<OwnedFd, Failure> {
    open_as(root, path, symlinks, waiting, OFlags::PATH)
}

fn open_as(
    root: &Root,
    path: &[u8],
    symlinks: Symlinks,
    waiting: Waiting,
    flags: OFlags,
) -> Result<OwnedFd, Failure> {
    let path = if path.is_empty() { b"." } else { path };
    let mut resolve = match symlinks {
        Symlinks::Beneath => ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
        Symlinks::Deny => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
        Symlinks::Follow => ResolveFlags::NO_MAGICLINKS,
    };
    if waiting == Waiting::Inline {
        resolve |= ResolveFlags::CACHED;
    }
    // With RESOLVE_BENEATH, EAGAIN also reports a concurrent rename.
    for _ in 0..8 {
        return match openat2(&root.fd, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Ok(fd) => Ok(fd),
            Err(Errno::AGAIN) if waiting == Waiting::Inline => Err(Failure::WouldBlock),
            Err(Errno::AGAIN | Errno::INTR) => continue,
            Err(error) => Err(failure(root, path, error)),
        };
    }
    Err(Failure::Exhausted)
}

/// Returns `true` if the first symlink of the path is absolute.
fn has_absolute_link(root: &Root, path: &[u8]) -> bool {
    let ends = memchr::memchr_iter(b'/', path).chain([path.len()]);
    let mut links = ends.filter_map(|end| readlinkat(&root.fd, &path[..end], Vec::new()).ok());
    links.next().is_some_and(|target| target.to_bytes().starts_with(b"/"))
}

fn failure(root: &Root, path: &[u8], error: Errno) -> Failure {
    static LOG_LIMITER: LogLimiter = LogLimiter::new();
    let reason = match error {
        Errno::ACCESS | Errno::PERM => {
            "the server's user may not read it, or not enter a directory above it"
        }
        Errno::XDEV if has_absolute_link(root, path) => {
            "the path has a symlink that is absolute, which is not followed even where it leads back into the root: make \
             it relative, or see `symlinks`"
        }
        Errno::LOOP | Errno::XDEV => "the path has a symlink that is not followed: see `symlinks`",
        _ => "",
    };
    if !reason.is_empty() && LOG_LIMITER.is_due() {
        tracing::info!(
            "{}/{}: 403: {reason}",
            root.place().display(),
            String::from_utf8_lossy(path)
        );
    }
    match error {
        Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::INVAL => Failure::Missing,
        Errno::ACCESS | Errno::PERM | Errno::LOOP | Errno::XDEV | Errno::NXIO | Errno::NODEV => {
            Failure::Forbidden
        }
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => Failure::Exhausted,
        error => {
            tracing::error!("{}: {error}", String::from_utf8_lossy(path));
            Failure::Broken
        }
    }
}
