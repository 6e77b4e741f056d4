//! QUERY (RFC 10008): the content of the request is a part of the key, so it is received before the store is looked into.

use dunlin_exchange::{Incoming, Response, stream};
use dunlin_http::{FieldName, Request};
use dunlin_response_cache::memory::Found;
use dunlin_response_cache::status::Forward;
use sha2::{Digest, Sha256};

use super::forwarding::{Forwarding, SPECIAL};
use crate::handler::rejection::error_response;

/// Requests with more content pass by the cache.
const MAX_CONTENT: usize = 64 * 1024;

/// Whether the cache handles the request as a QUERY.
pub(super) fn is_query(request: &Request<'_>) -> bool {
    let length = request.field(FieldName::ContentLength).map(str::from_utf8);
    let length = length.and_then(|length| length.ok()?.parse::<usize>().ok());
    request.method_text() == b"QUERY"
        && length.is_some_and(|length| length <= MAX_CONTENT)
        && !request.has_any(SPECIAL)
        && !request.has(FieldName::Expect)
}

impl Forwarding {
    /// Responds to a QUERY.
    pub(super) async fn query(mut self: Box<Self>, mut incoming: Box<Incoming>) -> Response {
        let mut body = std::mem::replace(&mut incoming.body, stream::empty());
        let (mut chunks, mut hash) = (Vec::new(), Sha256::new());
        loop {
            match body.next().await {
                Ok(Some(bytes)) => {
                    hash.update(&bytes);
                    chunks.push(bytes);
                }
                Ok(None) => break,
                // The client has left.
                Err(_) => return error_response(400, true),
            }
        }
        incoming.body = stream::of(chunks);
        let request = self.request.as_request();
        let mut url = self.key.url.to_vec();
        url.extend_from_slice(b"\n");
        // No key has a NUL.
        url.extend(hash.finalize().iter().flat_map(|byte| format!("{byte:02x}").into_bytes()));
        for (name, value) in request.fields() {
            // What the content means (RFC 10008 §2.7).
            let names = ["content-type", "content-encoding", "content-language"];
            if names.iter().any(|other| name.eq_ignore_ascii_case(other.as_bytes())) {
                url.extend_from_slice(value);
                url.extend_from_slice(b"\n");
            }
        }
        self.key.url = url.into();
        let found = match self.cache.find((self.key.site, &self.key.url), &request) {
            Found::Response(stored) => Found::Response(stored),
            others => {
                if matches!(others, Found::OtherVariants) {
                    self.why = Forward::VaryMiss;
                }
                self.look_on_disk().await
            }
        };
        self.respond_with(found, incoming).await
    }
}
