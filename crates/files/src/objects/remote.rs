//! Content that responses stream.

use std::fmt;
use std::ops::Range;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::store::{Later, StoreError};

/// The content ended before its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken;

/// Content that is not in the cache.
pub trait RemoteContent: fmt::Debug + Send + Sync {
    /// Returns a reader of `range`. For content that is requested for each response it waits until the store has begun to
    /// respond.
    ///
    /// # Errors
    /// Those of the store. [`StoreError::Changed`]: there is another version.
    fn open(&self, range: Range<u64>) -> Later<Result<Box<dyn ContentReader>, StoreError>>;

    /// Waits until the content is in the cache, or will never be; `None` if it will never be.
    fn arrived(&self) -> Option<Later<()>>;
}

/// A reader of a range of content.
pub trait ContentReader: fmt::Debug + Send {
    /// Returns the next bytes; `None` at the end of the range.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Broken>>;
}
