//! The client side of HTTP/2 (RFC 9113): a state machine without sockets.
//!
//! [`Http2ClientConnection::open`] writes the head of a request, [`Http2ClientConnection::receive`] reads what the server
//! sends. Bodies of requests are sent within [`Http2ClientConnection::capacity`]; for data of responses the caller returns
//! credit by [`Http2ClientConnection::consumed`], so that a slow reader holds up the server.
//!
//! ```
//! use dunlin_http::http2::client::Http2ClientConnection;
//! use dunlin_http::{BodySize, RequestHead};
//!
//! let mut out = Vec::new();
//! let mut connection = Http2ClientConnection::new(&mut out);
//! let request = RequestHead::new("GET", "example.com", "/");
//! let stream = connection.open(&request, "https", BodySize::Empty, &mut out).unwrap();
//! assert_eq!(stream, 1);
//! assert!(out.starts_with(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
//! ```

mod connection;
mod receive;
mod request;
mod stream;

pub use connection::{Http2ClientConnection, Http2ClientEvent, Http2ClientSettings};
