//! Errors of requests.

/// A request that breaks the protocol or a limit: the status of the response, and the reason for the log.
///
/// After most errors of HTTP/1 the server has to close the connection, because it cannot know where the next request
/// begins. In HTTP/2 and HTTP/3 the error concerns one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestError {
    /// The status of the response.
    pub status: u16,
    /// A short description of the error.
    pub reason: &'static str,
}

impl RequestError {
    pub(crate) const fn new(status: u16, reason: &'static str) -> Self {
        Self { status, reason }
    }

    /// Returns an error with status 400 (Bad Request).
    pub(crate) const fn bad(reason: &'static str) -> Self {
        Self::new(400, reason)
    }
}
