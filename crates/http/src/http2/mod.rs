//! HTTP/2 (RFC 9113), server side: a state machine without I/O. The client side is in [`client`].
//!
//! # Calling contract
//!
//! One [`Http2Connection`] serves one client. Its owner has an input buffer, an output buffer `out`, and a [`Head`] with a
//! text buffer, which it may share between connections.
//!
//! 1. [`Http2Connection::new`] appends the server's SETTINGS to `out`. The input begins with the client's [`PREFACE`].
//! 2. When bytes have arrived, call [`Http2Connection::set_time`], and then [`Http2Connection::next`] until it returns
//!    [`Http2Event::More`]. `next` advances `at` past the bytes that it has used. Bytes before `at` may be dropped; the bytes
//!    from `at` on must be at the start of the input of the next call.
//! 3. On [`Http2Event::Request`], read the request with [`Request::new(text, head)`](crate::Request::new). Both buffers are
//!    overwritten by the next call of `next`. Call [`Http2Connection::respond`] now or later, and then send the body: with
//!    [`Http2Connection::send_whole`] if the windows permit, else in frames of at most [`Http2Connection::allowance`] bytes
//!    between [`Http2Connection::begin_data`] and [`Http2Connection::end_data`]. Between frames,
//!    [`Http2Connection::set_ready`] records which streams have bytes, and [`Http2Connection::next_to_send`] chooses one by
//!    priority.
//! 4. On [`Http2Event::Rejected`], respond with the status of the error.
//! 5. On [`Http2Event::Data`], use the bytes `input[data]` before the input changes. Call [`Http2Connection::consumed`] for them
//!    once the handler has taken them, at once or later: it reopens the window, and is therefore the back-pressure.
//! 6. On [`Http2Event::Malformed`], record the request, if requests are recorded. On [`Http2Event::Reset`], drop everything that belongs to the stream.
//! 7. On an error, send `out`, which ends with GOAWAY, and close the connection.
//!
//! Every method may append to `out`; send its bytes in order. Many responses can thus leave in one write. To close
//! gracefully, call [`Http2Connection::begin_drain`], go on as before, and close when [`Http2Connection::is_done`]; after a time
//! limit call [`Http2Connection::end_drain`] or [`Http2Connection::abort`].
//!
//! # Example
//!
//! ```
//! use dunlin_http::http2::hpack::{HpackEncoder, Indexing};
//! use dunlin_http::http2::{Http2Event, Http2Connection, OutgoingHead, PREFACE, Http2Settings, frame};
//! use dunlin_http::{Head, Request};
//!
//! // What a client sends: the preface, its SETTINGS, and a request.
//! let mut section = Vec::new();
//! let mut encoder = HpackEncoder::default();
//! for (name, value) in
//!     [(":method", "GET"), (":scheme", "https"), (":path", "/hello"), (":authority", "a.example")]
//! {
//!     encoder.field(name.as_bytes(), value.as_bytes(), Indexing::Without, &mut section);
//! }
//! let flags = frame::flag::END_HEADERS | frame::flag::END_STREAM;
//! let header =
//!     frame::FrameHeader { length: section.len(), kind: frame::kind::HEADERS, flags, stream: 1 };
//! let mut input = PREFACE.to_vec();
//! frame::write_settings(&[], &mut input);
//! header.write(&mut input);
//! input.extend_from_slice(&section);
//!
//! // What the server does.
//! let (mut head, mut text, mut out) = (Head::default(), Vec::new(), Vec::new());
//! let mut connection = Http2Connection::new(Http2Settings::default(), &mut out);
//! let mut at = 0;
//! loop {
//!     match connection.next(&input, &mut at, &mut head, &mut text, &mut out)? {
//!         Http2Event::More => break,
//!         Http2Event::Request { stream, .. } => {
//!             let body = Request::new(&text, &head).target().to_vec();
//!             let lines = b"Content-Type: text/plain\r\n";
//!             let response = OutgoingHead { status: 200, date: b"", lines, serial: 0 };
//!             connection.respond(stream, &response, false, &mut out);
//!             assert!(connection.send_whole(stream, &body, &mut out));
//!         }
//!         event => panic!("{event:?}"),
//!     }
//! }
//! assert_eq!(at, input.len());
//! assert!(out.ends_with(b"/hello") && connection.open_streams() == 0);
//! # Ok::<(), dunlin_http::http2::Http2Error>(())
//! ```
//!
//! [`Head`]: crate::Head

pub mod client;
mod connection;
mod error;
pub mod frame;
pub mod hpack;
mod incoming;
mod outgoing;
mod stream;

pub use crate::Priority;
pub use crate::section::OutgoingHead;
pub use connection::{Http2Connection, Http2Event, Http2Settings};
pub use error::Http2Error;
pub use frame::{Http2ErrorCode, PREFACE};
pub use outgoing::BlockedBy;
