//! Bounded queue between the workers and the thread that writes the access log.
//!
//! Workers hold the lock for a few instructions only and never wait for the writer: lines that do not
//! fit are dropped and counted.

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(super) struct Queue {
    state: Mutex<State>,
    work: Condvar,
    ended: Condvar,
    lost: AtomicU64,
    limit: usize,
}

#[derive(Default)]
struct State {
    entries: VecDeque<Entry>,
    /// Bytes that are queued or being written. `limit` bounds them.
    bytes: usize,
    /// Lines that are queued or being written.
    lines: u64,
    /// Empty buffers for reuse by the workers.
    free: Vec<Vec<u8>>,
    stage: Stage,
    /// The current loss, from the first lost line until the writer has caught up.
    loss: Option<Loss>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Open,
    /// The writer writes the queued lines and then ends.
    Draining,
    /// Draining has timed out; the writer ends as soon as it can.
    Abandoned,
    Ended,
}

#[derive(Default)]
struct Loss {
    lines: u64,
    stall_reported: bool,
    error_reported: bool,
}

/// An entry of the queue.
pub(super) enum Entry {
    Batch(Batch),
    Reopen,
}

/// Whole lines.
pub(super) struct Batch {
    pub(super) bytes: Vec<u8>,
    pub(super) lines: u64,
}

/// The report of the writer after a batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Report {
    Nothing,
    /// The first write error of this loss.
    LossStarts,
    /// The loss is over; this many lines were lost.
    Recovered(u64),
}

impl Queue {
    /// Creates a queue of at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            state: Mutex::default(),
            work: Condvar::new(),
            ended: Condvar::new(),
            lost: AtomicU64::new(0),
            limit,
        }
    }

    /// Moves the lines of `buffer` into the queue. Returns `true` if this is the first loss of a stall.
    pub(super) fn push(&self, buffer: &mut Vec<u8>, lines: u64) -> bool {
        let mut state = self.lock();
        let closed = matches!(state.stage, Stage::Abandoned | Stage::Ended);
        if closed || buffer.len() > self.limit.saturating_sub(state.bytes) {
            buffer.clear();
            self.lost.fetch_add(lines, Ordering::Relaxed);
            let loss = state.loss.get_or_insert_default();
            loss.lines += lines;
            return !closed && !mem::replace(&mut loss.stall_reported, true);
        }
        state.bytes += buffer.len();
        state.lines += lines;
        // Join small batches: fewer writes, and no nearly empty buffer is queued.
        if let Some(Entry::Batch(last)) = state.entries.back_mut()
            && last.bytes.capacity() - last.bytes.len() >= buffer.len()
        {
            last.bytes.append(buffer);
            last.lines += lines;
            return false;
        }
        let empty = state.free.pop().unwrap_or_else(new_buffer);
        let bytes = mem::replace(buffer, empty);
        state.entries.push_back(Entry::Batch(Batch { bytes, lines }));
        drop(state);
        self.work.notify_one();
        false
    }

    /// Queues a request to open the file again.
    pub(super) fn push_reopen(&self) {
        let mut state = self.lock();
        if !matches!(state.entries.back(), Some(Entry::Reopen)) {
            state.entries.push_back(Entry::Reopen);
            self.work.notify_one();
        }
    }

    /// Waits for the next entry; `None` when the writer has to end.
    pub(super) fn next(&self) -> Option<Entry> {
        let mut state = self.lock();
        loop {
            match state.stage {
                Stage::Abandoned | Stage::Ended => return None,
                Stage::Open | Stage::Draining => {}
            }
            if let Some(entry) = state.entries.pop_front() {
                return Some(entry);
            }
            if state.stage == Stage::Draining {
                return None;
            }
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes all that is queued, without a writer.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn take_batches(&self) -> Vec<u8> {
        let mut state = self.lock();
        (state.bytes, state.lines) = (0, 0);
        let entries = state.entries.drain(..);
        entries
            .flat_map(|entry| match entry {
                Entry::Batch(batch) => batch.bytes,
                Entry::Reopen => Vec::new(),
            })
            .collect()
    }

    /// Counts lost lines that are not part of a batch.
    pub(super) fn add_lost(&self, lines: u64) {
        self.lost.fetch_add(lines, Ordering::Relaxed);
    }

    /// Returns a batch after writing. `lost` is the number of its lost lines if it was not written completely.
    pub(super) fn finish(&self, mut batch: Batch, lost: Option<u64>) -> Report {
        let mut state = self.lock();
        if state.stage == Stage::Abandoned {
            return Report::Nothing; // `wait_drained` has counted its lines as lost
        }
        state.bytes -= batch.bytes.len();
        state.lines -= batch.lines;
        if state.free.len() < FREE_BUFFERS && batch.bytes.capacity() <= 2 * BUFFER_BYTES {
            batch.bytes.clear();
            state.free.push(batch.bytes);
        }
        if let Some(lost) = lost {
            self.lost.fetch_add(lost, Ordering::Relaxed);
            let loss = state.loss.get_or_insert_default();
            loss.lines += lost;
            let reported = mem::replace(&mut loss.error_reported, true);
            return if reported { Report::Nothing } else { Report::LossStarts };
        }
        // Report only once the writer has caught up, or a slow writer would report each batch.
        if state.lines == 0 {
            state.loss.take().map_or(Report::Nothing, |loss| Report::Recovered(loss.lines))
        } else {
            Report::Nothing
        }
    }

    /// Marks the writer as ended. The remaining lines are lost.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        self.drop_all(&mut state);
        state.stage = Stage::Ended;
        self.ended.notify_all();
    }

    /// Requests that the writer write the queued lines and end. Does not wait for it.
    pub(super) fn drain(&self) {
        let mut state = self.lock();
        if state.stage == Stage::Open {
            state.stage = Stage::Draining;
            self.work.notify_one();
        }
    }

    /// Waits at most `timeout` for the end of [`Self::drain`], then drops the remaining lines. Returns
    /// their number, including the batch that is being written.
    pub(super) fn wait_drained(&self, timeout: Duration) -> u64 {
        let under_way = |state: &mut State| state.stage == Stage::Draining;
        let (mut state, _) = self
            .ended
            .wait_timeout_while(self.lock(), timeout, under_way)
            .unwrap_or_else(PoisonError::into_inner);
        if state.stage != Stage::Draining {
            return 0;
        }
        state.stage = Stage::Abandoned;
        self.drop_all(&mut state)
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.lock().stage == Stage::Abandoned
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn drop_all(&self, state: &mut State) -> u64 {
        let lines = mem::take(&mut state.lines);
        state.bytes = 0;
        state.entries.clear();
        self.lost.fetch_add(lines, Ordering::Relaxed);
        lines
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Creates an empty buffer for a full batch.
pub(super) fn new_buffer() -> Vec<u8> {
    Vec::with_capacity(BUFFER_BYTES)
}

/// Size at which a worker queues its batch.
pub(super) const BATCH_BYTES: usize = 64 * 1024;

/// Size of a batch and of a line that exceeds it.
const BUFFER_BYTES: usize = BATCH_BYTES + 16 * 1024;

const FREE_BUFFERS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn push(queue: &Queue, text: &str) -> bool {
        let mut buffer = new_buffer();
        buffer.extend_from_slice(text.as_bytes());
        let stalled = queue.push(&mut buffer, text.lines().count() as u64);
        assert!(buffer.is_empty());
        stalled
    }

    fn next_batch(queue: &Queue) -> Batch {
        match queue.next() {
            Some(Entry::Batch(batch)) => batch,
            _ => panic!("a batch is queued"),
        }
    }

    #[test]
    fn small_batches_are_joined_but_not_across_a_reopen() {
        let queue = Queue::new(1000);
        push(&queue, "a\n");
        push(&queue, "b\n");
        queue.push_reopen();
        queue.push_reopen();
        push(&queue, "c\n");
        let first = next_batch(&queue);
        assert_eq!((first.bytes.as_slice(), first.lines), (b"a\nb\n".as_slice(), 2));
        assert!(matches!(queue.next(), Some(Entry::Reopen)));
        assert_eq!(next_batch(&queue).bytes, b"c\n");
    }

    #[test]
    fn the_start_and_the_end_of_a_stall_are_reported_once() {
        let queue = Queue::new(4);
        assert!(!push(&queue, "a\nb\n"));
        assert!(push(&queue, "c\n"));
        assert!(!push(&queue, "d\ne\n"));
        assert_eq!(queue.lost(), 3);
        let batch = next_batch(&queue);
        assert_eq!(queue.finish(batch, None), Report::Recovered(3));
        assert!(!push(&queue, "f\n"));
        let batch = next_batch(&queue);
        assert_eq!(queue.finish(batch, Some(1)), Report::LossStarts);
        assert_eq!(queue.lost(), 4);
    }

    #[test]
    fn lines_that_are_not_written_in_time_are_dropped_at_close() {
        let queue = Queue::new(100);
        push(&queue, "a\nb\n");
        let under_way = next_batch(&queue);
        push(&queue, "c\n");
        queue.drain();
        assert_eq!(queue.wait_drained(Duration::from_millis(10)), 3);
        assert_eq!(queue.finish(under_way, Some(2)), Report::Nothing);
        assert!(queue.next().is_none());
        assert_eq!(queue.lost(), 3);
    }
}
