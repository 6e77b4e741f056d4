//! Content codings made on the fly.
