//! The engine of an HTTP/2 client: against frames in one piece and split at every byte, and against the server's engine.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bounds;
mod requests;
mod responses;
mod streams;
mod support;
