//! Asking to be notified when a file changes, by each name that leads to it.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use super::roots::Root;
use crate::cache::Validity;
use crate::worker::SharedState;

/// Ends `version` when the name `file` beneath `root` changes. To be called before the file is opened. False when
/// the change would not be notified.
pub(super) fn follow(
    shared: &SharedState,
    root: &Root,
    file: &[u8],
    validity: &Arc<Validity>,
) -> bool {
    let Some(watch) = &shared.watch else { return false };
    let (directory, name) = place(root, file);
    watch.follow(&root.path, &directory, name, validity)
}

/// Ends `version` when the open file `fd` changes that `file` led to: when symlinks led to it, by its true name and by
/// each of theirs as well.
pub(super) fn follow_real(
    shared: &SharedState,
    root: &Root,
    fd: &OwnedFd,
    file: &[u8],
    validity: &Arc<Validity>,
) -> bool {
    let Some(watch) = &shared.watch else { return false };
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

/// Undoes [`follow`] after `file` turned out to be nothing that is kept.
pub(super) fn forget(shared: &SharedState, root: &Root, file: &[u8]) {
    if let Some(watch) = &shared.watch {
        let (directory, name) = place(root, file);
        watch.forget(&directory, name);
    }
}

/// The absolute directory of `file`, and its name there.
fn place<'f>(root: &Root, file: &'f [u8]) -> (Vec<u8>, &'f [u8]) {
    let mut directory = root.path.to_vec();
    let Some(slash) = memchr::memrchr(b'/', file) else { return (directory, file) };
    directory.push(b'/');
    directory.extend_from_slice(&file[..slash]);
    (directory, &file[slash + 1..])
}
