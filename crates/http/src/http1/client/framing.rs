//! The framing of a response's body, and the persistence of the connection (RFC 9112 §6.3, §9.3).

use super::MalformedResponse;
use crate::message::list_has;

/// The fields of a response that frame it, collected as they are read.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct FramingFields {
    pub(super) length: Option<u64>,
    pub(super) is_chunked: bool,
    pub(super) has_other_coding: bool,
    pub(super) keep_alive: bool,
    pub(super) close: bool,
}

/// The framing of a response's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// There is no body.
    None,
    /// The body has this many bytes.
    Known(u64),
    /// The body is chunked.
    Chunked,
    /// The body ends where the connection ends.
    UntilClose,
}

impl FramingFields {
    /// Takes one field.
    #[inline]
    pub(super) fn add(&mut self, name: &[u8], value: &[u8]) -> Result<(), MalformedResponse> {
        match name.len() {
            10 if name.eq_ignore_ascii_case(b"connection") => {
                self.close |= list_has(value, "close");
                self.keep_alive |= list_has(value, "keep-alive");
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                let length =
                    decimal(value).ok_or(MalformedResponse("Content-Length is malformed"))?;
                if self.length.is_some_and(|other| other != length) {
                    return Err(MalformedResponse("there are two different Content-Lengths"));
                }
                self.length = Some(length);
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                if self.is_chunked {
                    return Err(MalformedResponse("there is more than one transfer coding"));
                }
                self.is_chunked = value.eq_ignore_ascii_case(b"chunked");
                self.has_other_coding |= !self.is_chunked;
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns `true` if the response has a chunked body.
    pub(super) fn is_chunked(&self) -> bool {
        self.is_chunked
    }

    /// Returns the framing that the fields state for a response that may have a body (RFC 9112 §6.3).
    pub(super) fn framing(&self) -> Result<Framing, MalformedResponse> {
        if self.has_other_coding {
            return Err(MalformedResponse("the transfer coding is not chunked"));
        }
        match (self.is_chunked, self.length) {
            (true, Some(_)) => {
                Err(MalformedResponse("both Content-Length and Transfer-Encoding are present"))
            }
            (true, None) => Ok(Framing::Chunked),
            (false, Some(length)) => Ok(Framing::Known(length)),
            (false, None) => Ok(Framing::UntilClose),
        }
    }
}

/// `1*DIGIT`, with at most 18 digits.
pub(crate) fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 18 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(text.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}
