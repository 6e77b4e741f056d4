//! Bounds of a request's head.

/// The bounds of a request's head that an engine accepts, in every version of HTTP. A request beyond a limit ends in a
/// [`RequestError`](crate::RequestError).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Size of a head in bytes, request line and fields together; at most 65,535. HTTP/2 and HTTP/3 count as
    /// RFC 9113 §6.5.2 does: the decoded fields with 32 bytes for each.
    pub head_size: usize,
    /// Size of a request-target in bytes.
    pub target_size: usize,
    /// Number of fields in a head; at most [`Head::MAX_FIELDS`](crate::Head::MAX_FIELDS).
    pub fields: usize,
    /// LF alone ends a line of a head of HTTP/1, which RFC 9112 §2.2 permits. Otherwise it is an error, as what two parsers could read
    /// differently is.
    pub bare_lf: bool,
}

impl Default for Limits {
    /// Returns a head of 32 KB, a request-target of 8 KB, and 100 fields, with CR LF behind each line.
    fn default() -> Self {
        Self { head_size: 32 * 1024, target_size: 8 * 1024, fields: 100, bare_lf: false }
    }
}
