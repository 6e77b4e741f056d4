//! Reading without the call that would only say that nothing is left: less than there was room for was all that
//! there is, and the loop will be told of more.

use std::io::{self, ErrorKind};

use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

/// What scripts' answers come by.
pub(super) trait Readiness {
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Has the next read wait to be told of something.
    fn clear(&self);

    /// Reads what is there; 0 at the end.
    ///
    /// # Errors
    /// `WouldBlock` when the loop was told of nothing since all was read.
    fn read_told(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.try_read(buffer)?;
        if count > 0 && count < buffer.len() {
            self.clear();
        }
        Ok(count)
    }
}

fn nothing() -> io::Result<()> {
    Err(ErrorKind::WouldBlock.into())
}

impl Readiness for pipe::Receiver {
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Self::try_read(self, buffer)
    }

    fn clear(&self) {
        let _ = self.try_io(nothing);
    }
}

impl Readiness for UnixStream {
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Self::try_read(self, buffer)
    }

    fn clear(&self) {
        let _ = self.try_io(Interest::READABLE, nothing);
    }
}
