//! Requests.

use dunlin_http::RequestHead;

use crate::{Origin, Timeouts, Url};

/// A request without its body.
#[derive(Debug, Clone)]
pub struct Request {
    /// The server that the request goes to.
    pub origin: Origin,
    /// Method, target and fields.
    pub head: RequestHead,
    /// Limits of time.
    pub timeouts: Timeouts,
}

impl Request {
    /// Creates a request for `target` of `origin`. Its authority is that of the origin.
    #[must_use]
    pub fn new(origin: &Origin, method: &str, target: &str) -> Self {
        Self {
            origin: origin.clone(),
            head: RequestHead::new(method, &origin.authority(), target),
            timeouts: Timeouts::default(),
        }
    }

    /// Returns a request for `url`, which `origin` serves.
    #[must_use]
    pub fn for_url(origin: &Origin, method: &str, url: &Url) -> Self {
        Self {
            origin: origin.clone(),
            head: RequestHead::new(method, url.authority(), url.target()),
            timeouts: Timeouts::default(),
        }
    }
}
