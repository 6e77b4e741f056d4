//! The streams of a connection that are not closed (RFC 9113 §5.1).

use super::priority::Priority;

/// One stream.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: u32,
    /// Bytes that the client lets be sent; below 0 when it has taken back what was used already
    /// (RFC 9113 §6.9.2).
    pub(super) send: i64,
    /// Bytes that the client may still send.
    pub(super) receive: i64,
    /// What `receive` was at the most: it grows as the handler keeps up.
    pub(super) window: u32,
    /// Bytes that the handler took and that were not given back to `receive`.
    pub(super) taken: u32,
    /// Bytes of the request's body that have not come, when its length was stated.
    pub(super) left: Option<u64>,
    /// The client may go on to send.
    pub(super) is_open: bool,
    /// The head of the response was sent.
    pub(super) is_answered: bool,
    /// The response was sent to its end. What the client still sends is read without a use, so that
    /// a client that sends its request before it looks at the answer is not disturbed.
    pub(super) is_finished: bool,
    /// The driver has bytes to send.
    pub(super) is_ready: bool,
    pub(super) priority: Priority,
    /// When it was last served, among streams that share the connection.
    pub(super) turn: u64,
}

/// The streams. There are few: looking through them costs less than any other way to find one.
#[derive(Debug, Default)]
pub(super) struct Streams {
    list: Vec<Stream>,
}

impl Streams {
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn add(&mut self, stream: Stream) {
        self.list.push(stream);
    }

    /// The stream of that number. The newest is asked for most.
    #[inline]
    pub(super) fn get(&mut self, id: u32) -> Option<&mut Stream> {
        let number = self.position(id)?;
        self.list.get_mut(number)
    }

    #[inline]
    fn position(&self, id: u32) -> Option<usize> {
        self.list.iter().rposition(|stream| stream.id == id)
    }

    pub(super) fn remove(&mut self, id: u32) -> Option<Stream> {
        let number = self.position(id)?;
        let stream = self.list.swap_remove(number);
        if self.list.is_empty() && self.list.capacity() > 8 {
            self.list = Vec::new();
        }
        Some(stream)
    }

    /// Lets go of the room for streams, of which there are none.
    pub(super) fn rest(&mut self) {
        self.list.shrink_to_fit();
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.list.iter_mut()
    }

    /// Whether every response was sent to its end.
    pub(super) fn are_all_finished(&self) -> bool {
        self.list.iter().all(|stream| stream.is_finished)
    }

    /// The stream of that number, to look at.
    pub(super) fn look(&self, id: u32) -> Option<&Stream> {
        self.position(id).and_then(|number| self.list.get(number))
    }

    /// The stream that is served next (RFC 9218 §10): the most urgent; among equals one after the
    /// other in the order of the requests, and those that are of use in parts in turns.
    pub(super) fn next_to_send(&self) -> Option<u32> {
        let ready = self.list.iter().filter(|stream| stream.is_ready && stream.send > 0);
        let order = |stream: &&Stream| {
            let Priority { urgency, incremental } = stream.priority;
            (urgency, incremental, if incremental { stream.turn } else { 0 }, stream.id)
        };
        ready.min_by_key(order).map(|stream| stream.id)
    }
}
