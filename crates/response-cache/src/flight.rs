//! Collapsed forwarding: one request goes upstream, and others for the same URL wait for its response.
//!
//! The first request of a URL leads: it goes upstream. Those that come until its response is stored join it. When the head
//! of the response is there, its leader decides: if the response may be stored, all read its body while it arrives, each at its
//! own pace; otherwise each request goes upstream by itself. A leader that gives up leaves its place to one of the others.
//!
//! The body is kept whole, so that no reader waits for another one. A body that turns out to be larger than what may be
//! stored becomes a window: it is not stored, and what every reader has read is dropped. So does a body for which the memory of
//! all flights has no room.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use dunlin_http::ChunkQueue;
use dunlin_http::chunk_queue::Place;
use hashbrown::HashMap;

use crate::key::Key;
use crate::memory::Purge;
use crate::stored::{Stored, StoredHead};

/// Memory of a window that may wait for the slowest reader, in bytes.
const WINDOW: usize = 256 * 1024;

/// The requests of all workers that are upstream.
#[derive(Debug)]
pub struct Flights {
    table: Mutex<HashMap<Key, Arc<Flight>>>,
    /// Memory that all bodies may take that may be stored, in bytes.
    max_held: u64,
    /// Memory that they take.
    held: AtomicU64,
    /// The number of the last flight that no other request joins.
    last_number: AtomicU64,
}

/// The part of a request in a flight.
#[derive(Debug)]
pub enum Role {
    /// It goes upstream.
    Leader(Leader),
    /// It waits for the leader.
    Waiter(Reader),
}

/// The request that goes upstream. Dropping it without a decision lets another one lead.
#[derive(Debug)]
pub struct Leader {
    flight: Joined,
    is_decided: bool,
}

/// The body of a response on its way from upstream. Dropping it before the end breaks the body for its readers.
#[derive(Debug)]
pub struct Writer {
    flight: Joined,
    max_body: u64,
    is_ended: bool,
}

/// A request that waits for the head of a response, then a reader of its body.
#[derive(Debug)]
pub struct Reader {
    flight: Arc<Flight>,
    number: usize,
}

/// Memory that is taken until it is dropped.
#[derive(Debug)]
pub struct Held {
    flights: Arc<Flights>,
    bytes: u64,
}

/// The decision of the leader.
#[derive(Debug)]
pub enum Decision {
    /// The body can be read. The total length, if it is known.
    Response(Arc<StoredHead>, Option<u64>),
    /// The response is in the store: it was validated, or it replaces an error.
    Stored(Arc<Stored>),
    /// The request has to go upstream by itself.
    Forward,
    /// The leader has given up: the request has to join again.
    Rejoin,
}

/// The body is incomplete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken;

/// A flight that is in the table.
#[derive(Debug)]
struct Joined {
    flights: Arc<Flights>,
    key: Key,
    flight: Arc<Flight>,
}

#[derive(Debug, Default)]
struct Flight {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    phase: Phase,
    /// The bytes that were received, without those that every reader of a window has read.
    chunks: ChunkQueue,
    /// Bytes of the memory of all flights that the body has taken.
    reserved: u64,
    /// Bytes received.
    received: u64,
    /// The body is too large to be stored.
    is_window: bool,
    /// The URL was invalidated after the request: the response is not stored.
    is_invalidated: bool,
    /// The readers by their numbers.
    readers: HashMap<usize, Position>,
    next_number: usize,
    /// The writer, when it waits for readers of a window.
    writer: Option<Waker>,
}

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Waiting,
    Forward,
    Rejoin,
    Stored(Arc<Stored>),
    Body(Arc<StoredHead>, Option<u64>),
    Ended(Arc<StoredHead>, Option<u64>),
    Broken,
}

/// The position of a reader, and its waker while it waits.
#[derive(Debug, Default)]
struct Position {
    place: Place,
    waker: Option<Waker>,
}

impl Flights {
    /// No flights. The bodies that may be stored take at most `max_held` bytes of memory.
    pub fn new(max_held: u64) -> Arc<Self> {
        Arc::new(Self {
            table: Mutex::default(),
            max_held,
            held: AtomicU64::new(0),
            last_number: AtomicU64::new(0),
        })
    }

    /// Joins the flight of a URL, or starts it. `variant` distinguishes the requests that need different responses for the URL; see
    /// [`Vary::variant`](crate::vary::Vary::variant).
    pub fn join(self: &Arc<Self>, key: &Key, variant: &[u8]) -> Role {
        let key = match variant {
            [] => key.clone(),
            variant => extended(key, variant),
        };
        let mut table = lock(&self.table);
        if let Some(flight) = table.get(&key) {
            return Role::Waiter(flight.reader());
        }
        Role::Leader(self.start(&mut table, key))
    }

    /// Starts a flight that no other request joins.
    pub fn lead(self: &Arc<Self>, key: &Key) -> Leader {
        let number = self.last_number.fetch_add(1, Ordering::Relaxed);
        let key = extended(key, &[&[0], &number.to_le_bytes()[..]].concat());
        self.start(&mut lock(&self.table), key)
    }

    /// The responses that are on their way for that URL are not stored, and no further request joins them: the URL was
    /// invalidated.
    pub fn invalidate(&self, key: &Key) {
        self.invalidate_if(|site, url, _| {
            let rest = url.strip_prefix(&*key.url);
            site == key.site && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"\n"))
        });
    }

    /// As [`invalidate`](Self::invalidate), for the responses that `purge` concerns, of one site or of all. It concerns every
    /// tag that is not yet known.
    pub fn purge(&self, site: Option<usize>, purge: &Purge) {
        self.invalidate_if(|of, url, head| {
            site.is_none_or(|site| site == of)
                && purge.concerns(url, |tag| head.is_none_or(|head| head.has_tag(tag)))
        });
    }

    /// Returns the number of requests that are upstream, and the bytes of memory that their bodies take.
    pub fn usage(&self) -> (usize, u64) {
        (lock(&self.table).len(), self.held.load(Ordering::Relaxed))
    }

    /// Takes memory for a body that is read from elsewhere; `None` if there is not enough.
    pub fn hold(self: &Arc<Self>, bytes: u64) -> Option<Held> {
        self.reserve(bytes).then(|| Held { flights: Arc::clone(self), bytes })
    }

    fn invalidate_if(&self, is_out: impl Fn(usize, &[u8], Option<&StoredHead>) -> bool) {
        lock(&self.table).retain(|key, flight| {
            let mut state = flight.lock();
            let head = match &state.phase {
                Phase::Body(head, _) | Phase::Ended(head, _) => Some(Arc::clone(head)),
                _ => None,
            };
            let is_invalidated = is_out(key.site, url_of(key), head.as_deref());
            state.is_invalidated |= is_invalidated;
            !is_invalidated
        });
    }

    fn start(self: &Arc<Self>, table: &mut HashMap<Key, Arc<Flight>>, key: Key) -> Leader {
        let flight = Arc::new(Flight::default());
        table.insert(key.clone(), Arc::clone(&flight));
        let flight = Joined { flights: Arc::clone(self), key, flight };
        Leader { flight, is_decided: false }
    }

    /// Takes memory for a body. Returns `false` if there is not enough.
    fn reserve(&self, bytes: u64) -> bool {
        let take = |held: u64| held.checked_add(bytes).filter(|&held| held <= self.max_held);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

/// Returns the key of a flight for some requests of a URL. No URL has a NUL.
fn extended(key: &Key, more: &[u8]) -> Key {
    Key { site: key.site, url: [&key.url, &[0][..], more].concat().into() }
}

/// Returns the URL of the key of a flight.
fn url_of(key: &Key) -> &[u8] {
    key.url.split(|&byte| byte == 0).next().unwrap_or_default()
}

impl Drop for Held {
    fn drop(&mut self) {
        self.flights.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Leader {
    /// The response may not be stored: the others go upstream by themselves.
    pub fn decline(mut self) {
        self.decide(Phase::Forward);
        self.flight.leave();
    }

    /// The others have the response that is in the store. If the URL was invalidated since, they go upstream.
    pub fn resolve(mut self, stored: Arc<Stored>) {
        self.decide(Phase::Stored(stored));
        self.flight.leave();
    }

    /// Returns `true` if the URL was invalidated after the request, so that its response must not be stored.
    pub fn is_invalidated(&self) -> bool {
        self.flight.flight.lock().is_invalidated
    }

    /// Begins the response, which may be stored if its body, whose `length` may be known, is not larger than `max_body`. Returns
    /// the end for its bytes, and the leader's own reader.
    pub fn begin(
        mut self,
        head: StoredHead,
        length: Option<u64>,
        max_body: u64,
    ) -> (Writer, Reader) {
        let reader = self.flight.flight.reader();
        self.decide(Phase::Body(Arc::new(head), length));
        let Joined { flights, key, flight } = &self.flight;
        let flight =
            Joined { flights: Arc::clone(flights), key: key.clone(), flight: Arc::clone(flight) };
        (Writer { flight, max_body, is_ended: false }, reader)
    }

    fn decide(&mut self, phase: Phase) {
        self.is_decided = true;
        self.flight.flight.enter(phase);
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        if !self.is_decided {
            // They join the next flight.
            self.flight.leave();
            self.flight.flight.enter(Phase::Rejoin);
        }
    }
}

impl Writer {
    /// Returns whether more may be received now.
    pub fn poll_room(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.flight.flight.lock();
        if !state.is_window || state.chunks.held() < WINDOW {
            return Poll::Ready(());
        }
        keep_waker(&mut state.writer, cx);
        Poll::Pending
    }

    /// Returns `true` if the body is not needed: it will not be stored, and has no reader.
    pub fn is_useless(&self) -> bool {
        let state = self.flight.flight.lock();
        (state.is_window || state.is_invalidated) && state.readers.is_empty()
    }

    /// Adds bytes of the body.
    pub fn push(&self, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        let mut state = self.flight.flight.lock();
        state.received += bytes.len() as u64;
        state.chunks.push(bytes);
        if !state.is_window {
            let more = (state.chunks.held() as u64).saturating_sub(state.reserved);
            let has_room = state.received <= self.max_body && self.flight.flights.reserve(more);
            state.reserved += if has_room { more } else { 0 };
            if !has_room {
                state.is_window = true;
                let reserved = std::mem::take(&mut state.reserved);
                self.flight.flights.held.fetch_sub(reserved, Ordering::Relaxed);
                drop(state);
                // A later request could not read the body from its start.
                self.flight.leave();
                state = self.flight.flight.lock();
            }
        }
        state.drop_read();
        state.wake_readers();
    }

    /// Ends the body. Returns the response if it is to be stored. The caller stores it before it drops the writer, so that each
    /// later request joins the flight or finds the stored response.
    pub fn end(&mut self) -> Option<Stored> {
        self.is_ended = true;
        let mut state = self.flight.flight.lock();
        let Phase::Body(head, length) = &state.phase else { return None };
        let (head, length) = (Arc::clone(head), *length);
        let is_complete = length.is_none_or(|length| length == state.received);
        let length = Some(state.received);
        let stored = is_complete && !state.is_window && !state.is_invalidated;
        let stored = stored
            .then(|| Stored { head: StoredHead::clone(&head), body: state.chunks.to_bytes() });
        state.phase = match is_complete {
            true => Phase::Ended(head, length),
            false => Phase::Broken,
        };
        state.wake_readers();
        stored
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.flight.leave();
        let reserved = std::mem::take(&mut self.flight.flight.lock().reserved);
        self.flight.flights.held.fetch_sub(reserved, Ordering::Relaxed);
        if !self.is_ended {
            self.flight.flight.enter(Phase::Broken);
        }
    }
}

impl Reader {
    /// Returns what the leader has decided.
    pub fn poll_decision(&self, cx: &Context<'_>) -> Poll<Decision> {
        let mut state = self.flight.lock();
        match &state.phase {
            Phase::Waiting => {}
            Phase::Forward => return Poll::Ready(Decision::Forward),
            Phase::Stored(stored) => return Poll::Ready(Decision::Stored(Arc::clone(stored))),
            Phase::Rejoin | Phase::Broken => return Poll::Ready(Decision::Rejoin),
            Phase::Body(head, length) | Phase::Ended(head, length) => {
                return Poll::Ready(Decision::Response(Arc::clone(head), *length));
            }
        }
        state.wait(self.number, cx);
        Poll::Pending
    }

    /// Returns the next bytes of the body; `None` at its end.
    ///
    /// # Errors
    /// If the body is incomplete.
    pub fn poll_next(&mut self, cx: &Context<'_>) -> Poll<Result<Option<Bytes>, Broken>> {
        let mut state = self.flight.lock();
        let State { chunks, readers, .. } = &mut *state;
        let Some(position) = readers.get_mut(&self.number) else {
            return Poll::Ready(Err(Broken));
        };
        if let Some(bytes) = chunks.read(&mut position.place) {
            state.drop_read();
            return Poll::Ready(Ok(Some(bytes)));
        }
        match state.phase {
            Phase::Ended(..) => Poll::Ready(Ok(None)),
            Phase::Waiting | Phase::Body(..) => {
                state.wait(self.number, cx);
                Poll::Pending
            }
            Phase::Forward | Phase::Rejoin | Phase::Stored(_) | Phase::Broken => {
                Poll::Ready(Err(Broken))
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.flight.lock();
        state.readers.remove(&self.number);
        state.drop_read();
    }
}

impl Joined {
    /// Removes the flight from the table: no further request joins it.
    fn leave(&self) {
        let mut table = lock(&self.flights.table);
        // After an invalidation another flight may have its place.
        if table.get(&self.key).is_some_and(|other| Arc::ptr_eq(other, &self.flight)) {
            table.remove(&self.key);
        }
    }
}

impl Flight {
    /// Returns a reader that begins with the first byte.
    fn reader(self: &Arc<Self>) -> Reader {
        let mut state = self.lock();
        let number = state.next_number;
        state.next_number += 1;
        state.readers.insert(number, Position::default());
        Reader { flight: Arc::clone(self), number }
    }

    fn enter(&self, phase: Phase) {
        let mut state = self.lock();
        state.phase = phase;
        state.wake_readers();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    /// Drops what every reader of a window has read, and wakes the writer if there is room.
    fn drop_read(&mut self) {
        if !self.is_window {
            return;
        }
        match self.readers.values().map(|position| position.place).min() {
            Some(last) => self.chunks.drop_before(last),
            None => self.chunks.clear(),
        }
        if (self.chunks.held() < WINDOW || self.readers.is_empty())
            && let Some(writer) = self.writer.take()
        {
            writer.wake();
        }
    }

    fn wait(&mut self, number: usize, cx: &Context<'_>) {
        if let Some(position) = self.readers.get_mut(&number) {
            keep_waker(&mut position.waker, cx);
        }
    }

    fn wake_readers(&mut self) {
        for position in self.readers.values_mut() {
            if let Some(waker) = position.waker.take() {
                waker.wake();
            }
        }
    }
}

fn keep_waker(kept: &mut Option<Waker>, cx: &Context<'_>) {
    match kept {
        Some(kept) => kept.clone_from(cx.waker()),
        kept => *kept = Some(cx.waker().clone()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
