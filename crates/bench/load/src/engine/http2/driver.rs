//! The task of a connection: it moves the bytes.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

use super::state::Http2State;
use crate::engine::recorder::SharedRecorder;
use crate::engine::streams::Seen;
use crate::outcome::ErrorKind;

/// Bytes that a read makes room for.
const ROOM: usize = 64 * 1024;

/// The task of a connection before it starts.
pub(super) struct ConnectionTask {
    state: Rc<RefCell<Http2State>>,
    recorder: SharedRecorder,
    seen: Rc<Seen>,
}

impl ConnectionTask {
    pub(super) fn new(
        state: &Rc<RefCell<Http2State>>,
        recorder: &SharedRecorder,
        seen: &Rc<Seen>,
    ) -> Self {
        Self { state: Rc::clone(state), recorder: recorder.clone(), seen: Rc::clone(seen) }
    }

    /// Moves the bytes of the connection until it ends.
    pub(super) async fn drive(self, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let Self { state, recorder, seen } = self;
        let (input, output) = (BytesMut::new(), BytesMut::new());
        let mut driver =
            Driver { stream, state, recorder, seen, input, output, needs_flush: false };
        poll_fn(|cx| driver.poll(cx)).await;
    }
}

/// A connection and its byte stream.
struct Driver<T> {
    stream: T,
    state: Rc<RefCell<Http2State>>,
    recorder: SharedRecorder,
    seen: Rc<Seen>,
    input: BytesMut,
    /// Bytes on their way into the byte stream.
    output: BytesMut,
    needs_flush: bool,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Driver<T> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.state.borrow_mut().task.clone_from(cx.waker());
        loop {
            let written = self.write(cx);
            if self.state.borrow().end.is_some() {
                // What could be sent of GOAWAY was sent.
                let _ = Pin::new(&mut self.stream).poll_shutdown(cx);
                return Poll::Ready(());
            }
            let has_written = matches!(written, Poll::Ready(Ok(true)));
            let read = match written {
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                _ => self.read(cx),
            };
            match read {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false)) => {
                    self.seen.ended.set(true);
                    self.end(ErrorKind::Closed, "the connection ended".to_owned());
                }
                Poll::Ready(Err(error)) => self.fail(&error),
                Poll::Pending if has_written => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn end(&self, kind: ErrorKind, reason: String) {
        self.state.borrow_mut().finish(kind, reason);
    }

    /// Ends the connection because of an error of the byte stream.
    fn fail(&self, error: &io::Error) {
        let is_reset =
            matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe);
        self.seen.reset.set(self.seen.reset.get() | is_reset);
        let alert = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match (alert, is_reset) {
            (Some(alert @ rustls::Error::AlertReceived(_)), _) => {
                self.end(ErrorKind::Tls, alert.to_string());
            }
            (_, true) => self.end(ErrorKind::Reset, "the connection ended".to_owned()),
            (_, false) => self.end(ErrorKind::Closed, "the connection ended".to_owned()),
        }
    }

    /// Writes what there is. Ready with `true` if something was written.
    fn write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut has_written = false;
        loop {
            if self.output.is_empty() {
                let state = &mut *self.state.borrow_mut();
                state.send_bodies();
                self.output.extend_from_slice(&state.out);
                state.out.clear();
            }
            let mut stream = Pin::new(&mut self.stream);
            if self.output.is_empty() {
                if self.needs_flush && stream.poll_flush(cx)?.is_ready() {
                    self.needs_flush = false;
                }
                return Poll::Ready(Ok(has_written));
            }
            match stream.as_mut().poll_write(cx, &self.output)? {
                Poll::Ready(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(count) => self.output.advance(count),
                Poll::Pending => return Poll::Pending,
            }
            (has_written, self.needs_flush) = (true, true);
        }
    }

    /// Reads, and processes what has arrived. Ready with `false` at the end.
    fn read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        self.input.reserve(ROOM);
        let count = std::task::ready!(pin!(self.stream.read_buf(&mut self.input)).poll(cx))?;
        if count == 0 {
            return Poll::Ready(Ok(false));
        }
        {
            let mut recorder = self.recorder.now();
            self.seen.last.set(recorder.now);
            recorder.receive(count as u64);
        }
        let used = self.state.borrow_mut().receive(&self.input, &self.recorder);
        self.input.advance(used);
        Poll::Ready(Ok(true))
    }
}
