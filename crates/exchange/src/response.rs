//! Responses of handlers.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_fs::content::Piece;
use dunlin_http::FieldLines;

use crate::stream;

/// A response: head and body.
#[derive(Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// All fields except Date, Connection, Server and Content-Length.
    pub fields: FieldLines,
    /// The fields have a Date: the response was generated earlier (RFC 9110 §6.6.1).
    pub has_date: bool,
    /// The body.
    pub body: Body,
    /// The Content-Length if it differs from the length of the body: for HEAD and 304.
    pub stated_length: Option<u64>,
    /// Cache status for the log: "hit", "miss", "off" or "-".
    pub cache: &'static str,
    /// Content coding for the log, or "-".
    pub coding: &'static str,
    /// The content has the coding that it is sent with: the file handler has chosen it.
    pub is_coding_final: bool,
    /// The body is sent again and again: it is of a cache or of the configuration.
    pub is_kept: bool,
    /// It is a default error page of the server.
    pub is_error: bool,
    /// It is that of another resource, which a script or an upstream has named for this request alone.
    pub is_named: bool,
    /// Its body has passed the changes of the route that it comes from, and none of other routes apply.
    pub is_changed: bool,
    /// With status 101 to a request of HTTP/1.1: takes the bytes that the client sends by the other protocol. The body has
    /// those for the client. The response to an extended CONNECT has status 101, too, which the adapter sends as 200.
    pub upgrade: Option<stream::Sender>,
    /// Nothing is sent: the connection is closed, or the stream reset. The status is that of the access record.
    pub is_withheld: bool,
}

/// A body: a sequence of pieces, or a stream.
#[derive(Debug, Default)]
pub struct Body {
    pieces: VecDeque<Piece>,
    stream: Option<Box<Stream>>,
}

/// A body that is produced while it is sent.
#[derive(Debug)]
pub struct Stream {
    /// The bytes.
    pub source: stream::Receiver,
    /// Total length in bytes, if known.
    pub length: Option<u64>,
    /// The kind of the stream.
    pub kind: StreamKind,
}

/// The content of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamKind {
    /// The body of a response.
    Body,
    /// An endless body: the client ends it.
    Endless,
    /// The whole message including the head; the connection closes at its end.
    Message,
}

impl Response {
    /// Creates a response without fields and body.
    #[inline]
    pub fn new(status: u16) -> Self {
        Self {
            status,
            fields: FieldLines::new(),
            has_date: false,
            body: Body::default(),
            stated_length: None,
            cache: "-",
            coding: "-",
            is_coding_final: false,
            is_kept: false,
            is_error: false,
            is_named: false,
            is_changed: false,
            upgrade: None,
            is_withheld: false,
        }
    }

    /// Creates what ends a request without a response.
    pub fn withheld(status: u16) -> Self {
        Self { is_withheld: true, ..Self::new(status) }
    }

    /// Creates a response with a text body.
    pub fn with_text(status: u16, media_type: &str, text: impl Into<Bytes>) -> Self {
        let mut response = Self::new(status);
        response.fields.push("Content-Type", media_type);
        response.body.push(Piece::Memory(text.into()));
        response
    }

    /// Drops the body but keeps its Content-Length, for HEAD.
    #[inline]
    pub fn without_body(mut self) -> Self {
        self.stated_length = self.stated_length.or(Some(self.body.length()));
        self.body = Body::default();
        self
    }
}

impl Body {
    /// Appends a piece, unless it is empty.
    #[inline]
    pub fn push(&mut self, piece: Piece) {
        if piece.length() > 0 {
            self.pieces.push_back(piece);
        }
    }

    /// Creates a body of pieces, none of which is empty.
    #[inline]
    pub fn of(pieces: VecDeque<Piece>) -> Self {
        Self { pieces, stream: None }
    }

    /// Returns the pieces of a body that is not streamed.
    pub fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.pieces.iter()
    }

    /// Returns the pieces of a body that is not streamed.
    pub fn into_pieces(self) -> VecDeque<Piece> {
        self.pieces
    }

    /// Returns a body that is produced while it is sent.
    #[inline]
    pub fn streamed(stream: Stream) -> Self {
        Self { pieces: VecDeque::new(), stream: Some(Box::new(stream)) }
    }

    /// Takes the stream, if the body is one.
    #[inline]
    pub fn take_stream(&mut self) -> Option<Box<Stream>> {
        self.stream.take()
    }

    /// Returns `true` if the body is produced while it is sent.
    #[inline]
    pub fn is_stream(&self) -> bool {
        self.stream.is_some()
    }

    /// Returns what the stream has, if the body is one.
    pub fn stream_kind(&self) -> Option<StreamKind> {
        self.stream.as_ref().map(|stream| stream.kind)
    }

    /// Total length in bytes, if it is known.
    pub fn known_length(&self) -> Option<u64> {
        self.stream.as_ref().map_or_else(|| Some(self.length()), |stream| stream.length)
    }

    /// Total length of all pieces in bytes.
    #[inline]
    pub fn length(&self) -> u64 {
        self.pieces.iter().map(Piece::length).sum()
    }

    /// Returns the bytes in memory that only this body has. Content of caches, which others may use as well, does not count.
    pub fn held(&self) -> usize {
        let own = self.pieces.iter().filter_map(|piece| match piece {
            Piece::Memory(bytes) if bytes.is_unique() => Some(bytes.len()),
            Piece::Memory(_) | Piece::File(..) => None,
        });
        own.sum()
    }

    /// Returns `true` if there are no pieces.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Takes up to `max` bytes of the first piece.
    pub fn take_part(&mut self, max: u64) -> Option<Piece> {
        let length = self.pieces.front()?.length().min(max);
        self.split_to(length).pieces.pop_front()
    }

    /// Replaces the first piece by its bytes, if they are in memory as well.
    #[inline]
    pub fn prefer_memory(&mut self) {
        let Some(piece) = self.pieces.front_mut() else { return };
        if let Piece::File(file, range) = piece
            && let Some(bytes) = file.in_memory()
        {
            *piece = Piece::Memory(bytes.slice(range.start as usize..range.end as usize));
        }
    }

    /// Takes up to `max` bytes of the first piece, if that many of at least `min` bytes are in memory.
    #[inline]
    pub fn take_slice(&mut self, min: usize, max: usize) -> Option<Bytes> {
        self.prefer_memory();
        let Some(Piece::Memory(bytes)) = self.pieces.front_mut() else { return None };
        let length = bytes.len().min(max);
        if length < min {
            return None;
        }
        let slice = bytes.split_to(length);
        if bytes.is_empty() {
            self.drop_first();
        }
        Some(slice)
    }

    /// Returns the first piece.
    #[inline]
    pub fn first_mut(&mut self) -> Option<&mut Piece> {
        self.pieces.front_mut()
    }

    /// Removes the first piece, and empty pieces after it.
    #[inline]
    pub fn drop_first(&mut self) {
        self.pieces.pop_front();
        while self.pieces.front().is_some_and(|piece| piece.length() == 0) {
            self.pieces.pop_front();
        }
    }

    /// Removes up to `max` bytes from the front.
    pub fn split_to(&mut self, max: u64) -> Self {
        let (mut taken, mut room) = (Self::default(), max);
        while room > 0
            && let Some(first) = self.pieces.front_mut()
        {
            let length = first.length();
            if length <= room {
                room -= length;
                taken.pieces.extend(self.pieces.pop_front());
                continue;
            }
            taken.pieces.push_back(match first {
                Piece::Memory(bytes) => Piece::Memory(bytes.split_to(room as usize)),
                Piece::File(file, range) => {
                    let start = range.start;
                    range.start += room;
                    Piece::File(Arc::clone(file), start..range.start)
                }
            });
            room = 0;
        }
        taken
    }

    /// Inserts a piece at the front.
    #[inline]
    pub fn push_first(&mut self, piece: Piece) {
        self.pieces.push_front(piece);
    }

    /// Returns the body if it is a single piece in memory.
    #[inline]
    pub fn as_memory(&self) -> Option<&Bytes> {
        match (self.pieces.front(), self.pieces.len()) {
            (Some(Piece::Memory(bytes)), 1) => Some(bytes),
            _ => None,
        }
    }
}
