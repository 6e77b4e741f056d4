//! Errors of connections.

use super::frame::Http2ErrorCode;
use crate::abuse::Abuse;

/// An error of the whole connection (RFC 9113 §5.4.1). The engine has written a GOAWAY frame with this code; the caller
/// sends the output and closes the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Http2Error {
    /// The error code of the GOAWAY frame.
    pub code: Http2ErrorCode,
    /// A short description of the error, for the log.
    pub reason: &'static str,
}

impl Http2Error {
    pub(super) const fn new(code: Http2ErrorCode, reason: &'static str) -> Self {
        Self { code, reason }
    }

    pub(super) const fn protocol(reason: &'static str) -> Self {
        Self::new(Http2ErrorCode::ProtocolError, reason)
    }

    pub(super) const fn size(reason: &'static str) -> Self {
        Self::new(Http2ErrorCode::FrameSizeError, reason)
    }

    /// Returns `true` if the client exceeded a bound that only an attack reaches.
    pub fn is_abuse(&self) -> bool {
        self.code == Http2ErrorCode::EnhanceYourCalm
    }
}

impl From<Abuse> for Http2Error {
    fn from(abuse: Abuse) -> Self {
        Self::new(Http2ErrorCode::EnhanceYourCalm, abuse.0)
    }
}
