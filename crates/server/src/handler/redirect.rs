//! Redirects: those of the configuration, and from a directory's name to its slash form.

use dunlin_http::semantics::path::encode;
use dunlin_http::{FieldName, Request};

use crate::config::Redirect;
use crate::response::Response;
use crate::route::{Subject, error_response};

/// Sends the client where the route says.
pub(crate) fn respond(request: &Request<'_>, subject: &Subject<'_>, rule: &Redirect) -> Response {
    let location = rule.to.render(|name, text| match name {
        "path" => text.extend_from_slice(encode(subject.path).as_bytes()),
        "rest" => text.extend_from_slice(encode(rule.rest(subject.path)).as_bytes()),
        "host" => text.extend_from_slice(request.field(FieldName::Host).unwrap_or_default()),
        "query" => push_query(subject.query, text),
        _ => {}
    });
    redirect(rule.status, &location)
}

/// Sends the client from `/a` to `/a/`, so that relative links in the index file work.
pub(crate) fn to_slash(_: &Request<'_>, subject: &Subject<'_>) -> Response {
    let mut location = encode(subject.path).into_bytes();
    location.push(b'/');
    push_query(subject.query, &mut location);
    redirect(301, &location)
}

fn push_query(query: Option<&[u8]>, text: &mut Vec<u8>) {
    if let Some(query) = query {
        text.push(b'?');
        text.extend_from_slice(query);
    }
}

fn redirect(status: u16, location: &[u8]) -> Response {
    let mut response = error_response(status, true);
    response.fields.push("Location", location);
    response
}
