//! A connection of HTTP/1.1: the engine of `dunlin-http` over a byte stream.

use std::cell::RefCell;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use dunlin_http::http1::client::{Http1ClientConnection, Http1ClientEvent as Parsed};
use dunlin_http::{BodySize, RequestHead};
use dunlin_memory::Budget;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use crate::ErrorKind;
use crate::body::Body;
use crate::event::{Event, Failure, SendState, Sending};

/// A client's connection of HTTP/1.1.
#[derive(Debug)]
pub(crate) struct Http1<S> {
    stream: S,
    engine: Http1ClientConnection,
    input: BytesMut,
    /// The server has closed its side.
    is_end: bool,
    output: Output,
    /// Sending has failed. A response may have arrived before, so the error is reported only if there is none.
    write_error: Option<io::Error>,
    /// Bytes of the present response have arrived.
    has_response_bytes: bool,
    /// The final head has arrived.
    has_head: bool,
    /// Bytes read and written.
    progress: u64,
}

/// Bytes that the stream has not taken.
#[derive(Debug, Default)]
struct Output {
    head: Vec<u8>,
    /// Bytes of `head` that were written.
    head_sent: usize,
    data: Bytes,
    tail: &'static [u8],
    needs_flush: bool,
}

/// Bytes of a read at least.
const READ: usize = 4 * 1024;
/// Bytes that a read makes room for.
const ROOM: usize = 16 * 1024;
/// The room for reading within a large body.
const BODY_ROOM: usize = 64 * 1024;

thread_local! {
    /// An empty buffer for the next read.
    static SPARE: RefCell<BytesMut> = RefCell::default();
}

impl<S: AsyncRead + AsyncWrite + Unpin> Http1<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            engine: Http1ClientConnection::default(),
            input: BytesMut::new(),
            is_end: false,
            output: Output::default(),
            write_error: None,
            has_response_bytes: false,
            has_head: false,
            progress: 0,
        }
    }

    /// Begins an exchange.
    pub(crate) fn begin<B: Body>(
        &mut self,
        head: &RequestHead,
        body: B,
    ) -> Result<Sending<B>, Failure> {
        let size = body.size();
        self.engine.send_head(head, size, &mut self.output.head)?;
        (self.has_response_bytes, self.has_head) = (false, false);
        let state = match size {
            BodySize::Empty | BodySize::Known(0) => SendState::Ended,
            _ if self.engine.expects_continue() => SendState::Held,
            _ => SendState::Streaming,
        };
        Ok(Sending { body, state })
    }

    /// Sends what the stream takes. Ready when the request is complete or no more of it can be sent.
    pub(crate) fn poll_send<B: Body>(
        &mut self,
        context: &mut Context<'_>,
        sending: &mut Sending<B>,
    ) -> Poll<Result<(), Failure>> {
        while self.write_error.is_none() {
            self.fill_output(context, sending)?;
            match self.poll_write(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false)) if sending.state == SendState::Ended => break,
                Poll::Ready(Ok(false)) => return Poll::Pending,
                Poll::Ready(Err(error)) => {
                    self.write_error = Some(error);
                    sending.state = SendState::Ended;
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Takes the next chunk of the body, if the last one has been written.
    fn fill_output<B: Body>(
        &mut self,
        context: &mut Context<'_>,
        sending: &mut Sending<B>,
    ) -> Result<(), Failure> {
        let is_idle = self.output.data.is_empty() && self.output.tail.is_empty();
        if sending.state != SendState::Streaming || !is_idle {
            return Ok(());
        }
        let frame = &mut self.output.head;
        match sending.body.poll_chunk(context) {
            Poll::Pending => return Ok(()),
            Poll::Ready(Some(Ok(chunk))) if chunk.is_empty() => {}
            Poll::Ready(Some(Ok(chunk))) => {
                self.engine.begin_data(chunk.len(), frame)?;
                self.output.data = chunk;
                self.output.tail = self.engine.end_data();
            }
            Poll::Ready(None) => {
                self.engine.end_body(&sending.body.trailers(), frame)?;
                sending.state = SendState::Ended;
            }
            Poll::Ready(Some(Err(error))) => {
                let reason = format!("the body of the request failed: {error}");
                return Err(Failure::new(ErrorKind::RequestBody, reason));
            }
        }
        Ok(())
    }

    /// Writes once; whether there was something to write.
    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let Self { stream, output, .. } = self;
        let stream = Pin::new(stream);
        if output.is_empty() {
            if output.needs_flush {
                ready!(stream.poll_flush(context))?;
                output.needs_flush = false;
            }
            return Poll::Ready(Ok(false));
        }
        let head = &output.head[output.head_sent..];
        let written = if output.data.is_empty() && output.tail.is_empty() {
            stream.poll_write(context, head)
        } else {
            let parts = [head, &output.data[..], output.tail].map(IoSlice::new);
            stream.poll_write_vectored(context, &parts)
        };
        let count = ready!(written)?;
        if count == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        output.advance(count);
        output.needs_flush = true;
        self.progress += count as u64;
        Poll::Ready(Ok(true))
    }

    /// Returns the next part of the response.
    pub(crate) fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Result<Event, Failure>> {
        loop {
            let received = self.engine.receive(&self.input, self.is_end);
            let (used, event) = received.map_err(|malformed| self.failure(malformed.0))?;
            let event = match event {
                Parsed::NeedInput => {
                    self.input.advance(used);
                    ready!(self.poll_read(context))?;
                    continue;
                }
                Parsed::Data(range) => {
                    let mut data = self.input.split_to(used);
                    data.truncate(range.end);
                    data.advance(range.start);
                    return Poll::Ready(Ok(Event::Data(data.freeze())));
                }
                Parsed::Interim(head) => Event::Interim(head),
                Parsed::Head(head) => {
                    self.has_head = true;
                    Event::Head(head)
                }
                Parsed::End(trailers) => Event::End(trailers),
            };
            self.input.advance(used);
            return Poll::Ready(Ok(event));
        }
    }

    fn failure(&mut self, reason: &'static str) -> Failure {
        let is_without_response = self.is_end && !self.has_response_bytes;
        match self.write_error.take() {
            Some(error) if is_without_response => {
                let reason = format!("sending the request failed: {error}");
                Failure { is_without_response, ..Failure::new(ErrorKind::Connection, reason) }
            }
            _ if self.is_end => {
                Failure { is_without_response, ..Failure::new(ErrorKind::Connection, reason) }
            }
            _ => Failure::new(ErrorKind::Protocol, reason),
        }
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        let is_large = self.engine.remaining().is_some_and(|left| left > ROOM as u64);
        if self.room() < READ {
            self.make_room(is_large);
        }
        let read = pin!(self.stream.read_buf(&mut self.input)).poll(context);
        let Poll::Ready(read) = read else {
            if !is_large {
                self.return_buffer();
            }
            return Poll::Pending;
        };
        match read {
            Ok(0) => self.is_end = true,
            Ok(count) => {
                self.has_response_bytes = true;
                self.progress += count as u64;
            }
            Err(error) => {
                let reason = format!("the connection failed: {error}");
                let is_without_response = !self.has_response_bytes;
                let failure = Failure::new(ErrorKind::Connection, reason);
                return Poll::Ready(Err(Failure { is_without_response, ..failure }));
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Makes room for a read, which brings less if the connection of the client may not hold as much.
    fn make_room(&mut self, is_large: bool) {
        let room = if is_large { BODY_ROOM } else { ROOM };
        let share = Budget::entered_share().max(READ);
        if share < BODY_ROOM {
            let room = room.min(share);
            // Reserving would take as much as the buffer had before.
            let unread = std::mem::replace(&mut self.input, BytesMut::with_capacity(room));
            self.input.extend_from_slice(&unread);
            return self.input.reserve(READ);
        }
        if self.input.is_empty() && !is_large {
            self.borrow_buffer();
        }
        if self.room() < READ {
            self.input.reserve(room);
        }
    }

    /// Returns a number that changes whenever bytes move.
    pub(crate) fn progress(&self) -> u64 {
        self.progress
    }

    /// Returns `true` if bytes wait for room in the stream.
    pub(crate) fn is_sending(&self) -> bool {
        !self.output.is_empty() || self.output.needs_flush
    }

    /// Returns `true` if the final head has arrived.
    pub(crate) fn has_head(&self) -> bool {
        self.has_head
    }

    /// Returns `true` if the whole request has been sent.
    pub(crate) fn is_sent(&self) -> bool {
        self.engine.is_sent() && !self.is_sending()
    }

    /// Returns `true` if another protocol uses the connection now.
    pub(crate) fn is_tunnel(&self) -> bool {
        self.engine.is_tunnel()
    }

    /// Returns `true` if the connection can serve another request.
    pub(crate) fn is_reusable(&self) -> bool {
        let is_quiet = self.input.is_empty() && !self.is_end && !self.is_sending();
        self.engine.is_reusable() && is_quiet && self.write_error.is_none()
    }

    /// Frees the buffers of a connection that is idle.
    pub(crate) fn shrink(&mut self) {
        self.return_buffer();
        self.output = Output::default();
    }

    /// Returns the bytes that a read may add without an allocation.
    fn room(&self) -> usize {
        self.input.capacity() - self.input.len()
    }

    /// Takes the spare buffer of the thread, if it has more room than the connection's own.
    fn borrow_buffer(&mut self) {
        SPARE.with_borrow_mut(|spare| {
            if spare.capacity() > self.input.capacity() {
                std::mem::swap(spare, &mut self.input);
            }
        });
    }

    /// Gives the buffer to the next connection of the thread that receives something: one that waits needs none, and
    /// the same few KB of memory stay in the caches of the processor.
    pub(crate) fn return_buffer(&mut self) {
        if !self.input.is_empty() {
            return;
        }
        let own = std::mem::take(&mut self.input);
        SPARE.with_borrow_mut(|spare| {
            // A large one would be kept alive by each small body that it holds.
            if own.capacity() > spare.capacity() && own.capacity() <= 2 * ROOM {
                *spare = own;
            }
        });
    }

    /// Returns `true` if an idle connection is still usable: the server has neither closed it nor sent anything. The context
    /// is woken when this may have changed.
    pub(crate) fn is_healthy(&mut self, context: &mut Context<'_>) -> bool {
        let mut byte = [0];
        let mut into = ReadBuf::new(&mut byte);
        Pin::new(&mut self.stream).poll_read(context, &mut into).is_pending()
    }

    pub(crate) fn stream_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Returns the stream, and what was read of the other protocol.
    pub(crate) fn into_parts(self) -> (S, BytesMut) {
        (self.stream, self.input)
    }
}

impl Output {
    fn is_empty(&self) -> bool {
        self.head.is_empty() && self.data.is_empty() && self.tail.is_empty()
    }

    fn advance(&mut self, count: usize) {
        let of_head = count.min(self.head.len() - self.head_sent);
        self.head_sent += of_head;
        if self.head_sent == self.head.len() {
            self.head.clear();
            self.head_sent = 0;
        }
        let of_data = (count - of_head).min(self.data.len());
        self.data.advance(of_data);
        self.tail = &self.tail[count - of_head - of_data..];
    }
}

#[cfg(test)]
mod tests;
