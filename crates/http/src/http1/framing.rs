//! Length of a request's body, and persistence of the connection (RFC 9112 §6.3, §9.3).

use crate::field::FieldName;
use crate::request::{Request, Version};
use crate::{BodyLength, RequestError};

/// Returns the length of the request's body. A message with ambiguous framing is an error.
pub(super) fn body_length(request: &Request<'_>) -> Result<BodyLength, RequestError> {
    if !request.has(FieldName::TransferEncoding) {
        return content_length(request);
    }
    if request.has(FieldName::ContentLength) {
        return Err(RequestError::bad("both Content-Length and Transfer-Encoding are present"));
    }
    if request.version() == Version::Http10 {
        return Err(RequestError::bad("Transfer-Encoding in HTTP/1.0"));
    }
    let mut values = request.values(FieldName::TransferEncoding);
    match (values.next(), values.next()) {
        (Some(value), None) if value.eq_ignore_ascii_case(b"chunked") => Ok(BodyLength::Chunked),
        (Some(value), None) if is_plain_coding(value) => {
            Err(RequestError::new(501, "the transfer coding is not supported"))
        }
        _ => Err(RequestError::bad("Transfer-Encoding is malformed or does not end in chunked")),
    }
}

/// Returns `true` if the value is a single well-formed transfer coding that does not contain `chunked`.
fn is_plain_coding(value: &[u8]) -> bool {
    crate::semantics::is_token(value)
        && !value.to_ascii_lowercase().windows(7).any(|part| part == b"chunked")
}

fn content_length(request: &Request<'_>) -> Result<BodyLength, RequestError> {
    let mut values = request.values(FieldName::ContentLength);
    let Some(value) = values.next() else {
        return Ok(BodyLength::None);
    };
    if values.next().is_some() {
        return Err(RequestError::bad("there is more than one Content-Length"));
    }
    match decimal(value) {
        Some(0) => Ok(BodyLength::None),
        Some(length) => Ok(BodyLength::Known(length)),
        None => Err(RequestError::bad("Content-Length is malformed")),
    }
}

/// Parses `1*DIGIT` below 2^63.
fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 19 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = text
        .iter()
        .try_fold(0_u64, |sum, &digit| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0')))?;
    (value <= i64::MAX as u64).then_some(value)
}

/// Returns `true` if the request permits a persistent connection (RFC 9112 §9.3).
pub(super) fn wants_persistence(request: &Request<'_>) -> bool {
    let mut keep_alive = false;
    for value in request.values(FieldName::Connection) {
        for token in value.split(|&b| b == b',').map(<[u8]>::trim_ascii) {
            if token.eq_ignore_ascii_case(b"close") {
                return false;
            }
            keep_alive |= token.eq_ignore_ascii_case(b"keep-alive");
        }
    }
    keep_alive || request.version() == Version::Http11
}
