//! The pipes between the server and a process that runs one script.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::ioctl_fionbio;
use tokio::net::unix::pipe;

use super::process::Input;

/// The server's ends, and the process's.
pub(super) struct Pipes {
    /// Where the process's input is written to while it runs, if that is asked for.
    pub(super) stdin: Option<pipe::Sender>,
    pub(super) stdout: pipe::Receiver,
    pub(super) stderr: pipe::Receiver,
    pub(super) ends: Ends,
}

/// The process's own ends.
pub(super) struct Ends {
    pub(super) input: Option<OwnedFd>,
    pub(super) output: OwnedFd,
    pub(super) errors: OwnedFd,
}

impl Pipes {
    /// Pipes of the loop that this is called on.
    pub(super) fn new(input: &Input) -> io::Result<Self> {
        let (stdin, input) = match input {
            Input::Pipe => {
                let (reader, writer) = io::pipe()?;
                let writer = not_blocking(writer.into())?;
                (Some(pipe::Sender::from_owned_fd_unchecked(writer)?), Some(reader.into()))
            }
            Input::Nothing | Input::File(_) => (None, None),
        };
        let (stdout, output) = io::pipe()?;
        let (stderr, errors) = io::pipe()?;
        Ok(Self {
            stdin,
            stdout: pipe::Receiver::from_owned_fd_unchecked(not_blocking(stdout.into())?)?,
            stderr: pipe::Receiver::from_owned_fd_unchecked(not_blocking(stderr.into())?)?,
            ends: Ends { input, output: output.into(), errors: errors.into() },
        })
    }
}

fn not_blocking(end: OwnedFd) -> io::Result<OwnedFd> {
    ioctl_fionbio(&end, true)?;
    Ok(end)
}
