//! The pipes between the server and a process that runs one script.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use rustix::io::ioctl_fionbio;
use tokio::net::unix::pipe;

use super::process::Input;

/// The server's ends and the process's ends.
pub(super) struct Pipes {
    /// The pipe to standard input, if the input is written while the process runs.
    pub(super) stdin: Option<pipe::Sender>,
    pub(super) stdout: pipe::Receiver,
    pub(super) stderr: pipe::Receiver,
    pub(super) ends: PipeEnds,
}

/// The process's own ends.
pub(super) struct PipeEnds {
    pub(super) input: Option<OwnedFd>,
    pub(super) output: OwnedFd,
    pub(super) errors: OwnedFd,
}

impl Pipes {
    /// Creates the pipes, with `/dev/null` as standard input where there is no input.
    pub(super) fn with_input(input: &Input) -> io::Result<Self> {
        let mut pipes = Self::new(input)?;
        if let Input::Nothing = input {
            pipes.ends.input = Some(nothing()?);
        }
        Ok(pipes)
    }

    /// Creates the pipes and registers the server's ends with this worker thread.
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
            ends: PipeEnds { input, output: output.into(), errors: errors.into() },
        })
    }
}

/// `/dev/null` for reading. It is opened once: duplicating it takes a fraction of the time.
fn nothing() -> io::Result<OwnedFd> {
    static NULL: OnceLock<File> = OnceLock::new();
    let null = match NULL.get() {
        Some(null) => null,
        None => {
            let null = File::open("/dev/null")?;
            NULL.get_or_init(|| null)
        }
    };
    Ok(null.try_clone()?.into())
}

fn not_blocking(end: OwnedFd) -> io::Result<OwnedFd> {
    ioctl_fionbio(&end, true)?;
    Ok(end)
}
