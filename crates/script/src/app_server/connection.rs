//! A worker thread's connection to an application server. All its requests share the connection: those that arrive
//! together leave in one write, and one read brings the responses of many.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use dunlin_http::websocket::frame::code;
use dunlin_memory::Reservation;
use hashbrown::HashMap;
use tokio::net::UnixStream;

use super::frame::{self, Frame, MAX_PAYLOAD};
use super::websocket_state::WebSocketState;
use crate::body_buffer::{MAX_JOINED, join};
use crate::file_version;
use crate::readiness::Readiness;
use crate::stderr::printable;
use crate::workers::{Checkout, Worker};

/// The connections of one worker thread to application servers.
#[derive(Default)]
pub(crate) struct AppConnections {
    /// The worker thread stops: WebSockets are closed.
    is_closing: Cell<bool>,
    all: RefCell<HashMap<*const Worker, Rc<AppConnection>>>,
}

/// A connection to an application server.
pub(super) struct AppConnection {
    /// Keeps the address, which is the key, from being reused.
    worker: Arc<Worker>,
    output: RefCell<Vec<u8>>,
    writer: RefCell<Option<Waker>>,
    /// The tasks that wait until the application server has read what is queued.
    waiting: RefCell<Vec<Waker>>,
    requests: RefCell<HashMap<u32, Rc<PendingRequest>>>,
    next: Cell<u32>,
}

/// A request that an application server has.
pub(super) struct PendingRequest {
    id: u32,
    checkout: RefCell<Option<Checkout>>,
    /// Parts of the response that were not read yet, and their bytes.
    parts: RefCell<VecDeque<Bytes>>,
    unread: Cell<usize>,
    /// `unread`, in the account of the process. The number of requests that an application gets at once bounds it.
    memory: RefCell<Reservation>,
    pub(super) state: RefCell<RequestState>,
    pub(super) has_begun: Cell<bool>,
    /// The WebSocket, if it is one.
    websocket: Option<Rc<WebSocketState>>,
    /// The client has left.
    pub(super) is_abandoned: Cell<bool>,
    pub(super) waker: RefCell<Option<Waker>>,
    /// Bytes of the body that the server may send.
    room: Cell<usize>,
    feeder: RefCell<Option<Waker>>,
    /// Bytes of the response that were read since the last acknowledgement.
    pub(super) taken: Cell<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RequestState {
    UnderWay,
    Ended,
    /// The application server reports why the response is incomplete.
    Cut(String),
    /// The connection is closed.
    Lost(String),
}

/// Bytes that may be in flight, and how many are acknowledged at a time. The application server has the same values.
const WINDOW: usize = 256 * 1024;
pub(super) const ACKNOWLEDGE: usize = 64 * 1024;
/// Bytes that wait for the application server before bodies of requests wait, too. It could grant room and read nothing.
const MAX_OUTPUT: usize = 1 << 20;
/// The reason for closing a connection on which more arrived than was acknowledged.
const EXCESS: &str = "more of a response arrived than was acknowledged";
/// The reason for closing a connection on which unexpected data arrived.
const STRAY: &str = "data arrived that belongs to no request";
/// Parts of a response that wait while it is read without delay.
const PROMPT: usize = 2;
/// Reads in a row before other tasks run.
const MAX_READS: usize = 4;

impl AppConnections {
    /// Returns the connection to `worker`, if there is one.
    pub(super) fn existing(&self, worker: &Arc<Worker>) -> Option<Rc<AppConnection>> {
        self.all.borrow().get(&Arc::as_ptr(worker)).cloned()
    }

    /// Returns the connection to `worker`, which is opened if there is none.
    pub(super) async fn to(
        self: &Rc<Self>,
        worker: &Arc<Worker>,
    ) -> std::io::Result<Rc<AppConnection>> {
        if let Some(connection) = self.existing(worker) {
            return Ok(connection);
        }
        let stream = UnixStream::connect(&worker.socket).await?;
        if let Some(connection) = self.existing(worker) {
            return Ok(connection);
        }
        let connection = Rc::new(AppConnection {
            worker: Arc::clone(worker),
            output: RefCell::default(),
            writer: RefCell::default(),
            waiting: RefCell::default(),
            requests: RefCell::default(),
            next: Cell::new(0),
        });
        self.all.borrow_mut().insert(Arc::as_ptr(worker), Rc::clone(&connection));
        tokio::task::spawn_local(Rc::clone(self).drive(Rc::clone(&connection), stream));
        tokio::task::spawn_local(close_websockets(Rc::downgrade(&connection), Arc::clone(worker)));
        Ok(connection)
    }

    /// Closes all WebSockets, also those that are opened later: the worker thread stops.
    pub(crate) fn close_websockets(&self) {
        self.is_closing.set(true);
        self.all.borrow().values().for_each(|connection| connection.close_websockets());
    }

    /// Returns `true` if all WebSockets are closed.
    pub(super) fn are_closing(&self) -> bool {
        self.is_closing.get()
    }

    /// Reads and writes until the connection is closed.
    async fn drive(self: Rc<Self>, connection: Rc<AppConnection>, stream: UnixStream) {
        let mut input = BytesMut::with_capacity(ACKNOWLEDGE);
        let why = poll_fn(|cx| connection.poll(cx, &stream, &mut input)).await;
        if why == STRAY || why == EXCESS {
            let pid = connection.worker.pid;
            tracing::warn!(pid, "the connection to an application server is closed: {why}");
        }
        self.all.borrow_mut().remove(&Arc::as_ptr(&connection.worker));
        let requests: Vec<_> = connection.requests.borrow_mut().drain().collect();
        for (_, pending) in requests {
            pending.finish(RequestState::Lost(why.clone()));
        }
    }
}

/// Closes the WebSockets of an application server that is replaced or was removed.
async fn close_websockets(connection: Weak<AppConnection>, worker: Arc<Worker>) {
    worker.leaving().await;
    if let Some(connection) = connection.upgrade() {
        connection.close_websockets();
    }
}

impl AppConnection {
    /// Closes all WebSockets.
    fn close_websockets(&self) {
        let requests: Vec<_> = self.requests.borrow().values().cloned().collect();
        requests.iter().for_each(|pending| self.close_websocket(pending));
    }

    /// Closes a WebSocket: both the client and the application learn that it goes away.
    pub(super) fn close_websocket(&self, pending: &PendingRequest) {
        let Some(websocket) = &pending.websocket else { return };
        if !websocket.is_over() {
            self.send(pending.id, frame::GOING_AWAY, b"");
            websocket.close(code::GOING_AWAY, "");
        }
    }

    /// Adds a request. `checkout` is released when the application server has finished it.
    pub(super) fn enter(
        self: &Rc<Self>,
        checkout: Checkout,
        websocket: Option<Rc<WebSocketState>>,
    ) -> Rc<PendingRequest> {
        let id = self.next.get();
        self.next.set(id.wrapping_add(1));
        let pending = Rc::new(PendingRequest {
            id,
            checkout: RefCell::new(Some(checkout)),
            parts: RefCell::default(),
            unread: Cell::new(0),
            memory: RefCell::default(),
            state: RefCell::new(RequestState::UnderWay),
            has_begun: Cell::new(false),
            websocket,
            is_abandoned: Cell::new(false),
            waker: RefCell::default(),
            room: Cell::new(WINDOW),
            feeder: RefCell::default(),
            taken: Cell::new(0),
        });
        self.requests.borrow_mut().insert(id, Rc::clone(&pending));
        pending
    }

    /// Waits until the application server has read what is queued, but for a little.
    pub(super) async fn drained(&self) {
        poll_fn(|cx| {
            if self.has_output_room() {
                return Poll::Ready(());
            }
            let mut waiting = self.waiting.borrow_mut();
            if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    fn has_output_room(&self) -> bool {
        self.output.borrow().len() < MAX_OUTPUT
    }

    /// Queues a frame. It leaves together with all that are queued before the connection is polled.
    pub(super) fn send(&self, id: u32, kind: u8, payload: &[u8]) {
        self.send_with(id, kind, |output| output.extend_from_slice(payload));
    }

    /// Sends a frame with a payload that `write` appends.
    pub(super) fn send_with(&self, id: u32, kind: u8, write: impl FnOnce(&mut Vec<u8>)) {
        frame::write(id, kind, write, &mut self.output.borrow_mut());
        if let Some(writer) = self.writer.borrow_mut().take() {
            writer.wake();
        }
    }

    fn poll(
        &self,
        cx: &mut Context<'_>,
        stream: &UnixStream,
        input: &mut BytesMut,
    ) -> Poll<String> {
        *self.writer.borrow_mut() = Some(cx.waker().clone());
        for read in 0.. {
            if read == MAX_READS {
                cx.waker().wake_by_ref();
                break;
            }
            match stream.poll_read_ready(cx) {
                Poll::Pending => break,
                Poll::Ready(Err(error)) => return Poll::Ready(error.to_string()),
                Poll::Ready(Ok(())) => {}
            }
            input.reserve(ACKNOWLEDGE);
            let room = input.capacity() - input.len();
            match stream.try_read_buf(input) {
                Ok(0) => {
                    return Poll::Ready("the application server has closed the connection".into());
                }
                Ok(count) => {
                    if count < room {
                        // The buffer was not filled: nothing is left. This saves the read that would return EAGAIN.
                        stream.clear();
                    }
                    if let Err(why) = self.take(input) {
                        return Poll::Ready(why.into());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(error.to_string()),
            }
        }
        if !input.is_empty() && self.requests.borrow().is_empty() {
            // It would become part of the response to the next request.
            return Poll::Ready(STRAY.into());
        }
        let mut output = self.output.borrow_mut();
        let mut sent = 0;
        while sent < output.len() {
            match stream.try_write(&output[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    match stream.poll_write_ready(cx) {
                        Poll::Pending => break,
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(error)) => return Poll::Ready(error.to_string()),
                    }
                }
                Err(error) => return Poll::Ready(error.to_string()),
            }
        }
        output.drain(..sent);
        if output.len() < MAX_OUTPUT {
            self.waiting.take().into_iter().for_each(Waker::wake);
        }
        Poll::Pending
    }

    fn take(&self, input: &mut BytesMut) -> Result<(), &'static str> {
        while let Some((id, frame)) = frame::read(input)? {
            if let Frame::Loaded(files) = frame {
                self.worker.note_loaded(file_version::paths(&files));
                continue;
            }
            let ends = matches!(frame, Frame::End(_) | Frame::Whole(_));
            let mut requests = self.requests.borrow_mut();
            let pending =
                if ends { requests.remove(&id) } else { requests.get(&id).map(Rc::clone) };
            drop(requests);
            let Some(pending) = pending else {
                // A frame may arrive after the end of its request, but not before its beginning.
                match self.next.get().wrapping_sub(id).wrapping_sub(1) < u32::MAX / 2 {
                    true => continue,
                    false => return Err(STRAY),
                }
            };
            pending.has_begun.set(true);
            match frame {
                Frame::Part(_) if pending.is_abandoned.get() => {
                    if self.has_output_room() {
                        self.send(id, frame::CANCEL, b"");
                    }
                }
                Frame::Part(bytes) => {
                    pending.add(bytes)?;
                    pending.wake();
                }
                Frame::Whole(bytes) => {
                    pending.add(bytes)?;
                    pending.finish(RequestState::Ended);
                }
                Frame::End(why) if why.is_empty() => pending.finish(RequestState::Ended),
                Frame::End(why) => pending.finish(RequestState::Cut(printable(&why))),
                Frame::Loaded(_) => {}
                Frame::Room(room) => {
                    pending.room.set(pending.room.get().saturating_add(room).min(WINDOW));
                    if let Some(feeder) = pending.feeder.borrow_mut().take() {
                        feeder.wake();
                    }
                }
            }
        }
        Ok(())
    }
}

impl PendingRequest {
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Adds a part of the response. Small ones are joined: an application may write its response byte by byte. What waits
    /// behind others is copied, so that it does not keep the buffer that it was read into with parts of other responses.
    fn add(&self, bytes: Bytes) -> Result<(), &'static str> {
        let unread = self.unread.get() + bytes.len();
        // The application server may exceed the window by one frame.
        if unread > WINDOW + MAX_PAYLOAD {
            return Err(EXCESS);
        }
        self.set_unread(unread);
        let mut parts = self.parts.borrow_mut();
        let is_prompt = parts.len() < PROMPT;
        match parts.back_mut() {
            Some(last) if last.len() + bytes.len() <= MAX_JOINED => join(last, &bytes),
            _ if is_prompt => parts.push_back(bytes),
            _ => parts.push_back(Bytes::copy_from_slice(&bytes)),
        }
        Ok(())
    }

    /// Takes the next part of the response.
    pub(super) fn next_part(&self) -> Option<Bytes> {
        let part = self.parts.borrow_mut().pop_front()?;
        self.set_unread(self.unread.get() - part.len());
        Some(part)
    }

    /// Drops what was received of the response.
    pub(super) fn clear(&self) {
        self.parts.borrow_mut().clear();
        self.set_unread(0);
    }

    fn set_unread(&self, bytes: usize) {
        self.unread.set(bytes);
        self.memory.borrow_mut().set(bytes);
    }

    /// Waits until a part of the body may be sent; returns its size.
    pub(super) async fn room(&self) -> usize {
        poll_fn(|cx| match self.room.get() {
            0 => {
                *self.feeder.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            }
            room => Poll::Ready(room),
        })
        .await
    }

    pub(super) fn use_room(&self, count: usize) {
        self.room.set(self.room.get().saturating_sub(count));
    }

    /// Ends an application server that hangs.
    pub(super) fn end_server(&self) {
        if let Some(checkout) = self.checkout.borrow_mut().take() {
            checkout.end();
        }
    }

    pub(super) fn is_over(&self) -> bool {
        *self.state.borrow() != RequestState::UnderWay
    }

    fn finish(&self, state: RequestState) {
        let checkout = self.checkout.borrow_mut().take();
        match (checkout, &state) {
            // The pool probes whether the application server still works on the request.
            (checkout, RequestState::Lost(_)) => drop(checkout),
            (Some(checkout), _) => checkout.release(None),
            (None, _) => {}
        }
        *self.state.borrow_mut() = state;
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending() -> PendingRequest {
        PendingRequest {
            id: 1,
            checkout: RefCell::new(None),
            parts: RefCell::default(),
            unread: Cell::new(0),
            memory: RefCell::default(),
            state: RefCell::new(RequestState::UnderWay),
            has_begun: Cell::new(false),
            websocket: None,
            is_abandoned: Cell::new(false),
            waker: RefCell::default(),
            room: Cell::new(WINDOW),
            feeder: RefCell::default(),
            taken: Cell::new(0),
        }
    }

    #[test]
    fn single_bytes_are_joined_and_come_in_order() {
        let pending = pending();
        let content: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
        for byte in content.chunks(1) {
            pending.add(Bytes::copy_from_slice(byte)).unwrap();
        }
        assert!(pending.parts.borrow().len() <= content.len() / (MAX_JOINED / 2));
        let mut read = Vec::new();
        while let Some(part) = pending.next_part() {
            read.extend_from_slice(&part);
        }
        assert!(read == content && pending.unread.get() == 0);
    }

    #[test]
    fn an_application_that_ignores_the_window_is_an_error() {
        let (pending, part) = (pending(), Bytes::from(vec![0; 64 * 1024]));
        let sent = (0..100).take_while(|_| pending.add(part.clone()).is_ok()).count();
        assert_eq!(sent, (WINDOW + MAX_PAYLOAD) / part.len());
        pending.clear();
        assert!(pending.add(part).is_ok());
    }
}
