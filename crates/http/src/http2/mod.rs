//! HTTP/2 (RFC 9113), the server's side: a state machine without sockets.
//!
//! [`Connection::next`] takes the bytes that have arrived and says what they are, until all are
//! used; [`Connection::respond`] and [`Connection::send_whole`] turn answers into bytes, or
//! [`Connection::begin_data`] and [`Connection::end_data`] a body that does not fit into the client's
//! windows. Whatever is to be sent is appended to one buffer, so that many answers leave in one write.

mod abuse;
mod connection;
mod failure;
pub mod frame;
pub mod hpack;
mod incoming;
mod outgoing;
mod priority;
mod response;
mod section;
mod stream;

pub use connection::{Connection, Event, Settings};
pub use failure::Failure;
pub use frame::{ErrorCode, PREFACE};
pub use outgoing::HeldUp;
pub use priority::Priority;
pub use response::ResponseHead;
