//! The requests of a server's connection.

use super::reader::MessageReader;
use crate::{FieldLines, Priority};

/// A request whose response is not complete, or which is not complete itself.
#[derive(Debug, Default)]
pub(super) struct RequestStream {
    pub(super) reader: MessageReader,
    /// A section that waits for entries of the QPACK table.
    pub(super) blocked: Option<Box<[u8]>>,
    /// The trailer fields of the request, once they have arrived.
    pub(super) trailers: Option<Box<FieldLines>>,
    /// Bytes of the request body still to arrive, if the request states its length.
    pub(super) left: Option<u64>,
    /// Bytes of the request that were discarded after the end of the response.
    pub(super) discarded: usize,
    /// The head of the request has arrived.
    pub(super) has_head: bool,
    /// The client has ended its side.
    pub(super) has_ended: bool,
    /// The final response head was written.
    pub(super) has_response_head: bool,
    /// The response is complete. The rest of the request body is discarded.
    pub(super) is_finished: bool,
    /// The caller has body bytes to send.
    pub(super) is_ready: bool,
    /// The transport takes no bytes of the stream now.
    pub(super) is_blocked: bool,
    pub(super) priority: Priority,
    /// Sequence number of the last DATA frame, by which incremental streams take turns.
    pub(super) last_sent: u64,
}

impl RequestStream {
    /// Returns the bytes that the stream holds of what the client has sent.
    pub(super) fn held(&self) -> usize {
        self.reader.held() + self.blocked.as_ref().map_or(0, |section| section.len())
    }
}

/// The open streams. Linear search in the identifiers is fastest, since there are few.
#[derive(Debug, Default)]
pub(super) struct RequestStreams {
    ids: Vec<u64>,
    list: Vec<RequestStream>,
}

impl RequestStreams {
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn add(&mut self, id: u64, stream: RequestStream) {
        self.ids.push(id);
        self.list.push(stream);
    }

    /// Returns the stream with that identifier. Searches from the newest, which is used most.
    #[inline]
    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut RequestStream> {
        let number = self.position(id)?;
        self.list.get_mut(number)
    }

    #[inline]
    pub(super) fn get(&self, id: u64) -> Option<&RequestStream> {
        self.list.get(self.position(id)?)
    }

    #[inline]
    fn position(&self, id: u64) -> Option<usize> {
        self.ids.iter().rposition(|other| *other == id)
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<RequestStream> {
        let number = self.position(id)?;
        self.ids.swap_remove(number);
        Some(self.list.swap_remove(number))
    }

    /// Releases unused capacity.
    pub(super) fn shrink(&mut self) {
        self.ids.shrink_to_fit();
        self.list.shrink_to_fit();
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &RequestStream> {
        self.list.iter()
    }

    /// Returns the stream to send on next by [`Priority::order`].
    pub(super) fn next_to_send(&self) -> Option<u64> {
        let streams = self.ids.iter().zip(&self.list);
        let ready = streams.filter(|(_, stream)| stream.is_ready && !stream.is_blocked);
        let next = ready.min_by_key(|(id, stream)| stream.priority.order(stream.last_sent, **id));
        next.map(|(id, _)| *id)
    }
}
