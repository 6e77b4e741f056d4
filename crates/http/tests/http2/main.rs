//! The HTTP/2 engine without sockets: any input, in one piece and split at every byte.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;
mod errors;
mod flow_control;
mod limits;
mod requests;
mod responses;
mod splitting;
mod support;
