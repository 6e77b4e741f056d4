//! Requests: malformed ones, unusual forms, bodies and fields.

use dunlin_http::http2::ErrorCode;
use dunlin_http::http2::frame::{flag, kind, setting};
use dunlin_http::{FieldName, Method, Request};

use crate::support::{
    GET, POST, Server, data, frame, headers, plain, preface, replaced, with, without,
};

#[test]
fn a_body_reaches_the_handler_with_its_trailers() {
    let mut server = Server::open(None);
    server.feed(&headers(1, &with(POST, &[("content-length", "6")]), false));
    server.feed(&data(1, b"abc", false));
    server.feed(&frame(kind::DATA, flag::PADDED, 1, b"\x01defx"));
    server.feed(&headers(1, &[("x", "y")], true));
    assert_eq!(server.seen.bodies, [(1, b"abcdef".to_vec(), true)]);
    assert!(server.engine.take_trailers(3).is_empty());
    assert_eq!(server.engine.take_trailers(1).as_bytes(), b"x: y\r\n");
    assert!(server.engine.take_trailers(1).is_empty());
    server.respond(1, 3);
    assert_eq!(server.engine.open_streams(), 0);
}

/// Returns an extended CONNECT with this value of a field.
fn tunnel<'a>(name: &'a str, value: &'a str) -> Vec<(&'a str, &'a str)> {
    let fields = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "https"),
        (":path", "/chat?a"),
        (":authority", "h:1"),
    ];
    fields.map(|(known, set)| (known, if known == name { value } else { set })).to_vec()
}

#[test]
fn an_extended_connect_is_a_request_whose_stream_stays_open() {
    let mut server = Server::new(None);
    server.feed(&preface(&[]));
    let announced = [&setting::ENABLE_CONNECT_PROTOCOL.to_be_bytes()[..], &[0, 0, 0, 1]].concat();
    assert!(server.sent()[0].3.chunks(6).any(|pair| pair == announced), "RFC 8441 §3");
    server.feed(&headers(1, &tunnel("", ""), false));
    assert_eq!(server.seen.requests, [(1, "CONNECT /chat?a host=h:1".to_owned())]);
    let request = Request::new(&server.text, &server.head);
    assert_eq!(request.method(), Method::ExtendedConnect);
    assert_eq!(request.protocol(), Some(&b"websocket"[..]));
    assert_eq!(request.equivalent_method(), b"GET");
    server.feed(&data(1, b"up", false));
    server.engine.respond(1, &plain(200), false, &mut server.out);
    server.feed(&data(1, b"", true));
    assert_eq!(server.seen.bodies, [(1, b"up".to_vec(), true)]);
    assert!(server.engine.send_whole(1, b"down", &mut server.out));
    assert_eq!((server.engine.open_streams(), server.seen.failure.is_none()), (0, true));
    // The next request is no longer one.
    server.feed(&headers(3, GET, true));
    assert_eq!(Request::new(&server.text, &server.head).protocol(), None);
}

#[test]
fn cookies_in_several_fields_are_joined() {
    let mut server = Server::new(None);
    server.feed(&preface(&[]));
    let cookies = [("cookie", "a=1"), ("x", "1"), ("cookie", ""), ("cookie", "b=2")];
    server.feed(&headers(1, &[GET, &cookies].concat(), true));
    let request = Request::new(&server.text, &server.head);
    let fields: Vec<_> = request.joined_fields().skip(1).collect();
    assert_eq!(fields[0], (&b"cookie"[..], b"a=1; b=2"[..].into()));
    assert_eq!(fields[1..], [(&b"x"[..], b"1"[..].into())]);
}

#[test]
fn a_malformed_request_is_reset_and_the_next_is_served() {
    let cases: &[(&str, Vec<(&str, &str)>)] = &[
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
    ];
    for (what, fields) in cases {
        let mut server = Server::open(Some(1));
        server.feed(&headers(1, fields, true));
        assert!(server.seen.requests.is_empty(), "{what}");
        // It is reported with what could be read of it.
        assert_eq!(server.seen.malformed.len(), 1, "{what}");
        if fields.iter().filter(|(name, _)| *name == ":path").count() == 1 {
            let target = fields.iter().find(|(name, _)| *name == ":path").map(|(_, path)| *path);
            let (stream, seen) = &server.seen.malformed[0];
            assert!(*stream == 1 && (seen.is_empty() || Some(&**seen) == target), "{what}: {seen}");
        }
        server.reset_with(1, ErrorCode::ProtocolError);
        server.feed(&headers(3, GET, true));
        assert_eq!(server.seen.requests.len(), 1, "{what}");
    }
}

#[test]
fn unusual_but_valid_forms_are_served() {
    for (fields, line) in [
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
    ] {
        let mut server = Server::open(Some(0));
        server.feed(&headers(1, &fields, true));
        assert_eq!(server.seen.requests, [(1, line.to_owned())]);
        assert_eq!(server.seen.failure, None);
    }
}

#[test]
fn a_scheme_other_than_http_or_https_is_rejected() {
    for scheme in ["ftp", "httpx", "h", "a+b-c.d1"] {
        let mut server = Server::open(Some(1));
        server.feed(&headers(1, &replaced(":scheme", scheme), true));
        assert!(server.seen.requests.is_empty(), "{scheme}");
        assert_eq!(server.seen.rejected, [(1, 400)], "{scheme}");
        server.feed(&headers(3, GET, true));
        assert_eq!(server.seen.requests.len(), 1, "{scheme}");
    }
}

#[test]
fn bodies_must_have_the_stated_length() {
    for (pieces, is_kept) in [
        (vec![("abc", false), ("def", true)], true),
        (vec![("abcdefg", false)], false),
        (vec![("abc", true)], false),
        (vec![("abc", false), ("", true)], false),
    ] {
        let mut server = Server::open(None);
        server.feed(&headers(1, &with(POST, &[("content-length", "6")]), false));
        server.out.clear();
        for (bytes, ended) in &pieces {
            server.feed(&data(1, bytes.as_bytes(), *ended));
        }
        if is_kept {
            assert!(server.seen.bodies[0].2);
        } else {
            server.reset_with(1, ErrorCode::ProtocolError);
            assert_eq!(server.seen.resets, [1]);
        }
    }
}

#[test]
fn a_field_is_found_by_its_name() {
    let mut server = Server::open(None);
    server.feed(&headers(1, &with(GET, &[("accept-encoding", "br"), ("if-match", "*")]), true));
    let request = Request::new(&server.text, &server.head);
    assert_eq!(request.field(FieldName::Host), Some(&b"h:1"[..]));
    assert_eq!(request.field(FieldName::AcceptEncoding), Some(&b"br"[..]));
    assert_eq!(request.field(FieldName::IfMatch), Some(&b"*"[..]));
}
