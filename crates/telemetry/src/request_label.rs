//! The request that a line of the error log is about.

use dunlin_http::{FieldName, Request};
use dunlin_net::address::Peer;

use super::redact::Redactor;

/// The request that a line of the error log is about: what an administrator needs to find it, without its secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestLabel {
    /// The method.
    pub method: String,
    /// Scheme, host and target.
    pub url: String,
    /// The pattern of the route.
    pub route: String,
    /// The address of the client.
    pub client: String,
}

impl RequestLabel {
    /// Creates the label of a request that the route `route` handles.
    pub fn new(
        redactor: &Redactor,
        request: &Request<'_>,
        route: &str,
        (client, is_encrypted): (Peer, bool),
    ) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let target = redactor.target(request.target());
        let mut url = String::new();
        if target.starts_with(b"/") {
            url.push_str(if is_encrypted { "https://" } else { "http://" });
            url.push_str(&text(request.field(FieldName::Host).unwrap_or_default()));
        }
        url.push_str(&text(&target));
        Self {
            method: text(request.method_text()),
            url,
            route: route.to_owned(),
            client: client.to_string(),
        }
    }
}
