//! The bytes of an HTTP/2 connection: their number, and who has ended it.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::engine::recorder::SharedRecorder;
use crate::engine::streams::Seen;

/// A stream whose received bytes are counted, heads of frames included.
pub(super) struct Wire<T> {
    stream: T,
    recorder: SharedRecorder,
    seen: Rc<Seen>,
}

impl<T> Wire<T> {
    pub(super) fn new(stream: T, recorder: SharedRecorder, seen: Rc<Seen>) -> Self {
        Self { stream, recorder, seen }
    }

    fn note(&self, result: &io::Result<()>) {
        let kind = result.as_ref().err().map(io::Error::kind);
        if let Some(io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) = kind {
            self.seen.reset.set(true);
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Wire<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = std::task::ready!(Pin::new(&mut self.stream).poll_read(context, buffer));
        self.note(&result);
        let count = (buffer.filled().len() - before) as u64;
        if count > 0 {
            let mut recorder = self.recorder.now();
            self.seen.last.set(recorder.now);
            recorder.receive(count);
        } else if result.is_ok() && buffer.remaining() > 0 {
            self.seen.ended.set(true);
        }
        Poll::Ready(result)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Wire<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = std::task::ready!(Pin::new(&mut self.stream).poll_write(context, bytes));
        let (result, count) = match result {
            Ok(count) => (Ok(()), count),
            Err(error) => (Err(error), 0),
        };
        self.note(&result);
        Poll::Ready(result.map(|()| count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result =
            std::task::ready!(Pin::new(&mut self.stream).poll_write_vectored(context, parts));
        let (result, count) = match result {
            Ok(count) => (Ok(()), count),
            Err(error) => (Err(error), 0),
        };
        self.note(&result);
        Poll::Ready(result.map(|()| count))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
