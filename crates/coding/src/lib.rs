//! Content codings (RFC 9110 §8.4.1): compression of whole files and of streams, and the media types that benefit from it.
//!
//! # What it does
//! - [`compress`] compresses a file at the levels that pay for content which is cached.
//! - An [`Encoder`] compresses a response as it is made. What was flushed can be decoded at once.
//! - A [`Decoder`] decodes a body as it arrives.
//! - [`compressible`] and [`is_compressed`] know media types.
//!
//! # Contract
//! No I/O. The memory of an encoder and of a decoder is bounded: [`Encoder::memory`], [`Decoder::memory`]. The decoded output is the input, however it is cut and
//! flushed.
//!
//! ```
//! use dunlin_coding::{Encoder, Effort};
//! use dunlin_http::semantics::ContentCoding;
//!
//! let mut encoder = Encoder::new(ContentCoding::Gzip, Effort::Normal, None)?;
//! let mut output = Vec::new();
//! encoder.push(b"first ", &mut output)?;
//! encoder.flush(&mut output)?;
//! encoder.push(b"second", &mut output)?;
//! encoder.finish(&mut output)?;
//! assert!(output.starts_with(&[0x1f, 0x8b]));
//! # Ok::<(), std::io::Error>(())
//! ```

mod decode;
mod encode;
mod media_types;
mod whole;

pub use self::decode::Decoder;
pub use self::encode::{Effort, Encoder, MAX_PADDING, SharedDictionary};
pub use self::media_types::{compressible, compressible_value, is_compressed};
pub use self::whole::{compress, memory};

/// Bodies of fewer bytes are not compressed: the fields would be longer than what is saved.
pub const MIN_LENGTH: u64 = 256;
