//! Why a request has no response.

use std::error;
use std::fmt;
use std::io;

/// An error of the client. Its text names the origin, what failed and why.
#[derive(Debug)]
pub struct Error {
    pub(crate) kind: ErrorKind,
    pub(crate) origin: String,
    pub(crate) reason: String,
    pub(crate) io_kind: Option<io::ErrorKind>,
    /// The connection ended before any byte of the response arrived.
    pub(crate) is_without_response: bool,
    /// The server has stated that it did not process the request.
    pub(crate) is_unprocessed: bool,
}

/// The part of an exchange that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request cannot be sent as it is.
    InvalidRequest,
    /// The name of the origin has no address.
    Resolve,
    /// No connection could be opened.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// A phase took longer than its limit.
    Timeout(Phase),
    /// The connection failed or ended too early.
    Connection,
    /// The server broke the protocol.
    Protocol,
    /// The caller's request body failed.
    RequestBody,
    /// The body of the response is larger than the caller's limit.
    TooLarge,
}

/// A phase of an exchange that has its own limit of time; see [`crate::Timeouts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each is the phase of that field of Timeouts")]
pub enum Phase {
    Wait,
    Connect,
    Tls,
    FirstByte,
    BetweenBytes,
    Continue,
    Total,
}

impl Error {
    pub(crate) fn new(
        kind: ErrorKind,
        origin: &impl fmt::Display,
        reason: impl fmt::Display,
    ) -> Self {
        let (origin, reason) = (origin.to_string(), reason.to_string());
        Self {
            kind,
            origin,
            reason,
            io_kind: None,
            is_without_response: false,
            is_unprocessed: false,
        }
    }

    /// Returns an error of the system, which prevented `what`.
    pub(crate) fn of_system(
        kind: ErrorKind,
        origin: &impl fmt::Display,
        what: &str,
        error: &io::Error,
    ) -> Self {
        let io_kind = Some(error.kind());
        Self { io_kind, ..Self::new(kind, origin, format_args!("{what} failed: {error}")) }
    }

    pub(crate) fn timeout(phase: Phase, origin: &impl fmt::Display) -> Self {
        let reason = match phase {
            Phase::Wait => "all connections stayed busy",
            Phase::Connect => "no connection within the time limit",
            Phase::Tls => "no TLS handshake within the time limit",
            Phase::FirstByte => "no response within the time limit",
            Phase::BetweenBytes | Phase::Continue => "the connection stood still for too long",
            Phase::Total => "the exchange took too long",
        };
        Self::new(ErrorKind::Timeout(phase), origin, reason)
    }

    /// Returns what failed.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns `true` if a limit of time was exceeded.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self.kind, ErrorKind::Timeout(_))
    }

    /// Returns the kind of the system's error that prevented a connection.
    #[must_use]
    pub fn io_kind(&self) -> Option<io::ErrorKind> {
        self.io_kind
    }

    /// Returns `true` if the connection ended before any byte of the response arrived.
    #[must_use]
    pub fn is_without_response(&self) -> bool {
        self.is_without_response
    }

    /// Returns `true` if the server has stated that it did not process the request.
    #[must_use]
    pub fn is_unprocessed(&self) -> bool {
        self.is_unprocessed
    }

    /// Returns the reason without the origin.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.reason)
    }
}

impl error::Error for Error {}
