//! The body of a request, on its way from the client to the upstream.

use std::io;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use dunlin_client::Body;
use dunlin_exchange::{Incoming, stream};
use dunlin_http::{BodyLength, BodySize};

use crate::failure::{Failure, Kind};

/// The body of a request.
#[derive(Debug)]
pub(crate) enum Upload {
    /// In memory as a whole, so that it can be sent again.
    Whole {
        bytes: Bytes,
        is_taken: bool,
    },
    Stream {
        source: stream::Receiver,
        size: BodySize,
        is_begun: bool,
    },
}

/// A body of at most this stated length is received before the request takes an upstream: a slow client does not hold
/// one, and the request can be sent again.
const WHOLE: u64 = 64 * 1024;

impl Upload {
    /// Takes the body of a request. Receives it first if it is small, unless the client waits for a 100 response, which is
    /// the upstream's to send.
    ///
    /// # Errors
    /// If the client does not send all of it.
    pub(crate) async fn begin(
        incoming: &mut Incoming,
        expects_continue: bool,
    ) -> Result<Self, Failure> {
        let source = std::mem::replace(&mut incoming.body, stream::empty());
        let size = match incoming.length {
            BodyLength::None => return Ok(Self::whole(Bytes::new())),
            BodyLength::Known(length) if length <= WHOLE && !expects_continue => {
                return receive(source, length as usize).await.map(Self::whole);
            }
            BodyLength::Known(length) => BodySize::Known(length),
            BodyLength::Chunked => BodySize::Unknown,
        };
        Ok(Self::Stream { source, size, is_begun: false })
    }

    fn whole(bytes: Bytes) -> Self {
        Self::Whole { bytes, is_taken: false }
    }

    /// Whether the body can be sent again.
    pub(crate) fn can_restart(&self) -> bool {
        match self {
            Self::Whole { .. } => true,
            Self::Stream { is_begun, .. } => !is_begun,
        }
    }
}

/// Receives a body of this stated length.
async fn receive(mut source: stream::Receiver, length: usize) -> Result<Bytes, Failure> {
    let incomplete = |_| Failure::new(Kind::Client, "the body of the request is incomplete");
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
            Self::Whole { bytes, is_taken } => {
                let is_over = std::mem::replace(is_taken, true) || bytes.is_empty();
                Poll::Ready((!is_over).then(|| Ok(bytes.clone())))
            }
            Self::Stream { source, is_begun, .. } => source.poll_next(context).map(|next| {
                *is_begun = true;
                next.map_err(|stream::Broken| io::Error::other("the client has left")).transpose()
            }),
        }
    }

    fn restart(&mut self) -> bool {
        if let Self::Whole { is_taken, .. } = self {
            *is_taken = false;
        }
        self.can_restart()
    }
}
