//! What a handler and a protocol adapter share of one request and its response: the body streams, the response, interim
//! responses, and the data of the request besides its head.

mod body_storage;
mod client;
mod context;
mod early_hints;
mod incoming;
mod response;
pub(crate) mod stream;

pub(crate) use self::body_storage::{Received, Share, Storage};
pub(crate) use self::client::Client;
pub(crate) use self::context::{RequestContext, Scheme};
pub(crate) use self::early_hints::EarlyHints;
pub(crate) use self::incoming::{Incoming, ResponseFuture};
pub(crate) use self::response::{Body, Piece, Response, Stream, StreamKind};
