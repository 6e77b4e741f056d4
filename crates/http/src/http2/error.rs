//! Errors of connections.

use super::frame::ErrorCode;
use crate::abuse::Abuse;

/// An error of the whole connection (RFC 9113 §5.4.1). The engine has written a GOAWAY frame with this code; the caller
/// sends the output and closes the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionError {
    /// The error code of the GOAWAY frame.
    pub code: ErrorCode,
    /// A short description of the error, for the log.
    pub reason: &'static str,
}

impl ConnectionError {
    pub(super) const fn new(code: ErrorCode, reason: &'static str) -> Self {
        Self { code, reason }
    }

    pub(super) const fn protocol(reason: &'static str) -> Self {
        Self::new(ErrorCode::ProtocolError, reason)
    }

    pub(super) const fn size(reason: &'static str) -> Self {
        Self::new(ErrorCode::FrameSizeError, reason)
    }

    /// Returns `true` if the client exceeded a bound that only an attack reaches.
    pub fn is_abuse(&self) -> bool {
        self.code == ErrorCode::EnhanceYourCalm
    }
}

impl From<Abuse> for ConnectionError {
    fn from(abuse: Abuse) -> Self {
        Self::new(ErrorCode::EnhanceYourCalm, abuse.0)
    }
}
