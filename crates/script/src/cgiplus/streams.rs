//! The pipes of a worker: variables and bodies of requests to it, responses from it.

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

/// Size of the pipe for responses.
const ROOM: usize = 256 * 1024;

/// The server's ends of a worker's pipes.
#[derive(Debug)]
pub(in super::super) struct Streams {
    pub(super) variables: pipe::Sender,
    pub(super) stdin: pipe::Sender,
    pub(super) stdout: pipe::Receiver,
    pub(super) marks: Arc<Marks>,
    /// The program has requested struct mode.
    pub(super) struct_mode: Cell<bool>,
}

/// The worker's ends.
pub(in super::super) struct WorkerEnds {
    pub(in super::super) stdin: OwnedFd,
    pub(in super::super) stdout: OwnedFd,
}

impl Streams {
    /// Creates the pipes of a worker, with a FIFO for variables at `path`, and registers them with this worker
    /// thread.
    pub(in super::super) fn new(path: &Path) -> io::Result<(Self, WorkerEnds)> {
        mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        // Open for reading as well, so that opening it does not wait for the worker.
        let variables = pipe::OpenOptions::new().read_write(true).open_sender(path)?;
        let (input, stdin) = io::pipe()?;
        let (stdout, output) = io::pipe()?;
        // A larger pipe keeps workers from waiting in the middle of a response. It is optional.
        let _ = fcntl_setpipe_size(&stdout, ROOM);
        let streams = Self {
            variables,
            stdin: pipe::Sender::from_owned_fd(stdin.into())?,
            stdout: pipe::Receiver::from_owned_fd(stdout.into())?,
            marks: Arc::new(Marks::new()?),
            struct_mode: Cell::new(false),
        };
        Ok((streams, WorkerEnds { stdin: input.into(), stdout: output.into() }))
    }

    /// Returns the same pipes, registered with this worker thread.
    pub(in super::super) fn reregister(self) -> io::Result<Self> {
        Ok(Self {
            variables: pipe::Sender::from_owned_fd(self.variables.into_nonblocking_fd()?)?,
            stdin: pipe::Sender::from_owned_fd(self.stdin.into_nonblocking_fd()?)?,
            stdout: pipe::Receiver::from_owned_fd(self.stdout.into_nonblocking_fd()?)?,
            ..self
        })
    }

    /// Returns the variables that give the worker its FIFO and its marks.
    pub(in super::super) fn environment<'a>(
        &'a self,
        path: &'a Path,
    ) -> impl Iterator<Item = (&'static str, &'a std::ffi::OsStr)> {
        let marks = self.marks.variables().map(|(name, value)| (name, value.as_ref()));
        std::iter::once(("CGIPLUSIN", path.as_os_str())).chain(marks)
    }

    /// Returns `true` if the program has read the whole body.
    pub(super) fn is_read(&self) -> bool {
        ioctl_fionread(&self.stdin).is_ok_and(|count| count == 0)
    }

    /// Returns `true` if nothing but the end of a line was written since the last response. Other output would become part of
    /// the next response.
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
