//! The outcome of a request for a script: its response, or the resource that the server sends instead.

use super::head::ScriptHead;
use dunlin_config::Candidate;
use dunlin_exchange::{Incoming, Response};

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
    /// A path that the script names, perhaps an internal one, under its own fields (X-Accel-Redirect).
    SendPath(ScriptHead, Vec<u8>),
    /// A file that the script names, under its own fields (X-Sendfile).
    SendFile(ScriptHead, Vec<u8>),
}

impl Outcome {
    pub(super) fn internal(target: Target, incoming: Box<Incoming>) -> Self {
        Self::Internal(Box::new(Internal { target, incoming }))
    }
}

/// Fields that describe the sent bytes, which the script does not know.
const OF_CONTENT: [&str; 5] =
    ["accept-ranges", "content-encoding", "content-range", "etag", "last-modified"];

/// Replaces fields of the response by those of the script that named it, except for those that describe the content.
pub fn under_fields(head: &ScriptHead, mut response: Response) -> Response {
    let in_parts = response.status == 206 && response.fields.get("Content-Range").is_none();
    let stays = |name: &str| {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        let of_content = OF_CONTENT.iter().any(|other| is(other));
        match response.status {
            400.. => is("set-cookie"),
            304 => !of_content && !name.to_ascii_lowercase().starts_with("content-"),
            _ if in_parts => !of_content && !is("content-type"),
            _ => !of_content,
        }
    };
    let fields: Vec<_> = head
        .fields
        .iter()
        .filter_map(|(name, value)| Some((std::str::from_utf8(name).ok()?, value)))
        .filter(|(name, _)| stays(name))
        .collect();
    for (name, _) in &fields {
        // Both lists apply.
        if !name.eq_ignore_ascii_case("vary") {
            response.fields.remove(name);
        }
    }
    for (name, value) in fields {
        response.fields.push(name, value);
    }
    response
}
