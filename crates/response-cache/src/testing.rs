//! Requests and fields for the tests.

use dunlin_http::{FieldLines, Head, Limits, OwnedRequest, Request, http1};

/// Returns a request with these fields, each of which ends with CR LF.
pub(crate) fn request(method: &str, target: &str, fields: &str) -> OwnedRequest {
    let text = format!("{method} {target} HTTP/1.1\r\nHost: example.com\r\n{fields}\r\n");
    let mut head = Head::default();
    let mut engine = http1::Http1Connection::default();
    let length = engine.head(text.as_bytes(), &Limits::default(), &mut head).ok().flatten();
    assert_eq!(length, Some(text.len()), "{text}");
    Request::new(text.as_bytes(), &head).to_owned()
}

/// Fields of a response.
pub(crate) fn fields(pairs: &[(&str, &str)]) -> FieldLines {
    let mut fields = FieldLines::new();
    pairs.iter().for_each(|(name, value)| fields.push(name, value));
    fields
}
