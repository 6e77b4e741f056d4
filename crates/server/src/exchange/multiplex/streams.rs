//! The streams of a connection whose responses are not complete.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Context;

use dunlin_memory::{Budget, Reservation};

use super::StreamId;
use super::stream::Stream;
use super::wakeups::{WakeUps, WakerHandle};

/// Open streams of a connection. An idle connection, which has none, needs no memory for them.
#[derive(Default)]
pub(super) struct Streams(Option<Box<OpenStreams>>);

struct OpenStreams {
    /// The id of each entry of `streams`: a search touches few cache lines.
    ids: Vec<StreamId>,
    streams: Vec<Stream>,
    /// Absent before the first stream.
    wakeups: Option<Arc<WakeUps>>,
    /// Streams to poll, in addition to those that were woken.
    due: Vec<StreamId>,
    /// Streams of the present poll; empty between polls.
    polling: Vec<StreamId>,
    /// Streams that were polled, until the connection has processed the results.
    polled: VecDeque<StreamId>,
    /// A stream was held back.
    has_held_back: bool,
    /// Bytes that bodies hold, in queues and taken from them.
    budget: Arc<Budget>,
    /// Those that the streams have taken.
    taken: Reservation,
}

/// Bytes of bodies that wait for the client, beyond which a stream takes no more of its body unless it can be sent.
const ROOM: usize = 256 * 1024;

/// Bytes that bodies may hold for one connection; see [`Budget`].
const BUDGET: usize = 512 * 1024;

impl Streams {
    pub(super) fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|open| open.streams.is_empty())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.0.iter().flat_map(|open| &open.streams)
    }

    /// Adds a stream. It is polled next.
    pub(super) fn insert(&mut self, stream: Stream) {
        let open = self.0.get_or_insert_default();
        open.due.push(stream.id);
        open.ids.push(stream.id);
        open.streams.push(stream);
    }

    pub(super) fn get_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        let open = self.0.as_mut()?;
        let number = open.position(id)?;
        open.streams.get_mut(number)
    }

    pub(super) fn remove(&mut self, id: StreamId) -> Option<Stream> {
        let open = self.0.as_mut()?;
        let number = open.position(id)?;
        open.ids.swap_remove(number);
        Some(open.streams.swap_remove(number))
    }

    /// Removes all streams.
    pub(super) fn take(&mut self) -> Vec<Stream> {
        self.0.take().map(|open| open.streams).unwrap_or_default()
    }

    /// Returns the ids of all streams for which `is_selected` holds.
    pub(super) fn ids_where(&self, is_selected: impl Fn(&Stream) -> bool) -> Vec<StreamId> {
        self.iter().filter(|stream| is_selected(stream)).map(|stream| stream.id).collect()
    }

    /// Polls a stream again although nothing has woken it.
    pub(super) fn poll_again(&mut self, id: StreamId) {
        if let Some(open) = &mut self.0 {
            open.due.push(id);
        }
    }

    /// Returns `true` if a stream is to be polled although nothing has woken it.
    pub(super) fn has_due(&self) -> bool {
        self.0.as_ref().is_some_and(|open| !open.due.is_empty())
    }

    /// Polls the streams that were woken or are due. While bodies hold [`ROOM`], only those of streams for which `can_send`
    /// holds are polled. Returns `true` if one of the streams has made progress.
    pub(super) fn poll(
        &mut self,
        now: u64,
        cx: &Context<'_>,
        can_send: impl FnMut(StreamId) -> bool,
    ) -> bool {
        self.0.as_mut().is_some_and(|open| open.poll(now, cx, can_send))
    }

    /// Makes the streams due that were held back and may go on. Returns `true` if there is one.
    pub(super) fn release(&mut self, can_send: impl FnMut(StreamId) -> bool) -> bool {
        self.0.as_mut().is_some_and(|open| open.release(can_send))
    }

    /// Returns the next stream that was polled and whose results were not processed.
    pub(super) fn next_polled(&mut self) -> Option<StreamId> {
        self.0.as_mut()?.polled.pop_front()
    }

    /// Frees memory that is kept for further streams. There must be none.
    pub(super) fn shrink(&mut self) {
        debug_assert!(self.is_empty());
        self.0 = None;
    }
}

impl Default for OpenStreams {
    fn default() -> Self {
        let budget = Budget::new(BUDGET);
        let taken = budget.reservation();
        Self {
            ids: Vec::new(),
            streams: Vec::new(),
            wakeups: None,
            due: Vec::new(),
            polling: Vec::new(),
            polled: VecDeque::new(),
            has_held_back: false,
            budget,
            taken,
        }
    }
}

impl OpenStreams {
    fn position(&self, id: StreamId) -> Option<usize> {
        self.ids.iter().position(|&other| other == id)
    }

    fn poll(
        &mut self,
        now: u64,
        cx: &Context<'_>,
        mut can_send: impl FnMut(StreamId) -> bool,
    ) -> bool {
        if self.streams.is_empty() {
            self.due.clear();
            return false;
        }
        let mut held = self.held();
        let Self { ids, streams, wakeups, due, polling, polled, has_held_back, budget, taken } =
            self;
        let _entered = budget.enter();
        let wakeups = wakeups.get_or_insert_default();
        std::mem::swap(due, polling);
        wakeups.take(cx, polling);
        let mut has_progress = false;
        for id in polling.drain(..) {
            let Some(number) = ids.iter().position(|&other| other == id) else { continue };
            let stream = &mut streams[number];
            let handle = stream.waker.take().unwrap_or_else(|| WakerHandle::new(id, wakeups));
            let waker = handle.begin_poll();
            held -= stream.held();
            let may_take = held < ROOM || can_send(id);
            if stream.poll(now, may_take, &mut Context::from_waker(waker)) {
                has_progress = true;
                due.push(id);
            }
            held += stream.held();
            taken.set(held);
            *has_held_back |= stream.is_held_back;
            stream.waker = Some(handle);
            polled.push_back(id);
        }
        has_progress
    }

    /// Returns the bytes of bodies that wait for the client.
    fn held(&self) -> usize {
        self.streams.iter().map(Stream::held).sum()
    }

    fn release(&mut self, mut can_send: impl FnMut(StreamId) -> bool) -> bool {
        if !self.has_held_back {
            return false;
        }
        let held = self.held();
        self.taken.set(held);
        let due = self.due.len();
        self.has_held_back = false;
        for stream in self.streams.iter_mut().filter(|stream| stream.is_held_back) {
            if held < ROOM || can_send(stream.id) {
                stream.is_held_back = false;
                self.due.push(stream.id);
            } else {
                self.has_held_back = true;
            }
        }
        self.due.len() > due
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::poll_fn;
    use std::rc::Rc;
    use std::task::{Poll, Waker};

    use super::super::super::Exchange;
    use super::*;

    #[test]
    fn an_event_of_one_stream_polls_no_other() {
        let polled = Rc::new(RefCell::new(Vec::new()));
        let mut streams = Streams::default();
        for id in [1, 3, 5] {
            let polled = Rc::clone(&polled);
            let handler = poll_fn(move |cx: &mut Context<'_>| {
                polled.borrow_mut().push((id, cx.waker().clone()));
                Poll::Pending
            });
            streams.insert(Stream::new(
                id,
                0,
                Exchange::with_future(Box::pin(handler), None, false),
            ));
        }
        let task = Context::from_waker(Waker::noop());
        let poll = |streams: &mut Streams| {
            assert!(!streams.poll(0, &task, |_| true));
            std::mem::take(&mut *polled.borrow_mut())
        };
        let wakers = poll(&mut streams);
        assert_eq!(wakers.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 3, 5]);
        let polled = std::iter::from_fn(|| streams.next_polled()).collect::<Vec<_>>();
        assert_eq!(polled, [1, 3, 5]);
        assert!(poll(&mut streams).is_empty());
        wakers[1].1.wake_by_ref();
        wakers[1].1.wake_by_ref();
        assert_eq!(poll(&mut streams).into_iter().map(|(id, _)| id).collect::<Vec<_>>(), [3]);
        // A stream that has ended is woken without effect.
        streams.remove(5);
        wakers[2].1.wake_by_ref();
        wakers[0].1.wake_by_ref();
        assert_eq!(poll(&mut streams).into_iter().map(|(id, _)| id).collect::<Vec<_>>(), [1]);
    }
}
