//! A bounded stream of bytes between two tasks: a body on its way from a client to a
//! handler, or from a handler to a client.
//!
//! The bound is what gives back-pressure: a sender waits for room, so that nothing is read from a
//! source faster than it is taken. It is one of memory, which small chunks share ([`ChunkQueue`]). One chunk may pass the
//! bound, so that no chunk has to be split.
//!
//! A handler whose body needs no task of its own gives the receiver a [`Source`], which produces the bytes when they are
//! polled for.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use dunlin_http::{ChunkQueue, FieldLines};
use dunlin_memory::Reservation;

/// The sending end. The stream is broken if it is dropped before [`Sender::end`].
#[derive(Debug)]
pub struct Sender {
    state: Arc<Mutex<State>>,
}

/// The receiving end.
#[derive(Debug)]
pub struct Receiver {
    from: Inner,
}

#[derive(Debug)]
enum Inner {
    /// It has ended without a byte.
    Nothing,
    Sender(Arc<Mutex<State>>),
    Source(Box<dyn Source>),
}

/// A body that is produced when it is polled for. Dropping it aborts it.
pub trait Source: std::fmt::Debug {
    /// Returns the next bytes; `None` at the end.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Broken>>;

    /// Returns the trailer fields, after the end.
    fn take_trailers(&mut self) -> FieldLines {
        FieldLines::default()
    }

    /// All bytes that the receiver wants were produced.
    fn finish(self: Box<Self>) {}
}

/// The sender was dropped before the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken;

/// The receiver was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiverDropped;

#[derive(Debug)]
struct State {
    chunks: ChunkQueue,
    /// Bytes of memory that `chunks` may take.
    limit: usize,
    ended: bool,
    broken: bool,
    trailers: Option<Box<FieldLines>>,
    receiving: ReceiverState,
    /// The receiver has waited for bytes.
    wanted: bool,
    sender: Option<Waker>,
    receiver: Option<Waker>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReceiverState {
    Yes,
    /// The sender may go on, and what it sends is dropped.
    Discarding,
    Dropped,
}

/// Returns a stream that takes about `limit` bytes of memory; [`ChunkQueue::most_held`] is what a body needs.
pub fn channel(limit: usize) -> (Sender, Receiver) {
    with_queue(ChunkQueue::default(), limit)
}

/// Like [`channel`], for a stream whose bytes count in the budget of the connection whose requests this thread polls
/// ([`ChunkQueue::of_connection`]).
pub fn channel_of_connection(limit: usize) -> (Sender, Receiver) {
    with_queue(ChunkQueue::of_connection(), limit)
}

fn with_queue(chunks: ChunkQueue, limit: usize) -> (Sender, Receiver) {
    let state = Arc::new(Mutex::new(State {
        chunks,
        limit,
        ended: false,
        broken: false,
        trailers: None,
        receiving: ReceiverState::Yes,
        wanted: false,
        sender: None,
        receiver: None,
    }));
    (Sender { state: Arc::clone(&state) }, Receiver { from: Inner::Sender(state) })
}

/// Returns a stream without bytes.
#[inline]
pub fn empty() -> Receiver {
    Receiver { from: Inner::Nothing }
}

/// Returns a stream whose bytes come from `source`.
pub fn from_source(source: Box<dyn Source>) -> Receiver {
    Receiver { from: Inner::Source(source) }
}

/// Returns a stream of these bytes.
pub fn of(chunks: impl IntoIterator<Item = Bytes>) -> Receiver {
    let (sender, receiver) = channel(usize::MAX);
    chunks.into_iter().for_each(|bytes| sender.push(bytes));
    sender.end();
    receiver
}

impl Sender {
    /// Adds bytes. The caller waits for room before.
    #[inline]
    pub fn push(&self, bytes: Bytes) {
        let mut state = lock(&self.state);
        if bytes.is_empty() || state.receiving != ReceiverState::Yes {
            return;
        }
        state.chunks.push(bytes);
        state.wake_receiver();
    }

    /// Ends the stream.
    #[inline]
    pub fn end(&self) {
        let mut state = lock(&self.state);
        state.ended = true;
        state.wake_receiver();
    }

    /// Ends the stream with trailer fields.
    pub fn end_with(&self, trailers: FieldLines) {
        if !trailers.is_empty() {
            lock(&self.state).trailers = Some(Box::new(trailers));
        }
        self.end();
    }

    /// Breaks the stream: its bytes are incomplete.
    pub fn fail(&self) {
        let mut state = lock(&self.state);
        state.broken = !state.ended;
        state.wake_receiver();
    }

    /// Returns whether more may be sent now; wakes the task when that, or what the receiver wants,
    /// changes. When the receiver is gone there is always room.
    #[inline]
    pub fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = lock(&self.state);
        if !state.is_full() {
            return Poll::Ready(());
        }
        keep_waker(&mut state.sender, cx);
        Poll::Pending
    }

    /// Wakes the task when the receiver takes bytes, waits for bytes, or is dropped.
    #[inline]
    pub fn watch(&self, cx: &Context<'_>) {
        keep_waker(&mut lock(&self.state).sender, cx);
    }

    /// Waits for room.
    ///
    /// # Errors
    /// [`ReceiverDropped`] when the receiver is.
    pub async fn room(&self) -> Result<(), ReceiverDropped> {
        poll_fn(|cx| self.poll_room(cx)).await;
        if self.is_abandoned() { Err(ReceiverDropped) } else { Ok(()) }
    }

    /// Waits until the receiver is gone.
    pub async fn abandoned(&self) {
        poll_fn(|cx| {
            let mut state = lock(&self.state);
            if state.receiving == ReceiverState::Dropped {
                return Poll::Ready(());
            }
            keep_waker(&mut state.sender, cx);
            Poll::Pending
        })
        .await;
    }

    /// Returns `true` if the receiver is gone.
    #[inline]
    pub fn is_abandoned(&self) -> bool {
        lock(&self.state).receiving == ReceiverState::Dropped
    }

    /// Returns `true` if the receiver has to take something first.
    #[inline]
    pub fn is_full(&self) -> bool {
        lock(&self.state).is_full()
    }

    /// Returns a reservation in the budget of the stream's connection, for what precedes the bytes that are sent.
    pub fn reservation(&self) -> Reservation {
        lock(&self.state).chunks.reservation()
    }

    /// Returns the bytes that the receiver has not taken.
    #[inline]
    pub fn unread(&self) -> usize {
        lock(&self.state).chunks.len()
    }

    /// Returns `true` if the receiver has waited for bytes.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        lock(&self.state).wanted
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.fail();
    }
}

impl Receiver {
    /// Returns the bytes that are left, when the sender has sent all; `None` while more may come.
    #[inline]
    pub fn whole_length(&self) -> Option<u64> {
        let state = match &self.from {
            Inner::Nothing => return Some(0),
            Inner::Source(_) => return None,
            Inner::Sender(state) => lock(state),
        };
        state.ended.then_some(state.chunks.len() as u64)
    }

    /// Returns the next bytes; `None` at the end.
    #[inline]
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Broken>> {
        let mut state = match &mut self.from {
            Inner::Nothing => return Poll::Ready(Ok(None)),
            Inner::Source(source) => return source.poll_next(cx),
            Inner::Sender(state) => lock(state),
        };
        if let Some(bytes) = state.chunks.pop() {
            state.wake_sender();
            return Poll::Ready(Ok(Some(bytes)));
        }
        if state.ended {
            return Poll::Ready(Ok(None));
        }
        if state.broken {
            return Poll::Ready(Err(Broken));
        }
        keep_waker(&mut state.receiver, cx);
        if !std::mem::replace(&mut state.wanted, true) {
            state.wake_sender();
        }
        Poll::Pending
    }

    /// Waits for the next bytes; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Broken> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Waits for the rest of the body, whose length the caller bounds.
    pub async fn rest(&mut self) -> Result<Vec<u8>, Broken> {
        let mut all = Vec::new();
        while let Some(bytes) = self.next().await? {
            all.extend_from_slice(&bytes);
        }
        Ok(all)
    }

    /// Returns the trailer fields, after the end.
    pub fn take_trailers(&mut self) -> FieldLines {
        match &mut self.from {
            Inner::Source(source) => source.take_trailers(),
            Inner::Nothing => FieldLines::default(),
            Inner::Sender(state) => {
                lock(state).trailers.take().map_or_else(FieldLines::default, |it| *it)
            }
        }
    }

    /// Lets the sender go on to its end, and drops what it sends.
    pub fn detach(mut self) {
        let state = match std::mem::replace(&mut self.from, Inner::Nothing) {
            Inner::Nothing => return,
            Inner::Source(source) => return source.finish(),
            Inner::Sender(state) => state,
        };
        let mut state = lock(&state);
        state.receiving = ReceiverState::Discarding;
        state.drop_chunks();
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let Inner::Sender(state) = &self.from else { return };
        let mut state = lock(state);
        if state.receiving == ReceiverState::Yes {
            state.receiving = ReceiverState::Dropped;
            state.drop_chunks();
        }
    }
}

impl State {
    /// Returns `true` if the receiver has to take something before more may be sent.
    fn is_full(&self) -> bool {
        self.receiving == ReceiverState::Yes && self.chunks.is_full(self.limit)
    }

    fn drop_chunks(&mut self) {
        self.chunks.clear();
        self.wake_sender();
    }

    fn wake_sender(&mut self) {
        if let Some(waker) = self.sender.take() {
            waker.wake();
        }
    }

    fn wake_receiver(&mut self) {
        if let Some(waker) = self.receiver.take() {
            waker.wake();
        }
    }
}

/// A state is whole after every statement, so that a panic elsewhere spoils nothing.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn keep_waker(slot: &mut Option<Waker>, cx: &Context<'_>) {
    match slot {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *slot = Some(cx.waker().clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll<T>(mut operation: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        operation(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_full_stream_has_room_again_when_bytes_are_taken() {
        let (sender, mut receiver) = channel(4);
        assert!(poll(|cx| sender.poll_room(cx)).is_ready());
        sender.push(Bytes::from_static(b"12345"));
        assert!(poll(|cx| sender.poll_room(cx)).is_pending());
        let taken = poll(|cx| receiver.poll_next(cx));
        assert_eq!(taken, Poll::Ready(Ok(Some(Bytes::from_static(b"12345")))));
        assert!(poll(|cx| sender.poll_room(cx)).is_ready());
        sender.end();
        assert_eq!(poll(|cx| receiver.poll_next(cx)), Poll::Ready(Ok(None)));
    }

    #[test]
    fn small_chunks_count_with_the_memory_that_they_take() {
        let (sender, mut receiver) = channel(64 * 1024);
        let mut sent = 0;
        while poll(|cx| sender.poll_room(cx)).is_ready() {
            // A slice of a large buffer, as a read leaves it.
            sender.push(Bytes::from(vec![b'x'; 64 * 1024]).slice(..1));
            sent += 1;
        }
        assert!((40_000..64 * 1024).contains(&sent), "{sent}");
        assert_eq!(sender.unread(), sent);
        let (mut chunks, mut received) = (0, 0);
        while let Poll::Ready(Ok(Some(bytes))) = poll(|cx| receiver.poll_next(cx)) {
            chunks += 1;
            received += bytes.len();
        }
        assert!(received == sent && chunks < 20, "{received} bytes in {chunks} chunks");
        assert!(poll(|cx| sender.poll_room(cx)).is_ready());
    }

    #[test]
    fn trailer_fields_arrive_after_the_end() {
        let (sender, mut receiver) = channel(4);
        let mut trailers = FieldLines::default();
        trailers.push("Digest", "x");
        sender.end_with(trailers.clone());
        assert_eq!(poll(|cx| receiver.poll_next(cx)), Poll::Ready(Ok(None)));
        assert_eq!(receiver.take_trailers(), trailers);
        assert!(receiver.take_trailers().is_empty());
    }

    #[test]
    fn a_stream_that_was_not_ended_is_broken() {
        let (sender, mut receiver) = channel(4);
        drop(sender);
        assert_eq!(poll(|cx| receiver.poll_next(cx)), Poll::Ready(Err(Broken)));
    }

    #[test]
    fn a_discarding_receiver_never_holds_the_sender_and_is_not_gone() {
        let (sender, receiver) = channel(1);
        receiver.detach();
        sender.push(Bytes::from_static(b"12"));
        assert!(poll(|cx| sender.poll_room(cx)).is_ready());
        assert!(!sender.is_abandoned());
        let (sender, receiver) = channel(1);
        drop(receiver);
        assert!(sender.is_abandoned());
    }
}
