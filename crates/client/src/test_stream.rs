//! A byte stream in memory for tests: it takes and gives a few bytes at a time and would block between them.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The action of the other side when all bytes written so far have arrived.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Waits until it has received this number of bytes in total.
    Await(usize),
    /// Sends these bytes.
    Send(Vec<u8>),
    Close,
    Reset,
}

/// The client's end.
#[derive(Debug)]
pub(crate) struct TestStream {
    pub(crate) written: Vec<u8>,
    script: VecDeque<Step>,
    /// Bytes of a read or a write at most.
    size: usize,
    /// Bytes that the stream accepts in total.
    pub(crate) room: usize,
    /// Every second read and every second write would block.
    blocks: bool,
    has_blocked_read: bool,
    has_blocked_write: bool,
}

impl TestStream {
    pub(crate) fn new(size: usize, blocks: bool, script: impl IntoIterator<Item = Step>) -> Self {
        let script = script.into_iter().collect();
        Self {
            written: Vec::new(),
            script,
            size,
            room: usize::MAX,
            blocks,
            has_blocked_read: false,
            has_blocked_write: false,
        }
    }
}

/// Returns `true` if this call would block, as the last one did not; the task is woken at once.
fn would_block(blocks: bool, has_blocked: &mut bool, context: &mut Context<'_>) -> bool {
    *has_blocked = blocks && !*has_blocked;
    if *has_blocked {
        context.waker().wake_by_ref();
    }
    *has_blocked
}

impl AsyncRead for TestStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if would_block(self.blocks, &mut self.has_blocked_read, context) {
            return Poll::Pending;
        }
        let (received, size) = (self.written.len(), self.size);
        let result = loop {
            match self.script.front_mut() {
                // A wait without end is one that the test has no use for.
                None => return Poll::Pending,
                Some(Step::Await(count)) if received < *count => return Poll::Pending,
                Some(Step::Await(_)) => drop(self.script.pop_front()),
                Some(Step::Send(bytes)) if bytes.is_empty() => drop(self.script.pop_front()),
                Some(Step::Send(bytes)) => {
                    let count = bytes.len().min(size).min(into.remaining());
                    into.put_slice(&bytes[..count]);
                    bytes.drain(..count);
                    break Ok(());
                }
                Some(Step::Close) => break Ok(()),
                Some(Step::Reset) => break Err(io::ErrorKind::ConnectionReset.into()),
            }
        };
        Poll::Ready(result)
    }
}

impl AsyncWrite for TestStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if would_block(self.blocks, &mut self.has_blocked_write, context) {
            return Poll::Pending;
        }
        if let Some(Step::Reset) = self.script.front() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let count = bytes.len().min(self.size).min(self.room - self.written.len());
        if count == 0 {
            // A read will show what the other side does.
            return Poll::Pending;
        }
        self.written.extend_from_slice(&bytes[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
