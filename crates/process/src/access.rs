//! Checks that the user to which the server switches can use the files that it opens after that.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;
use rustix::fd::OwnedFd;
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, accessat, open};
use rustix::io::Errno;
use rustix::thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::sandbox::Identity;

/// The use of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// To read it.
    Read,
    /// Files in the directory are created or replaced.
    Write,
    /// The program is run, or the directory is entered.
    Execute,
}

impl Use {
    fn access(self) -> Access {
        match self {
            Self::Read => Access::READ_OK,
            Self::Write => Access::WRITE_OK | Access::EXEC_OK,
            Self::Execute => Access::EXEC_OK,
        }
    }
}

/// For each file, why the user cannot use it, in the same order. `None` when it can, or when this process cannot find
/// out. `root` is the directory of a coming chroot; directories above it are not checked.
pub fn failures(
    identity: &Identity,
    files: &[(PathBuf, Use)],
    root: Option<&Path>,
) -> Vec<Option<Errno>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = root.and_then(|root| Some((root, open(root, flags, Mode::empty()).ok()?)));
    let opened = opened.as_ref().map(|(root, fd)| (*root, fd));
    let directly = || files.iter().map(|(path, r#use)| test(path, *r#use, opened)).collect();
    if identity.is_present() {
        return directly();
    }
    let by_mode =
        || files.iter().map(|(path, r#use)| by_mode(identity, path, *r#use, root)).collect();
    if !geteuid().is_root() {
        return by_mode();
    }
    // Credentials are per thread: a temporary thread takes those of the user, so that the kernel decides, including
    // access control lists. In a container, root may lack the permission.
    let thread = std::thread::scope(|scope| {
        scope.spawn(|| switch_this_thread(identity).map(|()| directly())).join()
    });
    match thread {
        Ok(Ok(failures)) => failures,
        _ => by_mode(),
    }
}

fn test(path: &Path, r#use: Use, root: Option<(&Path, &OwnedFd)>) -> Option<Errno> {
    let access = r#use.access();
    let beneath = root.and_then(|(root, fd)| Some((path.strip_prefix(root).ok()?, fd)));
    let result = match beneath {
        Some((path, fd)) if path.as_os_str().is_empty() => {
            accessat(fd, ".", access, AtFlags::empty())
        }
        Some((path, fd)) => accessat(fd, path, access, AtFlags::empty()),
        None => accessat(CWD, path, access, AtFlags::empty()),
    };
    result.err()
}

fn switch_this_thread(identity: &Identity) -> Result<(), Errno> {
    let gid = Gid::from_raw(identity.gid.as_raw());
    if identity.uid.is_some() {
        let groups: Vec<_> =
            identity.groups.iter().map(|gid| Gid::from_raw(gid.as_raw())).collect();
        set_thread_groups(&groups)?;
    }
    set_thread_res_gid(gid, gid, gid)?;
    if let Some(uid) = identity.uid {
        let uid = Uid::from_raw(uid.as_raw());
        set_thread_res_uid(uid, uid, uid)?;
    }
    Ok(())
}

/// Evaluates modes, owners and groups of the file and of every directory above it.
fn by_mode(identity: &Identity, path: &Path, r#use: Use, root: Option<&Path>) -> Option<Errno> {
    let uid = identity.uid.unwrap_or_else(geteuid);
    if uid.is_root() {
        return None;
    }
    let has = |path: &Path, bits: u32| {
        // Unknown to this process: assume that it is permitted.
        let Ok(metadata) = path.metadata() else { return true };
        let in_group = identity.gid.as_raw() == metadata.gid()
            || identity.groups.iter().any(|gid| gid.as_raw() == metadata.gid());
        let shift = match (metadata.uid() == uid.as_raw(), in_group) {
            (true, _) => 6,
            (false, true) => 3,
            (false, false) => 0,
        };
        metadata.mode() >> shift & bits == bits
    };
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let directories = path.ancestors().skip(1).chain(real.ancestors().skip(1));
    let inside = |path: &&Path| root.is_none_or(|root| path.starts_with(root));
    let mut directories = directories.filter(|path| !path.as_os_str().is_empty()).filter(inside);
    let reachable = directories.all(|path| has(path, 1));
    let bits = match r#use {
        Use::Read => 4,
        Use::Write => 3,
        Use::Execute => 1,
    };
    if !reachable || !has(path, bits) {
        return Some(Errno::ACCESS);
    }
    None
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn modes_are_evaluated_as_the_kernel_does() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let file = folder.path().join("users");
        fs::write(&file, "").unwrap();
        let (own, group) = (file.metadata().unwrap().uid(), file.metadata().unwrap().gid());
        let identity = |uid: u32, gid: u32, groups: &[u32]| Identity {
            name: String::new(),
            uid: Some(nix::unistd::Uid::from_raw(uid)),
            gid: nix::unistd::Gid::from_raw(gid),
            groups: groups.iter().map(|&gid| nix::unistd::Gid::from_raw(gid)).collect(),
        };
        let may = |mode: u32, identity: &Identity| {
            fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            by_mode(identity, &file, Use::Read, None).is_none()
        };
        let stranger = identity(own + 7, group + 7, &[]);
        let member = identity(own + 7, group + 7, &[group]);
        assert!(may(0o644, &stranger) && !may(0o640, &stranger));
        assert!(may(0o640, &member) && !may(0o604, &member) && !may(0o600, &member));
        fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
        assert!(!may(0o644, &stranger) && !may(0o644, &member));
    }
}
