//! The streams of a worker: requests' variables and bodies to it, its answers from it.

use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::io::ioctl_fionread;
use rustix::pipe::fcntl_setpipe_size;
use tokio::net::unix::pipe;

use super::scan::Marks;

/// Bytes that a worker can write ahead of the server.
const ROOM: usize = 256 * 1024;

/// The server's ends of a worker's streams.
#[derive(Debug)]
pub(in super::super) struct Streams {
    pub(super) variables: pipe::Sender,
    pub(super) stdin: pipe::Sender,
    pub(super) stdout: pipe::Receiver,
    pub(super) marks: Arc<Marks>,
    /// The script has asked for its variables in struct mode.
    pub(super) in_structs: Cell<bool>,
}

/// The worker's ends of its standard streams.
pub(in super::super) struct Ends {
    pub(in super::super) stdin: OwnedFd,
    pub(in super::super) stdout: OwnedFd,
}

impl Streams {
    /// Makes the streams of a worker that finds its variables at `path`, and registers them with
    /// this thread's loop.
    pub(in super::super) fn new(path: &Path) -> io::Result<(Self, Ends)> {
        mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        // Open for reading as well, so that it can be opened before the worker opens it.
        let variables = pipe::OpenOptions::new().read_write(true).open_sender(path)?;
        let (input, stdin) = io::pipe()?;
        let (stdout, output) = io::pipe()?;
        // Otherwise a worker with a larger answer has to wait in the middle of it. Granted or not, it works.
        let _ = fcntl_setpipe_size(&stdout, ROOM);
        let streams = Self {
            variables,
            stdin: pipe::Sender::from_owned_fd(stdin.into())?,
            stdout: pipe::Receiver::from_owned_fd(stdout.into())?,
            marks: Arc::new(Marks::new()?),
            in_structs: Cell::new(false),
        };
        Ok((streams, Ends { stdin: input.into(), stdout: output.into() }))
    }

    /// The streams, registered with this thread's loop instead of another's.
    pub(in super::super) fn reregister(self) -> io::Result<Self> {
        Ok(Self {
            variables: pipe::Sender::from_owned_fd(self.variables.into_nonblocking_fd()?)?,
            stdin: pipe::Sender::from_owned_fd(self.stdin.into_nonblocking_fd()?)?,
            stdout: pipe::Receiver::from_owned_fd(self.stdout.into_nonblocking_fd()?)?,
            ..self
        })
    }

    /// What tells the worker where they are.
    pub(in super::super) fn environment<'a>(
        &'a self,
        path: &'a Path,
    ) -> impl Iterator<Item = (&'static str, &'a std::ffi::OsStr)> {
        let marks = self.marks.variables().map(|(name, value)| (name, value.as_ref()));
        std::iter::once(("CGIPLUSIN", path.as_os_str())).chain(marks)
    }

    /// Whether the script has left nothing of a request's body.
    pub(super) fn is_read(&self) -> bool {
        ioctl_fionread(&self.stdin).is_ok_and(|count| count == 0)
    }

    /// Whether nothing but the end of a line has been written since the last answer, which would
    /// otherwise stand before the next one.
    pub(super) fn is_silent(&self) -> bool {
        if ioctl_fionread(&self.stdout).is_ok_and(|count| count == 0) {
            return true;
        }
        let mut buffer = [0; 8];
        loop {
            match self.stdout.try_read(&mut buffer) {
                Ok(0) => return false,
                Ok(count) => {
                    if !buffer[..count].iter().all(|byte| matches!(byte, b'\r' | b'\n')) {
                        return false;
                    }
                }
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    }
}
