//! Moving the bytes of streams, as all adapters do.

use bytes::Bytes;
use quinn_proto::{Dir, ReadError, StreamId, WriteError};

use crate::connection::Connection;

/// The end of one read of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadEnd {
    /// More may arrive.
    Open,
    /// There may be more than the caller has requested.
    Paused,
    /// The peer has ended the stream.
    Ended,
    /// The peer has reset the stream, with this code.
    Reset(u64),
}

/// The priority of a connection's own streams, above that of all others.
const OWN: i32 = 100;

impl Connection {
    /// Takes what has arrived on a stream: at most about `bytes`, and at most `count` parts. The credit that it gives the peer is sent
    /// with the next datagrams.
    pub fn read(
        &self,
        id: StreamId,
        mut bytes: usize,
        count: usize,
        parts: &mut Vec<Bytes>,
    ) -> ReadEnd {
        let mut state = self.state();
        let mut stream = state.recv_stream(id);
        let Ok(mut chunks) = stream.read(true) else { return ReadEnd::Open };
        let end = loop {
            if bytes == 0 || parts.len() >= count {
                break ReadEnd::Paused;
            }
            match chunks.next(bytes) {
                Ok(Some(chunk)) => {
                    bytes -= chunk.bytes.len().min(bytes);
                    parts.push(chunk.bytes);
                }
                Ok(None) => break ReadEnd::Ended,
                Err(ReadError::Blocked) => break ReadEnd::Open,
                Err(ReadError::Reset(code)) => break ReadEnd::Reset(code.into_inner()),
            }
        };
        let _ = chunks.finalize();
        end
    }

    /// Takes all that has arrived on a stream. With the end of the stream, there is at least one part, which may be empty.
    pub fn read_all(&self, id: StreamId) -> (Vec<Bytes>, ReadEnd) {
        let mut parts = Vec::new();
        let end = self.read(id, usize::MAX, usize::MAX, &mut parts);
        if end == ReadEnd::Ended && parts.is_empty() {
            parts.push(Bytes::new());
        }
        (parts, end)
    }

    /// Writes bytes of a stream. Returns how many were taken. A stream that the peer has stopped takes all, which are of no use.
    pub fn write(&self, id: StreamId, bytes: &[u8]) -> usize {
        let mut state = self.state();
        let mut stream = state.send_stream(id);
        let mut at = 0;
        while at < bytes.len() {
            match stream.write(&bytes[at..]) {
                Ok(count) => at += count,
                Err(WriteError::Blocked) => break,
                Err(_) => return bytes.len(),
            }
        }
        at
    }

    /// Writes bytes of a unidirectional stream that is sent before all others, and opens it with the first of them. Returns how many
    /// were taken, which is none while the peer permits no stream.
    pub fn write_own(&self, stream: &mut Option<StreamId>, bytes: &[u8]) -> usize {
        let mut state = self.state();
        if stream.is_none() {
            *stream = state.streams().open(Dir::Uni);
            if let Some(stream) = *stream {
                let _ = state.send_stream(stream).set_priority(OWN);
            }
        }
        let Some(stream) = *stream else { return 0 };
        state.send_stream(stream).write(bytes).unwrap_or_default()
    }

    /// Sends a unidirectional stream with these bytes, which ends at once, in the datagram of what the own streams have to send. When
    /// the peer has it, it has that, too. Returns `None` while the peer permits no stream.
    pub fn send_marker(&self, bytes: &[u8]) -> Option<StreamId> {
        let mut marker = None;
        self.write_own(&mut marker, bytes);
        // A stream that has just been opened can end.
        let _ = self.state().send_stream(marker?).finish();
        marker
    }
}
