//! The task of a connection: it reads and writes the byte stream.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use dunlin_http::FieldLines;
use dunlin_http::http2::client::Http2ClientEvent as Received;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::{Instant, sleep_until};

use super::stream::StreamState;
use super::{MAX_OUT, Shared, State};
use crate::ErrorKind;
use crate::event::{Event, Failure};

/// Bytes that a read makes room for: a frame of the largest size.
const ROOM: usize = 32 * 1024;
/// Bytes that wait for the server at most. Requests stop far below: only acknowledgements and credits of a server that
/// sends without reading come so far.
const MAX_UNSENT: usize = 512 * 1024;
/// Time that a connection has for its first stream.
const FIRST_STREAM: Duration = Duration::from_secs(10);
/// A connection that was without a stream for this time has PING sent with its next one: the host of the server may be gone, or a
/// device on the way may have forgotten the connection.
const UNCERTAIN: Duration = Duration::from_secs(5);
/// Time in which the server has to send something then.
const REPLY: Duration = Duration::from_secs(15);

/// A connection's byte stream.
struct Driver<S> {
    shared: Arc<Shared>,
    byte_stream: S,
    input: BytesMut,
    /// Bytes on their way into the byte stream.
    output: BytesMut,
    needs_flush: bool,
    /// When the connection was opened.
    start: Instant,
    /// When the last stream has ended.
    idle_since: Option<Instant>,
    /// When the connection has failed if nothing arrives.
    reply_until: Option<Instant>,
}

/// Runs a connection to its end. It closes itself when it was without a stream for `idle_time`, which may be zero, after its
/// first stream.
pub(super) async fn drive<S>(shared: Arc<Shared>, byte_stream: S, idle_time: Duration)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut driver = Driver {
        shared,
        byte_stream,
        input: BytesMut::new(),
        output: BytesMut::new(),
        needs_flush: false,
        start: Instant::now(),
        idle_since: None,
        reply_until: None,
    };
    let mut idle_until = Instant::now() + idle_time.max(FIRST_STREAM);
    let mut sleep = pin!(sleep_until(idle_until));
    let failure = poll_fn(|context| {
        driver.ping_after_idle_time();
        if let Poll::Ready(failure) = driver.poll(context) {
            return Poll::Ready(Some(failure));
        }
        let is_referenced = Arc::strong_count(&driver.shared) > 1;
        let mut state = driver.shared.state();
        if !state.streams.is_empty() {
            idle_until = Instant::now() + idle_time;
        } else if !is_referenced || Instant::now() >= idle_until {
            state.is_over = true;
            return Poll::Ready(None);
        }
        if !state.engine.is_usable() && state.streams.is_empty() {
            return Poll::Ready(None);
        }
        drop(state);
        let now = Instant::now();
        if driver.reply_until.is_some_and(|until| until <= now) {
            let reason = "the server does not respond to PING";
            return Poll::Ready(Some(Failure::new(ErrorKind::Connection, reason)));
        }
        let next = driver.reply_until.map_or(idle_until, |until| until.min(idle_until));
        if next < sleep.deadline() {
            sleep.as_mut().reset(next);
        }
        while sleep.as_mut().poll(context).is_ready() {
            sleep.as_mut().reset(next.max(now + Duration::from_millis(1)));
        }
        Poll::Pending
    })
    .await;
    driver.end(failure.as_ref()).await;
}

impl<S: AsyncRead + AsyncWrite + Unpin> Driver<S> {
    /// Sends PING with the first stream after a time without one.
    fn ping_after_idle_time(&mut self) {
        let mut state = self.shared.state();
        let now = Instant::now();
        if state.streams.is_empty() {
            self.idle_since.get_or_insert(now);
        } else if self.idle_since.take().is_some_and(|since| since + UNCERTAIN <= now) {
            let State { engine, out, .. } = &mut *state;
            engine.send_ping(out);
            self.reply_until = Some(now + REPLY);
        }
    }

    /// Reads and writes until the byte stream would block. Ready when it has failed or ended.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Failure> {
        self.shared.state().task = Some(context.waker().clone());
        loop {
            let has_written = match self.poll_write(context) {
                Poll::Ready(Ok(has_written)) => has_written,
                Poll::Ready(Err(error)) => return Poll::Ready(failed(&error)),
                Poll::Pending => false,
            };
            let has_read = match self.poll_read(context) {
                Poll::Ready(Ok(())) => true,
                Poll::Ready(Err(failure)) => return Poll::Ready(failure),
                Poll::Pending => false,
            };
            if !has_read && !has_written {
                return Poll::Pending;
            }
        }
    }

    /// Writes what the exchanges have put into the buffer; whether there was something.
    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<std::io::Result<bool>> {
        if self.output.len() < MAX_OUT {
            let mut state = self.shared.state();
            if !state.out.is_empty() {
                self.output.extend_from_slice(&state.out);
                state.out.clear();
                state.wake_waiting();
            }
        }
        let mut byte_stream = Pin::new(&mut self.byte_stream);
        if self.output.is_empty() {
            if self.needs_flush && byte_stream.as_mut().poll_flush(context)?.is_ready() {
                self.needs_flush = false;
            }
            return Poll::Ready(Ok(false));
        }
        match byte_stream.poll_write(context, &self.output)? {
            Poll::Pending => Poll::Pending,
            Poll::Ready(0) => Poll::Ready(Err(std::io::ErrorKind::WriteZero.into())),
            Poll::Ready(count) => {
                self.output.advance(count);
                self.needs_flush = true;
                Poll::Ready(Ok(true))
            }
        }
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        self.input.reserve(ROOM);
        let read = pin!(self.byte_stream.read_buf(&mut self.input)).poll(context);
        match read {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Err(failed(&error))),
            Poll::Ready(Ok(0)) => {
                let reason = "the server closed the connection";
                Poll::Ready(Err(Failure::new(ErrorKind::Connection, reason)))
            }
            Poll::Ready(Ok(_)) => {
                self.reply_until = None;
                Poll::Ready(self.receive())
            }
        }
    }

    /// Gives what has arrived to the streams.
    fn receive(&mut self) -> Result<(), Failure> {
        let failure = |reason: &str| Failure::new(ErrorKind::Protocol, format!("HTTP/2: {reason}"));
        let mut state = self.shared.state();
        state.engine.set_time(self.start.elapsed().as_secs());
        let mut at = 0;
        loop {
            let State { engine, out, .. } = &mut *state;
            let received = engine.receive(&self.input, &mut at, out);
            let received = received.map_err(|error| failure(error.reason))?;
            if out.len() + self.output.len() > MAX_UNSENT {
                return Err(failure("the server does not take acknowledgements"));
            }
            if received == Received::NeedInput {
                break;
            }
            state.dispatch(received, &self.input);
        }
        drop(state);
        self.input.advance(at);
        Ok(())
    }

    /// Ends the connection: its streams fail, and the server learns of it as far as it listens.
    async fn end(mut self, failure: Option<&Failure>) {
        let reason = failure.map_or("the connection is closed", |failure| failure.reason.as_str());
        let kind = failure.map_or(ErrorKind::Connection, |failure| failure.kind);
        {
            let mut state = self.shared.state();
            state.is_over = true;
            state.task = None;
            for stream in state.streams.values_mut() {
                let is_without_response = !stream.has_response_bytes;
                let failure = Failure { is_without_response, ..Failure::new(kind, reason) };
                stream.failure.get_or_insert(failure);
                stream.waker.take().into_iter().for_each(std::task::Waker::wake);
            }
            state.wake_waiting();
            let State { engine, out, .. } = &mut *state;
            engine.close(out);
            self.output.extend_from_slice(out);
            out.clear();
        }
        let farewell = poll_fn(|context| {
            while !self.output.is_empty() {
                match Pin::new(&mut self.byte_stream).poll_write(context, &self.output) {
                    Poll::Ready(Ok(count @ 1..)) => self.output.advance(count),
                    Poll::Ready(_) => break,
                    Poll::Pending => return Poll::Pending,
                }
            }
            Pin::new(&mut self.byte_stream).poll_shutdown(context)
        });
        // A server that does not listen any more costs nothing further.
        drop(tokio::time::timeout(Duration::from_secs(1), farewell).await);
    }
}

impl State {
    /// Puts what was received into the queue of its stream.
    fn dispatch(&mut self, received: Received, input: &[u8]) {
        match received {
            Received::Interim { stream, head } => {
                self.push(stream, |stream| stream.heads.push_back(Event::Interim(head)));
            }
            Received::Head { stream, head, is_end } => self.push(stream, |stream| {
                stream.heads.push_back(Event::Head(head));
                stream.end = is_end.then(FieldLines::default);
            }),
            Received::Data { stream, data, is_end } => self.push(stream, |stream| {
                stream.data.push_copy(&input[data]);
                stream.end = is_end.then(FieldLines::default);
            }),
            Received::Trailers { stream, fields } => {
                self.push(stream, |stream| stream.end = Some(fields));
            }
            Received::Reset { stream, reason, is_unprocessed, .. } => {
                self.fail(stream, reason, is_unprocessed);
            }
            Received::GoAway { .. } => {
                while let Some(stream) = self.engine.unprocessed() {
                    self.fail(stream, "the server serves no further requests", true);
                }
                self.wake_waiting();
            }
            Received::Window => self.wake_waiting(),
            Received::NeedInput => {}
        }
    }

    fn push(&mut self, stream: u32, add: impl FnOnce(&mut StreamState)) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.has_response_bytes = true;
            add(stream);
            stream.waker.take().into_iter().for_each(std::task::Waker::wake);
        }
        // The end of a stream makes room for another one, and a request's body may not be wanted any more.
        self.wake_waiting();
    }

    fn fail(&mut self, stream: u32, reason: &str, is_unprocessed: bool) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            let failure = Failure::new(ErrorKind::Protocol, format!("HTTP/2: {reason}"));
            stream.failure.get_or_insert(Failure { is_unprocessed, ..failure });
            stream.waker.take().into_iter().for_each(std::task::Waker::wake);
        }
        self.wake_waiting();
    }
}

fn failed(error: &std::io::Error) -> Failure {
    Failure::new(ErrorKind::Connection, format!("the connection failed: {error}"))
}
