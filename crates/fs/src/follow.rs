//! Change notification for every name by which a file beneath a root is reached.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use super::roots::Root;
use super::validity::Validity;
use super::watch::Watch;

/// Invalidates `validity` when the name `file` beneath `root` changes. Call it before opening the file. Returns false when
/// changes cannot be watched.
pub fn follow(watch: &Watch, root: &Root, file: &[u8], validity: &Arc<Validity>) -> bool {
    let (directory, name) = place(root, file);
    watch.follow(&root.path, &directory, name, validity)
}

/// Invalidates `validity` when the open file `fd`, reached by `file`, changes: watches its real name, and the symlinks
/// through which it was reached.
pub fn follow_real(
    watch: &Watch,
    root: &Root,
    fd: &OwnedFd,
    file: &[u8],
    validity: &Arc<Validity>,
) -> bool {
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let Ok(real) = rustix::fs::readlink(link, Vec::new()) else { return false };
    let real = real.as_bytes();
    let (directory, name) = place(root, file);
    let Some(slash) = memchr::memrchr(b'/', real) else { return false };
    let (real_directory, real_name) = (&real[..slash], &real[slash + 1..]);
    if *real_directory == *directory && real_name == name {
        return true;
    }
    watch.follow_symlinks(&[&directory, b"/".as_slice(), name].concat(), validity);
    let beneath = real_directory.starts_with(&root.path);
    let root = if beneath { &*root.path } else { real_directory };
    watch.follow(root, real_directory, real_name, validity)
}

/// Undoes [`follow`] for a file that is not cached.
pub fn forget(watch: &Watch, root: &Root, file: &[u8]) {
    let (directory, name) = place(root, file);
    watch.forget(&directory, name);
}

/// Returns the absolute directory of `file`, and its name in it.
fn place<'f>(root: &Root, file: &'f [u8]) -> (Vec<u8>, &'f [u8]) {
    let mut directory = root.path.to_vec();
    let Some(slash) = memchr::memrchr(b'/', file) else { return (directory, file) };
    directory.push(b'/');
    directory.extend_from_slice(&file[..slash]);
    (directory, &file[slash + 1..])
}
