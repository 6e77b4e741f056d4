//! Responses with the content of files.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_http::FieldLines;

use super::cache::resource::Representation;
use super::objects::remote::RemoteContent;
use dunlin_fs::content::Piece;

/// A response with content of a file or a listing.
#[derive(Debug)]
pub struct FileResponse {
    /// The status code.
    pub status: u16,
    /// All fields except those that every response has, and Content-Length.
    pub fields: FieldLines,
    /// The body; none of the pieces is empty.
    pub body: VecDeque<Piece>,
    /// The body instead of `body`, if a part of it is not here.
    pub parts: Vec<Part>,
    /// The content coding of the body for the log, or "-".
    pub coding: &'static str,
}

/// A part of a body that is streamed.
#[derive(Debug, Clone)]
pub enum Part {
    /// Bytes that are here.
    Here(Bytes),
    /// A range of content that is not here.
    Remote(Arc<dyn RemoteContent>, Range<u64>),
}

impl FileResponse {
    /// Creates a response without a body.
    pub fn new(status: u16, fields: FieldLines) -> Self {
        Self { status, fields, body: VecDeque::new(), parts: Vec::new(), coding: "-" }
    }

    /// Appends `piece` to the body, unless it is empty.
    pub fn push(&mut self, piece: Piece) {
        if piece.length() == 0 {
            return;
        }
        match piece {
            Piece::Memory(bytes) if !self.parts.is_empty() => self.parts.push(Part::Here(bytes)),
            piece => self.body.push_back(piece),
        }
    }

    /// Appends a range of the body of a representation.
    pub(crate) fn push_range(&mut self, form: &Representation, range: Range<u64>) {
        let Some(remote) = &form.remote else { return self.push(Piece::of(&form.body, range)) };
        if range.is_empty() {
            return;
        }
        // Only heads of parts are before the first range.
        self.parts.extend(self.body.drain(..).filter_map(|piece| match piece {
            Piece::Memory(bytes) => Some(Part::Here(bytes)),
            Piece::File(..) => None,
        }));
        self.parts.push(Part::Remote(Arc::clone(remote), range));
    }

    /// Returns the length of the body in bytes.
    pub fn length(&self) -> u64 {
        let parts = self.parts.iter().map(|part| match part {
            Part::Here(bytes) => bytes.len() as u64,
            Part::Remote(_, range) => range.end - range.start,
        });
        parts.chain(self.body.iter().map(Piece::length)).sum()
    }
}
