//! Guarantees of file systems.

use std::os::fd::AsFd;

use rustix::fs::fstatfs;

/// Guarantees of a file system about its files.
#[derive(Debug, Clone, Copy)]
pub struct FileSystem {
    /// inotify reports every change, as only this kernel changes the files.
    pub notifies: bool,
    /// Files have a change time (ctime) that programs cannot set.
    pub keeps_change_times: bool,
}

impl FileSystem {
    /// Creates the file system of an open file.
    pub fn of(fd: impl AsFd) -> Self {
        let Ok(fs) = fstatfs(fd) else {
            return Self { notifies: false, keeps_change_times: false };
        };
        let kind = fs.f_type as u32;
        Self {
            notifies: !REMOTE.contains(&kind),
            keeps_change_times: !WITHOUT_CHANGE_TIMES.contains(&kind),
        }
    }
}

/// NFS, SMB, SMB2, CIFS, FUSE, 9P, AFS, Ceph.
const REMOTE: [u32; 8] =
    [0x6969, 0x517b, 0xfe53_4d42, 0xff53_4d42, 0x6573_5546, 0x0102_1997, 0x5346_414f, 0x00c3_6400];

/// FAT, exFAT, ISO 9660, SquashFS, EROFS, cramfs, romfs: their ctime equals the mtime, which is the same in every version
/// of a reproducible image.
const WITHOUT_CHANGE_TIMES: [u32; 7] =
    [0x4d44, 0x2011_bab0, 0x9660, 0x7371_7368, 0xe0f5_e1e2, 0x28cd_3d45, 0x7275];
