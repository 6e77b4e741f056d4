//! The admin socket of a server without a configuration, so that it can be watched.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// The longest path of a Unix socket.
const LONGEST: usize = 107;

/// Returns where a server of `directory` at the addresses `listen` has its admin socket; `None` if there is no place for it,
/// or another server has it. The process of an upgrade (`takes_over`) has that of the process before.
pub(crate) fn admin_socket(
    directory: &Path,
    listen: &[String],
    takes_over: bool,
) -> Option<PathBuf> {
    let folder = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let folder = folder.filter(|folder| is_usable(folder)).unwrap_or_else(std::env::temp_dir);
    if !is_usable(&folder) {
        return None;
    }
    // The same in the process of an upgrade.
    let mut hasher = DefaultHasher::new();
    (std::path::absolute(directory).ok()?, listen).hash(&mut hasher);
    rustix::process::geteuid().as_raw().hash(&mut hasher);
    let socket = folder.join(format!("dunlin-{:08x}.sock", hasher.finish() as u32));
    if socket.as_os_str().len() > LONGEST {
        return None;
    }
    let is_free = takes_over || !socket.exists() || is_left(&socket);
    is_free.then_some(socket)
}

fn is_usable(folder: &Path) -> bool {
    folder.is_absolute() && access(folder, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

/// Returns `true` if the socket is that of a server which has ended.
fn is_left(socket: &Path) -> bool {
    let refused = std::io::ErrorKind::ConnectionRefused;
    UnixStream::connect(socket).is_err_and(|error| error.kind() == refused)
        && socket.symlink_metadata().is_ok_and(|found| {
            use std::os::unix::fs::{FileTypeExt, MetadataExt};
            found.file_type().is_socket() && found.uid() == rustix::process::geteuid().as_raw()
        })
}
