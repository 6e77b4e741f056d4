//! A connection of HTTP/2: the engine of `dunlin-http` over a byte stream, shared by the exchanges of its streams.
//!
//! A task of its own reads and writes the byte stream ([`drive`]). It puts what arrives into the queues of the streams, which
//! flow control bounds, and wakes their exchanges. Exchanges put frames into one buffer and wake the task.

mod drive;
mod stream;

use std::collections::{BTreeMap, HashMap};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dunlin_http::http2::client::Http2ClientConnection;
use dunlin_http::{BodySize, InvalidRequest, RequestHead};
use tokio::io::{AsyncRead, AsyncWrite};

pub(crate) use self::stream::Http2Stream;
use self::stream::StreamState;

/// A connection of HTTP/2, as the pool keeps it.
#[derive(Debug)]
pub(crate) struct Http2 {
    shared: Arc<Shared>,
    scheme: &'static str,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    engine: Http2ClientConnection,
    /// Frames that the byte stream has not taken.
    out: Vec<u8>,
    streams: HashMap<u32, StreamState>,
    /// The task that reads and writes.
    task: Option<Waker>,
    /// Exchanges that wait for room in `out`, by their stream; then those that wait for a stream, in their order.
    waiting: BTreeMap<u64, Waker>,
    /// The key in `waiting` of the next exchange that waits for a stream.
    next_ticket: u64,
    /// The connection has failed or is closed.
    is_over: bool,
}

/// Bytes in [`State::out`] from which on bodies wait.
const MAX_OUT: usize = 64 * 1024;
/// Above the number of every stream.
const FIRST_TICKET: u64 = 1 << 32;

impl Http2 {
    /// Starts the connection on a new byte stream. It closes itself when it was without a stream for `idle_time`.
    pub(crate) fn start<S>(byte_stream: S, is_secure: bool, idle_time: Duration) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut out = Vec::new();
        let engine = Http2ClientConnection::new(&mut out);
        let state = State {
            engine,
            out,
            streams: HashMap::new(),
            task: None,
            waiting: BTreeMap::new(),
            next_ticket: FIRST_TICKET,
            is_over: false,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state) });
        tokio::spawn(drive::drive(Arc::clone(&shared), byte_stream, idle_time));
        Self { shared, scheme: if is_secure { "https" } else { "http" } }
    }

    /// Returns `true` if the connection takes further requests.
    pub(crate) fn is_usable(&self) -> bool {
        self.shared.state().is_usable()
    }

    /// Returns `true` if the server permits another stream now.
    pub(crate) fn has_room(&self) -> bool {
        let state = self.shared.state();
        state.is_usable() && state.engine.can_open() && !state.is_new()
    }

    /// Returns `true` if the connection has a request and is not known to permit another one: the server's settings have not
    /// arrived.
    pub(crate) fn is_new(&self) -> bool {
        self.shared.state().is_new()
    }

    /// Waits until [`Self::is_new`] is false.
    pub(crate) async fn settled(&self) {
        let mut ticket = Ticket { shared: &self.shared, number: None };
        poll_fn(|context| {
            let mut state = self.shared.state();
            if !state.is_new() {
                return Poll::Ready(());
            }
            let number = *ticket.number.get_or_insert_with(|| state.ticket());
            state.waiting.insert(number, context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Requests that are not complete.
    pub(crate) fn open_streams(&self) -> usize {
        self.shared.state().engine.open_streams()
    }

    /// Opens a stream with the head of a request, when the server permits one; `None` if the connection takes no further
    /// request.
    pub(crate) async fn open(
        &self,
        head: &RequestHead,
        size: BodySize,
    ) -> Result<Option<Http2Stream>, InvalidRequest> {
        let mut ticket = Ticket { shared: &self.shared, number: None };
        poll_fn(|context| self.poll_open(context, head, size, &mut ticket)).await
    }

    fn poll_open(
        &self,
        context: &mut Context<'_>,
        head: &RequestHead,
        size: BodySize,
        ticket: &mut Ticket<'_>,
    ) -> Poll<Result<Option<Http2Stream>, InvalidRequest>> {
        let mut state = self.shared.state();
        if !state.is_usable() {
            return Poll::Ready(Ok(None));
        }
        // The first request need not wait for the settings, which have the limit of streams.
        let waits_for_settings = state.is_new() || head.protocol.is_some() && !state.has_settings();
        let is_full = !state.engine.can_open() || state.out.len() >= MAX_OUT;
        if is_full || waits_for_settings {
            let number = *ticket.number.get_or_insert_with(|| state.ticket());
            state.waiting.insert(number, context.waker().clone());
            return Poll::Pending;
        }
        let State { engine, out, .. } = &mut *state;
        let id = engine.open(head, self.scheme, size, out)?;
        state.streams.insert(id, StreamState::default());
        state.wake_task();
        drop(state);
        Poll::Ready(Ok(Some(Http2Stream::new(Arc::clone(&self.shared), id, head, size))))
    }
}

impl Clone for Http2 {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), scheme: self.scheme }
    }
}

impl Drop for Http2 {
    fn drop(&mut self) {
        // The task ends when nothing else refers to the connection.
        self.shared.state().wake_task();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of an exchange that waits for a stream.
struct Ticket<'a> {
    shared: &'a Shared,
    /// The key in [`State::waiting`].
    number: Option<u64>,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.shared.state().waiting.remove(&number);
        }
    }
}

impl State {
    fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }

    fn is_usable(&self) -> bool {
        !self.is_over && self.engine.is_usable()
    }

    fn has_settings(&self) -> bool {
        self.engine.accepts_extended_connect().is_some()
    }

    fn is_new(&self) -> bool {
        self.is_usable() && !self.has_settings() && self.engine.open_streams() > 0
    }

    fn wake_task(&self) {
        if let Some(task) = &self.task {
            task.wake_by_ref();
        }
    }

    /// Wakes the exchanges that may be able to send.
    fn wake_waiting(&mut self) {
        std::mem::take(&mut self.waiting).into_values().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests;
