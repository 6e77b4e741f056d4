//! Requests that HTTP/2 and HTTP/3 treat the same.

/// The fields of a request.
pub(crate) type Fields = Vec<(&'static str, &'static str)>;

pub(crate) const GET: &[(&str, &str)] =
    &[(":method", "GET"), (":scheme", "http"), (":path", "/a?b"), (":authority", "h:1")];
pub(crate) const POST: &[(&str, &str)] =
    &[(":method", "POST"), (":scheme", "http"), (":path", "/p"), (":authority", "h")];

/// `GET` with another value of one field.
pub(crate) fn replaced<'a>(name: &str, value: &'a str) -> Vec<(&'a str, &'a str)> {
    let field = |&(other, old)| if other == name { (other, value) } else { (other, old) };
    GET.iter().map(field).collect()
}

/// `GET` without one field.
fn without(name: &str) -> Vec<(&'static str, &'static str)> {
    GET.iter().filter(|(other, _)| *other != name).copied().collect()
}

pub(crate) fn with<'a>(
    fields: &[(&'a str, &'a str)],
    more: &[(&'a str, &'a str)],
) -> Vec<(&'a str, &'a str)> {
    [fields, more].concat()
}

/// Returns an extended CONNECT with this value of a field.
pub(crate) fn tunnel<'a>(name: &'a str, value: &'a str) -> Vec<(&'a str, &'a str)> {
    let fields = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "https"),
        (":path", "/chat?a"),
        (":authority", "h:1"),
    ];
    fields.map(|(known, set)| (known, if known == name { value } else { set })).to_vec()
}

/// Returns malformed requests, with a description of each.
pub(crate) fn malformed() -> Vec<(&'static str, Fields)> {
    vec![
        ("no method", without(":method")),
        ("an empty method", replaced(":method", "")),
        ("a method that is not a token", replaced(":method", "G T")),
        ("no scheme", without(":scheme")),
        ("an empty scheme", replaced(":scheme", "")),
        ("a scheme with its delimiter", replaced(":scheme", "http:")),
        ("a scheme that is a URL", replaced(":scheme", "http://x")),
        ("a scheme with a space", replaced(":scheme", "ht tp")),
        ("a scheme that begins with a digit", replaced(":scheme", "1http")),
        ("a scheme that is a colon", replaced(":scheme", ":")),
        ("a scheme with an underscore", replaced(":scheme", "ht_tp")),
        ("a second scheme", with(GET, &[(":scheme", "http")])),
        ("a second method", with(GET, &[(":method", "GET")])),
        ("no path", without(":path")),
        ("an empty path", replaced(":path", "")),
        ("a path that is a URL", replaced(":path", "http://a/")),
        ("a path without a slash", replaced(":path", "a")),
        ("a path that is a query", replaced(":path", "?a")),
        ("an asterisk for GET", replaced(":path", "*")),
        ("neither :authority nor Host", without(":authority")),
        ("an empty authority", replaced(":authority", "")),
        ("an authority without a name", replaced(":authority", ":80")),
        ("an authority with a path", replaced(":authority", "h/a")),
        ("an authority with a wrong port", replaced(":authority", "h:x")),
        ("an authority with a wrong encoding", replaced(":authority", "h%2")),
        ("an empty Host alone", [without(":authority"), vec![("host", "")]].concat()),
        ("a wrong Host alone", [without(":authority"), vec![("host", "u@h")]].concat()),
        ("two Hosts alone", [without(":authority"), vec![("host", "h"), ("host", "h")]].concat()),
        ("two Hosts beside :authority", with(GET, &[("host", "h:1"), ("host", "h:1")])),
        ("an empty Host beside :authority", with(GET, &[("host", "")])),
        (
            "an empty :authority beside Host",
            [replaced(":authority", ""), vec![("host", "h:1")]].concat(),
        ),
        ("CONNECT to no name", vec![(":method", "CONNECT"), (":authority", ":1")]),
        ("CONNECT by Host", vec![(":method", "CONNECT"), ("host", "h:1")]),
        (
            "CONNECT with a protocol",
            vec![(":method", "CONNECT"), (":authority", "h:1"), (":protocol", "websocket")],
        ),
        ("a protocol without CONNECT", with(GET, &[(":protocol", "websocket")])),
        ("an empty protocol", tunnel(":protocol", "")),
        ("a protocol that is not a token", tunnel(":protocol", "web socket")),
        ("a tunnel to an asterisk", tunnel(":path", "*")),
        ("a tunnel to an authority", tunnel(":path", "h:1")),
        ("a tunnel with a wrong scheme", tunnel(":scheme", "1")),
        ("two protocols", [tunnel(":path", "/"), vec![(":protocol", "x")]].concat()),
        ("a tunnel with a length", [tunnel(":path", "/"), vec![("content-length", "0")]].concat()),
        (
            "a protocol behind a field",
            [GET.to_vec(), vec![("a", "b"), (":protocol", "x")]].concat(),
        ),
        ("a second path", with(GET, &[(":path", "/")])),
        ("a second authority", with(GET, &[(":authority", "h:1")])),
        ("a pseudo-field of responses", with(GET, &[(":status", "200")])),
        ("an unknown pseudo-field", with(GET, &[(":x", "200")])),
        ("a pseudo-field behind a field", [&GET[..3], &[("a", "b"), (":authority", "h")]].concat()),
        ("capitals", with(GET, &[("Accept", "x")])),
        ("a space in a name", with(GET, &[("a b", "x")])),
        ("an empty name", with(GET, &[("", "x")])),
        ("a line end in a value", with(GET, &[("a", "b\r\nc: d")])),
        ("a NUL in a value", with(GET, &[("a", "\0")])),
        ("a space around a value", with(GET, &[("a", " b")])),
        ("Connection", with(GET, &[("connection", "close")])),
        ("Keep-Alive", with(GET, &[("keep-alive", "1")])),
        ("Proxy-Connection", with(GET, &[("proxy-connection", "1")])),
        ("Transfer-Encoding", with(GET, &[("transfer-encoding", "chunked")])),
        ("Upgrade", with(GET, &[("upgrade", "h2c")])),
        ("TE with more", with(GET, &[("te", "gzip")])),
        ("a Host that differs", with(GET, &[("host", "other")])),
        ("an authority with a user", replaced(":authority", "u@h")),
        ("a length that is not a number", with(GET, &[("content-length", "x")])),
        ("lengths that differ", with(GET, &[("content-length", "0"), ("content-length", "1")])),
        ("a length without a body", with(GET, &[("content-length", "1")])),
        (
            "CONNECT with a path",
            with(GET, &[])
                .into_iter()
                .map(|(n, v)| if n == ":method" { (n, "CONNECT") } else { (n, v) })
                .collect(),
        ),
        ("CONNECT without authority", vec![(":method", "CONNECT")]),
    ]
}

/// Returns valid requests, and the line by which each is seen.
pub(crate) fn unusual() -> Vec<(Fields, &'static str)> {
    vec![
        (
            vec![(":method", "OPTIONS"), (":scheme", "HTTP"), (":path", "*"), (":authority", "h")],
            "OPTIONS * host=h",
        ),
        (replaced(":authority", "[::1]:80"), "GET /a?b host=[::1]:80"),
        (replaced(":authority", "h%41"), "GET /a?b host=h%41"),
        (vec![(":method", "CONNECT"), (":authority", "h:1")], "CONNECT h:1 host=h:1"),
        (with(GET, &[("host", "h:1")]), "GET /a?b host=h:1"),
        (
            vec![(":path", "/"), (":method", "GET"), (":scheme", "https"), ("host", "x")],
            "GET / host=x",
        ),
        (with(GET, &[("te", "trailers")]), "GET /a?b host=h:1 te=trailers"),
        (with(GET, &[("content-length", "0")]), "GET /a?b host=h:1 content-length=0"),
    ]
}
