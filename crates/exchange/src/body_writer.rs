//! The body of a response on its way to the client, for every version of HTTP: its source, its stated length, its pace, and
//! the bytes that wait. An adapter polls it, and frames and moves what it yields.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use dunlin_fs::content::{Broken, ContentFile, Piece};
use dunlin_http::FieldLines;
use dunlin_limits::bandwidth::Pacer;
use dunlin_net::blocking::Pool;

use crate::Body;
use crate::send::{Sent, Warming, read_ahead, report_change, warm};
use crate::stream_body::{Chunk, StreamBody};

/// A body that is sent.
pub struct BodyWriter {
    content: Content,
    /// Paces the body, if a bandwidth limit applies.
    pacer: Option<Pacer>,
}

enum Content {
    Pieces {
        body: Body,
        /// Reads the next bytes from disk into the page cache.
        warming: Option<Warming>,
    },
    Stream {
        body: StreamBody,
        /// The bytes to send next.
        chunk: Bytes,
        /// The trailer fields; `None` before the end.
        trailers: Option<FieldLines>,
    },
    /// The handler has ended the body early. The client must see that it is not complete.
    Broken,
}

/// The next part of a streamed body.
pub enum Part {
    /// Bytes.
    Data(Bytes),
    /// The body is complete; its trailer fields.
    End(FieldLines),
    /// The body stays incomplete.
    Broken,
}

/// The end of a body, once all its bytes were taken.
pub enum Ending<'a> {
    /// The body is complete; its trailer fields.
    Complete(&'a FieldLines),
    /// The body stays incomplete.
    Broken,
}

/// The result of filling a frame.
pub enum Filled {
    /// More of the body follows.
    More,
    /// The body is complete, and has no trailer fields.
    End,
    /// The file is not of the version that the head announced.
    Changed,
}

impl BodyWriter {
    /// Creates a body of pieces.
    pub fn pieces(body: Body, pacer: Option<Pacer>) -> Self {
        Self { content: Content::Pieces { body, warming: None }, pacer }
    }

    /// Creates a streamed body.
    pub fn stream(mut body: StreamBody, pacer: Option<Pacer>) -> Self {
        let (chunk, trailers) = (body.take_first(), body.is_complete().then(FieldLines::default));
        Self { content: Content::Stream { body, chunk, trailers }, pacer }
    }

    /// Polls the source of the body, and the bandwidth limit for the bytes that are next. Returns `true` if there is
    /// progress.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        let has_progress = self.content.poll(cx);
        self.poll_pacer(cx) | has_progress
    }

    /// Polls the bandwidth limit. Returns `true` if it allows bytes that it did not allow before.
    #[inline]
    pub fn poll_pacer(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(pacer) = &mut self.pacer else { return false };
        let wanted = self.content.length();
        pacer.allowance() == 0 && wanted > 0 && pacer.poll(cx, wanted).is_ready()
    }

    /// Returns `true` if the source is to be polled for the next bytes.
    #[inline]
    pub fn wants_bytes(&self) -> bool {
        matches!(&self.content, Content::Stream { chunk, trailers: None, .. } if chunk.is_empty())
    }

    /// Returns `true` if bytes of the body can be taken.
    #[inline]
    pub fn has_bytes(&self) -> bool {
        self.may_send() && self.content.has_bytes()
    }

    /// Returns `true` if the bandwidth limit allows to send now.
    #[inline]
    pub fn may_send(&self) -> bool {
        self.pacer.as_ref().is_none_or(|pacer| pacer.allowance() > 0)
    }

    /// Returns `true` if the body waits for its slot of the bandwidth limit.
    #[inline]
    pub fn is_paced(&self) -> bool {
        self.pacer.as_ref().is_some_and(Pacer::is_waiting)
    }

    /// Returns the end of the body if all its bytes were taken.
    #[inline]
    pub fn ending(&self) -> Option<Ending<'_>> {
        match &self.content {
            Content::Stream { chunk, trailers: Some(trailers), .. } if chunk.is_empty() => {
                Some(Ending::Complete(trailers))
            }
            Content::Broken => Some(Ending::Broken),
            Content::Pieces { .. } | Content::Stream { .. } => None,
        }
    }

    /// Returns the next part of a streamed body, of at most `max` bytes. For a body of pieces use [`Self::poll_pieces`].
    pub fn poll_part(&mut self, cx: &mut Context<'_>, max: usize) -> Poll<Part> {
        self.poll(cx);
        let allowed = self.allowed(max);
        match &mut self.content {
            Content::Stream { chunk, .. } if !chunk.is_empty() => {
                if allowed == 0 {
                    return Poll::Pending;
                }
                let part = chunk.split_to(chunk.len().min(allowed));
                self.spend(part.len());
                Poll::Ready(Part::Data(part))
            }
            Content::Stream { trailers: Some(trailers), .. } => {
                Poll::Ready(Part::End(std::mem::take(trailers)))
            }
            Content::Broken => Poll::Ready(Part::Broken),
            Content::Stream { .. } | Content::Pieces { .. } => Poll::Pending,
        }
    }

    /// Returns the next pieces that the bandwidth limit allows.
    pub fn poll_pieces(&mut self, cx: &mut Context<'_>) -> Poll<Body> {
        self.poll_pacer(cx);
        let allowed = self.allowed(usize::MAX);
        let Content::Pieces { body, .. } = &mut self.content else { return Poll::Pending };
        if allowed == 0 {
            return Poll::Pending;
        }
        let part = body.split_to(allowed as u64);
        self.spend(part.length() as usize);
        Poll::Ready(part)
    }

    /// Returns `true` if no piece is left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.content.length() == 0
    }

    /// Appends up to `room` bytes of the body to `out`. `pool` reads from disk what is not in memory.
    pub fn fill(&mut self, pool: &Pool, room: usize, out: &mut Vec<u8>) -> Filled {
        let (room, before) = (self.allowed(room), out.len());
        let filled = match &mut self.content {
            Content::Pieces { body, warming } => {
                let (filled, cold) = fill_from(body, room, out);
                if let Some((file, offset, length)) = cold {
                    *warming = Some(warm(pool, &file, offset, length));
                }
                filled
            }
            Content::Stream { chunk, trailers, .. } => {
                let bytes = chunk.split_to(chunk.len().min(room));
                out.extend_from_slice(&bytes);
                match chunk.is_empty() && trailers.as_ref().is_some_and(FieldLines::is_empty) {
                    true => Filled::End,
                    false => Filled::More,
                }
            }
            Content::Broken => Filled::More,
        };
        self.spend(out.len() - before);
        filled
    }

    /// Takes up to `room` bytes of the body without a copy, if they are in memory and not few.
    pub fn take_slice(&mut self, room: usize) -> Option<(Bytes, Filled)> {
        let room = self.allowed(room);
        let (slice, has_ended) = match &mut self.content {
            Content::Pieces { body, .. } => {
                let slice = body.take_slice(SLICE, room)?;
                (slice, body.is_empty())
            }
            Content::Stream { chunk, trailers, .. } if chunk.len().min(room) >= SLICE => {
                let slice = chunk.split_to(chunk.len().min(room));
                let is_last = trailers.as_ref().is_some_and(FieldLines::is_empty);
                (slice, chunk.is_empty() && is_last)
            }
            Content::Stream { .. } | Content::Broken => return None,
        };
        self.spend(slice.len());
        Some((slice, if has_ended { Filled::End } else { Filled::More }))
    }

    /// Returns the bytes in memory that wait.
    #[inline]
    pub fn held(&self) -> usize {
        match &self.content {
            Content::Stream { chunk, .. } => chunk.len(),
            Content::Pieces { body, .. } => body.held(),
            Content::Broken => 0,
        }
    }

    /// Returns how many of `max` bytes the bandwidth limit allows now.
    #[inline]
    fn allowed(&self, max: usize) -> usize {
        self.pacer
            .as_ref()
            .map_or(max, |pacer| max.min(usize::try_from(pacer.allowance()).unwrap_or(usize::MAX)))
    }

    /// Accounts for bytes that were taken.
    #[inline]
    fn spend(&mut self, bytes: usize) {
        if let Some(pacer) = &mut self.pacer {
            pacer.spend(bytes as u64);
        }
    }
}

impl Content {
    fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        match self {
            Self::Pieces { warming, .. } => {
                let Some(task) = warming else { return false };
                if task.as_mut().poll(cx).is_pending() {
                    return false;
                }
                *warming = None;
            }
            Self::Stream { body, chunk, trailers: trailers @ None } if chunk.is_empty() => {
                match body.poll_chunk(cx) {
                    Poll::Pending => return false,
                    Poll::Ready(Chunk::Data(bytes)) => {
                        *chunk = bytes;
                        *trailers = body.is_complete().then(FieldLines::default);
                    }
                    Poll::Ready(Chunk::End(fields)) => *trailers = Some(fields),
                    Poll::Ready(Chunk::Broken) => *self = Self::Broken,
                }
            }
            Self::Stream { .. } | Self::Broken => return false,
        }
        true
    }

    /// Returns the number of bytes that can be taken without polling the source.
    fn length(&self) -> u64 {
        match self {
            Self::Pieces { body, warming: None } => body.length(),
            Self::Stream { chunk, .. } => chunk.len() as u64,
            Self::Pieces { .. } | Self::Broken => 0,
        }
    }

    #[inline]
    fn has_bytes(&self) -> bool {
        match self {
            Self::Pieces { warming, .. } => warming.is_none(),
            Self::Stream { chunk, .. } => !chunk.is_empty(),
            Self::Broken => false,
        }
    }
}

/// Length from which a slice of memory is cheaper than a copy, since a slice becomes a record of its own.
const SLICE: usize = 8 * 1024;

type ColdRange = (Arc<ContentFile>, u64, u64);

/// Bytes of a cold file that are read at a time.
const WARM_CHUNK: u64 = 256 << 10;

/// Appends up to `room` bytes of pieces. Returns the range that is not in the page cache, if the next bytes are there.
fn fill_from(body: &mut Body, room: usize, out: &mut Vec<u8>) -> (Filled, Option<ColdRange>) {
    let end = out.len() + room;
    while out.len() < end {
        let room = end - out.len();
        match body.first_mut() {
            None => return (Filled::End, None),
            Some(Piece::Memory(bytes)) => {
                let taken = bytes.split_to(bytes.len().min(room));
                out.extend_from_slice(&taken);
                if bytes.is_empty() {
                    body.drop_first();
                }
            }
            Some(Piece::File(file, range)) => {
                let (before, wanted) = (out.len(), (range.end - range.start).min(room as u64));
                out.resize(before + wanted as usize, 0);
                let read = read_ahead(file, range, &mut out[before..]);
                out.truncate(before + read.as_ref().map_or(0, |read| *read.as_ref().unwrap_or(&0)));
                match read {
                    Ok(Ok(_)) => {}
                    Ok(Err(Sent::Cold { offset, .. })) => {
                        let length = (range.end - offset).min(WARM_CHUNK);
                        return (Filled::More, Some((Arc::clone(file), offset, length)));
                    }
                    Ok(Err(_)) => return (Filled::Changed, None),
                    Err(_) => {
                        report_change(file, Broken::Unreadable);
                        return (Filled::Changed, None);
                    }
                }
                if range.start == range.end {
                    body.drop_first();
                }
            }
        }
    }
    let filled = if body.is_empty() { Filled::End } else { Filled::More };
    (filled, None)
}
