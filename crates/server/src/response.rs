//! What a handler answers with.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_http::FieldLines;

use crate::cache::{ContentFile, StoredContent};
use crate::stream;

/// A response: its head, and a body that is a source to pull from.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Every field but Date, Connection, Server and Content-Length.
    pub(crate) fields: FieldLines,
    pub(crate) body: Body,
    /// The length that the head states when it is not the body's: for HEAD and 304.
    pub(crate) stated_length: Option<u64>,
    /// For the log: "hit", "miss", "off" or "-".
    pub(crate) cache: &'static str,
    /// For the log: the content coding, or "-".
    pub(crate) coding: &'static str,
    /// It is the server's own error page, and no handler's response.
    pub(crate) is_error: bool,
}

/// A body, in pieces that are sent one after the other, or as it is made.
#[derive(Debug, Default)]
pub(crate) struct Body {
    pieces: VecDeque<Piece>,
    stream: Option<Box<Stream>>,
}

/// A body that is made while it is sent.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) source: stream::Receiver,
    /// Bytes in all, when that is known.
    pub(crate) length: Option<u64>,
    pub(crate) kind: StreamKind,
}

/// What a stream is of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamKind {
    Body,
    /// A body that ends when the client has seen enough of it.
    Endless,
    /// The whole message, head included; its end is that of the connection.
    Message,
}

/// One stretch of a body.
#[derive(Debug, Clone)]
pub(crate) enum Piece {
    Memory(Bytes),
    /// A stretch of an open file, by byte offsets.
    File(Arc<ContentFile>, Range<u64>),
}

impl Response {
    pub(crate) fn new(status: u16) -> Self {
        Self {
            status,
            fields: FieldLines::new(),
            body: Body::default(),
            stated_length: None,
            cache: "-",
            coding: "-",
            is_error: false,
        }
    }

    /// A response with a body of text.
    pub(crate) fn with_text(status: u16, media_type: &str, text: impl Into<Bytes>) -> Self {
        let mut response = Self::new(status);
        response.fields.push("Content-Type", media_type);
        response.body.push(Piece::Memory(text.into()));
        response
    }

    /// Drops the body and goes on stating its length, as the answer to HEAD does.
    pub(crate) fn without_body(mut self) -> Self {
        self.stated_length = self.stated_length.or(Some(self.body.length()));
        self.body = Body::default();
        self
    }
}

impl Body {
    pub(crate) fn push(&mut self, piece: Piece) {
        if piece.length() > 0 {
            self.pieces.push_back(piece);
        }
    }

    /// A body that is made while it is sent.
    pub(crate) fn streamed(stream: Stream) -> Self {
        Self { pieces: VecDeque::new(), stream: Some(Box::new(stream)) }
    }

    /// Takes out what is made while it is sent.
    pub(crate) fn take_stream(&mut self) -> Option<Box<Stream>> {
        self.stream.take()
    }

    /// Bytes of all pieces.
    pub(crate) fn length(&self) -> u64 {
        self.pieces.iter().map(Piece::length).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    pub(crate) fn first_mut(&mut self) -> Option<&mut Piece> {
        self.pieces.front_mut()
    }

    /// Removes the first piece, and empty ones behind it.
    pub(crate) fn drop_first(&mut self) {
        self.pieces.pop_front();
        while self.pieces.front().is_some_and(|piece| piece.length() == 0) {
            self.pieces.pop_front();
        }
    }

    /// Takes up to `most` bytes off the front.
    pub(crate) fn split_to(&mut self, most: u64) -> Self {
        let (mut taken, mut room) = (Self::default(), most);
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

    /// Puts a piece before the others.
    pub(crate) fn push_first(&mut self, piece: Piece) {
        self.pieces.push_front(piece);
    }

    /// The whole body when it is one piece of memory.
    pub(crate) fn as_memory(&self) -> Option<&Bytes> {
        match (self.pieces.front(), self.pieces.len()) {
            (Some(Piece::Memory(bytes)), 1) => Some(bytes),
            _ => None,
        }
    }
}

impl Piece {
    /// The stretch `range` of something stored.
    pub(crate) fn of(stored: &StoredContent, range: Range<u64>) -> Self {
        match stored {
            StoredContent::Memory(bytes) => {
                Self::Memory(bytes.slice(range.start as usize..range.end as usize))
            }
            StoredContent::File(file) => Self::File(Arc::clone(file), range),
        }
    }

    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File(_, range) => range.end - range.start,
        }
    }
}
