//! Responses with the content of files.

use std::collections::VecDeque;

use dunlin_http::FieldLines;

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
    /// The content coding of the body for the log, or "-".
    pub coding: &'static str,
}

impl FileResponse {
    /// A response without a body.
    pub fn new(status: u16, fields: FieldLines) -> Self {
        Self { status, fields, body: VecDeque::new(), coding: "-" }
    }

    /// Appends `piece` to the body, unless it is empty.
    pub fn push(&mut self, piece: Piece) {
        if piece.length() > 0 {
            self.body.push_back(piece);
        }
    }
}
