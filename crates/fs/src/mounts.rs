//! Mounts and unmounts. inotify does not report them; /proc/self/mountinfo becomes ready when they change.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

/// The mounts of this process.
#[derive(Debug)]
pub(crate) struct Mounts {
    file: File,
    /// The content of the file when it was last read; `None` before the first time. A worker reads it before its first
    /// request, as the descriptor is ready from the start.
    known: Mutex<Option<Vec<u8>>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Mount {
    /// Mount ID and device.
    identity: Vec<u8>,
    point: Vec<u8>,
}

impl Mounts {
    /// # Errors
    /// When the file cannot be read, for example where /proc is not mounted.
    pub(crate) fn open() -> io::Result<Self> {
        let file = File::open("/proc/self/mountinfo")?;
        Ok(Self { file, known: Mutex::default() })
    }

    /// Returns a duplicate of the descriptor, for a worker to poll.
    pub(crate) fn duplicate(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Mount points that changed since the last call.
    pub(crate) fn changed(&self) -> Vec<Vec<u8>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(text) = read(&self.file) else { return Vec::new() };
        let Some(before) = known.replace(text) else { return Vec::new() };
        let (before, now) = (parse(&before), parse(known.as_deref().unwrap_or_default()));
        before.symmetric_difference(&now).map(|mount| mount.point.clone()).collect()
    }
}

fn read(file: &File) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        match file.read_at(&mut buffer, text.len() as u64) {
            Ok(0) => return Ok(text),
            Ok(count) => text.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reads lines such as `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw` (proc_pid_mountinfo(5)).
fn parse(text: &[u8]) -> HashSet<Mount> {
    let lines = text.split(|&b| b == b'\n');
    let mounts = lines.filter_map(|line| {
        let mut fields = line.split(|&b| b == b' ');
        let (number, device) = (fields.next()?, fields.nth(1)?);
        let point = unescape(fields.nth(1)?);
        Some(Mount { identity: [number, b" ", device].concat(), point })
    });
    mounts.collect()
}

/// Decodes spaces, tabs, line feeds and backslashes, which are escaped as a backslash and three octal digits.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| first == b'\\');
        let code =
            digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        out.push(code.unwrap_or(first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_in_mount_points_are_decoded() {
        let text = b"36 35 98:0 / /mnt rw,noatime master:1 - ext3 /dev/root rw\n\
                     37 36 0:5 / /a\\040b\\134c rw - tmpfs none rw\nbroken\n";
        let mut points: Vec<_> = parse(text).into_iter().map(|mount| mount.point).collect();
        points.sort();
        assert_eq!(points, [b"/a b\\c".to_vec(), b"/mnt".to_vec()]);
        let again = parse(&text[..text.len() - 8]);
        assert_eq!(parse(text), again);
        let moved = parse(b"38 35 98:0 / /mnt rw - ext3 /dev/root rw\n");
        assert_eq!(again.symmetric_difference(&moved).count(), 3);
    }

    #[test]
    fn mounts_are_unchanged_between_two_reads() {
        let mounts = Mounts::open().unwrap();
        assert!(mounts.changed().is_empty() && mounts.changed().is_empty());
        assert!(mounts.known.lock().unwrap().as_ref().is_some_and(|text| !text.is_empty()));
        assert_eq!(read(&mounts.file).unwrap(), read(&mounts.file).unwrap());
    }
}
