//! HTTP/1.0 and HTTP/1.1 (RFC 9112): state machines without I/O.
//!
//! [`Http1Connection`] is the receiving side of a server, [`response`] writes responses, and [`client`] reads responses.
//!
//! # Calling contract of [`Http1Connection`]
//!
//! One `Http1Connection` serves one client. Its owner has an input buffer and a [`Head`], which it may share between
//! connections. For each request:
//!
//! 1. Drop [`leading_empty_lines`] from the start of the input.
//! 2. Call [`Http1Connection::head`] with all bytes since the end of the previous message. On `None`, keep them, append what
//!    arrives, and call it again with the same `head`. On `Some(length)`, the head is `input[..length]`; read it with
//!    [`Request::new(input, head)`](crate::Request::new). The body, or the next request, begins at `length`.
//! 3. If [`Http1Connection::expects_continue`], either send [`response::CONTINUE`] and call
//!    [`Http1Connection::continue_sent`], or send a final response without reading the body.
//! 4. If [`Http1Connection::has_body`], call [`Http1Connection::body`] with the bytes behind the head and drop those that it has
//!    used, until it returns [`BodyEvent::End`]. The response may be sent before, between or after these calls. Leaving
//!    bytes in the socket is the back-pressure.
//! 5. Send the response with the `Connection` field that [`Http1Connection::persistence`] requires, and close the connection
//!    after it on [`Persistence::Close`]. [`Http1Connection::close`] requests that. Else go on with the first step, once the
//!    body has ended.
//!
//! On an error, send a response with its status and [`Persistence::Close`], and close the connection: the start of the
//! next request is unknown.
//!
//! # Example
//!
//! ```
//! use dunlin_http::http1::{BodyEvent, Http1Connection, leading_empty_lines, response};
//! use dunlin_http::{Head, Limits, Request};
//!
//! // Two pipelined requests, the first one with a chunked body.
//! let mut input: &[u8] = b"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n\
//!     2\r\nab\r\n3\r\ncde\r\n0\r\n\r\nGET /x HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
//! let (mut connection, mut head, mut output) = (Http1Connection::default(), Head::default(), Vec::new());
//! let mut paths = Vec::new();
//! loop {
//!     input = &input[leading_empty_lines(input)..];
//!     let Some(length) = connection.head(input, &Limits::default(), &mut head)? else {
//!         break; // A real server reads more from its socket here.
//!     };
//!     paths.push(Request::new(input, &head).target().to_vec());
//!     input = &input[length..];
//!     let mut body = Vec::new();
//!     while connection.has_body() {
//!         let (used, event) = connection.body(input)?;
//!         input = &input[used..];
//!         if let BodyEvent::Data(data) = event {
//!             body.extend_from_slice(data);
//!         }
//!     }
//!     response::begin(200, b"", connection.persistence(), &mut output);
//!     output.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
//!     output.extend_from_slice(&body);
//! }
//! assert_eq!(paths, [b"/".to_vec(), b"/x".to_vec()]);
//! assert_eq!(
//!     output,
//!     b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde\
//!         HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
//! );
//! # Ok::<(), dunlin_http::RequestError>(())
//! ```
//!
//! [`Head`]: crate::Head

mod chunk_extension;
mod chunked;
pub mod client;
mod connection;
mod framing;
mod head;
pub mod response;

pub use chunked::{ChunkedDecoder, ChunkedPart};
pub use connection::{BodyEvent, Http1Connection, Persistence, leading_empty_lines};
