//! The open streams of a connection (RFC 9113 §5.1).

use crate::Priority;

/// State of a stream.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: u32,
    /// Send window in bytes. Negative after the client has reduced the initial window (RFC 9113 §6.9.2).
    pub(super) send: i64,
    /// Receive window: bytes that the client may still send.
    pub(super) receive: i64,
    /// Size of the receive window when empty. It grows while the handler keeps up.
    pub(super) window: u32,
    /// Bytes that the handler consumed and that no WINDOW_UPDATE has returned yet.
    pub(super) taken: u32,
    /// Bytes of the request body still to arrive, if the request states its length.
    pub(super) left: Option<u64>,
    /// The client has not ended its side.
    pub(super) is_open: bool,
    /// The final response head was written.
    pub(super) has_response_head: bool,
    /// The response is complete. The rest of the request body is discarded rather than reset, so that a client
    /// that sends its whole request before it reads the response is not disturbed.
    pub(super) is_finished: bool,
    /// The caller has body bytes to send.
    pub(super) is_ready: bool,
    pub(super) priority: Priority,
    /// Sequence number of the last DATA frame, by which incremental streams take turns.
    pub(super) last_sent: u64,
}

/// The open streams. Linear search is fastest, since there are few.
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

    /// Returns the stream with that identifier. Searches from the newest, which is used most.
    #[inline]
    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Stream> {
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

    /// Releases unused capacity.
    pub(super) fn shrink(&mut self) {
        self.list.shrink_to_fit();
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.list.iter_mut()
    }

    /// Returns `true` if all responses are complete.
    pub(super) fn are_all_finished(&self) -> bool {
        self.list.iter().all(|stream| stream.is_finished)
    }

    /// Returns the stream with that identifier.
    pub(super) fn get(&self, id: u32) -> Option<&Stream> {
        self.position(id).and_then(|number| self.list.get(number))
    }

    /// Returns the stream to send on next by [`Priority::order`].
    pub(super) fn next_to_send(&self) -> Option<u32> {
        let ready = self.list.iter().filter(|stream| stream.is_ready && stream.send > 0);
        let order = |stream: &&Stream| stream.priority.order(stream.last_sent, stream.id.into());
        ready.min_by_key(order).map(|stream| stream.id)
    }
}
