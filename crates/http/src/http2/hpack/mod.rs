//! HPACK: compression of field sections (RFC 7541).

mod decoder;
mod encoder;
mod huffman;
mod integer;
mod kind;
mod static_table;
mod table;
#[cfg(test)]
mod tests;

pub use decoder::{DecodedField, Decoder};
pub use encoder::{Encoder, Indexing};
pub use kind::Kind;

/// Initial and largest size of both dynamic tables, in bytes (RFC 7541 §4.2, RFC 9113 §6.5.2).
pub const TABLE_SIZE: usize = 4096;

/// A field section that cannot be decoded. The decoder's table is then undefined, so the connection has to be closed
/// (RFC 9113 §4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedSection(
    /// A short description of the error.
    pub &'static str,
);
