//! The `Expect` field (RFC 9110 §10.1.1).

use super::list;
use crate::field::FieldName;
use crate::http1::Refusal;
use crate::request::{Request, Version};

/// Whether the client waits for a 100 (Continue) before it sends the body.
///
/// # Errors
/// The [`Refusal`] to respond with when something else is expected.
#[inline]
pub fn wants_continue(request: &Request<'_>) -> Result<bool, Refusal> {
    if !request.has(FieldName::Expect) || request.version() == Version::Http10 {
        return Ok(false);
    }
    expectations(request)
}

#[cold]
fn expectations(request: &Request<'_>) -> Result<bool, Refusal> {
    let mut wants_continue = false;
    let values: Vec<&[u8]> = request.values(FieldName::Expect).collect();
    for expectation in list::members(&values) {
        if !expectation.eq_ignore_ascii_case(b"100-continue") {
            return Err(Refusal::new(417, "the expectation is not 100-continue"));
        }
        wants_continue = true;
    }
    Ok(wants_continue)
}
