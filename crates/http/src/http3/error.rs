//! Errors of connections.

use super::frame::Http3ErrorCode;
use super::qpack::MalformedSection;
use crate::abuse::Abuse;

/// An error of the whole connection (RFC 9114 §8). The caller closes the connection of QUIC with this code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Http3Error {
    /// The error code of the application.
    pub code: Http3ErrorCode,
    /// A short description of the error, for the peer and the log.
    pub reason: &'static str,
}

impl Http3Error {
    pub(super) const fn new(code: Http3ErrorCode, reason: &'static str) -> Self {
        Self { code, reason }
    }

    pub(super) const fn unexpected(reason: &'static str) -> Self {
        Self::new(Http3ErrorCode::FrameUnexpected, reason)
    }

    pub(super) const fn frame(reason: &'static str) -> Self {
        Self::new(Http3ErrorCode::FrameError, reason)
    }

    pub(super) const fn id(reason: &'static str) -> Self {
        Self::new(Http3ErrorCode::IdError, reason)
    }

    pub(super) const fn load(reason: &'static str) -> Self {
        Self::new(Http3ErrorCode::ExcessiveLoad, reason)
    }

    /// Returns `true` if the peer exceeded a bound that only an attack reaches.
    pub fn is_abuse(&self) -> bool {
        self.code == Http3ErrorCode::ExcessiveLoad
    }
}

impl From<Abuse> for Http3Error {
    fn from(abuse: Abuse) -> Self {
        Self::load(abuse.0)
    }
}

impl From<MalformedSection> for Http3Error {
    fn from(malformed: MalformedSection) -> Self {
        Self::new(Http3ErrorCode::QpackDecompressionFailed, malformed.0)
    }
}
