//! Responses that the cache keeps ready.

use dunlin_http::semantics::{ContentCoding, Method};

use crate::route::reply::CachedResponse;
use crate::route::sites::CacheEntry;
use crate::worker::ResponseOutcome;
use dunlin_fs::content::StoredContent;

/// Head and body of a cached response.
pub(in super::super) struct CachedParts<'a> {
    pub(in super::super) status: u16,
    /// The field lines with the empty line at their end.
    pub(in super::super) lines: &'a [u8],
    /// Identifies `lines` to HPACK.
    pub(in super::super) serial: u64,
    /// The body to send; `None` if nothing follows the head.
    pub(in super::super) body: Option<&'a StoredContent>,
    /// Length of the body to send.
    pub(in super::super) length: u64,
    /// The outcome, without the number of bytes.
    pub(in super::super) outcome: ResponseOutcome,
}

impl<'a> CachedParts<'a> {
    /// Returns the parts of the response to a request with this method.
    #[inline]
    pub(in super::super) fn new<H: std::ops::Deref<Target = CacheEntry>>(
        cached: &'a CachedResponse<H>,
        method: Method,
    ) -> Self {
        let resource = &cached.entry.resource;
        let form = match resource.representation(cached.coding) {
            Some(Some(form)) => form,
            _ => &resource.identity,
        };
        let (status, lines) = if cached.not_modified {
            (304, &*form.head_not_modified)
        } else {
            (200, &form.block[..form.head_length])
        };
        let has_body = !cached.not_modified && method == Method::Get && form.length > 0;
        let coding = match cached.coding {
            ContentCoding::Identity => "-",
            coding => coding.as_str(),
        };
        let cache = cached.cache;
        Self {
            status,
            lines,
            serial: form.serial,
            body: has_body.then_some(&form.body),
            length: if has_body { form.length } else { 0 },
            outcome: ResponseOutcome { status, cache, coding, ..ResponseOutcome::NONE },
        }
    }
}
