//! HTTP engines and HTTP's rules: bytes in, bytes out.
//!
//! Nothing here opens a socket, reads a clock or starts a task. Everything enters as an
//! argument, everything leaves as a value to act upon, so that each part can be tested byte by
//! byte, fuzzed, and used by server and load generator alike.

pub mod field;
pub mod field_lines;
pub mod http1;
pub mod http2;
pub mod message;
pub mod request;
pub mod semantics;

pub use field::{FieldName, FieldSet};
pub use field_lines::FieldLines;
pub use message::{BodySize, InvalidRequest, RequestHead, ResponseHead};
pub use request::{Head, OwnedRequest, Request, Version};
