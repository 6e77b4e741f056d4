//! QPACK: compression of field sections for HTTP/3 (RFC 9204), without I/O.
//!
//! An [`QpackEncoder`] writes sections and the instructions of its encoder stream. The [`QpackDecoder`] of the peer reads both, in whatever
//! order the streams of QUIC deliver them, and writes the instructions of its decoder stream, which the encoder reads.
//!
//! ```
//! use dunlin_http::http3::qpack::{Decoded, QpackDecoder, QpackEncoder, Indexing};
//!
//! let (mut encoder, mut decoder) = (QpackEncoder::default(), QpackDecoder::new(4096, 16));
//! encoder.set_limits(4096, 16);
//! let mut section = Vec::new();
//! encoder.begin(0, &mut section);
//! encoder.field(b"server", b"dunlin", Indexing::Incremental, &mut section);
//! encoder.end(0, &mut section);
//!
//! let (mut text, mut fields) = (Vec::new(), 0);
//! let mut count = |_: &mut Vec<u8>, _| {
//!     fields += 1;
//!     true
//! };
//! // The section refers to an entry that has not arrived.
//! assert_eq!(decoder.decode(0, &section, &mut text, &mut count)?, Decoded::Blocked);
//! decoder.receive(encoder.instructions()).unwrap();
//! assert_eq!(decoder.next_unblocked(), Some(0));
//! assert_eq!(decoder.decode(0, &section, &mut text, &mut count)?, Decoded::Complete);
//! assert_eq!((text.as_slice(), fields), (b"serverdunlin".as_slice(), 1));
//! # Ok::<(), dunlin_http::http3::qpack::MalformedSection>(())
//! ```

mod decoder;
mod encoder;
mod index;
mod static_table;
#[cfg(test)]
mod tests;

pub use crate::section::{DecodedField, Indexing, Kind, MalformedSection};
pub use decoder::{Decoded, QpackDecoder};
pub use encoder::{QpackEncoder, SectionReferences};

/// Largest size of a dynamic table in bytes, of either side.
pub const TABLE_SIZE: usize = 4096;

/// An instruction of the peer's encoder stream or decoder stream that is malformed. The connection has to be closed
/// (RFC 9204 §2.2, §6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedInstruction(
    /// A short description of the error.
    pub &'static str,
);

impl From<MalformedSection> for MalformedInstruction {
    fn from(malformed: MalformedSection) -> Self {
        Self(malformed.0)
    }
}

/// Number of entries that a table of `capacity` bytes has at most (RFC 9204 §3.2.2, §4.5.1.1).
fn max_entries(capacity: u64) -> u64 {
    capacity / crate::section::table::OVERHEAD as u64
}
