//! Responses with the content of files.

use std::collections::VecDeque;

use dunlin_http::FieldLines;

use crate::fs::content::Piece;

/// A response with content of a file or a listing.
#[derive(Debug)]
pub(crate) struct FileResponse {
    /// The status code.
    pub(crate) status: u16,
    /// All fields except those that every response has, and Content-Length.
    pub(crate) fields: FieldLines,
    /// The body; none of the pieces is empty.
    pub(crate) body: VecDeque<Piece>,
    /// The content coding of the body for the log, or "-".
    pub(crate) coding: &'static str,
}

impl FileResponse {
    /// A response without a body.
    pub(crate) fn new(status: u16, fields: FieldLines) -> Self {
        Self { status, fields, body: VecDeque::new(), coding: "-" }
    }

    /// Appends `piece` to the body, unless it is empty.
    pub(crate) fn push(&mut self, piece: Piece) {
        if piece.length() > 0 {
            self.body.push_back(piece);
        }
    }
}
