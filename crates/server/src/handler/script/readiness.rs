//! Reading without the call that would only say that nothing is left: less than there was room for was all that
//! there is, and the loop will be told of more.

use std::io::{self, ErrorKind};

use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

/// What scripts' answers come by.
pub(super) trait Readiness {
    /// Has the next read wait to be told of something.
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
