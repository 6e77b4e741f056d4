//! A queue of the chunks of a body, bounded by the memory that it takes.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use dunlin_memory::{CHUNK, Reservation};

/// The chunks of a body that wait for one reader or several.
///
/// A chunk is usually a slice of the buffer that it was read into, and keeps all of it in memory: a peer that sends one
/// byte at a time fills memory a hundred times faster than the number of bytes suggests. The queue therefore copies small
/// chunks into blocks of its own, unless it is empty, so that a reader that keeps up gets each chunk as it is.
/// [`ChunkQueue::held`] counts blocks and the cost of each chunk; bounds are compared with it.
#[derive(Debug, Default)]
pub struct ChunkQueue {
    chunks: VecDeque<Bytes>,
    /// The small chunks behind `chunks`, and room for more.
    block: BytesMut,
    /// Bytes in both.
    length: usize,
    /// The number of the first chunk. Numbers of chunks never change.
    first: usize,
    /// The memory that the queue holds, in the account of the process.
    memory: Reservation,
}

/// The position of a reader.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The number of its chunk. The one behind the last is the block.
    chunk: usize,
    /// Bytes of it that were read.
    offset: usize,
}

/// Smaller chunks are copied.
const SMALL: usize = 8 * 1024;
/// Sizes of blocks, which grow with the queue.
const BLOCKS: std::ops::RangeInclusive<usize> = 1024..=16 * 1024;

impl ChunkQueue {
    /// Most that [`ChunkQueue::held`] is for chunks with `length` bytes together.
    #[must_use]
    pub const fn most_held(length: u64) -> u64 {
        // A large chunk and a small one before it.
        let chunks = length / SMALL as u64 * 2 * CHUNK as u64;
        length.saturating_add(chunks).saturating_add((*BLOCKS.end() + *BLOCKS.start()) as u64)
    }

    /// Creates a queue that joins the budget of the connection whose requests this thread polls
    /// ([`dunlin_memory::Budget`]).
    #[must_use]
    pub fn of_connection() -> Self {
        Self { memory: Reservation::of_connection(), ..Self::default() }
    }

    /// Returns a reservation in the same budget.
    #[must_use]
    pub fn reservation(&self) -> Reservation {
        self.memory.sibling()
    }

    /// Returns `true` if the queue holds `limit` bytes, or its share of the budget of its connection.
    #[must_use]
    #[inline]
    pub fn is_full(&self, limit: usize) -> bool {
        self.held() >= limit.min(self.memory.share())
    }

    /// Adds a chunk.
    pub fn push(&mut self, chunk: Bytes) {
        if chunk.len() < SMALL && !self.is_empty() {
            self.copy(&chunk);
        } else {
            self.append(chunk);
        }
        self.count();
    }

    /// Adds a chunk by copying it.
    pub fn push_copy(&mut self, chunk: &[u8]) {
        if chunk.len() < SMALL && !self.is_empty() {
            self.copy(chunk);
        } else {
            self.append(Bytes::copy_from_slice(chunk));
        }
        self.count();
    }

    /// Returns the next bytes for the only reader.
    pub fn pop(&mut self) -> Option<Bytes> {
        let chunk = match self.chunks.pop_front() {
            Some(chunk) => chunk,
            None if self.block.is_empty() => return None,
            None => std::mem::take(&mut self.block).freeze(),
        };
        self.first += 1;
        self.length -= chunk.len();
        if self.length == 0 {
            // An empty queue holds nothing.
            self.block = BytesMut::new();
        }
        self.count();
        Some(chunk)
    }

    /// Returns the next bytes for the reader at `place`, which moves behind them.
    pub fn read(&self, place: &mut Place) -> Option<Bytes> {
        while let Some(chunk) = self.chunks.get(place.chunk.checked_sub(self.first)?) {
            let rest = chunk.slice(place.offset..);
            *place = Place { chunk: place.chunk + 1, offset: 0 };
            if !rest.is_empty() {
                return Some(rest);
            }
        }
        let rest = self.block.get(place.offset..).filter(|rest| !rest.is_empty())?;
        place.offset += rest.len();
        Some(Bytes::copy_from_slice(rest))
    }

    /// Returns the place behind all chunks.
    #[must_use]
    pub fn end(&self) -> Place {
        Place { chunk: self.first + self.chunks.len(), offset: self.block.len() }
    }

    /// Drops the chunks that all readers have read, of which the last is at `place`.
    pub fn drop_before(&mut self, place: Place) {
        while self.first < place.chunk
            && let Some(chunk) = self.chunks.pop_front()
        {
            self.first += 1;
            self.length -= chunk.len();
        }
        self.count();
    }

    /// Drops all chunks.
    pub fn clear(&mut self) {
        self.first += self.chunks.len() + usize::from(!self.block.is_empty());
        self.chunks.clear();
        self.block = BytesMut::new();
        self.length = 0;
        self.count();
    }

    /// Returns the bytes of the chunks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns `true` if there is no chunk.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the bytes of memory that the queue takes. It may keep the buffer of one more small chunk.
    #[must_use]
    pub fn held(&self) -> usize {
        self.length - self.block.len() + self.block.capacity() + self.chunks.len() * CHUNK
    }

    /// Returns all bytes in one piece, which is a copy.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let mut all = BytesMut::with_capacity(self.length);
        self.chunks.iter().for_each(|chunk| all.extend_from_slice(chunk));
        all.extend_from_slice(&self.block);
        all.freeze()
    }

    /// Counts the memory in the account of the process.
    fn count(&mut self) {
        self.memory.set(self.held());
    }

    fn append(&mut self, chunk: Bytes) {
        if chunk.is_empty() {
            return;
        }
        self.seal();
        self.length += chunk.len();
        self.chunks.push_back(chunk);
    }

    fn copy(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let mut room = self.block.capacity() - self.block.len();
            if room == 0 {
                self.seal();
                let size = self.length.clamp(*BLOCKS.start(), *BLOCKS.end());
                self.block = BytesMut::with_capacity(size);
                room = self.block.capacity();
            }
            let (part, rest) = bytes.split_at(room.min(bytes.len()));
            self.block.extend_from_slice(part);
            self.length += part.len();
            bytes = rest;
        }
    }

    /// Makes what is in the block a chunk. Its room stays for small chunks behind it.
    fn seal(&mut self) {
        if !self.block.is_empty() {
            self.chunks.push_back(self.block.split().freeze());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns a chunk of this length that keeps a buffer of 64 KB.
    fn slice(length: usize) -> Bytes {
        Bytes::from(vec![b'x'; 64 * 1024]).slice(..length)
    }

    #[test]
    fn a_reader_that_keeps_up_gets_each_chunk_as_it_is() {
        let mut queue = ChunkQueue::default();
        for _ in 0..3 {
            let chunk = slice(5);
            let place = chunk.as_ptr();
            queue.push(chunk);
            assert_eq!(queue.pop().unwrap().as_ptr(), place);
            assert_eq!((queue.pop(), queue.held()), (None, 0));
        }
    }

    #[test]
    fn small_chunks_share_a_block_and_do_not_keep_their_buffers() {
        let mut queue = ChunkQueue::default();
        for _ in 0..100_000 {
            queue.push(slice(1));
        }
        assert_eq!(queue.len(), 100_000);
        assert!(queue.held() < 120_000 && queue.chunks.len() < 20, "{}", queue.held());
        let mut read = 0;
        while let Some(bytes) = queue.pop() {
            read += bytes.len();
        }
        assert_eq!((read, queue.held()), (100_000, 0));
    }

    #[test]
    fn chunks_that_all_have_read_are_dropped() {
        let mut queue = ChunkQueue::default();
        let (mut fast, mut slow) = (Place::default(), Place::default());
        queue.push(slice(SMALL));
        queue.push(slice(10));
        assert_eq!(queue.read(&mut fast).unwrap().len(), SMALL);
        assert_eq!(queue.read(&mut fast).unwrap().len(), 10);
        queue.push(slice(SMALL));
        assert_eq!(queue.read(&mut fast).unwrap().len(), SMALL);
        queue.drop_before(slow);
        assert_eq!(queue.len(), 2 * SMALL + 10);
        queue.read(&mut slow).unwrap();
        queue.drop_before(slow);
        assert_eq!(queue.len(), SMALL + 10);
        assert_eq!(queue.read(&mut slow).unwrap().len(), 10);
        assert_eq!(queue.read(&mut slow).unwrap().len(), SMALL);
        assert_eq!((queue.read(&mut slow), queue.read(&mut fast)), (None, None));
        queue.drop_before(slow);
        assert!(queue.is_empty());
    }

    #[derive(Debug, Clone)]
    enum Step {
        Push(usize),
        PushCopy(usize),
        Take,
        Clear,
    }

    fn step() -> impl Strategy<Value = Step> {
        let size = || prop_oneof![0_usize..3, 1_usize..3_000, 8_000_usize..20_000];
        prop_oneof![
            4 => size().prop_map(Step::Push),
            2 => size().prop_map(Step::PushCopy),
            2 => Just(Step::Take),
            1 => Just(Step::Clear),
        ]
    }

    proptest! {
        /// Bytes come out in the order in which they came, by `pop` and by `read`, and the memory is bounded after every step.
        #[test]
        fn a_queue_keeps_its_bytes_and_its_bound(
            steps in proptest::collection::vec(step(), 0..200),
            pops: bool,
        ) {
            let (mut queue, mut place) = (ChunkQueue::default(), Place::default());
            let (mut sent, mut seen) = (0_u64, 0_u64);
            let check = |bytes: &Bytes, seen: &mut u64| {
                for &byte in bytes {
                    assert_eq!(byte, (*seen % 251) as u8);
                    *seen += 1;
                }
            };
            for step in steps {
                match step {
                    Step::Push(size) | Step::PushCopy(size) => {
                        let data: Vec<u8> = (sent..sent + size as u64).map(|at| (at % 251) as u8).collect();
                        sent += size as u64;
                        match step {
                            Step::Push(_) => queue.push(data.into()),
                            _ => queue.push_copy(&data),
                        }
                    }
                    Step::Take if pops => {
                        queue.pop().iter().for_each(|bytes| check(bytes, &mut seen));
                    }
                    Step::Take => {
                        queue.read(&mut place).iter().for_each(|bytes| check(bytes, &mut seen));
                        queue.drop_before(place);
                    }
                    Step::Clear if pops => {
                        queue.clear();
                        seen = sent;
                    }
                    Step::Clear => {}
                }
                let most = ChunkQueue::most_held(queue.len() as u64);
                prop_assert!(queue.held() as u64 <= most, "{} > {most}", queue.held());
                prop_assert!(!pops || queue.len() as u64 == sent - seen);
            }
            let rest = queue.to_bytes();
            if pops {
                check(&rest, &mut seen);
            } else {
                while let Some(bytes) = queue.read(&mut place) {
                    check(&bytes, &mut seen);
                }
            }
            prop_assert_eq!(seen, sent);
        }
    }
}
