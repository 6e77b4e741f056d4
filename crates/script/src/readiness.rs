//! Saves the read that would return `EAGAIN`: after a read that did not fill the buffer, nothing is left, and the
//! runtime reports when there is more.

use std::io::{self, ErrorKind};

use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

/// A stream that scripts' output arrives on.
pub(super) trait Readiness {
    /// Clears the readiness, so that the next read waits for the runtime.
    fn clear(&self);
}

fn nothing() -> io::Result<()> {
    Err(ErrorKind::WouldBlock.into())
}

impl Readiness for pipe::Receiver {
    fn clear(&self) {
        let _ = self.try_io(nothing);
    }
}

impl Readiness for UnixStream {
    fn clear(&self) {
        let _ = self.try_io(Interest::READABLE, nothing);
    }
}
