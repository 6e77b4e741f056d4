//! Compressed field sections (RFC 7541).

mod decoder;
mod encoder;
mod huffman;
mod integer;
mod kind;
mod static_table;
mod table;
#[cfg(test)]
mod tests;

pub use decoder::{Decoded, Decoder};
pub use encoder::{Encoder, Indexing};
pub use kind::Kind;

/// The size of both dynamic tables at the start, and the most that either may have here, in bytes
/// (RFC 7541 §4.2, RFC 9113 §6.5.2).
pub const TABLE_SIZE: usize = 4096;

/// A field section that cannot be decoded. What came before and after it on the connection cannot
/// be decoded any more either (RFC 9113 §4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(
    /// What was wrong, in a few words.
    pub &'static str,
);
