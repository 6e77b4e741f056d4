//! The outcome of a request for a script: its response, or the resource that the server sends instead.

use dunlin_config::Candidate;
use dunlin_exchange::{Incoming, Named, Response};
use dunlin_http::FieldLines;

/// The outcome of a request for a script.
pub enum Outcome {
    /// The script's response. The response fields of the route are not added yet.
    Response(Response),
    /// A whole HTTP message of the script, which is sent as it is.
    Message(Response),
    /// The path names a directory and lacks the slash at its end.
    Directory,
    /// The server responds instead of the script. Boxed, because most requests have another outcome.
    Internal(Box<Internal>),
}

/// A response that the server generates.
pub struct Internal {
    /// The resource to send.
    pub target: Target,
    /// The request without its head.
    pub incoming: Box<Incoming>,
}

/// The resource that the server sends.
pub enum Target {
    /// The path names a file that is not a script.
    File,
    /// Another path of the site, which the `try` list of the route names.
    Path(Candidate),
    /// A path that the script names (RFC 3875 §6.2.2).
    LocalRedirect(Vec<u8>),
    /// A resource that the script names, under its own fields.
    Named(FieldLines, Named),
}

impl Outcome {
    /// Returns the outcome of a request to which the server responds with `target`.
    pub fn internal(target: Target, incoming: Box<Incoming>) -> Self {
        Self::Internal(Box::new(Internal { target, incoming }))
    }
}
