//! Pages of statuses without settings of a route.

use dunlin_exchange::Response;
use dunlin_http::semantics::status::reason;

use super::error_page;

/// Returns the plain page of a status.
pub(crate) fn plain_page(status: u16, text: Option<&str>, html: bool) -> Response {
    page(status, text, html, None)
}

/// Returns the same as HTML with the id of the request, by which a visitor and the error log name it.
pub(crate) fn plain_page_of(status: u16, text: Option<&str>, request_id: Option<&str>) -> Response {
    page(status, text, true, request_id)
}

fn page(status: u16, text: Option<&str>, html: bool, request_id: Option<&str>) -> Response {
    let (media_type, body) = error_page::render(status, reason(status), text, html, request_id);
    let mut response = Response::with_text(status, media_type, body);
    response.fields.push("X-Content-Type-Options", "nosniff");
    response
}
