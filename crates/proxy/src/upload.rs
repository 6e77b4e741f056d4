//! The body of a request, on its way from the client to the upstream.

use std::io;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use dunlin_client::Body;
use dunlin_exchange::{Incoming, stream};
use dunlin_http::chunk_queue::Place;
use dunlin_http::{BodyLength, BodySize, ChunkQueue, FieldLines};

use crate::failure::{Failure, Kind};
use crate::group::Group;
use crate::memory::Reservation;
use crate::trailers::Trailers;

/// The body of a request.
#[derive(Debug)]
pub(crate) enum Upload {
    /// In memory as a whole, so that it can be sent again.
    Whole {
        bytes: Bytes,
        is_taken: bool,
        /// `None` for a small one.
        _memory: Option<Reservation>,
    },
    Stream {
        /// The bytes that were received before the request took an upstream, with their memory.
        start: Option<(Bytes, Reservation)>,
        source: stream::Receiver,
        size: BodySize,
        is_begun: bool,
        /// The bytes that were sent, so that they can be sent again; `None` if that is too much, or no longer needed.
        kept: Option<Kept>,
        /// The rules for trailer fields; `None` if the length is stated, so that there can be none.
        trailers: Option<Box<Trailers>>,
    },
}

/// The start of a body that was sent.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    chunks: ChunkQueue,
    /// The part that was sent since the last start.
    sent: Place,
    /// It is sent for the last time.
    is_last: bool,
}

/// Bytes of a streamed body that are kept until there is a response.
const KEPT: usize = 64 * 1024;

/// A body of at most this stated length is received before the request takes an upstream: a slow client does not hold
/// one, and the request can be sent again.
const WHOLE: u64 = 64 * 1024;

impl Upload {
    /// Takes the body of a request. Receives it first if it is small, unless the client waits for a 100 response, which is
    /// the upstream's to send; a larger one if the group collects it. `trailers` is for one without a stated length.
    ///
    /// # Errors
    /// If the client does not send all of it.
    pub(crate) async fn begin(
        incoming: &mut Incoming,
        expects_continue: bool,
        group: &Group,
        trailers: impl FnOnce() -> Trailers,
    ) -> Result<Self, Failure> {
        let source = std::mem::replace(&mut incoming.body, stream::empty());
        if let Some(body) = &group.rules.body {
            return Ok(Self::whole(Bytes::copy_from_slice(body.as_bytes()), None));
        }
        let configured = group.rules.buffer.request;
        let small = configured.unwrap_or(WHOLE).min(WHOLE);
        let (length, size) = match incoming.length {
            BodyLength::None | BodyLength::Known(0) => return Ok(Self::none()),
            BodyLength::Known(length) => (Some(length), BodySize::Known(length)),
            BodyLength::Chunked => (None, BodySize::Unknown),
        };
        if let Some(length) = length.filter(|length| *length <= small && !expects_continue) {
            let all = receive(source, length as usize).await?;
            return Ok(Self::whole(all, None));
        }
        let trailers = (size == BodySize::Unknown).then(|| Box::new(trailers()));
        let room = configured.filter(|limit| length.is_none_or(|length| length <= *limit));
        let room = room.map(|limit| length.unwrap_or(limit)).filter(|room| *room > 0);
        match room.and_then(|room| Some((room, group.memory.reserve(room)?))) {
            Some((room, memory)) => {
                Box::pin(Self::collect(source, size, room, memory, trailers)).await
            }
            None => Ok(Self::stream(None, source, size, trailers)),
        }
    }

    /// Returns what the client of a tunnel sends.
    pub(crate) fn tunnel(source: stream::Receiver) -> Self {
        let size = BodySize::Unknown;
        Self::Stream { start: None, source, size, is_begun: false, kept: None, trailers: None }
    }

    fn stream(
        start: Option<(Bytes, Reservation)>,
        source: stream::Receiver,
        size: BodySize,
        trailers: Option<Box<Trailers>>,
    ) -> Self {
        let kept = start.is_none().then(Kept::default);
        Self::Stream { start, source, size, is_begun: false, kept, trailers }
    }

    /// No body.
    pub(crate) fn none() -> Self {
        Self::whole(Bytes::new(), None)
    }

    fn whole(bytes: Bytes, memory: Option<Reservation>) -> Self {
        Self::Whole { bytes, is_taken: false, _memory: memory }
    }

    /// Receives the body until its end, or until `room` bytes have arrived.
    async fn collect(
        mut source: stream::Receiver,
        size: BodySize,
        room: u64,
        memory: Reservation,
        mut trailers: Option<Box<Trailers>>,
    ) -> Result<Self, Failure> {
        let mut start = BytesMut::new();
        while let Some(bytes) = source.next().await.map_err(incomplete)? {
            start.extend_from_slice(&bytes);
            if size == BodySize::Unknown && start.len() as u64 >= room {
                let start = Some((start.freeze(), memory));
                return Ok(Self::stream(start, source, size, trailers));
            }
        }
        if let Some(kept) = &mut trailers
            && kept.receive(&mut source)
        {
            // It stays a body without a stated length, as no other can have them.
            let start = Some((start.freeze(), memory));
            return Ok(Self::stream(start, source, size, trailers));
        }
        Ok(Self::whole(start.freeze(), Some(memory)))
    }

    /// Returns `true` if it is what the client of a tunnel sends, or another body of unknown length.
    pub(crate) fn is_tunnel(&self) -> bool {
        matches!(self, Self::Stream { size: BodySize::Unknown, .. })
    }

    /// Returns `true` if the body can be sent again.
    pub(crate) fn can_restart(&self) -> bool {
        match self {
            Self::Whole { .. } => true,
            Self::Stream { is_begun, kept, .. } => !is_begun || kept.is_some(),
        }
    }
}

impl Kept {
    /// Returns the next bytes that are to be sent again.
    fn next(&mut self) -> Option<Bytes> {
        self.chunks.read(&mut self.sent)
    }

    /// Keeps bytes that are sent now. Returns `false` if there are too many.
    fn add(&mut self, bytes: &Bytes) -> bool {
        if self.chunks.len() + bytes.len() > KEPT {
            return false;
        }
        self.chunks.push(bytes.clone());
        self.sent = self.chunks.end();
        true
    }
}

/// Receives a body of this stated length.
async fn receive(mut source: stream::Receiver, length: usize) -> Result<Bytes, Failure> {
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(bytes) = source.next().await.map_err(incomplete)? {
        // A body of one piece is not copied.
        if first.is_empty() && all.is_empty() {
            first = bytes;
            continue;
        }
        if all.is_empty() {
            all.reserve(length);
            all.extend_from_slice(&std::mem::take(&mut first));
        }
        all.extend_from_slice(&bytes);
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}

fn incomplete(_: stream::Broken) -> Failure {
    Failure::new(Kind::Client, "the body of the request is incomplete")
}

impl Body for Upload {
    fn size(&self) -> BodySize {
        match self {
            Self::Whole { bytes, .. } if bytes.is_empty() => BodySize::Empty,
            Self::Whole { bytes, .. } => BodySize::Known(bytes.len() as u64),
            Self::Stream { size, .. } => *size,
        }
    }

    fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        match self {
            Self::Whole { bytes, is_taken, .. } => {
                let is_over = std::mem::replace(is_taken, true) || bytes.is_empty();
                Poll::Ready((!is_over).then(|| Ok(bytes.clone())))
            }
            Self::Stream { start, source, is_begun, kept, .. } => {
                if let Some((start, _)) = start.take() {
                    *is_begun = true;
                    return Poll::Ready(Some(Ok(start)));
                }
                if let Some(again) = kept.as_mut().and_then(Kept::next) {
                    return Poll::Ready(Some(Ok(again)));
                }
                kept.take_if(|kept| kept.is_last);
                source.poll_next(context).map(|next| {
                    *is_begun = true;
                    if let Ok(Some(bytes)) = &next {
                        kept.take_if(|kept| !kept.add(bytes));
                    }
                    next.map_err(|stream::Broken| io::Error::other("the client has left"))
                        .transpose()
                })
            }
        }
    }

    fn trailers(&mut self) -> FieldLines {
        match self {
            Self::Stream { source, trailers: Some(trailers), .. } => {
                trailers.receive(source);
                trailers.fields()
            }
            _ => FieldLines::default(),
        }
    }

    fn settle(&mut self) {
        if let Self::Stream { kept: Some(kept), .. } = self {
            kept.is_last = true;
        }
    }

    fn restart(&mut self) -> bool {
        match self {
            Self::Whole { is_taken, .. } => *is_taken = false,
            Self::Stream { kept: Some(kept), .. } => kept.sent = Place::default(),
            Self::Stream { .. } => {}
        }
        self.can_restart()
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    /// Returns a streamed body, and what the client sends of it.
    fn streamed() -> (stream::Sender, Upload) {
        let (sender, source) = stream::channel(usize::MAX);
        (sender, Upload::stream(None, source, BodySize::Unknown, None))
    }

    /// Returns what can be sent now.
    fn sent(body: &mut Upload) -> Vec<u8> {
        let mut all = Vec::new();
        while let Poll::Ready(Some(Ok(bytes))) =
            body.poll_chunk(&mut Context::from_waker(Waker::noop()))
        {
            all.extend_from_slice(&bytes);
        }
        all
    }

    #[test]
    fn the_start_of_a_streamed_body_is_sent_again() {
        let (sender, mut body) = streamed();
        sender.push(Bytes::from_static(b"a"));
        assert_eq!(sent(&mut body), b"a");
        sender.push(Bytes::from_static(b"b"));
        assert!(body.restart());
        assert_eq!(sent(&mut body), b"ab");
        assert!(body.restart());
        // The response begins before all of it was sent again.
        body.settle();
        sender.push(Bytes::from_static(b"c"));
        assert_eq!(sent(&mut body), b"abc");
        assert!(!body.restart());
    }

    #[test]
    fn a_body_of_which_much_was_sent_cannot_be_sent_again() {
        let (sender, mut body) = streamed();
        sender.push(Bytes::from(vec![b'x'; KEPT]));
        assert_eq!(sent(&mut body).len(), KEPT);
        assert!(body.can_restart());
        sender.push(Bytes::from_static(b"x"));
        assert_eq!(sent(&mut body).len(), 1);
        assert!(!body.restart());
    }
}
