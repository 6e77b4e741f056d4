//! Content codings besides which of them are permitted: responses with secrets, and codings that a client does not accept.

use std::sync::Arc;

use dunlin_http::semantics::is_token;

use super::file::{Route, UnacceptedCoding};
use super::report::Report;

/// Settings of content codings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodingRules {
    /// Responses with one of these fields are not compressed.
    pub unless: Arc<[Box<str>]>,
    /// Bytes that are added to a compressed response at random, at most.
    pub padding: usize,
    /// What becomes of a coded response that the client does not accept.
    pub unaccepted: UnacceptedCoding,
    /// Bytes of content up to which a response is decoded.
    pub decode_size: u64,
}

/// Bytes of padding at most.
const MAX_PADDING: u64 = 32 << 10;
/// Bytes of content up to which a response is decoded, unless the route has another bound.
const DECODE_SIZE: u64 = 1 << 30;

impl CodingRules {
    pub(super) fn read(route: &Route, report: Report<'_>) -> Self {
        let names = route.compress_unless.as_ref().map_or(&[][..], |names| &names.value);
        for name in names.iter().filter(|name| !is_token(name.as_bytes())) {
            report(&name.span, format!("compress_unless: {:?} is not a field name", name.value));
        }
        let padding = route.compress_padding.as_ref();
        if let Some(size) = padding.filter(|size| size.value.0 > MAX_PADDING) {
            report(&size.span, "compress_padding: it is at most 32KiB".into());
        }
        Self {
            unless: names.iter().map(|name| name.value.as_str().into()).collect(),
            padding: padding.map_or(0, |size| size.value.0.min(MAX_PADDING) as usize),
            unaccepted: route.unaccepted_coding.as_deref().copied().unwrap_or_default(),
            decode_size: route.decode_size.as_deref().map_or(DECODE_SIZE, |size| size.0),
        }
    }
}
