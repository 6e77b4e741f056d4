//! HTTP for servers and clients, without I/O: bytes in, events out.
//!
//! The crate has the protocol engines of HTTP/1 ([`http1`]), HTTP/2 ([`http2`]) and HTTP/3 ([`http3`]), the request types that all
//! produce, the rules of HTTP that hold for every version ([`semantics`]), and WebSocket ([`websocket`]). It opens no socket, reads no clock and starts no
//! task: all input is an argument and all output a value. Every part can therefore be tested at each split of its input,
//! fuzzed, and used by a server, a load generator or a test alike.
//!
//! * [`Request`] is a borrowed view of a request's head: the bytes as they arrived and a [`Head`] with ranges into them.
//!   Parsing allocates nothing once the buffers have grown.
//! * [`RequestError`] is a request that breaks the protocol or a limit of [`Limits`], with the status of the response.
//! * [`FieldLines`] are the fields of a response. They cannot contain a line break, whatever a value contains.
//! * [`ChunkQueue`] holds the chunks of a body that wait for their reader, and counts the memory that they take.
//!
//! The engines are strict: where two parsers could read a message differently, it is an error.
//!
//! # Example
//!
//! A server's part for one request. The documentation of [`http1`], [`http2`] and [`http3`] has the calling contract of each engine.
//!
//! ```
//! use dunlin_http::http1::{Http1Connection, Persistence, response};
//! use dunlin_http::{FieldLines, FieldName, Head, Limits, Method, Request};
//!
//! let input = b"GET /hello HTTP/1.1\r\nHost: a.example\r\nUser-Agent: test\r\n\r\n";
//! let (mut connection, mut head) = (Http1Connection::default(), Head::default());
//! let mut output = Vec::new();
//! match connection.head(input, &Limits::default(), &mut head) {
//!     Ok(Some(length)) => {
//!         assert_eq!(length, input.len());
//!         let request = Request::new(input, &head);
//!         assert_eq!((request.method(), request.target()), (Method::Get, b"/hello".as_slice()));
//!         assert_eq!(request.field(FieldName::UserAgent), Some(b"test".as_slice()));
//!         let mut fields = FieldLines::new();
//!         fields.push("Content-Type", "text/plain");
//!         fields.push_number("Content-Length", 3);
//!         response::begin(200, b"", connection.persistence(), &mut output);
//!         output.extend_from_slice(fields.as_bytes());
//!         output.extend_from_slice(b"\r\nhi\n");
//!     }
//!     Ok(None) => unreachable!("the head is complete"),
//!     Err(error) => {
//!         response::begin(error.status, b"", Persistence::Close, &mut output);
//!         output.extend_from_slice(b"\r\n");
//!     }
//! }
//! assert!(output.starts_with(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"));
//! ```

mod abuse;
mod body_length;
pub mod chunk_queue;
pub mod field;
pub mod field_lines;
pub mod html;
pub mod http1;
pub mod http2;
pub mod http3;
mod limits;
pub mod message;
mod priority;
pub mod request;
mod request_error;
mod section;
pub mod semantics;
pub mod websocket;

pub use body_length::BodyLength;
pub use chunk_queue::ChunkQueue;
pub use field::{FieldName, FieldSet};
pub use field_lines::FieldLines;
pub use limits::Limits;
pub use message::{BodySize, InvalidRequest, RequestHead, ResponseHead};
pub use priority::Priority;
pub use request::{Head, OwnedRequest, Request, Version};
pub use request_error::RequestError;
pub use semantics::Method;
