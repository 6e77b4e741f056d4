//! The content of an object while it arrives: received once, and read by any number of clients.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::remote::{Broken, ContentReader};

/// Content that arrives.
#[derive(Debug, Default)]
pub(super) struct Download {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    chunks: Vec<Bytes>,
    /// The bytes after the chunks: small pieces, so that memory does not depend on how the store cuts the content.
    tail: Vec<u8>,
    length: u64,
    end: Option<Result<(), Broken>>,
    readers: Vec<Waker>,
}

/// A reader of a range of the content.
#[derive(Debug)]
pub(super) struct RangeReader {
    download: Arc<Download>,
    /// The next chunk, and how many bytes of all chunks are before it.
    chunk: usize,
    before: u64,
    /// The part of the range that was not read.
    range: Range<u64>,
}

/// The size of a chunk that is made of smaller pieces.
const CHUNK: usize = 64 << 10;

impl Download {
    /// Appends bytes.
    pub(super) fn push(&self, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        let mut state = self.lock();
        state.length += bytes.len() as u64;
        state.append(bytes);
        let readers = std::mem::take(&mut state.readers);
        drop(state);
        readers.into_iter().for_each(Waker::wake);
    }

    /// Ends the content.
    pub(super) fn end(&self, result: Result<(), Broken>) {
        let mut state = self.lock();
        state.end = Some(result);
        state.finish_tail();
        let readers = std::mem::take(&mut state.readers);
        drop(state);
        readers.into_iter().for_each(Waker::wake);
    }

    /// Returns the bytes that have arrived.
    pub(super) fn length(&self) -> u64 {
        self.lock().length
    }

    /// Returns all bytes that have arrived, in one piece.
    pub(super) fn to_vec(&self) -> Vec<u8> {
        let state = self.lock();
        let mut whole = Vec::with_capacity(state.length as usize);
        state.chunks.iter().for_each(|chunk| whole.extend_from_slice(chunk));
        whole.extend_from_slice(&state.tail);
        whole
    }

    /// Returns a reader of `range`.
    pub(super) fn read(self: &Arc<Self>, range: Range<u64>) -> RangeReader {
        RangeReader { download: Arc::clone(self), chunk: 0, before: 0, range }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn append(&mut self, bytes: Bytes) {
        if self.tail.is_empty() && bytes.len() >= CHUNK / 4 {
            self.chunks.push(bytes);
            return;
        }
        self.tail.extend_from_slice(&bytes);
        if self.tail.len() >= CHUNK {
            self.finish_tail();
        }
    }

    /// Makes a chunk of the tail.
    fn finish_tail(&mut self) {
        if !self.tail.is_empty() {
            let mut tail = std::mem::take(&mut self.tail);
            tail.shrink_to_fit();
            self.chunks.push(tail.into());
        }
    }
}

impl ContentReader for RangeReader {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Broken>> {
        if self.range.is_empty() {
            return Poll::Ready(Ok(None));
        }
        let mut state = self.download.lock();
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
        // The range begins behind the last chunk, at the earliest.
        let end = self.range.end.min(self.before + state.tail.len() as u64);
        let from = self.range.start.max(self.before);
        if from < end {
            let part = (from - self.before) as usize..(end - self.before) as usize;
            self.range.start = end;
            return Poll::Ready(Ok(Some(Bytes::copy_from_slice(&state.tail[part]))));
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

    fn next(reader: &mut RangeReader) -> Poll<Result<Option<Bytes>, Broken>> {
        reader.poll_next(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn each_reader_gets_its_range_whatever_the_chunks() {
        let download = Arc::new(Download::default());
        let mut early = download.read(2..9);
        assert!(next(&mut early).is_pending());
        for chunk in ["a", "bcd", "ef", "ghij"] {
            download.push(Bytes::from(chunk));
        }
        let mut late = download.read(2..9);
        for reader in [&mut early, &mut late] {
            let mut read = Vec::new();
            while let Poll::Ready(Ok(Some(bytes))) = next(reader) {
                read.extend_from_slice(&bytes);
            }
            assert_eq!(read, b"cdefghi");
            assert_eq!(next(reader), Poll::Ready(Ok(None)));
        }
        assert_eq!((download.to_vec(), download.length()), (b"abcdefghij".to_vec(), 10));
    }

    #[test]
    fn single_bytes_take_no_more_memory_than_a_whole() {
        let download = Arc::new(Download::default());
        let content: Vec<u8> = (0..1 << 20).map(|at: u32| (at % 251) as u8).collect();
        let (mut reader, mut read) = (download.read(0..content.len() as u64), Vec::new());
        for (at, byte) in content.iter().enumerate() {
            download.push(Bytes::copy_from_slice(std::slice::from_ref(byte)));
            if at % 1000 == 0 {
                let Poll::Ready(Ok(Some(bytes))) = next(&mut reader) else { panic!("{at}") };
                read.extend_from_slice(&bytes);
            }
        }
        assert_eq!(download.lock().chunks.len(), content.len() / CHUNK);
        download.end(Ok(()));
        while let Poll::Ready(Ok(Some(bytes))) = next(&mut reader) {
            read.extend_from_slice(&bytes);
        }
        assert!(read == content && download.to_vec() == content);
    }

    #[test]
    fn content_that_ends_early_breaks_its_readers() {
        let download = Arc::new(Download::default());
        let (mut whole, mut part) = (download.read(0..4), download.read(0..2));
        download.push(Bytes::from("ab"));
        download.end(Err(Broken));
        assert_eq!(next(&mut whole), Poll::Ready(Ok(Some(Bytes::from("ab")))));
        assert_eq!(next(&mut whole), Poll::Ready(Err(Broken)));
        assert_eq!(next(&mut part), Poll::Ready(Ok(Some(Bytes::from("ab")))));
        assert_eq!(next(&mut part), Poll::Ready(Ok(None)));
    }
}
