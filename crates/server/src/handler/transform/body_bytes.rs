//! Bodies as bytes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use dunlin_exchange::Body;
use dunlin_exchange::stream::{self, Broken};
use dunlin_fs::content::{ContentFile, Piece};
use dunlin_net::blocking::{Pools, Rejected};

/// Bytes that are read from a file or changed at once.
const CHUNK: u64 = 64 * 1024;

/// The bytes of a body, wherever they are.
pub(super) struct BodyBytes {
    body: Body,
    /// `None` at the end.
    stream: Option<stream::Receiver>,
    reading: Option<Pin<Box<Reading>>>,
}

/// A part of a file that is read.
type Reading = dyn Future<Output = Result<io::Result<Bytes>, Rejected>>;

impl std::fmt::Debug for BodyBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BodyBytes").field("body", &self.body).finish_non_exhaustive()
    }
}

impl BodyBytes {
    /// Returns the bytes of the pieces of a body, and those of a stream behind them.
    pub(super) fn new(body: Body, stream: Option<stream::Receiver>) -> Self {
        Self { body, stream, reading: None }
    }

    /// Returns the next bytes; `None` at the end. Files are read on the pool for them.
    pub(super) fn poll_next(
        &mut self,
        pools: &Arc<Pools>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, Broken>> {
        if self.reading.is_none() {
            let piece = self.body.take_part(CHUNK);
            match piece {
                Some(Piece::Memory(bytes)) => return Poll::Ready(Ok(Some(bytes))),
                Some(Piece::File(file, range)) => {
                    let pools = Arc::clone(pools);
                    self.reading = Some(Box::pin(async move {
                        let read = move || read(&file, range.start, range.end - range.start);
                        pools.files.run(read).await
                    }));
                }
                None => {
                    let Some(stream) = &mut self.stream else { return Poll::Ready(Ok(None)) };
                    let next = ready!(stream.poll_next(cx));
                    if !matches!(next, Ok(Some(_))) {
                        self.stream = None;
                    }
                    return Poll::Ready(next);
                }
            }
        }
        let Some(reading) = &mut self.reading else { return Poll::Ready(Ok(None)) };
        let read = ready!(reading.as_mut().poll(cx));
        self.reading = None;
        Poll::Ready(read.map_err(|_| Broken)?.map_err(|_| Broken).map(Some))
    }
}

fn read(file: &ContentFile, mut offset: u64, length: u64) -> io::Result<Bytes> {
    let mut buffer = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    let mut filled = 0;
    while filled < buffer.len() {
        match rustix::io::pread(file, &mut buffer[filled..], offset)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                filled += count;
                offset += count as u64;
            }
        }
    }
    if file.is_unchanged() { Ok(buffer.into()) } else { Err(io::Error::other("it has changed")) }
}
