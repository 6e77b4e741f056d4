//! The `Expect` field (RFC 9110 §10.1.1).

use super::list;
use crate::RequestError;
use crate::field::FieldName;
use crate::request::{Request, Version};

/// Returns whether the client awaits 100 (Continue) before it sends the body.
///
/// # Errors
/// A [`RequestError`] with status 417 for any other expectation.
#[inline]
pub fn wants_continue(request: &Request<'_>) -> Result<bool, RequestError> {
    if !request.has(FieldName::Expect) || request.version() == Version::Http10 {
        return Ok(false);
    }
    expectations(request)
}

#[cold]
fn expectations(request: &Request<'_>) -> Result<bool, RequestError> {
    let mut wants_continue = false;
    let values: Vec<&[u8]> = request.values(FieldName::Expect).collect();
    for expectation in list::members(&values) {
        if !expectation.eq_ignore_ascii_case(b"100-continue") {
            return Err(RequestError::new(417, "the expectation is not 100-continue"));
        }
        wants_continue = true;
    }
    Ok(wants_continue)
}
