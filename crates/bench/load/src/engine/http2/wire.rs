//! The bytes of an HTTP/2 connection: their number, and who has ended it.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::state::State;
use crate::engine::clock::Clock;

/// What was seen on the stream of a connection.
#[derive(Default)]
pub(super) struct Seen {
    /// The server has closed its side.
    pub(super) ended: Cell<bool>,
    /// The server has reset the connection.
    pub(super) reset: Cell<bool>,
    /// Time of the last byte.
    pub(super) last: Cell<u64>,
}

impl Seen {
    /// Returns `true` if the server has ended the connection.
    pub(super) fn is_ended(&self) -> bool {
        self.ended.get() || self.reset.get()
    }
}

/// A stream whose received bytes are counted, heads of frames included.
pub(super) struct Wire<T> {
    stream: T,
    clock: Clock,
    state: Rc<RefCell<State>>,
    seen: Rc<Seen>,
}

impl<T> Wire<T> {
    pub(super) fn new(stream: T, clock: Clock, state: Rc<RefCell<State>>, seen: Rc<Seen>) -> Self {
        Self { stream, clock, state, seen }
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
            let now = self.clock.now();
            self.seen.last.set(now);
            self.state.borrow_mut().recorder.receive(now, count);
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
