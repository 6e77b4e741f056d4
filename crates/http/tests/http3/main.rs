//! The HTTP/3 engine without QUIC: any input on any stream, in one piece and split at every byte.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod client;
#[path = "../common/mod.rs"]
mod common;
mod errors;
mod limits;
mod pair;
mod requests;
mod responses;
mod splitting;
mod support;
mod tables;
