//! The client side of HTTP/1: writing requests and reading responses (RFC 9112).
//!
//! [`Http1ClientConnection`] is the engine of a client: it writes the head of a request, frames the body, and reads the response
//! with interim responses, trailers and protocol upgrades. [`ResponseReader`] only separates and counts the responses
//! of a connection; the load generator uses it.
//!
//! ```
//! use dunlin_http::http1::client::{Connection, Event};
//! use dunlin_http::{BodySize, RequestHead};
//!
//! let mut connection = Connection::default();
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
//!         Event::Head(head) => assert_eq!(head.status, 200),
//!         Event::Data(range) => body.extend_from_slice(&input[range]),
//!         Event::End(_) => break,
//!         Event::Interim(_) => {}
//!         Event::NeedInput => panic!("the response is complete"),
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
