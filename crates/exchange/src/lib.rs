//! The parts of one request and its response that a protocol adapter and a handler share: the data of the request besides
//! its head, the response, the streams of their bodies, and interim responses.
//!
//! # What it does
//! - [`ConnectionFacts`] are what is known of the connection, whatever carries it; a [`Client`] is made of them.
//! - A [`RequestContext`] lasts from the first byte of a request to its access record: client, user, timestamps, permits.
//!   Dropping it returns the permits, for whatever reason the exchange ends.
//! - An [`Incoming`] has what a handler needs to read the request body and to send interim responses ([`EarlyHints`]).
//! - A [`Response`] is a head and a [`Body`]: pieces in memory or in files, or a [`Stream`] that is produced while it is
//!   sent.
//! - [`stream`] has the bounded streams of bytes between an adapter and a handler.
//! - A [`RequestBody`] is a request body on its way to its handler, with its limits; a [`BodyWriter`] is a response body on its
//!   way to the client, with its source, its stated length and its pace. [`send`] sends one on a socket with `sendfile`.
//! - [`Storage`] limits the memory and the files of request bodies that are received before their handler runs.
//!
//! # Contract
//! [`stream`] and [`Storage`] can be shared by threads; all other types belong to the worker that has the connection. A
//! handler states neither Date nor Connection, Server or Content-Length: the adapter adds them. A sender of a stream waits
//! for room before it adds bytes, and a stream whose sender is dropped before [`stream::Sender::end`] is broken, so that
//! the client sees an incomplete response as such:
//!
//! ```
//! use bytes::Bytes;
//! use dunlin_exchange::{Body, Response, Stream, StreamKind, stream};
//!
//! /// Sends numbers until the client has gone.
//! async fn count(sender: stream::Sender) {
//!     for number in 0..1_000 {
//!         if sender.room().await.is_err() {
//!             return;
//!         }
//!         sender.push(Bytes::from(format!("{number}\n")));
//!     }
//!     sender.end();
//! }
//!
//! let (sender, source) = stream::channel(64 * 1024);
//! let mut response = Response::new(200);
//! response.body = Body::streamed(Stream { source, length: None, kind: StreamKind::Body });
//! assert!(response.body.is_stream());
//! # drop(count(sender));
//! ```

mod body_limits;
mod body_storage;
mod body_writer;
mod client;
mod computed;
mod context;
mod early_hints;
mod facts;
mod incoming;
mod named;
mod request_body;
mod response;
pub mod send;
mod send_progress;
pub mod stream;
mod stream_body;

pub use self::body_limits::{BodyRate, STALLED, TOO_LARGE};
pub use self::body_storage::{Received, Share, Storage};
pub use self::body_writer::{BodyWriter, Ending, Filled, Part};
pub use self::client::Client;
pub use self::computed::ResponseFacts;
pub use self::context::{RequestContext, Scheme};
pub use self::early_hints::{EarlyHints, Interim};
pub use self::facts::ConnectionFacts;
pub use self::incoming::{Includes, Incoming, ResponseFuture, Tunnel};
pub use self::named::{Named, is_instruction};
pub use self::request_body::RequestBody;
pub use self::response::{Body, Response, Stream, StreamKind};
pub use self::send_progress::SendProgress;
pub use self::stream_body::StreamBody;
