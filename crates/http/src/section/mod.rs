//! Field sections, as HTTP/2 and HTTP/3 have them: their validation, and what HPACK and QPACK have in common.

mod heads;
pub(crate) mod huffman;
mod incoming_response;
pub(crate) mod integer;
mod kind;
pub(crate) mod outgoing_request;
mod request;
mod response;
pub(crate) mod string;
pub(crate) mod table;

use std::ops::Range;

pub use heads::OutgoingHead;
pub(crate) use heads::{Heads, SectionEncoder};
pub(crate) use incoming_response::{IncomingResponse, ResponsePart};
pub use kind::Kind;
pub(crate) use request::{Metadata, Reader, SectionOutcome};
pub(crate) use response::{MAX_SECTION, ResponseSection, USUAL_FIELD};

/// A decoded field, as ranges of the text buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodedField {
    /// Classification of the field.
    pub kind: Kind,
    /// Range of the name.
    pub name: Range<usize>,
    /// Range of the value, directly behind the name.
    pub value: Range<usize>,
}

/// The treatment of a field by the table: after an addition, an equal one takes one byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Indexing {
    /// Added: the field is likely to occur again.
    Incremental,
    /// Not added.
    Without,
    /// Not added, here or at any intermediary: the value is a secret (RFC 7541 §7.1.3, RFC 9204 §7.1.3).
    Never,
}

/// Calls `then` with the name in lower case.
#[inline]
pub(crate) fn with_lower_case(name: &[u8], then: impl FnOnce(&[u8])) {
    let mut short = [0; 64];
    match short.get_mut(..name.len()) {
        Some(short) => {
            short.copy_from_slice(name);
            short.make_ascii_lowercase();
            then(short);
        }
        None => then(&name.to_ascii_lowercase()),
    }
}

/// A field section that cannot be decoded. The connection has to be closed (RFC 9113 §4.3, RFC 9204 §2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedSection(
    /// A short description of the error.
    pub &'static str,
);
