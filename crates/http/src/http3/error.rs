//! Errors of connections.

use super::frame::ErrorCode;
use super::qpack::MalformedSection;
use crate::abuse::Abuse;

/// An error of the whole connection (RFC 9114 §8). The caller closes the connection of QUIC with this code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionError {
    /// The error code of the application.
    pub code: ErrorCode,
    /// A short description of the error, for the peer and the log.
    pub reason: &'static str,
}

impl ConnectionError {
    pub(super) const fn new(code: ErrorCode, reason: &'static str) -> Self {
        Self { code, reason }
    }

    pub(super) const fn unexpected(reason: &'static str) -> Self {
        Self::new(ErrorCode::FrameUnexpected, reason)
    }

    pub(super) const fn frame(reason: &'static str) -> Self {
        Self::new(ErrorCode::FrameError, reason)
    }

    pub(super) const fn id(reason: &'static str) -> Self {
        Self::new(ErrorCode::IdError, reason)
    }

    pub(super) const fn load(reason: &'static str) -> Self {
        Self::new(ErrorCode::ExcessiveLoad, reason)
    }

    /// Returns `true` if the peer exceeded a bound that only an attack reaches.
    pub fn is_abuse(&self) -> bool {
        self.code == ErrorCode::ExcessiveLoad
    }
}

impl From<Abuse> for ConnectionError {
    fn from(abuse: Abuse) -> Self {
        Self::load(abuse.0)
    }
}

impl From<MalformedSection> for ConnectionError {
    fn from(malformed: MalformedSection) -> Self {
        Self::new(ErrorCode::QpackDecompressionFailed, malformed.0)
    }
}
