//! HTTP/3 (RFC 9114), server side: a state machine without I/O. The client side is in [`client`].
//!
//! # Calling contract
//!
//! One [`Http3Connection`] serves one client. QUIC is the caller's: it passes the bytes of each stream to the engine in their order,
//! and sends what the engine makes. Flow control, limits of streams and back-pressure are those of QUIC: the caller reads from a stream
//! what its handler can take.
//!
//! 1. [`Http3Connection::new`] makes the server's SETTINGS. The bytes of the server's own unidirectional streams are
//!    [`Http3Connection::pending`] after any call; send them first, and call [`Http3Connection::sent`].
//! 2. When bytes of a stream have arrived, call [`Http3Connection::set_time`], and then [`Http3Connection::receive`] until it
//!    returns [`Http3Event::More`]. The engine keeps what is incomplete, so that all bytes are used then. After [`Http3Event::Blocked`],
//!    keep the rest and read no more of the stream until [`Http3Connection::next_unblocked`] returns it; call that after
//!    bytes of unidirectional streams.
//! 3. On [`Http3Event::Request`], read the request with [`Request::new(text, head)`](crate::Request::new). Both buffers are
//!    overwritten by the next call. Call [`Http3Connection::respond`] now or later, and then send the body: in frames with a header
//!    of [`Http3Connection::send_data`], or between [`Http3Connection::begin_data`] and [`Http3Connection::end_data`]. Between
//!    frames, [`Http3Connection::set_ready`] records which streams have bytes, and [`Http3Connection::next_to_send`] chooses one by
//!    priority.
//! 4. On [`Http3Event::Rejected`], respond with the status of the error.
//! 5. On [`Http3Event::Data`], use the bytes `input[data]`.
//! 6. On [`Http3Event::Malformed`], [`Http3Event::Reset`] and [`Http3Event::Stop`], reset or stop the stream with the code. No more bytes of it
//!    may be passed.
//! 7. Pass resets of QUIC to [`Http3Connection::reset_received`] and [`Http3Connection::stop_received`].
//! 8. On an error, close the connection with its code.
//!
//! To close gracefully, call [`Http3Connection::begin_drain`], go on as before, call [`Http3Connection::end_drain`] after a round trip
//! or a time limit, and close when [`Http3Connection::is_done`].
//!
//! # Example
//!
//! ```
//! use dunlin_http::http3::client::Http3ClientConnection;
//! use dunlin_http::http3::{Http3Event, Http3Connection, OutgoingHead, Http3Settings};
//! use dunlin_http::{BodySize, Head, Request, RequestHead};
//!
//! // What a client sends on stream 0.
//! let mut client = Http3ClientConnection::new();
//! let (request, mut input) = (RequestHead::new("GET", "a.example", "/hello"), Vec::new());
//! client.open(0, &request, "https", BodySize::Empty, &mut input)?;
//!
//! // What the server does.
//! let (mut head, mut text, mut out) = (Head::default(), Vec::new(), Vec::new());
//! let mut connection = Http3Connection::new(Http3Settings::default());
//! let mut at = 0;
//! loop {
//!     match connection.receive(0, &input, &mut at, true, &mut head, &mut text).unwrap() {
//!         Http3Event::More => break,
//!         Http3Event::Request { stream, ended, .. } => {
//!             assert!(ended);
//!             let body = Request::new(&text, &head).target().to_vec();
//!             let lines = b"Content-Type: text/plain\r\n";
//!             let response = OutgoingHead { status: 200, date: b"", lines, serial: 0 };
//!             connection.respond(stream, &response, false, &mut out);
//!             let header = connection.send_data(stream, body.len(), true).unwrap();
//!             out.extend_from_slice(header.as_bytes());
//!             out.extend_from_slice(&body);
//!         }
//!         event => panic!("{event:?}"),
//!     }
//! }
//! assert!(out.ends_with(b"/hello") && connection.open_streams() == 0);
//! # Ok::<(), dunlin_http::InvalidRequest>(())
//! ```

pub mod client;
mod connection;
mod control;
mod error;
pub mod frame;
mod incoming;
mod outgoing;
pub mod qpack;
mod reader;
mod session;
mod stream;

pub use crate::Priority;
pub use crate::section::OutgoingHead;
pub use connection::{Http3Connection, Http3Event, Http3Settings};
pub use error::Http3Error;
pub use frame::{DataHeader, Http3ErrorCode};
pub use session::OwnStream;
