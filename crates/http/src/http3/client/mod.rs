//! The client side of HTTP/3 (RFC 9114): a state machine without I/O.
//!
//! [`Http3ClientConnection::open`] makes the head of a request for a stream that the caller has opened by QUIC,
//! [`Http3ClientConnection::receive`] reads what the server sends. The calling contract is that of the [server side](super).
//!
//! ```
//! use dunlin_http::http3::OwnStream;
//! use dunlin_http::http3::client::Http3ClientConnection;
//! use dunlin_http::{BodySize, RequestHead};
//!
//! let (mut connection, mut out) = (Http3ClientConnection::new(), Vec::new());
//! let request = RequestHead::new("GET", "example.com", "/");
//! connection.open(0, &request, "https", BodySize::Empty, &mut out)?;
//! assert_eq!(connection.open_streams(), 1);
//! // The type of the control stream, and SETTINGS.
//! assert!(connection.pending(OwnStream::Control).starts_with(&[0, 4]));
//! # Ok::<(), dunlin_http::InvalidRequest>(())
//! ```

mod connection;
mod receive;

pub use connection::{Http3ClientConnection, Http3ClientEvent};
