//! HPACK: compression of field sections (RFC 7541).

mod decoder;
mod encoder;
mod static_table;
#[cfg(test)]
mod tests;

pub use crate::section::{DecodedField, Indexing, Kind, MalformedSection};
pub use decoder::HpackDecoder;
pub use encoder::HpackEncoder;

/// Initial and largest size of both dynamic tables, in bytes (RFC 7541 §4.2, RFC 9113 §6.5.2).
pub const TABLE_SIZE: usize = 4096;
