//! Streams in memory, for tests. A test holds the client's end and decides about each byte: how many bytes the server can
//! read and write in one call, when the client's buffer is full, and when the stream ends or is reset.
//!
//! Without the feature `testing`, [`ServerEnd`] has no value, so that the compiler removes all code for it.

#[cfg(not(any(test, feature = "testing")))]
mod absent;
#[cfg(any(test, feature = "testing"))]
mod pair;

#[cfg(not(any(test, feature = "testing")))]
pub use self::absent::AbsentEnd as ServerEnd;
#[cfg(any(test, feature = "testing"))]
pub use self::pair::{ClientEnd, ServerEnd, Side, pair};
