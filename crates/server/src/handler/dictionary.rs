//! Responds with dictionaries for pages, which browsers load by `Link` (RFC 9842 §3).

use dunlin_dictionary::route::PREFIX;
use dunlin_exchange::Response;
use dunlin_http::Request;
use dunlin_http::semantics::Method;

use super::plain_page::plain_page;
use crate::route::sites::Site;

/// The time for which browsers may use a dictionary: its URL names its content.
const LIFETIME: &str = "public, max-age=2592000, immutable";

/// Responds to a request for a dictionary of a site; `None` if the request is for something else.
pub(crate) fn respond(site: &Site, request: &Request<'_>, raw_path: &[u8]) -> Option<Response> {
    let is_one = !site.dictionaries.is_empty()
        && raw_path.starts_with(PREFIX.as_bytes())
        && matches!(request.method(), Method::Get | Method::Head);
    if !is_one {
        return None;
    }
    let found = site.dictionaries.iter().find_map(|dictionary| dictionary.at_path(raw_path));
    let Some(version) = found else {
        let mut response = plain_page(404, None, false);
        response.fields.push("Cache-Control", "no-store");
        return Some(response);
    };
    // Parts of pages are no page.
    let mut response = Response::with_text(200, "text/plain", version.content.clone());
    response.is_kept = true;
    response.fields.push("Use-As-Dictionary", &*version.offer);
    response.fields.push("Cache-Control", LIFETIME);
    response.fields.push("X-Content-Type-Options", "nosniff");
    Some(response)
}
