//! Why a connection ends.

use super::frame::ErrorCode;

/// An error of the whole connection (RFC 9113 §5.4.1): the GOAWAY frame that says so has been
/// written, and nothing else is to be read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// What the client is told.
    pub code: ErrorCode,
    /// What was wrong, in a few words, for the log.
    pub reason: &'static str,
}

impl Failure {
    pub(super) const fn new(code: ErrorCode, reason: &'static str) -> Self {
        Self { code, reason }
    }

    pub(super) const fn protocol(reason: &'static str) -> Self {
        Self::new(ErrorCode::ProtocolError, reason)
    }

    pub(super) const fn size(reason: &'static str) -> Self {
        Self::new(ErrorCode::FrameSizeError, reason)
    }

    /// Whether the client did what only an attack does.
    pub fn is_abuse(&self) -> bool {
        self.code == ErrorCode::EnhanceYourCalm
    }
}
