//! Framed bytes that wait for the socket.

use std::cell::Cell;
use std::io;
use std::task::{Context, Poll};

use dunlin_tls::Transport;

/// Bytes on their way to the socket. Bytes that were sent are released, and while nothing waits there is no buffer.
#[derive(Default)]
pub(super) struct Unsent {
    bytes: Vec<u8>,
    /// Bytes of `bytes` that were sent.
    at: usize,
    /// Bytes that were sent before, and are not in `bytes`.
    released: u64,
}

thread_local! {
    /// A buffer for bytes that the socket mostly accepts at once.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A larger buffer is not kept as the thread's spare one.
const SPARE_MAX: usize = 256 * 1024;
/// A smaller buffer is kept although most of it is not in use.
const SMALL: usize = 4 * 1024;

impl Unsent {
    /// Creates a queue that begins with `bytes`.
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, ..Self::default() }
    }

    /// Returns the buffer to which bytes are appended.
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        if self.bytes.capacity() == 0 {
            self.bytes = SPARE.take();
        }
        &mut self.bytes
    }

    /// Returns the bytes that were not sent.
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// Returns the number of bytes that were not sent.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of bytes that were sent so far.
    pub(super) fn sent(&self) -> u64 {
        self.released + self.at as u64
    }

    /// Sends what the socket accepts. Completes when it has accepted all.
    pub(super) fn poll_send(
        &mut self,
        stream: &mut Transport,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let result = stream.poll_send(cx, &self.bytes, &mut self.at);
        // Moving the rest costs less than sending what precedes it did.
        if self.at >= self.len() {
            self.released += self.at as u64;
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        result
    }

    /// Frees what is not in use, before the task waits.
    pub(super) fn shrink(&mut self) {
        if self.is_empty() || self.bytes.capacity() / 2 > self.len().max(SMALL) {
            let buffer = std::mem::take(&mut self.bytes);
            self.bytes.extend_from_slice(&buffer[self.at..]);
            self.released += self.at as u64;
            self.at = 0;
            give_spare(buffer);
        }
    }

    /// Returns the bytes of the buffer.
    pub(super) fn held(&self) -> usize {
        self.bytes.capacity()
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        give_spare(std::mem::take(&mut self.bytes));
    }
}

fn give_spare(mut buffer: Vec<u8>) {
    if buffer.capacity() == 0 || buffer.capacity() > SPARE_MAX {
        return;
    }
    buffer.clear();
    // The thread's values may have been dropped.
    let _ = SPARE.try_with(|spare| {
        let kept = spare.take();
        spare.set(if kept.capacity() > buffer.capacity() { kept } else { buffer });
    });
}
