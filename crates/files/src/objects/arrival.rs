//! The content of an object while it arrives: received once, and read by any number of clients.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::remote::{Broken, ContentReader};

/// Content that arrives.
#[derive(Debug, Default)]
pub(super) struct Arrival {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    chunks: Vec<Bytes>,
    length: u64,
    end: Option<Result<(), Broken>>,
    readers: Vec<Waker>,
}

/// A reader of a range of the content.
#[derive(Debug)]
pub(super) struct Reader {
    arrival: Arc<Arrival>,
    /// The next chunk, and how many bytes of all chunks are before it.
    chunk: usize,
    before: u64,
    /// What is left of the range.
    range: Range<u64>,
}

impl Arrival {
    /// Appends bytes.
    pub(super) fn push(&self, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        let mut state = self.lock();
        state.length += bytes.len() as u64;
        state.chunks.push(bytes);
        let readers = std::mem::take(&mut state.readers);
        drop(state);
        readers.into_iter().for_each(Waker::wake);
    }

    /// Ends the content.
    pub(super) fn end(&self, result: Result<(), Broken>) {
        let mut state = self.lock();
        state.end = Some(result);
        let readers = std::mem::take(&mut state.readers);
        drop(state);
        readers.into_iter().for_each(Waker::wake);
    }

    /// Bytes that have arrived.
    pub(super) fn length(&self) -> u64 {
        self.lock().length
    }

    /// All bytes that have arrived, in one piece.
    pub(super) fn to_vec(&self) -> Vec<u8> {
        let state = self.lock();
        let mut whole = Vec::with_capacity(state.length as usize);
        state.chunks.iter().for_each(|chunk| whole.extend_from_slice(chunk));
        whole
    }

    /// A reader of `range`.
    pub(super) fn read(self: &Arc<Self>, range: Range<u64>) -> Reader {
        Reader { arrival: Arc::clone(self), chunk: 0, before: 0, range }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ContentReader for Reader {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Broken>> {
        if self.range.is_empty() {
            return Poll::Ready(Ok(None));
        }
        let mut state = self.arrival.lock();
        while let Some(chunk) = state.chunks.get(self.chunk) {
            let end = self.before + chunk.len() as u64;
            let (from, to) = (self.range.start.max(self.before), self.range.end.min(end));
            if from < to {
                // The offsets are within the chunk.
                let bytes = chunk.slice((from - self.before) as usize..(to - self.before) as usize);
                self.range.start = to;
                if to == end {
                    (self.chunk, self.before) = (self.chunk + 1, end);
                }
                return Poll::Ready(Ok(Some(bytes)));
            }
            (self.chunk, self.before) = (self.chunk + 1, end);
        }
        if state.end.is_some() {
            return Poll::Ready(Err(Broken));
        }
        if !state.readers.iter().any(|reader| reader.will_wake(cx.waker())) {
            state.readers.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(reader: &mut Reader) -> Poll<Result<Option<Bytes>, Broken>> {
        reader.poll_next(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn each_reader_gets_its_range_whatever_the_chunks() {
        let arrival = Arc::new(Arrival::default());
        let mut early = arrival.read(2..9);
        assert!(next(&mut early).is_pending());
        for chunk in ["a", "bcd", "ef", "ghij"] {
            arrival.push(Bytes::from(chunk));
        }
        let mut late = arrival.read(2..9);
        for reader in [&mut early, &mut late] {
            let mut read = Vec::new();
            while let Poll::Ready(Ok(Some(bytes))) = next(reader) {
                read.extend_from_slice(&bytes);
            }
            assert_eq!(read, b"cdefghi");
            assert_eq!(next(reader), Poll::Ready(Ok(None)));
        }
        assert_eq!((arrival.to_vec(), arrival.length()), (b"abcdefghij".to_vec(), 10));
    }

    #[test]
    fn content_that_ends_early_breaks_its_readers() {
        let arrival = Arc::new(Arrival::default());
        let (mut whole, mut part) = (arrival.read(0..4), arrival.read(0..2));
        arrival.push(Bytes::from("ab"));
        arrival.end(Err(Broken));
        assert_eq!(next(&mut whole), Poll::Ready(Ok(Some(Bytes::from("ab")))));
        assert_eq!(next(&mut whole), Poll::Ready(Err(Broken)));
        assert_eq!(next(&mut part), Poll::Ready(Ok(Some(Bytes::from("ab")))));
        assert_eq!(next(&mut part), Poll::Ready(Ok(None)));
    }
}
