//! Removes the files of Unix sockets that the server, after it has changed its user, may not remove itself.
//!
//! The directory of such a file belongs to root, who has bound the socket. A process that has kept root's permission to
//! remove files waits for the end of the server, however it ends, and for that of the processes that upgrades have put in
//! its place. It takes no commands: the files are fixed before the server accepts its first connection.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use dunlin_config::{Address, Config, Listen};
use nix::sys::signal::{SigSet, SigmaskHow};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

use crate::sandbox::Identity;

/// The name of the internal command of the process.
pub const REMOVE_SOCKETS: &str = "remove-sockets";
/// Time between two looks at the sockets of a server that was upgraded.
const PAUSE: Duration = Duration::from_millis(200);

/// The process that removes files.
pub struct SocketRemover {
    /// The pipe that ends with the server.
    server: ChildStdin,
    /// The pipe that ends with the process.
    process: ChildStdout,
    /// The files, as this process names them.
    files: Vec<PathBuf>,
}

/// The identity of a file: device and inode.
pub type FileId = (u64, u64);

/// Returns the socket at `path`; `None` if there is none.
pub fn socket_at(path: &Path) -> Option<FileId> {
    let metadata = fs::symlink_metadata(path).ok()?;
    metadata.file_type().is_socket().then(|| (metadata.dev(), metadata.ino()))
}

impl SocketRemover {
    /// Starts the process, if `config` names sockets in directories in which `identity` may not remove files.
    pub fn start(config: &Config, identity: &Identity, program: &Path) -> Option<Self> {
        let unix = |listen: &Listen| match &listen.address {
            Address::Unix(path) => Some(path.clone()),
            Address::Tcp(_) => None,
        };
        let outside = |path: &Path| match config.chroot() {
            Some(chroot) => chroot.directory().join(path.strip_prefix("/").unwrap_or(path)),
            None => std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
        };
        let mut files: Vec<PathBuf> = config.listen.iter().filter_map(unix).collect();
        files.retain(|file| !identity.may_remove(&outside(file)));
        if files.is_empty() {
            return None;
        }
        let mut command = Command::new(program);
        command.arg(REMOVE_SOCKETS).args(files.iter().map(|file| outside(file))).env_clear();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // A service manager sends signals to all processes; they are for the server. The process inherits the mask.
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK);
        let child = command.spawn();
        let _ = before.and_then(|before| before.thread_set_mask());
        // Without it, a file stays, and the log has a line about it.
        let mut child = child.ok()?;
        Some(Self { server: child.stdin.take()?, process: child.stdout.take()?, files })
    }

    /// Names the sockets that are bound now.
    pub fn watch<'a>(&mut self, bound: impl Iterator<Item = (&'a Path, FileId)>) {
        for (path, (device, inode)) in bound {
            if let Some(number) = self.files.iter().position(|file| file == path) {
                let name = path.display();
                // If the process has ended, a file stays.
                let _ = writeln!(self.server, "{number} {device} {inode} {name}");
            }
        }
    }

    /// Returns `true` if the socket at `path` is one of those that are removed.
    pub fn removes(&self, path: &Path) -> bool {
        self.files.iter().any(|file| file == path)
    }

    /// Waits until the files are removed, up to `limit`. No socket is open any more.
    pub fn finish(self, limit: Duration) {
        let Self { server, mut process, .. } = self;
        drop(server);
        let (ended, end) = mpsc::channel();
        let wait = move || {
            let _ = process.read(&mut [0]);
            let _ = ended.send(());
        };
        if std::thread::Builder::new().spawn(wait).is_ok() {
            let _ = end.recv_timeout(limit);
        }
    }
}

/// A file to remove.
struct Target {
    path: PathBuf,
    id: FileId,
    /// The path by which the server has bound it.
    bound: String,
}

impl Target {
    fn parse(line: &str, paths: &[PathBuf]) -> Option<Self> {
        let mut words = line.splitn(4, ' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        let (at, id) = (number()?, (number()?, number()?));
        let path = paths.get(usize::try_from(at).ok()?)?.clone();
        Some(Self { path, id, bound: words.next()?.to_owned() })
    }

    /// Returns `true` if a process listens, by the text of `/proc/net/unix`.
    fn is_listening(&self, sockets: &str) -> bool {
        sockets.lines().any(|line| {
            let mut words = line.split_ascii_whitespace();
            let is_listener = words.nth(3) == Some("00010000");
            is_listener && line.trim_end().ends_with(&format!(" {}", self.bound))
        })
    }

    fn remove(&self) {
        if socket_at(&self.path) == Some(self.id) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The process: waits until no process listens on the sockets that standard input names, and removes their files, which are
/// among `paths`.
pub fn remove_sockets(paths: &[PathBuf]) {
    let _ = std::env::set_current_dir("/");
    let kept = CapabilitySet::DAC_OVERRIDE | CapabilitySet::FOWNER;
    let none = CapabilitySet::empty();
    let _ = set_capabilities(
        None,
        CapabilitySets { effective: kept, permitted: kept, inheritable: none },
    );
    let mut text = Vec::new();
    let _ = io::stdin().read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text);
    let mut left: Vec<Target> =
        text.lines().filter_map(|line| Target::parse(line, paths)).collect();
    // Without the list, a file could be that of a server which was upgraded.
    while let Ok(sockets) = fs::read("/proc/net/unix") {
        let sockets = String::from_utf8_lossy(&sockets);
        let (listening, ended) = left.into_iter().partition(|target| target.is_listening(&sockets));
        let ended: Vec<Target> = ended;
        ended.iter().for_each(Target::remove);
        left = listening;
        if left.is_empty() {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_socket_is_removed_only_when_no_process_listens_and_it_is_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let id = socket_at(&path).unwrap();
        let line = format!("0 {} {} {}", id.0, id.1, path.display());
        let target = Target::parse(&line, std::slice::from_ref(&path)).unwrap();
        let sockets = || fs::read_to_string("/proc/net/unix").unwrap();
        let client = std::os::unix::net::UnixStream::connect(&path).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert!(target.is_listening(&sockets()));
        drop(listener);
        assert!(!target.is_listening(&sockets()), "a connection is none");
        drop((client, accepted));
        let other = Target { id: (id.0, id.1 + 1), path: path.clone(), bound: String::new() };
        other.remove();
        assert!(path.exists());
        target.remove();
        assert!(!path.exists());
        fs::write(&path, "a file").unwrap();
        target.remove();
        assert!(path.exists());
        for wrong in ["", "0", "0 1 x /a", "1 1 1 /a", "-1 1 1 /a"] {
            assert!(Target::parse(wrong, std::slice::from_ref(&path)).is_none(), "{wrong}");
        }
    }
}
