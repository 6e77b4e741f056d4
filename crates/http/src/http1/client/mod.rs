//! The client side of HTTP/1: writing requests and reading responses (RFC 9112).
//!
//! [`Http1ClientConnection`] is the engine of a client: it writes the head of a request, frames the body, and reads the response
//! with interim responses, trailers and protocol upgrades. [`ResponseReader`] only separates and counts the responses
//! of a connection; the load generator uses it.
//!
//! ```
//! use dunlin_http::http1::client::{Http1ClientConnection, Http1ClientEvent};
//! use dunlin_http::{BodySize, RequestHead};
//!
//! let mut connection = Http1ClientConnection::default();
//! let mut out = Vec::new();
//! let request = RequestHead::new("GET", "example.com", "/");
//! connection.send_head(&request, BodySize::Empty, &mut out).unwrap();
//! assert_eq!(out, b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n");
//!
//! let mut input = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".to_vec();
//! let mut body = Vec::new();
//! loop {
//!     let (used, event) = connection.receive(&input, false).unwrap();
//!     match event {
//!         Http1ClientEvent::Head(head) => assert_eq!(head.status, 200),
//!         Http1ClientEvent::Data(range) => body.extend_from_slice(&input[range]),
//!         Http1ClientEvent::End(_) => break,
//!         Http1ClientEvent::Interim(_) => {}
//!         Http1ClientEvent::NeedInput => panic!("the response is complete"),
//!     }
//!     input.drain(..used);
//! }
//! assert_eq!(body, b"hi");
//! assert!(connection.is_reusable());
//! ```

mod connection;
mod framing;
mod head;
mod reader;
mod request;

pub use connection::{Http1ClientConnection, Http1ClientEvent};
pub use reader::{HeadCache, MalformedResponse, ResponseEvent, ResponseReader};
